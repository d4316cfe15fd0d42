//! Loom models of the wake rule and the earliest tick. [`crate::model`] explains such models.
//!
//! Each model names changes that make it fail, of `mailbox.rs` unless it says otherwise; each
//! change was tried.

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::{AWAKE, CommandQueue, Mailbox, QUEUE_BOUND};
use crate::model::{Actor, ActorNotifier, Shared, Wakes, check};
use crate::shared::entry::{Entry, EntryArc, Phase};
use crate::sync::atomic::Ordering;
use crate::tick::NEVER;

const FAR: u64 = 10_000;

/// A command is the tick by which it is needed.
type Mail = Mailbox<u64, ActorNotifier>;

fn mail(queues: usize) -> Arc<Mail> {
    Arc::new(Mailbox::new(queues, ActorNotifier::default()))
}

/// Everything that is queued now.
fn take(mail: &Mail) -> Vec<u64> {
    let mut taken = CommandQueue::new();
    mail.take_all(&mut taken);
    all(taken)
}

fn all(mut taken: CommandQueue<u64>) -> Vec<u64> {
    std::iter::from_fn(|| taken.pop()).collect()
}

/// The state of the actor: the commands that it took, and whether it waits now.
struct Parked {
    taken: Vec<u64>,
    waits: bool,
}

/// The actor takes all commands and parks, once for each of `next_wakes`. After each time but the
/// last it wakes up by itself.
fn park(mail: &Mail, next_wakes: &[Option<u64>]) -> Parked {
    let mut taken = Vec::new();
    let mut waits = false;
    for &next_wake in next_wakes {
        mail.publish_awake();
        taken.extend(take(mail));
        waits = mail.park(next_wake);
    }
    Parked { taken, waits }
}

/// Asserts, once all threads have ended, that none of the `pushed` commands was missed: the actor
/// has it, or is awake and is going to take it, or was notified, or wakes by itself in time. The
/// actor gets each command once.
fn assert_none_missed(mail: &Mail, actor: Parked, pushed: &[u64]) {
    let next_wake = mail.published.0.next_wake.load(Ordering::SeqCst);
    let wakes_by = |tick| next_wake != AWAKE && next_wake <= tick;
    assert!(actor.waits || next_wake == AWAKE);
    for &tick in pushed {
        assert!(
            !actor.waits
                || actor.taken.contains(&tick)
                || mail.notifier().has_permit()
                || wakes_by(tick),
            "{tick} is missed, the actor waits until {next_wake}"
        );
    }
    let mut taken = actor.taken;
    taken.extend(take(mail));
    taken.sort_unstable();
    assert_eq!(taken, pushed);
}

/// A command is pushed, for a tick before the next wake-up, at it, or after it, while the actor
/// parks.
///
/// Fails without [`Mailbox::wake`] after the push; without the check of the queues in
/// [`Mailbox::park`], or if that comes before the publication; without `self.publish_awake()`
/// there; without the notification in `wake`; if `wake` compares the other way, or with `<=`; if
/// `next_wake` of `None` is published as 0.
#[test]
fn push_against_park() {
    for (next_wake, tick) in [
        (Some(5), 4),
        (Some(5), 5),
        (Some(5), NEVER),
        (Some(1), 0),
        (None, 9),
    ] {
        check(None, move || {
            let mail = mail(1);
            let actor = thread::spawn({
                let mail = Arc::clone(&mail);
                move || park(&mail, &[next_wake])
            });
            assert_eq!(mail.push(0, tick, tick), Ok(()));
            let actor = actor.join().unwrap();
            assert_none_missed(&mail, actor, &[tick]);
            let is_early = next_wake.is_none_or(|next_wake| tick < next_wake);
            assert!(
                is_early || mail.notifier().notified() == 0,
                "woken for nothing"
            );
        });
    }
}

/// Two threads push for early ticks, each into its own queue, while the actor parks: one of them
/// notifies it.
///
/// Fails if `claim` stores instead of exchanging, in that both notify, and if [`Mailbox::park`]
/// checks the first queue alone, or [`Mailbox::take_all`] takes it alone.
#[test]
fn two_callers_against_park() {
    check(None, || {
        let mail = mail(2);
        let actor = thread::spawn({
            let mail = Arc::clone(&mail);
            move || park(&mail, &[Some(5)])
        });
        let other = thread::spawn({
            let mail = Arc::clone(&mail);
            move || mail.push(1, 4, 4)
        });
        assert_eq!(mail.push(0, 3, 3), Ok(()));
        assert_eq!(other.join().unwrap(), Ok(()));
        let actor = actor.join().unwrap();
        assert_none_missed(&mail, actor, &[3, 4]);
        assert!(mail.notifier().notified() <= 1, "notified twice");
    });
}

/// The actor wakes up by itself and parks again, for the same tick or a later one, while a command
/// is pushed: the exchange in `claim` may fail, or succeed for the later parking, and neither loses
/// the command.
///
/// Fails if [`Mailbox::park`] checks the queues before it publishes.
#[test]
fn push_against_parking_again() {
    for second in [5, 7] {
        for tick in [4, 6] {
            check(None, move || {
                let mail = mail(1);
                let actor = thread::spawn({
                    let mail = Arc::clone(&mail);
                    move || park(&mail, &[Some(5), Some(second)])
                });
                assert_eq!(mail.push(0, tick, tick), Ok(()));
                let actor = actor.join().unwrap();
                assert_none_missed(&mail, actor, &[tick]);
            });
        }
    }
}

/// Two threads push, and one takes.
///
/// Fails with the same change. At most three preemptions.
#[test]
fn two_callers_against_parking_again() {
    check(Some(3), || {
        let mail = mail(1);
        let actor = thread::spawn({
            let mail = Arc::clone(&mail);
            move || park(&mail, &[Some(5), Some(5)])
        });
        let other = thread::spawn({
            let mail = Arc::clone(&mail);
            move || mail.push(0, 4, 4)
        });
        assert_eq!(mail.push(0, 3, 3), Ok(()));
        assert_eq!(other.join().unwrap(), Ok(()));
        let actor = actor.join().unwrap();
        assert_none_missed(&mail, actor, &[3, 4]);
        assert!(
            mail.notifier().notified() <= 2,
            "notified more often than parked"
        );
    });
}

/// Commands that are needed late fill a queue while the actor parks: a full queue does not wait for
/// their tick.
///
/// Fails if [`Mailbox::enqueue`] returns the tick of a long queue too. At most three preemptions.
#[test]
fn a_full_queue_against_park() {
    check(Some(3), || {
        let mail = mail(1);
        let actor = thread::spawn({
            let mail = Arc::clone(&mail);
            move || park(&mail, &[Some(5)])
        });
        let other = thread::spawn({
            let mail = Arc::clone(&mail);
            move || mail.push(0, NEVER, 7)
        });
        for _ in 1..QUEUE_BOUND {
            assert_eq!(mail.push(0, NEVER, 8), Ok(()));
        }
        assert_eq!(other.join().unwrap(), Ok(()));
        let actor = actor.join().unwrap();
        if actor.waits && actor.taken.is_empty() {
            assert!(mail.notifier().has_permit(), "full, and left until tick 5");
        }
    });
}

/// The actor ends while two threads push: each command is either returned or taken by the actor.
///
/// Fails if [`Mailbox::close`] does not take the queue, and if [`Mailbox::enqueue`] does not
/// check it.
#[test]
fn push_against_close() {
    check(None, || {
        let mail = mail(2);
        let actor = thread::spawn({
            let mail = Arc::clone(&mail);
            move || {
                let mut left = CommandQueue::new();
                mail.close(&mut left);
                all(left)
            }
        });
        let other = thread::spawn({
            let mail = Arc::clone(&mail);
            move || mail.push(1, 4, 4)
        });
        let mine = mail.push(0, 3, 3);
        let others = other.join().unwrap();
        let left = actor.join().unwrap();
        for (pushed, command) in [(mine, 3), (others, 4)] {
            let handed_over = left.iter().filter(|&&c| c == command).count();
            assert_eq!(
                pushed.map_or_else(|c| usize::from(c == command), |()| 0) + handed_over,
                1
            );
        }
        assert!(take(&mail).is_empty());
    });
}

/// An entry was queued for a late tick, without a notification. It is needed earlier while the
/// actor takes it out, schedules it and parks.
///
/// Fails if `Shared::act` does nothing for `ActorAction::EnqueueEarlier`.
#[test]
fn sooner_against_park() {
    check(None, || {
        let shared = Shared::new(1);
        let mut actor = Actor::new(&shared);
        let (_, waker) = Wakes::task();
        assert!(shared.arm(&EntryArc::new(Entry::new(())), 5, waker));
        actor.turn(0);
        let actor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.mailbox.publish_awake();
                actor.turn(0);
                let waits = shared.mailbox.park(actor.next_wake());
                (actor, waits)
            }
        });
        let entry = EntryArc::new(Entry::new(()));
        let (wakes, waker) = Wakes::task();
        assert!(shared.arm(&entry, FAR, waker));
        assert_eq!(shared.reset(&entry, 3), Phase::Armed);
        let (mut actor, waits) = actor.join().unwrap();
        let next_wake = shared.mailbox.published.0.next_wake.load(Ordering::SeqCst);
        let is_early_enough = next_wake != AWAKE && next_wake <= 3;
        assert!(
            !waits || is_early_enough || shared.notifier().has_permit(),
            "the actor waits until {next_wake}"
        );
        actor.turn(3);
        assert_eq!(wakes.count(), 1);
    });
}
