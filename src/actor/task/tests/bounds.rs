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
async fn turn_applies_at_most_4096_commands() {
    let (mut actor, wheel) = start();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..4_000);
    let _sleeps: Vec<_> = (0..4_000).map(|_| armed(&wheel, FAR)).collect();
    set_far(&timers, 4_000..5_000);
    for turn in 1..=3 {
        let end = if turn < 3 { "again" } else { "wait" };
        assert_eq!(step(&mut actor), end);
        assert!(wheel.metrics().commands <= turn * 4_096);
    }
    let _near = armed(&wheel, ms(5));
    assert_eq!((step(&mut actor), actor.next_wake()), ("wait", Some(5)));
}

#[tokio::test(start_paused = true)]
async fn actor_waits_after_applying_exactly_its_limit() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..4_096).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "wait");
}

// Far commands would never be applied beside a flood of near ones.
#[tokio::test(start_paused = true)]
async fn commands_of_both_lanes_progress_in_each_turn() {
    let (mut actor, wheel) = start();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    let _far: Vec<_> = (0..9_000).map(|_| armed(&wheel, FAR)).collect();
    let (mut key, mut applied) = (0, 0);
    for turn in 1..=4 {
        for _ in 0..9_000 {
            timers.set_timer(key, (), ms(100)).expect("there is room");
            key += 1;
        }
        assert_eq!(step(&mut actor), "again");
        let far = actor.sleeps.wheel.len();
        assert!(far >= turn * 1_024, "{far} after turn {turn}");
        // Whole blocks are applied.
        let items = actor.items() - applied;
        assert!((4_096..4_096 + 512).contains(&items), "{items}");
        applied += items;
    }
}

// The limit followed the highest index. So a sixteenth of a burst could stay for as long as one
// sleep that had come last, and each node woke the actor at its tick.
#[tokio::test(start_paused = true)]
async fn p7_stale_nodes_follow_the_memory_that_a_burst_has_left() {
    const BURST: usize = 200_000;
    const LATER: usize = BURST / 20;
    let (mut actor, wheel) = start();
    let settle = |actor: &mut Actor| while step(actor) == "again" {};
    let arm = |sleeps, length| -> Vec<_> { (0..sleeps).map(|_| armed(&wheel, length)).collect() };
    let burst = arm(BURST, FAR);
    settle(&mut actor);
    let _last = armed(&wheel, FAR);
    settle(&mut actor);
    drop(burst);
    settle(&mut actor);
    let places = actor.sleeps.wheel.places();
    assert!(places < BURST / 10, "{places} places are left");
    drop(arm(LATER, FAR / 2));
    settle(&mut actor);
    let left = actor.items();
    assert!(left < LATER / 4, "{left} nodes are left");
}
