//! The table: each row with its figures, and whether it passes.

mod checks;
mod keyed;
mod lateness;
mod memory;
mod services;
mod sleeps;
mod touches;
mod wheels;

use crate::coordinate::Figures;

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

    /// The ratio of the medians, with the range of the ratios within one repetition where there are
    /// as many of both.
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
    checks::all()
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
