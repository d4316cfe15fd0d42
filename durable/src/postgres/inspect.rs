//! The reads of an operator: calls that run in the lane of looks.

use super::Postgres;
use super::charter::read_charter;
use super::numbers::{limit, time, unsigned};
use super::read::stored;
use super::session::Parameters;
use super::space::Space;
use super::statements as sql;
use crate::store::{
    ANSWER_BYTES, Answer, Charter, Inspect, InstanceId, KeyPlace, MAX_DUE_COUNT, Namespace,
    PrefixRows, RowPage, State, StoreTime, StoredInstance, StoredNamespace, key_page, prefix_end,
};

impl Inspect for Postgres {
    fn namespaces(&self) -> Answer<'_, Vec<StoredNamespace>> {
        Box::pin(async move {
            let rows = self.look(sql::NAMESPACES, &[]).await?;
            let each = rows.iter();
            let each =
                each.filter_map(|row| StoredNamespace::read(row.get(0), read_charter(row, 1)));
            Ok(each.collect())
        })
    }

    fn charter(&self, namespace: &Namespace) -> Answer<'_, Option<Charter>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let found = self.look(sql::CHARTER, &[&namespace.as_str()]).await?;
            Ok(found.first().map(|row| read_charter(row, 0)))
        })
    }

    fn instances(&self, namespace: &Namespace) -> Answer<'_, Vec<StoredInstance>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let Space { id, .. } = &*self.space(&namespace).await?;
            let rows = self.look(sql::INSTANCES, &[id]).await?;
            let each = rows.iter().map(|row| {
                let mut instance = StoredInstance::new(InstanceId(row.get(0)), time(row.get(1)));
                (instance.lacks, instance.loaded) = (unsigned(row.get(2)), unsigned(row.get(3)));
                instance.name = row.get(4);
                instance
            });
            Ok(each.collect())
        })
    }

    fn rows_with_prefix(&self, namespace: &Namespace, request: PrefixRows) -> Answer<'_, RowPage> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let Space { id, .. } = &*self.space(&namespace).await?;
            let KeyPlace { key, version } = KeyPlace::start(&request)?;
            let statement = match request.state {
                State::Waiting => sql::PREFIX_WAITING,
                State::InFlight => sql::PREFIX_IN_FLIGHT,
                State::Dead => sql::PREFIX_DEAD,
            };
            let end = prefix_end(&request.prefix);
            let (rows, bytes) = (limit(request.limit), limit(ANSWER_BYTES));
            let parameters: &Parameters<'_> = &[id, &end, &key, &version, &rows, &bytes];
            let rows = self.look(statement, parameters).await?;
            Ok(key_page(rows.iter().map(stored).collect()))
        })
    }

    fn count_due(&self, namespace: &Namespace, times: Vec<StoreTime>) -> Answer<'_, Vec<u64>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let Space { id, .. } = &*self.space(&namespace).await?;
            let times: Vec<i64> = times.into_iter().map(StoreTime::as_micros).collect();
            let most = limit(MAX_DUE_COUNT);
            let rows = self.look(sql::COUNT_DUE, &[id, &times, &most]).await?;
            Ok(rows.iter().map(|row| unsigned(row.get(0))).collect())
        })
    }
}
