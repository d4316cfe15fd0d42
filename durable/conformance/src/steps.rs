//! What a store does step by step: lists in pages, changes in batches.

use std::fmt::Debug;

use tickwheel_durable::store::{ChangedRows, List, Namespace, State, Store, Stored};

/// The rows in a state, in pages of at most so many.
pub(crate) async fn pages(
    store: &impl Store,
    space: &Namespace,
    state: State,
    limit: usize,
) -> Vec<Vec<Stored>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(space, List::new(state, after, limit)).await;
        let page = page.expect("it lists");
        let Some(last) = page.last() else {
            return pages;
        };
        assert!(page.len() <= limit, "{}", page.len());
        after = Some((last.due, last.version));
        pages.push(page);
    }
}

/// Makes steps until there are no more. Returns how many rows they have changed.
pub(crate) async fn in_steps<E: Debug>(
    mut step: impl AsyncFnMut() -> Result<ChangedRows, E>,
) -> u64 {
    let mut rows = 0;
    loop {
        let step = step().await.expect("it changes rows");
        rows += step.rows;
        if !step.more {
            return rows;
        }
        assert!(step.rows > 0, "a step that changes nothing is the last");
    }
}
