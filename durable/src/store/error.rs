//! What can go wrong in a store.

use std::fmt;

/// A call of a store failed. Its text names the value and the bound it is about, and never contains a password.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, is locked or overloaded: the same call may succeed later. Whether this one took effect is
    /// not known, unless the text says so.
    Unavailable {
        /// What happened.
        message: String,
    },
    /// The store refuses: a file that is read-only or full, a missing permission, a damaged table. Nothing was changed. It
    /// takes somebody to look at it.
    Refused {
        /// What happened.
        message: String,
    },
    /// The namespace was made with another codec.
    Codec {
        /// The namespace.
        namespace: String,
        /// The codec that its timers are encoded with.
        stored: String,
        /// The codec that it was opened with.
        asked: String,
    },
    /// The store was written by a later version of this crate.
    Schema {
        /// The version of the schema that was found.
        found: u32,
        /// The latest that this version knows.
        supported: u32,
    },
}

impl StoreError {
    /// An error that may pass.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        StoreError::Unavailable {
            message: message.to_string(),
        }
    }

    /// An error that does not pass by itself.
    pub fn refused(message: impl fmt::Display) -> Self {
        StoreError::Refused {
            message: message.to_string(),
        }
    }

    /// Whether the same call may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unavailable { message } => write!(f, "the store is unavailable: {message}"),
            StoreError::Refused { message } => write!(f, "the store refuses: {message}"),
            StoreError::Codec {
                namespace,
                stored,
                asked,
            } => write!(
                f,
                "the timers of namespace {namespace:?} are encoded as {stored:?}, not as {asked:?}"
            ),
            StoreError::Schema { found, supported } => write!(
                f,
                "the store has schema version {found}; this version of tickwheel-durable knows them up to {supported}"
            ),
        }
    }
}

impl std::error::Error for StoreError {}
