//! The arguments.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser as _};
use clap::{Args as ClapArgs, Parser, Subcommand};
use clap_complete::Shell;
use tickwheel_durable::store::{Namespace, State, Version};

use crate::actions::Action;
use crate::details::STATES;

/// Looks at durable timers, and changes them.
///
/// It connects to the store at the URL of --url, of --url-file, or of the environment variable
/// `TICKWHEEL_ADMIN_URL`: postgres://.., redis://.., or the path of an SQLite file. Arguments are
/// visible to other users of this machine, so leave a URL with a password to the other two.
/// PostgreSQL passwords are also read from PGPASSWORD and PGPASSFILE.
///
/// Each change is logged on standard error, in one line. Exit codes: 0 done, 1 failed, 2 wrong
/// arguments, 3 not found.
#[derive(Debug, Parser)]
#[command(name = "tickwheel-admin", version, arg_required_else_help = true)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Options of all commands.
#[derive(Debug, ClapArgs)]
pub(super) struct Common {
    /// Where the timers are; default: the variable `TICKWHEEL_ADMIN_URL`
    #[arg(short, long, global = true)]
    pub(super) url: Option<String>,
    /// Reads the URL from a file
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    pub(super) url_file: Option<PathBuf>,
    /// The namespace. Without it `stats`, `watch` and `serve` show all; other commands need it if
    /// the store has several
    #[arg(short, long, global = true, value_parser = Namespace::new)]
    pub(super) namespace: Option<Namespace>,
    /// Prints JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// How long a call waits for the store: 0.1 s to a day
    #[arg(long, global = true, default_value = "5s", value_parser = pause, value_name = "DURATION")]
    pub(super) timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Counts the timers of each namespace
    Stats,
    /// Lists timers
    List(List),
    /// Shows the timers with a key: the one that waits, the latest 100 in flight and dead
    Show {
        /// The key as `list` shows it. With JSON, a string may be without its quotes
        key: String,
        /// Takes the key as hexadecimal digits
        #[arg(long)]
        hex: bool,
    },
    #[command(flatten)]
    Change(Change),
    /// Lists the instances that load timers
    Instances,
    /// Shows counts and instances again and again
    Watch {
        /// How long after the start of a look the next one starts
        #[arg(long, default_value = "2s", value_parser = pause, value_name = "DURATION")]
        every: Duration,
        /// Ends after so many times, or when the store fails
        #[arg(long)]
        times: Option<u64>,
    },
    /// Shows all of it as a page
    Serve(Serve),
    /// Shows the version of the store's schema, and takes or prints the steps between versions
    #[command(subcommand)]
    Migrate(Migrate),
    /// Prints the completions of a shell
    Completions {
        /// For this shell
        shell: Shell,
    },
    /// Prints the manual page
    Man,
}

#[derive(Debug, ClapArgs)]
pub(super) struct List {
    /// In this state
    #[arg(long, default_value = NAMES[0], value_parser = PossibleValuesParser::new(NAMES).map(state))]
    pub(super) state: State,
    /// Only timers with keys that begin with this. With JSON, a string may be without its quote
    #[arg(long)]
    pub(super) prefix: Option<String>,
    /// Only timers with an error that contains this
    #[arg(long)]
    pub(super) error: Option<String>,
    /// Takes the prefix as hexadecimal digits
    #[arg(long)]
    pub(super) hex: bool,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: u32,
    /// Goes on after a page: what it has shown as `next`
    #[arg(long)]
    pub(super) after: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Serve {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:8017")]
    pub(super) listen: SocketAddr,
    /// Has buttons that change timers: without a token, for all users of this machine
    #[arg(long)]
    pub(super) allow_changes: bool,
    /// Asks for the token in this file, of 16 characters at least; needed to listen elsewhere than
    /// on the loopback, and behind a proxy. The variable `TICKWHEEL_ADMIN_TOKEN` can have it, too
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// A login ends after that long
    #[arg(long, default_value = "12h", value_parser = pause, value_name = "DURATION")]
    pub(super) session: Duration,
}

/// The names of [`STATES`].
const NAMES: [&str; 3] = ["waiting", "in-flight", "dead"];

#[allow(clippy::needless_pass_by_value, reason = "the parser passes it")]
fn state(name: String) -> State {
    let at = NAMES.iter().position(|known| *known == name);
    STATES[at.expect("the parser takes no other name")]
}

#[derive(Debug, Subcommand)]
pub(super) enum Change {
    /// Removes waiting timers, and dead ones of the same keys
    #[command(mut_arg("tokens", |tokens| tokens.hide(true)))]
    Remove(Which),
    /// Moves waiting timers
    #[command(mut_arg("tokens", |tokens| tokens.hide(true)))]
    Move {
        #[command(flatten)]
        which: Which,
        /// They are due that long from now, such as 90s, 15m or 2h
        #[arg(long = "in", value_parser = humantime::parse_duration, value_name = "DURATION")]
        delay: Duration,
    },
    /// Makes waiting timers due now
    #[command(mut_arg("tokens", |tokens| tokens.hide(true)))]
    Run(Which),
    /// Releases claims of any instance: their timers are delivered again at once
    Release(Which),
    /// Acknowledges claims of any instance: their timers are done
    Acknowledge(Which),
    /// Retries dead timers: each is due at once, and its attempts begin again
    Retry(Which),
    /// Discards dead timers
    Discard(Which),
    /// Deletes all timers of the namespace, those in flight and dead ones included
    Purge {
        /// Does not ask: needed in scripts
        #[arg(long)]
        yes: bool,
    },
}

impl Change {
    /// The action, and the timers that it is for.
    pub(super) fn parts(self) -> (Action, Which) {
        match self {
            Change::Purge { yes } => {
                let all = Which {
                    all: true,
                    yes,
                    ..Which::default()
                };
                (Action::Purge, all)
            }
            Change::Remove(which) => (Action::Remove, which),
            Change::Move { which, delay } => (Action::MoveIn(delay), which),
            Change::Run(which) => (Action::Run, which),
            Change::Release(which) => (Action::Release, which),
            Change::Acknowledge(which) => (Action::Acknowledge, which),
            Change::Retry(which) => (Action::Retry, which),
            Change::Discard(which) => (Action::Discard, which),
        }
    }
}

/// Chooses timers.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(super) struct Which {
    /// Their keys, as `list` shows them. With JSON, strings may be without their quotes
    #[arg(required_unless_present_any = ["tokens", "prefix", "all"])]
    pub(super) keys: Vec<String>,
    /// That claim or dead timer; may come several times
    #[arg(long = "token", value_parser = clap::value_parser!(i64).range(1..).map(Version), value_name = "TOKEN", conflicts_with = "keys")]
    pub(super) tokens: Vec<Version>,
    /// All with keys that begin with this. With JSON, a string may be without its quote
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), conflicts_with_all = ["keys", "tokens"])]
    pub(super) prefix: Option<String>,
    /// All in the state that is changed
    #[arg(long, conflicts_with_all = ["keys", "tokens", "prefix"])]
    pub(super) all: bool,
    /// Takes keys and prefixes as hexadecimal digits
    #[arg(long)]
    pub(super) hex: bool,
    /// Does not ask, if the command would: needed in scripts then
    #[arg(long)]
    pub(super) yes: bool,
}

/// Actions on the schema of the store. In Redis each namespace has one: on all of them, or on that
/// of the one that is named.
#[derive(Debug, Subcommand)]
pub(super) enum Migrate {
    /// Shows the version of the schema, and the oldest version whose programs can use it
    Status,
    /// Takes the steps to the latest version, or to that of --to. Programs of the version before
    /// go on beside it
    Up {
        /// Leads to this version; default: the latest that this program knows
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
        #[command(flatten)]
        print: Print,
    },
    /// Takes steps back, which loses what they have added: all timers, back to 0. End the programs
    /// of later versions first
    Down {
        /// Leads to this version
        #[arg(long, value_name = "VERSION")]
        to: u32,
        #[command(flatten)]
        print: Print,
        /// Needed, unless the steps are printed
        #[arg(long)]
        yes: bool,
    },
}

/// Whether steps are printed.
#[derive(Debug, ClapArgs)]
pub(super) struct Print {
    /// Prints the steps, SQL or scripts for Redis, and takes none
    #[arg(long)]
    pub(super) print: bool,
    /// Prints those from this version on, without a look at the store
    #[arg(long, value_name = "VERSION", requires = "print")]
    pub(super) from: Option<u32>,
}

/// A time to wait: 0.1 s to a day.
fn pause(text: &str) -> Result<Duration, String> {
    let pause = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if !(Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&pause) {
        return Err("it must be 100ms to 1day".to_owned());
    }
    Ok(pause)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn server_listens_on_the_loopback_and_only_reads_by_default() {
        let options = |arguments: &[&str]| {
            let all = [&["tickwheel-admin", "serve"], arguments].concat();
            let args = Args::try_parse_from(all).expect("they are right");
            match args.command {
                Command::Serve(options) => options,
                other => panic!("{other:?}"),
            }
        };
        let usual = options(&[]);
        assert_eq!(usual.listen.to_string(), "127.0.0.1:8017");
        assert_eq!(usual.session, Duration::from_secs(12 * 3_600));
        assert!(!usual.allow_changes && usual.token_file.is_none());
        assert!(options(&["--allow-changes"]).allow_changes);
    }

    #[test]
    fn token_is_offered_where_it_is_taken() {
        for mut command in Args::command().get_subcommands().cloned() {
            let name = command.get_name().to_owned();
            let takes = ["release", "acknowledge", "retry", "discard"].contains(&&*name);
            let help = command.render_long_help().to_string();
            assert_eq!(help.contains("--token <TOKEN>"), takes, "{help}");
        }
    }

    #[test]
    fn pause_has_bounds() {
        assert_eq!(pause("1m 30s"), Ok(Duration::from_secs(90)));
        for wrong in ["5", "99ms", "25h", "soon"] {
            pause(wrong).expect_err(wrong);
        }
        for option in [
            ["stats", "--timeout", "0s"],
            ["watch", "--every", "0s"],
            ["serve", "--session", "0s"],
        ] {
            let all = [&["tickwheel-admin"], &option[..]].concat();
            Args::try_parse_from(all).expect_err(option[1]);
        }
    }
}
