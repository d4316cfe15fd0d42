//! Refuses poolers that share the process of a connection with other clients.
//!
//! Such a pooler, as pgbouncer in transaction mode, has a few connections to the server, and gives
//! one of them to each transaction. Prepared statements, settings, `LISTEN`, and the end of a call
//! by the end of its process need a process that belongs to one connection. With them the store
//! would work for a while, and change the connections of other programs.
//!
//! Two connections show the difference: on a server, or through a pooler of sessions, each has a
//! dedicated process for as long as it is open. So each asks several times for the id of its
//! process. Neither may ever see two ids, nor both the same one. A pooler of transactions gives
//!
//! * a pool of one: both see the same;
//! * the process that was free last, as pgbouncer does: the second sees that of the first;
//! * one after the other: the second, asking twice, sees two;
//! * any, since others use the pool too: it would have to give each of the two its own every time,
//!   by chance.
//!
//! Nothing is set on the way, so nothing is left behind in a connection that belongs to others.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;

use super::target::Target;
use crate::store::StoreError;

/// Which of the two connections asks next.
const ASKS: [usize; 10] = [0, 1, 1, 0, 0, 1, 0, 1, 1, 0];

/// A pooler of sessions that has none left lets the second connection wait.
const ANSWER: Duration = Duration::from_secs(5);

/// Refuses what does not give each connection a dedicated process.
pub(super) async fn refuse_shared(
    clients: [&Client; 2],
    target: &Target,
) -> Result<(), StoreError> {
    let mut seen: [Option<i32>; 2] = [None; 2];
    for asks in ASKS {
        let asked = clients[asks].query_typed("SELECT pg_catalog.pg_backend_pid()", &[]);
        let Ok(answer) = timeout(ANSWER, asked).await else {
            return Err(target.unavailable(format_args!(
                "of two connections one has no answer within {ANSWER:?}: a pooler between has to have room for all \
                 connections of a store"
            )));
        };
        let rows = answer.map_err(|error| target.describe(error))?;
        let process: i32 = rows[0].get(0);
        let before = seen[asks].replace(process);
        if before.is_some_and(|before| before != process) || seen[0] == seen[1] {
            return Err(target.refused(
                "connections do not keep their processes: there is a pooler of transactions between, such as pgbouncer \
                 with pool_mode=transaction. Connect directly, or through one with pool_mode=session",
            ));
        }
    }
    Ok(())
}
