//! The reads of an operator: looks, on the connection that only reads.

use rusqlite::{Connection, params};

use super::reading::{COLUMNS, loaders, number, read, time};
use super::{Sqlite, charter};
use crate::store::{
    Answer, AnswerSize, Charter, Inspect, InstanceId, KeyPlace, MAX_DUE_COUNT, Namespace,
    PrefixRows, RowPage, State, StoreTime, Stored, StoredInstance, StoredNamespace, key_page,
    prefix_end,
};

type Result<T> = rusqlite::Result<T>;

impl Inspect for Sqlite {
    fn namespaces(&self) -> Answer<'_, Vec<StoredNamespace>> {
        self.looks.ask(|connection| {
            let columns = charter::COLUMNS;
            let sql = format!("SELECT name, {columns} FROM tickwheel_namespaces ORDER BY name");
            let mut select = connection.prepare_cached(&sql)?;
            let each = select.query_map((), |row| {
                let name: String = row.get(0)?;
                let charter = charter::read(row, 1)?;
                Ok(StoredNamespace::read(&name, charter))
            })?;
            let namespaces: Result<Vec<_>> = each.collect();
            Ok(Ok(namespaces?.into_iter().flatten().collect()))
        })
    }

    fn charter(&self, namespace: &Namespace) -> Answer<'_, Option<Charter>> {
        let name = namespace.clone();
        self.looks.ask(move |connection| {
            let found = charter::find(connection, &name)?;
            Ok(Ok(found.map(|(charter, _)| charter)))
        })
    }

    fn instances(&self, namespace: &Namespace) -> Answer<'_, Vec<StoredInstance>> {
        self.look(namespace, instances)
    }

    fn rows_with_prefix(&self, namespace: &Namespace, request: PrefixRows) -> Answer<'_, RowPage> {
        let after = match KeyPlace::start(&request) {
            Ok(after) => after,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        self.look(namespace, move |connection, namespace| {
            rows_with_prefix(connection, namespace, &request, &after).map(key_page)
        })
    }

    fn count_due(&self, namespace: &Namespace, times: Vec<StoreTime>) -> Answer<'_, Vec<u64>> {
        self.look(namespace, move |connection, namespace| {
            count_due(connection, namespace, &times)
        })
    }
}

fn instances(connection: &Connection, namespace: i64) -> Result<Vec<StoredInstance>> {
    let sql = "SELECT id, alive_until, lacks, (
            SELECT count(*) FROM tickwheel_timers t
            WHERE t.namespace = i.namespace AND t.state IN (0, 1) AND t.loaded_by = i.id
        ), name FROM tickwheel_instances i WHERE namespace = ?1 AND id > 0 ORDER BY id";
    let mut select = connection.prepare_cached(sql)?;
    let each = select.query_map([namespace], |row| {
        let mut instance = StoredInstance::new(InstanceId(row.get(0)?), time(row, 1)?);
        instance.lacks = unsigned(row.get(2)?);
        instance.loaded = unsigned(row.get(3)?);
        instance.name = row.get(4)?;
        Ok(instance)
    })?;
    each.collect()
}

/// Each index by key has the rows of a prefix side by side, and those of a key by version. One
/// search finds the rest of the key of the place, and another the keys after it: SQLite looks for
/// no pair of key and version.
fn rows_with_prefix(
    connection: &Connection,
    namespace: i64,
    request: &PrefixRows,
    after: &KeyPlace,
) -> Result<Vec<Stored>> {
    let state = request.state as i64;
    let rows = format!("SELECT {COLUMNS} WHERE namespace = ?1 AND state = {state} AND key < ?2");
    let sql = format!(
        "{rows} AND key = ?3 AND version > ?4 UNION ALL {rows} AND key > ?3
        ORDER BY key, version LIMIT ?5"
    );
    let (end, limit) = (prefix_end(&request.prefix), number(request.limit));
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(
        params![namespace, end, after.key, after.version, limit],
        read,
    )?;
    AnswerSize::page(rows)
}

fn count_due(connection: &Connection, namespace: i64, times: &[StoreTime]) -> Result<Vec<u64>> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM tickwheel_timers
        WHERE namespace = ?1 AND state = ?2 AND loaded_by IS ?3 AND due >= ?4 AND due < ?5 LIMIT ?6)";
    let mut select = connection.prepare_cached(sql)?;
    let loaders = loaders(connection, namespace)?;
    let state = State::Waiting as i64;
    let limit = number(MAX_DUE_COUNT);
    let counts = times.windows(2).map(|span| {
        let (from, until) = (span[0].as_micros(), span[1].as_micros());
        let mut rows = 0;
        for loader in &loaders {
            let parameters = (namespace, state, *loader, from, until, limit);
            let counted: i64 = select.query_row(parameters, |row| row.get(0))?;
            rows += unsigned(counted);
        }
        Ok(rows)
    });
    counts.collect()
}

fn unsigned(number: i64) -> u64 {
    number.unsigned_abs()
}
