//! The signals that ask a server to stop.

use std::future::Future;

/// Completes at Ctrl-C, and on Unix at SIGTERM. Listens from this call on, so that no signal is
/// missed or ends the process. The second signal ends it at once, with what is in flight.
#[cfg(unix)]
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    async move {
        // Without handlers the signals end the process themselves.
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            return std::future::pending().await;
        };
        let mut asked = async move || {
            tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
            }
        };
        asked().await;
        // The exit code of a shell when that signal has ended its command.
        tokio::spawn(async move { std::process::exit(128 + asked().await) });
    }
}

/// Completes at Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> {
    async {
        let _ = tokio::signal::ctrl_c().await;
    }
}
