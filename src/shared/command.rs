//! Every command to the actor.
//!
//! Most commands carry no deadline: they name what the actor has to process, and that knows its
//! deadline. A [`Note`] about a keyed timer carries all that the actor needs, so that it need not
//! lock the set.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::shared::SleepEntry;
use crate::shared::mailbox::Mailbox;
use crate::shared::note::{Note, SetKey};
use crate::shared::notifier::ActorNotifier;

/// A command to the actor. It takes 24 bytes, because a note's number is not zero.
#[derive(Debug)]
pub(crate) enum Command {
    Note(Note),
    Request(Request),
}

/// A command that is no note.
pub(crate) enum Request {
    /// Process this entry of a sleeping future: schedule it, reschedule it earlier, or deregister
    /// it.
    Sleep(Arc<SleepEntry>),
    /// Report once every command that was pushed before is applied, and every timer due by now has
    /// fired.
    Settle(oneshot::Sender<()>),
    /// The set was dropped.
    Retire(SetKey),
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
        Command::Request(request)
    }
}

/// The mailbox of the actor.
pub(crate) type CommandMailbox = Mailbox<Command, ActorNotifier>;

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Request::Sleep(_) => "Sleep",
            Request::Settle(_) => "Settle",
            Request::Retire(_) => "Retire",
            Request::Evict => "Evict",
            Request::Orphaned => "Orphaned",
            Request::Shutdown => "Shutdown",
        })
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    #[test]
    fn command_takes_24_bytes() {
        assert_eq!(size_of::<super::Command>(), 24);
    }
}
