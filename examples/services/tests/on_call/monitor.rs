//! The server of an operator, and what it publishes.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use tickwheel_admin::Page;
use tickwheel_durable::Store;
use tokio::time::sleep;
use tower::ServiceExt as _;

use crate::program::INTERVAL;
use crate::promtool::Scrapes;

pub(crate) struct Monitor {
    page: Router,
    pub(crate) scrapes: Scrapes,
}

impl Monitor {
    pub(crate) fn new(store: impl Into<Box<dyn Store>>) -> Self {
        Monitor {
            page: Page::new(store).routes(),
            scrapes: Scrapes::default(),
        }
    }

    pub(crate) async fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            sleep(INTERVAL).await;
            self.scrape().await;
        }
    }

    pub(crate) async fn scrape(&mut self) {
        let request = Request::get("/metrics").body(Body::empty());
        let asked = self.page.clone().oneshot(request.expect("it is right"));
        let answer = asked.await.expect("it does not fail");
        let page = to_bytes(answer.into_body(), usize::MAX).await;
        let page = page.expect("it is whole");
        let page = std::str::from_utf8(&page).expect("it is text");
        self.scrapes.add(page);
    }
}
