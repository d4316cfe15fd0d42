//! The cost of keyed timers and idle timers for the actor, and the wakers they wake.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::Expirations;
use crate::shared::mailbox::QUEUE_BOUND;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for the next expiration, and counts how often the task is woken.
fn wait<V: Send>(stream: &mut Expirations<u64, V>) -> Arc<Count> {
    let count = Arc::<Count>::default();
    let waker = Waker::from(Arc::clone(&count));
    let polled = stream.poll_recv(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    count
}

fn received<V: Send>(stream: &mut Expirations<u64, V>) -> Vec<u64> {
    std::iter::from_fn(|| stream.try_recv().ok().map(|fired| fired.key)).collect()
}

fn commands(wheel: &TimerWheel) -> u64 {
    wheel.metrics().commands
}

#[tokio::test(start_paused = true)]
async fn timer_that_never_fires_is_not_on_the_wheel() {
    let (mut actor, wheel) = start();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    timers
        .set_timer(1, (), Duration::MAX)
        .expect("there is room");
    timers.remove_timer(&1).expect("it is open");
    timers
        .set_timer(1, (), Duration::MAX)
        .expect("there is room");
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.items(), 0);
    assert!(commands(&wheel) <= 1, "the removal alone");
}

#[tokio::test(start_paused = true)]
async fn sends_a_command_only_for_an_earlier_tick() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    assert_eq!(step(&mut actor), "wait");
    let mut costs = |to: &[u64], most| {
        let before = commands(&wheel);
        for &to in to {
            timers.move_timer(&1, ms(to)).expect("it is open");
        }
        assert_eq!(step(&mut actor), "wait");
        // A reader looks at once.
        assert_eq!(received(&mut stream), []);
        assert_eq!(step(&mut actor), "wait");
        let sent = commands(&wheel) - before;
        assert!(sent <= most, "{sent} commands for {to:?}");
        actor.next_wake()
    };
    timers.set_timer(1, (), ms(40)).expect("there is room");
    assert_eq!(costs(&[], 1), Some(40));
    assert_eq!(costs(&[40], 0), Some(40));
    assert_eq!(costs(&[41, 45, 40], 0), Some(40));
    assert_eq!(costs(&[39], 1), Some(39));
    assert_eq!(costs(&[30, 50], 1), Some(30));
    assert_eq!(costs(&[45, 39], 0), Some(30), "it stays where it is");
    assert_eq!(costs(&[29, 28, 35], 2), Some(28));
    assert_eq!(costs(&[50], 0), Some(28));
    jump(ms(28));
    assert_eq!(costs(&[], 1), Some(50), "it was rescheduled");
    assert_eq!(wheel.metrics().rescheduled, 1);
    jump(ms(22));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(received(&mut stream), [1]);
}

#[tokio::test(start_paused = true)]
async fn due_timer_that_is_moved_is_scheduled_again() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    for key in 0..300 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    assert_eq!(step(&mut actor), "wait");
    let woken = wait(&mut stream);
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    timers.move_timer(&0, ms(1)).expect("it is open");
    timers.move_timer(&1, Duration::ZERO).expect("it is open");
    let past = Instant::now() - ms(2);
    timers.move_timer_at(&2, past).expect("it is open");
    while step(&mut actor) == "again" {}
    let keys: Vec<_> = [2].into_iter().chain(3..300).chain([1]).collect();
    assert_eq!(received(&mut stream), keys);
    assert_eq!(wheel.metrics().lateness.count(), 299);
    assert_eq!(wheel.metrics().rescheduled, 1, "the one that is due later");
    assert_eq!(step(&mut actor), "wait");
    jump(ms(1));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(received(&mut stream), [0]);
}

#[tokio::test(start_paused = true)]
async fn stream_is_woken_to_look_at_timers_moved_or_removed() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(1, (), ms(5)).expect("there is room");
    timers.set_timer(2, (), ms(5)).expect("there is room");
    assert_eq!(step(&mut actor), "wait");
    let woken = wait(&mut stream);
    timers.move_timer(&1, ms(9)).expect("it is open");
    timers.remove_timer(&2).expect("it is open");
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let woken = wait(&mut stream);
    assert_eq!((step(&mut actor), actor.next_wake()), ("wait", Some(9)));
    jump(ms(4));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(received(&mut stream), [1]);
}

#[tokio::test(start_paused = true)]
async fn notifies_for_removals_only_if_many_lie_in_a_queue() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let (timers, stream) = wheel.keyed::<u64, ()>();
    let many = QUEUE_BOUND as u64;
    set_far(&timers, 0..many + 100);
    while step(&mut actor) == "again" {}
    // Some leave their nodes to others.
    let kept = 16;
    was_notified(&shared);
    for key in 0..many - 1 + kept {
        timers.remove_timer(&key).expect("it is open");
    }
    assert!(!was_notified(&shared));
    timers.remove_timer(&(many - 1 + kept)).expect("it is open");
    assert!(was_notified(&shared));
    while step(&mut actor) == "again" {}
    assert_eq!(actor.items(), 100);
    drop(timers);
    assert!(
        !was_notified(&shared),
        "nor does the last handle: timers are pending"
    );
    drop(stream);
    assert!(
        was_notified(&shared),
        "what was dropped leaves the wheel at once"
    );
}

#[tokio::test(start_paused = true)]
async fn goes_on_after_a_large_set_is_drained_while_processed() {
    let all = [(ms(5), 1, 0), (ms(5), 1, 1), (FAR, 0, 0), (FAR, 0, 1)];
    for (timers_set, (length, steps, steps_after)) in [3_000, 5_000]
        .into_iter()
        .flat_map(|n| all.map(|case| (n, case)))
    {
        let (mut actor, wheel) = start();
        let (timers, mut stream) = wheel.keyed::<u64, ()>();
        for key in 0..timers_set {
            timers.set_timer(key, (), length).expect("there is room");
        }
        while step(&mut actor) == "again" {}
        jump(ms(5));
        for _ in 0..steps {
            step(&mut actor);
        }
        let drained = timers.drain().expect("it is open");
        assert_eq!(drained.len() as u64, timers_set);
        for _ in 0..steps_after {
            step(&mut actor);
        }
        for n in 0..3 {
            timers.set_timer(n, (), ms(3 + n)).expect("there is room");
            step(&mut actor);
        }
        while step(&mut actor) == "again" {}
        assert!((3..=4).contains(&actor.items()));
        jump(ms(9));
        while step(&mut actor) == "again" {}
        assert_eq!(received(&mut stream), [0, 1, 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn decides_on_a_watch_at_its_receipt() {
    let (mut actor, wheel) = start();
    let (reaper, mut stream) = wheel.reaper::<u64, ()>(ms(10));
    let watches = [1, 2, 3].map(|key| reaper.watch(key, ()).expect("there is room"));
    assert_eq!(step(&mut actor), "wait");
    let woken = wait(&mut stream);
    jump(ms(10));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(watches[0].touch(), "nothing is received yet");
    assert_eq!(stream.try_recv().map(|expired| expired.key), Ok(2));
    assert_eq!(
        watches.each_ref().map(crate::WatchGuard::touch),
        [true, false, true]
    );
    assert_eq!(received(&mut stream), []);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!((reaper.len(), actor.next_wake()), (2, Some(20)));
    drop(watches);
    assert_eq!((reaper.len(), received(&mut stream).len()), (0, 0));
}

// Slots of watches were kept, which no watch takes over.
#[tokio::test(start_paused = true)]
async fn watch_that_ends_leaves_the_wheel() {
    let (mut actor, wheel) = start();
    let (reaper, _stream) = wheel.reaper::<u64, ()>(FAR);
    let watches: Vec<_> = (0..10)
        .map(|key| reaper.watch(key, ()).expect("there is room"))
        .collect();
    assert_eq!(step(&mut actor), "wait");
    drop(watches);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!((actor.items(), actor.next_wake()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn due_timer_that_is_set_again_comes_in_its_new_order() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let set = |key, delay| timers.set_timer(key, (), delay).expect("there is room");
    for key in 0..1_000 {
        set(key, ms(5));
    }
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    for key in 0..300 {
        assert_eq!(stream.try_recv().map(|fired| fired.key), Ok(key));
    }
    // There are more changes than a turn applies, and after them a timer that is due already.
    set_far(&timers, 2_000..7_000);
    set(1_000, Duration::ZERO);
    set(999, Duration::ZERO);
    while step(&mut actor) == "again" {}
    let rest = (300..999).chain([1_000, 999]);
    assert_eq!(received(&mut stream), rest.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn reschedules_a_touched_idle_timer_and_wakes_no_task() {
    let (mut actor, wheel) = start();
    let mut idle = wheel.idle_timer(ms(10));
    let count = Arc::<Count>::default();
    let waker = Waker::from(Arc::clone(&count));
    let polled = Pin::new(&mut idle).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert_eq!(step(&mut actor), "wait");
    jump(ms(4));
    assert!(idle.touch());
    jump(ms(6));
    assert_eq!(step(&mut actor), "wait");
    let seen = |actor: &Actor| (actor.next_wake(), count.0.load(Ordering::Relaxed));
    assert_eq!(seen(&actor), (Some(14), 0));
    assert_eq!((fired(&wheel), wheel.metrics().rescheduled), (0, 1));
    jump(ms(4));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(seen(&actor), (None, 1));
    assert_eq!(fired(&wheel), 1);
}

#[tokio::test(start_paused = true)]
async fn set_is_told_beside_one_whose_timer_was_moved() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let (others, _stream) = wheel.keyed::<u64, ()>();
    for key in 0..350 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    others.set_timer(0, (), ms(5)).expect("there is room");
    assert_eq!(step(&mut actor), "wait");
    others.move_timer(&0, FAR).expect("it is open");
    jump(ms(5));
    let mut turns = 1;
    while step(&mut actor) == "again" {
        turns += 1;
    }
    assert!(turns <= 5, "{turns} turns");
    assert_eq!(received(&mut stream).len(), 350);
}

#[tokio::test(start_paused = true)]
async fn settles_without_waiting_for_a_later_storm() {
    let (mut actor, wheel) = start();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    let _storm: Vec<_> = (0..300).map(|_| armed(&wheel, ms(4))).collect();
    for key in 0..INDICES_PER_TURN as u64 + 500 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut settled = Box::pin(wheel.settle());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "again");
    jump(ms(4));
    assert_eq!(step(&mut actor), "again");
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    jump(ms(1));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 300);
    assert!(settled.as_mut().poll(&mut cx).is_ready());
}

/// Removes all timers and drops the handle when it is woken.
struct EndSet(std::sync::Mutex<Option<KeyedTimers<u64, ()>>>);

impl Wake for EndSet {
    fn wake(self: Arc<Self>) {
        if let Some(timers) = self.0.lock().expect("no panic").take() {
            for key in 0..10 {
                timers.remove_timer(&key).expect("it is open");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn forgets_a_set_that_ends_within_a_turn() {
    let (mut actor, wheel) = start();
    let (timers, stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 1..10);
    timers.set_timer(0, (), ms(5)).expect("there is room");
    let mut sleep = wheel.sleep(ms(5));
    let waker = Waker::from(Arc::new(EndSet(std::sync::Mutex::new(Some(timers)))));
    assert!(poll(&mut sleep, &waker).is_pending());
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.items(), 11);
    jump(ms(5));
    while step(&mut actor) == "again" {}
    drop(stream);
    while step(&mut actor) == "again" {}
    assert_eq!((actor.items(), actor.keyed.hints().count()), (0, 0));
}

// Its last timer expires while changes of others are left for the next turn.
#[tokio::test(start_paused = true)]
async fn remembers_a_set_until_all_its_changes_are_processed() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(0, (), ms(5)).expect("there is room");
    assert_eq!(step(&mut actor), "wait");
    set_far(&timers, 1..5_000);
    for key in 1..5_000 {
        timers.remove_timer(&key).expect("it is open");
    }
    drop(timers);
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(received(&mut stream), [0]);
    drop(stream);
    while step(&mut actor) == "again" {}
    assert_eq!((actor.items(), actor.keyed.hints().count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn near_timer_comes_before_far_ones() {
    let (mut actor, wheel) = start();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(9_000, (), ms(5)).expect("there is room");
    set_far(&timers, 0..5_000);
    assert_eq!(step(&mut actor), "again");
    assert_eq!(actor.next_wake(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_touched_when_it_is_due_comes_in_its_new_order() {
    // With `found` the reader has found it due.
    for found in [false, true] {
        let (mut actor, wheel) = start();
        let (reaper, mut stream) = wheel.reaper::<u64, ()>(ms(10));
        let watches: Vec<_> = (0..600)
            .map(|key| reaper.watch(key, ()).expect("there is room"))
            .collect();
        assert_eq!(step(&mut actor), "wait");
        let then = Instant::now() + ms(3);
        jump(ms(20));
        assert_eq!(step(&mut actor), "wait");
        let mut first = Vec::new();
        if found {
            first.push(stream.try_recv().expect("it is due").key);
        }
        assert!(watches[1].touch_at(then));
        first.extend(received(&mut stream));
        let keys: Vec<_> = [0].into_iter().chain(2..600).chain([1]).collect();
        assert_eq!(first, keys, "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn misses_no_period_when_less_than_one_late() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_interval(1, (), ms(10)).expect("there is room");
    assert_eq!(step(&mut actor), "wait");
    let almost = Duration::from_nanos(1);
    jump(Duration::from_nanos(19_999_999));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(received(&mut stream), [1]);
    assert_eq!((step(&mut actor), actor.next_wake()), ("wait", Some(20)));
    jump(almost + ms(10));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(stream.try_recv().map(|fired| fired.missed), Ok(1));
    assert_eq!((step(&mut actor), actor.next_wake()), ("wait", Some(40)));
}

/// A value that panics when it is cloned and when it is dropped.
#[derive(PartialEq, Eq, Hash)]
struct Bad(bool);

impl Clone for Bad {
    fn clone(&self) -> Self {
        panic!("it cannot be cloned");
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        assert!(!self.0, "it cannot be dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn ends_the_stream_when_its_last_interval_is_lost() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<Bad, ()>();
    assert!(timers.set_interval(Bad(true), (), ms(10)).is_ok());
    drop(timers);
    assert_eq!(step(&mut actor), "wait");
    let count = Arc::<Count>::default();
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    assert!(stream.poll_recv(&mut cx).is_pending());
    jump(ms(10));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(matches!(stream.poll_recv(&mut cx), Poll::Ready(None)));
}

#[tokio::test(start_paused = true)]
async fn ends_all_watches_when_the_actor_has_ended() {
    let (actor, wheel) = start();
    let (reaper, _stream) = wheel.reaper::<u64, ()>(ms(10));
    let watches: Vec<_> = (0..600)
        .map(|key| reaper.watch(key, ()).expect("there is room"))
        .collect();
    drop(actor);
    assert!(!watches.iter().any(crate::WatchGuard::is_watched));
}
