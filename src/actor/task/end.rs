//! The end of the actor.
//!
//! However it ends, also when its runtime is dropped, it closes what it holds: sleeping futures
//! wake up and go on with Tokio's own timer, and keyed timers go back to their stream. Wakers are
//! user code and may panic, so each is called on its own.

use std::sync::Arc;

use super::Actor;
use crate::keyed::hint::Hints;
use crate::panic::{WOKEN, catch_panic, wake};
use crate::shared::command::{Command, Request};

impl Drop for Actor {
    /// Closes everything, step by step. A panic in one step is caught, and the next step follows.
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.backlog.close(&shared.mailbox).for_each(close);
        for entry in self.sleeps.drain() {
            wake(entry.close());
        }
        self.keyed.hints().for_each(Hints::end);
        let settling = self.settling.drain(..).map(|(_, done)| done);
        for done in settling.chain(self.backlog.close_deferred()) {
            catch_panic(WOKEN, || drop(done));
        }
        shared.mailbox.notifier().actor_ended();
        shared.end.end();
    }
}

/// Closes the entry of a command. Dropping the command may wake a task, or drop a set with its keys
/// and values.
fn close(command: Command) {
    match &command {
        Command::Sleep { entry, .. } => wake(entry.close()),
        Command::Request(request) => {
            if let Request::Register(_, hints) = &**request {
                hints.end();
            }
        }
        Command::Note { .. } => {}
    }
    catch_panic(
        "a waker or value panicked as the wheel ended: a task may not be woken, and memory may leak",
        || drop(command),
    );
}
