//! Databases with a role that may not create anything: another role applies the files.

use tickwheel_durable::store::{Load, Namespace, Store, StoreError};
use tickwheel_durable::{Postgres, PostgresOptions};

use super::server::{client, database, missing};

/// Makes a role that may connect and do nothing else, and returns the URL with it.
async fn limited(url: &str) -> (String, String) {
    let name = url.rsplit_once('/').expect("it has a name").1;
    let role = format!("limited_{name}");
    let make = format!(
        "CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO {role}"
    );
    let made = client(url).await.batch_execute(&make).await;
    made.expect("it is made");
    let with_role = url.replace("postgres@", &format!("{role}@"));
    (role, with_role)
}

/// The rights that the documentation of `Postgres` names.
fn rights(role: &str) -> String {
    format!(
        "GRANT SELECT ON tickwheel_schema TO {role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON tickwheel_namespaces, tickwheel_instances, tickwheel_timers, tickwheel_dead TO {role};
        GRANT USAGE, UPDATE ON SEQUENCE tickwheel_versions TO {role}"
    )
}

async fn refusal(options: PostgresOptions) -> String {
    let error = Postgres::connect_with(options).await;
    let error = error.expect_err("it must fail");
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    format!("{error:#}")
}

/// Everything that the schema consists of.
async fn objects(url: &str) -> Vec<String> {
    let sql = "
        SELECT format('%s.%s %s %s', table_name, column_name, data_type, column_default) FROM information_schema.columns
            WHERE table_schema = 'public'
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT format('%s %s %s', relname, relkind, reloptions) FROM pg_class
            WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT format('%s %s %s %s %s', oid::regprocedure, prosecdef, proconfig, proacl, prosrc) FROM pg_proc
            WHERE pronamespace = 'public'::regnamespace
        UNION ALL SELECT 'version ' || version FROM tickwheel_schema
        ORDER BY 1";
    let rows = client(url).await.query(sql, &[]).await;
    let rows = rows.expect("it reads");
    // The rest of a text does not begin where the code's does.
    let lines = rows.iter().flat_map(|row| row.get::<_, &str>(0).lines());
    lines
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_without_create_uses_tables_from_files() {
    let Some(url) = database("files").await else {
        return missing();
    };
    let (role, limited) = limited(&url).await;
    let options = || PostgresOptions::new(&limited).expect("it parses");
    let checks = || options().create_tables(false);
    let all = "apply migrations/postgres/1.sql of";
    let text = refusal(checks()).await;
    assert!(
        text.contains("there are no tables") && text.contains(all),
        "{text}"
    );
    let text = refusal(options()).await;
    assert!(
        text.contains("permission denied") && text.contains("migrations/postgres/1.sql"),
        "{text}"
    );
    let admin = client(&url).await;
    for file in Postgres::MIGRATIONS {
        admin.batch_execute(file.up).await.expect("it is applied");
        let again = admin.batch_execute(file.up).await;
        let error = again.expect_err("it was applied");
        let text = error.as_db_error().expect("the server says so").message();
        assert!(text.contains("tickwheel-durable"), "{text}");
    }
    admin
        .batch_execute(&rights(&role))
        .await
        .expect("it is granted");
    for options in [checks(), options()] {
        let store = Postgres::connect_with(options).await.expect("it connects");
        let space = Namespace::new("files").expect("it is a name");
        store.open(&space, &"json".into()).await.expect("it opens");
    }
    let set = "SELECT tickwheel_set('files', 'order 17', '30', now())";
    admin
        .batch_execute(set)
        .await
        .expect("the functions are there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_make_what_the_crate_makes() {
    let (Some(files), Some(crates)) = (database("by_files").await, database("by_crate").await)
    else {
        return missing();
    };
    let admin = client(&files).await;
    for file in Postgres::MIGRATIONS {
        admin.batch_execute(file.up).await.expect("it is applied");
    }
    Postgres::connect(&crates).await.expect("it connects");
    assert_eq!(objects(&files).await, objects(&crates).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_tables_ask_for_the_files_that_follow() {
    let Some(url) = database("older").await else {
        return missing();
    };
    Postgres::connect(&url).await.expect("it connects");
    let admin = client(&url).await;
    let older = "UPDATE tickwheel_schema SET version = 0";
    admin.batch_execute(older).await.expect("it is older");
    let checks = || {
        let options = PostgresOptions::new(&url).expect("it parses");
        options.create_tables(false)
    };
    let text = refusal(checks()).await;
    assert!(
        text.contains(
            "the tables have version 0, and 1 is needed: run `tickwheel-admin migrate up`"
        ) && text.contains("or apply migrations/postgres/1.sql of"),
        "{text}"
    );
}

/// Policies hid all timers: counts were zero, nothing was delivered, and no line said why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_level_security_fails_calls_instead_of_hiding_timers() {
    let Some(url) = database("row_security").await else {
        return missing();
    };
    let (role, limited) = limited(&url).await;
    let admin = client(&url).await;
    for file in Postgres::MIGRATIONS {
        admin.batch_execute(file.up).await.expect("it is applied");
    }
    let granted = admin.batch_execute(&rights(&role)).await;
    granted.expect("it is granted");
    let store = Postgres::connect(&limited).await.expect("it connects");
    let space = Namespace::new("hidden").expect("it is a name");
    let opened = store.open(&space, &"json".into()).await.expect("it opens");
    let set = "SELECT tickwheel_set('hidden', 'order 17', '30', now())";
    admin.batch_execute(set).await.expect("it is set");
    assert_eq!(store.count(&space).await.expect("it counts").waiting, 1);
    let hide = "ALTER TABLE tickwheel_timers ENABLE ROW LEVEL SECURITY";
    admin.batch_execute(hide).await.expect("it is set");
    let minute = std::time::Duration::from_secs(60);
    let load = Load::new(opened.instance, minute, 1, minute);
    let refused = [
        store.count(&space).await.map(drop),
        store.load(&space, load).await.map(drop),
    ];
    for refused in refused {
        let text = format!("{:#}", refused.expect_err("rows are hidden"));
        assert!(text.contains("row-level security"), "{text}");
    }
}
