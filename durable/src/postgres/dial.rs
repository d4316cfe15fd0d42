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

use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};

use super::connector::Messages;
use super::hints::Hints;
use super::target::Target;
use crate::jitter::jittered;
use crate::race::race;
use crate::store::{InstanceId, StoreError};

/// When a host has not responded for so long, the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// The delay before the first attempt to connect again. It doubles with each attempt, up to the
/// last.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// It looks up no function, for the path is still that of the role.
const READS_ONLY: &str = "SHOW transaction_read_only";

/// Connects, for calls.
pub(super) async fn dial(target: &Target) -> Result<Client, StoreError> {
    Ok(connect(target, None).await?.0)
}

/// Connects. What the server sends unasked goes to the hints. The receiver is closed when the
/// connection is.
async fn connect(
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
    let why = format!("no host can be used: {}", reasons.join("; "));
    if failures.iter().any(StoreError::may_pass) {
        target.unavailable(why)
    } else {
        target.refused(why)
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
        return Err(host.unavailable(format_args!("no connection within {limit:?}")));
    };
    let (client, messages) = dialed.map_err(|error| host.blame(error))?;
    let (open, closed) = watch::channel(());
    drop(tokio::spawn(drive(messages, hints, open)));
    let Ok(asked) = timeout(limit, client.query_typed(READS_ONLY, &[])).await else {
        return Err(host.unavailable(format_args!(
            "a connection has no answer within {limit:?}: a pooler between has to have room for all connections of a store"
        )));
    };
    let rows = asked.map_err(|error| host.describe(error))?;
    if rows[0].get::<_, &str>(0) == "on" {
        return Err(host.unavailable(
            "the server accepts no writes: it is a standby, or the role has default_transaction_read_only",
        ));
    }
    Ok((client, closed))
}

/// Receives until the connection ends, or its client is dropped.
async fn drive(mut messages: Messages, hints: Option<Arc<Hints>>, open: watch::Sender<()>) {
    // After an error the calls that wait for a response fail.
    while let Some(Ok(message)) = messages.next().await {
        if let (AsyncMessage::Notification(notification), Some(hints)) = (message, &hints) {
            // Any role may send something else, which names no instance.
            let named = notification.payload().parse().ok().map(InstanceId);
            hints.notify(notification.channel(), named);
        }
    }
    drop(open);
}

/// Listens from the first channel on until it is dropped, and connects again when it has to.
pub(super) async fn listen(target: Target, hints: Arc<Hints>) {
    let mut retry = FIRST_RETRY;
    let mut failing = false;
    hints.added.notified().await;
    loop {
        match connect(&target, Some(Arc::clone(&hints))).await {
            Ok((client, closed)) => {
                if replace(&mut failing, false) {
                    tracing::info!(store = %target, "hints are heard again");
                }
                let given_up = hints.given_up.notified();
                race(listen_on(&client, closed, &hints), given_up).await;
                retry = FIRST_RETRY;
            }
            Err(error) if !replace(&mut failing, true) => {
                let error = format!("{error:#}");
                tracing::warn!(store = %target, error, "no hints: near deadlines that others set are found by the poll");
            }
            Err(_) => {}
        }
        sleep(jittered(retry)).await;
        retry = (retry * 2).min(LAST_RETRY);
    }
}

/// Listens on a connection until it ends.
async fn listen_on(client: &Client, mut closed: watch::Receiver<()>, hints: &Hints) {
    let mut listening = Vec::new();
    loop {
        let new = hints.names().into_iter();
        let new = new.filter(|name| !listening.contains(name));
        let new: Vec<_> = new.collect();
        let listen: Vec<_> = new.iter().map(|name| format!("LISTEN {name}")).collect();
        if client.batch_execute(&listen.join(";")).await.is_err() {
            return;
        }
        for name in &new {
            hints.notify(name, None);
        }
        listening.extend(new);
        // Nothing is ever sent: it returns an error when the connection has ended.
        let ended = async { closed.changed().await.is_err() };
        let added = async {
            hints.added.notified().await;
            false
        };
        if race(ended, added).await {
            return;
        }
    }
}
