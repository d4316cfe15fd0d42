//! Keeps a hint that comes while a test does something else.

use std::sync::Arc;

use tickwheel_durable::store::{Namespace, Store};
use tokio::sync::Notify;

/// Is notified of the hints of a namespace that the store hears from now on.
pub(crate) fn heard_by(store: Arc<impl Store + 'static>, space: &Namespace) -> Arc<Notify> {
    let (heard, space) = (Arc::<Notify>::default(), space.clone());
    let note = Arc::clone(&heard);
    tokio::spawn(async move {
        loop {
            store.hinted(&space).await;
            note.notify_one();
        }
    });
    heard
}
