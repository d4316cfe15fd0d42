//! A subscriber that keeps infos, warnings and errors. `tests/it/display.rs` includes this file
//! too, so it uses nothing of the crate.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<(Level, String)>>);

impl Warnings {
    /// How many warnings there were.
    pub(crate) fn count(&self) -> usize {
        self.texts(Level::WARN).len()
    }

    /// The messages of this level.
    pub(crate) fn texts(&self, level: Level) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_level = all.iter().filter(|(of, _)| *of == level);
        of_level.map(|(_, text)| text.clone()).collect()
    }
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((*event.metadata().level(), message.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
