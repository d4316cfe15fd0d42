//! Keeps a hint that comes while a test does something else.

use std::sync::Arc;

use futures_util::FutureExt;
use tickwheel_durable::store::{Namespace, Store};
use tokio::sync::Notify;

/// Is notified of the hints of a namespace that the store hears from now on.
pub(crate) fn heard_by(store: Arc<impl Store + 'static>, space: &Namespace) -> Arc<Notify> {
    let (heard, space) = (Arc::<Notify>::default(), space.clone());
    let note = Arc::clone(&heard);
    tokio::spawn(async move {
        let mut hinted = store.hinted(&space);
        loop {
            hinted.as_mut().await;
            hinted = store.hinted(&space);
            // It listens before a test knows of this hint, and may do what sends another one.
            while hinted.as_mut().now_or_never().is_some() {
                hinted = store.hinted(&space);
            }
            note.notify_one();
        }
    });
    heard
}
