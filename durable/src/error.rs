//! What calls of instances and handles can fail with.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::claim::Token;
use crate::store::{Namespace, StoreError};

/// A call of a handle or a claim failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The encoded key is too long. Nothing was sent to the store.
    KeyTooLong {
        /// Its length in bytes.
        len: usize,
        /// The greatest length.
        max: usize,
    },
    /// The encoded value is too long. Nothing was sent to the store.
    ValueTooLong {
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
    /// The codec cannot encode a key or a value. Nothing was sent to the store.
    Encode {
        /// `"key"` or `"value"`.
        what: &'static str,
        /// What the codec says.
        message: String,
    },
    /// The codec cannot decode what the store has.
    Decode {
        /// `"key"` or `"value"`.
        what: &'static str,
        /// What the codec says.
        message: String,
    },
    /// The store has not answered in time. The call may have taken effect or not.
    Timeout {
        /// Which call.
        call: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// The store has failed.
    Store(StoreError),
    /// The claim is lost: its lease had ended, and the timer was delivered again. Nothing was changed.
    Lost {
        /// The token of the claim.
        token: Token,
    },
    /// The claim is settled already, or is at most once: it can be neither extended nor put back.
    Settled {
        /// The token of the claim.
        token: Token,
    },
    /// The instance was shut down.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::KeyTooLong { len, max } => {
                write!(
                    f,
                    "the encoded key has {len} bytes; at most {max} are allowed"
                )
            }
            Error::ValueTooLong { len, max } => {
                write!(
                    f,
                    "the encoded value has {len} bytes; at most {max} are allowed"
                )
            }
            Error::Period { value, min } => {
                write!(f, "the period is {value:?}; it must be at least {min:?}")
            }
            Error::Encode { what, message } => write!(f, "the {what} cannot be encoded: {message}"),
            Error::Decode { what, message } => {
                write!(f, "the stored {what} cannot be decoded: {message}")
            }
            Error::Timeout { call, after } => write!(
                f,
                "the store has not answered within {after:?} ({call}); the call may have taken effect"
            ),
            Error::Store(error) => error.fmt(f),
            Error::Lost { token } => write!(
                f,
                "the claim with token {token} is lost: its lease ended and the timer was delivered again"
            ),
            Error::Settled { token } => {
                write!(f, "the claim with token {token} is settled already")
            }
            Error::Closed => f.write_str("the instance was shut down"),
        }
    }
}

/// [`Error::Store`] prints what the store says, so there is no source behind it: the cause is its field.
impl std::error::Error for Error {}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::Store(error)
    }
}

/// An instance could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The namespace is not 1 to 64 ASCII letters, digits, `_`, `-` and `.`.
    Namespace {
        /// The name.
        value: String,
    },
    /// A setting is out of its bounds.
    Duration {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        value: Duration,
        /// Its bounds, which may follow from other settings.
        bounds: RangeInclusive<Duration>,
    },
    /// The capacity is out of its bounds.
    Capacity {
        /// Its value.
        value: usize,
        /// Its bounds.
        bounds: RangeInclusive<usize>,
    },
    /// The lease is shorter than two round trips to the store, as measured just now: claims would end before they begin.
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

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Namespace { value } => write!(
                f,
                "the namespace is {value:?}; it must be 1 to {} ASCII letters, digits, '_', '-' or '.'",
                Namespace::MAX_LEN
            ),
            StartError::Duration {
                setting,
                value,
                bounds,
            } => write!(
                f,
                "the {setting} is {value:?}; it must be from {:?} to {:?}",
                bounds.start(),
                bounds.end()
            ),
            StartError::Capacity { value, bounds } => write!(
                f,
                "the capacity is {value}; it must be from {} to {}",
                bounds.start(),
                bounds.end()
            ),
            StartError::Lease { value, min } => write!(
                f,
                "the lease is {value:?}; with the store's present round trip it must be at least {min:?}"
            ),
            StartError::Open(_) => f.write_str("the store could not be opened"),
            StartError::WheelShutDown => f.write_str("the wheel was shut down"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Open(error) => Some(error),
            _ => None,
        }
    }
}
