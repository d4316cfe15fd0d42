//! A primary, its replicas, and the Sentinels that watch them.

use redis::{Value, from_redis_value};
use tickwheel_durable::Redis;
use tickwheel_durable::store::{Namespace, Store, StoreError};

use crate::failover::Servers;
use crate::server::{Server, until};

const NAME: &str = "orders";
const SENTINELS: usize = 3;

/// A primary and two replicas, watched by Sentinels.
pub(crate) struct Watched {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Watched {
    /// The port of the primary, as this Sentinel knows it.
    async fn named_by(sentinel: &Server) -> Option<u16> {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        let answer = sentinel.try_command(&question).await.ok()?;
        let (_, port): (String, u16) = from_redis_value(answer).ok()?;
        Some(port)
    }

    /// The Sentinel's view of the primary.
    async fn knows(sentinel: &Server, field: &str) -> Option<usize> {
        let answer = sentinel.try_command(&["SENTINEL", "MASTER", NAME]).await;
        let fields: Vec<String> = from_redis_value(answer.ok()?).ok()?;
        let mut fields = fields.chunks(2);
        fields.find(|pair| pair[0] == field)?[1].parse().ok()
    }
}

impl Servers for Watched {
    async fn start() -> Option<Self> {
        let quick = ["--repl-diskless-sync-delay", "0"];
        let primary = Server::start(&quick)?;
        let port = primary.port().to_string();
        let mut servers = vec![primary];
        for _ in 0..2 {
            let following = ["--replicaof", "127.0.0.1", &port];
            servers.push(Server::start(&[&quick[..], &following[..]].concat())?);
        }
        until("the replicas follow", async || {
            let replicas = servers[0].info("replication", "connected_slaves").await;
            replicas.as_deref() == Some("2")
        })
        .await;
        let sentinels = (0..SENTINELS).map(|_| {
            let quorum = SENTINELS / 2 + 1;
            Server::start_sentinel(NAME, servers[0].port(), quorum)
        });
        let sentinels: Vec<_> = sentinels.collect::<Option<_>>()?;
        for sentinel in &sentinels {
            // One that stood still for two seconds takes its clock for wrong, and replaces nothing
            // for thirty. Versions before 7.0 keep to that.
            let period = ["SENTINEL", "DEBUG", "TILT-PERIOD", "1000"];
            let _ = sentinel.try_command(&period).await;
            until("the Sentinels know each other", async || {
                Self::knows(sentinel, "num-other-sentinels").await == Some(SENTINELS - 1)
                    && Self::knows(sentinel, "num-slaves").await == Some(2)
            })
            .await;
        }
        Some(Watched { servers, sentinels })
    }

    fn url(&self) -> String {
        let hosts = self.sentinels.iter();
        let hosts = hosts.map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
        let hosts: Vec<_> = hosts.collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    async fn primary(&self) -> Option<usize> {
        let port = Self::named_by(&self.sentinels[0]).await?;
        for sentinel in &self.sentinels {
            if Self::named_by(sentinel).await != Some(port) {
                return None;
            }
        }
        let primary = self
            .servers
            .iter()
            .position(|server| server.port() == port)?;
        // The old one may hang, and is named until it is replaced.
        let asking = self.servers[primary].info("replication", "role");
        let role = tokio::time::timeout(std::time::Duration::from_millis(200), asking).await;
        (role.ok()?? == "master").then_some(primary)
    }

    fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }
}

#[tokio::test]
async fn sentinel_that_knows_no_such_primary_is_named() {
    let Some(primary) = Server::start(&[]) else {
        return;
    };
    let sentinel = Server::start_sentinel(NAME, primary.port(), 1).expect("there is one");
    let place = format!("redis+sentinel://127.0.0.1:{}/other", sentinel.port());
    let error = Redis::connect(&place).await.expect_err("there is no other");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let text = format!("{error:#}");
    assert!(
        text.contains(&place) && text.contains("no primary of this name"),
        "{text}"
    );
    // One of the Sentinels does not answer.
    let url = format!(
        "redis+sentinel://127.0.0.1:1,127.0.0.1:{}/{NAME}",
        sentinel.port()
    );
    let store = Redis::connect(&url).await.expect("the other one answers");
    store.check_durability().await.expect("it is durable");
    assert!(matches!(
        primary.command(&["PING"]).await,
        Value::SimpleString(_)
    ));
}

/// Else a Sentinel that knows better would never be asked again.
#[tokio::test]
async fn sentinel_that_names_a_server_that_is_not_there_is_asked_last() {
    let Some(primary) = Server::start(&[]) else {
        return;
    };
    let knows = Server::start_sentinel(NAME, primary.port(), 1).expect("there is one");
    let errs = Server::start_sentinel(NAME, 1, 1).expect("there is one");
    let [knows, errs] = [&knows, &errs].map(Server::port);
    let url = format!("redis+sentinel://127.0.0.1:{knows},127.0.0.1:{errs}/{NAME}");
    let store = Redis::connect(&url).await.expect("the first one knows");
    let cut = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    primary.command(&cut).await;
    let space = Namespace::new(NAME).expect("it is a name");
    until("a connection", async || {
        store.open(&space, &"test".into()).await.is_ok()
    })
    .await;
}
