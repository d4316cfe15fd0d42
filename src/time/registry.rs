//! The ambient wheels of all runtimes.
//!
//! 1. A runtime has one entry at most, under its id. An entry counts as none once its wheel has
//!    ended, and is replaced.
//! 2. The task that [`enter`] spawns takes the entry out when the wheel ends, and when Tokio drops
//!    the task with its runtime. So an entry does not outlive its runtime, and an id that Tokio
//!    uses again finds none. Nor does the wheel, wherever its actor runs: the task shuts it down
//!    when it is dropped.
//! 3. While the lock is held no wheel is started or dropped: both call Tokio, which may call a
//!    user's code.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::LazyLock;

use tokio::runtime::{Handle, Id};

use crate::shared::command::Request;
use crate::sync::{Mutex, lock};
use crate::timer_wheel::TimerWheel;

static WHEELS: LazyLock<Mutex<HashMap<Id, Ambient>>> = LazyLock::new(|| Mutex::new(HashMap::new()));

/// The wheel of a runtime.
#[derive(Debug, Clone)]
pub(super) struct Ambient {
    pub(super) wheel: TimerWheel,
    /// Whether `install` started it. Else the first timer did.
    pub(super) is_installed: bool,
}

/// Calls `f` with all entries.
fn with<R>(f: impl FnOnce(&mut HashMap<Id, Ambient>) -> R) -> R {
    f(&mut lock(&WHEELS))
}

/// The wheel of the runtime, unless it has ended.
pub(super) fn get(runtime: Id) -> Option<Ambient> {
    with(|wheels| wheels.get(&runtime).cloned()).filter(|ambient| !ambient.wheel.is_shutdown())
}

/// Registers a wheel for the runtime. Returns the runtime's wheel if it has one by now.
pub(super) fn enter(runtime: &Handle, ambient: &Ambient) -> Result<(), Ambient> {
    let id = runtime.id();
    let ended = with(|wheels| match wheels.entry(id) {
        Entry::Occupied(mut present) if present.get().wheel.is_shutdown() => {
            Ok(Some(present.insert(ambient.clone())))
        }
        Entry::Occupied(present) => Err(present.get().clone()),
        Entry::Vacant(vacant) => {
            vacant.insert(ambient.clone());
            Ok(None)
        }
    });
    drop(ended?);
    let entry = Entered {
        runtime: id,
        wheel: ambient.wheel.clone(),
    };
    // It holds the entry until its wheel has ended.
    drop(runtime.spawn(async move { entry.wheel.shared().end.wait().await }));
    Ok(())
}

/// An entry. Dropping it takes it out.
struct Entered {
    runtime: Id,
    wheel: TimerWheel,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // An actor on the runtime ends with it; one on a thread needs a command. An error means
        // that it has ended.
        let _ = self.wheel.shared().send_now(Request::Shutdown);
        let own = with(|wheels| match wheels.entry(self.runtime) {
            Entry::Occupied(present) if present.get().wheel.is_same(&self.wheel) => {
                Some(present.remove())
            }
            // A later wheel has taken its place.
            _ => None,
        });
        drop(own);
    }
}

/// Whether the runtime has an entry.
#[cfg(test)]
pub(super) fn contains(runtime: Id) -> bool {
    with(|wheels| wheels.contains_key(&runtime))
}
