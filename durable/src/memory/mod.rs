//! A store in memory: for tests, and the shortest complete example of a [`Store`].

mod inspect;
mod rows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::ready;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio::time::Instant;

use rows::done;

use crate::lock::lock;
use crate::store::rules::{self, Rows};
use crate::store::{
    Answer, AnswerSize, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Edition,
    Fire, FireReport, Inspect, InstanceId, KeyPlace, List, Load, Loaded, Namespace, Opened, Settle,
    Settled, State, Store, StoreError, StoreTime, Stored, StoredInstance, Terms, Version, Write,
    WriteOutcome,
};

/// A store in the memory of this process. Clones share their timers.
///
/// Its clock is Tokio's, which tests can pause, and [`set_clock`](Self::set_clock) gives it a date.
/// Paused days pass as fast as the polls in them: a test of days sets a longer
/// [`poll`](crate::Builder::poll) and [`window`](crate::Builder::window), as
/// [here](crate::calendars#testing). Calls of other stores time out under a paused clock.
///
/// Nothing survives the process. [Rule 2](crate::store) holds among its instances, each of which
/// may stand for a process in a test.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<Database>>,
}

#[derive(Clone)]
struct Database {
    /// When the clock was set, and to what.
    clock: (Instant, StoreTime),
    /// The last version given.
    sequence: i64,
    spaces: HashMap<Namespace, Space>,
    /// How often it has returned to an earlier state.
    returns: i64,
}

/// One namespace.
#[derive(Clone)]
struct Space {
    charter: Charter,
    /// Its first edition.
    made: Edition,
    edition: Edition,
    rows: HashMap<Version, Stored>,
    by_key: BTreeSet<(State, KeyPlace)>,
    by_due: BTreeSet<(State, StoreTime, Version)>,
    /// The rows that no instance has loaded and that are not dead, by when they are due.
    unloaded: BTreeSet<(StoreTime, Version)>,
    /// How many rows are in each state.
    counts: [u64; 3],
    /// A look counts what each has loaded.
    instances: BTreeMap<InstanceId, StoredInstance>,
    hint: Arc<Notify>,
}

impl Space {
    fn new(charter: Charter, edition: Edition) -> Self {
        Space {
            charter,
            made: edition,
            edition,
            rows: HashMap::new(),
            by_key: BTreeSet::new(),
            by_due: BTreeSet::new(),
            unloaded: BTreeSet::new(),
            counts: [0; 3],
            instances: BTreeMap::new(),
            hint: Arc::default(),
        }
    }
}

impl Database {
    fn now(&self) -> StoreTime {
        self.clock.1.after(self.clock.0.elapsed())
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        let database = Database {
            clock: (Instant::now(), SystemTime::now().into()),
            sequence: 0,
            spaces: HashMap::new(),
            returns: 0,
        };
        Memory {
            state: Arc::new(Mutex::new(database)),
        }
    }

    /// Moves the clock of the store, and of all its clones, to another time. It goes on from there.
    pub fn set_clock(&self, time: SystemTime) {
        self.lock().clock = (Instant::now(), time.into());
    }

    /// A store of its own with the timers that this one has now, and the same time. What happens to
    /// one of them, the other does not see. For tests that go on from one state in several ways.
    #[must_use]
    pub fn fork(&self) -> Memory {
        let mut database = self.lock().clone();
        for space in database.spaces.values_mut() {
            space.hint = Arc::default();
        }
        Memory {
            state: Arc::new(Mutex::new(database)),
        }
    }

    /// Returns to the timers that `earlier` has, a [fork](Self::fork) of this store: as a server
    /// from which another one takes over that lacks its last writes, or a file that is restored.
    /// The clock goes on. For tests of what a program makes of that.
    pub fn restore(&self, earlier: &Memory) {
        let mut earlier = earlier.lock().clone();
        let mut database = self.lock();
        for (name, space) in &mut database.spaces {
            if let Some(restored) = earlier.spaces.get_mut(name) {
                restored.hint = Arc::clone(&space.hint);
            }
            space.hint.notify_waiters();
        }
        let (clock, returns) = (database.clock, database.returns + 1);
        *database = Database {
            clock,
            returns,
            ..earlier
        };
    }

    fn lock(&self) -> MutexGuard<'_, Database> {
        lock(&self.state)
    }

    /// Runs a call on any charter.
    fn call<T: Send + 'static>(
        &self,
        namespace: &Namespace,
        run: impl FnOnce(&mut Call<'_>) -> T,
    ) -> Answer<'static, T> {
        self.call_under(namespace, Terms::NONE, run)
    }

    /// Runs a call: one hold of the lock, one reading of the clock.
    fn call_under<T: Send + 'static>(
        &self,
        namespace: &Namespace,
        near: Terms,
        run: impl FnOnce(&mut Call<'_>) -> T,
    ) -> Answer<'static, T> {
        let mut database = self.lock();
        let now = database.now();
        let Database {
            sequence,
            spaces,
            returns,
            ..
        } = &mut *database;
        let Some(space) = spaces.get_mut(namespace) else {
            return Box::pin(ready(Err(StoreError::not_opened(namespace))));
        };
        if let Err(error) = near.check(namespace, space.edition, now) {
            return Box::pin(ready(Err(error)));
        }
        Box::pin(ready(Ok(run(&mut Call {
            sequence,
            space,
            now,
            returns: *returns,
        }))))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

opaque!(Memory, |store| namespaces: store.lock().spaces.len());

impl Store for Memory {
    fn open(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, Opened> {
        let mut database = self.lock();
        let now = database.now();
        let Database {
            sequence, spaces, ..
        } = &mut *database;
        *sequence = (*sequence + 1).max(now.as_micros());
        let space = spaces
            .entry(namespace.clone())
            .or_insert_with(|| Space::new(charter.clone(), Edition(*sequence)));
        let checked = space.charter.check(namespace, charter);
        let opened = Opened {
            now,
            instance: InstanceId(*sequence),
            edition: space.edition,
            made: space.made,
        };
        Box::pin(ready(checked.map(|()| opened)))
    }

    fn amend(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, ()> {
        let amending = self.call(namespace, |call| {
            let (space, next) = (&mut *call.space, charter.clone());
            space.charter.check_amendment(namespace, charter)?;
            if space.charter != next {
                let Ok(Version(edition)) = call.next_version();
                (call.space.charter, call.space.edition) = (next, Edition(edition));
            }
            Ok(())
        });
        Box::pin(async move { amending.await? })
    }

    fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: Terms,
    ) -> Answer<'_, Vec<WriteOutcome>> {
        self.call_under(namespace, near, move |call| {
            let (mut writes, mut written) = (writes.into_iter(), Vec::new());
            while writes.len() > 0 {
                written.extend(done(rules::write(call, &mut writes, near)));
            }
            written
        })
    }

    fn load(&self, namespace: &Namespace, request: Load) -> Answer<'_, Loaded> {
        let near = Terms::NONE.under(request.edition);
        self.call_under(namespace, near, move |call| {
            done(rules::load(call, &request))
        })
    }

    fn fire(&self, namespace: &Namespace, request: Fire) -> Answer<'_, FireReport> {
        self.call_under(namespace, request.near, move |call| {
            done(rules::fire(call, &request))
        })
    }

    fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: Terms,
    ) -> Answer<'_, Vec<Settled>> {
        self.call(namespace, move |call| {
            done(rules::settle(call, settles, near))
        })
    }

    fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId> {
        self.call(namespace, move |call| {
            call.unload(instance);
            let Ok(Version(fresh)) = call.next_version();
            InstanceId(fresh)
        })
    }

    fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Answer<'_, Vec<Version>> {
        self.call(namespace, move |call| {
            if call.unmark(instance, &versions) {
                for instance in call.space.instances.values_mut() {
                    instance.lacks = 0;
                }
            }
            Vec::new()
        })
    }

    fn rows_of(
        &self,
        namespace: &Namespace,
        key: Vec<u8>,
        limit: usize,
    ) -> Answer<'_, Vec<Stored>> {
        self.call(namespace, move |call| {
            let states = [State::Waiting, State::InFlight, State::Dead].into_iter();
            let rows = states.flat_map(|state| call.of_key(state, &key).take(limit));
            done(AnswerSize::page(rows.cloned().map(Ok)))
        })
    }

    fn list(&self, namespace: &Namespace, request: List) -> Answer<'_, Vec<Stored>> {
        let state = request.state;
        let (due, version) = request.after.unwrap_or((StoreTime::default(), Version(0)));
        let after = Bound::Excluded((state, due, version));
        let last = Bound::Included((state, StoreTime::NEVER, Version(i64::MAX)));
        self.call(namespace, |call| {
            let page = call.space.by_due.range((after, last)).take(request.limit);
            let rows = page.map(|(.., version)| Ok(call.space.rows[version].clone()));
            done(AnswerSize::page(rows))
        })
    }

    fn count(&self, namespace: &Namespace) -> Answer<'_, Counts> {
        self.call(namespace, |call| {
            let [waiting, in_flight, dead] = call.space.counts;
            let first = call.space.by_due.first();
            let earliest = first.filter(|(state, ..)| *state == State::Waiting);
            let mut counts = Counts::new(call.now, waiting, in_flight);
            counts.dead = dead;
            counts.earliest = earliest.map(|&(_, due, _)| due);
            counts
        })
    }

    fn purge(&self, namespace: &Namespace) -> Answer<'_, ChangedRows> {
        self.call(namespace, |call| {
            let batch = call.space.by_due.iter().take(rules::STEP_ROWS);
            let batch: Vec<_> = batch.map(|&(.., version)| version).collect();
            let purged = batch.iter().filter_map(|&version| call.take(version));
            let purged = purged.count() as u64;
            ChangedRows::new(purged, !call.space.rows.is_empty())
        })
    }

    fn change_dead(
        &self,
        namespace: &Namespace,
        which: DeadRows,
        change: DeadChange,
    ) -> Answer<'_, ChangedRows> {
        self.call(namespace, |call| {
            done(rules::change_dead(call, &which, change))
        })
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn hinted(&self, namespace: &Namespace) -> BoxFuture<'_, Option<InstanceId>> {
        let namespace = namespace.clone();
        Box::pin(async move {
            let hint = self
                .lock()
                .spaces
                .get(&namespace)
                .map(|space| Arc::clone(&space.hint));
            if let Some(hint) = hint {
                hint.notified().await;
            }
            None
        })
    }
}

/// A call: the namespace under the lock, and the time, which is read once.
struct Call<'a> {
    sequence: &'a mut i64,
    space: &'a mut Space,
    now: StoreTime,
    returns: i64,
}

impl Call<'_> {
    /// Takes a row out.
    fn take(&mut self, version: Version) -> Option<Stored> {
        let row = self.space.rows.remove(&version)?;
        self.space.by_key.remove(&(row.state, KeyPlace::of(&row)));
        self.space.by_due.remove(&(row.state, row.due, version));
        self.space.unloaded.remove(&(row.due, version));
        self.space.counts[row.state as usize] -= 1;
        Some(row)
    }

    /// Puts a row in.
    fn put(&mut self, row: Stored) {
        let (state, due, version) = (row.state, row.due, row.version);
        self.space.by_key.insert((state, KeyPlace::of(&row)));
        self.space.by_due.insert((state, due, version));
        if state != State::Dead && row.loaded_by.is_none() {
            self.space.unloaded.insert((due, version));
        }
        self.space.counts[state as usize] += 1;
        self.space.rows.insert(version, row);
    }

    /// The rows of a key in a state, from the latest on.
    fn of_key(&self, state: State, key: &[u8]) -> impl DoubleEndedIterator<Item = &Stored> {
        let place = |least| KeyPlace {
            key: key.to_vec(),
            version: least,
        };
        let places = (state, place(0))..=(state, place(i64::MAX));
        let places = self.space.by_key.range(places).rev();
        places.map(|(_, place)| &self.space.rows[&Version(place.version)])
    }

    /// Ends the life of an id.
    fn unload(&mut self, instance: InstanceId) {
        self.space.instances.remove(&instance);
        let rows = self.space.rows.values();
        let loaded = rows.filter(|row| row.loaded_by == Some(instance));
        let loaded: Vec<_> = loaded.map(|row| row.version).collect();
        self.unmark(instance, &loaded);
    }

    /// Takes the mark of an id off rows. Returns whether any had it.
    fn unmark(&mut self, instance: InstanceId, versions: &[Version]) -> bool {
        let mut any = false;
        for &version in versions {
            let row = self.space.rows.get_mut(&version);
            if let Some(row) = row.filter(|row| row.loaded_by == Some(instance)) {
                row.loaded_by = None;
                self.space.unloaded.insert((row.due, version));
                any = true;
            }
        }
        if any {
            self.space.hint.notify_waiters();
        }
        any
    }
}
