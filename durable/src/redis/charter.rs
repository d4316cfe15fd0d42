//! The charter of a namespace.

use ::redis::Cmd;

use super::reply::Reply;
use super::scripts::Script;
use super::{Redis, scripts};
use crate::migrations::{Migration, SchemaVersion};
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
    let ask = || {
        redis.call(&scripts::OPEN, &namespace, |command| {
            charter_arguments(command, &charter);
        })
    };
    let mut reply = match ask().await {
        Err(StoreError::Schema {
            found, supported, ..
        }) if found < supported => {
            migrate(redis, &namespace, supported).await?;
            ask().await?
        }
        reply => reply?,
    };
    let (now, instance) = (reply.time()?, InstanceId(reply.int()?));
    let (edition, made) = (Edition(reply.int()?), Edition(reply.int()?));
    read_charter(&mut reply)?.check(&namespace, &charter)?;
    Ok(Opened {
        now,
        instance,
        edition,
        made,
    })
}

/// The version of the keys of a namespace, or 0 if it was not opened.
pub(super) async fn schema_version(
    redis: &Redis,
    namespace: &Namespace,
) -> Result<SchemaVersion, StoreError> {
    let asking = redis.call(&scripts::SCHEMA_VERSION, namespace, |_| {});
    let mut reply = asking.await?;
    if reply.is_empty() {
        return Ok(SchemaVersion::new(0, 0));
    }
    let mut number = || Ok::<_, StoreError>(u32::try_from(reply.count()?).unwrap_or(u32::MAX));
    Ok(SchemaVersion::new(number()?, number()?))
}

/// Takes the steps to a version. Each does nothing where another process has taken it meanwhile.
pub(super) async fn migrate(
    redis: &Redis,
    namespace: &Namespace,
    to: u32,
) -> Result<(), StoreError> {
    let SchemaVersion { version, .. } = schema_version(redis, namespace).await?;
    for step in Migration::steps(scripts::MIGRATIONS, version, to) {
        redis
            .call(&Script::migration(step), namespace, |_| {})
            .await?;
    }
    Ok(())
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
