//! The connection that calls share, and how it comes back.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, RedisError, Value,
};
use tokio::sync::Mutex;

use super::error::{ends_connection, store_error, without_credentials};
use super::scripts::Script;
use crate::store::{Namespace, StoreError};

/// A connection that carries nothing is probed after this time, and given up after three times as long.
const PROBE: Duration = Duration::from_secs(5);

/// Data that is not acknowledged for so long ends the connection.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// So often a script that the server does not know is loaded in one call, for those who flush scripts at the same time.
const LOADS: usize = 3;

/// One connection for all calls, in their order.
///
/// A call whose future is dropped stays where it is on the connection, so those made after it come after it. A connection is
/// given up only when it has failed; what it still carried is then lost with it. Keep-alive probes and the limit on
/// unacknowledged data see to it that a peer that is gone is noticed.
pub(super) struct Connection {
    client: Client,
    /// Where the server is, without credentials.
    place: String,
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    connection: Option<MultiplexedConnection>,
    /// How many connections there have been.
    number: u64,
}

impl Connection {
    /// Takes a URL apart. Connects when it is first used.
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let place = without_credentials(url);
        let refused = |error: RedisError| {
            StoreError::refused(format_args!("the URL {place} cannot be used: {error}"))
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
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(refused)?;
        Ok(Connection {
            client,
            place,
            live: Mutex::default(),
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The connection and its number. Connects if there is none.
    async fn connected(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        let mut live = self.live.lock().await;
        if let Some(connection) = &live.connection {
            return Ok((connection.clone(), live.number));
        }
        // The caller has a limit for the whole call.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let new = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let connection = new.await?;
        live.number += 1;
        live.connection = Some(connection.clone());
        Ok((connection, live.number))
    }

    /// Gives the connection with that number up.
    async fn give_up(&self, number: u64) {
        let mut live = self.live.lock().await;
        if live.number == number {
            live.connection = None;
        }
    }

    /// Sends a command.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (mut connection, number) = self.connected().await?;
        let answer = command.query_async(&mut connection).await;
        if answer.as_ref().is_err_and(ends_connection) {
            self.give_up(number).await;
        }
        answer
    }

    /// Runs a script on a namespace: one round trip, unless the server does not know the script yet.
    pub(super) async fn run(
        &self,
        script: &Script,
        namespace: &Namespace,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut command = ::redis::cmd("EVALSHA");
        command.arg(script.hash()).arg(1).arg(key_of(namespace));
        arguments(&mut command);
        let mut answer = self.send(&command).await;
        for _ in 0..LOADS {
            if answer.as_ref().err().and_then(RedisError::code) != Some("NOSCRIPT") {
                break;
            }
            answer = match self.send(&script.load()).await {
                Ok(_) => self.send(&command).await,
                Err(error) => Err(error),
            };
        }
        answer.map_err(|error| store_error(&error, &self.place, Some(namespace)))
    }
}

/// The key of what is known about a namespace. The others begin with it. The braces put all of them into one slot of a cluster.
pub(super) fn key_of(namespace: &Namespace) -> String {
    format!("tickwheel:{{{namespace}}}")
}
