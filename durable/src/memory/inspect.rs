//! The reads of an operator.

use std::future::ready;
use std::ops::Bound;

use super::Memory;
use super::rows::done;
use crate::store::{
    Answer, AnswerSize, Charter, Inspect, KeyPlace, MAX_DUE_COUNT, Namespace, PrefixRows, RowPage,
    State, StoreTime, StoredInstance, StoredNamespace, Version, key_page, prefix_end,
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

    fn charter(&self, namespace: &Namespace) -> Answer<'_, Option<Charter>> {
        let database = self.lock();
        let space = database.spaces.get(namespace);
        Box::pin(ready(Ok(space.map(|space| space.charter.clone()))))
    }

    fn instances(&self, namespace: &Namespace) -> Answer<'_, Vec<StoredInstance>> {
        self.call(namespace, |call| {
            let each = call.space.instances.values().filter(|it| !it.id.is_left());
            let each = each.map(|instance| {
                let rows = call.space.rows.values();
                let loaded = rows.filter(|row| row.loaded_by == Some(instance.id));
                let loaded = loaded.count() as u64;
                StoredInstance {
                    loaded,
                    ..instance.clone()
                }
            });
            each.collect()
        })
    }

    fn rows_with_prefix(&self, namespace: &Namespace, request: PrefixRows) -> Answer<'_, RowPage> {
        let after = match KeyPlace::start(&request) {
            Ok(after) => after,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let end = prefix_end(&request.prefix);
        self.call(namespace, move |call| {
            let after = Bound::Excluded((request.state, after));
            let places = call.space.by_key.range((after, Bound::Unbounded));
            let places =
                places.take_while(|(state, place)| *state == request.state && place.key < end);
            let rows = places.map(|(_, place)| &call.space.rows[&Version(place.version)]);
            let page = rows.take(request.limit).cloned();
            key_page(done(AnswerSize::page(page.map(Ok))))
        })
    }

    fn count_due(&self, namespace: &Namespace, times: Vec<StoreTime>) -> Answer<'_, Vec<u64>> {
        self.call(namespace, move |call| {
            let first = |time: StoreTime| (State::Waiting, time, Version(0));
            let counts = times.windows(2).map(|span| {
                let end = span[1].max(span[0]);
                let rows = call.space.by_due.range(first(span[0])..first(end));
                rows.take(MAX_DUE_COUNT).count() as u64
            });
            counts.collect()
        })
    }
}
