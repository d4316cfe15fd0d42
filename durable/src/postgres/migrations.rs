//! The steps of the schema.

use crate::migrations::Migration;

/// The files below `migrations/postgres`, from version 1 on.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        up: include_str!("../../migrations/postgres/1.sql"),
        down: include_str!("../../migrations/postgres/1.down.sql"),
    },
    #[cfg(tickwheel_next_schema)]
    Migration {
        version: 2,
        up: include_str!("../../tests/next/migrations/postgres/2.sql"),
        down: include_str!("../../tests/next/migrations/postgres/2.down.sql"),
    },
];

/// The version of the schema that is known: `schema!` of [`statements`](super::statements).
#[allow(clippy::cast_possible_truncation, reason = "they are few")]
pub(super) const SCHEMA: u32 = MIGRATIONS.len() as u32;
