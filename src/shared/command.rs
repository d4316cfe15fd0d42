//! Every command to the actor.
//!
//! Commands carry no deadlines. Setting, moving and removing a timer writes its deadline where it lives, in an
//! [entry](crate::shared::entry) or in a [set](crate::timer_set). A command says only which of them the actor has to
//! process.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::shared::SleepEntry;
use crate::shared::mailbox::Mailbox;
use crate::shared::notifier::ActorNotifier;
use crate::shared::timer_set::TimerSet;

/// A command to the actor.
pub(crate) enum Command {
    /// Process this entry of a sleeping future: schedule it, reschedule it earlier, or deregister it.
    Sleep(Arc<SleepEntry>),
    /// Process the dirty timers of this set.
    Set(Arc<dyn TimerSet>),
    /// Report once every command that was pushed before is applied, and every timer due by now has
    /// fired.
    Settle {
        done: oneshot::Sender<()>,
        /// Whether the command has come out of the backlog before: it [passes through twice](crate::actor).
        is_second_round: bool,
    },
    /// The clock is virtual: take the sleeps off the wheel. Those that are armed go on with Tokio's timer.
    Evict,
    /// The last handle was dropped: end as soon as nothing is armed.
    Orphaned,
    /// End now.
    Shutdown,
}

/// The mailbox of the actor.
pub(crate) type CommandMailbox = Mailbox<Command, ActorNotifier>;

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Command::Sleep(_) => "Sleep",
            Command::Set(_) => "Set",
            Command::Settle { .. } => "Settle",
            Command::Evict => "Evict",
            Command::Orphaned => "Orphaned",
            Command::Shutdown => "Shutdown",
        })
    }
}
