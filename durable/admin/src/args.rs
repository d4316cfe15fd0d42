//! The arguments.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use tickwheel_durable::store::{Namespace, State, Version};

/// Looks at durable timers, and changes them.
///
/// Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 not found.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub(crate) struct Args {
    /// Where the timers are: postgres://.., redis://.., or the path of an SQLite file
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of all commands.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Common {
    /// The namespace; needed if the store has several
    #[arg(short, long, global = true, value_parser = namespace)]
    pub(crate) namespace: Option<Namespace>,
    /// Prints JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How long a call waits for the store, in seconds
    #[arg(long, global = true, default_value = "5", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Counts the timers of each namespace
    Stats,
    /// Lists timers
    List {
        /// In this state
        #[arg(long, value_enum, default_value_t = Listed::Waiting)]
        state: Listed,
        #[command(flatten)]
        keys: Chosen,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Goes on after a page: what it has shown as `next`
        #[arg(long)]
        after: Option<String>,
    },
    /// Shows all timers with a key: waiting, in flight and dead
    Show {
        #[command(flatten)]
        key: Key,
    },
    /// Releases claims of any instance: their timers are delivered again at once
    Release {
        #[command(flatten)]
        which: Claims,
    },
    /// Retries dead timers: each is due at once, and its attempts begin again
    Retry {
        #[command(flatten)]
        which: Dead,
    },
    /// Discards dead timers, or with --in-flight acknowledges claims
    Discard {
        #[command(flatten)]
        which: Dead,
        /// The tokens are those of claims, which are acknowledged
        #[arg(long, conflicts_with_all = ["key", "prefix", "all"])]
        in_flight: bool,
    },
    /// Deletes all timers of the namespace, those in flight and dead ones included
    Purge {
        /// Does not ask
        #[arg(long)]
        yes: bool,
    },
    /// Lists the instances that load timers
    Instances,
    /// Shows counts and instances again and again
    Watch {
        /// How often, in seconds
        #[arg(long, default_value = "2", value_parser = seconds, value_name = "SECONDS")]
        every: Duration,
        /// Ends after so many times
        #[arg(long)]
        times: Option<u64>,
    },
    /// Shows all of it as a page
    Serve(Serve),
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Serve {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:8017")]
    pub(crate) listen: SocketAddr,
    /// Has buttons that retry, discard and release
    #[arg(long)]
    pub(crate) allow_changes: bool,
    /// Asks for the token in this file, of 16 characters at least; needed to listen elsewhere than on the loopback
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The same, in the environment
    #[arg(
        long,
        env = "TICKWHEEL_ADMIN_TOKEN",
        hide_env_values = true,
        hide = true,
        conflicts_with = "token_file"
    )]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    Waiting,
    InFlight,
    Dead,
}

impl From<Listed> for State {
    fn from(listed: Listed) -> Self {
        match listed {
            Listed::Waiting => State::Waiting,
            Listed::InFlight => State::InFlight,
            Listed::Dead => State::Dead,
        }
    }
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Chosen {
    /// Only timers whose keys begin with this. With JSON it is the beginning of a string, without the quote
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Takes keys and prefixes as they are stored
    #[arg(long, conflicts_with = "hex")]
    pub(crate) raw: bool,
    /// Takes keys and prefixes as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Key {
    /// The key as `list` shows it. With JSON, a string may be without its quotes
    pub(crate) key: String,
    /// The key is hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,
}

/// Chooses claims.
#[derive(Debug, Clone, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct Claims {
    /// Their tokens
    #[arg(value_parser = token)]
    pub(crate) tokens: Vec<Version>,
    /// All claims of this key
    #[arg(long)]
    pub(crate) key: Option<String>,
}

/// Chooses dead timers.
#[derive(Debug, Clone, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct Dead {
    /// Their tokens
    #[arg(value_parser = token)]
    pub(crate) tokens: Vec<Version>,
    /// All with this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// All whose keys begin with this. With JSON it is the beginning of a string, without the quote
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// All that are dead now
    #[arg(long)]
    pub(crate) all: bool,
}

fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::new(text).map_err(|error| error.to_string())
}

fn token(text: &str) -> Result<Version, String> {
    match text.parse() {
        Ok(token @ 1..) => Ok(Version(token)),
        _ => Err("a token is a positive number".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err("it must be 0.1 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
