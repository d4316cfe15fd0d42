//! A store in Redis or Valkey.
//!
//! ```text
//! calls of instances --> one connection --> a Lua script each, atomic --> responses
//! hinted()           <-- another connection, subscribed to hints
//! ```
//!
//! A script is named by its hash; when the server does not know it, it is loaded and called again.
//! All scripts share `scripts/prelude.lua`. The head of each says what it takes, what it returns
//! and what that costs. `write`, `load`, `fire`, `settle`, `dead` and `read` send what their
//! scripts take, and read what these return.
//!
//! # The keys of a namespace
//!
//! | key | type | |
//! |---|---|---|
//! | `tickwheel:{orders}` | hash | `schema`, the version of these keys, and `readable_by`, the oldest version that can use them; the charter in `codec`, `no_overlap`, `at_most_once` and `parts`, its `edition`, and `made`, the first one; `sequence`, the last version given; `followed`, when replicas were last asked whether they follow |
//! | `..:rows:00` to `..:rows:99` | hashes | version to state, deadline, attempt, period, key, further fields such as the error, and value, packed; by the last two digits of the version |
//! | `..:keys:0` to `..:keys:f` | hashes | key to the version of its waiting row; by the first digit of the key's SHA-1 |
//! | `..:flights` | sorted set by name | length of the key, key and version of each row in flight |
//! | `..:waiting:0` to `..:waiting:9`, `..:in-flight` | sorted sets by `due` | versions of the rows that no instance has loaded; those that wait by the last digit of the version |
//! | `..:waiting:<id>`, `..:in-flight:<id>` | sorted sets by `due` | versions of the rows that an instance has loaded under an id |
//! | `..:loaded` | hash | version to the id under which it is loaded |
//! | `..:schedules:0` to `..:schedules:9` | hashes | version to deadline and schedule of each waiting row that repeats by one, in one text |
//! | `..:instances` | sorted set by time | until when each id is live; 0 for those that were unloaded |
//! | `..:dead` | sorted set by when they died | versions of dead rows |
//! | `..:dead:rows`, `..:dead:keys` | hash, sorted set by name | the dead rows by version; length of the key, key and version of each |
//! | `..:lacks` | sorted set by number | how many due rows each id lacks |
//! | `..:names` | hash | the name of each id that has one |
//! | `..:epochs` | sorted set by time | the latest connection of each store that has connected again, see [`connection`] |
//! | `..:hints` | channel | |
//!
//! What a namespace has one of for each timer lies in *buckets*. So no key of the server is too
//! large to be moved to another node.
//!
//! 1. Each row lies in exactly one of the sorted sets by `due`, and its score there says when it is
//!    due. A waiting row that has not fired is due at its deadline, or both have passed, unless it
//!    repeats; so `fire` need not ask.
//! 2. An id is live from its first load on. The rows that were loaded under it stay in the sorted
//!    sets of the id after it has ended, and `load` takes from there as from those of rows that no
//!    instance has loaded. So the end of an id costs the same, however much was loaded under it.
//! 3. A sorted set of an id is there only if the id is in `instances`, which it leaves once it has
//!    ended and both are empty.
//! 4. A version is greater than the one before and than the clock in microseconds. So versions grow
//!    even if the server has lost its last writes, and for the next two centuries they have 16
//!    digits and sort as strings, in each language that a server may have.

mod arguments;
mod charter;
mod connection;
mod dead;
mod error;
mod fire;
mod hints;
mod inspect;
mod keys;
mod load;
mod read;
mod reply;
mod scripts;
mod servers;
mod settle;
mod url;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use ::redis::{Cmd, from_redis_value};
use tokio::time::timeout;

use arguments::{digits, limit_argument};
use connection::{CONNECT, Connection};
use error::store_error;
use hints::Hints;
use reply::Reply;
use scripts::Script;

use crate::migrations::{Migration, SchemaVersion};
use crate::store::{
    Answer, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Edition, Fire,
    FireReport, Inspect, InstanceId, List, Load, Loaded, Namespace, Opened, Settle, Settled, Store,
    StoreError, Stored, Terms, Version, Write, WriteOutcome,
};

/// A store in a Redis or Valkey server. With the feature `redis`.
///
/// Any number of processes may use a server at once, and any number of namespaces. Clones share
/// their connections, of which those that were closed are replaced by the next call. Each call is
/// one Lua script and one round trip. It costs O(log n) for each of its timers, whether there are a
/// thousand others or a million. Batches have at most 1,024 timers or about a megabyte of them,
/// which keeps the server from others for some milliseconds. It is made for Redis 7.0 and later and
/// for Valkey, and is tested with Redis 7.0. An earlier server is refused.
///
/// A URL is `redis://user:password@host:port/database`, `rediss://` for an encrypted connection,
/// whose certificate is checked against those of the system, or `unix:///path?user=..&pass=..`.
/// After a failure the next call connects again; so it does when the server has not responded to a
/// call within its limit.
///
/// Servers that replace each other have special URLs, `rediss+..` for encrypted connections:
///
/// | URL | connects to |
/// |---|---|
/// | `redis+sentinel://user:password@one:26379,two:26379/name/database` | the primary that the first *Sentinel* to answer knows by this name. User and password are for the servers; those for the Sentinels are the parameters `sentinel_username` and `sentinel_password` |
/// | `redis+cluster://user:password@one:6379,two:6379` | the node of a *cluster* that has the namespace. Any of the nodes may be named; the others are learned from them |
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
/// Only the first keeps the whole promise, that a call which has returned survives. It costs a
/// flush of the disk for each turn of the server, which concurrent calls share.
/// [`check_durability`](Redis::check_durability) tells whether a server has it.
///
/// Instances that run notice when a server has lost everything, or has returned to an earlier
/// state: see [the page on operating](crate::operating).
///
/// *A full server*: with `maxmemory-policy noeviction`, and with those that begin with `volatile`,
/// sets of new timers fail with [`StoreError::Refused`] while the memory is full, and timers are
/// still delivered and acknowledged, which makes room. The server takes what first makes room, so
/// moves, removes and sets that replace a timer succeed, and with them what is sent in one batch.
/// The policies that begin with `allkeys` **throw timers away**: do not use them.
///
/// # Failovers
///
/// When a primary does not answer, Sentinels or the nodes of a cluster make one of its replicas the
/// primary. Calls fail meanwhile. The first call after that finds the new primary, at most a call
/// timeout later if the old one hangs.
///
/// *Replication is asynchronous*: a replica that takes over lacks the last writes of the old
/// primary, also with `appendfsync always`. A set, move or acknowledgement among them is undone, so
/// a timer may be lost, be delivered at its old deadline or once more. Fencing tokens grow even
/// then, if the clocks of both servers agree. What to do about it:
///
/// | | sets lost whose calls had returned, when the primary is killed | when both replicas hang for 3 s first | costs |
/// |---|---|---|---|
/// | nothing | 0 of 84,004 | 57,344 of 109,748; 59,392 of 111,422 | |
/// | `min-replicas-to-write 1` and `min-replicas-max-lag 1` on all servers: calls fail when no replica has answered for a second | | 64 of 36,537 to 28,928 of 76,473 | nothing |
/// | [`wait_for_replicas(1)`](Self::wait_for_replicas) | 0 of 79,951 | 0 of 79,457 | a round trip to a replica for each call |
///
/// Measured with 64 tasks that set timers, Redis 7.0, a primary with two replicas and three
/// Sentinels on one host, five or six runs in each case but one of two. The losses of the first
/// column depend on the network between the servers, which here has no delay.
///
/// So for timers that must not be lost: `wait_for_replicas(n)` with all `n` replicas, and
/// `min-replicas-to-write n`, which refuses calls at once where the other one has them wait for a
/// second. Then each replica has to answer. With fewer than all, calls go on while a replica is
/// away, and a failover may rarely lose the last of them: Sentinels and clusters promote the
/// reachable replica that has received most, by reports that are up to a second old.
///
/// # How much work
///
/// The server runs scripts on one thread. In batches of 1,024, with Redis 7.0 on two busy cores, it
/// takes 12 us of that thread to set a timer, and 27 us to load, fire and acknowledge it: 6, 15
/// and 6. Then there is the flush of the disk, if it has to.
///
/// # How much memory
///
/// About 310 bytes for each timer, besides the bytes of its value and twice those of its key, as
/// encoded: 400 MB for a million with short keys and values of 50 bytes. While a snapshot or a
/// rewrite of the append-only file runs, memory that changes is there twice.
///
/// # Permissions
///
/// All keys and channels begin with `tickwheel:`. With Sentinels `+role` is needed besides, in
/// clusters `+cluster|slots` and `+cluster|keyslot`, and for
/// [`wait_for_replicas`](Self::wait_for_replicas) `+wait`. With an access control list this user
/// suffices:
///
/// ```text
/// ACL SETUSER tickwheel on >s3cret resetkeys resetchannels ~tickwheel:* &tickwheel:* -@all +ping
///     +evalsha +script|load +subscribe +publish +time +hget +hmget +hset +hdel +hlen
///     +zadd +zrem +zscore +zcard +zcount +zrange +zrangebyscore +zrevrangebylex +zremrangebyrank
///     +zremrangebyscore +exists +unlink
/// ```
///
/// [`Inspect`], and with it `tickwheel-admin`, needs `+scan +hscan +zscan` besides,
/// [`check_durability`](Self::check_durability) `+config|get`, and a database other than 0
/// `+select`. The user of the Sentinels needs `+sentinel|get-master-addr-by-name`.
///
/// # Clusters
///
/// The keys of a namespace lie in one slot, whose tag is the name of the namespace, so one node has
/// the whole namespace, unless it is [spread](Self::spread). Each namespace has a connection of its
/// own to the node that has its slot. A call that meets another node follows it. While a slot is
/// moved to another node, calls on its namespaces wait until that is done, or fail after their time
/// limit. Each key of the server blocks both nodes while it is moved. So a namespace or part lies
/// in some 140 of them: of 20 million timers the largest has two million small entries, and takes
/// two to three seconds. No server takes a key of more than 512 MB, which one of a part with 200
/// million timers would be, or with 50 GB of values.
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
#[derive(Clone)]
pub struct Redis {
    connection: Arc<Connection>,
    hints: Arc<Hints>,
    replicas: Option<usize>,
    parts: usize,
}

impl Redis {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] when the URL cannot be used or the server does not let this user in,
    /// [`StoreError::Unavailable`] when it does not respond within 5 s. No text contains the
    /// password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let redis = Redis {
            connection: Arc::new(Connection::new(url)?),
            hints: Arc::default(),
            replicas: None,
            parts: 1,
        };
        let connecting = timeout(CONNECT, redis.connection.ping()).await;
        redis.checked(connecting.unwrap_or_else(|late| Err(std::io::Error::from(late).into())))?;
        Ok(redis)
    }

    /// Checks that what a call has written survives a crash of the server, and that the server
    /// forgets no timers when its memory is full: the settings `appendonly` must be `yes`,
    /// `appendfsync` `always`, and `maxmemory-policy` `noeviction` or one of those that begin with
    /// `volatile`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] names the setting, its value and what it must be, or says that this
    /// user may not ask. [`StoreError::Unavailable`] when a server does not respond within 5 s.
    pub async fn check_durability(&self) -> Result<(), StoreError> {
        let checked = timeout(CONNECT, self.settings_are_durable()).await;
        checked.unwrap_or_else(|late| self.checked(Err(std::io::Error::from(late).into())))
    }

    async fn settings_are_durable(&self) -> Result<(), StoreError> {
        let servers = self.checked(self.connection.to_each().await)?;
        for (setting, allowed) in [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            (
                "maxmemory-policy",
                "noeviction volatile-lru volatile-lfu volatile-random volatile-ttl",
            ),
        ] {
            let mut command = ::redis::cmd("CONFIG");
            let place = self.connection.place();
            command.arg("GET").arg(setting);
            for server in &servers {
                let answer = self.checked(server.ask(&command).await)?;
                let value = from_redis_value(answer).map_err(Into::into);
                let value: HashMap<String, String> = self.checked(value)?;
                let value = value.get(setting).map_or("unknown", String::as_str);
                if !allowed.split(' ').any(|allowed| allowed == value) {
                    return Err(StoreError::refused(format_args!(
                        "{place}: {setting} is {value}, and durable timers need one of: {allowed}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Waits for replicas: a call that changes timers or the charter returns once this many
    /// replicas have what it has changed, or fails after a second in which they have not received
    /// it. Then it may have taken effect, as after any error.
    ///
    /// Nothing is fired once they have not followed for a second. Due timers wait for them, and
    /// lose no attempts.
    ///
    /// A server that takes over from a primary that has crashed then has everything that calls have
    /// returned, if it is one of these replicas: with one replica, or with as many as there are.
    /// See [failovers](Self#failovers).
    #[must_use]
    pub fn wait_for_replicas(mut self, replicas: usize) -> Self {
        self.replicas = (replicas > 0).then_some(replicas);
        self
    }

    /// Spreads each namespace over so many parts of a cluster, which places and moves them: their
    /// tags are `orders`, `orders/1`, `orders/2` and so on. Without a cluster it gains nothing.
    ///
    /// The number is written into the [charter](Charter::parts) when an instance first opens the
    /// namespace, and never changes. An instance with another one does not start. So choose some
    /// four times as many parts as there will be nodes, and no more than 20 million timers for
    /// each: slots are assigned by a hash, and a node that has few parts has its share by luck
    /// only. `CLUSTER KEYSLOT 'tickwheel:{orders/1}'` tells the slot of a part, which an operator
    /// can move.
    ///
    /// There is still one handle and one stream of claims:
    ///
    /// * A key lies in one part, by a hash of the encoded key. All that is promised of one key
    ///   holds: its tokens grow, the last write wins.
    /// * Each part delivers its timers by deadline. Across parts the order is that in which they
    ///   fire: while none is behind, by deadline give or take a round trip.
    /// * While the node of a part is away, calls on keys of that part fail, and its timers wait.
    ///   The other parts go on. Counts, lists and starts need all parts.
    /// * Each part has a connection for calls and one for hints, loads with each poll, and writes
    ///   in batches of its own.
    /// * An operator, as with `tickwheel-admin`, sees each part as a namespace of its own: `orders`
    ///   has the first part only.
    ///
    /// 0 counts as 1.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tickwheel_durable::{Redis, builder};
    ///
    /// let wheel = tickwheel::TimerWheel::new();
    /// let store = Redis::connect("redis+cluster://one:6379,two:6379").await?.spread(12);
    /// let (timers, claims) = builder::<String, u32>("orders").start(&wheel, store).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn spread(mut self, parts: usize) -> Self {
        self.parts = parts.max(1);
        self
    }

    /// The scripts in the folder `migrations/redis` of this package, which change the keys of a
    /// namespace, and the ways back: see [`Migration`]. The first version has none: opening a
    /// namespace makes it, and purging one empties it.
    pub const MIGRATIONS: &'static [Migration] = scripts::MIGRATIONS;

    /// The version of the keys of a namespace, which need not be for this version of the crate.
    /// Changes nothing. In a [spread](Self::spread) namespace each part has its own.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] when the name is not valid, and as every call.
    pub async fn schema_version(&self, namespace: &str) -> Result<SchemaVersion, StoreError> {
        let namespace = Namespace::new(namespace).map_err(StoreError::refused)?;
        charter::schema_version(self, &namespace).await
    }

    /// Takes the [steps](Self::MIGRATIONS) to a version of the keys of a namespace, up or down,
    /// each in a script.
    ///
    /// # Errors
    ///
    /// As [`schema_version`](Self::schema_version). The steps before the one that has failed are
    /// taken.
    pub async fn migrate(&self, namespace: &str, to: u32) -> Result<SchemaVersion, StoreError> {
        let namespace = Namespace::new(namespace).map_err(StoreError::refused)?;
        charter::migrate(self, &namespace, to).await?;
        charter::schema_version(self, &namespace).await
    }

    /// With an error that names the server.
    fn checked<T>(&self, answer: ::redis::RedisResult<T>) -> Result<T, StoreError> {
        answer.map_err(|error| store_error(&error, self.connection.place(), None))
    }

    /// Runs a script on any charter.
    async fn call(
        &self,
        script: &Script,
        namespace: &Namespace,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Reply, StoreError> {
        let any = Terms::NONE;
        self.call_under(script, namespace, any, arguments).await
    }

    /// Runs a script under the terms of a call.
    async fn call_under(
        &self,
        script: &Script,
        namespace: &Namespace,
        terms: Terms,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Reply, StoreError> {
        let called = self.call_on(script, namespace, terms, arguments);
        Ok(called.await?.0)
    }

    /// Runs a script under the terms of a call, and tells the number of the connection.
    async fn call_on(
        &self,
        script: &Script,
        namespace: &Namespace,
        Terms { edition, until, .. }: Terms,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<(Reply, i64), StoreError> {
        let arguments = |command: &mut Cmd| {
            arguments(command);
            let edition = edition.map(|Edition(edition)| edition.to_string());
            command.arg(edition.unwrap_or_default());
            command.arg(until.as_micros());
        };
        let running = (self.connection).run(script, namespace, self.replicas, arguments);
        let (answer, connection) = running.await?;
        Ok((Reply::new(answer)?, connection))
    }
}

opaque!(Redis, |store| server: store.connection.place());

impl Store for Redis {
    fn open(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, Opened> {
        Box::pin(charter::open(self, namespace.clone(), charter.clone()))
    }

    fn amend(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, ()> {
        Box::pin(charter::amend(self, namespace.clone(), charter.clone()))
    }

    fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: Terms,
    ) -> Answer<'_, Vec<WriteOutcome>> {
        Box::pin(write::write(self, namespace.clone(), writes, near))
    }

    fn load(&self, namespace: &Namespace, request: Load) -> Answer<'_, Loaded> {
        Box::pin(load::load(self, namespace.clone(), request))
    }

    fn fire(&self, namespace: &Namespace, request: Fire) -> Answer<'_, FireReport> {
        Box::pin(fire::fire(self, namespace.clone(), request))
    }

    fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: Terms,
    ) -> Answer<'_, Vec<Settled>> {
        Box::pin(settle::settle(self, namespace.clone(), settles, near))
    }

    fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let unloading = self.call(&scripts::UNLOAD, &namespace, |command| {
                command.arg(instance.0);
            });
            unloading.await?.int().map(InstanceId)
        })
    }

    fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Answer<'_, Vec<Version>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let unmarking = self.call(&scripts::UNMARK, &namespace, |command| {
                command.arg(instance.0);
                for &version in &versions {
                    command.arg(digits(version));
                }
            });
            unmarking.await.map(|_| Vec::new())
        })
    }

    fn rows_of(
        &self,
        namespace: &Namespace,
        key: Vec<u8>,
        limit: usize,
    ) -> Answer<'_, Vec<Stored>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let asking = self.call(&scripts::ROWS_OF, &namespace, |command| {
                command.arg(&key).arg(limit_argument(limit));
            });
            asking.await?.all(read::read_row)
        })
    }

    fn list(&self, namespace: &Namespace, request: List) -> Answer<'_, Vec<Stored>> {
        Box::pin(read::list(self, namespace.clone(), request))
    }

    fn count(&self, namespace: &Namespace) -> Answer<'_, Counts> {
        Box::pin(read::count(self, namespace.clone()))
    }

    fn purge(&self, namespace: &Namespace) -> Answer<'_, ChangedRows> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let purging = self.call(&scripts::PURGE, &namespace, |_| {});
            Ok(ChangedRows::new(purging.await?.count()?, false))
        })
    }

    fn change_dead(
        &self,
        namespace: &Namespace,
        which: DeadRows,
        change: DeadChange,
    ) -> Answer<'_, ChangedRows> {
        Box::pin(dead::change(self, namespace.clone(), which, change))
    }

    fn parts(&self) -> usize {
        self.parts
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn hinted(&self, namespace: &Namespace) -> BoxFuture<'_, Option<InstanceId>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let heard = self.hints.of(&namespace, &self.connection);
            heard.notified().await;
            None
        })
    }
}
