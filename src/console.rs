//! The timers as `tokio-console` sees them: with the feature `console`, the spans and events by
//! which Tokio shows its own. Without it, everything here is of size zero and does nothing.
//!
//! A timer is a *resource*: a span `runtime.resource` with its type, its kind, and the place in the
//! program that made it. A task waits for an *operation* of the resource, a span
//! `runtime.resource.async_op`. Each poll of the operation is one entry into its span
//! `runtime.resource.async_op.poll`, within the other two, and ends with an event that says whether
//! it was ready. Other events update the *state* of the resource: how far away its deadline is.
//!
//! Sets of keyed timers and reapers are not shown: [metrics](crate::WheelMetrics) count them.

#[cfg(not(feature = "console"))]
mod absent;
#[cfg(feature = "console")]
mod shown;

#[cfg(not(feature = "console"))]
pub(crate) use absent::Resource;
#[cfg(feature = "console")]
pub(crate) use shown::Resource;

/// The types of timers that are resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimerType {
    Sleep,
    Timeout,
    Interval,
    IdleTimer,
}
