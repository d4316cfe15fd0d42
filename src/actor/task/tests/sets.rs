//! Sets of keyed timers: the turns in which their readers are told, and their end.

use super::*;
use crate::Expirations;

fn keys(stream: &mut Expirations<u64, ()>) -> Vec<u64> {
    std::iter::from_fn(|| stream.try_recv().ok().map(|fired| fired.key)).collect()
}

/// How many sets the actor knows.
fn known(actor: &Actor) -> usize {
    actor.keyed.hints().count()
}

#[tokio::test(start_paused = true)]
async fn sets_that_are_due_together_are_told_in_the_same_turns() {
    let (mut actor, wheel) = start();
    let mut sets: Vec<_> = (0..2).map(|_| wheel.keyed::<u64, ()>()).collect();
    for key in 0..5_000 {
        for (timers, _) in &sets {
            timers.set_timer(key, (), ms(5)).expect("there is room");
        }
    }
    while step(&mut actor) == "again" {}
    jump(ms(5));
    let mut turns = 1;
    while step(&mut actor) == "again" {
        // More of the tick follows.
        assert!(
            sets.iter_mut()
                .all(|(_, stream)| stream.try_recv().is_err())
        );
        turns += 1;
    }
    assert_eq!(turns, 10_000_usize.div_ceil(INDICES_PER_TURN));
    for (_, stream) in &mut sets {
        assert!(keys(stream).into_iter().eq(0..5_000));
    }
}

// Each turn once locked all sets that were due, which took the square of their number.
#[tokio::test(start_paused = true)]
async fn many_sets_of_one_are_told_in_as_few_turns_as_one_set() {
    let (mut actor, wheel) = start();
    let mut sets: Vec<_> = (0..5_000).map(|_| wheel.keyed::<u64, ()>()).collect();
    for (timers, _) in &sets {
        timers.set_timer(0, (), ms(5)).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    jump(ms(5));
    let mut cx = Context::from_waker(Waker::noop());
    let mut settled = Box::pin(wheel.settle());
    let mut turns = 0;
    while settled.as_mut().poll(&mut cx).is_pending() {
        step(&mut actor);
        turns += 1;
    }
    assert!(
        turns <= 5_000_usize.div_ceil(INDICES_PER_TURN) + 3,
        "{turns} turns"
    );
    let told = sets
        .iter_mut()
        .filter_map(|(_, stream)| stream.try_recv().ok());
    assert_eq!(told.count(), 5_000);
}

#[tokio::test(start_paused = true)]
async fn set_without_users_and_timers_is_forgotten() {
    let (mut actor, wheel) = start();
    let (timers, stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..3);
    assert_eq!(step(&mut actor), "wait");
    timers.remove_timer(&0).expect("it is open");
    drop((timers, stream));
    assert_eq!((actor.items(), known(&actor)), (3, 1));
    while step(&mut actor) == "again" {}
    assert_eq!((actor.items(), known(&actor)), (0, 0));

    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(0, (), ms(5)).expect("there is room");
    drop(timers);
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert!(stream.try_recv().is_ok());
    drop(stream);
    while step(&mut actor) == "again" {}
    assert_eq!(known(&actor), 0);
}

#[tokio::test(start_paused = true)]
async fn set_is_forgotten_while_a_part_of_its_due_timers_is_told() {
    let (mut actor, wheel) = start();
    let (timers, stream) = wheel.keyed::<u64, ()>();
    for key in 0..5_000 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    drop((timers, stream));
    while step(&mut actor) == "again" {}
    assert_eq!((actor.items(), known(&actor)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn moved_timers_come_after_earlier_ticks() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(300, (), ms(3)).expect("there is room");
    for key in 0..300 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    assert_eq!(step(&mut actor), "wait");
    timers.move_timer(&300, ms(9)).expect("it is open");
    jump(ms(10));
    while step(&mut actor) == "again" {}
    assert!(keys(&mut stream).into_iter().eq(0..=300));
}

#[tokio::test(start_paused = true)]
async fn keys_of_sets_dropped_when_they_are_due_are_used_again() {
    let (mut actor, wheel) = start();
    let mut sets: Vec<_> = (0..5_000).map(|_| wheel.keyed::<u64, ()>()).collect();
    for (timers, _) in &sets {
        timers.set_timer(0, (), ms(5)).expect("there is room");
        timers.set_timer(1, (), ms(500)).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    jump(ms(5));
    assert_eq!(step(&mut actor), "again", "some are told");
    let mut kept = sets.split_off(4_990);
    drop(sets);
    // Keys are given again only when nothing is left of the set before.
    for _ in 0..3 {
        kept.extend((0..500).map(|_| wheel.keyed::<u64, ()>()));
        step(&mut actor);
    }
    for (timers, _) in &kept {
        timers.set_timer(2, (), ms(1)).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    jump(ms(1));
    while step(&mut actor) == "again" {}
    assert_eq!(known(&actor), 1_510);
    assert!(wheel.shared().set_keys.draw().position() < 7_000);
    for (n, (_, stream)) in kept.iter_mut().enumerate() {
        let expected: &[u64] = if n < 10 { &[0, 2] } else { &[2] };
        assert_eq!(keys(stream), expected, "set {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_sets_are_forgotten_in_bounded_turns() {
    let (mut actor, wheel) = start();
    let sets: Vec<_> = (0..6_000).map(|_| wheel.keyed::<u64, ()>()).collect();
    for (timers, _) in &sets {
        timers.set_timer(0, (), FAR).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    drop(sets);
    let mut left = actor.keyed.wheel.len();
    let mut turns = 0;
    while step(&mut actor) == "again" {
        assert!(left - actor.keyed.wheel.len() <= 1_400);
        left = actor.keyed.wheel.len();
        turns += 1;
    }
    assert!((2..20).contains(&turns), "{turns} turns");
    assert_eq!((actor.items(), known(&actor)), (0, 0));
}

/// A long set is forgotten a part at a time, and its timers do not come meanwhile.
#[tokio::test(start_paused = true)]
async fn long_set_is_forgotten_in_bounded_turns() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    for key in 0..50_000 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    assert_eq!(timers.drain().expect("it is open").len(), 50_000);
    timers.set_timer(1, (), ms(6)).expect("there is room");
    jump(ms(10));
    let mut turns = 0;
    while step(&mut actor) == "again" {
        turns += 1;
    }
    assert!(
        turns >= 50_000 / (NODES_PER_TURN + INDICES_PER_TURN),
        "{turns}"
    );
    assert_eq!(keys(&mut stream), [1]);
    assert_eq!((actor.items(), known(&actor)), (0, 1));
}

/// A set is drained, and its actor ends before it knows the new key.
#[tokio::test(start_paused = true)]
async fn p15_set_that_is_drained_as_the_actor_ends_is_closed() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..3);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(timers.drain().expect("it is open").len(), 3);
    set_far(&timers, 3..5);
    drop(actor);
    assert!(timers.is_closed());
    assert_eq!(stream.unexpired().len(), 2);
    assert!(stream.recv().await.is_none());
}
