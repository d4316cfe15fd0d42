//! Runs a handler for each expiration, with panics caught.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::panic::catch_panic;

/// Logged when a handler panics.
const HANDLER: &str = "a handler panicked: its expiration is not handled again";

/// Logged when the drop of a handler's future panics.
const DROPPED: &str = "a handler panicked when it was dropped: what it owns may leak";

pin_project! {
    /// A handler's future. It completes when the future completes or panics. A panic in the
    /// future's drop is caught.
    pub(super) struct Handler<F> {
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for Handler<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            catch_panic(DROPPED, || this.future.set(None));
        }
    }
}

impl<F> Handler<F> {
    /// Calls the handler.
    pub(super) fn call(handler: impl FnOnce() -> F) -> Self {
        Handler {
            future: catch_panic(HANDLER, handler),
        }
    }
}

impl<F: Future<Output = ()>> Future for Handler<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Some(future) = this.future.as_mut().as_pin_mut() {
            // A future that has panicked is never polled again.
            let polled = catch_panic(HANDLER, || future.poll(cx));
            ready!(polled.unwrap_or(Poll::Ready(())));
        }
        catch_panic(DROPPED, || this.future.set(None));
        Poll::Ready(())
    }
}
