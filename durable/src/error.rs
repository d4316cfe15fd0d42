//! The errors of instances and handles.

use std::fmt;
use std::time::Duration;

use crate::store::{Cause, NamespaceError, StoreError, write_causes};
use crate::token::Token;

/// A call of a handle or a claim failed.
///
/// The error of the store's engine or of the codec is the [source](std::error::Error::source). `{}`
/// leaves it out; `{:#}` prints all causes, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The encoded key or value is too long. Nothing was sent to the store.
    TooLong {
        /// `"key"` or `"value"`.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The greatest length.
        max: usize,
    },
    /// The period of a repeating timer is too short. Nothing was sent to the store.
    Period {
        /// The period.
        value: Duration,
        /// The shortest.
        min: Duration,
    },
    /// The schedule cannot be used. Nothing was sent to the store.
    Cron(CronError),
    /// The codec cannot encode a key or a value. Nothing was sent to the store.
    Encode {
        /// `"key"` or `"value"`.
        what: &'static str,
        /// The error of the codec.
        cause: Cause,
    },
    /// The codec cannot decode what the store has.
    Decode {
        /// `"key"` or `"value"`.
        what: &'static str,
        /// The error of the codec.
        cause: Cause,
    },
    /// The store did not respond in time. The call may have taken effect or not. A set, move or
    /// remove has taken effect by now, or never does: the store refuses it once the time limit is
    /// over by the store's clock. Its clock is known to half a round trip, and a server that has
    /// begun the write may end it. A PostgreSQL server that waits for a synchronous standby has
    /// already committed the write, which appears when it no longer waits.
    Timeout {
        /// Which call.
        call: &'static str,
        /// The time that the call waited.
        after: Duration,
    },
    /// The store has failed. Prints like its [`StoreError`].
    Store(StoreError),
    /// The claim is lost: its lease had ended, and the timer was delivered again, or an operator
    /// has ended it. Nothing was changed.
    Lost {
        /// The token of the claim.
        token: Token,
    },
    /// The claim is settled already, or was delivered at most once: it can be neither extended nor
    /// put back.
    Settled {
        /// The token of the claim.
        token: Token,
    },
    /// The Tokio runtime on which the instance was started has ended.
    Closed,
}

/// A cron expression or its zone cannot be used. Prints both what was given and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CronError {
    /// Expression and zone are too long.
    TooLong {
        /// Their length in bytes.
        len: usize,
        /// The greatest length.
        max: usize,
    },
    /// It is no cron expression.
    Expression {
        /// The expression.
        expression: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// The expression is valid, and there is no such time: the 30th of February.
    NeverOccurs {
        /// The expression.
        expression: String,
    },
    /// There is no such time zone.
    Zone {
        /// The name.
        zone: String,
    },
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CronError::TooLong { len, max } => write!(
                f,
                "the cron expression and its zone have {len} bytes; at most {max} are allowed"
            ),
            CronError::Expression { expression, reason } => {
                write!(f, "{expression:?} is no cron expression: {reason}")
            }
            CronError::NeverOccurs { expression } => {
                write!(f, "the cron expression {expression:?} never occurs")
            }
            CronError::Zone { zone } => write!(f, "there is no time zone {zone:?}"),
        }
    }
}

impl std::error::Error for CronError {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLong { what, len, max } => write!(
                f,
                "the encoded {what} has {len} bytes; at most {max} are allowed"
            ),
            Error::Period { value, min } => {
                write!(f, "the period is {value:?}; it must be at least {min:?}")
            }
            Error::Cron(error) => error.fmt(f),
            Error::Encode { what, .. } => write!(f, "the {what} cannot be encoded"),
            Error::Decode { what, .. } => write!(f, "the stored {what} cannot be decoded"),
            Error::Timeout { call, after } => write!(
                f,
                "the store did not respond within {after:?} ({call}); the call may have taken effect"
            ),
            // With their causes.
            Error::Store(error) => return error.fmt(f),
            Error::Lost { token } => write!(
                f,
                "the claim with token {token} is lost: its lease ended and the timer was delivered again"
            ),
            Error::Settled { token } => {
                write!(f, "the claim with token {token} is settled already")
            }
            Error::Closed => f.write_str("the runtime of the instance has ended"),
        }?;
        write_causes(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Store(error) => error.source(),
            Error::Encode { cause, .. } | Error::Decode { cause, .. } => Some(cause.get()),
            _ => None,
        }
    }
}

impl Error {
    /// Whether the same call may succeed later: the store did not respond in time, or was
    /// unavailable.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Timeout { .. } => true,
            Error::Store(error) => error.may_pass(),
            _ => false,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::Store(error)
    }
}

/// An instance could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The namespace is not 1 to 64 ASCII letters, digits, `_`, `-` and `.`.
    Namespace(NamespaceError),
    /// A setting is out of its bounds.
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Its bounds, which may follow from other settings.
        bounds: String,
    },
    /// The lease is shorter than two round trips to the store, by the fastest of three: claims
    /// would expire before the program could use them.
    Lease {
        /// The lease.
        value: Duration,
        /// The shortest that the round trip allows.
        min: Duration,
    },
    /// The store could not be opened. The [source](std::error::Error::source) says why.
    Open(Error),
    /// The wheel was shut down.
    WheelShutDown,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Namespace(error) => error.fmt(f),
            BuildError::Setting {
                setting,
                value,
                bounds,
            } => write!(f, "the {setting} is {value}; it must be from {bounds}"),
            BuildError::Lease { value, min } => write!(
                f,
                "the lease is {value:?}; with the store's present round trip it must be at least {min:?}"
            ),
            BuildError::Open(_) => f.write_str("the store could not be opened"),
            BuildError::WheelShutDown => f.write_str("the wheel was shut down"),
        }?;
        write_causes(self, f)
    }
}

impl From<NamespaceError> for BuildError {
    fn from(error: NamespaceError) -> Self {
        BuildError::Namespace(error)
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Open(error) => Some(error),
            _ => None,
        }
    }
}
