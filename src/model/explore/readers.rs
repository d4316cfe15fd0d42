//! The explorer's readers: parties that receive expired keyed timers and reaped watches.

use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use super::facts::SharedFacts;
use super::mix::{Mix, Random};
use super::world::{self, Wait, block_on, fail, note};
use crate::{Cause, Expirations, clock};

/// How a party waits for the stream, which may be forever.
fn wait(mix: Mix, random: &mut Random) -> Wait {
    Wait {
        panics: random.percent(mix.panicking),
        fresh: random.percent(70),
        must_by: None,
    }
}

/// Starts the party that receives keyed timers: one or several at a time, and late now and then.
pub(super) fn receive(
    mix: Mix,
    seed: u64,
    facts: &SharedFacts,
    mut stream: Expirations<u64, u64>,
) -> JoinHandle<()> {
    let mut random = Random::new(seed);
    let facts = facts.clone();
    world::spawn("receiver", move |me| {
        // What was due by then came late by this party.
        let mut away_until = Duration::ZERO;
        let mut received = Vec::new();
        loop {
            if random.percent(mix.lagging) {
                facts.update(|facts| facts.receiver_is_away = true);
                let micros = random.pick(&[0, 500, 2_000, 5_000]);
                note(me, || format!("rests for {micros} µs"));
                thread::yield_now();
                world::rest(me, Duration::from_micros(micros));
                facts.update(|facts| facts.receiver_is_away = false);
                away_until = clock::elapsed();
            }
            let how = wait(mix, &mut random);
            let limit = random.pick(&[1, 1, 2, 5]);
            if block_on(me, how, stream.recv_many(&mut received, limit)) == 0 {
                break;
            }
            for expired in received.drain(..) {
                note(me, || format!("receives {expired:?}"));
                facts.came_out(expired.key, expired.value);
                facts.update(|facts| facts.received += 1);
                if expired.deadline > clock::now() {
                    fail(format!("timer {} is early", expired.key));
                }
                if world::since_begin(expired.deadline) > away_until {
                    let what = format_args!("timer {}", expired.key);
                    world::check_was_on_time(what, expired.deadline);
                }
            }
        }
        note(me, || "the stream has ended".to_owned());
        for expired in stream.unexpired() {
            facts.came_out(expired.key, expired.value);
        }
    })
}

/// Starts the party that receives idle watches.
pub(super) fn reap(
    mix: Mix,
    seed: u64,
    facts: &SharedFacts,
    mut stream: Expirations<u64, u64>,
) -> JoinHandle<()> {
    let mut random = Random::new(seed);
    let facts = facts.clone();
    world::spawn("reaper", move |me| {
        loop {
            if random.percent(mix.lagging) {
                facts.update(|facts| facts.reader_is_away = true);
                let micros = random.pick(&[500, 1_000, 2_000, 3_000]);
                note(me, || format!("rests for {micros} µs"));
                world::rest(me, Duration::from_micros(micros));
                facts.update(|facts| facts.reader_is_away = false);
            }
            let how = wait(mix, &mut random);
            let Some(expired) = block_on(me, how, stream.recv()) else {
                break;
            };
            note(me, || format!("reaps {expired:?}"));
            let (is_first, too_early) = facts.update(|facts| {
                facts.received += 1;
                let is_first = facts.reaped.insert(expired.key);
                let idle = facts.idle;
                let watched = facts.watches.entry(expired.key).or_default();
                watched.reaped = true;
                let is_active = watched.busy || watched.not_before + idle > clock::elapsed();
                let too_early = is_active && expired.cause != Cause::Forced;
                (is_first, too_early)
            });
            if !is_first {
                fail(format!("watch {} is reaped twice", expired.key));
            }
            if too_early {
                fail(format!(
                    "watch {} is reaped while it is active",
                    expired.key
                ));
            }
        }
        note(me, || "the stream has ended".to_owned());
        drop(stream.unexpired());
    })
}
