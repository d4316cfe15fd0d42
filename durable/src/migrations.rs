//! The steps between the versions of a store's schema.
//!
//! A store keeps its `version`, and `readable_by`: the oldest version whose programs can use it.
//! Programs of different versions share a store while the older one is at least `readable_by`, so a
//! step up only adds what an older version does not touch, and leaves `readable_by` as it is. What
//! no version needs any more is taken away a release later, by a step that raises `readable_by`.
//!
//! 1. A program whose version is below `readable_by` neither loads, fires nor writes. It settles:
//!    settles look at the version and the token of a row alone, and no step changes these.
//! 2. A program whose version is above that of the store does not either. It takes the steps up
//!    that are missing when it starts.
//! 3. A step runs in one transaction, one program after the other, and writes the version last.
//! 4. What a version makes has columns and fields that it does not know at their defaults. The next
//!    version takes a default for "not known". A row that is moved, fired or put back keeps them.

use crate::store::StoreError;

/// A step up to a version of a store's schema, and its way back: SQL for PostgreSQL and SQLite, and
/// a script for Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// The version that the step leads to, from the one before.
    pub version: u32,
    /// The step.
    pub up: &'static str,
    /// The step back. It loses what the version has added: that of version 1 loses all timers.
    pub down: &'static str,
}

impl Migration {
    /// The texts of the steps that lead from one version to another, up or back, in their order.
    pub fn steps(migrations: &[Migration], from: u32, to: u32) -> Vec<&'static str> {
        let between = |low, high| {
            let steps = migrations.iter();
            steps.filter(move |step| step.version > low && step.version <= high)
        };
        if from < to {
            between(from, to).map(|step| step.up).collect()
        } else {
            between(to, from).rev().map(|step| step.down).collect()
        }
    }
}

/// The version of a store's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaVersion {
    /// The version. It is 0 where nothing was made yet.
    pub version: u32,
    /// The oldest version whose programs load, fire and write.
    pub readable_by: u32,
}

impl SchemaVersion {
    pub(crate) fn new(version: u32, readable_by: u32) -> Self {
        SchemaVersion {
            version,
            readable_by,
        }
    }

    /// Whether a program that knows the schema up to a version may load, fire and write.
    ///
    /// # Errors
    ///
    /// [`StoreError::Schema`].
    pub(crate) fn check(&self, supported: u32) -> Result<(), StoreError> {
        let SchemaVersion {
            version,
            readable_by,
        } = *self;
        if version < supported || readable_by > supported {
            return Err(StoreError::schema(version, readable_by, supported));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &[Migration] = &[
        Migration {
            version: 1,
            up: "up 1",
            down: "down 1",
        },
        Migration {
            version: 2,
            up: "up 2",
            down: "down 2",
        },
        Migration {
            version: 3,
            up: "up 3",
            down: "down 3",
        },
    ];

    #[test]
    fn steps_lead_up_and_back() {
        assert_eq!(Migration::steps(THREE, 0, 2), ["up 1", "up 2"]);
        assert_eq!(Migration::steps(THREE, 3, 1), ["down 3", "down 2"]);
        let none: [&str; 0] = [];
        assert_eq!(Migration::steps(THREE, 2, 2), none);
        // A later program has made version 5.
        assert_eq!(Migration::steps(THREE, 5, 3), none);
    }

    #[test]
    fn only_what_is_readable_is_used() {
        for (version, readable_by, supported, is_used) in [
            (1, 1, 1, true),
            (2, 1, 1, true),
            (9, 2, 1, false),
            (9, 2, 2, true),
            (1, 1, 2, false),
        ] {
            let checked = SchemaVersion::new(version, readable_by).check(supported);
            assert_eq!(
                checked.is_ok(),
                is_used,
                "{version} {readable_by} {supported}"
            );
        }
    }
}
