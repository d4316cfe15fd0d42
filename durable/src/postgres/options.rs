//! How a store connects, beyond what a URL says.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::connector::{Dial, Prepare, by_connector, by_function};
use super::url;
use crate::store::{BoxError, StoreError};

/// One for each lane, one for reads, and one that listens.
pub(super) const MAX_CONNECTIONS: usize = 7;

/// One for all lanes, one for reads, and one that listens.
const MIN_CONNECTIONS: usize = 3;

/// How a [`Postgres`](crate::Postgres) store connects: a URL or a [`Config`] of the client, and
/// what neither can say. With the feature `postgres`. The client is re-exported as
/// [`tickwheel_durable::tokio_postgres`](crate::tokio_postgres), in the version that this type
/// takes.
///
/// # Examples
///
/// Amazon RDS, with a token in place of a password. Tokens are valid for minutes, so each
/// connection gets its own:
///
/// ```no_run
/// use tickwheel_durable::{Postgres, PostgresOptions};
///
/// # use tickwheel_durable::tokio_postgres;
/// # async fn sign(host: &tokio_postgres::Config) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "postgres://worker@db-1.example,db-2.example/orders?sslmode=verify-full&sslrootcert=/etc/rds.pem";
/// let options = PostgresOptions::new(url)?.before_connect(|mut host| async move {
///     let token = sign(&host).await?;
///     host.password(token);
///     Ok::<_, std::io::Error>(host)
/// });
/// let store = Postgres::connect_with(options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    pub(super) roots: Option<PathBuf>,
    pub(super) dial: Option<Arc<Dial>>,
    pub(super) before_connect: Option<Arc<Prepare>>,
    pub(super) connections: usize,
    pub(super) create_tables: bool,
}

impl PostgresOptions {
    /// The settings of a URL, as [`Postgres::connect`](crate::Postgres::connect) takes it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] when the URL cannot be parsed.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let (config, roots) = url::parse(url)?;
        Ok(PostgresOptions {
            roots,
            ..PostgresOptions::from(config)
        })
    }

    /// Encrypts all connections by this connector, which decides what certificates are trusted.
    /// Default: as `sslmode` says.
    #[must_use]
    pub fn tls<T>(mut self, connector: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.config.ssl_mode(SslMode::Require);
        self.dial = Some(by_connector(connector));
        self
    }

    /// Calls this function before each connection, with the settings for one host, and connects
    /// with what it returns: for passwords that expire, such as IAM tokens.
    ///
    /// It counts towards the `connect_timeout` of the settings, 5 s by default. Its error is the
    /// [cause](std::error::Error::source) of a [`StoreError::Unavailable`], and the next call
    /// connects again; a [`StoreError`] is returned as it is.
    #[must_use]
    pub fn before_connect<F, R, E>(mut self, function: F) -> Self
    where
        F: Fn(Config) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Config, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.before_connect = Some(Arc::new(move |config| {
            let changed = function(config);
            Box::pin(async move { changed.await.map_err(Into::into) })
        }));
        self
    }

    /// Makes each connection by this function, from the settings for one host: for sockets of one's
    /// own, such as a tunnel or the proxy of a cloud. It replaces [`tls`](Self::tls), and `sslmode`
    /// is the function's affair.
    ///
    /// The store reads the messages of the connection itself. Limits and errors are those of
    /// [`before_connect`](Self::before_connect), which runs before it.
    #[must_use]
    pub fn connect_by<F, R, S, T, E>(mut self, function: F) -> Self
    where
        F: Fn(Config) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(Client, Connection<S, T>), E>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        E: Into<BoxError>,
    {
        self.dial = Some(by_function(function));
        self
    }

    /// How many connections the store has at most (3 to 7). Default: 7.
    ///
    /// One listens for hints, one is for reads, and the others are for calls that take turns:
    ///
    /// | connections | calls that wait for each other |
    /// |---|---|
    /// | 7 | none but those of a kind: fires, settles, writes, loads, queries such as `counts` |
    /// | 6 | loads and queries: while millions of rows are counted, nothing is loaded |
    /// | 5 | these and writes: a write that waits for a locked row delays loads |
    /// | 4 | these and settles |
    /// | 3 | all: a slow query, or a write that waits, makes timers late |
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Whether the tables are made and upgraded. Default: `true`. With `false` the store refuses a
    /// database without them, or with those of an earlier version, and names the files to apply.
    #[must_use]
    pub fn create_tables(mut self, create_tables: bool) -> Self {
        self.create_tables = create_tables;
        self
    }

    /// Checks the number of connections.
    pub(super) fn check_connections(&self) -> Result<(), StoreError> {
        let connections = self.connections;
        if (MIN_CONNECTIONS..=MAX_CONNECTIONS).contains(&connections) {
            return Ok(());
        }
        let message = format!(
            "connections is {connections}; it must be from {MIN_CONNECTIONS} to {MAX_CONNECTIONS}"
        );
        Err(StoreError::refused(message))
    }
}

impl From<Config> for PostgresOptions {
    fn from(config: Config) -> Self {
        PostgresOptions {
            config,
            roots: None,
            dial: None,
            before_connect: None,
            connections: MAX_CONNECTIONS,
            create_tables: true,
        }
    }
}

// The client's `Debug` hides the password.
opaque!(PostgresOptions, |it|
    config: it.config, connections: it.connections, create_tables: it.create_tables
);
