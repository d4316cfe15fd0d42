//! What the program was asked to do.

use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;

pub(crate) const HELP: &str = "\
An HTTP server that closes idle keep-alive connections, as an example of tickwheel.

Usage: http_keepalive
       http_keepalive --listen ADDRESS [--idle SECONDS]

Without options it demonstrates itself on the loopback interface: clients that say nothing, that stop, that go on,
and that have slow requests in flight. It prints a table, and exits with 1 if an idle connection was not closed or
a busy one was.

Options:
  --listen ADDRESS  serve any client at this address, such as 127.0.0.1:8000, until Ctrl-C; port 0 takes a free one.
                    / answers at once, /slow/2.5 after 2.5 s, /trickle/2.5 little by little
  --idle SECONDS    close a connection after this long without a request, such as 2.5  [default: 5]
  -h, --help        print this
";

const DEFAULT_IDLE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) enum Args {
    Demo,
    Listen { address: String, idle: Duration },
    Help,
}

/// Says in one line what is wrong, and gives the exit code for that.
pub(crate) fn refuse(error: &impl ToString) -> ExitCode {
    eprintln!("http_keepalive: {}", error.to_string());
    ExitCode::from(2)
}

pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Args, lexopt::Error> {
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
            idle: idle.unwrap_or(DEFAULT_IDLE),
        }),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
    match seconds {
        Some(Ok(idle)) if !idle.is_zero() => Ok(idle),
        _ => Err(format!(
            "--idle must be a number of seconds above zero, such as 2.5, not {text:?}"
        )),
    }
}
