//! The limits of an idle stream.

use std::time::Duration;

use super::idle_timer::assert_not_zero;

/// How long a stream may be without progress: in each direction, or in both.
///
/// | limit | reached when | for |
/// |---|---|---|
/// | [`either`](Self::either) | no byte was read and none written for so long | tunnels, anything that should never be silent |
/// | [`read`](Self::read) | no byte was read for so long, whatever was written | peers that must send, such as uploads or heartbeats; chats and other servers that write on their own |
/// | [`write`](Self::write) | no byte was written for so long, whatever was read | peers that must take what they are sent |
///
/// Each limit is optional, and a stream is idle as soon as one of them is reached.
///
/// A server that answers requests should close a connection between them, never during one: hold a
/// [guard](crate::IdleHandle::busy) for each request, which counts for every limit. For HTTP/1,
/// `KeepAliveStream` of the package `tickwheel-adapters` reads from the bytes when one is in
/// flight.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdleLimits {
    pub(super) either: Option<Duration>,
    pub(super) read: Option<Duration>,
    pub(super) write: Option<Duration>,
}

impl IdleLimits {
    /// No limits. A stream without limits has no timer.
    pub fn none() -> Self {
        Self::default()
    }

    /// Limits how long no byte may be read.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[must_use]
    #[track_caller]
    pub fn read(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.read = Some(idle);
        self
    }

    /// Limits how long no byte may be written.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[must_use]
    #[track_caller]
    pub fn write(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.write = Some(idle);
        self
    }

    /// Limits how long no byte may be read and none written.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[must_use]
    #[track_caller]
    pub fn either(mut self, idle: Duration) -> Self {
        assert_not_zero(idle);
        self.either = Some(idle);
        self
    }
}
