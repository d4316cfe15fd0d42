//! Dead rows: apart from the others, so that these cost nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use super::Call;
use super::rows::done;
use crate::store::{
    AnswerSize, ChangedRows, DeadChange, DeadRows, StoreTime, Stored, Version, rules,
};

/// A step retries or discards at most this many rows.
const AT_ONCE: usize = 512;

/// When a row died, and its token.
type Place = (StoreTime, Version);

/// The dead rows of a namespace.
#[derive(Clone, Default)]
pub(super) struct Dead {
    rows: BTreeMap<Place, Stored>,
    places: HashMap<Version, Place>,
    by_key: HashMap<Vec<u8>, BTreeSet<Place>>,
}

impl Dead {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn put(&mut self, row: Stored) {
        let place = (row.due, row.version);
        self.places.insert(row.version, place);
        let of_key = self.by_key.entry(row.key.clone()).or_default();
        of_key.insert(place);
        self.rows.insert(place, row);
    }

    fn take(&mut self, place: Place) -> Option<Stored> {
        let row = self.rows.remove(&place)?;
        self.places.remove(&row.version);
        if let Some(of_key) = self.by_key.get_mut(&row.key) {
            of_key.remove(&place);
            if of_key.is_empty() {
                self.by_key.remove(&row.key);
            }
        }
        Some(row)
    }

    /// The row of a key that died last.
    pub(super) fn latest(&self, key: &[u8]) -> Option<&Stored> {
        let place = self.by_key.get(key)?.last()?;
        self.rows.get(place)
    }

    /// The rows of a key, from the one that died last on.
    pub(super) fn of(&self, key: &[u8]) -> impl Iterator<Item = &Stored> {
        let places = self.by_key.get(key).into_iter().flatten().rev();
        places.map(|place| &self.rows[place])
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Stored> {
        self.rows.values()
    }

    /// Takes all rows of a key.
    pub(super) fn discard(&mut self, key: &[u8]) {
        for place in self.by_key.get(key).cloned().unwrap_or_default() {
            self.take(place);
        }
    }

    /// Takes the first rows, whatever the clock says.
    pub(super) fn purge(&mut self) -> ChangedRows {
        let places = self.rows.keys().take(AT_ONCE).copied();
        let places: Vec<_> = places.collect();
        let purged = places.iter().filter_map(|&place| self.take(place)).count();
        ChangedRows::new(purged as u64, !self.rows.is_empty())
    }

    /// The first rows of a choice, and whether there are more.
    fn some(&self, which: &DeadRows, now: StoreTime) -> (Vec<Place>, bool) {
        let mut places: Vec<Place> = match which {
            DeadRows::Token(token) => self.places.get(token).copied().into_iter().collect(),
            DeadRows::Key(key) => {
                let of_key = self.by_key.get(key).into_iter().flatten();
                of_key.take(AT_ONCE + 1).copied().collect()
            }
            DeadRows::OlderThan(age) => {
                let until = (now.before(*age), Version(i64::MAX));
                let old = self.rows.range(..=until);
                old.take(AT_ONCE + 1).map(|(&place, _)| place).collect()
            }
        };
        let more = places.len() > AT_ONCE;
        places.truncate(AT_ONCE);
        (places, more)
    }

    /// A page of rows after a place.
    pub(super) fn list(&self, after: Option<Place>, limit: usize) -> Vec<Stored> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows.range((after, Bound::Unbounded)).take(limit);
        done(AnswerSize::page(rows.map(|(_, row)| Ok(row.clone()))))
    }
}

impl Call<'_> {
    pub(super) fn change_dead(&mut self, which: &DeadRows, change: DeadChange) -> ChangedRows {
        let (places, more) = self.space.dead.some(which, self.now);
        let mut rows = 0;
        for place in places {
            let Some(row) = self.space.dead.take(place) else {
                continue;
            };
            rows += 1;
            if change == DeadChange::Retry {
                done(rules::revive(self, row));
            }
        }
        ChangedRows::new(rows, more)
    }
}
