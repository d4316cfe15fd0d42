//! The signals that ask a server to stop.

use std::future::Future;

/// Completes at Ctrl-C, and on Unix at SIGTERM. Listens from this call on, so that no signal is missed or ends the
/// process.
#[cfg(unix)]
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    async move {
        // Without handlers the signals end the process themselves.
        if let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        } else {
            std::future::pending::<()>().await;
        }
    }
}

/// Completes at Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> {
    async {
        let _ = tokio::signal::ctrl_c().await;
    }
}
