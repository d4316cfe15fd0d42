//! Loom models of the count of stale nodes. [`crate::model`] explains such models.

use std::sync::Arc;

use loom::thread;

use super::{STALE_KEPT, StaleNodes};
use crate::model::{ActorNotifier, check};
use crate::shared::mailbox::{CommandQueue, Mailbox};

/// A caller leaves nodes, and tells the actor if it has to.
fn leave(stale: &StaleNodes, mail: &Mailbox<(), ActorNotifier>, nodes: usize) {
    if stale.add(nodes) {
        assert!(mail.push(0, 0, ()).is_ok());
    }
}

/// The last turn of the actor before it waits, if it allows so many. Returns whether it would.
fn last_turn(stale: &StaleNodes, mail: &Mailbox<(), ActorNotifier>, limit: usize) -> bool {
    mail.take_all(&mut CommandQueue::new());
    !stale.is_over(limit) && mail.park(Some(9))
}

/// Two callers leave nodes while the actor, whose nodes become fewer, is about to wait: it does
/// not, or it is notified, once the count is above the limit (W3).
///
/// Fails if [`StaleNodes::is_over`] reads the count before it publishes the limit, or reads it
/// without adding to it, and if [`StaleNodes::add`] reads the limit first.
#[test]
fn nodes_left_against_a_last_turn() {
    check(Some(3), || {
        let stale = Arc::new(StaleNodes::default());
        let mail = Arc::new(Mailbox::new(1, ActorNotifier::default()));
        // Many nodes: the limit is high.
        assert!(!stale.is_over(3 * STALE_KEPT));
        let caller = |nodes| {
            let (stale, mail) = (Arc::clone(&stale), Arc::clone(&mail));
            move || leave(&stale, &mail, nodes)
        };
        let first = thread::spawn(caller(STALE_KEPT));
        let actor = thread::spawn({
            let (stale, mail) = (Arc::clone(&stale), Arc::clone(&mail));
            move || last_turn(&stale, &mail, STALE_KEPT)
        });
        caller(1)();
        first.join().unwrap();
        let waits = actor.join().unwrap();
        assert!(!waits || mail.notifier().has_permit(), "no sweep comes");
    });
}

/// A caller leaves nodes while a sweep begins, after which the actor waits: they count for the next
/// one, or the sweep has them, and the actor is notified of as many as are above the limit.
///
/// Fails if [`StaleNodes::begin_sweep`] reads the count and sets it to zero in two steps.
#[test]
fn nodes_left_against_a_sweep() {
    check(None, || {
        let stale = Arc::new(StaleNodes::default());
        let mail = Arc::new(Mailbox::new(1, ActorNotifier::default()));
        assert!(stale.add(STALE_KEPT + 1));
        let caller = thread::spawn({
            let (stale, mail) = (Arc::clone(&stale), Arc::clone(&mail));
            move || leave(&stale, &mail, STALE_KEPT + 1)
        });
        let taken = stale.begin_sweep();
        let waits = last_turn(&stale, &mail, STALE_KEPT);
        caller.join().unwrap();
        let left = stale.begin_sweep();
        assert_eq!(taken + left, 2 * (STALE_KEPT + 1));
        let is_left = left > STALE_KEPT;
        assert!(
            !(is_left && waits) || mail.notifier().has_permit(),
            "no sweep comes"
        );
    });
}
