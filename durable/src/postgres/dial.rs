//! Connecting to the host that accepts writes.
//!
//! A standby is of no use to a store, nor is a primary that was demoted. So every connection is
//! asked whether it can write.
//!
//! With several hosts the attempts overlap: a host that is silent, because it is switched off or
//! stopped, delays the others by [`STAGGER`].
//!
//! The client can try several hosts, and is not used for that. It tries one after the other,
//! and limits only how long the socket takes: a host that is stopped accepts the socket, says
//! nothing, and is waited for without end, so the next one is never tried. It would also ask for
//! one password for all hosts, and tokens are made for one host each. The first host that accepts
//! writes is taken. If a primary lives on beside the one that replaces it, that may be either, as
//! with any client: fence it.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt, poll_fn};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

use super::hints::Hints;
use super::target::Target;
use super::tls;
use crate::store::{BoxError, BoxFuture, StoreError};

/// When a host has not responded for so long, the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// It looks up no function, for the path is still that of the role.
const READS_ONLY: &str = "SHOW transaction_read_only";

/// A client, and what its server sends.
pub(super) type Dialed = (Client, Messages);

/// The messages that a server sends unasked. The connection works while this is read.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, Error>> + Send>>;

/// Connects to one host.
pub(super) type Dial = dyn Fn(Config) -> BoxFuture<'static, Result<Dialed, BoxError>> + Send + Sync;

/// Changes the settings for one connection.
pub(super) type Prepare =
    dyn Fn(Config) -> BoxFuture<'static, Result<Config, BoxError>> + Send + Sync;

/// Connects by a function.
pub(super) fn by_function<F, R, S, T, E>(function: F) -> Arc<Dial>
where
    F: Fn(Config) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(Client, Connection<S, T>), E>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    E: Into<BoxError>,
{
    Arc::new(move |config| {
        let connected = function(config);
        Box::pin(async move {
            let (client, mut connection) = connected.await.map_err(Into::into)?;
            let messages: Messages = Box::pin(poll_fn(move |cx| connection.poll_message(cx)));
            Ok((client, messages))
        })
    })
}

/// Connects with a TLS connector.
pub(super) fn by_connector<T>(tls: T) -> Arc<Dial>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    by_function(move |config| {
        let tls = tls.clone();
        async move { config.connect(tls).await }
    })
}

/// Connects with TLS, and trusts what the file has signed, else what the system trusts. Both are
/// read each time.
pub(super) fn by_system(roots: Option<PathBuf>) -> Arc<Dial> {
    by_function(move |config| {
        let tls = tls::connector(roots.as_deref());
        async move { Ok::<_, BoxError>(config.connect(tls?).await?) }
    })
}

/// Connects, for calls.
pub(super) async fn dial(target: &Target) -> Result<Client, StoreError> {
    Ok(connect(target, None).await?.0)
}

/// Connects. What the server sends unasked goes to the hints. The receiver is closed when the
/// connection is.
pub(super) async fn connect(
    target: &Target,
    hints: Option<Arc<Hints>>,
) -> Result<(Client, watch::Receiver<()>), StoreError> {
    let mut waiting = target.hosts.iter();
    let mut attempts = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        if let Some(host) = waiting.next() {
            attempts.push(attempt(target.only(host), hints.clone()));
        }
        let ended = if waiting.len() > 0 {
            let Ok(ended) = timeout(STAGGER, attempts.next()).await else {
                continue;
            };
            ended
        } else {
            attempts.next().await
        };
        match ended {
            Some(Ok(connected)) => return Ok(connected),
            Some(Err(failure)) => failures.push(failure),
            None => return Err(no_host(target, failures)),
        }
    }
}

/// Why none of the hosts can be used. A standby may be about to become the primary.
fn no_host(target: &Target, mut failures: Vec<StoreError>) -> StoreError {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let reasons: Vec<_> = failures.iter().map(|error| format!("{error:#}")).collect();
    let message = format!(
        "PostgreSQL {target}: no host can be used: {}",
        reasons.join("; ")
    );
    if failures.iter().any(StoreError::may_pass) {
        StoreError::unavailable(message)
    } else {
        StoreError::refused(message)
    }
}

/// Connects to a host, if it accepts writes.
async fn attempt(
    host: Target,
    hints: Option<Arc<Hints>>,
) -> Result<(Client, watch::Receiver<()>), StoreError> {
    let config = host.hosts[0].clone();
    let limit = config.get_connect_timeout().copied();
    let limit = limit.unwrap_or(Duration::MAX);
    let dialed = async {
        let config = match &host.prepare {
            Some(prepare) => prepare(config).await?,
            None => config,
        };
        (host.dial)(config).await
    };
    let Ok(dialed) = timeout(limit, dialed).await else {
        let message = format!("PostgreSQL {host}: no connection within {limit:?}");
        return Err(StoreError::unavailable(message));
    };
    let (client, messages) = dialed.map_err(|error| host.blame(error))?;
    let (open, closed) = watch::channel(());
    drop(tokio::spawn(drive(messages, hints, open)));
    let Ok(asked) = timeout(limit, client.query_typed(READS_ONLY, &[])).await else {
        let message = format!(
            "PostgreSQL {host}: a connection has no answer within {limit:?}: a pooler between has to have room for all \
             connections of a store"
        );
        return Err(StoreError::unavailable(message));
    };
    let rows = asked.map_err(|error| host.describe(error))?;
    if rows[0].get::<_, &str>(0) == "on" {
        let message = format!(
            "PostgreSQL {host}: the server accepts no writes: it is a standby, or the role has default_transaction_read_only"
        );
        return Err(StoreError::unavailable(message));
    }
    Ok((client, closed))
}

/// Receives until the connection ends, or its client is dropped.
async fn drive(mut messages: Messages, hints: Option<Arc<Hints>>, open: watch::Sender<()>) {
    // After an error the calls that wait for a response fail.
    while let Some(Ok(message)) = messages.next().await {
        if let (AsyncMessage::Notification(notification), Some(hints)) = (message, &hints) {
            hints.notify(notification.channel());
        }
    }
    drop(open);
}
