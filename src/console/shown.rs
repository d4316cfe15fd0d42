//! With the feature: Tokio's spans and events.

use std::panic::{AssertUnwindSafe, Location};
use std::task::Poll;

use tokio::time::Instant;
use tracing::{Span, trace, trace_span};

use super::TimerType;
use crate::clock;

impl TimerType {
    /// Its name; the calls that make an operation, at first and after a reset; the one that polls.
    fn names(self) -> [&'static str; 4] {
        let reset = "Sleep::reset";
        match self {
            TimerType::Sleep => ["Sleep", "TimerWheel::sleep", reset, "poll_elapsed"],
            TimerType::Timeout => ["Timeout", "TimerWheel::timeout", reset, "poll_elapsed"],
            TimerType::Interval => ["Interval", "Interval::tick", "Interval::tick", "poll_tick"],
            TimerType::IdleTimer => [
                "IdleTimer",
                "TimerWheel::idle_timer",
                "IdleTimer::poll",
                "poll_idle",
            ],
        }
    }
}

/// The spans of a resource and of its operation.
#[derive(Debug)]
struct Spans {
    shown_as: TimerType,
    resource: Span,
    operation: Span,
    poll: Span,
}

impl Spans {
    /// `None` if no subscriber wants them.
    #[track_caller]
    fn new(shown_as: TimerType) -> Option<Self> {
        let [concrete_type, made_by, ..] = shown_as.names();
        let location = Location::caller();
        // The filters that tokio-console suggests let targets through that begin with `runtime`.
        let resource = trace_span!(
            target: "runtime::tickwheel",
            parent: None,
            "runtime.resource",
            concrete_type,
            kind = "timer",
            loc.file = location.file(),
            loc.line = location.line(),
            loc.col = location.column(),
        );
        if resource.is_disabled() {
            return None;
        }
        let mut spans = Spans {
            shown_as,
            resource,
            operation: Span::none(),
            poll: Span::none(),
        };
        spans.begin(made_by);
        Some(spans)
    }

    /// Begins an operation.
    fn begin(&mut self, source: &'static str) {
        let _resource = self.resource.enter();
        self.operation = trace_span!(
            target: "runtime::tickwheel",
            "runtime.resource.async_op",
            source,
            inherits_child_attrs = false,
        );
        let _operation = self.operation.enter();
        self.poll = trace_span!(
            target: "runtime::tickwheel",
            "runtime.resource.async_op.poll",
        );
    }

    fn poll<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let _resource = self.resource.enter();
        let _operation = self.operation.enter();
        let _poll = self.poll.enter();
        let polled = poll();
        let [.., op_name] = self.shown_as.names();
        trace!(
            target: "runtime::resource::poll_op",
            op_name,
            is_ready = polled.is_ready(),
        );
        polled
    }
}

/// A timer with one deadline. Empty for one that no subscriber wants to see.
#[derive(Debug, Default)]
pub(crate) struct Resource(Option<AssertUnwindSafe<Box<Timer>>>);

#[derive(Debug)]
struct Timer {
    spans: Spans,
    /// The deadline that the state shows.
    deadline: Option<Instant>,
}

impl Resource {
    #[track_caller]
    pub(crate) fn new(shown_as: TimerType) -> Self {
        let timer = |spans| Timer {
            spans,
            deadline: None,
        };
        let timer = Spans::new(shown_as).map(timer);
        Resource(timer.map(|timer| AssertUnwindSafe(Box::new(timer))))
    }

    /// Polls the timer, which has this deadline.
    pub(crate) fn poll<T>(&mut self, deadline: Instant, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let Some(AssertUnwindSafe(timer)) = &mut self.0 else {
            return poll();
        };
        timer.show_deadline(deadline);
        timer.spans.poll(poll)
    }

    /// The timer has a new deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        if let Some(AssertUnwindSafe(timer)) = &mut self.0 {
            let [_, _, reset, _] = timer.spans.shown_as.names();
            timer.spans.begin(reset);
            timer.show_deadline(deadline);
        }
    }
}

impl Timer {
    fn show_deadline(&mut self, deadline: Instant) {
        if self.deadline.replace(deadline) == Some(deadline) {
            return;
        }
        let duration = deadline.saturating_duration_since(clock::now()).as_millis();
        let _resource = self.spans.resource.enter();
        trace!(
            target: "runtime::resource::state_update",
            duration = u64::try_from(duration).unwrap_or(u64::MAX),
            duration.unit = "ms",
            duration.op = "override",
        );
    }
}
