//! Where the server is that has a namespace: the only one, or the one that Sentinels or the nodes
//! of a cluster name.
//!
//! They are asked when a connection is made, never while one is good. The one that has answered is
//! asked first the next time. One that fails, or names a server that cannot be reached, is asked
//! last: it may hang, or be on the wrong side of a network that has parted.
//!
//! The client's own code for Sentinels asks them in the order of the URL each time, so one that
//! hangs delays every attempt. Nodes of a cluster are asked here in the same way as Sentinels: that
//! code would save the question alone.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    RedisError, RedisResult, Value, from_redis_value,
};
use tokio::time::timeout;

use super::keys::key_of;
use super::url::{
    Address, UrlPieces, addresses, misused, prepared, sentinel_credentials, split_before,
};
use crate::lock::lock;
use crate::store::Namespace;

/// A Sentinel or a node has this time to name a server, and that server to show that it is the one.
const ASK: Duration = Duration::from_millis(500);

const SENTINEL_PORT: u16 = 26_379;

/// Where the servers of a URL are.
pub(super) enum Servers {
    One(Client),
    Sentinel {
        sentinels: Nodes,
        /// The name of the primary among the Sentinels.
        primary: String,
        /// How to connect to servers, but for the address.
        server: Box<ConnectionInfo>,
    },
    Cluster(Nodes),
}

/// Servers that know where others are.
pub(super) struct Nodes {
    /// How to connect to them, but for the address.
    node: Box<ConnectionInfo>,
    /// The one to ask first is the first.
    addresses: Mutex<VecDeque<Address>>,
}

impl Servers {
    /// Takes a URL apart.
    pub(super) fn new(url: &str) -> RedisResult<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        match scheme.split_once('+') {
            Some((scheme, "sentinel")) => {
                let parts = UrlPieces::of(rest);
                let (path, query) = split_before(parts.tail, &['?', '#']);
                let mut path = path.trim_matches('/').splitn(2, '/');
                let (primary, database) = (path.next().unwrap_or_default(), path.next());
                if primary.is_empty() {
                    return Err(misused(
                        "the URL names no primary: redis+sentinel://host/name",
                    ));
                }
                let (query, fragment) = split_before(query, &['#']);
                let (own, rest) = sentinel_credentials(query.trim_start_matches('?'));
                let tail = format!("{}{rest}{fragment}", database.unwrap_or_default());
                let server = parts.info(scheme, &tail)?;
                let sentinels = UrlPieces {
                    credentials: &own,
                    ..parts
                };
                Ok(Servers::Sentinel {
                    sentinels: Nodes {
                        node: Box::new(sentinels.info(scheme, fragment)?),
                        addresses: Mutex::new(addresses(scheme, parts.hosts, Some(SENTINEL_PORT))?),
                    },
                    primary: primary.to_owned(),
                    server: Box::new(server),
                })
            }
            Some((scheme, "cluster")) => {
                let parts = UrlPieces::of(rest);
                let node = parts.info(scheme, parts.tail.trim_start_matches('/'))?;
                if node.redis_settings().db() != 0 {
                    return Err(misused("a cluster has database 0 only"));
                }
                let nodes = Nodes {
                    addresses: Mutex::new(addresses(scheme, parts.hosts, None)?),
                    node: Box::new(node),
                };
                Ok(Servers::Cluster(nodes))
            }
            _ => {
                let info = prepared(url.into_connection_info()?);
                Ok(Servers::One(Client::open(info)?))
            }
        }
    }

    /// Whether each namespace may lie in another server.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Servers::Cluster(_))
    }

    /// The server of a namespace, and who has named it. Without a namespace that of any.
    async fn find(&self, namespace: Option<&Namespace>) -> RedisResult<(Client, Option<Address>)> {
        match self {
            Servers::One(client) => Ok((client.clone(), None)),
            Servers::Sentinel {
                sentinels,
                primary,
                server,
            } => {
                let mut question = ::redis::pipe();
                question
                    .cmd("SENTINEL")
                    .arg("GET-MASTER-ADDR-BY-NAME")
                    .arg(primary);
                let (named, by) = sentinels.ask(&question, named_by_sentinel).await?;
                Ok((Client::open(at(server, named))?, Some(by)))
            }
            Servers::Cluster(nodes) => {
                let (primaries, by) = nodes.primaries(namespace).await?;
                let named = primaries.into_iter().next();
                let named = named.ok_or_else(|| away("no node has the slot"))?;
                Ok((Client::open(at(&nodes.node, named))?, Some(by)))
            }
        }
    }

    /// Connects to the server of a namespace; without one to that of any.
    pub(super) async fn connect(
        &self,
        namespace: Option<&Namespace>,
    ) -> RedisResult<MultiplexedConnection> {
        let (client, by) = self.find(namespace).await?;
        let Some(by) = by else {
            // The caller has a limit for the whole call.
            return connect(&client).await;
        };
        let is_cluster = self.is_cluster();
        let connecting = async {
            let mut connection = connect(&client).await?;
            if !is_cluster {
                // A server that was the primary says so until it has learned better.
                let role: Vec<Value> = ::redis::cmd("ROLE").query_async(&mut connection).await?;
                let role: Option<String> =
                    role.into_iter().next().map(from_redis_value).transpose()?;
                if role.as_deref() != Some("master") {
                    return Err(away("the server that the Sentinels name is no primary yet"));
                }
            }
            Ok(connection)
        };
        let connected = within(connecting).await;
        if connected.is_err() {
            self.ask_last(&by);
        }
        connected
    }

    /// A client of the server of a namespace.
    pub(super) async fn client(&self, namespace: &Namespace) -> RedisResult<Client> {
        Ok(self.find(Some(namespace)).await?.0)
    }

    /// Clients of the nodes of a cluster that have slots; `None` where one server has all timers.
    pub(super) async fn primaries(&self) -> RedisResult<Option<Vec<Client>>> {
        let Servers::Cluster(nodes) = self else {
            return Ok(None);
        };
        let (mut primaries, _) = nodes.primaries(None).await?;
        primaries.sort();
        primaries.dedup();
        let clients = primaries.into_iter();
        let clients = clients.map(|named| Client::open(at(&nodes.node, named)));
        clients.collect::<RedisResult<_>>().map(Some)
    }

    /// A server has named another one that has the slot.
    pub(super) fn moved(&self, error: &RedisError) {
        let (Servers::Cluster(nodes), Some((node, _slot))) = (self, error.redirect_node()) else {
            return;
        };
        if let Some(address) = redirected_to(node) {
            nodes.put(&address, true);
        }
    }

    /// Asks another node first from now on. A connection has failed, and the node that named its
    /// server may know no better.
    pub(super) fn doubt(&self) {
        if let Some(nodes) = self.nodes() {
            nodes.lock().rotate_left(1);
        }
    }

    fn ask_last(&self, address: &Address) {
        if let Some(nodes) = self.nodes() {
            nodes.put(address, false);
        }
    }

    /// The nodes that name servers.
    fn nodes(&self) -> Option<&Nodes> {
        match self {
            Servers::One(_) => None,
            Servers::Sentinel { sentinels, .. } => Some(sentinels),
            Servers::Cluster(nodes) => Some(nodes),
        }
    }
}

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Address>> {
        lock(&self.addresses)
    }

    /// Puts an address at the front, or at the back.
    fn put(&self, address: &Address, first: bool) {
        let mut addresses = self.lock();
        addresses.retain(|other| other != address);
        if first {
            addresses.push_front(address.clone());
        } else {
            addresses.push_back(address.clone());
        }
    }

    /// Asks one after the other until one answers. Returns the answer and who gave it.
    async fn ask<T>(
        &self,
        question: &Pipeline,
        read: impl Fn(Vec<Value>, &Address) -> RedisResult<T>,
    ) -> RedisResult<(T, Address)> {
        let addresses = self.lock().clone();
        let mut failed = away("the URL names no server");
        for address in addresses {
            // The caller may give up while this one hangs.
            self.put(&address, false);
            let client = Client::open(at(&self.node, address.clone()))?;
            let asking = async {
                let mut connection = connect(&client).await?;
                let count = question.len();
                connection.send_packed_commands(question, 0, count).await
            };
            let answer = within(asking).await;
            match answer.and_then(|answer| read(answer, &address)) {
                Ok(answer) => {
                    self.put(&address, true);
                    return Ok((answer, address));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The primaries of the slots of a cluster, or of the slot of a namespace, and who has named
    /// them. Remembers all nodes that are named.
    async fn primaries(
        &self,
        namespace: Option<&Namespace>,
    ) -> RedisResult<(Vec<Address>, Address)> {
        let mut question = ::redis::pipe();
        question.cmd("CLUSTER").arg("SLOTS");
        if let Some(namespace) = namespace {
            question
                .cmd("CLUSTER")
                .arg("KEYSLOT")
                .arg(key_of(namespace));
        }
        let read = |answer: Vec<Value>, by: &Address| {
            let mut answer = answer.into_iter().map(Value::extract_error);
            let ranges = answer.next().ok_or_else(|| away("no answer"))??;
            let slot: Option<i64> = answer
                .next()
                .transpose()?
                .map(from_redis_value)
                .transpose()?;
            let (mut primaries, mut named) = (Vec::new(), Vec::new());
            for range in from_redis_value::<Vec<Vec<Value>>>(ranges)? {
                let mut range = range.into_iter();
                let mut bound = || range.next().map(from_redis_value::<i64>).transpose();
                let (first, last) = (bound()?.unwrap_or(0), bound()?.unwrap_or(-1));
                let nodes: Vec<_> = range.filter_map(|node| address_of(node, by)).collect();
                if slot.is_none_or(|slot| (first..=last).contains(&slot)) {
                    primaries.extend(nodes.first().cloned());
                }
                named.extend(nodes);
            }
            Ok((primaries, named))
        };
        let ((primaries, named), by) = self.ask(&question, read).await?;
        let mut addresses = self.lock();
        for address in named {
            if !addresses.contains(&address) {
                addresses.push_back(address);
            }
        }
        drop(addresses);
        Ok((primaries, by))
    }
}

/// Reads where a node of a cluster is. Without a host it is where the node is that has answered.
fn address_of(node: Value, by: &Address) -> Option<Address> {
    let mut node = from_redis_value::<Vec<Value>>(node).ok()?.into_iter();
    let host: Option<String> = from_redis_value(node.next()?).ok()?;
    let port: u16 = from_redis_value(node.next()?).ok()?;
    let host = host.filter(|host| !host.is_empty() && host != "?");
    Some((host.unwrap_or_else(|| by.0.clone()), port))
}

/// Reads where a node has sent a call, `host:port`. A host that it does not know may be its own,
/// and then it is asked again anyway.
fn redirected_to(node: &str) -> Option<Address> {
    let (host, port) = node.rsplit_once(':')?;
    let host = Some(host).filter(|host| !host.is_empty() && *host != "?")?;
    Some((host.to_owned(), port.parse().ok()?))
}

/// Reads the answer of a Sentinel.
fn named_by_sentinel(answer: Vec<Value>, _by: &Address) -> RedisResult<Address> {
    let answer = answer.into_iter().next().unwrap_or(Value::Nil);
    let named: Option<(String, u16)> = from_redis_value(answer.extract_error()?)?;
    named.ok_or_else(|| away("the Sentinel knows no primary of this name"))
}

/// Connects without limits on the time.
pub(super) async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await.map_err(|error| {
        if !error.is_connection_dropped() {
            return error;
        }
        // It may say why, but closes the connection before that is read.
        let text = format!(
            "it closes new connections at once, as it does once it has as many clients as its setting maxclients allows: {error}"
        );
        io::Error::new(io::ErrorKind::ConnectionReset, text).into()
    })
}

async fn within<T>(call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match timeout(ASK, call).await {
        Ok(outcome) => outcome,
        Err(elapsed) => Err(io::Error::from(elapsed).into()),
    }
}

/// These settings with another address.
fn at(info: &ConnectionInfo, (host, port): Address) -> ConnectionInfo {
    let address = match info.addr().clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(address)
}

fn away(what: &'static str) -> RedisError {
    io::Error::new(io::ErrorKind::NotConnected, what).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses_of(nodes: &Nodes) -> Vec<Address> {
        nodes.lock().iter().cloned().collect()
    }

    fn address(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    #[test]
    fn url_of_sentinels_is_taken_apart() {
        let url = "redis+sentinel://me:p%40ss@one,[::1]:5000,three:26380/orders/2\
            ?sentinel_username=u&sentinel_password=s&protocol=resp3";
        let Ok(Servers::Sentinel {
            sentinels,
            primary,
            server,
        }) = Servers::new(url)
        else {
            panic!("it is a URL of Sentinels");
        };
        assert_eq!(primary, "orders");
        let expected = [
            address("one", 26_379),
            address("::1", 5_000),
            address("three", 26_380),
        ];
        assert_eq!(addresses_of(&sentinels), expected);
        let settings = sentinels.node.redis_settings();
        assert_eq!(
            (settings.username(), settings.password()),
            (Some("u"), Some("s"))
        );
        assert_eq!(sentinels.node.redis_settings().db(), 0);
        let settings = server.redis_settings();
        assert_eq!(
            (settings.username(), settings.password()),
            (Some("me"), Some("p@ss"))
        );
        assert_eq!(settings.db(), 2);
    }

    #[test]
    fn url_of_a_cluster_is_taken_apart() {
        let Ok(Servers::Cluster(nodes)) = Servers::new("rediss+cluster://:secret@one:1,two") else {
            panic!("it is a URL of a cluster");
        };
        assert_eq!(
            addresses_of(&nodes),
            [address("one", 1), address("two", 6_379)]
        );
        let at_three = at(&nodes.node, address("three", 3));
        assert!(matches!(
            at_three.addr(),
            ConnectionAddr::TcpTls { host, port: 3, .. } if host == "three"
        ));
        assert_eq!(at_three.redis_settings().password(), Some("secret"));
    }

    #[test]
    fn urls_without_what_they_need_are_refused() {
        for (url, says) in [
            ("redis+sentinel://one,two", "names no primary"),
            ("redis+sentinel://one,two/", "names no primary"),
            ("redis+sentinel://one:x/orders", ""),
            ("redis+cluster://one/1", "database 0 only"),
            ("redis+cluster://one,,two", ""),
            ("http+cluster://one", ""),
        ] {
            let refused = Servers::new(url).err().expect("it is refused");
            assert!(refused.to_string().contains(says), "{url}: {refused}");
        }
    }

    #[test]
    fn one_that_fails_is_asked_last() {
        let Ok(servers @ Servers::Cluster(_)) = Servers::new("redis+cluster://a,b,c") else {
            panic!("it is a URL of a cluster");
        };
        let hosts = || {
            let Servers::Cluster(nodes) = &servers else {
                unreachable!()
            };
            let hosts = nodes
                .lock()
                .iter()
                .map(|(host, _)| host.clone())
                .collect::<Vec<_>>();
            hosts.join("")
        };
        servers.ask_last(&address("a", 6_379));
        assert_eq!(hosts(), "bca");
        servers.doubt();
        assert_eq!(hosts(), "cab");
        // One that another one has named is asked first.
        let moved = ::redis::parse_redis_value(b"-MOVED 17 b:6379\r\n");
        let moved = moved.expect("it parses").extract_error();
        servers.moved(&moved.expect_err("it is one"));
        assert_eq!(hosts(), "bca");
    }

    /// The number of the slot was taken for the port, so each redirection added an address that
    /// leads nowhere, which was asked first.
    #[test]
    fn redirection_leads_to_the_node_that_it_names() {
        for (node, leads_to) in [
            ("10.0.0.7:6381", Some(address("10.0.0.7", 6_381))),
            ("::1:6381", Some(address("::1", 6_381))),
            ("db-1.example:6381", Some(address("db-1.example", 6_381))),
            (":6381", None),
            ("?:6381", None),
            ("nowhere", None),
        ] {
            assert_eq!(redirected_to(node), leads_to, "{node}");
        }
    }
}
