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
    let mut text = || Ok::<_, StoreError>(String::from_utf8_lossy(&reply.bytes()?).into_owned());
    let mut charter = Charter::new(text()?);
    charter.no_overlap = text()? == "1";
    charter.at_most_once = text()? == "1";
    charter.parts = text()?.parse().unwrap_or(0);
    Ok(charter)
}

pub(super) async fn open(
    redis: &Redis,
    namespace: Namespace,
    charter: Charter,
) -> Result<Opened, StoreError> {
    let opening = redis.call(&scripts::OPEN, &namespace, |command| {
        charter_arguments(command, &charter);
    });
    let mut reply = opening.await?;
    let (now, instance) = (reply.time()?, InstanceId(reply.int()?));
    let (edition, is_new) = (Edition(reply.int()?), reply.flag()?);
    read_charter(&mut reply)?.check(&namespace, &charter)?;
    Ok(Opened {
        now,
        instance,
        edition,
        is_new,
    })
}

pub(super) async fn amend(
    redis: &Redis,
    namespace: Namespace,
    charter: Charter,
) -> Result<(), StoreError> {
    let amending = redis.call(&scripts::AMEND, &namespace, |command| {
        charter_arguments(command, &charter);
    });
    read_charter(&mut amending.await?)?.check_amendment(&namespace, &charter)
}
