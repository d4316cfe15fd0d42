//! A cluster of servers, and namespaces that move between its nodes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join;
use redis::from_redis_value;
use tickwheel::TimerWheel;
use tickwheel_durable::store::{Namespace, Store};
use tickwheel_durable::{DurableTimers, Error, Redis, builder};
use tickwheel_durable_conformance::{Pace, Stores, conformance_tests};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use crate::failover::{Servers, until_primary};
use crate::faults::{delivered, start_within};
use crate::server::{Server, connect, until};

const SECOND: Duration = Duration::from_secs(1);

/// The namespace of these tests, as a key.
const KEY: &str = "tickwheel:{faults}";

/// So many nodes have slots, the first of them, unless a test asks for fewer.
pub(crate) const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// The cluster that checks of the suite share.
struct Shared(String);

impl Stores for Shared {
    type Store = Redis;

    async fn connect(&self) -> Redis {
        connect(&self.0).await
    }
}

async fn shared() -> Option<Shared> {
    static SHARED: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = SHARED.get_or_init(|| Cluster::start_with(0)).await;
    Some(Shared(cluster.as_ref()?.url()))
}

// Each script at least once. With `TICKWHEEL_REDIS_URL=redis+cluster://..` all checks run on a
// cluster.
conformance_tests! { @modules [#[tokio::test(flavor = "multi_thread", worker_threads = 2)]]
    (match shared().await {
        Some(shared) => shared,
        None => return,
    }, Pace::default())
    contract {
        hints_near_rows_that_no_instance_has_loaded,
        keeps_namespaces_apart,
        refuses_another_charter,
        lists_counts_and_purges,
        discards_dead_rows,
    }
    explorer {
        long_traces_agree_with_memory,
    }
}

/// The URL names one node. When that is gone, the others are asked that it has named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_learned_from_the_one_of_the_url() {
    let Some(mut cluster) = Cluster::start_with(0).await else {
        return;
    };
    let url = format!("redis+cluster://127.0.0.1:{}", cluster.nodes[0].port());
    let store = connect(&url).await;
    let mut found = None;
    for number in 0..100 {
        let name = format!("learned-{number}");
        let slot = cluster.slot_of(&format!("tickwheel:{{{name}}}")).await;
        let owner = cluster.owner_of(slot).await;
        if owner > 0 {
            found = Some((Namespace::new(&name).expect("it is a name"), owner));
            break;
        }
    }
    let (space, owner) = found.expect("the others have slots");
    store.open(&space, &"json".into()).await.expect("it opens");
    cluster.nodes[0].kill();
    let cut = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    cluster.nodes[owner].command(&cut).await;
    until("it connects again", async || {
        store.count(&space).await.is_ok()
    })
    .await;
}

/// Any of the nodes may have the namespace, today or when its slot has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durability_is_checked_at_each_node() {
    let Some(cluster) = Cluster::start_with(0).await else {
        return;
    };
    let store = connect(&cluster.url()).await;
    store.check_durability().await.expect("all are durable");
    for node in cluster.nodes() {
        for (value, is_durable) in [("everysec", false), ("always", true)] {
            let set = ["CONFIG", "SET", "appendfsync", value];
            node.command(&set).await;
            let checked = store.check_durability().await;
            assert_eq!(checked.is_ok(), is_durable, "{checked:?}");
        }
    }
}

/// Three primaries, and two replicas of the one that has the namespace.
pub(crate) struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    async fn id(node: &Server) -> String {
        let id = node.command(&["CLUSTER", "MYID"]).await;
        from_redis_value(id).expect("it is a text")
    }

    /// The slot of a key.
    pub(crate) async fn slot_of(&self, key: &str) -> usize {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).await;
        from_redis_value(slot).expect("it is a number")
    }

    /// The node that has a slot, once all agree on it.
    pub(crate) async fn owner_of(&self, slot: usize) -> usize {
        let mut owner = None;
        until("all agree on an owner", async || {
            owner = self.agreed_owner(slot).await;
            owner.is_some()
        })
        .await;
        owner.expect("it is known")
    }

    pub(crate) fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Starts primaries, and so many replicas of the one that has the namespace.
    pub(crate) async fn start_with(replicas: usize) -> Option<Cluster> {
        Cluster::start_of(PRIMARIES, replicas).await
    }

    /// The same with so many primaries.
    pub(crate) async fn start_of(primaries: usize, replicas: usize) -> Option<Cluster> {
        // Without replicas there is no failover to wait for, and a busy machine is to cause no
        // trouble.
        let node_timeout = if replicas == 0 { "15000" } else { "2000" };
        let options = [
            ["--cluster-enabled", "yes"],
            ["--cluster-node-timeout", node_timeout],
            ["--cluster-require-full-coverage", "no"],
            ["--repl-diskless-sync-delay", "0"],
        ];
        let nodes = (0..primaries + replicas).map(|_| Server::start(options.as_flattened()));
        let cluster = Cluster {
            nodes: nodes.collect::<Option<_>>()?,
        };
        let nodes = &cluster.nodes;
        let part = SLOTS / primaries;
        for (number, node) in nodes.iter().enumerate() {
            let port = nodes[0].port().to_string();
            if number > 0 {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port]).await;
            }
            if number < primaries {
                let last = if number + 1 < primaries {
                    part * (number + 1)
                } else {
                    SLOTS
                };
                let (from, to) = ((part * number).to_string(), (last - 1).to_string());
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &from, &to])
                    .await;
            }
        }
        let size = nodes.len().to_string();
        for node in nodes {
            // The state is fine before all slots are known, since a part of them is enough to
            // serve.
            let complete = [
                ("cluster_known_nodes", &*size),
                ("cluster_slots_assigned", &*SLOTS.to_string()),
                ("cluster_state", "ok"),
            ];
            for (field, value) in complete {
                until("the nodes know each other", async || {
                    node.info("cluster", field).await.as_deref() == Some(value)
                })
                .await;
            }
        }
        let owner = (cluster.slot_of(KEY).await / part).min(primaries - 1);
        let id = Self::id(&nodes[owner]).await;
        for replica in &nodes[primaries..] {
            until("a node knows the primary", async || {
                replica
                    .try_command(&["CLUSTER", "REPLICATE", &id])
                    .await
                    .is_ok()
            })
            .await;
        }
        let count = replicas.to_string();
        until("the replicas follow", async || {
            let following = nodes[owner].info("replication", "connected_slaves").await;
            following.as_deref() == Some(&*count)
        })
        .await;
        Some(cluster)
    }

    /// The port of the node that has the slot, as this node knows it.
    async fn named_by(node: &Server, slot: usize) -> Option<u16> {
        let asking = node.try_command(&["CLUSTER", "SLOTS"]);
        let answer = timeout(SECOND / 5, asking).await.ok()?.ok()?;
        let ranges: Vec<Vec<redis::Value>> = from_redis_value(answer).ok()?;
        let bound = |value: &redis::Value| from_redis_value::<usize>(value.clone()).ok();
        let range = ranges.into_iter().find(|range| {
            bound(&range[0]).is_some_and(|first| first <= slot)
                && bound(&range[1]).is_some_and(|last| slot <= last)
        });
        let node: Vec<redis::Value> = from_redis_value(range?.swap_remove(2)).ok()?;
        from_redis_value(node.into_iter().nth(1)?).ok()
    }
}

impl Servers for Cluster {
    async fn start() -> Option<Self> {
        Cluster::start_with(2).await
    }

    /// The nodes that have other slots are enough to find the others.
    fn url(&self) -> String {
        let hosts = self.nodes.iter().take(PRIMARIES);
        let hosts = hosts.map(|node| format!("127.0.0.1:{}", node.port()));
        let hosts: Vec<_> = hosts.collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    async fn primary(&self) -> Option<usize> {
        let slot = self.slot_of_any().await?;
        self.agreed_owner(slot).await
    }

    fn servers(&mut self) -> &mut [Server] {
        &mut self.nodes
    }
}

impl Cluster {
    /// The node that has a slot, if all that answer agree on it.
    async fn agreed_owner(&self, slot: usize) -> Option<usize> {
        let mut named = BTreeSet::new();
        for node in &self.nodes {
            named.extend(Self::named_by(node, slot).await);
        }
        let port = named.pop_first().filter(|_| named.is_empty())?;
        let primary = self.nodes.iter().position(|node| node.port() == port)?;
        let asking = self.nodes[primary].info("replication", "role");
        let role = timeout(SECOND / 5, asking).await;
        (role.ok()?? == "master").then_some(primary)
    }

    /// The slot of the namespace, by the first node that answers.
    async fn slot_of_any(&self) -> Option<usize> {
        for node in &self.nodes {
            let asking = node.try_command(&["CLUSTER", "KEYSLOT", KEY]);
            if let Ok(Ok(slot)) = timeout(SECOND / 5, asking).await {
                return from_redis_value(slot).ok();
            }
        }
        None
    }

    /// Moves a slot to another node, key by key, as `redis-cli --cluster reshard` does.
    pub(crate) async fn move_slot(&self, slot: usize, from: usize, to: usize) {
        let (slot, from, to) = (slot.to_string(), &self.nodes[from], &self.nodes[to]);
        let (from_id, to_id) = (Self::id(from).await, Self::id(to).await);
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])
            .await;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])
            .await;
        let port = to.port().to_string();
        loop {
            let keys = from
                .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"])
                .await;
            let keys: Vec<String> = from_redis_value(keys).expect("they are texts");
            let Some(key) = keys.first() else { break };
            from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])
                .await;
            // Calls find some keys here and some there.
            sleep(SECOND / 20).await;
        }
        for node in [to, from] {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id])
                .await;
        }
    }
}

/// Sets timers while the slots of these keys move to the next node, one after the other. Returns
/// the values that were set, and the errors of the calls that failed.
async fn set_while_moving(
    cluster: &Cluster,
    timers: &DurableTimers<String, u64>,
    keys: &[String],
) -> (BTreeSet<u64>, Vec<Error>) {
    let (set, is_over) = (RefCell::new(BTreeSet::new()), Cell::new(false));
    let moving = async {
        for key in keys {
            let slot = cluster.slot_of(key).await;
            let owner = cluster.owner_of(slot).await;
            let next = (owner + 1) % PRIMARIES;
            cluster.move_slot(slot, owner, next).await;
            cluster.owner_of(slot).await;
            let before = set.borrow().len();
            until("more timers are set", async || {
                set.borrow().len() >= before + 5
            })
            .await;
        }
        is_over.set(true);
    };
    let setting = async {
        let mut failed = Vec::new();
        for number in 0.. {
            if is_over.get() {
                break;
            }
            match timers.set_timer(&number.to_string(), &number, SECOND).await {
                Ok(()) => drop(set.borrow_mut().insert(number)),
                Err(error) => failed.push(error),
            }
        }
        failed
    };
    let ((), failed) = join(moving, setting).await;
    (set.into_inner(), failed)
}

/// No timer is lost while the slots of these keys move, and no call fails. On a busy machine a node
/// may take half a second to name another one, and a call fails: one of three attempts is enough.
pub(crate) async fn survives_moves(parts: usize, keys: &[String]) {
    let mut errors = Vec::new();
    for _ in 0..3 {
        let Some(cluster) = Cluster::start_with(0).await else {
            return;
        };
        let store = connect(&cluster.url()).await.spread(parts);
        let (timers, mut claims) = start_within(30 * SECOND, store).await;
        let (set, failed) = set_while_moving(&cluster, &timers, keys).await;
        delivered(&mut claims, &set).await;
        if failed.is_empty() {
            let counts = timers.counts().await.expect("they count");
            assert_eq!((counts.waiting, counts.in_flight), (0, 0));
            return;
        }
        errors.extend(failed);
    }
    panic!("{errors:?}");
}

/// A script that ran while some of its keys were at one node and some at the other would lose rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_while_their_slot_moves() {
    survives_moves(1, &[KEY; 4].map(str::to_owned)).await;
}

/// One node was to be named, and connecting elsewhere left to the program.
#[tokio::test]
async fn error_of_a_node_says_how_to_connect() {
    let Some(cluster) = Cluster::start_with(0).await else {
        return;
    };
    let owner = until_primary(&cluster, None).await;
    let store = cluster.nodes[(owner + 1) % PRIMARIES].connect().await;
    let wheel = TimerWheel::new();
    let started = builder::<String, u64>("faults").start(&wheel, store);
    let error = format!("{:#}", started.await.expect_err("another node has it"));
    assert!(error.contains("connect with redis+cluster://"), "{error}");
}
