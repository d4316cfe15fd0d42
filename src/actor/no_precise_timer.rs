//! Stands in for the precise timer on systems that have none, and in builds without the feature.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use tokio::time::Instant;

/// There is none.
#[derive(Debug)]
pub(super) struct PreciseTimer(Infallible);

impl PreciseTimer {
    pub(super) fn new(_: &str) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn set(&mut self, _: Option<Instant>) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn poll_elapsed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match self.0 {}
    }
}
