//! Two versions of the crate work on one store, as real processes: this one, and a build of the
//! same sources whose schema has a column and a table more. They are started, restarted, killed and
//! rolled back in every order of two steps, while handlers run. No timer is handled twice, and none
//! is lost.

#![allow(clippy::duplicate_mod, reason = "each server says that it is missing")]

#[allow(dead_code, unused_imports)]
#[path = "../postgres/server.rs"]
mod postgres;
mod processes;
#[allow(dead_code, unused_imports)]
#[path = "../redis/server.rs"]
mod redis;
mod stores;
mod worker;

use processes::{Processes, Version};
use stores::Place;

/// A step of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Restart(Version),
    Kill(Version),
    /// Ends the next version, takes its schema back, and tries it once more.
    RollBack,
    /// A later version takes away what this one needs, and puts it back.
    Contract,
}

const STEPS: [Step; 6] = [
    Step::Restart(Version::This),
    Step::Restart(Version::Next),
    Step::Kill(Version::This),
    Step::Kill(Version::Next),
    Step::RollBack,
    Step::Contract,
];

/// Each step after each other one, and after itself.
fn all_pairs() -> Vec<Step> {
    let count = STEPS.len();
    let (mut used, mut order) = (vec![vec![false; count]; count], vec![0]);
    // From the last one on, so that the first comes up again until all others are through.
    while let Some(next) = (0..count)
        .rev()
        .find(|&next| !used[order[order.len() - 1]][next])
    {
        used[order[order.len() - 1]][next] = true;
        order.push(next);
    }
    assert!(used.iter().flatten().all(|&used| used), "{order:?}");
    order.into_iter().map(|step| STEPS[step]).collect()
}

impl Step {
    async fn take(self, place: &Place, processes: &mut Processes) {
        match self {
            Step::Restart(version) => {
                processes.end(version);
                processes.start(version);
            }
            Step::Kill(version) => {
                processes.kill(version);
                processes.start(version);
            }
            Step::RollBack => {
                processes.end(Version::Next);
                assert_eq!(place.migrate(1).await.version, 1);
                processes.until_handled(Version::This);
                processes.start(Version::Next);
                assert_eq!(place.version().await.version, 2);
            }
            Step::Contract => {
                place.set_readable_by(2).await;
                processes.until_refused(Version::This);
                processes.until_handled(Version::Next);
                place.set_readable_by(1).await;
            }
        }
        // The step is over, and handlers of both versions run again.
        processes.until_handled(Version::This);
        processes.until_handled(Version::Next);
    }
}

/// Takes the steps on a store that the one version has made, and the other one has found.
async fn in_every_order(place: Option<Place>, first: Version, steps: Vec<Step>) {
    let Some(place) = place else { return };
    let mut processes = Processes::on(&place.url());
    processes.start(first);
    processes.until_handled(first);
    processes.start(first.other());
    processes.until_handled(first);
    processes.until_handled(first.other());
    for step in steps {
        eprintln!("{step:?}");
        step.take(&place, &mut processes).await;
        processes.check();
    }
    assert!(
        place.added().await > 0,
        "the next version uses what it has added"
    );
    processes.finish();
}

macro_rules! on_each_store {
    ($($name:ident: $store:ident;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn d17_versions_take_every_step_in_every_order() {
                let place = Place::$store("every_order").await;
                in_every_order(place, Version::This, all_pairs()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn d17_older_version_starts_on_what_the_next_has_made() {
                let place = Place::$store("by_the_next").await;
                in_every_order(place, Version::Next, STEPS.to_vec()).await;
            }
        }
    )*};
}

on_each_store! {
    on_postgres: postgres;
    on_redis: redis;
    on_sqlite: sqlite;
}
