//! Every command to the actor.
//!
//! A command about a timer carries all that the actor needs to put it on the wheel, so it need not
//! look at the timer: that lies in the cache of another core, or under a lock.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::keyed::hint::Hints;
use crate::keyed::set_key::SetKey;
use crate::shared::SleepEntry;
use crate::shared::entry::EntryArc;
use crate::shared::mailbox::Mailbox;
use crate::shared::notifier::ActorNotifier;

/// A command to the actor.
#[derive(Debug)]
pub(crate) enum Command {
    /// Schedule the index of a set for this tick; `NEVER` takes it off the wheel. The last note for
    /// an index counts: those of a set arrive in the order in which its lock was held.
    Note {
        set: SetKey,
        index: u32,
        tick: u64,
    },
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
    /// A set was made.
    Register(SetKey, Arc<Hints>),
    /// No more notes of the set come under this key.
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
        Command::Request(Box::new(request))
    }
}

/// The mailbox of the actor.
pub(crate) type CommandMailbox = Mailbox<Command, ActorNotifier>;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Command>() == 24);
