//! The Lua scripts, one for each method of the store.

use std::sync::LazyLock;

use ::redis::Cmd;

/// A script, and the name under which the server knows it once it was loaded.
pub(super) struct Script {
    code: &'static str,
    hash: String,
    /// Whether it sets, fires, settles or deletes timers, or amends the charter.
    changes: bool,
    /// Whether it fires timers.
    fires: bool,
}

impl Script {
    fn new(code: &'static str) -> Self {
        let hash = ::redis::Script::new(code).get_hash().to_owned();
        let changes = [CHANGES, PURGES, AMENDS]
            .iter()
            .any(|part| code.contains(part));
        Script {
            code,
            hash,
            changes,
            fires: code.contains(FIRES),
        }
    }

    /// Whether it sets, fires, settles or deletes timers, or amends the charter.
    pub(super) fn changes(&self) -> bool {
        self.changes
    }

    /// Whether it fires timers.
    pub(super) fn fires(&self) -> bool {
        self.fires
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

/// The code that the scripts share that change timers.
const CHANGES: &str = include_str!("scripts/changes.lua");
const FIRES: &str = include_str!("scripts/fire.lua");
/// These share nothing with those that change timers.
const PURGES: &str = include_str!("scripts/purge.lua");
const AMENDS: &str = include_str!("scripts/amend.lua");

macro_rules! scripts {
    ($($name:ident = $($part:literal)+;)*) => {$(
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("scripts/", $part)), "\n",)+)));
    )*};
}

scripts! {
    OPEN = "open.lua";
    CHARTER = "charter.lua";
    AMEND = "prelude.lua" "amend.lua";
    WRITE = "prelude.lua" "changes.lua" "dead.lua" "write.lua";
    LOAD = "prelude.lua" "load.lua";
    FIRE = "prelude.lua" "changes.lua" "dead.lua" "fire.lua";
    FOLLOW = "prelude.lua" "follow.lua";
    SETTLE = "prelude.lua" "changes.lua" "dead.lua" "settle.lua";
    UNLOAD = "prelude.lua" "unload.lua";
    UNMARK = "prelude.lua" "unmark.lua";
    BURY = "prelude.lua" "changes.lua" "dead.lua" "bury.lua";
    LIST = "prelude.lua" "reading.lua" "list.lua";
    COUNT = "prelude.lua" "reading.lua" "count.lua";
    INSTANCES = "prelude.lua" "reading.lua" "instances.lua";
    ROWS_OF = "prelude.lua" "dead.lua" "reading.lua" "rows_of.lua";
    PREFIX = "prelude.lua" "reading.lua" "prefix.lua";
    COUNT_DUE = "prelude.lua" "reading.lua" "count_due.lua";
    PURGE = "prelude.lua" "reading.lua" "purge.lua";
}
