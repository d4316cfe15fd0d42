//! What reaches the actor, on one screen.
//!
//! Timers are not in here. Setting, moving and removing one writes its deadline where it lives, in an
//! [entry](crate::shared::entry) or in a [set](crate::keyed); what travels is always the same sentence: "attend to this".

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::shared::SleepEntry;
use crate::shared::mailbox::Mailbox;
use crate::shared::notifier::ActorNotifier;
use crate::shared::timer_set::TimerSet;

/// A command to the actor.
pub(crate) enum Command {
    /// Register to this sleeping future: file it, file it earlier, or take it off the wheel.
    Sleep(Arc<SleepEntry>),
    /// Register to those timers of this set that it has noted down.
    Set(Arc<dyn TimerSet>),
    /// Answer once everything submitted before is applied, and everything due by now has fired.
    Settle(oneshot::Sender<()>),
    /// The last handle was dropped: end as soon as nothing is armed.
    Orphaned,
    /// End now.
    Shutdown,
}

/// The way to the actor.
pub(crate) type CommandMailbox = Mailbox<Command, ActorNotifier>;

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Command::Sleep(_) => "Sleep",
            Command::Set(_) => "Set",
            Command::Settle(_) => "Settle",
            Command::Orphaned => "Orphaned",
            Command::Shutdown => "Shutdown",
        })
    }
}
