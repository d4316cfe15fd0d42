//! Keeps what is logged on a thread.
//!
//! One subscriber serves the whole process. With one for each thread, a line that a thread without
//! one logs first would be switched off for all.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The log so far, of one thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    /// Each with the span that it was logged in.
    events: Vec<String>,
    spans: Vec<String>,
    /// The indices of those that are entered.
    entered: Vec<usize>,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().expect("no test panics with it")
    }

    /// Keeps what this thread logs from now on, until the guard is dropped.
    pub(crate) fn capture(&self) -> Capturing {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            let installed = tracing::subscriber::set_global_default(Router);
            installed.expect("there is no other");
        });
        CURRENT.with(|current| current.replace(Some(self.clone())));
        Capturing
    }

    /// How many lines have all these words.
    pub(crate) fn with(&self, words: &[&str]) -> usize {
        let lines = self.lock();
        let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
        lines.events.iter().filter(has_all).count()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Ends the capture when it is dropped.
pub(crate) struct Capturing;

impl Drop for Capturing {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(None));
    }
}

/// Runs with what this thread captures, if it does.
fn current<T>(run: impl FnOnce(&mut Lines) -> T) -> Option<T> {
    let log = CURRENT.with(|current| current.borrow().clone());
    log.map(|log| run(&mut log.lock()))
}

/// The subscriber.
struct Router;

/// The number of a span that no thread captures.
const NOWHERE: u64 = u64::MAX;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {field}={value:?}").expect("a string takes it");
    }
}

impl Subscriber for Router {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        let number = current(|lines| {
            lines.spans.push(line.0);
            lines.spans.len() as u64
        });
        Id::from_u64(number.unwrap_or(NOWHERE))
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        current(|lines| {
            if let Some(span) = lines.entered.last().and_then(|&span| lines.spans.get(span)) {
                let Line(text) = &mut line;
                write!(text, " in {span}").expect("a string takes it");
            }
            lines.events.push(line.0);
        });
    }
    fn enter(&self, span: &Id) {
        let index = usize::try_from(span.into_u64() - 1).unwrap_or(usize::MAX);
        current(|lines| lines.entered.push(index));
    }
    fn exit(&self, _: &Id) {
        current(|lines| lines.entered.pop());
    }
}
