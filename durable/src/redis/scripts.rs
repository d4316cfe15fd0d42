//! The Lua scripts, one for each method of the store.

use std::sync::LazyLock;

use ::redis::Cmd;

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

macro_rules! scripts {
    ($($name:ident: $effect:ident = $($file:literal)+;)*) => {$(
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| {
                let code = concat!($(include_str!(concat!("scripts/", $file)), "\n",)+);
                Script::new(code, Effect::$effect)
            });
    )*};
}

scripts! {
    OPEN: Nothing = "open.lua";
    CHARTER: Nothing = "charter.lua";
    AMEND: Changes = "prelude.lua" "amend.lua";
    WRITE: Changes = "prelude.lua" "changes.lua" "dead.lua" "write.lua";
    LOAD: Nothing = "prelude.lua" "merge.lua" "unloaded.lua" "load.lua";
    FIRE: Fires = "prelude.lua" "changes.lua" "dead.lua" "merge.lua" "unloaded.lua" "fire.lua";
    FOLLOW: Nothing = "prelude.lua" "follow.lua";
    SETTLE: Changes = "prelude.lua" "changes.lua" "dead.lua" "settle.lua";
    UNLOAD: Nothing = "prelude.lua" "unload.lua";
    UNMARK: Nothing = "prelude.lua" "unmark.lua";
    CHANGE_DEAD: Changes = "prelude.lua" "changes.lua" "dead.lua" "change_dead.lua";
    LIST: Nothing = "prelude.lua" "reading.lua" "merge.lua" "list.lua";
    COUNT: Nothing = "prelude.lua" "reading.lua" "count.lua";
    INSTANCES: Nothing = "prelude.lua" "reading.lua" "instances.lua";
    ROWS_OF: Nothing = "prelude.lua" "dead.lua" "reading.lua" "rows_of.lua";
    PREFIX: Nothing = "prelude.lua" "reading.lua" "prefix.lua";
    COUNT_DUE: Nothing = "prelude.lua" "reading.lua" "count_due.lua";
    PURGE: Changes = "prelude.lua" "reading.lua" "purge.lua";
}
