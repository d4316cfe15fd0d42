//! Sleeps that are moved or dropped while the wheel holds their entries.

use super::*;

#[tokio::test(start_paused = true)]
async fn deregisters_released_entries() {
    let (mut actor, wheel) = start();
    let sleeps: Vec<_> = (0..200).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "wait");
    drop(sleeps);
    assert_eq!(step(&mut actor), "wait");
    // This thread's pool keeps the rest.
    assert_eq!(actor.items(), 128);
}

#[tokio::test(start_paused = true)]
async fn reschedules_what_is_moved_earlier() {
    let (mut actor, wheel) = start();
    let mut sleep = armed(&wheel, ms(10));
    assert_eq!(step(&mut actor), "wait");
    for earlier in [5, 3] {
        Pin::new(&mut sleep).reset(Instant::now() + ms(earlier));
        assert_eq!(step(&mut actor), "wait");
        assert_eq!((actor.next_wake(), actor.items()), (Some(earlier), 1));
    }
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
        assert_eq!((actor.next_wake(), actor.items()), (Some(earlier), 3));
    }
}

#[tokio::test(start_paused = true)]
async fn leaves_what_is_moved_earlier_and_cancelled() {
    let (mut actor, wheel) = start();
    let mut sleep = armed(&wheel, ms(10));
    assert_eq!(step(&mut actor), "wait");
    Pin::new(&mut sleep).reset(Instant::now() + ms(5));
    drop(sleep);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.next_wake(), Some(10));
}
