//! The connections that a listener has not accepted yet.

use std::io;

use tokio::net::{TcpListener, TcpStream};

/// As many connections as may wait for a listener of Tokio.
const MOST: usize = 1024;

/// Stops listening. Returns the connections that waited to be accepted: their clients are connected, and may have sent a
/// request, which closing the listener would cut.
pub(crate) fn close(listener: TcpListener) -> io::Result<Vec<TcpStream>> {
    // The operating system is asked: the runtime may not have noticed them yet.
    let listener = listener.into_std()?;
    let mut waiting = Vec::new();
    while waiting.len() < MOST {
        let Ok((socket, _)) = listener.accept() else {
            break;
        };
        socket.set_nonblocking(true)?;
        waiting.push(TcpStream::from_std(socket)?);
    }
    Ok(waiting)
}
