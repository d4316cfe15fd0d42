//! Guesses from the bytes of a stream when a server owes its client a response.
//!
//! [`IdleLimits::keep_alive`](super::IdleLimits::keep_alive) counts only while none is owed. A byte
//! stream shows no more than what is read and written, and when, so this is a guess about HTTP/1
//! and protocols like it:
//!
//! 1. Bytes that arrive are a request, or a part of one: from then on a response is *owed*. They
//!    arrive when they are read from the inner stream, or when its buffer, if it has one, holds
//!    more than before.
//! 2. The first attempt to write at least one byte *begins* the response, and nothing is owed any
//!    more. Interim responses of HTTP/1, such as `100 Continue`, come before the response: those at
//!    the beginning of a write begin nothing.
//! 3. A response that begins with the status 101 *upgrades* the stream. What follows, such as the
//!    messages of a WebSocket, is neither requests nor responses, so nothing is owed from then on:
//!    the limit counts like [`either`](super::IdleLimits::either).
//!
//! The idle clock is told of it only while it has that limit.

use crate::shared::idle_clock::IdleClock;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RequestGuess {
    response: Response,
    /// The unconsumed bytes last seen in the buffer of a buffered inner stream.
    buffered: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Response {
    #[default]
    None,
    Owed,
    Upgraded,
}

impl RequestGuess {
    /// Bytes arrived.
    pub(super) fn has_read(&mut self, clock: &IdleClock) {
        if self.response == Response::None && clock.owe() {
            self.response = Response::Owed;
        }
    }

    /// There are bytes to write, which begin with these: the peer has to take them from now on.
    pub(super) fn begins_write(&mut self, bytes: &[u8], clock: &IdleClock) {
        if self.response != Response::Owed {
            return;
        }
        let bytes = after_interim(bytes);
        if bytes.is_empty() {
            return;
        }
        clock.respond(clock.now());
        self.response = if is_upgrade(bytes) {
            Response::Upgraded
        } else {
            Response::None
        };
    }

    /// The buffer of the inner stream holds this many bytes. Returns whether there are more than
    /// before: bytes have arrived.
    pub(super) fn has_buffered(&mut self, bytes: usize) -> bool {
        let has_more = bytes > self.buffered;
        self.buffered = bytes;
        has_more
    }

    /// Bytes were taken out of the buffer of the inner stream, if it has one.
    pub(super) fn has_taken(&mut self, bytes: usize) {
        self.buffered = self.buffered.saturating_sub(bytes);
    }
}

/// The bytes from the status of an HTTP/1 response on, if they begin one.
fn status(bytes: &[u8]) -> Option<&[u8]> {
    let minor_and_rest = bytes.strip_prefix(b"HTTP/1.")?;
    minor_and_rest.get(1..)?.strip_prefix(b" ")
}

/// Whether the bytes begin a response that changes the protocol.
fn is_upgrade(bytes: &[u8]) -> bool {
    status(bytes).is_some_and(|status| status.starts_with(b"101"))
}

/// What follows the interim responses at the beginning of the bytes. An upgrade is none: it is
/// final.
fn after_interim(mut bytes: &[u8]) -> &[u8] {
    while status(bytes).is_some_and(|status| status.starts_with(b"1")) && !is_upgrade(bytes) {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        bytes = end.map_or(&[], |end| &bytes[end + 4..]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{after_interim, is_upgrade};

    #[test]
    fn only_the_status_101_is_an_upgrade() {
        for upgrade in ["HTTP/1.1 101 Switching Protocols\r\n", "HTTP/1.0 101"] {
            assert!(is_upgrade(upgrade.as_bytes()), "{upgrade}");
        }
        for other in [
            "",
            "HTTP/1.",
            "HTTP/1.1 200 OK",
            "GET / HTTP/1.1 101",
            "101",
        ] {
            assert!(!is_upgrade(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn interim_responses_at_the_beginning_are_left_out() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n";
        for response in ["", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 101", "body"] {
            let bytes = format!("{interim}{response}");
            assert_eq!(after_interim(bytes.as_bytes()), response.as_bytes());
            assert_eq!(after_interim(response.as_bytes()), response.as_bytes());
        }
        assert_eq!(after_interim(b"HTTP/1.1 100 Cont"), b"");
    }
}
