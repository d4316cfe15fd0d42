//! The charter of a namespace, and what each call compares with it.

use rusqlite::{Connection, OptionalExtension, Row};

use super::reading::now;
use super::schema::{SCHEMA, is_missing};
use super::thread::Batch;
use crate::migrations::SchemaVersion;
use crate::store::{Charter, Edition, InstanceId, Namespace, Opened, StoreError, Version};

type Result<T> = rusqlite::Result<std::result::Result<T, StoreError>>;

/// The columns that [`read`] reads.
pub(super) const COLUMNS: &str = "codec, no_overlap, at_most_once, parts";

/// A charter, from a column on.
pub(super) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Charter> {
    let mut charter = Charter::new(row.get::<_, String>(first)?);
    charter.no_overlap = row.get(first + 1)?;
    charter.at_most_once = row.get(first + 2)?;
    charter.parts = row.get(first + 3)?;
    Ok(charter)
}

/// The charter of a namespace, its edition, and its first edition.
pub(super) fn find(
    connection: &Connection,
    namespace: &Namespace,
) -> rusqlite::Result<Option<(Charter, [Edition; 2])>> {
    let sql = format!("SELECT {COLUMNS}, edition, made FROM tickwheel_namespaces WHERE name = ?1");
    let mut select = connection.prepare_cached(&sql)?;
    let found = select.query_row([namespace.as_str()], |row| {
        let editions = [Edition(row.get(4)?), Edition(row.get(5)?)];
        Ok((read(row, 0)?, editions))
    });
    found.optional()
}

/// Writes a charter, under another edition.
fn write(batch: &Batch<'_>, namespace: &Namespace, charter: &Charter) -> rusqlite::Result<Edition> {
    let Charter {
        codec,
        no_overlap,
        at_most_once,
        parts,
    } = charter;
    let Version(edition) = batch.versions(1)?;
    let sql =
        "INSERT INTO tickwheel_namespaces (name, codec, no_overlap, at_most_once, parts, made, edition)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)
        ON CONFLICT (name) DO UPDATE SET no_overlap = ?3, at_most_once = ?4, edition = ?6";
    let name = namespace.as_str();
    let mut write = batch.connection.prepare_cached(sql)?;
    write.execute((name, codec, no_overlap, at_most_once, parts, edition))?;
    Ok(Edition(edition))
}

/// Opens a namespace. The first instance writes what it has as the charter.
pub(super) fn open(batch: &Batch<'_>, namespace: &Namespace, charter: &Charter) -> Result<Opened> {
    // The file may have been emptied while it was open.
    super::schema::make(batch.connection)?;
    if let Err(error) = super::schema::check(batch.connection)? {
        return Ok(Err(error));
    }
    let found = find(batch.connection, namespace)?;
    let [edition, made] = match found {
        Some((stored, editions)) => {
            if let Err(error) = stored.check(namespace, charter) {
                return Ok(Err(error));
            }
            editions
        }
        None => [write(batch, namespace, charter)?; 2],
    };
    let Version(instance) = batch.versions(1)?;
    #[cfg(tickwheel_next_schema)]
    batch.connection.execute(
        "INSERT INTO tickwheel_openings (instance) VALUES (?1)",
        [instance],
    )?;
    Ok(Ok(Opened {
        now: now(),
        instance: InstanceId(instance),
        edition,
        made,
    }))
}

/// Amends the charter.
pub(super) fn amend(batch: &Batch<'_>, namespace: &Namespace, next: &Charter) -> Result<()> {
    let Some((stored, _)) = find(batch.connection, namespace)? else {
        return Ok(Err(StoreError::not_opened(namespace)));
    };
    if let Err(error) = stored.check_amendment(namespace, next) {
        return Ok(Err(error));
    }
    if stored != *next {
        write(batch, namespace, next)?;
    }
    Ok(Ok(()))
}

/// Whether a namespace has this codec, for a transaction of a user.
pub(super) fn check_codec(
    connection: &Connection,
    namespace: &Namespace,
    codec: &str,
) -> Result<()> {
    Ok(match find(connection, namespace)? {
        Some((stored, _)) => {
            let mut asked = stored.clone();
            codec.clone_into(&mut asked.codec);
            stored.check(namespace, &asked)
        }
        None => Err(StoreError::not_opened(namespace)),
    })
}

/// A namespace as a call finds it.
pub(super) struct Found {
    pub(super) id: i64,
    /// How many dead rows it has.
    pub(super) dead: i64,
    pub(super) edition: Edition,
    pub(super) schema: SchemaVersion,
}

impl Found {
    /// Whether the tables can be used: a settle or an unload does not ask.
    pub(super) fn check_schema(self) -> std::result::Result<Self, StoreError> {
        self.schema.check(SCHEMA).map(|()| self)
    }
}

/// A namespace that was opened before.
pub(super) fn namespace(connection: &Connection, name: &Namespace) -> Result<Found> {
    let sql = "SELECT id, dead, edition, (SELECT value FROM tickwheel_meta WHERE name = 'schema'),
            (SELECT value FROM tickwheel_meta WHERE name = 'readable_by')
        FROM tickwheel_namespaces WHERE name = ?1";
    let read = |row: &Row<'_>| {
        Ok(Found {
            id: row.get(0)?,
            dead: row.get(1)?,
            edition: Edition(row.get(2)?),
            schema: SchemaVersion::new(
                row.get::<_, Option<_>>(3)?.unwrap_or(0),
                row.get::<_, Option<_>>(4)?.unwrap_or(0),
            ),
        })
    };
    let select = connection.prepare_cached(sql);
    let found = match select.and_then(|mut select| select.query_row([name.as_str()], read)) {
        Err(error) if is_missing(&error) => None,
        found => found.optional()?,
    };
    // Without a version the tables were emptied.
    let found = found.filter(|found| found.schema.version > 0);
    Ok(found.ok_or_else(|| StoreError::not_opened(name)))
}
