//! The mailbox on one thread. Its models are in `model`.

use super::*;
use std::sync::atomic::AtomicUsize;

#[derive(Default)]
struct Count(AtomicUsize);

impl Notifier for Count {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn drain<C>(backlog: &mut CommandQueue<C>) -> Vec<C> {
    std::iter::from_fn(|| backlog.pop()).collect()
}

/// How often the actor was notified.
fn notified<C>(mailbox: &Mailbox<C, Count>) -> usize {
    mailbox.notifier.0.load(Ordering::Relaxed)
}

#[test]
fn notifies_once_and_only_for_a_tick_before_the_next_wake() {
    let mailbox = Mailbox::new(2, Count::default());
    assert!(mailbox.park(Some(10)));
    for tick in [10, 11, NEVER] {
        assert_eq!(mailbox.push(0, tick, ()), Ok(()));
    }
    assert_eq!(notified(&mailbox), 0);
    for tick in [9, 0] {
        assert_eq!(mailbox.push(1, tick, ()), Ok(()));
    }
    assert_eq!(notified(&mailbox), 1, "the second finds it awake");
}

#[test]
fn notifies_for_a_long_queue_whatever_the_tick() {
    let mailbox = Mailbox::new(1, Count::default());
    assert!(mailbox.park(None));
    for n in 1..=QUEUE_BOUND {
        assert_eq!(notified(&mailbox), 0, "after {} commands", n - 1);
        assert_eq!(mailbox.push(0, NEVER, n), Ok(()));
    }
    assert_eq!(notified(&mailbox), 1);
}

#[test]
fn sends_no_notification_when_it_only_enqueues() {
    let mailbox = Mailbox::new(1, Count::default());
    assert!(mailbox.park(None));
    for _ in 1..QUEUE_BOUND {
        assert_eq!(mailbox.enqueue(0, 7, ()), Ok(WakeBy::Tick(7)));
    }
    assert_eq!(mailbox.enqueue(0, 7, ()), Ok(WakeBy::Full), "it is full");
    assert_eq!(notified(&mailbox), 0);
    mailbox.wake(WakeBy::Full);
    assert_eq!(notified(&mailbox), 1);
}

#[test]
fn does_not_park_while_a_queue_holds_anything() {
    let mailbox = Mailbox::new(4, Count::default());
    assert_eq!(mailbox.push(3, 5, 'x'), Ok(()));
    assert!(!mailbox.park(Some(1)));
    let mut taken = CommandQueue::new();
    assert!(mailbox.take_all(&mut taken));
    assert_eq!(drain(&mut taken), ['x']);
    assert!(mailbox.park(Some(1)));
}

#[test]
fn has_a_queue_for_each_core_up_to_a_power_of_two() {
    for (cores, queues) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8)] {
        let mailbox = Mailbox::new(cores, Count::default());
        assert_eq!(mailbox.shards.len(), queues);
        for thread in 0..16 {
            assert_eq!(mailbox.push(thread, 5, thread), Ok(()));
        }
        for (n, shard) in mailbox.shards.iter().enumerate() {
            let threads: Vec<_> = (n..16).step_by(queues).collect();
            let mut taken = CommandQueue::new();
            if let Some(commands) = &mut *lock(&shard.0.queue) {
                taken.append(commands);
            }
            assert_eq!(drain(&mut taken), threads);
        }
    }
}

#[test]
fn appends_what_it_takes_in_order() {
    let mailbox = Mailbox::new(4, Count::default());
    for (thread, command) in [(3, 'f'), (1, 'c'), (1, 'd'), (3, 'g'), (2, 'e')] {
        assert_eq!(mailbox.push(thread, 5, command), Ok(()));
    }
    let mut taken = CommandQueue::new();
    taken.push(5, 'a');
    taken.push(5, 'b');
    assert!(mailbox.take_all(&mut taken));
    assert!(mailbox.take_all(&mut taken));
    assert_eq!(drain(&mut taken), ['a', 'b', 'c', 'd', 'e', 'f', 'g']);
}

#[test]
fn take_carries_the_earliest_tick_over() {
    let mailbox = Mailbox::new(2, Count::default());
    let mut backlog = CommandQueue::new();
    for (thread, tick, earliest) in [(0, 9, 9), (1, 7, 7), (0, 8, 7), (1, 3, 3)] {
        assert_eq!(mailbox.earliest(), NEVER);
        assert_eq!(mailbox.push(thread, tick, tick), Ok(()));
        assert_eq!(mailbox.push(thread, tick + 1, tick), Ok(()));
        assert_eq!(mailbox.earliest(), tick);
        mailbox.take_all(&mut backlog);
        assert_eq!(backlog.earliest(), earliest);
    }
    assert_eq!(drain(&mut backlog).len(), 8);
    assert_eq!(backlog.earliest(), NEVER);
}

#[test]
fn notifies_an_actor_that_runs_at_once_for_tick_zero_alone() {
    let mailbox = Mailbox::new(1, Count::default());
    assert!(mailbox.park(Some(0)));
    mailbox.wake(WakeBy::Tick(1));
    assert_eq!(notified(&mailbox), 0);
    mailbox.wake(WakeBy::Tick(0));
    assert_eq!(notified(&mailbox), 1);
    mailbox.wake(WakeBy::Now);
    assert_eq!(notified(&mailbox), 1, "it is awake");
    assert!(mailbox.park(Some(8)));
    mailbox.publish_awake();
    mailbox.wake(WakeBy::Now);
    assert_eq!(notified(&mailbox), 1, "it says that it is awake");
    assert_eq!(mailbox.push(0, 9, ()), Ok(()));
    assert!(!mailbox.park(Some(8)));
    mailbox.wake(WakeBy::Now);
    assert_eq!(notified(&mailbox), 1, "it goes on at once");
}

#[test]
fn notifies_once_each_time_a_queue_is_filled() {
    let mailbox = Mailbox::new(1, Count::default());
    for times in 1..=3 {
        assert!(mailbox.park(Some(1)));
        for _ in 0..=QUEUE_BOUND {
            assert_eq!(mailbox.push(0, NEVER, ()), Ok(()));
        }
        assert_eq!(notified(&mailbox), times);
        mailbox.take_all(&mut CommandQueue::new());
    }
}

#[test]
fn another_caller_notifies_for_one_that_is_preempted() {
    let mailbox = Mailbox::new(1, Count::default());
    assert!(mailbox.park(Some(1)));
    for _ in 0..QUEUE_BOUND {
        assert!(mailbox.enqueue(0, NEVER, ()).is_ok());
    }
    for _ in 0..CHECK_EVERY {
        assert_eq!(notified(&mailbox), 0);
        assert_eq!(mailbox.push(0, NEVER, ()), Ok(()));
    }
    assert_eq!(notified(&mailbox), 1);
}

#[test]
fn gives_a_command_back_after_the_end() {
    let mailbox = Mailbox::new(2, Count::default());
    assert_eq!(mailbox.push(0, 5, 'a'), Ok(()));
    assert_eq!(mailbox.push(1, 5, 'c'), Ok(()));
    let mut left = CommandQueue::new();
    left.push(5, 'x');
    mailbox.close(&mut left);
    assert_eq!(drain(&mut left), ['x', 'a', 'c']);
    assert_eq!(mailbox.push(0, 5, 'b'), Err('b'));
    assert_eq!(mailbox.enqueue(0, 5, 'b'), Err('b'));
}

// The actor once waited for the lock of a queue, and its holder may be preempted.
#[test]
fn p11_actor_leaves_a_queue_that_is_locked() {
    let mailbox = Mailbox::new(2, Count::default());
    assert_eq!(mailbox.push(0, 5, 'a'), Ok(()));
    assert_eq!(mailbox.push(1, 7, 'b'), Ok(()));
    let mut taken = CommandQueue::new();
    let held = lock(&mailbox.shard(0).queue);
    assert!(!mailbox.take_all(&mut taken));
    assert!(!mailbox.park(Some(9)), "it is about to hold something");
    assert_eq!(taken.len(), 1);
    assert_eq!(mailbox.earliest(), 5, "for the command that is left");
    drop(held);
    assert!(mailbox.take_all(&mut taken));
    assert_eq!((mailbox.earliest(), taken.earliest()), (NEVER, 5));
    assert_eq!(drain(&mut taken), ['b', 'a']);
    assert!(mailbox.park(Some(9)));
}

#[test]
fn caller_gives_way_now_and_then_while_its_queue_is_long() {
    let mailbox = Mailbox::new(1, Count::default());
    let pushed = (1..=QUEUE_BOUND + 8 * CHECK_EVERY).map(|_| mailbox.enqueue(0, 5, ()).unwrap());
    let gave_way = pushed.filter(|&by| by == WakeBy::Full).count();
    assert_eq!(gave_way, 9, "not before it is long");
}

// A flood of overdue timers once kept everything from firing.
#[test]
fn overdue_command_counts_as_needed_by_the_published_clock() {
    let mailbox = Mailbox::new(1, Count::default());
    for (now, tick, needed) in [
        (0, 0, 0),
        (50, 49, 50),
        (50, 0, 50),
        (60, 60, 60),
        (60, 61, 61),
    ] {
        mailbox.set_clock(now);
        assert_eq!(mailbox.push(0, tick, ()), Ok(()));
        assert_eq!(mailbox.earliest(), needed);
        let mut taken = CommandQueue::new();
        assert!(mailbox.take_all(&mut taken));
        assert_eq!(taken.earliest(), needed);
    }
}
