//! The rows of the table: which figure is set against which, and what it must reach.

use crate::churn::{ABOVE_BY_HAND, CORES};
use crate::coordinate::Figures;
use crate::floods;
use crate::sides::Side;
use crate::{plan, rates};

/// One series of one group.
#[derive(Debug, Clone, Copy)]
pub struct Series(pub &'static str, pub &'static str);

/// A row to be made.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    pub id: &'static str,
    pub what: &'static str,
    pub metric: &'static str,
    pub unit: &'static str,
    pub ours: Series,
    /// The divisor. Without one, the bar applies to our figure itself.
    pub theirs: Option<Series>,
    /// The greatest value allowed. Without one, the figure is only shown.
    pub bar: Option<f64>,
}

/// A row with its figures.
#[derive(Debug, Clone)]
pub struct Row {
    pub check: Check,
    pub ours: Spread,
    pub theirs: Option<Spread>,
    pub ratio: Option<Spread>,
}

impl Row {
    /// The figure that the bar applies to.
    pub fn judged(&self) -> Spread {
        self.ratio.unwrap_or(self.ours)
    }

    /// Whether a figure above a floor came out below it: then it is only noise.
    pub fn is_noise(&self) -> bool {
        self.ours.median < 0.0 || self.theirs.is_some_and(|theirs| theirs.median <= 0.0)
    }

    /// `None` without a bar, or with figures that say nothing.
    pub fn passes(&self) -> Option<bool> {
        let bar = self.check.bar.filter(|_| !self.is_noise())?;
        Some(self.judged().median <= bar)
    }
}

/// The median and the range of a figure.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread {
            median,
            least,
            most,
        })
    }

    /// The ratio of the medians, with the range of the ratios within one repetition where there are as many of both.
    fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let median = Spread::of(ours)?.median / Spread::of(theirs)?.median;
        let each: Vec<_> = if ours.len() == theirs.len() {
            ours.iter().zip(theirs).map(|(o, t)| o / t).collect()
        } else {
            vec![median]
        };
        Spread::of(&each).map(|spread| Spread { median, ..spread })
    }
}

/// The rows that can be made of these figures.
pub fn rows(figures: &Figures) -> Vec<Row> {
    checks()
        .into_iter()
        .filter_map(|check| {
            let get = |series: Series| figures.get(series.0, series.1, check.metric);
            let ours = get(check.ours);
            let theirs = check.theirs.map(get);
            Some(Row {
                check,
                ours: Spread::of(ours)?,
                theirs: match theirs {
                    Some(theirs) => Some(Spread::of(theirs)?),
                    None => None,
                },
                ratio: theirs.and_then(|theirs| Spread::ratio(ours, theirs)),
            })
        })
        .collect()
}

const TOKIO: &str = "tokio::time";
const OURS: &str = "tickwheel";
const PINGORA: &str = "pingora-timeout";
const QUEUE: &str = "DelayQueue";

/// A list that is written row by row.
#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    /// A ratio of wall time and one of CPU time.
    fn times(
        &mut self,
        id: &'static str,
        what: &'static str,
        ours: Series,
        theirs: Series,
        bar: Option<f64>,
    ) {
        for metric in ["wall", "cpu"] {
            self.ratio(id, what, (metric, "ns"), ours, theirs, bar);
        }
    }

    fn ratio(
        &mut self,
        id: &'static str,
        what: &'static str,
        (metric, unit): (&'static str, &'static str),
        ours: Series,
        theirs: Series,
        bar: Option<f64>,
    ) {
        self.0.push(Check {
            id,
            what,
            metric,
            unit,
            ours,
            theirs: Some(theirs),
            bar,
        });
    }

    fn absolute(
        &mut self,
        id: &'static str,
        what: &'static str,
        (metric, unit): (&'static str, &'static str),
        ours: Series,
        bar: Option<f64>,
    ) {
        self.0.push(Check {
            id,
            what,
            metric,
            unit,
            ours,
            theirs: None,
            bar,
        });
    }
}

fn checks() -> Vec<Check> {
    let mut c = Checks::default();
    churn(&mut c);
    sleepers(&mut c);
    touches(&mut c);
    keyed(&mut c);
    wheels(&mut c);
    storm(&mut c);
    actor(&mut c);
    memory_and_idleness(&mut c);
    light(&mut c);
    c.0.extend(floods::checks());
    alternative(&mut c);
    adapters(&mut c);
    c.0
}

fn churn(c: &mut Checks) {
    let one = "timeout armed and cancelled, current_thread";
    let two = "timeout armed and cancelled, 2 workers";
    let mixed = "timeout armed and cancelled, 2 workers, 30 s, 5 s and 50 ms in turn";
    for (id, what, against_tokio, against_pingora) in [
        ("S1", one, 0.5, None),
        ("S2", two, 0.08, Some(0.4)),
        ("S2b", mixed, 0.15, None),
    ] {
        let ours = Series(id, OURS);
        c.times(id, what, ours, Series(id, TOKIO), Some(against_tokio));
        c.times(id, what, ours, Series(id, PINGORA), against_pingora);
        let cores = "to the other core and back, before and after";
        c.absolute(id, cores, ("wall", "ns"), Series(id, CORES), None);
    }
    for (group, what, bar) in [("S2c", two, Some(5.0)), ("S2c 1", one, None)] {
        let (ours, by_hand) = (Series(group, "tickwheel::time"), Series(group, OURS));
        c.times("S2c", what, ours, by_hand, None);
        for metric in ["wall", "cpu"] {
            c.absolute(
                "S2c",
                what,
                (metric, "ns"),
                Series(group, ABOVE_BY_HAND),
                bar,
            );
        }
    }
    for (group, what, bar) in plan::nested_bars() {
        let (ours, theirs) = (Series(group, OURS), Series(group, TOKIO));
        c.times("S2d", what, ours, theirs, Some(bar));
    }
    for (group, what) in [
        ("4 threads", "timeout armed and cancelled, 4 workers"),
        ("8 threads", "timeout armed and cancelled, 8 workers"),
        ("16 threads", "timeout armed and cancelled, 16 workers"),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, TOKIO));
        c.times("threads", what, ours, theirs, None);
    }
    for (id, what, others) in [("S1", one, "S1 others"), ("S2", two, "S2 others")] {
        for peer in ["futures-timer", "async-io"] {
            c.times(id, what, Series(id, OURS), Series(others, peer), None);
        }
    }
}

fn sleepers(c: &mut Checks) {
    let what = "many sleepers, each three times";
    let ours = Series("S3", OURS);
    for (peer, bars) in [
        (TOKIO, [Some(0.15), Some(1.0), Some(1.0)]),
        (PINGORA, [None; 3]),
    ] {
        let theirs = Series("S3", peer);
        c.ratio("S3", what, ("mean", "ms"), ours, theirs, bars[0]);
        for quantile in ["p50", "p99", "max"] {
            c.ratio("S3", what, (quantile, "ms"), ours, theirs, None);
        }
        c.ratio("S3", what, ("cpu", "s"), ours, theirs, bars[1]);
        c.ratio("S3", what, ("rss", "B"), ours, theirs, bars[2]);
    }
    early(c, "S3");
}

/// How many woke before their time.
fn early(c: &mut Checks, group: &'static str) {
    let metric = ("early", "sleeps");
    for ours in [OURS, Side::Precise.name()] {
        c.absolute(group, "woken early", metric, Series(group, ours), Some(0.0));
    }
    for peer in [TOKIO, PINGORA, "futures-timer", "async-io"] {
        c.absolute(group, "woken early", metric, Series(group, peer), None);
    }
}

fn touches(c: &mut Checks) {
    for (group, what) in [
        ("S4", "a pending sleep moved, current_thread"),
        ("S4 2 workers", "a pending sleep moved, 2 workers"),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, TOKIO));
        c.times("S4", what, ours, theirs, Some(0.7));
    }
    let wall = ("wall", "ns");
    let (touch_at, touch) = (Series("S5", "touch_at(now)"), Series("S5", "touch()"));
    let apart = Series("S5", "touch_at, ticks apart");
    c.absolute(
        "S5",
        "idle: touch_at(now), above the loop",
        wall,
        touch_at,
        Some(2.0),
    );
    c.absolute(
        "S5",
        "idle: touch_at, each in another tick, above the loop",
        wall,
        apart,
        None,
    );
    for (peer, bar) in [
        ("Instant::now()", Some(1.1)),
        ("tokio Sleep::reset", None),
        ("DelayQueue::reset", None),
    ] {
        c.times("S5", "idle: touch()", touch, Series("S5", peer), bar);
    }
    let (watched, plain) = (Series("echo", "IdleStream"), Series("echo", "plain"));
    let what = "echo round trip on the loopback";
    c.times("idle", what, watched, plain, Some(1.05));
    let what = "connections watched, each touched 10 times in its idle period";
    let ours = Series("watches", OURS);
    for (metric, unit, bar) in [
        ("commands", "", Some(0.0)),
        ("reschedules", "in each period", None),
        ("cpu of a reschedule", "ns", None),
        ("share of a core", "%", None),
    ] {
        c.absolute("idle", what, (metric, unit), ours, bar);
    }
}

fn adapters(c: &mut Checks) {
    for (ours, theirs, what) in [
        (
            "hyper reset: tickwheel",
            "hyper reset: TokioTimer",
            "hyper: a pending sleep reset",
        ),
        (
            "hyper sleep: tickwheel",
            "hyper sleep: TokioTimer",
            "hyper: a sleep made, polled and dropped, 2 workers",
        ),
        (
            "quinn reset: tickwheel",
            "quinn reset: TokioRuntime",
            "quinn: a pending timer reset",
        ),
        (
            "quinn reset and poll: tickwheel",
            "quinn reset and poll: TokioRuntime",
            "quinn: a pending timer reset and polled",
        ),
    ] {
        let (ours, theirs) = (Series("adapters", ours), Series("adapters", theirs));
        c.times("adapters", what, ours, theirs, None);
    }
    for (group, what) in [
        ("calls", "tower: a limited call, 2 workers"),
        (
            "calls cloned",
            "tower: a limited call, 2 workers, the service cloned for each",
        ),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, "tower::timeout"));
        c.times("adapters", what, ours, theirs, None);
    }
    services(c);
}

fn services(c: &mut Checks) {
    let hyper = "hyper server, request and head limited";
    for (group, what) in [
        ("service", hyper),
        ("proxy", "proxy, four timers a request"),
        ("proxy mixed", "proxy, four timers a request, lengths mixed"),
    ] {
        for (peer, bar) in [(TOKIO, Some(1.0)), ("no limits", None)] {
            let (ours, theirs) = (Series(group, OURS), Series(group, peer));
            c.ratio("service", what, ("cpu", "ns"), ours, theirs, bar);
            for (metric, unit) in [("wall", "ns"), ("p50", "us"), ("p99", "us")] {
                c.ratio("service", what, (metric, unit), ours, theirs, None);
            }
        }
    }
    for metric in ["timers", "commands"] {
        let ours = Series("service", OURS);
        c.absolute("service", hyper, (metric, "a request"), ours, None);
    }
}

fn keyed(c: &mut Checks) {
    for (group, what, bar) in [
        ("S6 1", "keyed set + move + remove, 1 producer", 0.2),
        ("S6 2", "keyed set + move + remove, 2 producers", 0.4),
        (
            "S6 1 among",
            "keyed set + move + remove among 1000 others, 1 producer",
            0.5,
        ),
        (
            "S6 2 among",
            "keyed set + move + remove among 1000 others, 2 producers",
            0.9,
        ),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, QUEUE));
        c.times("S6", what, ours, theirs, Some(bar));
    }
    for (group, what) in [
        ("S6 4", "keyed set + move + remove, 4 workers"),
        ("S6 8", "keyed set + move + remove, 8 workers"),
        ("S6 16", "keyed set + move + remove, 16 workers"),
        (
            "S6 2 apart",
            "keyed set + move + remove, 2 workers with a set each",
        ),
        (
            "S6 16 apart",
            "keyed set + move + remove, 16 workers with a set each",
        ),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, QUEUE));
        c.times("threads", what, ours, theirs, None);
    }
    for (group, what) in [
        ("S7", "a random one of many keys moved later"),
        ("S7 anywhere", "a random one of many keys moved anywhere"),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, QUEUE));
        c.times("S7", what, ours, theirs, Some(0.5));
    }
}

fn wheels(c: &mut Checks) {
    for (group, sizes) in [
        ("S8 10^3", "10^3 resident"),
        ("S8 10^5", "10^5 resident"),
        ("S8 10^7", "10^7 resident"),
    ] {
        for (ours, theirs) in [
            ("tickwheel, the same", "hhwt, the same"),
            ("tickwheel, another", "hhwt, another"),
        ] {
            let (ours, theirs) = (Series(group, ours), Series(group, theirs));
            c.times("S8", sizes, ours, theirs, Some(0.5));
        }
    }
    for series in ["tickwheel, the same", "tickwheel, another"] {
        let (large, small) = (Series("S8 10^7", series), Series("S8 10^3", series));
        c.times("S8", "10^7 against 10^3 resident", large, small, None);
    }
}

fn storm(c: &mut Checks) {
    let ours = Series("S9", OURS);
    let what = "many sleeps due at one tick";
    c.absolute("S9", what, ("longest turn, cpu", "ms"), ours, Some(1.0));
    c.absolute("S9", what, ("longest turn", "ms"), ours, None);
    for (peer, bar) in [(TOKIO, Some(1.0)), (PINGORA, None)] {
        let theirs = Series("S9", peer);
        c.ratio("S9", what, ("cpu", "s"), ours, theirs, bar);
        c.ratio("S9", what, ("max", "ms"), ours, theirs, None);
    }
    early(c, "S9");
}

/// From this follows how many timers one wheel can serve.
fn actor(c: &mut Checks) {
    let what = "the actor's work for one of 10^6 timers";
    for timer in [
        "a sleep registered",
        "a sleep rescheduled",
        "a sleep fired",
        "a keyed timer registered",
        "a keyed timer rescheduled",
        "a keyed timer fired",
    ] {
        c.absolute("actor", what, ("cpu", "ns"), Series("actor", timer), None);
    }
}

fn memory_and_idleness(c: &mut Checks) {
    let bytes = ("bytes", "B");
    let ours = Series("S10", OURS);
    let what = "a pending keyed timer";
    c.absolute("S10", what, bytes, ours, Some(80.0));
    c.ratio("S10", what, bytes, ours, Series("S10", QUEUE), None);
    c.ratio(
        "S10",
        "a pending Sleep",
        bytes,
        Series("S10", "tickwheel, a Sleep"),
        Series("S10", "tokio::time, a boxed Sleep"),
        None,
    );
    // 128, and the key and the value.
    for (ours, theirs, bar) in [
        ("tickwheel, 0 words", "tokio::time, 0 words", None),
        ("tickwheel, 2 words", "tokio::time, 2 words", None),
        ("tickwheel, 4 words", "tokio::time, 4 words", Some(1.0)),
        ("tickwheel, 6 words", "tokio::time, 6 words", None),
        ("tickwheel, 8 words", "tokio::time, 8 words", None),
        ("tickwheel, 12 words", "tokio::time, 12 words", None),
        ("tickwheel::time, 4 words", "tokio::time, 4 words", None),
        ("tickwheel::time, 12 words", "tokio::time, 12 words", None),
    ] {
        let (ours, theirs) = (Series("S10", ours), Series("S10", theirs));
        c.ratio(
            "S3",
            "a task that sleeps and holds",
            bytes,
            ours,
            theirs,
            bar,
        );
    }
    let watch = Series("S10", "tickwheel, a Watch");
    c.absolute("idle", "a connection watched", bytes, watch, Some(144.0));
    for metric in [("allocations", ""), ("bytes", "B")] {
        for series in [OURS, TOKIO, PINGORA, "futures-timer", "async-io"] {
            let bar = (series == OURS && metric.0 == "allocations").then_some(0.001);
            let what = "allocated for each timeout";
            c.absolute("-", what, metric, Series("allocations", series), bar);
        }
    }
    for (series, what) in [
        ("no timers", "idle, no timers"),
        ("one timer", "idle, one timer a year away"),
    ] {
        let series = Series("S11", series);
        c.absolute("S11", what, ("wake-ups", ""), series, Some(0.0));
        c.absolute("S11", what, ("waits", ""), series, None);
    }
    let waits = ("waits", "");
    c.absolute(
        "S11",
        "idle, no wheel",
        waits,
        Series("S11", "no wheel"),
        None,
    );
}

fn light(c: &mut Checks) {
    const QUANTILES: [&str; 4] = ["mean", "p50", "p99", "max"];
    let what = "100 tasks sleeping 20 ms, lateness";
    let (ours, tokio) = (Series("S12", OURS), Series("S12", TOKIO));
    for quantile in QUANTILES {
        let bar = (quantile != "max").then_some(1.05);
        c.ratio("S12", what, (quantile, "ms"), ours, tokio, bar);
    }
    let alternative = Side::TokioAlternative.name();
    for peer in [alternative, PINGORA, "futures-timer", "async-io"] {
        for quantile in QUANTILES {
            let theirs = Series("S12", peer);
            c.ratio("S12", what, (quantile, "ms"), ours, theirs, None);
        }
    }
    for variant in [Side::LongTick, Side::OwnThread] {
        for quantile in QUANTILES {
            let ours = Series("S12", variant.name());
            c.ratio("S12", what, (quantile, "ms"), ours, tokio, None);
        }
    }
    let precise = Series("S12", Side::Precise.name());
    for (quantile, bar) in [("mean", 0.3), ("p50", 0.15), ("p99", 1.0)] {
        c.ratio("S12", what, (quantile, "ms"), precise, tokio, Some(bar));
    }
    for peer in rates::PEERS {
        for quantile in QUANTILES {
            let theirs = Series("S12", peer.name());
            c.ratio("S12", what, (quantile, "ms"), precise, theirs, None);
        }
    }
    early(c, "S12");
    at_rates(c);
    let what = "20 tasks sleeping 20 ms, the arming task blocks its worker";
    let late = ("max", "ms");
    c.absolute("S13", what, late, Series("S13", OURS), Some(10.0));
    for series in [Side::OwnThread.name(), TOKIO, alternative] {
        c.absolute("S13", what, late, Series("S13", series), None);
    }
}

/// What precision costs.
fn at_rates(c: &mut Checks) {
    let (cost, p50, p99) = (("cpu", "us"), ("p50", "ms"), ("p99", "ms"));
    for (group, per_second) in rates::RATES {
        let what = match per_second {
            1_000 => "1,000 sleeps a second, each",
            10_000 => "10,000 sleeps a second, each",
            _ => "100,000 sleeps a second, each",
        };
        let series = |side: Side| Series(group, side.name());
        let (ours, tokio) = (series(Side::Tickwheel), series(Side::Tokio));
        c.ratio("S12b", what, cost, ours, tokio, Some(1.1));
        let precise = series(Side::Precise);
        let bar = if per_second > 1_000 { 1.5 } else { 1.4 };
        c.ratio("S12b", what, cost, precise, tokio, Some(bar));
        let dense = per_second > 1_000;
        c.absolute("S12b", what, p50, precise, dense.then_some(0.5));
        c.absolute("S12b", what, p99, precise, (!dense).then_some(0.35));
        for side in rates::VARIANTS.into_iter().chain(rates::PEERS) {
            c.ratio("S12b", what, cost, series(side), tokio, None);
            c.absolute("S12b", what, p50, series(side), None);
            c.absolute("S12b", what, p99, series(side), None);
        }
        early(c, group);
    }
}

/// What Tokio's alternative timer costs.
fn alternative(c: &mut Checks) {
    for (id, what, bar) in [
        (
            "S2a",
            "timeout armed and cancelled, 2 workers, Tokio's alternative timer",
            0.25,
        ),
        (
            "S4a",
            "a pending sleep moved, 2 workers, Tokio's alternative timer",
            0.7,
        ),
    ] {
        c.times(id, what, Series(id, OURS), Series(id, TOKIO), Some(bar));
    }
}
