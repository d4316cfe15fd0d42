//! How a namespace is doing, in a word and a sentence.

use std::time::Duration;

use tickwheel_durable::Counts;
use tickwheel_durable::store::{List, State, StoredInstance, Version};

use crate::clock::{from_now, span};
use crate::failure::Failure;
use crate::operator::Operator;
use crate::shown::{count, text_line};

/// A timer that has been due for this long and has not fired is late.
pub(crate) const LATE: Duration = Duration::from_secs(5);

/// Timers that died within this time are news.
const RECENT: Duration = Duration::from_secs(3_600);

/// How many namespaces may hang before no further one is asked.
const MAX_HUNG: usize = 2;

/// An error in a table has at most this many characters.
const ERROR: usize = 200;

/// The text where no namespace is shown: the store has none, or not the one that is meant.
pub(crate) const NONE: &str =
    "There is no namespace to show. One appears once an instance has started on it.";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// `ok`, `died`, `late` or `failing`.
    pub(crate) word: &'static str,
    pub(crate) text: String,
}

impl Health {
    /// From the counts, the instances, and whether timers have died within [`RECENT`].
    pub(crate) fn new(counts: &Counts, instances: &[StoredInstance], died: bool) -> Self {
        let is_loaded = alive(counts, instances).next().is_some();
        let overdue = overdue(counts);
        let due = format!("has been due for {}", span(overdue));
        let (word, text) = if overdue > LATE && !is_loaded {
            let text = format!("no instance loads timers, and the earliest {due}");
            ("failing", text)
        } else if overdue > LATE {
            (
                "late",
                format!("the earliest timer {due} and has not fired"),
            )
        } else if died {
            let text = "nothing is late, but timers have died within the last hour";
            ("died", text.to_owned())
        } else if !is_loaded && counts.waiting > 0 {
            let text = "nothing is late, but no instance loads timers";
            ("ok", text.to_owned())
        } else {
            ("ok", "nothing is late".to_owned())
        };
        Health { word, text }
    }

    /// Whether it can be read and due timers fire. Timers that have died need no instance.
    pub(crate) fn is_well(&self) -> bool {
        matches!(self.word, "ok" | "died")
    }
}

/// For how long the earliest timer has been due.
fn overdue(counts: &Counts) -> Duration {
    let overdue = counts.earliest.map(|due| counts.now.since(due));
    overdue.unwrap_or_default()
}

/// The instances that load timers.
fn alive<'a>(
    counts: &Counts,
    instances: &'a [StoredInstance],
) -> impl Iterator<Item = &'a StoredInstance> {
    let now = counts.now;
    instances.iter().filter(move |each| each.alive_until >= now)
}

/// A namespace: its counts, its instances, and how it is doing.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) operator: Operator,
    /// None if it cannot be read.
    pub(crate) counts: Option<Counts>,
    pub(crate) instances: Vec<StoredInstance>,
    pub(crate) health: Health,
}

impl Summary {
    pub(crate) async fn of(operator: &Operator, counts: Counts) -> Result<Self, Failure> {
        let instances = operator.instances().await?;
        let since = Some((counts.now.before(RECENT), Version(0)));
        let died = operator.list(List::new(State::Dead, since, 1)).await?;
        Ok(Summary {
            operator: operator.clone(),
            health: Health::new(&counts, &instances, !died.is_empty()),
            counts: Some(counts),
            instances,
        })
    }

    /// One that cannot be read, as one of another version, is failing. So is one that hangs, and
    /// those after [`MAX_HUNG`] of them are not asked: each would wait for its own time limit. They
    /// are read one after the other, as most stores would do it anyway. If none can be read, the
    /// store has failed.
    pub(crate) async fn of_all(operators: &[Operator]) -> Result<Vec<Self>, Failure> {
        let (mut all, mut failed, mut hung) = (Vec::new(), None, 0);
        for operator in operators {
            let read = if hung < MAX_HUNG {
                Summary::read(operator).await
            } else {
                let text = "it was not asked, since others have not responded";
                Err(Failure::Failed(text.to_owned()))
            };
            hung +=
                usize::from(read.as_ref().err() == Some(&Failure::timeout(operator.access.limit)));
            all.push(read.unwrap_or_else(|failure| {
                let (word, text) = ("failing", text_line(&failure.to_string(), ERROR));
                failed.get_or_insert(failure);
                Summary {
                    operator: operator.clone(),
                    counts: None,
                    instances: Vec::new(),
                    health: Health { word, text },
                }
            }));
        }
        match failed {
            Some(failure) if all.iter().all(|each| each.counts.is_none()) => Err(failure),
            _ => Ok(all),
        }
    }

    async fn read(operator: &Operator) -> Result<Self, Failure> {
        Summary::of(operator, operator.counts().await?).await
    }

    /// For how long the earliest timer has been due.
    pub(crate) fn overdue(&self) -> Duration {
        self.counts.as_ref().map(overdue).unwrap_or_default()
    }

    /// The instances that load timers.
    pub(crate) fn alive(&self) -> impl Iterator<Item = &StoredInstance> {
        let counts = self.counts.as_ref();
        counts
            .into_iter()
            .flat_map(|counts| alive(counts, &self.instances))
    }

    /// How many wait, are in flight and are dead, and when the earliest is due.
    pub(crate) fn figures(&self) -> [String; 4] {
        let Some(counts) = &self.counts else {
            return ["-"; 4].map(str::to_owned);
        };
        let number = |number| count(number, counts.is_estimate);
        let earliest = counts.earliest.map(|due| from_now(due, counts.now));
        [
            number(counts.waiting),
            number(counts.in_flight),
            number(counts.dead),
            earliest.unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tickwheel_durable::store::{InstanceId, StoreTime};
    use tokio::time::Instant;

    use super::*;
    use crate::case::Case;

    #[test]
    fn state_is_what_is_worst() {
        let now = StoreTime::from_micros(1_000_000_000);
        let ago = |secs| now.before(Duration::from_secs(secs));
        let both = [now, ago(1)].map(|until| StoredInstance::new(InstanceId(1), until));
        let (alive, dead) = both.split_at(1);
        let next = now.after(Duration::from_secs(60));
        for (earliest, instances, died, word, text) in [
            (None, alive, false, "ok", "nothing is late"),
            (Some(next), alive, false, "ok", "nothing is late"),
            (Some(ago(5)), alive, false, "ok", "nothing is late"),
            (Some(ago(6)), alive, false, "late", "due for 6.0 s"),
            (Some(ago(6)), alive, true, "late", "due for 6.0 s"),
            (Some(next), alive, true, "died", "have died"),
            (None, dead, true, "died", "have died"),
            // As while the only instance is started again.
            (Some(ago(5)), dead, false, "ok", "but no instance loads"),
            (Some(ago(6)), dead, false, "failing", "no instance loads"),
            (Some(ago(6)), dead, true, "failing", "no instance loads"),
            (Some(next), dead, false, "ok", "but no instance loads"),
            (Some(ago(6)), &[], false, "failing", "no instance loads"),
            (Some(ago(6)), &both, false, "late", "due for 6.0 s"),
        ] {
            let mut counts = Counts::new(now, u64::from(earliest.is_some()), 0);
            counts.earliest = earliest;
            let health = Health::new(&counts, instances, died);
            assert_eq!(health.word, word, "{health:?}");
            assert!(health.text.contains(text), "{health:?}");
        }
    }

    #[tokio::test]
    async fn figure_that_is_an_estimate_says_so() {
        let case = Case::new().await;
        let mut counts = Counts::new(StoreTime::from_micros(1), 3, 1);
        (counts.dead, counts.is_estimate) = (2, true);
        let summary = Summary::of(&case.operator, counts).await;
        let figures = summary.expect("it reads").figures();
        assert_eq!(figures, ["~3", "~1", "~2", "-"]);
    }

    #[tokio::test]
    async fn timers_that_died_long_ago_are_no_news() {
        let case = Case::new().await;
        let tokens = case.in_flight(0..1).await;
        case.die(tokens, "why").await;
        let word = async || {
            let summaries = Summary::of_all(std::slice::from_ref(&case.operator)).await;
            summaries.expect("it reads")[0].health.word
        };
        assert_eq!(word().await, "died");
        case.memory.set_clock(SystemTime::now() + 2 * RECENT);
        assert_eq!(word().await, "ok");
    }

    // Regression: one that hung once failed all of them.
    #[tokio::test(start_paused = true)]
    async fn namespaces_that_hang_leave_others_to_be_read() {
        let mut cases = Vec::new();
        for _ in 0..5 {
            cases.push(Case::new().await);
        }
        let operators: Vec<_> = cases.iter().map(|case| case.operator.clone()).collect();
        let limit = operators[0].access.limit;
        for place in [0, 2, 3] {
            cases[place].store.set_slow("count", 2 * limit);
        }
        let began = Instant::now();
        let summaries = Summary::of_all(&operators).await.expect("one is read");
        let words = summaries.iter().map(|each| each.health.word);
        let expected = ["failing", "ok", "failing", "failing", "failing"];
        assert_eq!(words.collect::<Vec<_>>(), expected);
        let texts = [0, 4].map(|place| &*summaries[place].health.text);
        assert!(texts[0].contains("not responded within"), "{texts:?}");
        assert!(texts[1].contains("not asked"), "{texts:?}");
        assert_eq!(began.elapsed(), 2 * limit, "no third one is waited for");
        let hung = Summary::of_all(&operators[2..4]).await;
        assert_eq!(hung.expect_err("none is read"), Failure::timeout(limit));
    }
}
