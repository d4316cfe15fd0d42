//! How the program is called.

use std::time::Duration;

pub(crate) const HELP: &str = "\
An HTTP server that closes idle keep-alive connections, as an example of tickwheel.

Usage: http_keepalive
       http_keepalive --listen ADDRESS [--idle SECONDS]

Without options it demonstrates itself on the loopback interface: clients that say nothing, that stop, that go on,
and that have slow requests in flight. It prints a table, and exits with 1 if an idle connection was not closed or
a busy one was.

Options:
  --listen ADDRESS  serve any client at this address, such as 127.0.0.1:8000, until Ctrl-C or SIGTERM; port 0 takes a free one.
                    / answers at once, /slow/2.5 after 2.5 s, /trickle/2.5 little by little. When it is asked to
                    stop it first answers the requests that were sent by then
  --idle SECONDS    close a connection after this long without a request, such as 2.5  [default: 5]
  -h, --help        print this
";

pub(crate) const DEFAULT_IDLE: Duration = Duration::from_secs(5);
