use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use moka::notification::RemovalCause;
use tokio::sync::mpsc;

pub fn sessions(ttl: Duration, ended: mpsc::UnboundedSender<(String, u32)>) -> Cache<String, u32> {
    Cache::builder()
        .time_to_live(ttl)
        .eviction_listener(move |session: Arc<String>, user, cause| {
            if cause == RemovalCause::Expired {
                let _ = ended.send((session.to_string(), user));
            }
        })
        .build()
}

/// The listener runs within calls of the cache only: without this, a silent cache tells nothing.
pub async fn keep_house(sessions: Cache<String, u32>) {
    let mut often = tokio::time::interval(Duration::from_millis(100));
    loop {
        often.tick().await;
        sessions.run_pending_tasks().await;
    }
}
