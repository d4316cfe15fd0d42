//! Values that panic in `Drop` or `Clone`, or use their own set when they are dropped.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tickwheel::{Expirations, KeyedTimers, TimerWheel, TryRecvError};

use super::{Fuse, unwinds};
use crate::support::{advance, assert_balanced, ms};

/// A value that panics when dropped while its fuse burns; it counts its drops.
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

/// Ten timers with values that panic when dropped.
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
async fn p12_values_whose_drop_panics_are_dropped_once_each() {
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
    assert_eq!(bombs.drops(), 3, "it was received whole");
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

/// A value that panics when cloned while its fuse burns.
#[derive(Debug, Default)]
struct Clones(u32, Fuse, Arc<()>);

impl Clone for Clones {
    fn clone(&self) -> Self {
        self.1.check("Clone");
        Clones(self.0, self.1.clone(), Arc::clone(&self.2))
    }
}

#[tokio::test(start_paused = true)]
async fn p12_panic_of_clone_ends_only_its_own_interval() {
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
    // The last value is dropped with the stream, and finds the set closed.
    drop(stream);
    assert_eq!(*log.lock().unwrap(), [1, 2, 3, 101, 102, 103, 122, 22]);
    assert!(timers.is_empty());
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_retain_leaves_a_sound_set_when_it_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    for key in 0..10 {
        timers.set_timer(key, key, ms(10)).unwrap();
    }
    wheel.settle().await;
    let mut visited = 0;
    let panics = |_: &u64, _: &mut u64, _| {
        visited += 1;
        assert!(visited < 5, "the fifth panics");
        false
    };
    assert!(unwinds(|| timers.retain(panics)));
    assert_eq!(timers.len(), 6, "four were removed before");
    advance(&wheel, ms(100)).await;
    let fired = std::iter::from_fn(|| stream.try_recv().ok()).count();
    assert_eq!(fired, 6);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_retain_drops_every_value_though_each_drop_panics() {
    let wheel = TimerWheel::new();
    let bombs = bombs(&wheel);
    assert!(bombs.timers.retain(|_, _, _| false).is_ok());
    assert_eq!((bombs.drops(), bombs.timers.len()), (10, 0));
    assert_balanced(&wheel);
}

/// Panics when it is cloned.
#[derive(Debug)]
struct Uncloneable;

impl Clone for Uncloneable {
    fn clone(&self) -> Self {
        panic!("Clone panics")
    }
}

#[tokio::test(start_paused = true)]
async fn p12_get_leaves_a_timer_whose_clone_panics() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u64, Uncloneable>();
    timers.set_timer(1, Uncloneable, ms(10)).unwrap();
    assert!(unwinds(|| timers.get(&1)));
    assert!(timers.contains(&1));
    advance(&wheel, ms(10)).await;
    assert!(stream.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn p12_keys_and_values_whose_drops_panic_are_dropped_each() {
    let wheel = TimerWheel::new();
    let (fuse, drops) = <(Fuse, Arc<AtomicUsize>)>::default();
    let bomb = || Value {
        fuse: fuse.clone(),
        drops: Arc::clone(&drops),
    };
    // Watches have keys without `Hash`.
    let (reaper, stream) = wheel.reaper(ms(10));
    let due = reaper.watch(bomb(), bomb()).unwrap();
    advance(&wheel, ms(10)).await;
    let pending = reaper.watch(bomb(), bomb()).unwrap();
    fuse.light();
    drop(stream);
    assert_eq!(drops.load(Ordering::SeqCst), 4);
    drop((due, pending));
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p12_retain_drops_values_that_panic_though_it_panics() {
    let wheel = TimerWheel::new();
    let bombs = bombs(&wheel);
    let panics = |key: &u64, _: &mut Value, _| {
        assert!(*key < 5, "the sixth panics");
        false
    };
    assert!(unwinds(|| bombs.timers.retain(panics)));
    assert_eq!((bombs.drops(), bombs.timers.len()), (5, 5));
    assert_balanced(&wheel);
}

/// Panics when it is cloned, with a panic that calls the set when it is dropped.
struct PanicsWithSet(KeyedTimers<u32, PanicsWithSet>, Arc<AtomicUsize>);

impl Clone for PanicsWithSet {
    fn clone(&self) -> Self {
        std::panic::panic_any(CallsSet(self.0.clone(), Arc::clone(&self.1)))
    }
}

struct CallsSet(KeyedTimers<u32, PanicsWithSet>, Arc<AtomicUsize>);

impl Drop for CallsSet {
    fn drop(&mut self) {
        assert!(self.0.is_empty());
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn p12_panic_of_clone_is_dropped_when_the_set_is_not_locked() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let calls = Arc::<AtomicUsize>::default();
    let value = PanicsWithSet(timers.clone(), Arc::clone(&calls));
    timers.set_interval(1, value, ms(10)).unwrap();
    advance(&wheel, ms(10)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 0, "the reader clones");
    assert_eq!(stream.try_recv().err(), Some(TryRecvError::Empty));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_balanced(&wheel);
}

/// Calls its set when it is dropped.
#[derive(Clone)]
struct KeyCallsSet(KeyedTimers<KeyCallsSet, Uncloneable>, Arc<AtomicUsize>);

impl Drop for KeyCallsSet {
    fn drop(&mut self) {
        assert!(self.0.is_empty());
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

impl PartialEq for KeyCallsSet {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KeyCallsSet {}

impl Hash for KeyCallsSet {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

// The copy of the key was once dropped while the set was locked.
#[tokio::test(start_paused = true)]
async fn p12_copied_key_is_dropped_when_the_set_is_not_locked() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let calls = Arc::<AtomicUsize>::default();
    let key = KeyCallsSet(timers.clone(), Arc::clone(&calls));
    timers.set_interval(key, Uncloneable, ms(10)).unwrap();
    advance(&wheel, ms(10)).await;
    assert_eq!(stream.try_recv().err(), Some(TryRecvError::Empty));
    assert_eq!(calls.load(Ordering::SeqCst), 2, "the key and its copy");
    assert!(timers.is_empty());
    assert_balanced(&wheel);
}
