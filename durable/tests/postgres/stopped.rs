//! A process that is stopped in the middle of a batch, as by SIGSTOP, a debugger or a machine that
//! sleeps: calls of others on the same locks go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{
    Action, Due, Fire, List, Namespace, Settle, Settlement, State, Store, StoreError, Stored,
    Terms, Write, WriteOutcome,
};
use tickwheel_durable::{Moved, Postgres, Removed, builder};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use super::server::{client, database, missing, until};

const HOUR: Duration = Duration::from_secs(3_600);

/// Stands between a store and its server. Once it is told to stop, it passes on what one connection
/// sends at once with the begin of a transaction, and nothing after that. Then it is told no more.
struct Proxy {
    port: u16,
    stops: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("it binds");
        let port = listener.local_addr().expect("it is bound").port();
        let stops = Arc::<AtomicBool>::default();
        let proxy = Proxy {
            port,
            stops: Arc::clone(&stops),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await;
                let server = server.expect("it accepts");
                drop(tokio::spawn(pass_on(socket, server, Arc::clone(&stops))));
            }
        });
        proxy
    }
}

async fn pass_on(socket: TcpStream, server: TcpStream, stops: Arc<AtomicBool>) {
    let (mut from_store, mut to_store) = socket.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    drop(tokio::spawn(async move {
        copy(&mut from_server, &mut to_store).await
    }));
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from_store.read(&mut buffer).await {
        let sent = &buffer[..count];
        if to_server.write_all(sent).await.is_err() {
            return;
        }
        let begins = sent.windows(5).any(|word| word == b"BEGIN");
        if begins && stops.swap(false, Ordering::AcqRel) {
            std::future::pending::<()>().await;
        }
    }
}

fn write(key: &str, action: Action) -> Write {
    Write::new(format!("\"{key}\"").into(), action)
}

fn set(key: &str, due: Duration) -> Write {
    write(key, Action::set(b"1".to_vec(), Due::In(due), None, false))
}

/// A store that stops in the middle of a batch by this call, and its server.
async fn stop_in(
    name: &str,
    call: impl AsyncFnOnce(&Postgres, &Namespace, &AtomicBool),
) -> Option<String> {
    let url = database(name).await?;
    let config: tokio_postgres::Config = url.parse().expect("it parses");
    let port = config.get_ports()[0];
    let proxy = Proxy::start(port).await;
    let through = url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port));
    let store = Postgres::connect(&through).await.expect("it connects");
    let space = Namespace::new("orders").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    // All statements are prepared, and the keys are there.
    let writes = ["a", "b"].map(|key| set(key, HOUR)).to_vec();
    store
        .write(&space, writes, Terms::NONE)
        .await
        .expect("it writes");
    let moved = write("b", Action::move_to(Due::In(HOUR)));
    let writes = vec![set("a", HOUR), moved];
    until("a write", async || {
        let written = store.write(&space, writes.clone(), Terms::NONE);
        written.await.is_ok()
    })
    .await;
    call(&store, &space, &proxy.stops).await;
    until("the batch stops", async || {
        !proxy.stops.load(Ordering::Acquire)
    })
    .await;
    // It is not dropped: its connections stay open.
    std::mem::forget(store);
    Some(url)
}

/// Waits until the change is there: what was passed on was the whole batch.
async fn commits(url: &str, state: State, is_changed: impl Fn(&Stored) -> bool) {
    let store = Postgres::connect(url).await.expect("it connects");
    let space = Namespace::new("orders").expect("it is a name");
    until("the batch commits", async || {
        let rows = store.list(&space, List::new(state, None, 10)).await;
        rows.expect("it lists").iter().any(&is_changed)
    })
    .await;
}

/// Others change the same keys, as instances and in their own transactions.
async fn others_go_on(url: &str) {
    let store = Postgres::connect(url).await.expect("it connects");
    let builder = builder::<String, u64>("orders").call_timeout(Duration::from_secs(5));
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, _claims) = started.expect("it starts");
    assert_eq!(timers.move_timer("a", HOUR).await, Ok(Moved::Done));
    let user = client(url).await;
    let call = "SET statement_timeout = '5s'; SELECT tickwheel_move('orders', 'b', now() + interval '1 h')";
    user.batch_execute(call).await.expect("it is moved");
    let removed = timers.remove_timer("b").await;
    assert!(matches!(removed, Ok(Removed::Done(_))), "{removed:?}");
}

/// It took the locks of the keys, and the rest of the batch was to come with a second round trip,
/// which never came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_stopped_in_a_batch_of_writes_delays_no_other() {
    let stopped = stop_in("stopped_writes", async |store, space, stops| {
        stops.store(true, Ordering::Release);
        let (store, space) = (store.clone(), space.clone());
        // Sets alone would be one statement.
        let set = Action::set(b"2".to_vec(), Due::In(HOUR), None, false);
        let writes = vec![write("a", set), write("b", Action::move_to(Due::In(HOUR)))];
        drop(tokio::spawn(async move {
            let _ = store.write(&space, writes, Terms::NONE).await;
        }));
    });
    let Some(url) = stopped.await else {
        return missing();
    };
    commits(&url, State::Waiting, |row| row.value == b"2").await;
    others_go_on(&url).await;
}

/// A batch that the network does not hold as a whole: the server ends its transaction after a
/// second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_stopped_in_a_large_batch_delays_others_for_a_second() {
    let mut writing = None;
    let stopped = stop_in("stopped_large", async |store, space, stops| {
        let large = || {
            let value = vec![b'1'; 500_000];
            let absent = Action::set(value, Due::In(HOUR), None, true);
            let moves = ["a", "b"].map(|key| write(key, Action::move_to(Due::In(HOUR))));
            let absent = ["c", "d"].map(|key| write(key, absent.clone()));
            [moves, absent].concat()
        };
        // All statements are prepared. A process that stands still for a second loses its batch.
        until("a write", async || {
            let written = store.write(space, large(), Terms::NONE).await;
            written.is_ok()
        })
        .await;
        stops.store(true, Ordering::Release);
        let (store, space) = (store.clone(), space.clone());
        writing = Some(tokio::spawn(async move {
            store.write(&space, large(), Terms::NONE).await
        }));
        tokio::time::sleep(Duration::from_millis(200)).await;
    });
    let Some(url) = stopped.await else {
        return missing();
    };
    others_go_on(&url).await;
    // It may pass: it was refused for good.
    let ended = writing.expect("it has begun").await.expect("it ends");
    let may_pass = matches!(ended, Err(StoreError::Unavailable { .. }));
    assert!(may_pass, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_stopped_in_a_batch_of_settles_delays_no_other() {
    let stopped = stop_in("stopped_settles", async |store, space, stops| {
        let claims = async || {
            let writes = ["a", "b"].map(|key| set(key, Duration::ZERO)).to_vec();
            let written = store
                .write(space, writes, Terms::NONE)
                .await
                .expect("it writes");
            let versions = written.iter().map(|written| match written {
                WriteOutcome::Armed { row, .. } => row.version,
                other => panic!("{other:?}"),
            });
            let fire = Fire::new(versions.collect(), Some(HOUR), Terms::NONE);
            let fired = store.fire(space, fire).await.expect("it fires").fired;
            let put_back = fired.iter().map(|fired| {
                Settle::new(fired.token, Settlement::RetryAfter(HOUR)).with_error("stopped")
            });
            put_back.collect::<Vec<_>>()
        };
        let settles = claims().await;
        until("settles", async || {
            let settled = store.settle(space, settles.clone(), Terms::NONE);
            settled.await.is_ok()
        })
        .await;
        let settles = claims().await;
        // What is left in flight is not what others change.
        let writes = ["a", "b"].map(|key| set(key, HOUR)).to_vec();
        store
            .write(space, writes, Terms::NONE)
            .await
            .expect("it writes");
        stops.store(true, Ordering::Release);
        let (store, space) = (store.clone(), space.clone());
        drop(tokio::spawn(async move {
            let _ = store.settle(&space, settles, Terms::NONE).await;
        }));
    });
    let Some(url) = stopped.await else {
        return missing();
    };
    let stopped = Some("stopped");
    commits(&url, State::InFlight, |row| row.error.as_deref() == stopped).await;
    others_go_on(&url).await;
}
