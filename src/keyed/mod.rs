//! Timers with keys. Any task sets, moves and removes them, and a stream returns those that expire.
//!
//! The sets beneath, one with each stream, serve [reapers](crate::Reaper) too.
//!
//! # The wheel holds a lower bound; the set holds the truth
//!
//! A timer lies in a *slot* of its set, under the lock of the set, and has an *index* there. The
//! actor knows indices alone: it owns the wheel on which each index lies at the tick of its timer's
//! deadline, or at an earlier one. **A timer has expired when it is received**: the reader of the
//! stream decides that, under the lock. Until then remove, set, move and touch win.
//!
//! A timer's way leads through these files:
//!
//! 1. [`call`]: a caller locks the set and changes the timer in its slot. Moving one later ends
//!    here.
//! 2. [`note`]: if the wheel would reach the index too late, the caller sends the actor a *note*:
//!    schedule this index for this tick, or take it off the wheel.
//! 3. [`node`]: the actor applies notes in order, to the *node* of the index. Later the wheel
//!    reaches it, and the node is gone.
//! 4. [`hint`]: the actor tells the reader of the set which indices were reached, and wakes it.
//! 5. [`receipt`]: the reader locks the set and looks at these indices. A timer that is due is
//!    received, in order. One that was moved later gets a note.
//!
//! The actor locks no set, and runs no code of a user but wakers. No hold of the lock touches more
//! than [`BATCH`](set::BATCH) timers; taking [all](drain) of them touches none.
//!
//! # Invariants
//!
//! * **K1 One queue.** Everything about a set goes into one queue of the mailbox, which its
//!   [key](set_key) chooses: first that it was made, then its notes, each pushed under the hold of
//!   the lock in which the slot was written, and at last that it is to be forgotten. So the actor
//!   applies notes in the order of the changes, and the last one for an index counts.
//! * **K2 The bound.** A slot that is *scheduled* for an instant had its last note for the tick of
//!   that instant or for an earlier one, and is not looked at since; or a hint is on its way. So
//!   only a deadline before that instant needs a note.
//! * **K3 The carrier.** A timer that is armed, and not at *never*, has a node for its deadline's
//!   tick or an earlier one, counting the last note that is on its way; or a hint is on its way; or
//!   the reader found the timer due, and has its index and number.
//! * **K4 The number.** Each arming has a number greater than all before in its set. What the
//!   reader found due counts only if the timer still has that number. A hint names no timer: it is
//!   answered by what is in the slot then, and a hint too many does no harm.
//! * **K5 The order.** The reader knows two ticks: by the first it decides what is due. Everything
//!   that was reached before the second one was told, and the reader takes out what is due before
//!   that, by tick, and within a tick by number, once it has looked at all hints.
//!
//! K2 makes K3 hold through every change: a caller that moves a deadline before the bound sends a
//! note, any other relies on the note or hint that is there. By the [wake
//! rule](crate::shared::mailbox) and since a turn fires nothing that is due after a command which
//! it has not applied, a note is applied before its tick is reached. Looking at a slot removes its
//! bound, and so does not rely on older notes: they may still make a node, which costs one hint
//! that finds nothing.
//!
//! A loom model runs the slots, what is due, the hints, the nodes and the mailbox with two callers,
//! the actor and the reader. A test tries every order of what they do with one index.
//!
//! The reader goes by the ticks of the wheel, not by its own clock: the order of what it has not
//! been told is not known.
//!
//! # Kept slots
//!
//! A timer that is removed is often set again soon, as a timeout is for each request. So its slot
//! is kept with its bound, and the next timer with a later deadline takes it over without a note.
//! There are few kept slots, and no more than one beyond the number of timers, so memory and
//! wake-ups follow that number. None is kept once nothing can be set any more, nor on a virtual
//! clock, which moves on its own to the next node.
//!
//! # Growth under the lock
//!
//! | | grows by | moves at most |
//! |---|---|---|
//! | [slots](table) | a chunk of 256 slots, the first one by doubling | half of the first chunk, and 40 bytes for each 256 timers |
//! | the [key index](key_index) | a table of twice the size | eight buckets with each change |
//! | commands in a queue | a block of 512, the first one by doubling | half of the first block, and 40 bytes for each block |
//! | repeating timers | a node of a tree | half a node |
//!
//! The lists of the reader grow while the lock is free.
//!
//! # User code
//!
//! A key's `Hash` runs in the caller before the lock is taken. `Eq` runs under the lock before
//! anything is changed, and so may unwind. So do `Clone` of a value that is read, what reads it,
//! what decides whether a watch expires, and `update`, which may have changed its timer before;
//! `keep` of `retain` may change values, and unwind between two timers. `Clone` of a repeating
//! timer, and of a key for a [dispatch](in_hand), runs in the reader, under the lock, and is
//! caught. None of them may call back into the same set. Keys, values and panics are dropped, and
//! wakers cloned, woken and dropped, when the lock is free.

mod call;
mod dispatch;
mod drain;
mod due;
mod error;
mod expirations;
mod expired;
pub(crate) mod hint;
mod in_hand;
mod key_index;
pub(crate) mod node;
mod note;
mod payload;
mod receipt;
mod set;
pub(crate) mod set_key;
mod stream;
mod table;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;
mod timers;
mod unexpired;
mod update;
mod weak_timers;
mod whole_set;

pub use dispatch::Outcome;
pub use error::{ClosedError, SetTimerError, TryRecvError};
pub use expirations::Expirations;
pub use expired::{Cause, Expired};
pub use timers::KeyedTimers;
pub use unexpired::Unexpired;
pub use update::TimerMut;
pub use weak_timers::WeakKeyedTimers;

pub(crate) use payload::{MayExpire, Payload, Silence};
pub(crate) use set::{Handles, Set};
pub(crate) use timers::pair;
