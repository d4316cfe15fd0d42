//! The hierarchical timing wheel: a pure data structure that takes ticks in and yields items.
//!
//! It knows no clock, runtime, thread or logger. Time is a `u64` count of ticks that the caller
//! passes to [`Wheel::advance`]; the caller decides how long a tick is. Any event loop can
//! drive one.
//!
//! # How it works
//!
//! The wheel is a row of *levels*. Each level is a ring of `slots` buckets; a bucket of level *n*
//! is `slots^n` ticks wide. An item scheduled for tick `d` goes into the lowest level whose window
//! reaches it:
//!
//! ```text
//! unit(n, t) = t / slots^n
//! level      = the first n with  unit(n, d) - unit(n, now) < slots
//! bucket     = unit(level, d) % slots
//! ```
//!
//! The window of a level slides with the current time. When time reaches the start of a bucket of a
//! higher level, the items in it *cascade*: each goes to a lower level, or is due. An item cascades
//! at most once per level, and costs nothing until then.
//!
//! The wheel makes a level when the first item is scheduled that far ahead. It has 64 slots, so
//! eleven levels reach `u64::MAX` ticks.
//!
//! # A worked example
//!
//! Four slots, the current tick is 0. The ranges are the ticks of a bucket.
//!
//! | level | width | bucket 0 | bucket 1 | bucket 2 | bucket 3 |
//! |---|---|---|---|---|---|
//! | 0 | 1 | `[0,1)` | `[1,2)` | `[2,3)` | `[3,4)` |
//! | 1 | 4 | (now) | `[4,8)` | `[8,12)` | `[12,16)` |
//! | 2 | 16 | (now) | `[16,32)` | `[32,48)` | `[48,64)` |
//!
//! An item scheduled for tick 9 is too far for level 0 and goes to bucket 2 of level 1. At tick 6
//! the windows have slid:
//!
//! | level | width | bucket 0 | bucket 1 | bucket 2 | bucket 3 |
//! |---|---|---|---|---|---|
//! | 0 | 1 | `[8,9)` | `[9,10)` | `[6,7)` | `[7,8)` |
//! | 1 | 4 | `[16,20)` | (now) | `[8,12)` | `[12,16)` |
//! | 2 | 16 | (now) | `[16,32)` | `[32,48)` | `[48,64)` |
//!
//! A second item for tick 9 goes straight to bucket 1 of level 0. The first is still in `[8,12)`,
//! whose start is the next tick with anything to do, [`Wheel::next_wake`]: at 8 the first item
//! cascades to bucket 1 of level 0, and at 9 both come out. The caller need not wake at 7.
//!
//! # What stays
//!
//! The module is public for other event loops, and its calls are meant to stay for years: they say
//! when items come out, and in which order. They leave open how many slots a level has, how many
//! items cascade at once, and what `Debug` shows. Nothing else of the crate is needed to use them.
//! The crate's actor drives the same algorithm by calls of its own.
//!
//! # Source
//!
//! G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), in the form Apache
//! Kafka gave it: sliding windows, overflow levels on demand, and a clock driven by the next
//! non-empty bucket instead of a periodic tick. Where Kafka keeps its buckets in a queue ordered by
//! time, this wheel keeps a bitmap for each level.

mod arena;
mod bare;
#[cfg(any(test, fuzzing))]
#[path = "tests/invariants.rs"]
mod invariants;
mod level;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use std::fmt;
use std::num::NonZeroU64;

use bare::Drain;

pub(crate) use bare::BareWheel;

/// How many slots a level of a [`Wheel`] has.
const SLOTS: usize = 64;

/// A hierarchical timing wheel over `u64` ticks. The [module](self) explains how it works.
///
/// Inserting and removing are O(1), amortised over the growth of its memory. Advancing is O(1) per
/// item and level, however many ticks have passed.
///
/// # Examples
///
/// ```
/// use tickwheel::wheel::Wheel;
///
/// let mut wheel = Wheel::new();
/// wheel.insert(5, "tea");
/// let eggs = wheel.insert(7, "eggs");
/// wheel.insert(1_000_000, "taxes");
///
/// assert_eq!(wheel.next_wake(), Some(5));
/// assert_eq!(wheel.advance(6, usize::MAX).collect::<Vec<_>>(), ["tea"]);
///
/// assert_eq!(wheel.remove(eggs), Some("eggs"));
/// assert_eq!(wheel.remove(eggs), None);
/// assert_eq!(wheel.len(), 1);
/// ```
#[derive(Clone)]
pub struct Wheel<T> {
    bare: BareWheel<Stamped<T>>,
    /// The stamp of the next item.
    stamp: NonZeroU64,
}

/// An item, and what distinguishes it from the others that had its index.
#[derive(Debug, Clone)]
struct Stamped<T> {
    stamp: NonZeroU64,
    item: T,
}

/// Names one item in a [`Wheel`] for as long as the item is there.
///
/// Tokens are generational: once the wheel has removed or yielded the item, its token is stale. A
/// stale token yields `None` everywhere, never another item.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    index: u32,
    /// The number of the item in the order of insertion. Counting to 2^64 takes centuries.
    stamp: NonZeroU64,
}

impl<T> Wheel<T> {
    /// Makes an empty wheel at tick 0.
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// Makes an empty wheel at tick `now`.
    pub fn starting_at(now: u64) -> Self {
        Self::on(BareWheel::starting_at(SLOTS, now))
    }

    /// With another number of slots for each level: a power of two from 2 on. For tests and
    /// fuzzing.
    #[cfg(any(test, fuzzing, feature = "_tests"))]
    #[doc(hidden)]
    pub fn with_slots(slots: usize, now: u64) -> Self {
        assert!(slots > 1 && slots.is_power_of_two());
        Self::on(BareWheel::starting_at(slots, now))
    }

    fn on(bare: BareWheel<Stamped<T>>) -> Self {
        Wheel {
            bare,
            stamp: NonZeroU64::MIN,
        }
    }

    /// The current tick. The wheel has yielded every item due before it.
    pub fn now(&self) -> u64 {
        self.bare.now()
    }

    /// How many items are in the wheel.
    pub fn len(&self) -> usize {
        self.bare.len()
    }

    /// Whether the wheel holds no item.
    pub fn is_empty(&self) -> bool {
        self.bare.is_empty()
    }

    /// Schedules `item` for `tick`. A tick that is not in the future is due at once.
    ///
    /// # Panics
    ///
    /// Panics if the wheel already holds 2<sup>32</sup> - 4096 items.
    #[doc(alias = "schedule")]
    pub fn insert(&mut self, tick: u64, item: T) -> Token {
        let stamp = self.stamp;
        self.stamp = stamp.saturating_add(1);
        let index = self.bare.insert(tick, Stamped { stamp, item });
        Token { index, stamp }
    }

    /// Removes the item; `None` if the token is stale.
    #[doc(alias = "cancel")]
    pub fn remove(&mut self, token: Token) -> Option<T> {
        self.get(token)?;
        Some(self.bare.remove(token.index)?.item)
    }

    /// Schedules the item for another tick, earlier or later. Its token stays valid.
    ///
    /// Returns `false` and does nothing if the token is stale.
    #[doc(alias = "reset")]
    pub fn reschedule(&mut self, token: Token, tick: u64) -> bool {
        self.get(token).is_some() && self.bare.reschedule(token.index, tick)
    }

    /// The item behind the token, if it is still in the wheel.
    pub fn get(&self, token: Token) -> Option<&T> {
        let stamped = self.bare.get(token.index)?;
        (stamped.stamp == token.stamp).then_some(&stamped.item)
    }

    /// The item behind the token, if it is still in the wheel.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let stamped = self.bare.get_mut(token.index)?;
        (stamped.stamp == token.stamp).then_some(&mut stamped.item)
    }

    /// The tick for which the item is scheduled, if it still is.
    pub fn tick_of(&self, token: Token) -> Option<u64> {
        self.get(token)?;
        self.bare.tick_of(token.index)
    }

    /// The tick at which [`advance`](Wheel::advance) next has something to do, or `None` if the
    /// wheel is empty.
    ///
    /// It is a lower bound: no item is due before it, but at the start of a bucket of a higher
    /// level items only cascade, at most once per item and level. The tick is never before
    /// [`now`](Wheel::now); if it equals `now`, there is something to do at once.
    pub fn next_wake(&self) -> Option<u64> {
        self.bare.next_wake()
    }

    /// Moves the current tick to `now` and yields the items due by then, tick by tick.
    ///
    /// One call yields at most `budget` items and cascades a bounded number. The current tick then
    /// stays at what was reached, and [`next_wake`](Wheel::next_wake) is at or before `now`: call
    /// again to go on. A dropped iterator leaves the items that it has not yielded in the wheel.
    ///
    /// A `now` before the current tick counts as the current tick.
    ///
    /// # Examples
    ///
    /// ```
    /// use tickwheel::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// for item in 0..3 {
    ///     wheel.insert(10, item);
    /// }
    /// assert_eq!(wheel.advance(10, 2).count(), 2);
    /// assert_eq!(wheel.next_wake(), Some(10));
    /// assert_eq!(wheel.advance(10, 2).count(), 1);
    /// assert_eq!(wheel.next_wake(), None);
    /// ```
    #[must_use = "time moves as the iterator is consumed"]
    pub fn advance(&mut self, now: u64, budget: usize) -> Advance<'_, T> {
        Advance {
            due: self.bare.advance(now, budget),
        }
    }
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}v{})", self.index, self.stamp)
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bare.fmt(f)
    }
}

/// The items that [`Wheel::advance`] yields, in the order of their ticks. Time moves as the
/// iterator is consumed.
pub struct Advance<'a, T> {
    due: Drain<'a, Stamped<T>>,
}

impl<T> Iterator for Advance<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.due.next().map(|stamped| stamped.item)
    }
}

impl<T> fmt::Debug for Advance<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advance")
            .field("wheel", &self.due.wheel)
            .field("target", &self.due.target)
            .field("budget", &self.due.budget)
            .finish_non_exhaustive()
    }
}
