//! The arguments of the examples that are servers, `[--listen ADDRESS [--idle SECONDS]]`, and what
//! they make of them.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;

const OPTIONS: &str = "[--listen ADDRESS [--idle SECONDS]]";

/// An example that is a server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) default_idle: Duration,
}

impl Server {
    /// Does what the arguments ask for: demonstrates the server, or lets it listen at an address.
    pub(crate) async fn run<D: Display, L: Display>(
        &self,
        demonstrate: impl AsyncFnOnce() -> Result<ExitCode, D>,
        listen: impl AsyncFnOnce(&str, Duration) -> Result<(), L>,
    ) -> ExitCode {
        match parse(lexopt::Parser::from_env(), self.default_idle) {
            Ok(Args::Demo) => demonstrate().await.unwrap_or_else(|error| {
                eprintln!("{}: {error}", self.name);
                ExitCode::FAILURE
            }),
            Ok(Args::Listen { address, idle }) => match listen(&address, idle).await {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => self.refuse(&error),
            },
            Ok(Args::Help) => {
                say!("{}", self.help.trim_end());
                ExitCode::SUCCESS
            }
            Err(error) => self.refuse(&format!("{error}; usage: {} {OPTIONS}", self.name)),
        }
    }

    /// Says in one line what is wrong with the arguments, and gives the exit code for that.
    fn refuse(&self, error: &impl Display) -> ExitCode {
        eprintln!("{}: {error}", self.name);
        ExitCode::from(2)
    }
}

/// The task that the arguments ask for.
#[derive(Debug)]
enum Args {
    Demo,
    Listen { address: String, idle: Duration },
    Help,
}

fn parse(mut parser: lexopt::Parser, default_idle: Duration) -> Result<Args, lexopt::Error> {
    let (mut address, mut idle) = (None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("listen") => address = Some(parser.value()?.string()?),
            Long("idle") => idle = Some(seconds(&parser.value()?.string()?)?),
            Short('h') | Long("help") => return Ok(Args::Help),
            _ => return Err(arg.unexpected()),
        }
    }
    match (address, idle) {
        (None, None) => Ok(Args::Demo),
        (None, Some(_)) => Err("--idle makes sense only with --listen".into()),
        (Some(address), idle) => Ok(Args::Listen {
            address,
            idle: idle.unwrap_or(default_idle),
        }),
    }
}

/// A [`Duration`] counts nanoseconds, and its seconds have 64 bits.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds >= 1e-9);
    let idle = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    idle.ok_or_else(|| {
        format!("--idle must be a number of seconds from 1e-9 to 1.8e19, such as 2.5, not {text:?}")
    })
}
