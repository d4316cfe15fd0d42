//! Counts and instances.

use std::time::Duration;

use console::Term;
use tickwheel_durable::store::{Counts, StoreTime, StoredInstance};
use tokio::time::{Instant, sleep_until};

use super::args::Common;
use super::one;
use super::output::{print, print_json, table};
use super::records;
use crate::details::{INSTANCE, instance_cells};
use crate::failure::Failure;
use crate::health::{NONE, Summary};
use crate::operator::{Operator, StoreAccess, write_stderr};
use crate::shown::{text_line, whole};

/// The namespace that is named, or else each one.
async fn summaries(access: &StoreAccess, common: &Common) -> Result<Vec<Summary>, Failure> {
    let operators = match common.namespace {
        Some(_) => vec![one(access, common).await?],
        None => access.operators(None).await?,
    };
    Summary::of_all(&operators).await
}

fn stats_text(summaries: &[Summary]) -> String {
    if summaries.is_empty() {
        return NONE.to_owned();
    }
    let columns = [
        "namespace",
        "codec",
        "state",
        "waiting",
        "in flight",
        "dead",
        "earliest",
    ];
    let mut stats = table(&columns);
    for each in summaries {
        let about = [
            each.operator.namespace.to_string(),
            text_line(&each.operator.codec, 40),
            format!("{}: {}", each.health.word, each.health.text),
        ];
        stats.add_row(about.into_iter().chain(each.figures()));
    }
    stats.to_string()
}

pub(super) async fn stats(access: &StoreAccess, common: &Common) -> Result<(), Failure> {
    let summaries = summaries(access, common).await?;
    if common.json {
        return print_json(&records::namespaces(&summaries));
    }
    print(&stats_text(&summaries))
}

pub(super) async fn instances(operator: &Operator, json: bool) -> Result<(), Failure> {
    let (now, instances) = (operator.counts().await?.now, operator.instances().await?);
    if json {
        return print_json(&records::instances(operator, &instances, now));
    }
    print(&instances_table(&instances, now))
}

fn instances_table(instances: &[StoredInstance], now: StoreTime) -> String {
    let mut shown = table(&INSTANCE);
    for instance in instances {
        shown.add_row(instance_cells(instance, now));
    }
    shown.to_string()
}

/// Shows counts and instances again and again.
pub(super) async fn watch(
    access: &StoreAccess,
    common: &Common,
    every: Duration,
    times: Option<u64>,
) -> Result<(), Failure> {
    let screen = Term::stdout();
    let mut next = Instant::now();
    for _ in 0..times.unwrap_or(u64::MAX) {
        sleep_until(next).await;
        next = Instant::now() + every;
        let summaries = match summaries(access, common).await {
            // A script that watches a few times is told.
            Err(failure @ Failure::Failed(_)) if times.is_none() => {
                write_stderr(&format!("error: {}", whole(failure.to_string().as_bytes())));
                continue;
            }
            summaries => summaries?,
        };
        if common.json {
            print_json(&records::namespaces(&summaries))?;
            continue;
        }
        let mut parts = vec![stats_text(&summaries)];
        for each in &summaries {
            let (name, Some(Counts { now, .. })) = (&each.operator.namespace, &each.counts) else {
                continue;
            };
            let shown = instances_table(&each.instances, *now);
            parts.push(format!("{name} at {now}\n{shown}"));
        }
        if screen.is_term() {
            screen.clear_screen()?;
        }
        print(&parts.join("\n\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::case::Case;
    use crate::program::args::Args;

    #[tokio::test(start_paused = true)]
    async fn looks_begin_as_far_apart_as_is_asked() {
        let case = Case::new().await;
        let args = Args::try_parse_from(["tickwheel-admin", "watch", "--json"]);
        let common = args.expect("they are right").common;
        let (began, every) = (Instant::now(), Duration::from_secs(10));
        let watched = watch(&case.operator.access, &common, every, Some(3)).await;
        watched.expect("it reads");
        assert_eq!(began.elapsed(), 2 * every);
        // A look that takes long is not made up for.
        case.store.set_slow("count", Duration::from_secs(4));
        let began = Instant::now();
        let watched = watch(&case.operator.access, &common, every, Some(2)).await;
        watched.expect("it reads");
        assert_eq!(began.elapsed(), every + Duration::from_secs(4));
    }
}
