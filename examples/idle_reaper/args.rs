//! How the program is called.

use std::time::Duration;

pub(crate) const HELP: &str = "\
A TCP echo server that closes idle connections, as an example of tickwheel.

Usage: idle_reaper
       idle_reaper --listen ADDRESS [--idle SECONDS]

Without options it demonstrates itself on the loopback interface: clients of which half chat and half fall
silent. It prints a table, and exits with 1 if a chatting one was closed or a silent one was not.

Options:
  --listen ADDRESS  serve any client at this address, such as 127.0.0.1:7000, until Ctrl-C or SIGTERM; port 0 takes a free one
  --idle SECONDS    close a connection after this long without traffic, such as 2.5  [default: 30]
  -h, --help        print this
";

pub(crate) const DEFAULT_IDLE: Duration = Duration::from_secs(30);
