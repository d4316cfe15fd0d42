//! The order of firing while commands are left over for later turns.

use std::sync::Mutex;

use super::*;

/// Records its number when it is woken.
struct Log(u64, Arc<Mutex<Vec<u64>>>);

impl Wake for Log {
    fn wake(self: Arc<Self>) {
        self.1.lock().expect("no panic").push(self.0);
    }
}

#[derive(Default)]
struct Order(Arc<Mutex<Vec<u64>>>);

impl Order {
    /// A sleep that waits, and records its length when it fires.
    fn armed(&self, wheel: &TimerWheel, length: u64) -> Sleep {
        let mut sleep = wheel.sleep(ms(length));
        let waker = Waker::from(Arc::new(Log(length, Arc::clone(&self.0))));
        assert!(poll(&mut sleep, &waker).is_pending());
        sleep
    }

    fn fired(&self) -> Vec<u64> {
        self.0.lock().expect("no panic").clone()
    }
}

/// More commands than two turns apply, of sleeps that are not due.
fn flood(wheel: &TimerWheel) -> Vec<Sleep> {
    (0..9_000).map(|_| armed(wheel, FAR)).collect()
}

#[tokio::test(start_paused = true)]
async fn p4_fires_by_tick_what_is_armed_behind_a_backlog() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let _later = order.armed(&wheel, 5);
    assert_eq!(step(&mut actor), "wait");
    let _flood = flood(&wheel);
    assert_eq!(step(&mut actor), "again");
    let _earlier = order.armed(&wheel, 2);
    jump(ms(10));
    while step(&mut actor) == "again" {}
    assert_eq!(order.fired(), [2, 5]);
}

#[tokio::test(start_paused = true)]
async fn p4_fires_by_tick_what_is_moved_earlier_in_a_backlog() {
    for steps_before in [0, 1] {
        let (mut actor, wheel) = start();
        let order = Order::default();
        let _later = order.armed(&wheel, 5);
        assert_eq!(step(&mut actor), "wait");
        let _flood = flood(&wheel);
        let mut moved = order.armed(&wheel, 60_000);
        for _ in 0..steps_before {
            assert_eq!(step(&mut actor), "again");
        }
        Pin::new(&mut moved).reset(Instant::now() + ms(2));
        jump(ms(10));
        while step(&mut actor) == "again" {}
        assert_eq!(order.fired(), [60_000, 5], "after {steps_before} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn p4_fires_nothing_before_the_urgent_indices_left_of_a_set() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let set = |key, length| {
        timers.set_timer(key, (), length).expect("there is room");
    };
    set(0, FAR);
    let _later = armed(&wheel, ms(200));
    assert_eq!(step(&mut actor), "wait");
    // More than a turn applies, all of them soon.
    (1..5_000).for_each(|key| set(key, ms(250)));
    set(5_000, ms(100));
    jump(ms(200));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 0);
    while step(&mut actor) == "again" {}
    assert_eq!(stream.try_recv().map(|fired| fired.key), Ok(5_000));
    assert_eq!(fired(&wheel), 1);
}

#[tokio::test(start_paused = true)]
async fn p11_fires_what_is_due_before_all_of_a_backlog() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let _sleeps = [5, 9, 12].map(|length| order.armed(&wheel, length));
    assert_eq!(step(&mut actor), "wait");
    jump(ms(4));
    let _flood = flood(&wheel);
    let _due_at_ten = order.armed(&wheel, 6);
    jump(ms(8));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(order.fired(), [5, 9]);
    assert_eq!(step(&mut actor), "again");
    assert_eq!(order.fired(), [5, 9]);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(order.fired(), [5, 9, 6, 12]);
}

#[tokio::test(start_paused = true)]
async fn p11_fires_what_is_due_while_a_barrier_waits_in_a_backlog() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let _sleep = order.armed(&wheel, 5);
    assert_eq!(step(&mut actor), "wait");
    let _flood = flood(&wheel);
    let mut settled = Box::pin(wheel.settle());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(order.fired(), [5]);
    while settled.as_mut().poll(&mut cx).is_pending() {
        step(&mut actor);
    }
}

#[tokio::test(start_paused = true)]
async fn wakes_256_barriers_in_a_turn() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let mut waiting = Vec::new();
    for _ in 0..1_000 {
        let waker = Waker::from(Arc::new(Log(0, Arc::clone(&order.0))));
        let mut settled = Box::pin(wheel.settle());
        let polled = settled.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        waiting.push(settled);
    }
    assert_eq!(step(&mut actor), "again", "the first round");
    for (woken, end) in [
        (256, "again"),
        (512, "again"),
        (768, "again"),
        (1_000, "wait"),
    ] {
        assert_eq!(step(&mut actor), end);
        assert_eq!(order.fired().len(), woken);
    }
}
