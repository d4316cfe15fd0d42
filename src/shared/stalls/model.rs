//! A reader finds each stall whole or not at all. Without the second load of `from` in
//! [`Stall::read`](super::Stall), `replaced_stall_is_never_read_in_part` fails.

use std::sync::Arc;

use loom::thread;

use super::{Gap, NONE, Stall, Stalls};
use crate::sync::atomic::AtomicU64;

#[test]
fn replaced_stall_is_never_read_in_part() {
    loom::model(|| {
        let stall = Arc::new(Stall {
            from: AtomicU64::new(10),
            to: AtomicU64::new(20),
        });
        let writer = {
            let stall = Arc::clone(&stall);
            thread::spawn(move || {
                stall.write(Gap { from: 30, to: 40 });
                stall.write(Gap { from: 50, to: 60 });
            })
        };
        let words = |gap: Gap| (gap.from, gap.to);
        let read = stall.read().map(words);
        let whole = [None, Some((10, 20)), Some((30, 40)), Some((50, 60))];
        assert!(whole.contains(&read), "{read:?}");
        writer.join().expect("it ends");
        assert_eq!(stall.read().map(words), Some((50, 60)));
    });
}

/// Whoever was told something after the actor recorded a stall knows of it. It fails if `write`
/// stores `from` without `Release`, or if `record` does not raise `until`.
#[test]
fn told_thread_knows_of_the_stall() {
    loom::model(|| {
        let stalls = Arc::new(Stalls::default());
        let told = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let actor = {
            let (stalls, told) = (Arc::clone(&stalls), Arc::clone(&told));
            thread::spawn(move || {
                stalls.record(Gap {
                    from: 100_000_000,
                    to: 200_000_000,
                });
                told.store(true, std::sync::atomic::Ordering::Release);
            })
        };
        let is_told = told.load(std::sync::atomic::Ordering::Acquire);
        let falls = stalls.put_off(150_000_000, NONE);
        if is_told {
            assert_eq!(falls, 300_000_000);
        } else {
            assert!([150_000_000, 300_000_000].contains(&falls), "{falls}");
        }
        actor.join().expect("it ends");
    });
}
