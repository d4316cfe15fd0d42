//! The reads of an operator.

use std::future::ready;

use super::rows::done;
use super::{Call, Memory};
use crate::store::{
    Answer, AnswerSize, Charter, Inspect, InstanceId, KeyPlace, MAX_DUE_COUNT, MAX_KEY_ROWS,
    Namespace, PrefixRows, RowPage, State, StoreTime, Stored, StoredInstance, StoredNamespace,
    Version, key_page, prefix_end,
};

impl Inspect for Memory {
    fn namespaces(&self) -> Answer<'_, Vec<StoredNamespace>> {
        let database = self.lock();
        let each = database.spaces.iter();
        let each = each.map(|(name, space)| StoredNamespace {
            name: name.clone(),
            charter: space.charter.clone(),
        });
        let mut namespaces: Vec<_> = each.collect();
        namespaces.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        Box::pin(ready(Ok(namespaces)))
    }

    fn charter<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, Option<Charter>> {
        let database = self.lock();
        let space = database.spaces.get(namespace);
        Box::pin(ready(Ok(space.map(|space| space.charter.clone()))))
    }

    fn instances<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, Vec<StoredInstance>> {
        self.call(namespace, |call| {
            let each = call.space.alive.iter().filter(|(id, _)| !id.is_left());
            let mut instances: Vec<_> =
                each.map(|(&id, &until)| call.instance(id, until)).collect();
            instances.sort_by_key(|instance| instance.id);
            instances
        })
    }

    fn rows_of<'a>(&'a self, namespace: &'a Namespace, key: Vec<u8>) -> Answer<'a, Vec<Stored>> {
        self.call(namespace, move |call| call.rows_of(&key))
    }

    fn rows_with_prefix<'a>(
        &'a self,
        namespace: &'a Namespace,
        request: PrefixRows,
    ) -> Answer<'a, RowPage> {
        let after = match KeyPlace::start(&request) {
            Ok(after) => after,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let end = prefix_end(&request.prefix);
        self.call(namespace, move |call| {
            let rows = call
                .rows_in(request.state)
                .filter(|row| row.key < end && KeyPlace::of(row) > after);
            let mut rows: Vec<&Stored> = rows.collect();
            rows.sort_by_cached_key(|row| KeyPlace::of(row));
            let page = rows.into_iter().take(request.limit);
            key_page(done(AnswerSize::page(page.cloned().map(Ok))))
        })
    }

    fn count_due<'a>(
        &'a self,
        namespace: &'a Namespace,
        times: Vec<StoreTime>,
    ) -> Answer<'a, Vec<u64>> {
        self.call(namespace, move |call| {
            let first = |time: StoreTime| (State::Waiting, time, Version(0));
            let counts = times.windows(2).map(|span| {
                let rows = call.space.by_due.range(first(span[0])..first(span[1]));
                rows.take(MAX_DUE_COUNT).count() as u64
            });
            counts.collect()
        })
    }
}

impl Call<'_> {
    fn instance(&self, id: InstanceId, alive_until: StoreTime) -> StoredInstance {
        let rows = self.space.rows.values();
        let loaded = rows.filter(|row| row.loaded_by == Some(id)).count();
        let lacks = self.space.lacks.get(&id).copied().unwrap_or(0);
        let mut instance = StoredInstance::new(id, alive_until);
        (instance.loaded, instance.lacks) = (loaded as u64, lacks as u64);
        instance.name = self.space.names.get(&id).cloned();
        instance
    }

    fn rows_of(&self, key: &[u8]) -> Vec<Stored> {
        let waiting = self.space.waiting.get(key).into_iter();
        let in_flight = self.space.in_flight.get(key).into_iter().flatten().rev();
        let versions = waiting.chain(in_flight.take(MAX_KEY_ROWS));
        let rows = versions.map(|version| &self.space.rows[version]);
        let rows = rows.chain(self.space.dead.of(key).take(MAX_KEY_ROWS));
        done(AnswerSize::page(rows.cloned().map(Ok)))
    }

    fn rows_in(&self, state: State) -> Box<dyn Iterator<Item = &Stored> + '_> {
        if state == State::Dead {
            return Box::new(self.space.dead.all());
        }
        Box::new(
            self.space
                .rows
                .values()
                .filter(move |row| row.state == state),
        )
    }
}
