//! A process of one version of the crate: sets timers, handles what it is given, and says so.
//!
//! | line | |
//! |---|---|
//! | `ready` | it has started |
//! | `set <key>` | the timer is set |
//! | `refused <error>` | a set has failed because of the schema |
//! | `begins <key> <attempt>` | a handler runs |
//! | `acked <key>` | it has ended, and so has the timer |
//! | `fails <what>: <error>` | what no version may meet |
//! | `left <count>` | so many timers are left; it says that where it sets none |
//!
//! It ends when its standard input does, once its handlers have.

use std::io::Write as _;
use std::time::Duration;

/// How often a process sets timers, and how many; a handler takes up to twice as long as this.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
const AT_ONCE: u64 = 3;

/// A handler of a process that was killed runs again after this.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) const NAMESPACE: &str = "orders";

/// How long a timer waits, or a handler takes.
fn some_time() -> Duration {
    PAUSE * fastrand::u32(0..20) / 10
}

/// A line goes out at once: it has to be there if the process is killed.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // The test has ended if it does not read.
    let _ = writeln!(out, "\n{line}");
    let _ = out.flush();
}

macro_rules! worker {
    ($version:ident, $durable:ident) => {
        pub(crate) mod $version {
            use tickwheel::TimerWheel;
            use tokio::io::AsyncReadExt as _;
            use $durable::store::Store;
            use $durable::{Error, Postgres, Redis, Retry, Sqlite, StoreError, builder};

            use super::{AT_ONCE, LEASE, NAMESPACE, PAUSE, say, some_time};

            async fn connect(url: &str) -> Result<Box<dyn Store>, StoreError> {
                Ok(match url.split_once("://") {
                    Some(("postgres", _)) => Postgres::connect(url).await?.into(),
                    Some(("redis", _)) => Redis::connect(url).await?.into(),
                    _ => Sqlite::open(url)?.into(),
                })
            }

            pub(crate) async fn run(url: &str, drains: bool) {
                let store = connect(url).await.expect("it connects");
                let settings = builder::<String, u64>(NAMESPACE).poll(PAUSE).lease(LEASE);
                let started = settings.start(&TimerWheel::new(), store).await;
                let (timers, mut claims) = started.expect("it starts");
                say(format_args!("ready"));
                let setting = {
                    let timers = timers.clone();
                    tokio::spawn(async move {
                        while drains {
                            let counts = timers.counts().await.expect("it counts");
                            say(format_args!("left {}", counts.waiting + counts.in_flight));
                            tokio::time::sleep(PAUSE).await;
                        }
                        let process = std::process::id();
                        for number in 0.. {
                            let key = format!("{process}-{number}");
                            match timers.set_timer(&key, &number, some_time()).await {
                                Ok(()) => say(format_args!("set {key}")),
                                Err(error @ Error::Store(StoreError::Schema { .. })) => {
                                    say(format_args!("refused {error}"));
                                }
                                Err(error) => say(format_args!("fails set {key}: {error:#}")),
                            }
                            if number % AT_ONCE == 0 {
                                tokio::time::sleep(PAUSE).await;
                            }
                        }
                    })
                };
                tokio::spawn(async move {
                    // Nothing is ever sent.
                    let _ = tokio::io::stdin().read(&mut [0]).await;
                    setting.abort();
                    let _ = setting.await;
                    timers.shutdown().await;
                });
                let handler = async |claim: $durable::Claim<String, u64>| {
                    let key = claim.key.clone();
                    say(format_args!("begins {key} {}", claim.attempt));
                    tokio::time::sleep(some_time()).await;
                    match claim.ack().await {
                        Ok(()) => say(format_args!("acked {key}")),
                        Err(error) => say(format_args!("fails ack of {key}: {error:#}")),
                    }
                    Ok::<(), Retry>(())
                };
                claims.dispatch(64, handler).await;
            }
        }
    };
}

worker!(this, tickwheel_durable);
worker!(next, tickwheel_durable_next);
