//! Counts and instances.

use std::time::Duration;

use console::Term;
use tickwheel_durable::store::StoreTime;
use tokio::time::{Instant, sleep_until};

use super::output::{print, print_json, table};
use crate::args::Common;
use crate::clock::{from_now, goes_on};
use crate::failure::Failure;
use crate::operator::{Asked, Operator};
use crate::records::{InstanceRecord, InstancesRecord, NamespaceRecord, StatsRecord};
use crate::shown::{count, text_line};

/// Counts the timers of the namespace that is named, or else of each one.
async fn count_all(
    asked: &Asked,
    common: &Common,
) -> Result<Vec<(Operator, tickwheel_durable::Counts)>, Failure> {
    let operators = if let Some(name) = &common.namespace {
        vec![asked.namespace(name).await?]
    } else {
        let all = asked.namespaces().await?;
        all.into_iter().map(|found| asked.operator(found)).collect()
    };
    let mut counted = Vec::new();
    for operator in operators {
        let counts = operator.counts().await?;
        counted.push((operator, counts));
    }
    Ok(counted)
}

fn record(counted: &[(Operator, tickwheel_durable::Counts)]) -> StatsRecord {
    let record = |(operator, counts): &(Operator, tickwheel_durable::Counts)| {
        NamespaceRecord::new(operator.namespace.as_str(), &operator.codec, counts)
    };
    StatsRecord {
        namespaces: counted.iter().map(record).collect(),
    }
}

fn stats_table(counted: &[(Operator, tickwheel_durable::Counts)]) -> String {
    let mut stats = table(&[
        "namespace",
        "codec",
        "waiting",
        "in flight",
        "dead",
        "earliest",
    ]);
    for (operator, counts) in counted {
        let shown = |number| count(number, counts.is_estimate);
        let earliest = counts
            .earliest
            .map(|earliest| from_now(earliest, counts.now));
        stats.add_row([
            operator.namespace.to_string(),
            text_line(&operator.codec, 40),
            shown(counts.waiting),
            shown(counts.in_flight),
            shown(counts.dead),
            earliest.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    stats.to_string()
}

pub(super) async fn stats(asked: &Asked, common: &Common) -> Result<(), Failure> {
    let counted = count_all(asked, common).await?;
    if common.json {
        return print_json(&record(&counted));
    }
    print(&stats_table(&counted))
}

pub(super) async fn instances(operator: &Operator, json: bool) -> Result<(), Failure> {
    let (now, instances) = (operator.counts().await?.now, operator.instances().await?);
    if json {
        let each = instances.iter();
        return print_json(&InstancesRecord {
            namespace: operator.namespace.to_string(),
            now: now.to_string(),
            instances: each.map(|each| InstanceRecord::new(each, now)).collect(),
        });
    }
    print(&instances_table(&instances, now))
}

fn instances_table(
    instances: &[tickwheel_durable::store::StoredInstance],
    now: StoreTime,
) -> String {
    let mut shown = table(&["instance", "alive", "loaded", "lacks"]);
    for instance in instances {
        shown.add_row([
            instance.id.0.to_string(),
            goes_on(instance.alive_until, now),
            instance.loaded.to_string(),
            instance.lacks.to_string(),
        ]);
    }
    shown.to_string()
}

/// Shows counts and instances again and again.
pub(super) async fn watch(
    asked: &Asked,
    common: &Common,
    every: Duration,
    times: Option<u64>,
) -> Result<(), Failure> {
    let screen = Term::stdout();
    let mut left = times.unwrap_or(u64::MAX);
    let mut next = Instant::now();
    while left > 0 {
        sleep_until(next).await;
        next = Instant::now() + every;
        left -= 1;
        let counted = count_all(asked, common).await?;
        if common.json {
            print_json(&record(&counted))?;
            continue;
        }
        let mut parts = vec![stats_table(&counted)];
        for (operator, counts) in &counted {
            let instances = operator.instances().await?;
            let shown = instances_table(&instances, counts.now);
            parts.push(format!("{} at {}\n{shown}", operator.namespace, counts.now));
        }
        if screen.is_term() {
            screen.clear_screen()?;
        }
        print(&parts.join("\n\n"))?;
    }
    Ok(())
}
