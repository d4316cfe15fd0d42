//! The adapters with their real peers.

mod axum;
mod hyper;
mod keep_alive;
mod keep_alive_stream;
mod metrics;
mod quinn;
mod send_sync;
mod tls;
mod tower;

/// Starts a wheel that keeps its sleeps under a paused clock, where they go to Tokio's timer
/// otherwise.
fn start_wheel() -> tickwheel::TimerWheel {
    let builder = tickwheel::TimerWheel::builder().sleeps_on_wheel();
    builder.start().expect("the settings are valid")
}
