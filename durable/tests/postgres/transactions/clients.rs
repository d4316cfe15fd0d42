//! Other clients: `psql` in a process that is killed, a trigger, and roles with few rights.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::super::server::{client, database, missing, psql, until};
use super::{HOUR, one, run, start, text};

const ORDERS: &str = "CREATE TABLE orders (id int PRIMARY KEY, remind_at timestamptz)";

/// A `psql` that reads statements from its input.
struct Psql {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Psql {
    fn start(url: &str) -> Option<Self> {
        let mut command = Command::new(psql()?);
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", url]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Some(Psql { child, output })
    }

    fn send(&mut self, sql: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(sql.as_bytes()).expect("it reads");
        input.flush().expect("it reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it writes");
        line.trim_end().to_owned()
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// The process dies between the insert and the commit, or somewhere around the commit: there are
/// both, order and timer, or neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_leaves_order_and_timer_or_neither() {
    let Some(url) = database("killed").await else {
        return missing();
    };
    let (timers, _claims) = start(&url).await;
    let admin = client(&url).await;
    run(&admin, ORDERS).await;
    for id in 0..24_u32 {
        let Some(mut psql) = Psql::start(&url) else {
            return missing();
        };
        psql.send(&format!(
            "BEGIN; INSERT INTO orders VALUES ({id});
            SELECT tickwheel_set('orders', 'order {id}', '{id}', now() + interval '1 h');\n"
        ));
        assert_eq!(psql.line(), "set");
        if id % 4 > 0 {
            psql.send("COMMIT; SELECT 'committed';\n");
            if id % 4 == 1 {
                assert_eq!(psql.line(), "committed");
            }
            std::thread::sleep(Duration::from_micros(u64::from(id) * 100));
        }
        psql.kill();
        until("the end of the process's transaction", async || {
            let open = "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'psql' AND datname = current_database()";
            text(&admin, open).await == "0"
        })
        .await;
        let orders = format!("SELECT count(*)::text FROM orders WHERE id = {id}");
        let order = text(&admin, &orders).await == "1";
        let timer = timers.remove_timer(&format!("order {id}")).await;
        let timer = timer == Ok(tickwheel_durable::Removed::Done(id.into()));
        assert_eq!(order, timer, "order {id}");
        assert!(id % 4 > 0 || !order, "order {id} was not committed");
        assert!(id % 4 != 1 || order, "order {id} was committed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trigger_sets_moves_and_removes() {
    let Some(url) = database("trigger").await else {
        return missing();
    };
    let (timers, _claims) = start(&url).await;
    let user = client(&url).await;
    run(&user, ORDERS).await;
    let trigger = "CREATE FUNCTION remind() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF TG_OP = 'DELETE' THEN
                PERFORM tickwheel_remove('orders', 'order ' || OLD.id);
            ELSE
                PERFORM tickwheel_set('orders', 'order ' || NEW.id, to_jsonb(NEW.id), NEW.remind_at);
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER remind AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION remind()";
    run(&user, trigger).await;
    run(
        &user,
        "INSERT INTO orders SELECT n, now() + interval '1 h' FROM generate_series(1, 100) n",
    )
    .await;
    assert_eq!(timers.counts().await.expect("it counts").waiting, 100);
    let before = timers.deadline("order 7").await.expect("it reads");
    run(
        &user,
        "UPDATE orders SET remind_at = remind_at + interval '1 h' WHERE id = 7",
    )
    .await;
    let after = timers.deadline("order 7").await.expect("it reads");
    assert_eq!(before.map(|before| before + HOUR), after);
    run(&user, "DELETE FROM orders WHERE id > 10").await;
    assert_eq!(timers.counts().await.expect("it counts").waiting, 10);
    // A statement that fails leaves no timer behind.
    let fails = user
        .batch_execute("INSERT INTO orders VALUES (200, now()), (1, now())")
        .await;
    assert_eq!(
        fails.expect_err("1 is there").code(),
        Some(&SqlState::UNIQUE_VIOLATION)
    );
    assert_eq!(timers.deadline("order 200").await, Ok(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_with_execute_alone_may_call() {
    let Some(url) = database("callers").await else {
        return missing();
    };
    let (timers, _claims) = start(&url).await;
    let admin = client(&url).await;
    let [caller, other] = ["caller", "other"].map(|role| format!("{role}_{}", std::process::id()));
    let roles = format!("CREATE ROLE {caller}; CREATE ROLE {other};
        GRANT EXECUTE ON FUNCTION tickwheel_set(text, text, jsonb, timestamptz), tickwheel_remove(text, text) TO {caller};
        GRANT CREATE ON SCHEMA public TO {caller}");
    run(&admin, &roles).await;
    let user = client(&url).await;
    let denied = async |sql: &str| {
        let error = user.batch_execute(sql).await.expect_err(sql);
        assert_eq!(
            error.code(),
            Some(&SqlState::INSUFFICIENT_PRIVILEGE),
            "{sql}: {error:?}"
        );
    };
    let set = "SELECT tickwheel_set('orders', 'a', '1', now() + interval '1 h')";
    run(&user, &format!("SET ROLE {other}")).await;
    denied(set).await;
    denied("SELECT tickwheel_compact('1')").await;
    run(&user, &format!("RESET ROLE; SET ROLE {caller}")).await;
    assert_eq!(text(&user, set).await, "set");
    denied("SELECT tickwheel_move('orders', 'a', now())").await;
    denied("SELECT * FROM tickwheel_timers").await;
    denied("SELECT tickwheel_write('orders', 'a', 'b', now(), 'set')").await;
    // Objects that it makes itself are not used with the owner's rights.
    run(&user, "CREATE TEMP TABLE tickwheel_timers (version int); CREATE TEMP TABLE tickwheel_namespaces (id int);
        CREATE FUNCTION pg_temp.tickwheel_write(text, bytea, bytea, timestamptz, text) RETURNS record LANGUAGE sql
            AS 'SELECT 1/0, 1'; SET search_path = pg_temp, public").await;
    let replaced = set.replace("tickwheel_set", "public.tickwheel_set");
    assert_eq!(text(&user, &replaced).await, "replaced");
    let removed = one(
        &user,
        "SELECT result FROM public.tickwheel_remove('orders', 'a')",
    )
    .await;
    assert_eq!(removed.get::<_, &str>(0), "removed");
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
}
