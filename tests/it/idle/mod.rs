//! Idle timers, idle streams and the reaper.

mod reaper;
mod sockets;
mod stalls;
mod stream;
mod stream_regressions;
mod stream_shutdown;
mod stream_table;
mod timer;
mod timer_regressions;
mod wakers;
