//! The receipt: what a hold of the lock touches, what is received, and in which order.

use super::*;

#[test]
fn hold_touches_one_batch_at_most() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    let batch = BATCH as usize;
    arm(&set, 0..1_000, 5);
    actor.reach(&shared, 5);
    // All hints are looked at first: the last one may be due first.
    for _ in 0..1_000 / batch {
        assert_eq!(set.receive(usize::MAX), (Receipt::More, vec![]));
    }
    let mut received = 0;
    loop {
        let (receipt, keys) = set.receive(usize::MAX);
        assert!(keys.len() <= batch);
        received += keys.len();
        if receipt != Receipt::More {
            break;
        }
    }
    assert_eq!(received, 1_000);
}

#[test]
fn receives_no_more_than_the_limit_over_several_batches() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..2_000, 5);
    actor.reach(&shared, 5);
    let mut out = Vec::new();
    let limits = [0, 1, 255, 256, 257, 512, 513];
    let mut recv = |limit| set.recv_more(&mut set.reader.borrow_mut(), limit, &mut out);
    for limit in limits {
        assert_eq!(recv(limit), limit);
    }
    let left = 2_000 - limits.iter().sum::<usize>();
    assert_eq!(recv(usize::MAX), left);
    assert!(out.iter().map(|expired| expired.key).eq(0..2_000));
}

#[test]
fn each_way_to_receive_takes_what_is_due_and_no_more() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    assert_eq!(set.try_recv(), Err(TryRecvError::Empty));
    arm(&set, 0..6, 5);
    arm(&set, 6..7, 6);
    actor.reach(&shared, 5);
    assert_eq!(set.poll(), Poll::Ready(Some(0)));
    assert_eq!(set.try_recv(), Ok(1));
    assert_eq!(set.receive(0), (Receipt::More, vec![]));
    assert_eq!(set.receive(2).1, [2, 3]);
    remove(&set, 4..5);
    assert_eq!(set.received(), [5]);
    assert_eq!(set.poll(), Poll::Pending);
    assert_eq!(set.try_recv(), Err(TryRecvError::Empty));
    let metrics = shared.metrics.0.read();
    assert_eq!((metrics.keyed_fired, metrics.keyed_removed), (5, 1));
    assert_eq!((metrics.keyed_pending, metrics.lateness.count()), (1, 5));
}

#[test]
fn due_timer_that_was_changed_comes_as_it_was_changed() {
    // With `found` the reader has found them due, and received one.
    for found in [false, true] {
        let (shared, set) = set();
        let mut actor = Actor::new();
        arm(&set, 0..5, 5);
        actor.reach(&shared, 5);
        if found {
            assert_eq!(set.try_recv(), Ok(0));
        } else {
            remove(&set, 0..1);
        }
        // Removed; removed and its index used again; moved later; moved earlier.
        remove(&set, 1..3);
        arm(&set, 8..9, 7);
        assert_eq!(set.move_to(hash(3), &3, tick(9)), Ok(true));
        assert_eq!(set.move_to(hash(4), &4, tick(2)), Ok(true));
        assert_eq!(actor.run(&set, 5..10), [(5, 4), (7, 8), (9, 3)], "{found}");
    }
}

/// K5: within a tick the first armed comes first, though the wheel reaches it last.
#[test]
fn p4_order_is_by_tick_and_number_whatever_the_wheel_reaches_first() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..3, 9);
    arm(&set, 3..6, 5);
    // They were armed first, and come from a higher level.
    arm(&set, 6..9, 1_000);
    arm(&set, 9..12, 8);
    for key in [6, 7, 8, 0] {
        assert_eq!(set.move_to(hash(key), &key, tick(8)), Ok(true));
    }
    actor.reach(&shared, 2_000);
    assert_eq!(set.received(), [3, 4, 5, 9, 10, 11, 6, 7, 8, 0, 1, 2]);
}

/// The wheel tells a tick in parts. What comes of another tick before it is received at once.
#[test]
fn p4_nothing_of_a_tick_is_received_before_all_of_it_is_told() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 1..2, 4);
    arm(&set, 2..8, 5);
    arm(&set, 0..1, 3);
    actor.apply_all(&shared);
    let mut turns = Vec::new();
    loop {
        let (before, _) = actor
            .wheel
            .fire(5, 3, Timestamp::MIN, &shared.told_before.0);
        turns.push(set.received());
        if before == 6 {
            break;
        }
    }
    assert_eq!(turns, [vec![0, 1], vec![], vec![2, 3, 4, 5, 6, 7]]);
}

/// Between the parts of a tick a caller arms one that is due before it.
#[test]
fn p4_timer_armed_between_the_parts_of_a_tick_keeps_its_place() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..6, 5);
    actor.apply_all(&shared);
    let (before, _) = actor
        .wheel
        .fire(5, 2, Timestamp::MIN, &shared.told_before.0);
    assert_eq!((before, set.received()), (5, vec![]));
    arm(&set, 6..7, 5);
    arm(&set, 7..8, 2);
    assert_eq!(set.move_to(hash(0), &0, tick(5)), Ok(true));
    actor.apply_all(&shared);
    while actor
        .wheel
        .fire(5, 2, Timestamp::MIN, &shared.told_before.0)
        .0
        < 6
    {}
    assert_eq!(set.received(), [7, 1, 2, 3, 4, 5, 6, 0]);
}

#[test]
fn hints_too_many_do_no_harm() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..3, 5);
    // The wheel reaches index 0 three times before the reader looks, and an index without a timer.
    for at in 5..8 {
        actor.reach(&shared, at);
        assert_eq!(set.move_to(hash(0), &0, tick(at + 4)), Ok(true));
        assert_eq!(set.move_to(hash(0), &0, tick(at + 1)), Ok(true));
    }
    remove(&set, 1..2);
    actor.reach(&shared, 8);
    assert_eq!(set.received(), [2, 0]);
    assert_eq!(actor.run(&set, 9..20), []);
}

#[tokio::test(start_paused = true)]
async fn repeating_timer_is_armed_again_as_it_is_received() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    assert!(set.set(hash(0), 0, (), tick(1), Some(repeat())).is_ok());
    actor.reach(&shared, 1);
    assert_eq!(actor.scheduled(), 0, "it waits for its reader");
    actor.reach(&shared, 100);
    assert_eq!(set.try_recv(), Ok(0));
    assert_eq!(actor.apply_all(&shared), 1);
    let metrics = shared.metrics.0.read();
    assert_eq!((metrics.keyed_set, metrics.keyed_fired), (2, 1));
}

/// A copy that cannot be made ends its timer, while the reader goes on.
#[test]
fn timer_that_cannot_be_copied_is_removed_as_it_is_received() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    let fails = Repeat {
        period: 1_000_000,
        clone: |_: &u64, _: &Plain<()>, _: &mut _| panic!("Clone panics"),
    };
    arm(&set, 0..1, 1);
    assert!(set.set(hash(1), 1, (), tick(1), Some(fails)).is_ok());
    arm(&set, 2..3, 1);
    actor.reach(&shared, 1);
    assert_eq!(set.received(), [0, 2]);
    assert_eq!(set.len(), 0);
    let metrics = shared.metrics.0.read();
    assert_eq!((metrics.keyed_fired, metrics.keyed_removed), (2, 1));
}

#[test]
fn next_deadline_counts_what_is_due_and_unreceived() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..1, 5);
    arm(&set, 1..2, 9);
    actor.reach(&shared, 6);
    let deadlines = || {
        let mut all = Vec::new();
        let look = |key: &u64, (): &mut (), deadline| {
            all.push((*key, deadline));
            true
        };
        set.retain(look).expect("it is open");
        all
    };
    assert_eq!(deadlines().len(), 2);
    assert_eq!(set.try_recv(), Ok(0));
    assert_eq!(deadlines(), [(1, shared.ticks.instant(tick(9)))]);
}
