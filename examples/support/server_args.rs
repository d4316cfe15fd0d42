//! The arguments of the examples that are servers: `[--listen ADDRESS [--idle SECONDS]]`.

use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;

/// The task that the arguments ask for.
#[derive(Debug)]
pub(crate) enum Args {
    Demo,
    Listen { address: String, idle: Duration },
    Help,
}

/// Says in one line what is wrong with the arguments, and gives the exit code for that.
pub(crate) fn refuse(program: &str, error: &impl ToString) -> ExitCode {
    eprintln!("{program}: {}", error.to_string());
    ExitCode::from(2)
}

pub(crate) fn parse(
    mut parser: lexopt::Parser,
    default_idle: Duration,
) -> Result<Args, lexopt::Error> {
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
