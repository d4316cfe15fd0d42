//! What all instances of a namespace agree on.

use std::fmt;

use super::error::StoreError;
use super::ids::Namespace;

/// What all instances of a namespace agree on. One row of the store has it, which the first
/// instance that opens the namespace writes. The version of the store's schema is compared with it.
///
/// An instance that differs does not start. If the charter is [amended](crate::Admin::amend) while
/// it runs, it stops loading, firing and writing with its next call, and goes on when it agrees
/// again.
///
/// # Examples
///
/// ```
/// use tickwheel_durable::Charter;
///
/// let mut charter = Charter::new("json");
/// charter.no_overlap = true;
/// assert_eq!(charter.to_string(), "codec json, no_overlap true, at_most_once false, parts 1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charter {
    /// The [name](crate::Codec::name) of the codec of keys and values. It never changes.
    pub codec: String,
    /// Whether instances are built with [`no_overlap`](crate::Builder::no_overlap).
    pub no_overlap: bool,
    /// Whether instances are built with [`at_most_once`](crate::Builder::at_most_once).
    pub at_most_once: bool,
    /// Among how many [parts](super::Store::parts) the store divides the timers: 1 but for stores
    /// that say otherwise. It never changes.
    pub parts: u32,
}

impl Charter {
    /// A namespace with this codec, of one part. Overlaps are allowed, and timers are delivered at
    /// least once.
    pub fn new(codec: impl Into<String>) -> Self {
        Charter {
            codec: codec.into(),
            no_overlap: false,
            at_most_once: false,
            parts: 1,
        }
    }
}

/// For a [store](crate::store) of your own. Like that module, it may change in any version.
impl Charter {
    /// Compares the charter of an instance with this one, which the store has.
    ///
    /// # Errors
    ///
    /// [`StoreError::Charter`] has the first field that differs.
    pub fn check(&self, namespace: &Namespace, asked: &Charter) -> Result<(), StoreError> {
        let mut fields = self.fields().into_iter().zip(asked.fields());
        let differs = |((field, stored), (_, asked)): ((_, String), (_, String))| {
            (stored != asked).then_some((field, stored, asked))
        };
        match fields.find_map(differs) {
            None => Ok(()),
            Some((field, stored, asked)) => Err(StoreError::Charter {
                namespace: namespace.to_string(),
                field,
                stored,
                asked,
            }),
        }
    }

    fn fields(&self) -> [(&'static str, String); 4] {
        let Charter {
            codec,
            no_overlap,
            at_most_once,
            parts,
        } = self;
        [
            ("codec", codec.clone()),
            ("no_overlap", no_overlap.to_string()),
            ("at_most_once", at_most_once.to_string()),
            ("parts", parts.to_string()),
        ]
    }

    /// Whether this charter may become `next`: codec and parts never change.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] says what they are.
    pub fn check_amendment(&self, namespace: &Namespace, next: &Charter) -> Result<(), StoreError> {
        if self.codec == next.codec && self.parts == next.parts {
            return Ok(());
        }
        Err(StoreError::refused(format_args!(
            "namespace {namespace} has codec {:?} and parts {}, which never change: for codec {:?} and parts {} use another \
             namespace",
            self.codec, self.parts, next.codec, next.parts
        )))
    }
}

impl<S: Into<String>> From<S> for Charter {
    /// [`Charter::new`].
    fn from(codec: S) -> Self {
        Charter::new(codec)
    }
}

impl fmt::Display for Charter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (field, value)) in self.fields().iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{field} {value}")?;
        }
        Ok(())
    }
}

/// Names a charter as an instance has read it. An amendment gives the namespace another one, so
/// calls compare this number alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edition(pub i64);
