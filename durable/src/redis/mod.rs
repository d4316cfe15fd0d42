//! A store in Redis or Valkey.
//!
//! ```text
//! calls of instances --> one connection --> a Lua script each, atomic --> responses
//! hinted()           <-- a connection of its own, subscribed to hints
//! ```
//!
//! A script is named by its hash; when the server does not know it, it is loaded and called again. All scripts share
//! `scripts/prelude.lua`. The head of each says what it takes, what it returns and what that costs.
//!
//! # The keys of a namespace
//!
//! | key | type | |
//! |---|---|---|
//! | `tickwheel:{orders}` | hash | `schema`, `codec`, and `sequence`, the last version given |
//! | `..:rows` | hash | version to state, deadline, attempt, period, key and value, packed |
//! | `..:keys` | hash | key to the version of its waiting row |
//! | `..:flights` | sorted set by name | length of the key, key and version of each row in flight |
//! | `..:waiting`, `..:in-flight` | sorted sets by `due` | versions of the rows that no instance has loaded |
//! | `..:waiting:<id>`, `..:in-flight:<id>` | sorted sets by `due` | versions of the rows that an instance has loaded under an id |
//! | `..:loaded` | hash | version to the id under which it is loaded |
//! | `..:lives` | sorted set by time | until when each id is live; 0 for those that were unloaded |
//! | `..:lacks` | sorted set by number | how many due rows each id lacks |
//! | `..:epochs` | sorted set by time | the latest connection of each store that has connected again, see [`connection`] |
//! | `..:hints` | channel | |
//!
//! 1. Each row lies in exactly one of the sorted sets by `due`, and its score there says when it is due. A waiting row that has
//!    not fired is due at its deadline; so `fire` need not ask.
//! 2. An id is live from its first load on. The rows that were loaded under it stay in the sorted sets of the id after
//!    it has ended, and `load` takes from there as from those of rows that no instance has loaded. So the end of an id
//!    costs the same, however much was loaded under it.
//! 3. A sorted set of an id is there only if the id is in `lives`, which it leaves once it has ended and both are empty.
//! 4. A version is greater than the one before and than the clock in microseconds. So versions grow even if the server has lost
//!    its last writes, and for the next two centuries they have 16 digits and sort as strings.

mod connection;
mod error;
mod hints;
mod reply;
mod scripts;

use std::fmt;
use std::time::Duration;

use ::redis::Cmd;

use connection::Connection;
use error::store_error;
use hints::Hints;
use reply::Reply;
use scripts::Script;

use crate::store::{
    Action, Armed, Counts, Due, Fire, FireReport, Fired, InstanceId, List, Load, LoadWindow,
    Loaded, Missed, Namespace, Opened, Purged, Settle, Settled, Settlement, State, Store,
    StoreError, StoreTime, Stored, Version, Write, WriteOutcome, micros,
};

/// A store in a Redis or Valkey server. With the feature `redis`.
///
/// Any number of processes may use a server at once, and any number of namespaces. Each call is one Lua script and one round trip.
/// It costs O(log n) for each of its timers, whether there are a thousand others or a million. Batches have at most 1,024
/// timers or about a megabyte of them, which keeps the server from others for some milliseconds. It is made for Redis 6.2 and later and for
/// Valkey, and is tested with Redis 7.0.
///
/// A URL is `redis://user:password@host:port/database`, `rediss://` for an encrypted connection, whose certificate is
/// checked against those of the system, or `unix:///path?user=..&pass=..`. After a failure the next call connects
/// again; so it does when the server has not responded to a call within its limit.
///
/// The store's clock is the server's.
///
/// # What survives what
///
/// A call returns when the server has responded, so the server's settings decide what survives:
///
/// | setting | after a crash of the server | after a crash of its host |
/// |---|---|---|
/// | `appendonly yes`, `appendfsync always` | nothing is lost | nothing is lost, as far as the disk does what it says |
/// | `appendonly yes`, `appendfsync everysec` (what most use) | nothing is lost | a second is lost, two at worst |
/// | `appendonly yes`, `appendfsync no` | nothing is lost | what the system had not written, some 30 s on Linux |
/// | snapshots only (`save`) | everything since the last one | the same |
/// | neither | everything | everything |
///
/// Only the first keeps the whole promise, that a call which has returned survives. It costs a flush of the disk for each turn of
/// the server, which concurrent calls share. [`check_durability`](Redis::check_durability) tells whether a server has it.
///
/// *Replication* is asynchronous: a replica that takes over lacks the last writes, whatever the settings say. A set,
/// move or acknowledgement among them is undone, so a timer may be lost, be delivered at its old deadline or once more.
/// Fencing tokens grow even then, if the clocks of both agree. A server that has lost everything says so in the error
/// of each call, until an instance is started, which makes the namespace again.
///
/// *A full server*: with `maxmemory-policy noeviction`, and with those that begin with `volatile`, sets and moves fail with
/// [`StoreError::Refused`] while the memory is full and change nothing, and timers are still delivered and acknowledged, which
/// makes room. The policies that begin with `allkeys` **throw timers away**: do not use them.
///
/// # How much work
///
/// The server runs scripts on one thread. In batches of 1,024, with Redis 7.0 on two busy cores, it takes 12 us of that thread to
/// set a timer, and 27 us to load, fire and acknowledge it: 6, 15 and 6. Then there is the flush of the disk, if it has to.
///
/// # How much memory
///
/// About 310 bytes for each timer, besides the bytes of its value and twice those of its key, as encoded: 400 MB for a million with
/// short keys and values of 50 bytes. While a snapshot or a rewrite of the append-only file runs, memory that changes is there twice.
///
/// # Permissions
///
/// All keys and channels begin with `tickwheel:`. With an access control list this user suffices:
///
/// ```text
/// ACL SETUSER tickwheel on >s3cret resetkeys resetchannels ~tickwheel:* &tickwheel:* -@all +ping
///     +evalsha +script|load +subscribe +publish +time +hget +hmget +hset +hdel +hlen
///     +zadd +zrem +zscore +zcard +zcount +zrange +zrangebyscore +zrevrangebylex +zremrangebyrank
///     +zremrangebyscore +exists +unlink
/// ```
///
/// # Clusters
///
/// The keys of a namespace lie in one slot, and the store connects to one server only: give it the node that has the slot. Where
/// another node has it, calls fail with an error that names that node.
///
/// # Examples
///
/// ```no_run
/// use tickwheel_durable::{Redis, builder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wheel = tickwheel::TimerWheel::new();
/// let store = Redis::connect("redis://localhost").await?;
/// store.check_durability().await?;
/// let (timers, claims) = builder::<String, u32>("orders").start(&wheel, store).await?;
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    connection: Connection,
    hints: Hints,
}

/// A load returns at most this many rows. A script blocks the server, so several short ones let other calls run in
/// between, such as those that fire due timers.
const LOADED_AT_ONCE: usize = 1024;

/// A list has at most this many rows, which take the server half a millisecond: looks are in no hurry.
const LISTED_AT_ONCE: usize = 128;

impl Redis {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] when the URL cannot be used or the server does not let this user in,
    /// [`StoreError::Unavailable`] when it does not respond. No text contains the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let redis = Redis {
            connection: Connection::new(url)?,
            hints: Hints::default(),
        };
        redis.send(&::redis::cmd("PING")).await?;
        Ok(redis)
    }

    /// Checks that what a call has written survives a crash of the server, and that the server forgets no timers when its memory
    /// is full: the settings `appendonly` must be `yes`, `appendfsync` `always`, and `maxmemory-policy` `noeviction` or one of
    /// those that begin with `volatile`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] names the setting, its value and what it must be, or says that this user may not ask.
    pub async fn check_durability(&self) -> Result<(), StoreError> {
        for (setting, allowed) in [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            (
                "maxmemory-policy",
                "noeviction volatile-lru volatile-lfu volatile-random volatile-ttl",
            ),
        ] {
            let mut command = ::redis::cmd("CONFIG");
            let answer = self.send(command.arg("GET").arg(setting)).await?;
            let mut reply = Reply::new(answer)?;
            // Its name, then its value.
            reply.bytes()?;
            let value = String::from_utf8_lossy(&reply.bytes()?).into_owned();
            if !allowed.split(' ').any(|allowed| allowed == value) {
                let place = self.connection.place();
                return Err(StoreError::refused(format_args!(
                    "{place}: {setting} is {value}, and durable timers need one of: {allowed}"
                )));
            }
        }
        Ok(())
    }

    async fn send(&self, command: &Cmd) -> Result<::redis::Value, StoreError> {
        let answer = self.connection.send(command).await;
        answer.map_err(|error| store_error(&error, self.connection.place(), None))
    }

    async fn run(
        &self,
        script: &Script,
        namespace: &Namespace,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<Reply, StoreError> {
        let answer = self.connection.run(script, namespace, arguments).await?;
        Reply::new(answer)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("server", &self.connection.place())
            .finish_non_exhaustive()
    }
}

/// A duration as the scripts take it, which is never at most.
fn span(duration: Duration) -> i64 {
    micros(duration).min(StoreTime::NEVER.as_micros())
}

/// A version as the server has it: as a string of digits, of which there are always as many.
fn digits(version: Version) -> String {
    version.0.to_string()
}

/// The window, and the instance that loads what comes due in it.
fn near_arguments(command: &mut Cmd, near: LoadWindow) {
    let loader = near.loader.map(|loader| loader.0.to_string());
    command
        .arg(span(near.window))
        .arg(loader.unwrap_or_default());
}

/// A number as the scripts pack it. All they pack are below 2^53.
#[expect(clippy::cast_precision_loss, reason = "doubles hold it exactly")]
fn packed(number: i64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// What a write does, packed as `write.lua` takes it, without key and value.
fn write_head(action: &Action) -> Vec<u8> {
    let (op, due, period) = match *action {
        Action::Set {
            due,
            period,
            if_absent,
            ..
        } => (if if_absent { b'a' } else { b's' }, Some(due), period),
        Action::Move { due } => (b'm', Some(due), None),
        Action::Remove => (b'r', None, None),
    };
    let (base, due) = match due {
        Some(Due::In(delay)) => (b'+', span(delay)),
        Some(Due::At(time)) => (b'@', time.as_micros()),
        None => (b'@', 0),
    };
    let mut head = vec![op, base];
    head.extend(packed(due));
    head.extend(packed(period.map_or(0, span)));
    head
}

fn write_arguments(command: &mut Cmd, writes: &[Write]) {
    let heads = writes.iter().flat_map(|write| write_head(&write.action));
    command.arg(heads.collect::<Vec<u8>>());
    for write in writes {
        command.arg(&write.key);
    }
    for write in writes {
        if let Action::Set { value, .. } = &write.action {
            command.arg(value);
        }
    }
}

/// Which of the claims are not acknowledged but settled otherwise, and how, as `settle.lua` takes it.
fn settled_otherwise(settles: &[Settle]) -> String {
    let otherwise = settles.iter().enumerate().filter_map(|(at, settle)| {
        let (how, delay) = match settle.how {
            Settlement::Ack => return None,
            Settlement::Extend(lease) => ("extend", lease),
            Settlement::RetryAfter(delay) => ("again", delay),
            Settlement::Release => ("release", Duration::ZERO),
            Settlement::Unfire => ("unfire", Duration::ZERO),
        };
        Some(format!("{at} {how} {}", span(delay)))
    });
    otherwise.collect::<Vec<_>>().join(" ")
}

/// Reads the outcome of a write from the numbers, and a removed value from the rest of the response.
fn read_written(numbers: &mut Reply, values: &mut Reply) -> Result<WriteOutcome, StoreError> {
    Ok(match numbers.int()? {
        1 => WriteOutcome::Armed {
            row: numbers.armed()?,
            replaced: Some(numbers.version()?).filter(|version| version.0 != 0),
        },
        2 => WriteOutcome::Removed {
            version: numbers.version()?,
            value: values.bytes()?,
        },
        3 => WriteOutcome::Absent,
        4 => WriteOutcome::Present,
        _ => WriteOutcome::InFlight(numbers.version()?),
    })
}

/// Reads a fired timer from the numbers, and its former row from the rest of the response.
fn read_fired(numbers: &mut Reply, rows: &mut Reply) -> Result<Fired, StoreError> {
    let (token, missed) = (numbers.version()?, numbers.count()?);
    let row = rows.row()?;
    Ok(Fired {
        token,
        key: row.key,
        value: row.value,
        deadline: row.deadline,
        attempt: row.attempt.saturating_add(1),
        missed,
        repeats: row.period.is_some(),
    })
}

/// The results of one step of a batch. There is at least one, or the batch would never end.
fn progress<T>(answers: Vec<T>) -> Result<Vec<T>, StoreError> {
    if answers.is_empty() {
        let error = "the server has answered nothing of a batch";
        return Err(StoreError::refused(error));
    }
    Ok(answers)
}

fn read_settled(numbers: &mut Reply) -> Result<Settled, StoreError> {
    Ok(match numbers.version()? {
        Version(-1) => Settled::Lost,
        Version(0) => Settled::Done,
        version => Settled::Armed(Armed {
            version,
            due: numbers.time()?,
            loaded: numbers.flag()?,
        }),
    })
}

fn read_row(reply: &mut Reply) -> Result<Stored, StoreError> {
    let (version, due, loader) = (reply.version()?, reply.time()?, reply.int()?);
    let row = reply.row()?;
    Ok(Stored {
        version,
        state: row.state,
        due,
        deadline: row.deadline,
        attempt: row.attempt,
        period: row.period,
        loaded_by: Some(loader).filter(|id| *id > 0).map(InstanceId),
        key: row.key,
        value: row.value,
    })
}

/// A limit as the server takes it.
fn limit_argument(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

fn state_argument(state: State) -> &'static str {
    match state {
        State::Waiting => "w",
        State::InFlight => "f",
    }
}

impl Store for Redis {
    async fn open(&self, namespace: &Namespace, codec: &str) -> Result<Opened, StoreError> {
        let opening = self.run(&scripts::OPEN, namespace, |command| {
            command.arg(codec);
        });
        let mut reply = opening.await?;
        let opened = Opened {
            now: reply.time()?,
            instance: InstanceId(reply.int()?),
        };
        let stored = reply.bytes()?;
        if stored != codec.as_bytes() {
            return Err(StoreError::Codec {
                namespace: namespace.to_string(),
                stored: String::from_utf8_lossy(&stored).into_owned(),
                asked: codec.to_owned(),
            });
        }
        Ok(opened)
    }

    async fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: LoadWindow,
    ) -> Result<Vec<WriteOutcome>, StoreError> {
        let mut written = Vec::with_capacity(writes.len());
        while written.len() < writes.len() {
            let writing = self.run(&scripts::WRITE, namespace, |command| {
                near_arguments(command, near);
                write_arguments(command, &writes[written.len()..]);
            });
            let mut values = writing.await?;
            let mut numbers = values.numbers()?;
            written.extend(progress(
                numbers.all(|numbers| read_written(numbers, &mut values))?,
            )?);
        }
        Ok(written)
    }

    async fn load(&self, namespace: &Namespace, request: Load) -> Result<Loaded, StoreError> {
        let limit = request.limit.min(LOADED_AT_ONCE);
        let loading = self.run(&scripts::LOAD, namespace, |command| {
            command.arg(request.instance.0).arg(span(request.window));
            command.arg(limit_argument(limit)).arg(span(request.alive));
            command.arg(limit_argument(request.wanted.min(limit)));
        });
        let mut reply = loading.await?;
        Ok(Loaded {
            now: reply.time()?,
            more: reply.flag()?,
            others_lack: usize::try_from(reply.count()?).unwrap_or(usize::MAX),
            rows: reply
                .numbers()?
                .all(|numbers| Ok((numbers.version()?, numbers.time()?)))?,
        })
    }

    async fn fire(&self, namespace: &Namespace, request: Fire) -> Result<FireReport, StoreError> {
        let firing = self.run(&scripts::FIRE, namespace, |command| {
            near_arguments(command, request.near);
            let lease = request.lease.map(|lease| span(lease).to_string());
            command.arg(lease.unwrap_or_default());
            command.arg(match request.missed {
                Missed::FireAll => "all",
                Missed::FireOnce => "once",
                Missed::Skip => "skip",
            });
            command.arg(limit_argument(request.unloaded));
            for version in request.versions {
                command.arg(digits(version));
            }
        });
        let mut reply = firing.await?;
        let now = reply.time()?;
        let left = usize::try_from(reply.count()?).unwrap_or(usize::MAX);
        let more = reply.flag()?;
        let mut fired = reply.numbers()?;
        Ok(FireReport {
            now,
            left,
            more,
            later: reply.numbers()?.all(Reply::armed)?,
            next: reply.numbers()?.all(Reply::armed)?,
            fired: fired.all(|fired| read_fired(fired, &mut reply))?,
        })
    }

    async fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: LoadWindow,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut settled = Vec::with_capacity(settles.len());
        while settled.len() < settles.len() {
            let rest = &settles[settled.len()..];
            let settling = self.run(&scripts::SETTLE, namespace, |command| {
                near_arguments(command, near);
                command.arg(settled_otherwise(rest));
                for settle in rest {
                    command.arg(digits(settle.token));
                }
            });
            settled.extend(progress(settling.await?.numbers()?.all(read_settled)?)?);
        }
        Ok(settled)
    }

    async fn unload(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
    ) -> Result<InstanceId, StoreError> {
        let unloading = self.run(&scripts::UNLOAD, namespace, |command| {
            command.arg(instance.0);
        });
        unloading.await?.int().map(InstanceId)
    }

    async fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Result<Vec<Version>, StoreError> {
        let unmarking = self.run(&scripts::UNMARK, namespace, |command| {
            command.arg(instance.0);
            for version in versions {
                command.arg(digits(version));
            }
        });
        unmarking.await.map(|_| Vec::new())
    }

    async fn get(&self, namespace: &Namespace, key: Vec<u8>) -> Result<Option<Stored>, StoreError> {
        let getting = self.run(&scripts::GET, namespace, |command| {
            command.arg(key);
        });
        Ok(getting.await?.all(read_row)?.pop())
    }

    async fn list(&self, namespace: &Namespace, request: List) -> Result<Vec<Stored>, StoreError> {
        let listing = self.run(&scripts::LIST, namespace, |command| {
            command
                .arg(state_argument(request.state))
                .arg(limit_argument(request.limit.min(LISTED_AT_ONCE)));
            if let Some((due, version)) = request.after {
                command.arg(due.as_micros()).arg(digits(version));
            }
        });
        listing.await?.all(read_row)
    }

    async fn count(&self, namespace: &Namespace) -> Result<Counts, StoreError> {
        let counting = self.run(&scripts::COUNT, namespace, |_| {});
        let mut reply = counting.await?;
        Ok(Counts {
            now: reply.time()?,
            waiting: reply.count()?,
            in_flight: reply.count()?,
            earliest: Some(reply.int()?)
                .filter(|micros| *micros >= 0)
                .map(StoreTime::from_micros),
            is_estimate: false,
        })
    }

    async fn purge(&self, namespace: &Namespace) -> Result<Purged, StoreError> {
        let purging = self.run(&scripts::PURGE, namespace, |_| {});
        Ok(Purged {
            rows: purging.await?.count()?,
            more: false,
        })
    }

    async fn hinted(&self, namespace: &Namespace) {
        let heard = self.hints.of(namespace, &self.connection);
        heard.notified().await;
    }
}
