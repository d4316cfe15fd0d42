//! The Lua scripts, one for each method of the store.

use std::sync::LazyLock;

use ::redis::Cmd;

use crate::migrations::Migration;

/// What a script does to timers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It reads them, or marks them.
    Nothing,
    /// It sets, settles or deletes timers, or amends the charter.
    Changes,
    /// It fires timers.
    Fires,
}

/// A script, and the name under which the server knows it once it was loaded.
pub(super) struct Script {
    code: &'static str,
    hash: String,
    effect: Effect,
}

impl Script {
    /// A step from a version of the schema to another one.
    pub(super) fn migration(code: &'static str) -> Self {
        Script::new(code, Effect::Changes)
    }

    fn new(code: &'static str, effect: Effect) -> Self {
        let hash = ::redis::Script::new(code).get_hash().to_owned();
        Script { code, hash, effect }
    }

    /// Whether it sets, fires, settles or deletes timers, or amends the charter.
    pub(super) fn changes(&self) -> bool {
        self.effect != Effect::Nothing
    }

    /// Whether it fires timers.
    pub(super) fn fires(&self) -> bool {
        self.effect == Effect::Fires
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// The command that makes it known to the server.
    pub(super) fn load(&self) -> Cmd {
        let mut command = ::redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.code);
        command
    }
}

/// The version of the schema that the scripts know.
#[cfg(not(tickwheel_next_schema))]
macro_rules! schema {
    () => {
        1
    };
}

#[cfg(tickwheel_next_schema)]
macro_rules! schema {
    () => {
        2
    };
}

/// The same, for what is not a script.
pub(super) const SCHEMA: u32 = schema!();

/// The oldest version that can use a namespace which these scripts make.
macro_rules! readable_by {
    () => {
        1
    };
}

/// The scripts below `migrations/redis`, from version 2 on.
pub(super) const MIGRATIONS: &[Migration] = &[
    #[cfg(tickwheel_next_schema)]
    Migration {
        version: 2,
        up: include_str!("../../tests/next/migrations/redis/2.lua"),
        down: include_str!("../../tests/next/migrations/redis/2.down.lua"),
    },
];

/// Whether a script needs a namespace with a schema that is for this version. One that settles or
/// unloads does not.
macro_rules! needs_schema {
    (readable) => {
        true
    };
    (any_schema) => {
        false
    };
}

macro_rules! scripts {
    ($($(#[$attribute:meta])* $name:ident: $effect:ident, $schema:ident = $($file:literal)+;)*) => {$(
        $(#[$attribute])*
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| {
                let code = concat!(
                    "local SCHEMA, READABLE_BY, NEEDS_SCHEMA = ", schema!(), ", ", readable_by!(), ", ",
                    needs_schema!($schema), "\n",
                    $(include_str!(concat!("scripts/", $file)), "\n",)+
                );
                Script::new(code, Effect::$effect)
            });
    )*};
}

scripts! {
    #[cfg(not(tickwheel_next_schema))]
    OPEN: Nothing, readable = "open.lua";
    #[cfg(tickwheel_next_schema)]
    OPEN: Nothing, readable = "../../../tests/next/scripts/open.lua" "open.lua";
    CHARTER: Nothing, any_schema = "charter.lua";
    SCHEMA_VERSION: Nothing, any_schema = "schema.lua";
    AMEND: Changes, readable = "prelude.lua" "amend.lua";
    #[cfg(not(tickwheel_next_schema))]
    WRITE: Changes, readable = "prelude.lua" "changes.lua" "dead.lua" "write.lua";
    #[cfg(tickwheel_next_schema)]
    WRITE: Changes, readable = "prelude.lua" "changes.lua" "../../../tests/next/scripts/write.lua" "dead.lua" "write.lua";
    LOAD: Nothing, readable = "prelude.lua" "merge.lua" "unloaded.lua" "load.lua";
    FIRE: Fires, readable = "prelude.lua" "changes.lua" "dead.lua" "merge.lua" "unloaded.lua" "fire.lua";
    FOLLOW: Nothing, any_schema = "prelude.lua" "follow.lua";
    SETTLE: Changes, any_schema = "prelude.lua" "changes.lua" "dead.lua" "settle.lua";
    UNLOAD: Nothing, any_schema = "prelude.lua" "unload.lua";
    UNMARK: Nothing, any_schema = "prelude.lua" "unmark.lua";
    CHANGE_DEAD: Changes, readable = "prelude.lua" "changes.lua" "dead.lua" "change_dead.lua";
    LIST: Nothing, readable = "prelude.lua" "reading.lua" "merge.lua" "list.lua";
    COUNT: Nothing, readable = "prelude.lua" "reading.lua" "count.lua";
    INSTANCES: Nothing, readable = "prelude.lua" "reading.lua" "instances.lua";
    ROWS_OF: Nothing, readable = "prelude.lua" "dead.lua" "reading.lua" "rows_of.lua";
    PREFIX: Nothing, readable = "prelude.lua" "reading.lua" "prefix.lua";
    COUNT_DUE: Nothing, readable = "prelude.lua" "reading.lua" "count_due.lua";
    PURGE: Changes, readable = "prelude.lua" "reading.lua" "purge.lua";
}
