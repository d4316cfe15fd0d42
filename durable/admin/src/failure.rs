//! Why something was not done.

use std::fmt;
use std::io;
use std::time::Duration;

use tickwheel_durable::store::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The store or this machine has failed.
    Failed(String),
    /// The request does not fit.
    Usage(String),
    /// There is no such file, namespace, timer or claim.
    NotFound(String),
    /// The reader of the output has gone, as with `| head`.
    Unread,
}

impl Failure {
    /// A call of the store took too long.
    pub(crate) fn timeout(after: Duration) -> Self {
        Failure::Failed(format!("the store has not responded within {after:?}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Failed(text) | Failure::Usage(text) | Failure::NotFound(text) => text,
            Failure::Unread => "the output is closed",
        })
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Failed(format!("{error:#}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::Failed(error.to_string()),
        }
    }
}
