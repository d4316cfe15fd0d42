//! The connection that calls share, and how it comes back.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, RedisError, Value, from_redis_value};
use tokio::sync::{Mutex, Notify};
use tokio::time::sleep;

use super::error::{ends_connection, store_error, without_credentials};
use super::keys::{absent_key_of, key_of};
use super::scripts::{FOLLOW, Script};
use super::servers::{Servers, connect};
use crate::crypto;
use crate::lock::lock;
use crate::silence::Silence;
use crate::store::{Namespace, StoreError, StoreTime};

/// A server has this time to let a store connect, or a listener connect and subscribe.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// How often one call loads a script that the server does not know: another client may flush
/// scripts meanwhile.
const LOADS: usize = 3;

/// Replicas have this time to receive what a call has changed.
const REPLICATED: Duration = Duration::from_secs(1);

/// After this time with calls sent and no response received, the connection is dropped as soon as
/// a caller gives up. A caller's limit is longer as a rule, and then the limit decides.
const SILENCE: Duration = Duration::from_secs(1);

/// How long a call waits that has been sent away by a node of a cluster, before it tries again.
const REDIRECTED: Duration = Duration::from_millis(20);

/// One connection for all calls, in their order; in a cluster one for those on each namespace.
///
/// A call stays where it is on the connection when its future is dropped, so later calls come after
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
/// 1. Each store has a unique name, and each of its connections an *epoch*, greater than that
///    of the one before. Every script is sent both.
/// 2. A script first compares its epoch with the greatest one of that name in this namespace. If
///    its own is greater, the script records it in the same step as everything else it does. If its
///    own is less, it changes nothing and fails.
/// 3. Calls of one connection run in their order. When one of a later connection runs, by 2 none of
///    an earlier one runs any more. So calls take effect in their order, and a late one has no
///    effect, which rule 3 of the store allows for a call that was given up.
///
/// A server that has taken over from another one may lack the last epochs and timers. It does not
/// need the epochs of earlier connections, which lead to the other server.
///
/// # Clusters
///
/// All keys of a namespace are in one slot. Its node says `MOVED` when it has given the slot away,
/// and has not run the script, so the call is made again on a new connection. While the keys are
/// moved from one node to another, a script would find some of them at neither. So each script
/// names [a key that never exists](absent_key_of), besides the one it works on. Then the old node
/// sends it away with `ASK`, and the new one would say `TRYAGAIN`, until the slot has moved: the
/// call waits for that.
pub(super) struct Connection {
    servers: Arc<Servers>,
    /// Where the server is, without credentials.
    place: String,
    /// The name of the store.
    name: String,
    /// In a cluster by namespace. One that is no call on a namespace has none.
    lines: StdMutex<HashMap<Option<Namespace>, Arc<Line>>>,
}

/// A connection after the other.
#[derive(Default)]
struct Line {
    live: Mutex<Option<Arc<Link>>>,
    /// Notified when one is given up.
    given_up: Arc<Notify>,
}

/// A connection to a server.
pub(super) struct Link {
    connection: MultiplexedConnection,
    epoch: i64,
    silence: Silence,
    /// When replicas last had what a call has changed.
    replicated: StdMutex<Option<Instant>>,
}

impl Link {
    fn new(connection: MultiplexedConnection, epoch: i64, given_up: Arc<Notify>) -> Self {
        Link {
            connection,
            epoch,
            silence: Silence::notifying(given_up),
            replicated: StdMutex::default(),
        }
    }

    /// Whether replicas have just had what a call has changed.
    fn have_followed(&self) -> bool {
        lock(&self.replicated).is_some_and(|at| at.elapsed() < REPLICATED)
    }

    /// Sends a command. Dropping the future gives up waiting for the response.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, RedisError> {
        Ok(self.send(command, None).await?)
    }

    /// Sends a command, and waits until what it has changed is on so many replicas.
    async fn send(&self, command: &Cmd, replicas: Option<Replicas>) -> Result<Value, Failure> {
        let mut connection = self.connection.clone();
        let waiting = self.silence.call(SILENCE);
        let mut answer = pin!(async {
            match replicas {
                None => command.query_async(&mut connection).await,
                Some(replicas) => {
                    let answer = replicas.send(command, &mut connection).await;
                    *lock(&self.replicated) = answer.is_ok().then(Instant::now);
                    answer
                }
            }
        });
        // The task of a connection that has ended takes no command. One that has taken it cannot
        // have an answer at once.
        let at_once = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        let is_sent = at_once.is_pending();
        let answer = match at_once {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        };
        waiting.answered();
        if answer.as_ref().is_err_and(ends_connection) {
            self.silence.give_up();
        }
        answer.map_err(|error| Failure { error, is_sent })
    }
}

/// Why a command has no answer.
struct Failure {
    error: RedisError,
    /// Whether the command may have reached the server.
    is_sent: bool,
}

impl From<Failure> for RedisError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// How many replicas are to have what a call has changed.
#[derive(Debug, Clone, Copy)]
struct Replicas {
    count: usize,
    /// What an error says that was done if they have not.
    done: &'static str,
}

impl Replicas {
    /// Sends a command and `WAIT` in one go: nothing comes between them.
    async fn send(
        self,
        command: &Cmd,
        connection: &mut MultiplexedConnection,
    ) -> Result<Value, RedisError> {
        let mut wait = ::redis::cmd("WAIT");
        wait.arg(self.count).arg(REPLICATED.as_millis() as usize);
        let mut both = ::redis::pipe();
        both.add_command(command.clone()).add_command(wait);
        let answers = connection.send_packed_commands(&both, 0, 2).await?;
        let mut answers = answers.into_iter().map(Value::extract_error);
        let answer = answers.next().unwrap_or(Ok(Value::Nil))?;
        let reached: usize = from_redis_value(answers.next().unwrap_or(Ok(Value::Nil))?)?;
        if reached >= self.count {
            return Ok(answer);
        }
        let Replicas { count, done } = self;
        let text =
            format!("{done} only {reached} of {count} replicas have it after {REPLICATED:?}");
        Err(io::Error::new(io::ErrorKind::NotConnected, text).into())
    }
}

impl Connection {
    /// Takes a URL apart. Connects when it is first used.
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let place = without_credentials(url);
        if url.starts_with("rediss") || url.starts_with("valkeys") {
            // The client takes the provider of the process, and panics if there is none.
            crypto::install()?;
        }
        let servers = Servers::new(url).map_err(|error| {
            let like = "it must be like redis://user:password@host:6379/0";
            StoreError::refused(format_args!("the URL {place} cannot be used: {like}"))
                .because_of(error)
        })?;
        Ok(Connection {
            servers: Arc::new(servers),
            place,
            name: format!("{:016x}", RandomState::new().hash_one(0_u8)),
            lines: StdMutex::default(),
        })
    }

    pub(super) fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Notified when a connection for calls on the namespace is given up.
    pub(super) fn given_up(&self, namespace: &Namespace) -> Arc<Notify> {
        Arc::clone(&self.line(Some(namespace)).given_up)
    }

    fn line(&self, namespace: Option<&Namespace>) -> Arc<Line> {
        let namespace = namespace.filter(|_| self.servers.is_cluster());
        let mut lines = lock(&self.lines);
        Arc::clone(lines.entry(namespace.cloned()).or_default())
    }

    /// The connection for calls on a namespace. Connects if there is none.
    async fn link(&self, namespace: Option<&Namespace>) -> Result<Arc<Link>, RedisError> {
        let line = self.line(namespace);
        let mut live = line.live.lock().await;
        let last_epoch = match &*live {
            Some(link) if !link.silence.is_given_up() => return Ok(Arc::clone(link)),
            Some(link) => Some(link.epoch),
            None => None,
        };
        let mut connection = self.servers.connect(namespace).await?;
        let epoch = match last_epoch {
            // No other connection had the name before, so the server need not remember this one.
            None => 0,
            Some(last) => {
                let time = ::redis::cmd("TIME");
                let (secs, micros): (i64, i64) = time.query_async(&mut connection).await?;
                (secs * 1_000_000 + micros).max(last + 1)
            }
        };
        let link = Arc::new(Link::new(connection, epoch, Arc::clone(&line.given_up)));
        *live = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Connects, if there is no connection that the server answers.
    pub(super) async fn ping(&self) -> Result<Arc<Link>, RedisError> {
        let ping = ::redis::cmd("PING");
        let mut link = self.link(None).await?;
        if let Err(failure) = link.send(&ping, None).await {
            if failure.is_sent {
                return Err(failure.error);
            }
            link = self.link(None).await?;
            link.ask(&ping).await?;
        }
        Ok(link)
    }

    /// Connections to each server that has timers. The caller has a limit for the whole call.
    pub(super) async fn to_each(&self) -> Result<Vec<Arc<Link>>, RedisError> {
        let Some(clients) = self.servers.primaries().await? else {
            return Ok(vec![self.ping().await?]);
        };
        let mut links = Vec::new();
        for client in clients {
            let link = Link::new(connect(&client).await?, 0, Arc::default());
            links.push(Arc::new(link));
        }
        Ok(links)
    }

    /// Runs a script on a namespace, and returns the epoch of its connection too: one round trip,
    /// unless the server does not know the script yet, or another one has the namespace. If so many
    /// `replicas` are to have what it has changed, an answer means that they do.
    ///
    /// A call that fails after it has fired timers delivers them to no instance. While replicas are
    /// away, each timer that comes due would lose an attempt to each instance, or be lost itself if
    /// it is delivered at most once. So a script that fires follows a small write that they have.
    pub(super) async fn run(
        &self,
        script: &Script,
        namespace: &Namespace,
        replicas: Option<usize>,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<(Value, i64), StoreError> {
        let failed = |error: &RedisError| store_error(error, &self.place, Some(namespace));
        let replicas = replicas.filter(|_| script.changes());
        let replicas = |done| replicas.map(|count| Replicas { count, done });
        let (mut moves, mut reconnects) = (0, 0);
        loop {
            let link = self
                .link(Some(namespace))
                .await
                .map_err(|error| failed(&error))?;
            let before = replicas("nothing was fired:");
            let mut answer = Ok(Value::Nil);
            if script.fires() && before.is_some() && !link.have_followed() {
                let any_time = |command: &mut Cmd| {
                    command.arg("").arg(StoreTime::NEVER.as_micros());
                };
                answer = self.call(&link, &FOLLOW, namespace, before, any_time).await;
            }
            if answer.is_ok() {
                let after = replicas("it is done, but");
                answer = self.call(&link, script, namespace, after, &arguments).await;
            }
            let Failure { error, is_sent } = match answer {
                Ok(answer) => return Ok((answer, link.epoch)),
                Err(failure) => failure,
            };
            // The connection was closed while it was not used. Nothing was sent on it.
            if !is_sent && reconnects == 0 && ends_connection(&error) {
                reconnects += 1;
                continue;
            }
            // A node of a cluster has not run the script: another one has the slot, or it is on its
            // way there.
            match error.code().filter(|_| self.servers.is_cluster()) {
                Some("MOVED") => {
                    self.servers.moved(&error);
                    moves += 1;
                    if moves == 1 {
                        continue;
                    }
                }
                Some("ASK" | "TRYAGAIN") => {}
                _ => {
                    if ends_connection(&error) {
                        self.servers.doubt();
                    }
                    return Err(failed(&error));
                }
            }
            // The caller has a limit for the whole call.
            sleep(REDIRECTED).await;
        }
    }

    /// Calls a script on one connection, and makes it known to the server first if it has to.
    async fn call(
        &self,
        link: &Link,
        script: &Script,
        namespace: &Namespace,
        replicas: Option<Replicas>,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, Failure> {
        let mut command = ::redis::cmd("EVALSHA");
        command.arg(script.hash()).arg(2);
        command.arg(key_of(namespace)).arg(absent_key_of(namespace));
        arguments(&mut command);
        command.arg(&self.name).arg(link.epoch);
        let mut answer = link.send(&command, replicas).await;
        for _ in 0..LOADS {
            let error = answer.as_ref().err().map(|failure| &failure.error);
            if error.and_then(RedisError::code) != Some("NOSCRIPT") {
                break;
            }
            link.send(&script.load(), None).await?;
            answer = link.send(&command, replicas).await;
        }
        answer
    }
}
