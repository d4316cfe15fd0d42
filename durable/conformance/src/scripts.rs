//! Random programs of whole instances: their counts have to add up.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use tickwheel_durable::{Claim, Error, Moved, Removed};
use tokio::time::{Instant, timeout_at};

use super::random::{seed, stream};
use super::world::{Running, Stores, World, next_of};

/// Three instances, of which some die and others take their place, set, move, remove and claim
/// timers at random. In the end every timer was acknowledged or removed, none after that was
/// delivered, and none was early.
pub async fn answers_add_up_among_instances<T: Stores>(world: &World<T>) {
    let seed = seed("answers_add_up_among_instances");
    let mut program = Program {
        world,
        random: stream(seed, 0),
        instances: Vec::new(),
        keys: BTreeMap::new(),
        done: BTreeMap::new(),
        held: Vec::new(),
    };
    for _ in 0..3 {
        program.start().await;
    }
    for value in 0..150 {
        program.step(value).await;
    }
    program.held.clear();
    program.receive_until_all_is_done().await;
}

struct Program<'a, T: Stores> {
    world: &'a World<T>,
    random: Rng,
    instances: Vec<Running<T::Store>>,
    /// The value of each key. A value is set once.
    keys: BTreeMap<String, u64>,
    /// The end of each value that need not be delivered any more.
    done: BTreeMap<u64, &'static str>,
    /// Claims that are kept for a while.
    held: Vec<Claim<String, u64>>,
}

impl<T: Stores> Program<'_, T> {
    /// Whether the timer with this value was acknowledged or removed.
    fn has_ended(&self, value: u64) -> bool {
        self.done.get(&value).is_some_and(|&how| how != "replaced")
    }

    /// The timer with this value must not be delivered from now on.
    fn end(&mut self, value: u64, how: &'static str) {
        assert!(!self.has_ended(value), "{value} was {how} after its end");
        self.done.insert(value, how);
    }

    /// Its key had a timer, unless that need not be there any more.
    fn assert_kept(&self, key: &str) {
        let value = self.keys.get(key);
        let is_done = value.is_none_or(|value| self.done.contains_key(value));
        assert!(is_done, "{value:?}, the last of {key}, is lost");
    }

    async fn start(&mut self) {
        let lease = self.world.units(6);
        let instance = self
            .world
            .instance_with(|b| b.lease(lease).capacity(30))
            .await;
        self.instances.push(instance);
    }

    async fn step(&mut self, value: u64) {
        let on = self.random.usize(..self.instances.len());
        let unit = self.world.units(1);
        let delay = unit * u32::try_from(self.random.usize(..12)).expect("it is small") / 4;
        let key = format!("key {}", self.random.usize(..40));
        let timers = self.instances[on].timers.clone();
        match self.random.usize(..8) {
            0..4 => {
                timers
                    .set_timer(&key, &value, delay)
                    .await
                    .expect("it is set");
                if let Some(old) = self.keys.insert(key, value) {
                    // It may be in flight still, and come again.
                    self.done.entry(old).or_insert("replaced");
                }
            }
            4 => {
                let moved = timers.move_timer(&key, delay).await.expect("it answers");
                if moved == Moved::Absent {
                    self.assert_kept(&key);
                }
            }
            5 => match timers.remove_timer(&key).await.expect("it answers") {
                Removed::Done(value) => self.end(value, "removed"),
                Removed::InFlight(_) => {}
                absent => {
                    assert_eq!(absent, Removed::Absent);
                    self.assert_kept(&key);
                }
            },
            6 if self.random.usize(..4) == 0 => {
                let instance = self.instances.swap_remove(on);
                if self.random.usize(..2) == 0 {
                    instance.kill();
                } else {
                    instance.timers.shutdown().await;
                }
                self.start().await;
            }
            _ => self.receive(unit / 4).await,
        }
    }

    /// Receives for a while.
    async fn receive(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Ok((on, claim)) = timeout_at(until, next_of(&mut self.instances)).await {
            let now = self.instances[on].now().await;
            assert!(now >= claim.deadline, "{claim:?} is early");
            let has_ended = self.has_ended(claim.value);
            assert!(!has_ended, "{claim:?} was delivered after its end");
            match self.random.usize(..6) {
                0 => drop(claim),
                1 => self.held.push(claim),
                2 => unless_lost(&claim.retry_after(time).await),
                _ => {
                    let acked = claim.ack().await;
                    if acked.is_ok() {
                        self.end(claim.value, "acknowledged");
                    }
                    unless_lost(&acked);
                }
            }
        }
        if self.random.usize(..3) == 0 {
            self.held.clear();
        }
    }

    async fn receive_until_all_is_done(&mut self) {
        for round in 0.. {
            let counts = self.instances[0].counts().await;
            if counts.waiting + counts.in_flight == 0 {
                break;
            }
            assert!(round < 400, "{counts:?} are left");
            self.receive(self.world.units(1)).await;
        }
        for key in self.keys.keys() {
            self.assert_kept(key);
        }
    }
}

/// A claim may be lost, or its instance be gone; nothing else may go wrong.
fn unless_lost(settled: &Result<(), Error>) {
    let expected = matches!(
        settled,
        Ok(()) | Err(Error::Lost { .. } | Error::Timeout { .. })
    );
    assert!(expected, "{settled:?}");
}
