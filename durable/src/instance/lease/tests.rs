use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use tickwheel::TimerWheel;
use tokio::sync::mpsc;

use super::*;
use crate::{Claim, Memory, builder};

/// A claim, and the instance that has it while this is held.
async fn claimed() -> (Claim<String, u32>, impl Sized) {
    let wheel = TimerWheel::new();
    let starting = builder::<String, u32>("orders").start(&wheel, Memory::new());
    let (timers, mut claims) = starting.await.expect("it starts");
    let set = timers.set_timer("a", &1, Duration::from_secs(1)).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    (claim, (wheel, timers, claims))
}

/// Else the set of tokens would grow with each claim, for as long as the process runs.
#[tokio::test(start_paused = true)]
async fn token_is_forgotten_with_its_claim() {
    let (claim, _instance) = claimed().await;
    let leases = Arc::clone(&claim.lease.leases);
    assert!(leases.holds(claim.lease.version()));
    claim.ack().await.expect("it is held");
    drop(claim);
    assert!(leases.tokens().is_empty());
}

/// The waker of a program that polls `dispatch` in it, which locks the state of the lease.
struct LooksAtLease(Arc<LeaseInner>, AtomicBool);

impl Wake for LooksAtLease {
    fn wake(self: Arc<Self>) {
        let is_free = self.0.state.try_lock().is_ok();
        self.1.store(is_free, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn dispatch_is_woken_without_the_lock_of_a_lease() {
    let (claim, _instance) = claimed().await;
    let (settling, mut settled) = mpsc::channel(1);
    claim.lease.set_settling(settling);
    let looks = Arc::new(LooksAtLease(
        Arc::clone(&claim.lease),
        AtomicBool::new(false),
    ));
    let waker = Waker::from(Arc::clone(&looks));
    let waiting = settled.poll_recv(&mut Context::from_waker(&waker));
    assert!(waiting.is_pending());
    claim.ack().await.expect("it is held");
    assert!(looks.1.load(Ordering::SeqCst));
}
