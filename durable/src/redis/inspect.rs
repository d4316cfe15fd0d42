//! The reads of an operator.

use super::arguments::limit_argument;
use super::charter::read_charter;
use super::connection::Link;
use super::keys::key_of;
use super::read::{LISTED_AT_ONCE, read_row, state_argument};
use super::reply::Reply;
use super::{Redis, scripts};
use crate::store::{
    Answer, Charter, Inspect, InstanceId, MAX_DUE_COUNT, Namespace, PrefixCursor, PrefixRows,
    RowPage, StoreError, StoreTime, StoredInstance, StoredNamespace,
};

/// How many keys of the server one step looks at, to find namespaces.
const KEYS_AT_ONCE: u32 = 1_000;

impl Inspect for Redis {
    fn namespaces(&self) -> Answer<'_, Vec<StoredNamespace>> {
        Box::pin(async move {
            let mut namespaces = Vec::new();
            for server in self.checked(self.connection.to_each().await)? {
                for name in self.names(&server).await? {
                    let mut command = ::redis::cmd("HMGET");
                    command.arg(key_of(&name)).arg("codec");
                    command.arg("no_overlap").arg("at_most_once").arg("parts");
                    let fields = self.checked(server.ask(&command).await)?;
                    // It may have gone meanwhile, or be of another schema.
                    if let Ok(charter) = read_charter(&mut Reply::new(fields)?) {
                        namespaces.push(StoredNamespace { name, charter });
                    }
                }
            }
            namespaces.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
            namespaces.dedup_by(|a, b| a.name == b.name);
            Ok(namespaces)
        })
    }

    fn charter(&self, namespace: &Namespace) -> Answer<'_, Option<Charter>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let asking = self.call(&scripts::CHARTER, &namespace, |_| {});
            let mut reply = asking.await?;
            (!reply.is_empty())
                .then(|| read_charter(&mut reply))
                .transpose()
        })
    }

    fn instances(&self, namespace: &Namespace) -> Answer<'_, Vec<StoredInstance>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let asking = self.call(&scripts::INSTANCES, &namespace, |_| {});
            let mut instances = asking.await?.all(|reply| {
                let mut instance = StoredInstance::new(InstanceId(reply.int()?), reply.time()?);
                (instance.loaded, instance.lacks) = (reply.count()?, reply.count()?);
                let name = String::from_utf8(reply.bytes()?).unwrap_or_default();
                instance.name = (!name.is_empty()).then_some(name);
                Ok(instance)
            })?;
            instances.sort_by_key(|instance| instance.id);
            Ok(instances)
        })
    }

    fn rows_with_prefix(&self, namespace: &Namespace, request: PrefixRows) -> Answer<'_, RowPage> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let PrefixRows {
                state,
                prefix,
                after,
                limit,
            } = request;
            if limit == 0 {
                return Ok(RowPage::default());
            }
            // The script says what a cursor is.
            let after = after.map_or(b"1 0  ".to_vec(), |PrefixCursor(after)| after);
            let asking = self.call(&scripts::PREFIX, &namespace, |command| {
                command
                    .arg(state_argument(state))
                    .arg(limit_argument(limit.min(LISTED_AT_ONCE)))
                    .arg(&prefix)
                    .arg(&after);
            });
            let mut reply: Reply = asking.await?;
            let next = Some(reply.bytes()?).filter(|cursor| cursor != b"");
            Ok(RowPage {
                next: next.map(PrefixCursor),
                rows: reply.all(read_row)?,
            })
        })
    }

    fn count_due(&self, namespace: &Namespace, times: Vec<StoreTime>) -> Answer<'_, Vec<u64>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let counting = self.call(&scripts::COUNT_DUE, &namespace, |command| {
                command.arg(MAX_DUE_COUNT);
                for time in &times {
                    command.arg(time.as_micros());
                }
            });
            counting.await?.all(Reply::count)
        })
    }
}

impl Redis {
    /// The names of the namespaces of a server, which is asked for its keys step by step. It may
    /// name one twice.
    async fn names(&self, server: &Link) -> Result<Vec<Namespace>, StoreError> {
        let mut names: Vec<Namespace> = Vec::new();
        let mut cursor = b"0".to_vec();
        loop {
            let mut command = ::redis::cmd("SCAN");
            command.arg(&cursor).arg("MATCH").arg("tickwheel:{*}");
            command.arg("COUNT").arg(KEYS_AT_ONCE);
            let mut reply = Reply::new(self.checked(server.ask(&command).await)?)?;
            cursor = reply.bytes()?;
            let keys = reply.array()?.all(Reply::bytes)?;
            let keys = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
            let found = keys.filter_map(|key| key.strip_prefix("tickwheel:{")?.strip_suffix('}'));
            names.extend(found.filter_map(|name| Namespace::new(name).ok()));
            if cursor == b"0" {
                return Ok(names);
            }
        }
    }
}
