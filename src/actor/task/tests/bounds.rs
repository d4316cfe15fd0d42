//! The bounds of a turn.

use super::*;

#[tokio::test(start_paused = true)]
async fn fires_256_sleeps_in_a_turn() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..600).map(|_| armed(&wheel, ms(5))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    for (after, end) in [(256, "again"), (512, "again"), (600, "wait")] {
        assert_eq!(step(&mut actor), end);
        assert_eq!(fired(&wheel), after);
    }
}

#[tokio::test(start_paused = true)]
async fn actor_waits_after_firing_exactly_its_limit() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..256).map(|_| armed(&wheel, ms(5))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(fired(&wheel), 256);
}

#[tokio::test(start_paused = true)]
async fn keeps_the_bound_of_a_turn_within_a_tick() {
    for (at_six, fired_first, end) in [(1, 256, "wait"), (100, 256, "again")] {
        let (mut actor, wheel) = start();
        let _five: Vec<_> = (0..255).map(|_| armed(&wheel, ms(5))).collect();
        let _six: Vec<_> = (0..at_six).map(|_| armed(&wheel, ms(6))).collect();
        assert_eq!(step(&mut actor), "wait");
        jump(ms(10));
        assert_eq!(step(&mut actor), end);
        assert_eq!(fired(&wheel), fired_first);
    }
}

#[tokio::test(start_paused = true)]
async fn counts_a_cascade_as_half_a_turn() {
    let (mut actor, wheel) = start();
    // There is an item in each bucket of the second level, after the bucket's begin.
    let _sleeps: Vec<_> = (1..=9).map(|n| armed(&wheel, ms(64 * n + 1))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(2_000));
    for (after, end) in [
        (1, "again"),
        (3, "again"),
        (5, "again"),
        (7, "again"),
        (9, "wait"),
    ] {
        assert_eq!(step(&mut actor), end);
        assert_eq!(fired(&wheel), after);
    }
}

#[tokio::test(start_paused = true)]
async fn applies_4096_commands_and_dirty_indices_in_a_turn() {
    for (timers, left) in [(0, 4), (1, 2_052)] {
        let (mut actor, wheel) = start();
        let sets: Vec<_> = (0..4_100).map(|_| wheel.keyed::<u64, ()>()).collect();
        let mut streams = Vec::new();
        for (set, stream) in sets {
            for n in 0..timers {
                set.set_timer(n, (), FAR).expect("there is room");
            }
            streams.push(stream);
            // This sends a command.
            drop(set);
        }
        assert_eq!(step(&mut actor), "again");
        assert_eq!(actor.backlog.len(), left, "{timers} in each");
        while step(&mut actor) == "again" {}
        assert!(actor.backlog.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn actor_waits_after_applying_exactly_its_limit() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..4_096).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "wait");
}

#[tokio::test(start_paused = true)]
async fn applies_commands_before_the_rest_of_a_set_dirty_again() {
    let (mut actor, wheel) = start();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..5_000);
    let _sleep = armed(&wheel, FAR);
    let left = |actor: &Actor| (actor.backlog.len(), actor.items());
    assert_eq!(step(&mut actor), "again");
    assert_eq!(left(&actor), (0, 4_094 + 1));
    set_far(&timers, 5_000..10_000);
    let _another = armed(&wheel, FAR);
    assert_eq!(step(&mut actor), "again");
    assert_eq!(left(&actor), (0, 8_188 + 2), "no sleep is kept waiting");
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(left(&actor), (0, 10_002));
}
