//! Without the feature: nothing.

#![allow(clippy::unused_self)] // the same calls as with the feature

use std::task::Poll;

use tokio::time::Instant;

use super::TimerType;

#[derive(Debug, Default)]
pub(crate) struct Resource;

impl Resource {
    #[inline]
    pub(crate) fn new(_: TimerType) -> Self {
        Resource
    }

    #[inline]
    pub(crate) fn poll<T>(&mut self, _: Instant, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        poll()
    }

    #[inline]
    pub(crate) fn reset(&mut self, _: Instant) {}
}
