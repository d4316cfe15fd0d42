//! The lock of a set: a mutex for which the actor never waits until its end.
//!
//! A thread may be preempted while it holds the lock, and an actor that waits for it delays every
//! timer of the wheel. So the actor only [tries](SetLock::try_lock_for_actor), and a set that is
//! locked delays nothing but itself (P11). While a due set stays locked the actor takes one turn
//! after the other, and its worker does little else.
//!
//! # A due set is not starved
//!
//! A caller that takes the lock in a loop holds it most of the time, and could keep the actor out.
//!
//! 1. The actor raises the flag `wanted` when it finds the set locked. It then tries for some more
//!    microseconds, and again in each of its turns. It lowers the flag when it has the lock.
//! 2. A caller that sees the flag before it locks gives way: it spins and yields, until the flag is
//!    lowered, but not longer than [`GIVE_WAY_YIELDS`] yields. Then it lowers the flag itself.
//!
//! By 2 the lock is free from the end of the current hold, which is bounded, until the actor's
//! attempt or the end of the wait of each caller that came by. A caller that was about to lock
//! without having seen the flag gets in once, and sees it the next time. So an attempt succeeds if
//! its holder runs on another core; if the holder was preempted, one of the next attempts does.
//! Since a caller lowers the flag, callers wait once for each attempt of the actor at most. A
//! caller on the very thread that would run the actor thus loses one short wait in a poll.
//!
//! The flag is a hint. Nothing depends on when it is seen.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{
    Mutex, MutexGuard, lock_with_backoff, spin_while, try_lock, try_lock_with_backoff,
};

/// How often a caller yields to the actor at most.
const GIVE_WAY_YIELDS: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct SetLock<T> {
    /// The actor has found it locked.
    wanted: AtomicBool,
    contents: Mutex<T>,
}

impl<T> SetLock<T> {
    pub(super) fn new(contents: T) -> Self {
        SetLock {
            wanted: AtomicBool::new(false),
            contents: Mutex::new(contents),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        if self.is_wanted() {
            self.give_way();
        }
        lock_with_backoff(&self.contents)
    }

    /// For the actor: `None` if it is locked.
    pub(super) fn try_lock_for_actor(&self) -> Option<MutexGuard<'_, T>> {
        let guard = try_lock(&self.contents).or_else(|| {
            self.wanted.store(true, Ordering::Relaxed);
            try_lock_with_backoff(&self.contents)
        });
        if guard.is_some() && self.is_wanted() {
            self.wanted.store(false, Ordering::Relaxed);
        }
        guard
    }

    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    #[cold]
    fn give_way(&self) {
        spin_while(GIVE_WAY_YIELDS, || self.is_wanted());
        self.wanted.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests {
    use super::*;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn actor_leaves_a_locked_set_and_is_seen_to_want_it() {
        let lock = SetLock::new(0);
        let held = lock.lock();
        assert!(!lock.is_wanted());
        assert!(lock.try_lock_for_actor().is_none());
        assert!(lock.is_wanted());
        drop(held);
        assert!(lock.try_lock_for_actor().is_some());
        assert!(!lock.is_wanted(), "it has the lock");
    }

    #[test]
    fn caller_gives_way_once_for_each_attempt() {
        let lock = SetLock::new(0);
        let held = lock.lock();
        assert!(lock.try_lock_for_actor().is_none());
        drop(held);
        // No actor comes: the caller gets the lock, and the next one need not wait.
        drop(lock.lock());
        assert!(!lock.is_wanted());
    }

    // The actor once got the lock of such a set by waiting for it, and every timer waited with it.
    #[test]
    fn p11_actor_gets_the_lock_beside_callers_in_a_loop() {
        let lock = SetLock::new(0_u64);
        let has_ended = AtomicBool::new(false);
        let callers = 2 * thread::available_parallelism().map_or(2, usize::from);
        thread::scope(|scope| {
            for _ in 0..callers {
                scope.spawn(|| {
                    while !has_ended.load(Ordering::Relaxed) {
                        let mut held = lock.lock();
                        for _ in 0..1_000 {
                            *held = std::hint::black_box(*held + 1);
                        }
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut locked = 0;
            while locked < 50 && Instant::now() < deadline {
                locked += u32::from(lock.try_lock_for_actor().is_some());
                thread::yield_now();
            }
            has_ended.store(true, Ordering::Relaxed);
            assert_eq!(locked, 50, "the actor was kept out");
        });
    }
}
