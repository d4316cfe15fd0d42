//! Sleeps that are moved or dropped while the wheel holds their entries.

use super::*;

/// Sweeps, and returns how many timers are left on the wheels.
fn swept(actor: &mut Actor) -> usize {
    actor.begin_sweep();
    while step(actor) == "again" {}
    actor.items()
}

/// How many cancelled entries this thread keeps.
const POOLED: usize = 128;

#[tokio::test(start_paused = true)]
async fn p7_released_sleeps_leave_once_there_are_many() {
    let (mut actor, wheel) = start();
    let sleeps: Vec<_> = (0..5_000).map(|_| armed(&wheel, FAR)).collect();
    while step(&mut actor) == "again" {}
    let shared = Arc::clone(wheel.shared());
    drop(sleeps);
    assert!(was_notified(&shared), "it waits for an hour");
    while step(&mut actor) == "again" {}
    assert_eq!(actor.items(), POOLED);
}

#[tokio::test(start_paused = true)]
async fn few_released_sleeps_stay_on_the_wheel() {
    let (mut actor, wheel) = start();
    let sleeps: Vec<_> = (0..POOLED + 500).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "wait");
    drop(sleeps);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.items(), POOLED + 500);
    assert_eq!(swept(&mut actor), POOLED);
}

// As many others hide them from the threads that drop sleeps.
#[tokio::test(start_paused = true)]
async fn p7_released_sleeps_leave_when_the_others_have_fired() {
    let (mut actor, wheel) = start();
    let near: Vec<_> = (0..2_000).map(|_| armed(&wheel, ms(10))).collect();
    let far: Vec<_> = (0..1_500).map(|_| armed(&wheel, FAR)).collect();
    while step(&mut actor) == "again" {}
    drop(far);
    assert!(!was_notified(wheel.shared()));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.items(), 3_500);
    jump(ms(10));
    while step(&mut actor) == "again" {}
    assert_eq!((fired(&wheel), actor.items()), (2_000, POOLED));
    drop(near);
}

// Eviction once overtook the commands of more near sleeps than a turn applies: the wheel fired the
// others on a virtual clock.
#[tokio::test(start_paused = true)]
async fn p14_eviction_takes_near_sleeps_whose_commands_wait() {
    let (mut actor, wheel) = start();
    let sleeps: Vec<_> = (0..20_000).map(|_| armed(&wheel, ms(10))).collect();
    assert!(wheel.shared().send_now(Request::Evict).is_ok());
    while step(&mut actor) == "again" {}
    assert_eq!(actor.items(), 0);
    jump(ms(10));
    while step(&mut actor) == "again" {}
    assert_eq!(fired(&wheel), 0);
    drop(sleeps);
}

// The clock would move to the tick of that node.
#[tokio::test(start_paused = true)]
async fn eviction_leaves_no_node_for_a_command_behind_it() {
    let (mut actor, wheel) = start();
    let mut sleep = armed(&wheel, FAR);
    assert_eq!(step(&mut actor), "wait");
    assert!(wheel.shared().send_now(Request::Evict).is_ok());
    Pin::new(&mut sleep).reset(Instant::now() + FAR / 2);
    while step(&mut actor) == "again" {}
    assert_eq!(actor.items(), 0);
}

// Each sweep once looked at all the memory that the others had used.
#[tokio::test(start_paused = true)]
async fn sweep_skips_memory_that_no_node_uses() {
    const MANY: u64 = 30 * 4_096;
    let (mut actor, wheel) = start();
    let near: Vec<_> = (0..MANY).map(|_| armed(&wheel, ms(1))).collect();
    let far: Vec<_> = (0..3_000).map(|_| armed(&wheel, FAR)).collect();
    while step(&mut actor) == "again" {}
    jump(ms(1));
    while step(&mut actor) == "again" {}
    assert_eq!(fired(&wheel), MANY);
    drop(near);
    drop(far);
    actor.begin_sweep();
    let mut turns = 1;
    while step(&mut actor) == "again" {
        turns += 1;
    }
    assert_eq!(actor.items(), 0);
    assert!(turns < 10, "{turns} turns");
}

#[tokio::test(start_paused = true)]
async fn schedules_what_is_moved_earlier_once_more() {
    let (mut actor, wheel) = start();
    let mut sleep = armed(&wheel, ms(10));
    assert_eq!(step(&mut actor), "wait");
    for earlier in [5, 3] {
        Pin::new(&mut sleep).reset(Instant::now() + ms(earlier));
        assert_eq!(step(&mut actor), "wait");
        assert_eq!(actor.next_wake(), Some(earlier));
    }
    assert_eq!((actor.items(), swept(&mut actor)), (3, 1));
    assert_eq!(actor.next_wake(), Some(3));
}

// Rescheduling inserts an entry again, at an index that was used before.
#[tokio::test(start_paused = true)]
async fn reschedules_what_was_moved_later_and_then_earlier() {
    let (mut actor, wheel) = start();
    let mut sleeps = [10, 20, 30].map(|n| armed(&wheel, ms(n)));
    assert_eq!(step(&mut actor), "wait");
    let start = Instant::now();
    for sleep in &mut sleeps[..2] {
        Pin::new(sleep).reset(start + ms(100));
    }
    jump(ms(25));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!((actor.next_wake(), actor.items()), (Some(30), 3));
    for (sleep, earlier) in sleeps.iter_mut().zip([28, 27]) {
        Pin::new(sleep).reset(start + ms(earlier));
        assert_eq!(step(&mut actor), "wait");
        assert_eq!(actor.next_wake(), Some(earlier));
    }
    assert_eq!((actor.items(), swept(&mut actor)), (5, 3));
}

#[tokio::test(start_paused = true)]
async fn keeps_what_is_moved_earlier_and_cancelled() {
    let (mut actor, wheel) = start();
    let mut sleep = armed(&wheel, ms(10));
    assert_eq!(step(&mut actor), "wait");
    Pin::new(&mut sleep).reset(Instant::now() + ms(5));
    drop(sleep);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.next_wake(), Some(5));
    assert_eq!(swept(&mut actor), 1);
}
