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
//!    more.
//! 3. A response that begins with the status 101 *upgrades* the stream. What follows, such as the
//!    messages of a WebSocket, is neither requests nor responses, so nothing is owed from then on:
//!    the limit counts like [`either`](super::IdleLimits::either).
//!
//! The idle clock is told of it only while it has that limit.

use crate::shared::idle_clock::IdleClock;

/// The beginning of a response that changes the protocol, up to the minor version of HTTP and from
/// there on.
const UPGRADED: (&[u8], &[u8]) = (b"HTTP/1.", b" 101");

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RequestGuess {
    phase: Phase,
    /// The unconsumed bytes last seen in the buffer of a buffered inner stream.
    buffered: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Owed,
    Upgraded,
}

impl RequestGuess {
    /// Bytes arrived.
    pub(super) fn has_read(&mut self, clock: &IdleClock) {
        if self.phase == Phase::Idle && clock.owe() {
            self.phase = Phase::Owed;
        }
    }

    /// There are bytes to write, which begin with these: the peer has to take them from now on.
    pub(super) fn begins_write(&mut self, bytes: &[u8], clock: &IdleClock) {
        if self.phase != Phase::Owed {
            return;
        }
        clock.respond(clock.now());
        self.phase = if is_upgrade(bytes) {
            Phase::Upgraded
        } else {
            Phase::Idle
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

fn is_upgrade(bytes: &[u8]) -> bool {
    let (version, status) = UPGRADED;
    let minor_and_rest = bytes.strip_prefix(version);
    minor_and_rest.is_some_and(|rest| rest.get(1..).is_some_and(|rest| rest.starts_with(status)))
}

#[cfg(test)]
mod tests {
    use super::is_upgrade;

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
}
