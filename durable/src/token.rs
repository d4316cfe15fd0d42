//! The fencing token of a claim.

use std::fmt;

use crate::store::Version;

/// The fencing token of a claim.
///
/// A later claim under the same key has a greater token, whichever instance holds it. A resource
/// can remember the greatest token of each key and refuse smaller ones. It is then safe from a
/// claimant that was delayed for longer than its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    pub(crate) version: Version,
    /// The number of the part of the namespace that has the key.
    pub(crate) part: usize,
}

impl Token {
    /// The token as a number, at least 1.
    pub fn get(self) -> i64 {
        self.version.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
