//! The connection that calls share, and how it comes back.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, RedisError, Value,
};
use tokio::sync::{Mutex, Notify};

use super::error::{ends_connection, store_error, without_credentials};
use super::scripts::Script;
use crate::crypto;
use crate::store::{Namespace, StoreError};

/// A connection that carries nothing is probed after this time, and given up after three times as long.
const PROBE: Duration = Duration::from_secs(5);

/// The connection ends when its data is not acknowledged for this time.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// How often one call loads a script that the server does not know: another client may flush
/// scripts meanwhile.
const LOADS: usize = 3;

/// After this time with a call sent and no response received, the connection is dropped as soon as
/// a caller gives up. A caller's limit is longer as a rule, and then the limit decides.
const SILENCE: Duration = Duration::from_secs(1);

/// One connection for all calls, in their order.
///
/// A call whose future is dropped stays where it is on the connection, so later calls come after
/// it. A connection is given up when it has failed, or when the server is silent. A server that
/// hangs does not close the connection, and its kernel acknowledges data, although another server
/// may have its address by then. The next call connects again.
///
/// # Order across connections
///
/// Calls on the old connection may still run. A server that hung may wake up, find them in its
/// socket, and run them after the calls of the new connection, although their callers have received
/// an error. So:
///
/// 1. Each store has a name of its own, and each of its connections an *epoch*, greater than that of the one before. Every
///    script is sent both.
/// 2. A script first compares its epoch with the greatest one of that name in this namespace. If
///    its own is greater, the script records it in the same step as everything else it does. If its
///    own is less, it changes nothing and fails.
/// 3. Calls of one connection run in their order. When one of a later connection runs, by 2 none of
///    an earlier one runs any more. So calls take effect in their order, and a late one has no
///    effect, which rule 3 of the store allows for a call that was given up.
///
/// A server that has taken over from another one may lack the last epochs and timers. It does not
/// need the epochs of earlier connections, which lead to the other server.
pub(super) struct Connection {
    client: Client,
    /// Where the server is, without credentials.
    place: String,
    /// The name of the store.
    name: String,
    live: Mutex<Option<Arc<Link>>>,
    /// Notified when a connection is given up.
    given_up: Arc<Notify>,
}

/// A connection to the server.
struct Link {
    connection: MultiplexedConnection,
    epoch: i64,
    silence: StdMutex<Silence>,
    is_given_up: AtomicBool,
    given_up: Arc<Notify>,
}

/// How long a server has said nothing.
///
/// A response to a call that was given up is not seen. Then `since` is too early, and at worst a
/// good connection is given up.
#[derive(Default)]
struct Silence {
    /// How many calls wait for their responses.
    waiting: usize,
    /// Since when a call has been sent and no response received.
    since: Option<Instant>,
}

impl Link {
    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.given_up.notify_waiters();
    }

    fn silence(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command. Dropping the future gives up waiting for the response.
    async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        let mut waiting = Waiting::on(self);
        let answer = command.query_async(&mut connection).await;
        waiting.is_answered = true;
        drop(waiting);
        if answer.as_ref().is_err_and(ends_connection) {
            self.give_up();
        }
        answer
    }
}

/// A call that waits for its response, until it has one or the caller gives up.
struct Waiting<'a> {
    link: &'a Link,
    is_answered: bool,
}

impl<'a> Waiting<'a> {
    fn on(link: &'a Link) -> Self {
        let mut silence = link.silence();
        silence.waiting += 1;
        silence.since.get_or_insert_with(Instant::now);
        Waiting {
            link,
            is_answered: false,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut silence = self.link.silence();
        silence.waiting -= 1;
        if self.is_answered {
            silence.since = (silence.waiting > 0).then(Instant::now);
        } else if silence
            .since
            .is_some_and(|since| since.elapsed() >= SILENCE)
        {
            self.link.give_up();
        }
    }
}

impl Connection {
    /// Takes a URL apart. Connects when it is first used.
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let place = without_credentials(url);
        let refused = |error: RedisError| {
            StoreError::refused(format_args!("the URL {place} cannot be used")).because_of(error)
        };
        let keepalive = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
        let info = url.into_connection_info().map_err(refused)?;
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            // The client takes the one of the process and panics if there is none. If the program has chosen one, it stays.
            crypto::install()?;
        }
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(refused)?;
        Ok(Connection {
            client,
            place,
            name: format!("{:016x}", RandomState::new().hash_one(0_u8)),
            live: Mutex::default(),
            given_up: Arc::default(),
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Notified when a connection is given up.
    pub(super) fn given_up(&self) -> &Arc<Notify> {
        &self.given_up
    }

    /// The connection. Connects if there is none.
    async fn link(&self) -> Result<Arc<Link>, RedisError> {
        let mut live = self.live.lock().await;
        let last_epoch = match &*live {
            Some(link) if !link.is_given_up.load(Ordering::Acquire) => return Ok(Arc::clone(link)),
            Some(link) => Some(link.epoch),
            None => None,
        };
        // The caller has a limit for the whole call.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await?;
        let epoch = match last_epoch {
            // No other connection had the name before, so the server need not remember this one.
            None => 0,
            Some(last) => {
                let time = ::redis::cmd("TIME");
                let (secs, micros): (i64, i64) = time.query_async(&mut connection).await?;
                (secs * 1_000_000 + micros).max(last + 1)
            }
        };
        let link = Arc::new(Link {
            connection,
            epoch,
            silence: StdMutex::default(),
            is_given_up: AtomicBool::new(false),
            given_up: Arc::clone(&self.given_up),
        });
        *live = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Sends a command.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.link().await?.send(command).await
    }

    /// Runs a script on a namespace: one round trip, unless the server does not know the script yet.
    pub(super) async fn run(
        &self,
        script: &Script,
        namespace: &Namespace,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let failed = |error: &RedisError| store_error(error, &self.place, Some(namespace));
        let link = self.link().await.map_err(|error| failed(&error))?;
        let mut command = ::redis::cmd("EVALSHA");
        command.arg(script.hash()).arg(1).arg(key_of(namespace));
        arguments(&mut command);
        command.arg(&self.name).arg(link.epoch);
        let mut answer = link.send(&command).await;
        for _ in 0..LOADS {
            if answer.as_ref().err().and_then(RedisError::code) != Some("NOSCRIPT") {
                break;
            }
            answer = match link.send(&script.load()).await {
                Ok(_) => link.send(&command).await,
                Err(error) => Err(error),
            };
        }
        answer.map_err(|error| failed(&error))
    }
}

/// The key of what is known about a namespace. The others begin with it. The braces put all of them into one slot of a cluster.
pub(super) fn key_of(namespace: &Namespace) -> String {
    format!("tickwheel:{{{namespace}}}")
}
