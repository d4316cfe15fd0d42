//! What monitors ask for: the figures of each namespace, and whether due timers fire.
//!
//! Instances publish how they are doing. These figures are what the store says, so they are there
//! also when no instance runs.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tickwheel_durable::Counts;
use tickwheel_durable::store::StoreTime;

use super::Site;
use crate::failure::Failure;
use crate::health::Summary;

/// A monitor asks often, and a Redis server looks at all of its keys to find its namespaces.
const KNOWN: Duration = Duration::from_secs(60);

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];

/// A namespace that was read, and how many of its timers are due.
struct Figures<'a> {
    summary: &'a Summary,
    counts: Counts,
    due: u64,
}

type Gauge = (&'static str, &'static str, fn(&Figures<'_>) -> f64);

const GAUGES: [Gauge; 8] = [
    ("waiting", "Timers that wait.", |it| {
        float(it.counts.waiting)
    }),
    ("in_flight", "Timers in flight.", |it| {
        float(it.counts.in_flight)
    }),
    ("dead", "Dead timers.", |it| float(it.counts.dead)),
    ("due", "Waiting timers that are due, 10000 at most.", |it| {
        float(it.due)
    }),
    (
        "overdue_seconds",
        "For how long the earliest timer has been due.",
        |it| it.summary.overdue().as_secs_f64(),
    ),
    ("instances", "Instances that load timers.", |it| {
        float(it.summary.alive().count() as u64)
    }),
    ("loaded", "Timers on the wheels of these instances.", |it| {
        float(it.summary.alive().map(|each| each.loaded).sum())
    }),
    ("lacks", "Due timers that these instances lack.", |it| {
        float(it.summary.alive().map(|each| each.lacks).sum())
    }),
];

#[expect(clippy::cast_precision_loss, reason = "they are fewer than 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

impl Site {
    async fn summaries(&self) -> Result<Vec<Summary>, Failure> {
        let suffices = |known: &[_]| !known.is_empty();
        let namespaces = self.namespaces(KNOWN, suffices).await?;
        Summary::of_all(&namespaces).await
    }
}

/// The figures, in the text format of Prometheus. A store that cannot be read has one: that it
/// cannot.
pub(super) async fn metrics(State(site): State<Arc<Site>>) -> Response {
    let summaries = site.summaries().await;
    let is_up = summaries.is_ok();
    let summaries = summaries.unwrap_or_default();
    let mut read = Vec::new();
    for summary in &summaries {
        if let Some(counts) = summary.counts.clone() {
            let times = vec![StoreTime::default(), counts.now];
            let counted = summary.operator.count_due(times).await;
            let due = counted.ok().and_then(|counted| counted.first().copied());
            read.extend(due.map(|due| Figures {
                summary,
                counts,
                due,
            }));
        }
    }
    (TEXT, text(is_up, &summaries, &read)).into_response()
}

fn text(is_up: bool, summaries: &[Summary], read: &[Figures<'_>]) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, help: &str| {
        let _ = writeln!(
            text,
            "# HELP tickwheel_store_{name} {help}\n# TYPE tickwheel_store_{name} gauge"
        );
    };
    head(&mut text, "up", "1 if the store was read.");
    let _ = writeln!(text, "tickwheel_store_up {}", u8::from(is_up));
    let line = |text: &mut String, name: &str, of: &Summary, value: f64| {
        let namespace = &of.operator.namespace;
        let _ = writeln!(
            text,
            "tickwheel_store_{name}{{namespace=\"{namespace}\"}} {value}"
        );
    };
    head(&mut text, "read", "1 if the namespace was read.");
    for summary in summaries {
        let is_read = read.iter().any(|it| std::ptr::eq(it.summary, summary));
        line(&mut text, "read", summary, f64::from(u8::from(is_read)));
    }
    for (name, help, value) in GAUGES {
        head(&mut text, name, help);
        for it in read {
            line(&mut text, name, it.summary, value(it));
        }
    }
    text
}

/// Whether the store can be read and due timers fire. Anything else is no reason to call somebody:
/// dead timers, for example, have an alert of their own.
pub(super) async fn health(State(site): State<Arc<Site>>) -> Response {
    let summaries = match site.summaries().await {
        Ok(summaries) => summaries,
        Err(failure) => {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT,
                format!("{failure}\n"),
            )
                .into_response();
        }
    };
    let ill = summaries.iter().filter(|each| !each.health.is_well());
    let lines = ill.map(|each| {
        let health = &each.health;
        format!(
            "{}: {}: {}\n",
            each.operator.namespace, health.word, health.text
        )
    });
    match lines.collect::<String>() {
        lines if lines.is_empty() => (TEXT, "ok\n").into_response(),
        lines => (StatusCode::SERVICE_UNAVAILABLE, TEXT, lines).into_response(),
    }
}
