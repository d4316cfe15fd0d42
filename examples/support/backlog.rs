//! Connections and requests that have arrived at a server, and that the server has not seen yet.

use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// As many connections as may wait for a listener of Tokio.
const MAX_WAITING: usize = 1024;

/// Stops listening. Returns the connections that waited to be accepted: their clients are
/// connected, and may have sent a request, which closing the listener would cut.
pub(crate) fn close(listener: TcpListener) -> io::Result<Vec<TcpStream>> {
    // The operating system is asked: the runtime may not have noticed them yet.
    let listener = listener.into_std()?;
    let mut waiting = Vec::new();
    while waiting.len() < MAX_WAITING {
        let Ok((socket, _)) = listener.accept() else {
            break;
        };
        socket.set_nonblocking(true)?;
        waiting.push(TcpStream::from_std(socket)?);
    }
    Ok(waiting)
}

/// Completes once the runtime knows what lies in the sockets that there are now.
///
/// A timer of Tokio fires when the runtime has asked the operating system for what is ready. It may
/// have asked before it fires the first one, and has asked again before it fires the second. The
/// wheel fires a timer whenever a command comes, so its timers say nothing about sockets.
pub(crate) async fn last_look() {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
