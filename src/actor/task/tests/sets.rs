//! Sets of keyed timers: the order in which they are delivered, and their end.

use super::*;

#[tokio::test(start_paused = true)]
async fn delivers_sets_that_are_due_together_by_turns() {
    let (mut actor, wheel) = start();
    let mut sets: Vec<_> = (0..2).map(|_| wheel.keyed::<u64, ()>()).collect();
    for key in 0..350 {
        for (timers, _) in &sets {
            timers.set_timer(key, (), ms(5)).expect("there is room");
        }
    }
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    let mut received = [0_usize; 2];
    let mut turns = 0;
    while received != [350; 2] {
        step(&mut actor);
        turns += 1;
        for (n, (_, stream)) in received.iter_mut().zip(&mut sets) {
            while stream.try_recv().is_ok() {
                *n += 1;
            }
        }
        assert!(received[0].abs_diff(received[1]) <= 256, "{received:?}");
    }
    assert!(turns <= 5, "{turns} turns");
}

#[tokio::test(start_paused = true)]
async fn drops_a_set_without_users_and_timers() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let (timers, stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..3);
    assert_eq!(step(&mut actor), "wait");
    timers.remove_timer(&0).expect("it is open");
    drop((timers, stream));
    assert_eq!((actor.items(), shared.sets.len()), (3, 1));
    while step(&mut actor) == "again" {}
    assert_eq!((actor.items(), shared.sets.len()), (0, 0));

    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(0, (), ms(5)).expect("there is room");
    drop(timers);
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert!(stream.try_recv().is_ok());
    drop(stream);
    while step(&mut actor) == "again" {}
    assert_eq!(shared.sets.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn drops_a_set_after_its_due_timers() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let (timers, stream) = wheel.keyed::<u64, ()>();
    for key in 0..300 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    drop((timers, stream));
    while step(&mut actor) == "again" {}
    assert_eq!((actor.items(), shared.sets.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn delivers_moved_timers_after_earlier_ticks() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(300, (), ms(3)).expect("there is room");
    for key in 0..300 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    assert_eq!(step(&mut actor), "wait");
    timers.move_timer(&300, ms(9)).expect("it is open");
    jump(ms(10));
    assert_eq!(step(&mut actor), "again");
    while step(&mut actor) == "again" {}
    for key in 0..=300 {
        assert_eq!(stream.try_recv().map(|fired| fired.key), Ok(key));
    }
}

#[tokio::test(start_paused = true)]
async fn settles_when_all_of_many_due_sets_have_delivered() {
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
        assert!(turns <= 100, "{turns} turns");
    }
    let received = sets
        .iter_mut()
        .filter_map(|(_, stream)| stream.try_recv().ok());
    assert_eq!(received.count(), 5_000);
}

#[tokio::test(start_paused = true)]
async fn forgets_many_sets_that_are_dropped_when_they_are_due() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let mut sets: Vec<_> = (0..2_000).map(|_| wheel.keyed::<u64, ()>()).collect();
    for (timers, _) in &sets {
        timers.set_timer(0, (), ms(5)).expect("there is room");
        timers.set_timer(1, (), ms(500)).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    let mut kept = sets.split_off(1_990);
    drop(sets);
    // Keys are given again only when nothing is left of the set before.
    kept.extend((0..1_000).map(|_| wheel.keyed::<u64, ()>()));
    for (timers, _) in &kept {
        timers.set_timer(2, (), ms(1)).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    jump(ms(1));
    while step(&mut actor) == "again" {}
    assert_eq!(shared.sets.len(), 1_010);
    for (n, (_, stream)) in kept.iter_mut().enumerate() {
        let keys: Vec<_> = std::iter::from_fn(|| stream.try_recv().ok())
            .map(|fired| fired.key)
            .collect();
        let expected: &[u64] = if n < 10 { &[0, 2] } else { &[2] };
        assert_eq!(keys, expected, "set {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn forgets_many_sets_in_bounded_turns() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let sets: Vec<_> = (0..2_000).map(|_| wheel.keyed::<u64, ()>()).collect();
    for (timers, _) in &sets {
        timers.set_timer(0, (), FAR).expect("there is room");
    }
    while step(&mut actor) == "again" {}
    drop(sets);
    let mut left = shared.sets.len();
    while step(&mut actor) == "again" {
        assert!(left - shared.sets.len() <= 256);
        left = shared.sets.len();
    }
    assert_eq!((actor.items(), shared.sets.len()), (0, 0));
}
