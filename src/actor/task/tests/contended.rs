//! Sets that another thread has locked, perhaps for long: the operating system may keep it from
//! running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Barrier, PoisonError};
use std::thread;
use std::thread::JoinHandle;

use super::*;
use crate::Expirations;
use crate::shared::entry::EntryArc;

/// A key by which a thread can be held up while it has the lock of the set.
struct Key(u64, Option<Arc<Gate>>);

struct Gate {
    entered: Barrier,
    open: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        for gate in self.1.iter().chain(&other.1) {
            gate.entered.wait();
            let open = gate.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.recv().expect("it is opened");
        }
        self.0 == other.0
    }
}

impl Eq for Key {}

/// Another thread has the lock of the set of this timer, until it is told to go on.
fn hold(timers: &KeyedTimers<Key, ()>, key: u64) -> (Sender<()>, JoinHandle<()>) {
    let (go_on, open) = channel();
    let gate = Arc::new(Gate {
        entered: Barrier::new(2),
        open: std::sync::Mutex::new(open),
    });
    let (timers, held) = (timers.clone(), Key(key, Some(Arc::clone(&gate))));
    let holder = thread::spawn(move || {
        let moved = timers.move_timer(&held, FAR);
        assert!(moved.expect("it is open"), "there is such a timer");
    });
    gate.entered.wait();
    (go_on, holder)
}

fn set(timers: &KeyedTimers<Key, ()>, key: u64, length: u64) {
    let replaced = timers.set_timer(Key(key, None), (), ms(length));
    assert!(replaced.is_ok());
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a sleep that waits. Metrics would lock the set.
fn wait(mut sleep: Pin<Box<Sleep>>) -> (Arc<Woken>, Pin<Box<Sleep>>) {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let polled = sleep.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    (woken, sleep)
}

fn received(stream: &mut Expirations<Key, ()>) -> Vec<u64> {
    std::iter::from_fn(|| stream.try_recv().ok().map(|fired| fired.key.0)).collect()
}

// A turn once waited for the lock, and for another thread's share of the processor each time.
#[tokio::test(start_paused = true)]
async fn p11_due_timers_fire_while_a_set_is_locked() {
    let (mut actor, wheel) = start();
    let (locked, mut stream) = wheel.keyed::<Key, ()>();
    let (other, mut others) = wheel.keyed::<Key, ()>();
    set(&locked, 0, 3_600_000);
    set(&locked, 1, 10);
    assert_eq!(step(&mut actor), "wait");
    // A note that is on its way, and a timer that becomes due.
    set(&locked, 2, 20);
    let (go_on, holder) = hold(&locked, 0);
    let (woken, mut sleep) = wait(Box::pin(wheel.sleep(ms(5))));
    set(&other, 0, 5);
    set(&other, 1, 15);
    jump(ms(9));
    assert_eq!(step(&mut actor), "wait", "a note needs no lock");
    assert!(woken.0.swap(false, Ordering::Relaxed));
    assert_eq!(received(&mut others), [0]);
    jump(ms(5));
    sleep.as_mut().reset(Instant::now() + ms(1));
    let (woken, _sleep) = wait(sleep);
    jump(ms(4));
    // A timer of the locked set is due at 10. Telling its reader needs no lock either.
    assert_eq!(step(&mut actor), "wait");
    assert!(woken.0.load(Ordering::Relaxed));
    assert_eq!(received(&mut others), [1]);
    go_on.send(()).expect("it waits");
    holder.join().expect("no panic");
    assert_eq!(received(&mut stream), [1]);
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(received(&mut stream), [2]);
}

// The actor once waited for the lock after some attempts, for as long as the system kept its holder
// from running. Later it tried again and again.
#[tokio::test(start_paused = true)]
async fn p11_actor_never_waits_for_a_set_that_stays_locked() {
    let (mut actor, wheel) = start();
    let (locked, mut stream) = wheel.keyed::<Key, ()>();
    set(&locked, 0, 3_600_000);
    set(&locked, 1, 10);
    assert_eq!(step(&mut actor), "wait");
    let (go_on, holder) = hold(&locked, 0);
    jump(ms(10));
    let mut settled = Box::pin(wheel.settle());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    for _ in 0..200 {
        let (woken, _sleep) = wait(Box::pin(wheel.sleep(ms(1))));
        jump(ms(1));
        let mut turns = 0;
        while step(&mut actor) == "again" {
            turns += 1;
        }
        assert!(turns <= 2, "{turns}: nothing is left to do");
        assert!(woken.0.load(Ordering::Relaxed));
    }
    assert!(settled.as_mut().poll(&mut cx).is_ready());
    go_on.send(()).expect("it waits");
    holder.join().expect("no panic");
    assert_eq!(received(&mut stream), [1]);
}

// The end waited in a worker for the lock of each set.
#[tokio::test(start_paused = true)]
async fn p15_end_waits_for_no_set_that_is_locked() {
    let (mut actor, wheel) = start();
    let (locked, mut stream) = wheel.keyed::<Key, ()>();
    set(&locked, 0, 3_600_000);
    set(&locked, 1, 10);
    assert_eq!(step(&mut actor), "wait");
    let (go_on, holder) = hold(&locked, 0);
    jump(ms(10));
    assert_eq!(step(&mut actor), "wait");
    drop(actor);
    assert!(wheel.is_shutdown());
    go_on.send(()).expect("it waits");
    holder.join().expect("no panic");
    assert_eq!(received(&mut stream), [1]);
    assert_eq!(stream.unexpired().len(), 1);
}

// An index that comes off the wheel once named a node that others used. Removing its timer then
// took the timer of another set off the wheel.
#[tokio::test(start_paused = true)]
async fn timer_removed_after_it_came_off_the_wheel_harms_no_other() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<Key, ()>();
    let (other, mut others) = wheel.keyed::<Key, ()>();
    set(&timers, 0, 3_600_000);
    set(&timers, 1, 10);
    assert_eq!(step(&mut actor), "wait");
    jump(ms(10));
    assert_eq!(step(&mut actor), "wait");
    // It gets the node.
    set(&other, 0, 20);
    assert_eq!(step(&mut actor), "wait");
    assert!(matches!(timers.remove_timer(&Key(1, None)), Ok(Some(()))));
    assert_eq!(step(&mut actor), "wait");
    jump(ms(20));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(received(&mut others), [0]);
    assert_eq!(received(&mut stream), [] as [u64; 0]);
}

// The actor waited for the list of sets when it came to know a set, and when it forgot one. Keys
// are all that is left of it.
#[tokio::test(start_paused = true)]
async fn p11_actor_never_waits_for_the_keys_of_sets() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(1, (), ms(5)).expect("there is room");
    let held = shared.set_keys.hold();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(6));
    assert_eq!(step(&mut actor), "wait");
    assert!(stream.try_recv().is_ok());
    drop((timers, stream));
    let (woken, _sleep) = wait(Box::pin(wheel.sleep(ms(1))));
    jump(ms(1));
    for _ in 0..5 {
        assert_eq!(step(&mut actor), "again", "it cannot give the key back");
    }
    assert!(woken.0.load(Ordering::Relaxed));
    drop(held);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(shared.set_keys.draw().position(), 0);
}

// The actor waited for the lock of an entry, which a preempted owner held, for 180 ms.
#[tokio::test(start_paused = true)]
async fn p11_sleep_whose_owner_has_it_locked_delays_no_other() {
    let (mut actor, wheel) = start();
    let (woken, mut sleep) = wait(Box::pin(wheel.sleep(ms(5))));
    assert_eq!(step(&mut actor), "wait");
    let entry = EntryArc::clone(actor.sleeps.wheel.get(0).expect("it is armed"));
    let (other, _other) = wait(Box::pin(wheel.sleep(ms(6))));
    assert_eq!(step(&mut actor), "wait");
    let mut settled = Box::pin(wheel.settle());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    let held = entry.hold();
    jump(ms(6));
    for _ in 0..3 {
        assert_eq!(step(&mut actor), "again");
    }
    assert!(other.0.load(Ordering::Relaxed) && !woken.0.load(Ordering::Relaxed));
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    drop(held);

    // Its owner moves it, and has it locked once more. Both are left to do then.
    sleep.as_mut().reset(Instant::now() - ms(4));
    let held = entry.hold();
    for _ in 0..3 {
        assert_eq!(step(&mut actor), "again");
    }
    drop(held);
    assert_eq!(step(&mut actor), "wait");
    assert!(woken.0.load(Ordering::Relaxed));
    assert!(settled.as_mut().poll(&mut cx).is_ready());
    assert_eq!((actor.items(), fired(&wheel)), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn p11_command_for_a_locked_sleep_waits_alone() {
    let (mut actor, wheel) = start();
    let (woken, mut sleep) = wait(Box::pin(wheel.sleep(FAR)));
    assert_eq!(step(&mut actor), "wait");
    let entry = EntryArc::clone(actor.sleeps.wheel.get(0).expect("it is armed"));
    sleep.as_mut().reset(Instant::now() + ms(5));
    let (other, _other) = wait(Box::pin(wheel.sleep(ms(5))));
    let held = entry.hold();
    jump(ms(5));
    for _ in 0..3 {
        assert_eq!(step(&mut actor), "again");
    }
    assert!(other.0.load(Ordering::Relaxed) && !woken.0.load(Ordering::Relaxed));
    drop(held);
    assert_eq!(step(&mut actor), "wait");
    assert!(woken.0.load(Ordering::Relaxed));
}

// The command would move a node that is gone, or that another sleep has.
#[tokio::test(start_paused = true)]
async fn command_waits_for_a_reached_sleep_that_was_locked() {
    let (mut actor, wheel) = start();
    let (woken, mut sleep) = wait(Box::pin(wheel.sleep(ms(5))));
    assert_eq!(step(&mut actor), "wait");
    let entry = EntryArc::clone(actor.sleeps.wheel.get(0).expect("it is armed"));
    let held = entry.hold();
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    drop(held);
    sleep.as_mut().reset(Instant::now() - ms(3));
    let (other, _other) = wait(Box::pin(wheel.sleep(ms(7))));
    assert_eq!(step(&mut actor), "wait");
    assert!(woken.0.load(Ordering::Relaxed) && !other.0.load(Ordering::Relaxed));
    jump(ms(7));
    assert_eq!(step(&mut actor), "wait");
    assert!(other.0.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn sleep_that_is_locked_at_the_end_is_closed() {
    let (mut actor, wheel) = start();
    let (woken, sleep) = wait(Box::pin(wheel.sleep(ms(5))));
    assert_eq!(step(&mut actor), "wait");
    let entry = EntryArc::clone(actor.sleeps.wheel.get(0).expect("it is armed"));
    let held = entry.hold();
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    drop(held);
    drop(actor);
    assert!(woken.0.load(Ordering::Relaxed));
    sleep.await;
}
