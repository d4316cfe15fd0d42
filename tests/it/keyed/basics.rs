//! Setting, moving, removing and draining: which timers fire, when, and in which order.

use std::collections::HashMap;
use std::sync::Arc;

use tickwheel::{Expirations, TimerWheel};
use tokio::time::{self, Instant};

use crate::support::{advance, assert_balanced, ms, received, timed};

#[tokio::test(start_paused = true)]
async fn fires_once_with_the_second_value_when_set_again() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    assert_eq!(timers.set_timer('k', 1, ms(4)), Ok(None));
    assert_eq!(timers.set_timer('k', 2, ms(7)), Ok(Some(1)));
    assert_eq!(timers.len(), 1);
    assert_eq!(timed(&mut stream, start, 1).await, [('k', 2, 7)]);
    advance(&wheel, ms(1000)).await;
    assert_eq!(received(&mut stream), []);

    let start = Instant::now();
    assert_eq!(timers.set_timer('k', 3, ms(7)), Ok(None), "it has expired");
    assert_eq!(timers.set_timer('k', 4, ms(4)), Ok(Some(3)));
    assert_eq!(timed(&mut stream, start, 1).await, [('k', 4, 4)]);
    advance(&wheel, ms(1000)).await;
    assert_eq!(received(&mut stream), []);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p5_moved_timer_fires_only_at_its_new_deadline() {
    // Each pair is (set to, moved to); with `pause` the actor sees the first deadline before the
    // move.
    let pairs = [
        (4, 7),
        (4, 2),
        (4, 4),
        (1, 1000),
        (1000, 1),
        (63, 64),
        (64, 63),
        (4097, 64),
    ];
    for (from, to) in pairs {
        for pause in [false, true] {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed();
            let start = Instant::now();
            timers.set_timer((), "v", ms(from)).unwrap();
            if pause {
                wheel.settle().await;
            }
            assert_eq!(timers.move_timer(&(), ms(to)), Ok(true));
            assert_eq!(timers.deadline(&()), Some(start + ms(to)));
            let fired = timed(&mut stream, start, 1).await;
            assert_eq!(
                fired,
                [((), "v", u128::from(to))],
                "{from} -> {to}, {pause}"
            );
            advance(&wheel, ms(10_000)).await;
            assert_eq!(received(&mut stream), [], "{from} -> {to}, {pause}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p5_last_of_many_moves_counts() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_timer(1, (), ms(500)).unwrap();
    for to in [900, 20, 700, 10, 800, 30, 300] {
        wheel.settle().await;
        assert_eq!(timers.move_timer_at(&1, start + ms(to)), Ok(true));
    }
    assert_eq!(timed(&mut stream, start, 1).await, [(1, (), 300)]);
    assert_eq!(wheel.metrics().keyed_moved, 7);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn ignores_moving_or_removing_an_unknown_key() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, ()>();
    assert_eq!(timers.move_timer(&1, ms(0)), Ok(false));
    assert_eq!(timers.move_timer_at(&1, Instant::now()), Ok(false));
    assert_eq!(timers.remove_timer(&1), Ok(None));
    assert_eq!(timers.deadline(&1), None);
    assert!(!timers.contains(&1));
    timers.set_timer(2, (), ms(3)).unwrap();
    assert!(timers.contains(&2));
    assert_eq!(timers.remove_timer(&1), Ok(None));
    assert_eq!(timers.len(), 1, "another key's timer stays");
    advance(&wheel, ms(10)).await;
    assert_eq!(received(&mut stream), [(2, ())]);
    assert!(!timers.contains(&2));
    assert_eq!(timers.move_timer(&2, ms(5)), Ok(false));
    advance(&wheel, ms(10)).await;
    assert_eq!(
        received(&mut stream),
        [],
        "a fired timer is not moved back to life"
    );
    let m = wheel.metrics();
    assert_eq!((m.keyed_set, m.keyed_moved, m.keyed_removed), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn p6_removed_timer_never_fires() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for settle in 0..8 {
        let maybe_settle = async |bit: u32| {
            if settle >> bit & 1 == 1 {
                wheel.settle().await;
            }
        };
        timers.set_timer(settle, (), ms(4)).unwrap();
        maybe_settle(0).await;
        timers.move_timer(&settle, ms(9)).unwrap();
        maybe_settle(1).await;
        assert_eq!(timers.remove_timer(&settle), Ok(Some(())));
        maybe_settle(2).await;
        assert_eq!(timers.len(), 0);
    }
    advance(&wheel, ms(100_000)).await;
    assert_eq!(received(&mut stream), []);
    assert_eq!(wheel.metrics().keyed_removed, 8);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p6_remove_timer_takes_a_timer_until_it_is_received() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(1, "pending", ms(5)).unwrap();
    timers.set_timer(2, "due", ms(5)).unwrap();
    timers.set_timer(3, "received", ms(5)).unwrap();
    assert_eq!(timers.remove_timer(&1), Ok(Some("pending")));
    assert_eq!(timers.remove_timer(&1), Ok(None));
    advance(&wheel, ms(5)).await;
    assert_eq!(timers.len(), 2, "what is due and unreceived counts");
    assert_eq!(timers.remove_timer(&2), Ok(Some("due")));
    assert_eq!(received(&mut stream), [(3, "received")]);
    assert_eq!(timers.remove_timer(&3), Ok(None));
    assert_eq!(wheel.metrics().keyed_fired, 1);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p6_remove_timer_takes_a_due_timer_not_yet_processed() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(1, 'x', ms(0)).unwrap();
    // The actor has not had a turn.
    assert_eq!(timers.remove_timer(&1), Ok(Some('x')));
    wheel.settle().await;
    assert_eq!(received(&mut stream), []);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn drains_all_once_earliest_first_and_fires_later_ones() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    for (key, delay) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
        timers.set_timer(key, key * 100, ms(delay)).unwrap();
    }
    timers.move_timer(&2, ms(10)).unwrap();
    let drained = timers.drain().unwrap();
    let drained: Vec<_> = (drained.iter())
        .map(|e| (e.key, e.value, e.deadline - start))
        .collect();
    assert_eq!(
        drained,
        [
            (4, 400, ms(10)),
            (2, 200, ms(10)),
            (3, 300, ms(20)),
            (1, 100, ms(30))
        ],
        "of one deadline the first armed comes first, and the move armed 2 again"
    );
    assert_eq!(timers.drain(), Ok(vec![]));
    assert!(timers.is_empty());

    let start = Instant::now();
    timers.set_timer(2, 5, ms(10)).unwrap();
    assert!(!timers.is_empty());
    assert_eq!(timed(&mut stream, start, 1).await, [(2, 5, 10)]);
    advance(&wheel, ms(1000)).await;
    assert_eq!(received(&mut stream), []);
    assert_eq!(wheel.metrics().keyed_drained, 4);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn drain_takes_what_is_due_and_unreceived() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(1, (), ms(1)).unwrap();
    timers.set_timer(2, (), ms(9)).unwrap();
    timers.set_timer(3, (), ms(1)).unwrap();
    advance(&wheel, ms(1)).await;
    // The reader has found both of them due.
    assert_eq!(stream.try_recv().unwrap().key, 1);
    let drained = timers.drain().unwrap();
    assert_eq!(drained.iter().map(|e| e.key).collect::<Vec<_>>(), [3, 2]);
    // Another timer in the slot of one that was found due is none of it.
    timers.set_timer(4, (), ms(1)).unwrap();
    assert_eq!(received(&mut stream), []);
    advance(&wheel, ms(1)).await;
    assert_eq!(received(&mut stream), [(4, ())]);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p4_timers_of_one_tick_expire_in_order_of_arming() {
    let wheel = TimerWheel::builder().tick(ms(10)).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    // Deadlines within the tick decrease: only the arming counts.
    for key in 0..10 {
        timers.set_timer(key, key + 100, ms(30 - key)).unwrap();
    }
    // A move counts as arming again, and so does setting again.
    timers.move_timer(&3, ms(25)).unwrap();
    timers.set_timer(5, 555, ms(21)).unwrap();
    advance(&wheel, ms(29)).await;
    assert_eq!(received(&mut stream), [], "the tick has not begun");
    advance(&wheel, ms(1)).await;
    let order = [0, 1, 2, 4, 6, 7, 8, 9, 3, 5];
    let expected = order.map(|key| (key, if key == 5 { 555 } else { key + 100 }));
    assert_eq!(received(&mut stream), expected);
}

#[tokio::test(start_paused = true)]
async fn p4_moved_timer_expires_after_those_armed_before() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer('a', (), ms(5)).unwrap();
    timers.set_timer('b', (), ms(700)).unwrap();
    timers.set_timer('c', (), ms(9000)).unwrap();
    wheel.settle().await;
    // `a` is on the wheel at 5, `c` is moved earlier from a higher level, and `b` stays.
    timers.move_timer(&'c', ms(700)).unwrap();
    timers.move_timer(&'a', ms(700)).unwrap();
    timers.set_timer('d', (), ms(700)).unwrap();
    advance(&wheel, ms(700)).await;
    let keys: Vec<_> = received(&mut stream).into_iter().map(|(k, ())| k).collect();
    assert_eq!(keys, ['b', 'c', 'a', 'd']);
}

#[tokio::test(start_paused = true)]
async fn fires_fifty_timers_of_ten_rounds_once_each() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let mut seen = HashMap::new();
    for round in 0..10 {
        for key in 0..50_u64 {
            timers.set_timer(key, round, ms(key * 7 % 50 + 1)).unwrap();
        }
        for (key, value) in timed(&mut stream, Instant::now(), 50)
            .await
            .into_iter()
            .map(|t| (t.0, t.1))
        {
            assert_eq!(value, round);
            *seen.entry(key).or_insert(0) += 1;
        }
        assert!(timers.is_empty());
    }
    assert_eq!(seen.len(), 50);
    assert!(seen.values().all(|&n| n == 10));
    advance(&wheel, ms(1000)).await;
    assert_eq!(received(&mut stream), []);
}

#[tokio::test(start_paused = true)]
async fn delivers_an_already_expired_timer_on_the_next_turn() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    time::advance(ms(100)).await;
    let now = Instant::now();
    for back in [1, 5, 3, 0, 2, 4] {
        timers.set_timer_at(back, (), now - ms(back)).unwrap();
    }
    timers.set_timer(9, (), ms(0)).unwrap();
    assert_eq!(
        received(&mut stream),
        [],
        "a caller never fires timers itself"
    );
    wheel.settle().await;
    assert_eq!(Instant::now(), now);
    let keys: Vec<_> = received(&mut stream).into_iter().map(|(k, ())| k).collect();
    assert_eq!(keys, [5, 4, 3, 2, 1, 0, 9]);
}

#[tokio::test(start_paused = true)]
async fn p4_many_timers_expire_sorted_and_on_time() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let mut deadlines: Vec<u64> = (10..100).flat_map(|d| [d, d]).collect();
    deadlines.extend((0..5).chain(100..500));
    let n = deadlines.len();
    let start = Instant::now();
    // Stepping by a number that shares no factor with the length visits all, shuffled.
    for i in 0..n {
        let delay = deadlines[i * 7919 % n];
        timers.set_timer(i, delay, ms(delay)).unwrap();
    }
    let fired = timed(&mut stream, start, n).await;
    assert!(fired.iter().all(|&(_, delay, at)| u128::from(delay) == at));
    assert!(fired.is_sorted_by_key(|&(key, delay, _)| (delay, key)));
    assert!(timers.is_empty());
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn set_timer_replaces_a_timer_that_is_due_and_unreceived() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_timer("k", 1, ms(3)).unwrap();
    timers.set_timer("other", 1, ms(3)).unwrap();
    advance(&wheel, ms(3)).await;
    assert_eq!(timers.deadline("k"), Some(start + ms(3)));
    assert_eq!(timers.set_timer("k", 2, ms(4)), Ok(Some(1)));
    assert_eq!(timers.len(), 2);
    assert_eq!(timers.deadline("k"), Some(start + ms(7)));
    // The reader has found this one due.
    assert_eq!(received(&mut stream), [("other", 1)]);
    assert_eq!(timed(&mut stream, start, 1).await, [("k", 2, 7)]);
    advance(&wheel, ms(100)).await;
    assert_eq!(received(&mut stream), []);
}

#[tokio::test(start_paused = true)]
async fn p5_move_timer_moves_a_timer_that_is_due_and_unreceived() {
    // With `found` the reader knows that the timer is due.
    for found in [false, true] {
        for to in [4, 0] {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed();
            timers.set_timer(0, (), ms(3)).unwrap();
            timers.set_timer(1, (), ms(3)).unwrap();
            timers.set_timer(2, (), ms(3)).unwrap();
            advance(&wheel, ms(3)).await;
            if found {
                assert_eq!(received_one(&mut stream), Some(0));
            }
            assert_eq!(timers.move_timer(&1, ms(to)), Ok(true));
            if !found {
                assert_eq!(received_one(&mut stream), Some(0));
            }
            assert_eq!(received_one(&mut stream), Some(2), "moved, it comes later");
            let start = Instant::now();
            assert_eq!(timed(&mut stream, start, 1).await, [(1, (), to.into())]);
            assert_eq!(timers.move_timer(&1, ms(4)), Ok(false), "it has expired");
            assert_balanced(&wheel);
        }
    }
}

fn received_one(stream: &mut Expirations<u32, ()>) -> Option<u32> {
    stream.try_recv().ok().map(|expired| expired.key)
}

/// The reader knows as many timers as are due; one call after the other takes them from it.
#[tokio::test(start_paused = true)]
async fn p6_every_call_wins_until_a_timer_is_received() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..1_000 {
        timers.set_timer(key, (), ms(5)).unwrap();
    }
    advance(&wheel, ms(10)).await;
    let mut expected = Vec::new();
    for key in 0..100 {
        assert_eq!(received_one(&mut stream), Some(key));
        expected.push(key);
    }
    for key in 0..1_000 {
        let is_left = key >= 100;
        match key % 5 {
            0 => assert_eq!(timers.remove_timer(&key).unwrap().is_some(), is_left),
            1 => assert_eq!(timers.move_timer(&key, ms(100)), Ok(is_left)),
            2 => assert_eq!(
                timers.set_timer(key, (), ms(200)).unwrap().is_some(),
                is_left
            ),
            3 => assert_eq!(timers.contains(&key), is_left),
            _ => assert_eq!(
                timers.set_if_absent(key, (), ms(300)).unwrap().is_some(),
                is_left
            ),
        }
    }
    expected.extend((100..1_000).filter(|key| key % 5 >= 3));
    timers.retain(|&key, (), _| key % 10 != 9).unwrap();
    expected.retain(|&key| key < 100 || key % 10 != 9);
    let rest = received(&mut stream).into_iter().map(|(key, ())| key);
    assert!(rest.eq(expected[100..].iter().copied()));
    assert_eq!(wheel.metrics().keyed_fired, expected.len() as u64);
    assert_balanced(&wheel);
    // The others come at their new deadlines, and once.
    advance(&wheel, ms(1_000)).await;
    let keys: Vec<_> = received(&mut stream).into_iter().map(|(k, ())| k).collect();
    let later = |rest| (0..1_000).filter(move |key| key % 5 == rest && key % 10 != 9);
    let expected = later(1).filter(|key| *key >= 100).chain(later(2));
    let expected: Vec<_> = expected.chain(later(4).filter(|key| *key < 100)).collect();
    assert_eq!(keys, expected);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p1_p2_timers_are_never_early_and_less_than_a_tick_late() {
    for tick in [1, 7, 10, 1000] {
        let wheel = TimerWheel::builder()
            .tick(ms(tick))
            .slots(4)
            .start()
            .unwrap();
        let (timers, mut stream) = wheel.keyed();
        for delay in [
            0, 1, 3, 9, 10, 11, 63, 64, 65, 900, 1000, 1001, 4095, 4096, 4097, 99_999,
        ] {
            let start = Instant::now();
            timers.set_timer((), (), ms(delay)).unwrap();
            let expired = stream.recv().await.unwrap();
            assert_eq!(expired.deadline, start + ms(delay));
            let late = start.elapsed().checked_sub(ms(delay)).expect("never early");
            assert!(
                late < ms(tick),
                "tick {tick}, delay {delay}: late by {late:?}"
            );
            time::advance(ms(delay % 5 + 1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn drops_the_value_of_a_timer_removed_replaced_or_lost() {
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed();
    let value = Arc::new(());
    let count = || Arc::strong_count(&value) - 1;
    for key in 0..6 {
        timers.set_timer(key, Arc::clone(&value), ms(10)).unwrap();
    }
    wheel.settle().await;
    assert_eq!(count(), 6);
    timers.remove_timer(&0).unwrap();
    assert_eq!(count(), 5, "removed");
    timers.set_timer(1, Arc::new(()), ms(10)).unwrap();
    assert_eq!(count(), 4, "replaced");
    drop(timers.remove_timer(&2));
    assert_eq!(count(), 3, "taken");
    advance(&wheel, ms(10)).await;
    timers.set_timer(7, Arc::clone(&value), ms(10)).unwrap();
    assert_eq!(count(), 4, "three are due and one is pending");
    drop(stream);
    assert_eq!(count(), 0, "the stream dropped, read and unread");
}

#[tokio::test(start_paused = true)]
async fn stores_a_key_once_and_drops_the_others() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let key = Arc::new(5);
    for n in 0..10 {
        timers.set_timer(Arc::clone(&key), n, ms(10)).unwrap();
        timers.move_timer(&key, ms(20)).unwrap();
    }
    assert_eq!(Arc::strong_count(&key), 2);
    let expired = stream.recv().await.unwrap();
    assert!(Arc::ptr_eq(&expired.key, &key));
    assert_eq!(expired.value, 9);
    drop(expired);
    assert_eq!(Arc::strong_count(&key), 1);
}

#[tokio::test(start_paused = true)]
async fn next_deadline_is_that_of_the_timer_that_expires_next() {
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed();
    assert_eq!(timers.next_deadline(), None);
    let start = Instant::now();
    // More than are visited under one hold of the lock.
    for n in 0..1000_u64 {
        timers.set_timer(n, (), ms(5000 - n)).unwrap();
    }
    assert_eq!(timers.next_deadline(), Some(start + ms(4001)));
    timers.move_timer(&500, ms(7)).unwrap();
    assert_eq!(timers.next_deadline(), Some(start + ms(7)));
    timers.remove_timer(&500).unwrap();
    assert_eq!(timers.next_deadline(), Some(start + ms(4001)));
    drop(stream);
    assert_eq!(timers.next_deadline(), None);
}

#[tokio::test(start_paused = true)]
async fn get_with_reads_a_value_that_is_not_clone() {
    struct NotClone(u32);

    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed::<String, NotClone>();
    assert!(timers.set_timer("k".to_owned(), NotClone(7), ms(1)).is_ok());
    assert_eq!(timers.get_with("k", |value| value.0), Some(7));
    assert_eq!(timers.get_with("other", |value| value.0), None);
    let read = || timers.get_with("k", |_| panic!("a reader's own affair"));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    assert!(panic.is_err());
    assert!(
        timers.move_timer("k", ms(2)).unwrap(),
        "the set is as it was"
    );
}
