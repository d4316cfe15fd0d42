//! The failures that end the program, and their exit codes.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel_durable::store::StoreError;

/// Why a command did not do what it should.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store or this machine has failed: exit code 1.
    Failed(String),
    /// The arguments do not fit: exit code 2, as for those that `clap` refuses.
    Usage(String),
    /// There is no such file, namespace, timer or claim: exit code 3.
    NotFound(String),
    /// The reader of the output has gone, as with `| head`: exit code 0.
    Unread,
}

impl Failure {
    /// A call of the store took too long.
    pub(crate) fn timeout(after: Duration) -> Self {
        Failure::Failed(format!("the store has not responded within {after:?}"))
    }

    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Failure::Unread) {
            eprintln!("error: {self}");
        }
        ExitCode::from(match self {
            Failure::Unread => 0,
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::NotFound(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(text) | Failure::Usage(text) | Failure::NotFound(text) => {
                f.write_str(text)
            }
            Failure::Unread => f.write_str("the output is closed"),
        }
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
