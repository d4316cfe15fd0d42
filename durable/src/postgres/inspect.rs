//! The reads of an operator: calls that run in the lane of looks.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::Postgres;
use super::charter::read_charter;
use super::lanes::{Call, Lane};
use super::numbers::{limit, time, unsigned};
use super::read::stored;
use super::session::Session;
use super::space::{NO_SPACE, Space};
use super::statements as sql;
use crate::store::{
    ANSWER_BYTES, Answer, Charter, Inspect, InstanceId, KeyPlace, MAX_DUE_COUNT, Namespace,
    PrefixRows, RowPage, State, StoreError, StoreTime, StoredInstance, StoredNamespace, key_page,
    prefix_end,
};

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Inspect for Postgres {
    fn namespaces(&self) -> Answer<'_, Vec<StoredNamespace>> {
        Box::pin(async move {
            let rows = self.ask(sql::NAMESPACES, &[]).await?;
            let each = rows.iter();
            let each =
                each.filter_map(|row| StoredNamespace::read(row.get(0), read_charter(row, 1)));
            Ok(each.collect())
        })
    }

    fn charter<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, Option<Charter>> {
        Box::pin(async move {
            let found = self.ask(sql::CHARTER, &[&namespace.as_str()]).await?;
            Ok(found.first().map(|row| read_charter(row, 0)))
        })
    }

    fn instances<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, Vec<StoredInstance>> {
        Box::pin(async move {
            let Space { id, .. } = &*self.space(namespace).await?;
            let rows = self.ask(sql::INSTANCES, &[id]).await?;
            let each = rows.iter().map(|row| {
                let mut instance = StoredInstance::new(InstanceId(row.get(0)), time(row.get(1)));
                (instance.lacks, instance.loaded) = (unsigned(row.get(2)), unsigned(row.get(3)));
                instance.name = row.get(4);
                instance
            });
            Ok(each.collect())
        })
    }

    fn rows_with_prefix<'a>(
        &'a self,
        namespace: &'a Namespace,
        request: PrefixRows,
    ) -> Answer<'a, RowPage> {
        Box::pin(async move {
            let Space { id, .. } = &*self.space(namespace).await?;
            let KeyPlace { key, died, version } = KeyPlace::start(&request)?;
            let statement = match request.state {
                State::Waiting => sql::PREFIX_WAITING,
                State::InFlight => sql::PREFIX_IN_FLIGHT,
                State::Dead => sql::PREFIX_DEAD,
            };
            let end = prefix_end(&request.prefix);
            let (rows, bytes) = (limit(request.limit), limit(ANSWER_BYTES));
            let parameters: Parameters<'_> = &[id, &end, &key, &died, &version, &rows, &bytes];
            let rows = self.ask(statement, parameters).await?;
            Ok(key_page(rows.iter().map(stored).collect()))
        })
    }

    fn count_due<'a>(
        &'a self,
        namespace: &'a Namespace,
        times: Vec<StoreTime>,
    ) -> Answer<'a, Vec<u64>> {
        Box::pin(async move {
            let Space { id, .. } = &*self.space(namespace).await?;
            let times: Vec<i64> = times.into_iter().map(StoreTime::as_micros).collect();
            let most = limit(MAX_DUE_COUNT);
            let rows = self.ask(sql::COUNT_DUE, &[id, &times, &most]).await?;
            Ok(rows.iter().map(|row| unsigned(row.get(0))).collect())
        })
    }
}

impl Postgres {
    async fn ask(
        &self,
        statement: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let call = Look {
            statement,
            parameters,
        };
        self.lanes().run(&NO_SPACE, &call).await
    }
}

/// A statement that reads.
struct Look<'a> {
    statement: &'static str,
    parameters: Parameters<'a>,
}

impl Call for Look<'_> {
    type Answer = Vec<Row>;

    const LANE: Option<Lane> = Some(Lane::Admin);

    async fn run(&self, session: &Session, _: &Space) -> Result<Vec<Row>, Error> {
        session.query(self.statement, self.parameters).await
    }
}
