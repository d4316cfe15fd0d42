//! One schedule of the explorer: its parties, and the checks at its end.

use std::sync::Arc;

use shuttle::thread::JoinHandle;

use super::facts::{Facts, HOUR, KEYS, SharedFacts, check_timers, check_totals, check_watches};
use super::mix::{Mix, Random};
use super::readers::{reap, receive};
use super::worker::Worker;
use super::world::{self, MAIN, Wait, block_on};
use crate::TimerWheel;

/// Runs one schedule: starts the wheel and the parties, waits for them, and checks the counters.
pub(super) fn run(mix: Mix, seed: u64) {
    let mut random = Random::new(seed);
    let mix = mix.some(&mut random);
    let builder = TimerWheel::builder()
        .tick(world::TICK)
        .slots(random.pick(&[8, 64]));
    let (wheel, actor) = builder.start_explored(world::notify_actor);
    let actor = world::drive(actor);
    let facts = SharedFacts::default();
    let mut parties: Vec<JoinHandle<()>> = Vec::new();

    let mut timers = None;
    if mix.has_timers() {
        let (handle, stream) = wheel.keyed();
        timers = Some(Arc::new(handle));
        parties.push(receive(mix, random.next(), &facts, stream));
    }
    let mut reaper = None;
    if mix.has_watches() {
        let idle = world::TICK * u32::try_from(1 + random.below(5)).expect("small");
        facts.update(|facts| facts.idle = idle);
        let (handle, stream) = wheel.reaper(idle);
        reaper = Some(handle);
        parties.push(reap(mix, random.next(), &facts, stream));
    }
    // The wheel holds some timers from the start. Otherwise steps would begin to affect each other
    // only at the third or so.
    if let Some(timers) = timers.as_ref().filter(|_| random.percent(70)) {
        for key in 0..=random.below(KEYS) {
            let value = facts.update(Facts::next_value);
            facts.update(|facts| facts.set.insert(value));
            let replaced = timers.set_timer(key, value, HOUR);
            assert_eq!(replaced, Ok(None), "no party has closed it");
        }
        block_on(MAIN, Wait::default(), wheel.settle());
    }
    let weak_timers = timers.as_ref().map(Arc::downgrade);
    let (checked, checked_wheel) = (facts.clone(), wheel.clone());
    world::set_check(move |target| {
        if checked_wheel.is_shutdown() {
            return Ok(());
        }
        if let Some(timers) = weak_timers.as_ref().and_then(std::sync::Weak::upgrade) {
            check_timers(&timers, &checked, target)?;
        }
        checked.update(|facts| check_watches(facts, target))
    });

    let (fewest, most) = mix.threads;
    let threads = fewest + random.below(most + 1 - fewest);
    for n in 0..threads {
        let (wheel, timers, reaper) = (wheel.clone(), timers.clone(), reaper.clone());
        let (facts, random) = (facts.clone(), Random::new(random.next()));
        parties.push(world::spawn(&format!("worker {n}"), move |me| {
            let worker = Worker {
                me,
                random,
                mix,
                facts,
                wheel,
                timers,
                intervals: Vec::new(),
                reaper,
                watches: Vec::new(),
            };
            worker.run();
        }));
    }
    drop((timers, reaper));
    world::wait_for_all_but_the_actor();
    for party in parties {
        party.join().expect("panics are caught");
    }
    check_totals(&wheel, &facts);
    world::drop_check();
    drop(wheel);
    world::wait_for_the_actor();
    actor.join().expect("panics are caught");
}
