//! The rows as the [rules](crate::store::rules) of the stores see them.

use std::convert::Infallible;

use super::Call;
use crate::store::rules::Rows;
use crate::store::{InstanceId, Scheduled, Schedules, State, StoreTime, Stored, Version};

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

    fn waiting(&mut self, key: &[u8]) -> Result<Option<Stored>> {
        let version = self.space.waiting.get(key);
        Ok(version.map(|version| self.space.rows[version].clone()))
    }

    fn in_flight(&mut self, key: &[u8]) -> Result<Option<Stored>> {
        let tokens = self.space.in_flight.get(key);
        let latest = tokens.and_then(|tokens| tokens.last());
        Ok(latest.map(|token| self.space.rows[token].clone()))
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

    fn bury(&mut self, mut row: Stored) -> Result<()> {
        (row.state, row.due) = (State::Dead, self.now);
        (row.loaded_by, row.claimed_by) = (None, None);
        self.space.dead.put(row);
        Ok(())
    }

    fn dead(&mut self, key: &[u8]) -> Result<Option<Stored>> {
        Ok(self.space.dead.latest(key).cloned())
    }

    fn discard(&mut self, key: &[u8]) -> Result<()> {
        self.space.dead.discard(key);
        Ok(())
    }

    fn lives(&mut self, instance: InstanceId) -> Result<bool> {
        let alive = self.space.alive.get(&instance);
        Ok(alive.is_some_and(|&until| until >= self.now))
    }

    fn keep_alive(&mut self, instance: InstanceId, until: StoreTime) -> Result<()> {
        self.space.alive.insert(instance, until);
        Ok(())
    }

    fn keep_name(&mut self, instance: InstanceId, name: &str) -> Result<()> {
        self.space.names.insert(instance, name.to_owned());
        Ok(())
    }

    fn unload_dead(&mut self) -> Result<()> {
        let dead = self.space.alive.iter();
        let dead = dead.filter(|&(_, &until)| until < self.now);
        for instance in dead.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.unload(instance);
        }
        Ok(())
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
        if !self.space.alive.keys().any(others) {
            return Ok(Vec::new());
        }
        let rows = self.space.rows.values();
        let left = rows
            .filter(|row| row.due <= self.now && row.loaded_by.as_ref().is_some_and(others))
            .map(|row| (row.version, row.due));
        Ok(left.take(at_most.saturating_add(1)).collect())
    }

    fn mark(&mut self, version: Version, instance: InstanceId) -> Result<Option<Scheduled>> {
        let row = self.space.rows.get_mut(&version).expect("it is stored");
        row.loaded_by = Some(instance);
        self.space.unloaded.remove(&(row.due, version));
        Ok(row.scheduled(true))
    }

    fn lack(&mut self, instance: InstanceId, rows: usize) -> Result<usize> {
        self.space.lacks.insert(instance, rows);
        let others = self.space.lacks.iter().filter(|(id, _)| **id != instance);
        Ok(others.map(|(_, lacks)| lacks).sum())
    }
}
