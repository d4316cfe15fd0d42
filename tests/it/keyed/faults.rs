//! Promise P12 for keyed timers: a `Hash`, `Eq`, `Clone`, `Drop`, waker or handler that panics, or that calls back into
//! the library, harms its own timer only.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tickwheel::{Expirations, KeyedTimers, TimerWheel};
use tokio::time::Instant;

use crate::support::{advance, assert_balanced, ms};

/// When a key or value misbehaves: from the moment its fuse is lit.
#[derive(Debug, Default, Clone)]
struct Fuse(Arc<AtomicBool>);

impl Fuse {
    fn light(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn quench(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn check(&self, what: &str) {
        assert!(!self.0.load(Ordering::SeqCst), "{what} panics");
    }
}

#[derive(Debug, Clone)]
struct Key {
    number: u64,
    hash: Fuse,
    eq: Fuse,
    drop: Fuse,
}

impl Key {
    fn new(number: u64) -> Self {
        Key {
            number,
            hash: Fuse::default(),
            eq: Fuse::default(),
            drop: Fuse::default(),
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.check("Hash");
        // Few values, so that keys meet and are compared.
        (self.number % 4).hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.eq.check("Eq");
        other.eq.check("Eq");
        self.number == other.number
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        self.drop.check("Drop of a key");
    }
}

/// Everything in the stream, by number.
fn received<V: Send + 'static>(stream: &mut Expirations<Key, V>) -> Vec<(u64, V)> {
    std::iter::from_fn(|| stream.try_recv().ok())
        .map(|expired| (expired.key.number, expired.value))
        .collect()
}

/// Whether the call unwinds. Nothing may have changed then.
fn unwinds<T>(call: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

#[tokio::test(start_paused = true)]
async fn p12_unwinds_into_the_caller_when_hash_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    let bad = Key::new(7);
    timers.set_timer(bad.clone(), 7, ms(10)).unwrap();
    for number in 100..110 {
        timers.set_timer(Key::new(number), number, ms(10)).unwrap();
    }
    bad.hash.light();
    let value = Arc::new(());
    let (arcs, _arc_stream) = wheel.keyed();
    assert!(unwinds(|| arcs.set_timer(
        bad.clone(),
        Arc::clone(&value),
        ms(10)
    )));
    assert!(unwinds(|| arcs.set_interval(
        bad.clone(),
        Arc::clone(&value),
        ms(10)
    )));
    assert_eq!(Arc::strong_count(&value), 1, "it was not set");
    assert!(arcs.is_empty());
    let before = wheel.metrics();
    assert!(unwinds(|| timers.set_timer(bad.clone(), 8, ms(50))));
    assert!(unwinds(|| timers.move_timer(&bad, ms(50))));
    assert!(unwinds(|| timers.remove_timer(&bad)));
    assert!(unwinds(|| timers.deadline(&bad)));
    assert!(unwinds(|| timers.contains(&bad)));
    let after = wheel.metrics();
    assert_eq!(after.keyed_set, before.keyed_set);
    assert_eq!((after.keyed_moved, after.keyed_removed), (0, 0));
    // The table grows over a key whose hash would panic: it is not asked again.
    for number in 110..1000 {
        timers.set_timer(Key::new(number), number, ms(10)).unwrap();
    }
    for number in 100..1000 {
        assert!(timers.contains(&Key::new(number)), "{number}");
    }
    assert_eq!(timers.len(), 901);
    bad.hash.quench();
    assert_eq!(timers.deadline(&bad), Some(start + ms(10)));
    bad.hash.light();
    advance(&wheel, ms(10)).await;
    let fired = received(&mut stream);
    assert_eq!(fired[0], (7, 7), "it fires all the same");
    assert_eq!(fired.len(), 901);
    assert_eq!(timers.len(), 0);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_drains_a_key_whose_hash_panics() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed();
    let bad = Key::new(7);
    for number in 0..20 {
        let key = if number == 7 {
            bad.clone()
        } else {
            Key::new(number)
        };
        timers.set_timer(key, number, ms(10)).unwrap();
    }
    bad.hash.light();
    let drained = timers.drain().unwrap();
    assert_eq!(drained.len(), 20);
    assert_eq!(timers.len(), 0);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_unwinds_into_the_caller_when_eq_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    let bad = Key::new(5);
    for number in 0..40 {
        let key = if number == 5 {
            bad.clone()
        } else {
            Key::new(number)
        };
        timers.set_timer(key, number, ms(10)).unwrap();
    }
    bad.eq.light();
    let before = wheel.metrics();
    assert!(unwinds(|| timers.set_timer(bad.clone(), 8, ms(50))));
    assert!(unwinds(|| timers.set_interval(bad.clone(), 8, ms(50))));
    assert!(unwinds(|| timers.move_timer(&bad, ms(50))));
    assert!(unwinds(|| timers.remove_timer(&bad)));
    assert!(unwinds(|| timers.deadline(&bad)));
    assert!(unwinds(|| timers.contains(&bad)));
    let after = wheel.metrics();
    assert_eq!(after.keyed_set, before.keyed_set);
    assert_eq!((after.keyed_moved, after.keyed_removed), (0, 0));
    assert_eq!(timers.len(), 40);
    bad.eq.quench();
    assert_eq!(timers.deadline(&bad), Some(start + ms(10)));

    for number in (0..40).filter(|&n| n != 5) {
        timers.move_timer(&Key::new(number), ms(20)).unwrap();
    }
    assert_eq!(timers.remove_timer(&Key::new(9)), Ok(Some(9)));
    // Nobody compares keys when a timer fires.
    bad.eq.light();
    advance(&wheel, ms(10)).await;
    assert_eq!(received(&mut stream), [(5, 5)]);
    advance(&wheel, ms(10)).await;
    assert_eq!(received(&mut stream).len(), 38);
    assert_balanced(&wheel);
}

/// A value whose drop panics while its fuse burns; it counts its drops.
#[derive(Debug)]
struct Value {
    fuse: Fuse,
    drops: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
        self.fuse.check("Drop of a value");
    }
}

struct Bombs {
    fuse: Fuse,
    drops: Arc<AtomicUsize>,
    timers: KeyedTimers<u64, Value>,
    stream: Expirations<u64, Value>,
}

/// Ten timers whose values panic when dropped.
fn bombs(wheel: &TimerWheel) -> Bombs {
    let (timers, stream) = wheel.keyed();
    let bombs = Bombs {
        fuse: Fuse::default(),
        drops: Arc::default(),
        timers,
        stream,
    };
    for key in 0..10 {
        bombs
            .timers
            .set_timer(key, bombs.value(), ms(10 + key))
            .unwrap();
    }
    bombs.fuse.light();
    bombs
}

impl Bombs {
    fn value(&self) -> Value {
        let (fuse, drops) = (self.fuse.clone(), Arc::clone(&self.drops));
        Value { fuse, drops }
    }

    fn drops(&self) -> usize {
        self.drops.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn p12_drops_values_whose_drop_panics_once_each() {
    let wheel = TimerWheel::new();
    let mut bombs = bombs(&wheel);
    // Removed and replaced values are the caller's to drop.
    let removed = bombs.timers.remove_timer(&0).unwrap();
    assert!(removed.is_some() && bombs.drops() == 0);
    assert!(unwinds(|| drop(removed)) && bombs.drops() == 1);
    for drops in 2..4 {
        let replaced = bombs.timers.set_timer(1, bombs.value(), ms(5)).unwrap();
        assert!(replaced.is_some() && bombs.drops() == drops - 1);
        assert!(unwinds(|| drop(replaced)) && bombs.drops() == drops);
    }
    advance(&wheel, ms(5)).await;
    let received = bombs.stream.try_recv().unwrap();
    assert_eq!(bombs.drops(), 3, "it was handed over whole");
    assert!(unwinds(|| drop(received)) && bombs.drops() == 4);
    assert_eq!(bombs.timers.len(), 8);
    advance(&wheel, ms(7)).await;
    let Bombs {
        stream,
        drops,
        timers,
        ..
    } = bombs;
    drop(stream);
    assert_eq!(
        drops.load(Ordering::SeqCst),
        12,
        "one lay in the stream, seven were pending"
    );
    assert!(timers.is_empty());
    advance(&wheel, ms(100)).await;
    assert_balanced(&wheel);
    wheel.sleep(ms(10)).await;
    assert!(!wheel.is_shutdown(), "the actor runs on");
}

#[tokio::test(start_paused = true)]
async fn p12_shuts_down_with_values_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let bombs = bombs(&wheel);
    advance(&wheel, ms(12)).await;
    wheel.shutdown().await;
    let Bombs {
        stream,
        drops,
        timers,
        ..
    } = bombs;
    drop(timers);
    drop(stream);
    assert_eq!(drops.load(Ordering::SeqCst), 10);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_survives_keys_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let bad = Key::new(1);
    for _ in 0..3 {
        timers.set_timer(bad.clone(), 1, ms(10)).unwrap();
    }
    timers.set_timer(Key::new(2), 2, ms(10)).unwrap();
    let again = bad.clone();
    bad.drop.light();
    let replaced = timers.set_timer(again, 3, ms(20));
    let removed = timers.remove_timer(&bad);
    bad.drop.quench();
    assert_eq!(replaced, Ok(Some(1)), "the answer is not lost");
    assert_eq!(removed, Ok(Some(3)));
    advance(&wheel, ms(20)).await;
    assert_eq!(received(&mut stream), [(2, 2)]);
    assert_balanced(&wheel);
}

/// A value whose clone panics while its fuse burns.
#[derive(Debug, Default)]
struct Clones(u32, Fuse, Arc<()>);

impl Clone for Clones {
    fn clone(&self) -> Self {
        self.1.check("Clone");
        Clones(self.0, self.1.clone(), Arc::clone(&self.2))
    }
}

#[tokio::test(start_paused = true)]
async fn p12_ends_only_the_interval_whose_clone_panics() {
    let wheel = TimerWheel::builder().max_keyed(20).start().unwrap();
    let (timers, mut stream) = wheel.keyed();
    let fuse = Fuse::default();
    let alive = Arc::new(());
    for key in 0..20 {
        let fuse = if key == 7 {
            fuse.clone()
        } else {
            Fuse::default()
        };
        timers
            .set_interval(key, Clones(key, fuse, Arc::clone(&alive)), ms(10))
            .unwrap();
    }
    let mut beats = async |n: usize| {
        advance(&wheel, ms(10)).await;
        let keys: Vec<_> = std::iter::from_fn(|| stream.try_recv().ok().map(|e| e.key)).collect();
        assert_eq!(keys.len(), n, "{keys:?}");
        assert_eq!(keys.contains(&7), n == 20);
    };
    beats(20).await;
    fuse.light();
    beats(19).await;
    fuse.quench();
    beats(19).await;
    assert_eq!(timers.len(), 19);
    assert_eq!(Arc::strong_count(&alive), 20, "its value was dropped");
    let m = wheel.metrics();
    assert_eq!((m.keyed_removed, m.keyed_pending), (1, 19));
    timers
        .set_timer(7, Clones::default(), ms(5))
        .expect("its place is free");
    assert_balanced(&wheel);
}

/// A waker that runs a closure when it is woken, and another when it is dropped.
struct Hooks {
    wake: Box<dyn Fn() + Send + Sync>,
    drop: Box<dyn Fn() + Send + Sync>,
}

impl Wake for Hooks {
    fn wake(self: Arc<Self>) {
        (self.wake)();
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        (self.drop)();
    }
}

fn waker(
    wake: impl Fn() + Send + Sync + 'static,
    drop: impl Fn() + Send + Sync + 'static,
) -> Waker {
    let (wake, drop) = (Box::new(wake), Box::new(drop));
    Waker::from(Arc::new(Hooks { wake, drop }))
}

#[tokio::test(start_paused = true)]
async fn p12_survives_a_consumer_whose_waker_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let (others, mut other_stream) = wheel.keyed::<u32, u32>();
    for round in 0..5 {
        let waker = waker(|| panic!("a waker panics"), || ());
        let poll = stream.poll_recv(&mut Context::from_waker(&waker));
        assert_eq!(poll, Poll::Pending);
        timers.set_timer(1, round, ms(5)).unwrap();
        others.set_timer(1, round, ms(5)).unwrap();
        let mut sleep = Box::pin(wheel.sleep(ms(5)));
        assert!(futures::poll!(&mut sleep).is_pending());
        advance(&wheel, ms(5)).await;
        assert_eq!(stream.try_recv().map(|e| e.value), Ok(round));
        assert_eq!(other_stream.try_recv().map(|e| e.value), Ok(round));
        assert!(futures::poll!(&mut sleep).is_ready());
    }
    let poll = stream.poll_recv(&mut Context::from_waker(&waker(
        || panic!("at the end"),
        || (),
    )));
    assert_eq!(poll, Poll::Pending);
    wheel.shutdown().await;
    assert!(stream.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn p12_drops_the_last_handle_despite_a_panicking_waker() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let waker = waker(|| panic!("a waker panics"), || ());
    assert_eq!(
        stream.poll_recv(&mut Context::from_waker(&waker)),
        Poll::Pending
    );
    drop(timers);
    assert!(stream.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn p12_lets_a_consumers_waker_use_its_own_set() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let woken = Arc::<AtomicUsize>::default();
    let (in_wake, in_drop, counter) = (timers.clone(), timers.clone(), Arc::clone(&woken));
    let other_wheel = wheel.clone();
    let waker = waker(
        move || {
            counter.fetch_add(1, Ordering::SeqCst);
            in_wake.set_timer(2, 20, ms(5)).unwrap();
            in_wake.move_timer(&2, ms(6)).unwrap();
            in_wake.remove_timer(&3).unwrap();
            assert_eq!(in_wake.len(), 1);
            assert_eq!(other_wheel.metrics().keyed_pending, 1);
            drop(other_wheel.keyed::<u8, u8>());
        },
        move || {
            // The stream is gone by then, or another has registered.
            let _ = in_drop.set_timer(4, 40, ms(5));
            let _ = in_drop.len();
        },
    );
    assert_eq!(
        stream.poll_recv(&mut Context::from_waker(&waker)),
        Poll::Pending
    );
    drop(waker);
    timers.set_timer(1, 10, ms(5)).unwrap();
    timers.set_timer(3, 30, ms(50)).unwrap();
    advance(&wheel, ms(5)).await;
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    let keys = async |stream: &mut Expirations<u32, u32>| stream.recv().await.map(|e| e.key);
    assert_eq!(keys(&mut stream).await, Some(1));
    assert_eq!(
        keys(&mut stream).await,
        Some(4),
        "set while the waker was dropped"
    );
    assert_eq!(keys(&mut stream).await, Some(2));
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_lets_a_replaced_waker_use_its_own_set() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let in_drop = timers.clone();
    let waker = waker(
        || (),
        move || assert_eq!(in_drop.set_timer(1, 1, ms(5)), Ok(None)),
    );
    assert_eq!(
        stream.poll_recv(&mut Context::from_waker(&waker)),
        Poll::Pending
    );
    drop(waker);
    // Another waker takes the place of the first, whose drop sets a timer.
    assert_eq!(stream.recv().await.map(|e| e.key), Some(1));
}

#[tokio::test(start_paused = true)]
async fn p12_drops_timers_despite_a_waker_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, Arc<()>>();
    let value = Arc::new(());
    for key in 0..10 {
        timers.set_timer(key, Arc::clone(&value), ms(5)).unwrap();
    }
    let waker = waker(|| (), || panic!("the drop of a waker panics"));
    assert!(
        stream
            .poll_recv(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    drop(stream);
    assert_eq!(Arc::strong_count(&value), 1);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_spares_the_successor_of_a_waker_whose_drop_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    let waker = waker(|| (), || panic!("the drop of a waker panics"));
    assert!(
        stream
            .poll_recv(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    timers.set_timer(1, 1, ms(5)).unwrap();
    assert_eq!(stream.recv().await.map(|e| e.key), Some(1));
}

#[tokio::test(start_paused = true)]
async fn p12_lets_values_use_their_own_set_when_dropped() {
    struct Rearm(Option<KeyedTimers<u32, Rearm>>, Arc<Mutex<Vec<u32>>>, u32);
    impl Drop for Rearm {
        fn drop(&mut self) {
            if let Some(timers) = self.0.take() {
                let again = Rearm(None, Arc::clone(&self.1), self.2 + 100);
                let _ = timers.set_timer(self.2 + 100, again, ms(5));
                let _ = timers.remove_timer(&(self.2 + 50));
            }
            self.1.lock().unwrap().push(self.2);
        }
    }
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let log = Arc::<Mutex<Vec<u32>>>::default();
    let value = |n| Rearm(Some(timers.clone()), Arc::clone(&log), n);
    timers.set_timer(1, value(1), ms(10)).unwrap();
    timers.set_timer(2, value(2), ms(10)).unwrap();
    timers.set_timer(3, value(3), ms(10)).unwrap();
    timers.remove_timer(&1).unwrap();
    timers.set_timer(2, value(22), ms(20)).unwrap();
    drop(timers.remove_timer(&3));
    assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
    assert_eq!(timers.len(), 4);
    advance(&wheel, ms(5)).await;
    let keys: Vec<_> = std::iter::from_fn(|| stream.try_recv().ok().map(|e| e.key)).collect();
    assert_eq!(keys, [101, 102, 103]);
    // Dropped with the stream, the last one finds the set closed.
    drop(stream);
    assert_eq!(*log.lock().unwrap(), [1, 2, 3, 101, 102, 103, 122, 22]);
    assert!(timers.is_empty());
    assert_balanced(&wheel);
}
