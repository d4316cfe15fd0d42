use tickwheel::{Expirations, KeyedTimers, TimerWheel};
use tokio::sync::mpsc::UnboundedSender;

/// The set of timers is the map: `set_timer(session, user, ttl)`, `get(&session)`,
/// `remove_timer(&session)`.
pub fn sessions(
    wheel: &TimerWheel,
    ended: UnboundedSender<(String, u32)>,
) -> KeyedTimers<String, u32> {
    let (sessions, expirations) = wheel.keyed();
    tokio::spawn(listen(expirations, ended));
    sessions
}

/// The listener. Ends when no handle and no session is left.
async fn listen(mut expirations: Expirations<String, u32>, ended: UnboundedSender<(String, u32)>) {
    while let Some(session) = expirations.recv().await {
        let _ = ended.send((session.key, session.value));
    }
}
