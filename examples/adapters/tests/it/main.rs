//! The adapters with their real peers.

mod axum;
mod examples;
mod hyper;
mod metrics;
mod quinn;
mod tower;

/// Starts a wheel that keeps its sleeps under a paused clock, where they go to Tokio's timer otherwise.
fn start_wheel() -> tickwheel::TimerWheel {
    let builder = tickwheel::TimerWheel::builder().sleeps_on_wheel();
    builder.start().expect("the settings are valid")
}
