//! The charter of a namespace.

use ::redis::Cmd;

use super::reply::Reply;
use super::{Redis, scripts};
use crate::store::{Charter, Edition, InstanceId, Namespace, Opened, StoreError};

/// The fields of a charter, as the scripts take and return them.
fn charter_arguments(command: &mut Cmd, charter: &Charter) {
    let Charter {
        codec,
        no_overlap,
        at_most_once,
        parts,
    } = charter;
    command.arg(codec).arg(u8::from(*no_overlap));
    command.arg(u8::from(*at_most_once)).arg(*parts);
}

/// Reads what [`charter_arguments`] sends.
pub(super) fn read_charter(reply: &mut Reply) -> Result<Charter, StoreError> {
    let mut text = || Ok(Some(String::from_utf8_lossy(&reply.bytes()?).into_owned()));
    let fields = [text()?, text()?, text()?, text()?];
    // The scripts send a codec.
    Ok(from_fields(fields).unwrap_or_else(|| Charter::new(String::new())))
}

/// A charter from the fields of the hash: what no instance has written yet is as in a new one.
pub(super) fn from_fields(fields: [Option<String>; 4]) -> Option<Charter> {
    let [codec, no_overlap, at_most_once, parts] = fields;
    let mut charter = Charter::new(codec?);
    charter.no_overlap = no_overlap.is_some_and(|set| set == "1");
    charter.at_most_once = at_most_once.is_some_and(|set| set == "1");
    charter.parts = parts.and_then(|parts| parts.parse().ok()).unwrap_or(1);
    Some(charter)
}

pub(super) async fn open(
    redis: &Redis,
    namespace: &Namespace,
    charter: &Charter,
) -> Result<Opened, StoreError> {
    let opening = redis.run(&scripts::OPEN, namespace, |command| {
        charter_arguments(command, charter);
    });
    let mut reply = opening.await?;
    let (now, instance) = (reply.time()?, InstanceId(reply.int()?));
    let edition = Edition(reply.int()?);
    read_charter(&mut reply)?.check(namespace, charter)?;
    Ok(Opened {
        now,
        instance,
        edition,
    })
}

pub(super) async fn amend(
    redis: &Redis,
    namespace: &Namespace,
    charter: &Charter,
) -> Result<(), StoreError> {
    let amending = redis.run(&scripts::AMEND, namespace, |command| {
        charter_arguments(command, charter);
    });
    read_charter(&mut amending.await?)?.check_amendment(namespace, charter)
}
