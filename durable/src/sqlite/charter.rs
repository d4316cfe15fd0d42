//! The charter of a namespace, and what each call compares with it.

use rusqlite::{Connection, OptionalExtension, Row};

use super::reading::{not_opened, now};
use super::rows::Call;
use super::schema::SCHEMA;
use super::thread::Batch;
use crate::store::{
    Charter, Edition, InstanceId, Namespace, Opened, StoreError, StoreTime, Version,
};

type Result<T> = rusqlite::Result<std::result::Result<T, StoreError>>;

/// The columns that [`read`] reads. An instance has not written all of them yet where the file was
/// upgraded.
pub(super) const COLUMNS: &str = "codec, no_overlap, at_most_once, parts";

/// A charter, from a column on. What no instance has written yet is as in the `default`.
pub(super) fn read(row: &Row<'_>, first: usize, default: &Charter) -> rusqlite::Result<Charter> {
    let mut charter = default.clone();
    charter.codec = row.get(first)?;
    if let Some(no_overlap) = row.get(first + 1)? {
        charter.no_overlap = no_overlap;
        charter.at_most_once = row.get(first + 2)?;
        charter.parts = row.get(first + 3)?;
    }
    Ok(charter)
}

/// The charter of a namespace.
fn find(connection: &Connection, namespace: &Namespace, default: &Charter) -> Result<Charter> {
    let sql = format!("SELECT {COLUMNS} FROM tickwheel_namespaces WHERE name = ?1");
    let mut select = connection.prepare_cached(&sql)?;
    let found = select.query_row([namespace.as_str()], |row| read(row, 0, default));
    Ok(found.optional()?.ok_or_else(|| not_opened(namespace)))
}

/// Writes a charter, under another edition.
fn write(batch: &Batch<'_>, namespace: &Namespace, charter: &Charter) -> rusqlite::Result<()> {
    let Charter {
        codec,
        no_overlap,
        at_most_once,
        parts,
    } = charter;
    let Version(edition) = batch.versions(1)?;
    let sql = "INSERT INTO tickwheel_namespaces (name, codec, no_overlap, at_most_once, parts, edition)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (name) DO UPDATE SET codec = ?2, no_overlap = ?3, at_most_once = ?4, parts = ?5, edition = ?6";
    let name = namespace.as_str();
    let mut write = batch.connection.prepare_cached(sql)?;
    write.execute((name, codec, no_overlap, at_most_once, parts, edition))?;
    Ok(())
}

/// Opens a namespace. The first instance writes what it has as the charter.
pub(super) fn open(batch: &Batch<'_>, namespace: &Namespace, charter: &Charter) -> Result<Opened> {
    if let Err(error) = super::schema::check(batch.connection)? {
        return Ok(Err(error));
    }
    let edition = || -> rusqlite::Result<i64> {
        let sql = "SELECT edition FROM tickwheel_namespaces WHERE name = ?1 AND edition > 0";
        let mut select = batch.connection.prepare_cached(sql)?;
        let edition = select.query_row([namespace.as_str()], |row| row.get(0));
        Ok(edition.optional()?.unwrap_or(0))
    };
    let found = find(batch.connection, namespace, charter)?;
    if let Err(error) = found.map_or(Ok(()), |stored| stored.check(namespace, charter)) {
        return Ok(Err(error));
    }
    if edition()? == 0 {
        write(batch, namespace, charter)?;
    }
    let Version(instance) = batch.versions(1)?;
    let (instance, edition) = (InstanceId(instance), Edition(edition()?));
    Ok(Ok(Opened::new(now(), instance, edition)))
}

/// Amends the charter.
pub(super) fn amend(call: &mut Call<'_>, namespace: &Namespace, next: &Charter) -> Result<()> {
    let stored = match find(call.batch.connection, namespace, next)? {
        Ok(stored) => stored,
        Err(error) => return Ok(Err(error)),
    };
    let sql = "SELECT EXISTS (SELECT 1 FROM tickwheel_timers WHERE namespace = ?1)
        OR EXISTS (SELECT 1 FROM tickwheel_dead WHERE namespace = ?1)";
    let mut select = call.batch.connection.prepare_cached(sql)?;
    let has_rows = select.query_row([call.namespace], |row| row.get(0))?;
    if let Err(error) = stored.check_amendment(namespace, next, has_rows) {
        return Ok(Err(error));
    }
    if stored != *next {
        write(call.batch, namespace, next)?;
    }
    Ok(Ok(()))
}

/// Whether a namespace has this codec, for a transaction of a user.
pub(super) fn check_codec(
    connection: &Connection,
    namespace: &Namespace,
    codec: &str,
) -> Result<()> {
    let found = find(connection, namespace, &Charter::new(codec))?;
    Ok(found.and_then(|stored| {
        let mut asked = stored.clone();
        codec.clone_into(&mut asked.codec);
        stored.check(namespace, &asked)
    }))
}

/// A namespace as a call finds it.
pub(super) struct Found {
    pub(super) id: i64,
    /// How many dead rows it has.
    pub(super) dead: i64,
    edition: i64,
}

impl Found {
    /// Whether a call may change anything under this charter and at this time.
    pub(super) fn check(
        &self,
        namespace: &Namespace,
        charter: Option<Edition>,
        until: StoreTime,
    ) -> std::result::Result<(), StoreError> {
        if charter.is_some_and(|Edition(edition)| edition != self.edition) {
            return Err(StoreError::amended(namespace));
        }
        let now = now();
        if now > until {
            return Err(StoreError::late(now));
        }
        Ok(())
    }
}

/// A namespace that was opened before, in tables of the schema that is known.
pub(super) fn namespace(connection: &Connection, name: &Namespace) -> Result<Found> {
    let sql = "SELECT id, dead, edition, (SELECT value FROM tickwheel_meta WHERE name = 'schema')
        FROM tickwheel_namespaces WHERE name = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let found = select.query_row([name.as_str()], |row| {
        let (id, dead, edition) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok((Found { id, dead, edition }, row.get::<_, u32>(3)?))
    });
    Ok(match found.optional()? {
        Some((found, SCHEMA)) => Ok(found),
        Some((_, schema)) => Err(StoreError::schema(schema, SCHEMA)),
        None => Err(not_opened(name)),
    })
}
