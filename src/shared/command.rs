//! Every command to the actor.
//!
//! A command about a timer carries all that the actor needs to put it on the wheel, so it need not
//! look at the timer: that lies in the cache of another core, or under a lock.

use tokio::sync::oneshot;

use crate::shared::SleepEntry;
use crate::shared::entry::EntryArc;
use crate::shared::mailbox::Mailbox;
use crate::shared::note::{Note, SetKey};
use crate::shared::notifier::ActorNotifier;

/// A command to the actor. It takes 24 bytes: a note's number is not zero, which leaves one value
/// to tell a second variant by, and no third.
#[derive(Debug)]
pub(crate) enum Command {
    /// About a keyed timer.
    Note(Note),
    Other(Other),
}

/// A command that is no note. It takes two words.
#[derive(Debug)]
pub(crate) enum Other {
    /// Put a node for the entry of a sleeping future on the wheel.
    Sleep {
        entry: EntryArc<SleepEntry>,
        tick: u64,
    },
    Request(Box<Request>),
}

/// A command about the wheel itself. They are rare.
#[derive(Debug)]
pub(crate) enum Request {
    /// Report once every command that was pushed before is applied, and every timer due by now has
    /// fired.
    Settle(oneshot::Sender<()>),
    /// The set was dropped.
    Forget(SetKey),
    /// Too many nodes of sleeps are [stale](super::stale): look at their count.
    Sweep,
    /// The clock is virtual: take the sleeps off the wheel. Those that are armed go on with Tokio's
    /// timer.
    Evict,
    /// The last handle was dropped: end as soon as nothing is armed.
    Orphaned,
    /// End now.
    Shutdown,
}

impl From<Request> for Command {
    fn from(request: Request) -> Self {
        Command::Other(Other::Request(Box::new(request)))
    }
}

/// The mailbox of the actor.
pub(crate) type CommandMailbox = Mailbox<Command, ActorNotifier>;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Command>() == 24);
