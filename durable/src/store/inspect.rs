//! The reads of an operator, beside the calls of instances.

use super::answers::Stored;
use super::charter::Charter;
use super::ids::{InstanceId, Namespace};
use super::requests::State;
use super::time::StoreTime;
use super::{Answer, StoreError};

/// The reads of an operator: namespaces, instances, and rows by the beginning of their keys.
///
/// Every store has it, and as a rule returns itself from [`Store::inspect`](super::Store::inspect).
/// No call changes anything or opens a namespace, and each is a *look*: it delays no other call by
/// more than a few milliseconds, however many rows there are. See rule 3 of [the
/// contract](super#the-contract).
pub trait Inspect: Send + Sync {
    /// The namespaces that were opened, by name.
    fn namespaces(&self) -> Answer<'_, Vec<StoredNamespace>>;

    /// The charter of a namespace; `None` if it was not opened.
    fn charter(&self, namespace: &Namespace) -> Answer<'_, Option<Charter>>;

    /// The instances of a namespace, by id: those that count as living, and those whose time has
    /// run out and whose rows no other instance has unloaded yet.
    fn instances(&self, namespace: &Namespace) -> Answer<'_, Vec<StoredInstance>>;

    /// A page of the rows in one state with keys that begin with some bytes. Follow
    /// [`RowPage::next`] until it is `None`.
    ///
    /// Each row that is there from the first page to the last is listed. One that changes meanwhile
    /// may be listed twice, or not.
    fn rows_with_prefix(&self, namespace: &Namespace, request: PrefixRows) -> Answer<'_, RowPage>;

    /// How many rows wait whose `due` lies between each of these times and the next, the first of
    /// both included: none if the next one is earlier. So there is one number less than times. A
    /// number is at most [`MAX_DUE_COUNT`] for each living instance and once more: so many are
    /// counted.
    fn count_due(&self, namespace: &Namespace, times: Vec<StoreTime>) -> Answer<'_, Vec<u64>>;
}

/// [`Admin::all_of`](crate::Admin::all_of) returns at most so many timers in each state.
pub const MAX_KEY_ROWS: usize = 100;

/// [`Inspect::count_due`] stops counting at so many rows.
pub const MAX_DUE_COUNT: usize = 10_000;

/// A namespace of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredNamespace {
    /// Its name.
    pub name: Namespace,
    /// What its instances agree on.
    pub charter: Charter,
}

impl StoredNamespace {
    /// From names that a store has read. Those that are no names were not opened by this crate.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn read(name: &str, charter: Charter) -> Option<Self> {
        let name = Namespace::new(name).ok()?;
        Some(StoredNamespace { name, charter })
    }
}

/// An instance, as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredInstance {
    /// The id that it loads timers under now.
    pub id: InstanceId,
    /// Until when the id counts as living, unless it loads again.
    pub alive_until: StoreTime,
    /// How many timers it has loaded.
    pub loaded: u64,
    /// How many due timers it would load if it had room for them.
    pub lacks: u64,
    /// The [name](crate::Builder::name) that its program gave it.
    pub name: Option<String>,
}

/// For a [store](crate::store) of your own. Like that module, it may change in any version.
impl StoredInstance {
    /// An instance without a name that has loaded nothing and lacks nothing.
    pub fn new(id: InstanceId, alive_until: StoreTime) -> Self {
        StoredInstance {
            id,
            alive_until,
            loaded: 0,
            lacks: 0,
            name: None,
        }
    }
}

/// Asks for rows with keys that begin with some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixRows {
    /// In this state.
    pub state: State,
    /// The first bytes of their encoded keys.
    pub prefix: Vec<u8>,
    /// After that page.
    pub after: Option<PrefixCursor>,
    /// At most this many.
    pub limit: usize,
}

impl PrefixRows {
    /// Asks for the first page.
    pub fn new(state: State, prefix: Vec<u8>, limit: usize) -> Self {
        PrefixRows {
            state,
            prefix,
            after: None,
            limit,
        }
    }
}

/// The end of a page, which means something to its store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixCursor(pub Vec<u8>);

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowPage {
    /// Its rows. There may be none although others follow.
    pub rows: Vec<Stored>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<PrefixCursor>,
}

/// A row's place in the order by key, then by version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyPlace {
    pub(crate) key: Vec<u8>,
    pub(crate) version: i64,
}

impl KeyPlace {
    /// Where a list of rows with this prefix begins: before all of them.
    pub(crate) fn start(request: &PrefixRows) -> Result<Self, StoreError> {
        let Some(PrefixCursor(cursor)) = &request.after else {
            return Ok(KeyPlace {
                key: request.prefix.clone(),
                version: -1,
            });
        };
        let place = || {
            let (version, key) = cursor.split_first_chunk()?;
            Some(KeyPlace {
                key: key.to_vec(),
                version: i64::from_be_bytes(*version),
            })
        };
        place().ok_or_else(|| {
            StoreError::refused(format_args!(
                "the cursor has {} bytes, and needs 8 at least",
                cursor.len()
            ))
        })
    }

    pub(crate) fn of(row: &Stored) -> Self {
        KeyPlace {
            key: row.key.clone(),
            version: row.version.0,
        }
    }

    pub(crate) fn cursor(&self) -> PrefixCursor {
        let mut cursor = self.version.to_be_bytes().to_vec();
        cursor.extend(&self.key);
        PrefixCursor(cursor)
    }
}

/// Keys have at most half as many bytes.
const LONGER_THAN_KEYS: usize = 2048;

/// The first key after all that begin with the prefix.
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![u8::MAX; LONGER_THAN_KEYS]
}

/// A page of rows that are in the order by key. The page after the last one is empty.
pub(crate) fn key_page(rows: Vec<Stored>) -> RowPage {
    let next = rows.last().map(|row| KeyPlace::of(row).cursor());
    RowPage { rows, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ends_before_the_next_key() {
        assert_eq!(prefix_end(b"ab"), b"ac");
        assert_eq!(prefix_end(b"a\xff\xff"), b"b");
        assert!(prefix_end(b"\xff") > vec![u8::MAX; 1024]);
        assert_eq!(prefix_end(b""), prefix_end(b"\xff"));
    }

    #[test]
    fn place_survives_its_cursor() {
        let place = KeyPlace {
            key: b"order 17".to_vec(),
            version: 1 << 40,
        };
        let mut request = PrefixRows::new(State::Dead, b"order".to_vec(), 10);
        request.after = Some(place.cursor());
        assert_eq!(KeyPlace::start(&request), Ok(place));
        request.after = Some(PrefixCursor(vec![0; 7]));
        let error = KeyPlace::start(&request).expect_err("it is too short");
        assert!(error.to_string().contains("7 bytes"), "{error}");
    }
}
