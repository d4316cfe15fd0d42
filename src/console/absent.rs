//! Without the feature: nothing.

#![allow(clippy::unused_self)] // the same calls as with the feature

use std::task::Poll;

use tokio::time::Instant;

use super::TimerType;

#[derive(Debug, Default)]
pub(crate) struct Resource;

#[derive(Debug, Clone, Copy)]
pub(crate) struct LenChange;

#[derive(Debug)]
pub(crate) struct SetResource;

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

impl SetResource {
    #[inline]
    pub(crate) fn new(_: TimerType) -> Self {
        SetResource
    }

    #[inline]
    pub(crate) fn len_change(&self) -> LenChange {
        LenChange
    }

    #[inline]
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        poll()
    }

    #[inline]
    pub(crate) fn unlocked(&self) {}
}

impl LenChange {
    #[inline]
    pub(crate) fn add(self) {}

    #[inline]
    pub(crate) fn subtract(self, _: usize) {}
}
