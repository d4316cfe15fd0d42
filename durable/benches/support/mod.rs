//! Parts that the benchmarks of the stores share: the table, the command line, and how timers come
//! into a store.
//!
//! The stores run on this host, and the measuring process shares its cores with them.

use std::time::Duration;

use tickwheel_durable::store::{Action, Due, Namespace, Store, Terms, Write};

/// A way to connect to one store, again and again.
pub(crate) trait Connect {
    type Store: Store;

    async fn connect(&self) -> Self::Store;
}

/// A row of what was measured.
pub(crate) fn report(what: &str, figure: &str) {
    println!("{what:<72} {figure}");
}

/// The row of a table for delays.
pub(crate) fn report_delays(what: &str, mut delays: Vec<Duration>) {
    delays.sort_unstable();
    let part = |percent: usize| delays[(delays.len() - 1) * percent / 100];
    report(
        what,
        &format!(
            "p50 {:.1?}, p99 {:.1?}, max {:.1?}",
            part(50),
            part(99),
            part(100)
        ),
    );
}

/// Whether the command line asks for this part: any of the words on it, or all parts if there are
/// none.
pub(crate) fn wanted(part: &str) -> bool {
    // Cargo adds an option.
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .peekable();
    words.peek().is_none() || words.any(|word| word == part)
}

/// Writes timers into a namespace in batches, and throws away what was in it before. Each has a
/// key, a value in JSON and a deadline.
pub(crate) async fn fill(
    store: &impl Store,
    namespace: &str,
    timers: impl Iterator<Item = (u64, String, Due)>,
) {
    let space = Namespace::new(namespace).expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    while store.purge(&space).await.expect("it is emptied").more {}
    let near = Terms::NONE;
    let mut writes = timers.map(|(key, value, due)| {
        Write::new(
            key.to_string().into(),
            Action::set(value.into(), due, None, false),
        )
    });
    loop {
        let batch: Vec<_> = writes.by_ref().take(1_000).collect();
        if batch.is_empty() {
            break;
        }
        store.write(&space, batch, near).await.expect("it writes");
    }
}
