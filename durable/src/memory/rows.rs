//! The rows as the [rules](crate::store::rules) of the stores see them.

use std::convert::Infallible;

use super::Call;
use crate::store::rules::Rows;
use crate::store::{
    DeadRows, InstanceId, Scheduled, Schedules, State, StoreTime, Stored, StoredInstance, Version,
};

type Result<T> = std::result::Result<T, Infallible>;

/// What a call that cannot fail returned.
pub(super) fn done<T>(result: Result<T>) -> T {
    let Ok(done) = result;
    done
}

impl Rows for Call<'_> {
    type Error = Infallible;

    fn now(&self) -> StoreTime {
        self.now
    }

    fn next_version(&mut self) -> Result<Version> {
        *self.sequence = (*self.sequence + 1).max(self.now.as_micros());
        Ok(Version(*self.sequence))
    }

    fn hint(&mut self) {
        self.space.hint.notify_waiters();
    }

    fn latest(&mut self, state: State, key: &[u8]) -> Result<Option<Stored>> {
        Ok(self.of_key(state, key).next().cloned())
    }

    fn row(&mut self, version: Version) -> Result<Option<(Stored, Option<String>)>> {
        let row = self.space.rows.get(&version).cloned();
        Ok(row.map(|row| (row, None)))
    }

    fn insert(&mut self, row: &Stored) -> Result<()> {
        self.put(row.clone());
        Ok(())
    }

    fn update(&mut self, old: (Version, State), row: &Stored) -> Result<()> {
        self.delete(old)?;
        self.insert(row)
    }

    fn delete(&mut self, (version, _): (Version, State)) -> Result<()> {
        self.take(version);
        Ok(())
    }

    fn ack(&mut self, token: Version) -> Result<bool> {
        let row = self.space.rows.get(&token);
        if row.is_none_or(|row| row.state != State::InFlight) {
            return Ok(false);
        }
        Ok(self.take(token).is_some())
    }

    fn some_dead(&mut self, which: &DeadRows, at_most: usize) -> Result<Vec<Version>> {
        Ok(match which {
            DeadRows::Token(token) => {
                let row = self.space.rows.get(token);
                let dead = row.filter(|row| row.state == State::Dead);
                dead.map(|row| row.version).into_iter().collect()
            }
            DeadRows::Key(key) => {
                let dead = self.of_key(State::Dead, key).rev().take(at_most);
                dead.map(|row| row.version).collect()
            }
            DeadRows::Until(time) => {
                let first = (State::Dead, StoreTime::default(), Version(0));
                let last = (State::Dead, *time, Version(i64::MAX));
                let dead = self.space.by_due.range(first..=last).take(at_most);
                dead.map(|&(.., version)| version).collect()
            }
        })
    }

    fn keep_dead(&mut self, key: &[u8], most: usize) -> Result<usize> {
        let dead = self.of_key(State::Dead, key).skip(most);
        let dead: Vec<_> = dead.map(|row| row.version).collect();
        for &version in &dead {
            self.take(version);
        }
        Ok(dead.len())
    }

    fn lives(&mut self, instance: InstanceId) -> Result<bool> {
        let instance = self.space.instances.get(&instance);
        Ok(instance.is_some_and(|instance| instance.alive_until >= self.now))
    }

    fn keep_alive(&mut self, id: InstanceId, until: StoreTime, name: Option<&str>) -> Result<()> {
        let new = || StoredInstance {
            name: name.map(str::to_owned),
            ..StoredInstance::new(id, until)
        };
        let instance = self.space.instances.entry(id).or_insert_with(new);
        instance.alive_until = until;
        Ok(())
    }

    fn unload_dead(&mut self) -> Result<bool> {
        let dead = self.space.instances.values();
        let dead = dead.filter(|instance| instance.alive_until < self.now);
        for instance in dead.map(|instance| instance.id).collect::<Vec<_>>() {
            self.unload(instance);
        }
        Ok(false)
    }

    fn unloaded(
        &mut self,
        until: StoreTime,
        at_most: usize,
        schedules: &Schedules,
    ) -> Result<Vec<(Version, StoreTime)>> {
        let near = self.space.unloaded.range(..=(until, Version(i64::MAX)));
        let loadable = near.filter(|(due, version)| {
            let row = &self.space.rows[version];
            let is_near = *due <= self.now || row.state == State::Waiting;
            is_near && schedules.include(row.schedule.as_deref())
        });
        let loadable = loadable.map(|&(due, version)| (version, due));
        Ok(loadable.take(at_most.saturating_add(1)).collect())
    }

    fn left_by_others(
        &mut self,
        instance: InstanceId,
        at_most: usize,
    ) -> Result<Vec<(Version, StoreTime)>> {
        let others = |id: &InstanceId| id.is_left() && *id != instance.left();
        if !self.space.instances.keys().any(others) {
            return Ok(Vec::new());
        }
        let rows = self.space.rows.values();
        let left = rows
            .filter(|row| row.due <= self.now && row.loaded_by.as_ref().is_some_and(others))
            .map(|row| (row.version, row.due));
        let mut left: Vec<_> = left.collect();
        left.sort_unstable_by_key(|&(version, due)| (due, version));
        left.truncate(at_most.saturating_add(1));
        Ok(left)
    }

    fn mark(&mut self, version: Version, instance: InstanceId) -> Result<Option<Scheduled>> {
        let row = self.space.rows.get_mut(&version).expect("it is stored");
        row.loaded_by = Some(instance);
        self.space.unloaded.remove(&(row.due, version));
        Ok(row.scheduled())
    }

    fn lack(&mut self, instance: InstanceId, rows: usize) -> Result<usize> {
        let mut others = 0;
        for (id, stored) in &mut self.space.instances {
            if *id == instance {
                stored.lacks = rows as u64;
            } else {
                others += stored.lacks;
            }
        }
        Ok(usize::try_from(others).unwrap_or(usize::MAX))
    }
}
