//! The names of namespaces, rows and instances.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The name that keeps the timers of one purpose apart from others in the same store.
///
/// Where a store divides a namespace into [parts](super::Store::parts), the first has its name, and
/// the others are `orders/1`, `orders/2` and so on. A part is a namespace of its own to the store
/// and to an operator. No instance starts on it alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The greatest length of a name, in bytes.
    pub const MAX_LEN: usize = 64;

    /// Checks a name: 1 to 64 ASCII letters, digits, `_`, `-` and `.`, and for a part `/` and its
    /// number.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] with the name.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let (whole, part) = name.split_once('/').unwrap_or((name, "1"));
        let is_number = part.parse::<u32>().is_ok_and(|part| part > 0) && !part.starts_with('+');
        if whole.is_empty()
            || whole.len() > Self::MAX_LEN
            || !whole.bytes().all(allowed)
            || !is_number
        {
            return Err(NamespaceError {
                value: name.to_owned(),
            });
        }
        Ok(Namespace(name.into()))
    }

    /// The part of a namespace with this number, from 0 on: of a namespace that is
    /// [spread](crate::Redis::spread), `orders`, `orders/1` and so on.
    #[must_use]
    pub fn part(&self, number: usize) -> Self {
        match number {
            0 => self.clone(),
            number => Namespace(format!("{self}/{number}").into()),
        }
    }

    /// Whether it is a part of a namespace, and not the first.
    pub fn is_part(&self) -> bool {
        self.0.contains('/')
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name is not one of a [`Namespace`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceError {
    /// The name.
    pub value: String,
}

impl fmt::Display for NamespaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the namespace is {:?}; it must be 1 to {} ASCII letters, digits, '_', '-' or '.'",
            self.value,
            Namespace::MAX_LEN
        )
    }
}

impl Error for NamespaceError {}

/// Names a row in one of its states. From one growing sequence for the whole store, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

/// The id under which an instance that has opened a namespace loads, until it unloads. No instance
/// ever gets one that was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub i64);

/// For a [store](crate::store) of your own. Like that module, it may change in any version.
impl InstanceId {
    /// The id that marks the rows which this instance has [left](super::Settlement::Leave) to
    /// others: less than zero, as no other id is.
    #[must_use]
    pub fn left(self) -> Self {
        InstanceId(-self.0.abs())
    }

    /// Whether it marks rows that an instance has left to others.
    pub fn is_left(self) -> bool {
        self.0 < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_out_of_bounds() {
        let long = "x".repeat(65);
        for name in [
            "",
            "with space",
            "umläut",
            &long,
            "a/",
            "/1",
            "a/0",
            "a/+1",
            "a/1/2",
        ] {
            let error = Namespace::new(name).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
        let longest = Namespace::new(&long[..64]).expect("fits");
        assert_eq!(longest.as_str(), &long[..64]);
        assert_eq!(
            Namespace::new("orders_2.a-b").expect("fits").as_str(),
            "orders_2.a-b"
        );
    }

    #[test]
    fn parts_have_names_of_their_own() {
        let orders = Namespace::new("orders").expect("fits");
        assert_eq!(orders.part(0), orders);
        let part = Namespace::new("orders/12").expect("fits");
        assert_eq!(orders.part(12), part);
        assert!(part.is_part() && !orders.is_part());
    }
}
