//! Idle timers, idle streams and the reaper.

mod reaper;
mod sockets;
mod stream;
mod timer;
