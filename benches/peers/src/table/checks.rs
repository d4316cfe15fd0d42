//! The list of rows: which figure is set against which, and what it must reach. Each group of rows
//! has its own file.

use super::{Check, Series, keyed, lateness, memory, services, sleeps, touches, wheels};
use crate::floods;

pub(super) const TOKIO: &str = "tokio::time";
pub(super) const OURS: &str = "tickwheel";
pub(super) const PINGORA: &str = "pingora-timeout";
pub(super) const QUEUE: &str = "DelayQueue";

/// A list that is written row by row.
#[derive(Default)]
pub(super) struct Checks(Vec<Check>);

impl Checks {
    /// A ratio of wall time and one of CPU time.
    pub(super) fn times(
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

    pub(super) fn ratio(
        &mut self,
        id: &'static str,
        what: &'static str,
        metric: (&'static str, &'static str),
        ours: Series,
        theirs: Series,
        bar: Option<f64>,
    ) {
        self.row(id, what, metric, (ours, Some(theirs)), bar);
    }

    pub(super) fn absolute(
        &mut self,
        id: &'static str,
        what: &'static str,
        metric: (&'static str, &'static str),
        ours: Series,
        bar: Option<f64>,
    ) {
        self.row(id, what, metric, (ours, None), bar);
    }

    fn row(
        &mut self,
        id: &'static str,
        what: &'static str,
        (metric, unit): (&'static str, &'static str),
        (ours, theirs): (Series, Option<Series>),
        bar: Option<f64>,
    ) {
        self.0.push(Check {
            id,
            what,
            metric,
            unit,
            ours,
            theirs,
            bar,
        });
    }
}

/// All of them, in the order of the table.
pub(super) fn all() -> Vec<Check> {
    let mut c = Checks::default();
    sleeps::churn(&mut c);
    sleeps::sleepers(&mut c);
    touches::rows(&mut c);
    keyed::rows(&mut c);
    wheels::bare(&mut c);
    sleeps::storm(&mut c);
    wheels::actor(&mut c);
    memory::rows(&mut c);
    lateness::light(&mut c);
    c.0.extend(floods::checks());
    sleeps::not_pooled(&mut c);
    sleeps::alternative(&mut c);
    services::adapters(&mut c);
    c.0
}
