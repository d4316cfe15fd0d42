//! A client that speaks HTTP/1.1 on one connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The demonstration fails if something takes longer.
const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn connect(server: SocketAddr) -> io::Result<Self> {
        Ok(Client(TcpStream::connect(server).await?))
    }

    /// Sends what may be a request, or half of one.
    pub(crate) async fn send(&mut self, bytes: &str) -> io::Result<()> {
        self.0.write_all(bytes.as_bytes()).await
    }

    /// Asks for a path, and returns the status and the body.
    pub(crate) async fn get(&mut self, path: &str) -> io::Result<(u16, String)> {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: example\r\n\r\n"))
            .await?;
        timeout(TIMEOUT, self.response()).await?
    }

    async fn response(&mut self) -> io::Result<(u16, String)> {
        let mut received = Vec::new();
        loop {
            if let Some(response) = parse(&received) {
                return Ok(response);
            }
            if self.0.read_buf(&mut received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Waits until the server closes the connection.
    pub(crate) async fn closed(mut self) -> io::Result<()> {
        match timeout(TIMEOUT, self.0.read(&mut [0])).await? {
            Ok(0) => Ok(()),
            Ok(_) => Err(io::Error::other("an answer without a question")),
            Err(error) => Err(error),
        }
    }
}

/// The status and the body, once a response of a known length has arrived in full.
fn parse(received: &[u8]) -> Option<(u16, String)> {
    let text = std::str::from_utf8(received).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse::<usize>().ok())?
    });
    (body.len() >= length?).then(|| (status, body.to_owned()))
}
