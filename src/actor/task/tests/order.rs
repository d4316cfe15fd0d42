//! The order of firing while commands are left over for later turns.

use std::sync::Mutex;

use super::*;
use crate::Expirations;

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
async fn timers_wait_for_commands_that_may_come_before_them() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    jump(ms(10));
    assert_eq!(step(&mut actor), "wait");
    // Its note is the first one, and it was armed last, with more notes in between than a turn
    // applies. All are due.
    let now = |key| {
        timers
            .set_timer(key, (), Duration::ZERO)
            .expect("there is room");
    };
    now(0);
    for key in 1..5_000 {
        timers.set_timer(key, (), ms(200)).expect("there is room");
    }
    now(9_000);
    now(0);
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    assert!(
        stream.try_recv().is_err(),
        "one that was set before is left"
    );
    assert_eq!(step(&mut actor), "wait");
    let keys = [stream.try_recv(), stream.try_recv()].map(|fired| fired.map(|fired| fired.key));
    assert_eq!(keys, [Ok(9_000), Ok(0)]);
}

#[tokio::test(start_paused = true)]
async fn storm_fires_before_commands_that_are_due_later() {
    let (mut actor, wheel) = start();
    let _storm: Vec<_> = (0..300).map(|_| armed(&wheel, ms(5))).collect();
    let _later = [9, 10].map(|n| armed(&wheel, ms(n)));
    assert_eq!(step(&mut actor), "wait");
    jump(ms(10));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 256);
    let _flood: Vec<_> = (0..5_000).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 302, "all of the flood is later");
    assert_eq!(step(&mut actor), "wait");
}

#[tokio::test(start_paused = true)]
async fn p4_timers_armed_behind_a_backlog_fire_by_tick() {
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
async fn p4_timers_moved_earlier_in_a_backlog_fire_by_tick() {
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
async fn p4_timers_wait_for_near_notes_left_over() {
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
async fn p11_due_timers_do_not_wait_for_a_whole_backlog() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let _sleeps = [5, 9, 12].map(|length| order.armed(&wheel, length));
    assert_eq!(step(&mut actor), "wait");
    jump(ms(4));
    let _flood = flood(&wheel);
    jump(ms(8));
    assert_eq!(step(&mut actor), "again", "far ones are left");
    assert_eq!(order.fired(), [5, 9, 12]);
}

#[tokio::test(start_paused = true)]
async fn p11_timer_behind_a_backlog_holds_up_later_ones_until_it_is_applied() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let _sleeps = [5, 9, 12].map(|length| order.armed(&wheel, length));
    assert_eq!(step(&mut actor), "wait");
    jump(ms(4));
    let _flood = flood(&wheel);
    let _due_at_ten = order.armed(&wheel, 6);
    jump(ms(8));
    assert_eq!(step(&mut actor), "again", "far ones are left");
    assert_eq!(order.fired(), [5, 9]);
    // It takes as many turns as 9,000 commands.
    assert_eq!([step(&mut actor), step(&mut actor)], ["again", "wait"]);
    assert_eq!(order.fired(), [5, 9, 6, 12]);
}

#[tokio::test(start_paused = true)]
async fn p11_due_timers_fire_while_a_task_settles() {
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
async fn wakes_256_settling_tasks_in_a_turn() {
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

// --- sets with many changed timers ---

fn keys(stream: &mut Expirations<u64, ()>) -> Vec<u64> {
    std::iter::from_fn(|| stream.try_recv().ok().map(|fired| fired.key)).collect()
}

// Waking the actor for a long list was once taken for a command that is needed now: nothing fired
// before all of it was processed.
#[tokio::test(start_paused = true)]
async fn p11_far_timers_of_a_set_delay_no_due_timer() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let (flooded, mut expirations) = wheel.keyed::<u64, ()>();
    let (other, mut others) = wheel.keyed::<u64, ()>();
    for round in 0..3 {
        let set = |timers: &KeyedTimers<u64, ()>, key, length| {
            timers.set_timer(key, (), length).expect("there is room");
        };
        let _sleep = order.armed(&wheel, 5);
        set(&flooded, 0, ms(5));
        set(&other, 0, ms(5));
        assert_eq!(step(&mut actor), "wait");
        set(&flooded, 1, ms(3));
        set(&flooded, 2, ms(4));
        set(&flooded, 3, ms(5));
        set_far(&flooded, 10..100_010);
        jump(ms(5));
        assert_eq!(step(&mut actor), "again", "far ones are left");
        assert_eq!(keys(&mut expirations), [1, 2, 0, 3], "round {round}");
        assert_eq!(keys(&mut others), [0], "round {round}");
        assert_eq!(order.fired().len(), 1 + round);
        // One behind them comes once they are applied.
        set(&other, 1, ms(0));
        let turns = (0..).take_while(|_| {
            step(&mut actor);
            keys(&mut others).is_empty()
        });
        let turns = turns.count();
        assert!(turns <= 100_000 / 4_096 + 2, "{turns} turns");
        assert_eq!(flooded.drain().expect("it is open").len(), 100_000);
        jump(ms(1_000));
        while step(&mut actor) == "again" {}
    }
}

// A timer that was set in the slot of a removed one once was not needed soon if the removed one
// was.
#[tokio::test(start_paused = true)]
async fn p4_timer_in_a_reused_slot_expires_by_tick() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let set = |key, length| {
        timers.set_timer(key, (), length).expect("there is room");
    };
    set(0, ms(200));
    assert_eq!(step(&mut actor), "wait");
    set_far(&timers, 10..10_010);
    timers.remove_timer(&0).expect("it is open");
    set(1, ms(10));
    set(2, ms(20));
    jump(ms(30));
    while step(&mut actor) == "again" {}
    assert_eq!(keys(&mut stream), [1, 2]);
}

// Without the earliest tick of its queue the other timer came first.
#[tokio::test(start_paused = true)]
async fn p4_near_timer_of_a_set_with_a_queued_command_comes_first() {
    for steps_before in [0, 1] {
        let (mut actor, wheel) = start();
        let order = Order::default();
        let _later = order.armed(&wheel, 10);
        let (timers, mut stream) = wheel.keyed::<u64, ()>();
        assert_eq!(step(&mut actor), "wait");
        let _flood = flood(&wheel);
        set_far(&timers, 0..1);
        for _ in 0..steps_before {
            assert_eq!(step(&mut actor), "again");
        }
        timers.set_timer(1, (), ms(5)).expect("there is room");
        jump(ms(12));
        let mut keyed_first = false;
        while order.fired().is_empty() {
            keyed_first |= stream.try_recv().is_ok();
            step(&mut actor);
        }
        // They may come in one turn, which fires sleeps first.
        assert!(keyed_first || stream.try_recv().is_ok(), "{steps_before}");
        assert_eq!(order.fired(), [10]);
    }
}

// It is in the backlog for a late tick already.
#[tokio::test(start_paused = true)]
async fn p4_timer_listed_in_an_earlier_batch_comes_first() {
    let (mut actor, wheel) = start();
    let order = Order::default();
    let _later = order.armed(&wheel, 310);
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..50_000);
    assert_eq!(step(&mut actor), "again");
    set_far(&timers, 50_000..50_300);
    timers.move_timer(&49_999, ms(300)).expect("it is open");
    assert_eq!(step(&mut actor), "again");
    jump(ms(320));
    assert_eq!(step(&mut actor), "again");
    assert!(order.fired().is_empty(), "the moved one is left");
    while order.fired().is_empty() {
        step(&mut actor);
    }
    assert_eq!(keys(&mut stream), [49_999]);
}

// Each turn left some of them over, and once nothing fired that was due after them.
#[tokio::test(start_paused = true)]
async fn p11_overdue_timers_of_a_flood_delay_no_due_timer() {
    let (mut actor, wheel) = start();
    let past = Instant::now();
    let order = Order::default();
    let _due = order.armed(&wheel, 10);
    assert_eq!(step(&mut actor), "wait");
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    jump(ms(10));
    for round in 0..5 {
        for key in round * 8_192..(round + 1) * 8_192 {
            timers.set_timer_at(key, (), past).expect("there is room");
        }
        assert_eq!(step(&mut actor), "again");
        jump(ms(1));
    }
    assert_eq!(order.fired(), [10]);
}
