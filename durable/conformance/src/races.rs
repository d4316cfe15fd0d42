//! Calls that meet on one key at the same moment.
//!
//! Two parties keep firing and putting back the timers of some keys, and acknowledge none. So each
//! key has a timer at every instant, waiting or in flight, and a third party that moves, removes
//! and sets can learn that every time.
//!
//! | call | what it finds | right | wrong |
//! |---|---|---|---|
//! | move | a timer that waits, or one in flight | it is moved, or in flight | absent |
//! | remove | the same | it is removed, or in flight | absent |
//! | set if absent | the same | present, or in flight | set |

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::{join, join_all};
use tickwheel_durable::store::{
    Action, Fire, InstanceId, Load, Namespace, Settle, Settlement, State, Store, Terms, Write,
    WriteOutcome,
};
use tokio::task::yield_now;

use super::contract::{HOUR, NOW, write};
use super::random::{seed, stream};
use super::steps::pages;
use super::world::{Stores, World, opened};

/// Each writer has 60 keys, and changes all of them in a batch: the longer a batch takes, the more
/// happens in it.
const KEYS: usize = 60;

/// Each writer writes at least 100 batches, and goes on for at least two seconds.
const BATCHES: usize = 100;
const DURATION: Duration = Duration::from_secs(2);

/// A call on a key that had a timer at every instant never answers as if it had none, whatever
/// fires and is put back meanwhile.
pub async fn put_backs_never_hide_a_timer<T: Stores>(world: &World<T>) {
    let seed = seed("put_backs_never_hide_a_timer");
    let space = world.namespace();
    let mut handlers = Vec::new();
    for _ in 0..2 {
        let store = world.store().await;
        let instance = opened(&store, &space, &"test".into()).await.instance;
        handlers.push((store, instance));
    }
    let mut writers = Vec::new();
    for number in 0..4 {
        let writer = Writer {
            store: world.store().await,
            space: &space,
            keys: (0..KEYS).map(|key| format!("{number}-{key}")).collect(),
            random: stream(seed, number),
        };
        let fill = writer.keys.iter().map(|key| write(key, set(false)));
        writer.write(fill.collect()).await;
        writers.push(writer);
    }
    let ended = AtomicBool::new(false);
    let put_back = join_all(
        handlers
            .iter()
            .zip(10..)
            .map(|((store, instance), number)| {
                put_back_until(&ended, store, &space, *instance, stream(seed, number))
            }),
    );
    let write = async {
        join_all(writers.iter_mut().map(Writer::run)).await;
        ended.store(true, Ordering::Release);
    };
    let (fired, ()) = join(put_back, write).await;
    assert!(fired.iter().sum::<usize>() > 0, "nothing has met a fire");
    for writer in &writers {
        writer.sees_one_timer_under_each_key().await;
    }
}

/// Fires what is due and puts it back, one way or another. Returns how many have fired.
async fn put_back_until<S: Store>(
    ended: &AtomicBool,
    store: &S,
    space: &Namespace,
    instance: InstanceId,
    mut random: Rng,
) -> usize {
    let mut count = 0;
    while !ended.load(Ordering::Acquire) {
        let load = Load::new(instance, Duration::ZERO, random.usize(..4 * KEYS), HOUR);
        let loaded = store.load(space, load).await.expect("it loads");
        // The lease ends at once: what is not put back fires again.
        let versions = loaded.rows.iter().map(|&(version, _)| version).collect();
        let mut fire = Fire::new(versions, Some(Duration::ZERO), Terms::NONE);
        fire.unloaded = random.usize(..4 * KEYS);
        let fired = store.fire(space, fire).await.expect("it fires").fired;
        count += fired.len();
        let choices = [
            Settlement::RetryAfter(Duration::ZERO),
            Settlement::RetryAfter(Duration::from_millis(1)),
            Settlement::Release,
            Settlement::Unfire,
            Settlement::Extend(Duration::ZERO),
        ];
        let settles = fired.iter().map(|fired| {
            let how = choices[random.usize(..choices.len())];
            Settle::new(fired.token, how)
        });
        let settles: Vec<_> = settles.collect();
        let settled = store.settle(space, settles, Terms::NONE).await;
        settled.expect("it settles");
        yield_now().await;
    }
    count
}

/// The only one who adds and takes away timers of its keys.
struct Writer<'a, S> {
    store: S,
    space: &'a Namespace,
    keys: Vec<String>,
    random: Rng,
}

impl<S: Store> Writer<'_, S> {
    /// Writes, and once more what is locked, as instances do. Another call may lock a key for a
    /// moment.
    async fn write(&self, mut writes: Vec<Write>) -> Vec<WriteOutcome> {
        let mut outcomes = vec![None; writes.len()];
        while !writes.is_empty() {
            let asked = mem::take(&mut writes);
            let written = self.store.write(self.space, asked, Terms::NONE).await;
            let mut written = written.expect("it writes").into_iter();
            for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
                match written.next() {
                    Some(WriteOutcome::Locked(write)) => writes.push(write),
                    answered => *outcome = answered,
                }
            }
            yield_now().await;
        }
        outcomes.into_iter().flatten().collect()
    }

    async fn run(&mut self) {
        let began = Instant::now();
        let mut batches = 0;
        while batches < BATCHES || began.elapsed() < DURATION {
            batches += 1;
            let writes = self.batch();
            let written = self.write(writes.clone()).await;
            let mut removed = Vec::new();
            for (write, written) in writes.iter().zip(&written) {
                match (&write.action, written) {
                    (Action::Remove, WriteOutcome::Removed { .. }) => {
                        removed.push(Write::new(write.key.clone(), set(false)));
                    }
                    (Action::Move { .. }, WriteOutcome::Armed { .. })
                    | (Action::Set { .. }, WriteOutcome::Present)
                    | (_, WriteOutcome::InFlight(_)) => {}
                    (action, answer) => panic!(
                        "batch {batches}: {answer:?} to {action:?}, though {} had a timer at every instant",
                        String::from_utf8_lossy(&write.key)
                    ),
                }
            }
            if !removed.is_empty() {
                self.write(removed).await;
            }
            yield_now().await;
        }
    }

    /// A change of each key, in any order.
    fn batch(&mut self) -> Vec<Write> {
        let mut keys = self.keys.clone();
        let mut writes = Vec::new();
        while !keys.is_empty() {
            let key = keys.swap_remove(self.random.usize(..keys.len()));
            let action = match self.random.usize(..3) {
                0 => Action::move_to(NOW),
                1 => Action::Remove,
                _ => set(true),
            };
            writes.push(write(&key, action));
        }
        writes
    }

    async fn sees_one_timer_under_each_key(&self) {
        let mut found = Vec::new();
        for state in [State::Waiting, State::InFlight] {
            let rows = pages(&self.store, self.space, state, 100 * KEYS)
                .await
                .concat();
            found.extend(rows.into_iter().map(|row| row.key));
        }
        found.sort_unstable();
        for key in &self.keys {
            let timers = found.iter().filter(|found| *found == key.as_bytes());
            assert_eq!(timers.count(), 1, "timers of {key}");
        }
    }
}

fn set(if_absent: bool) -> Action {
    Action::set(b"1".to_vec(), NOW, None, if_absent)
}
