//! Tasks that settle, and what they wait for.

use super::*;

#[tokio::test(start_paused = true)]
async fn settles_after_a_second_round_and_all_that_is_due() {
    let mut cx = Context::from_waker(Waker::noop());
    let (mut actor, wheel) = start();
    let _later = armed(&wheel, ms(6));
    let mut settled = Box::pin(wheel.settle());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "again");
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "wait");
    assert!(settled.as_mut().poll(&mut cx).is_ready());

    let _storm: Vec<_> = (0..300).map(|_| armed(&wheel, ms(5))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(4));
    let mut early = Box::pin(wheel.settle());
    assert!(early.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "again");
    assert_eq!(step(&mut actor), "wait");
    assert!(early.as_mut().poll(&mut cx).is_ready());
    let mut settled = Box::pin(wheel.settle());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "again");
    jump(ms(1));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 256);
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "wait");
    assert!(settled.as_mut().poll(&mut cx).is_ready());
}

#[tokio::test(start_paused = true)]
async fn settles_after_what_later_turns_deliver() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    for key in 0..350 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut settled = Box::pin(wheel.settle());
    jump(ms(5));
    while settled.as_mut().poll(&mut cx).is_pending() {
        step(&mut actor);
    }
    for _ in 0..350 {
        assert!(stream.try_recv().is_ok());
    }
}
