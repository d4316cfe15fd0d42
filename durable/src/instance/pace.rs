//! How quickly a program finishes claims.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the claims that the program finishes while it works.
///
/// The program works from when it receives a claim until it has none. While it waits for the store
/// with nothing to do, it does not work. So a program is quick if its handlers are, however slow
/// the store is.
///
/// The work is divided into *spans*. In a new one the program may have finished few claims yet, so
/// the span before counts as well. In the first one, the program is expected to finish half as many
/// again as it has finished, and one, if it is quick enough for that.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How many claims the program has received.
    received: usize,
    /// How many of these it had finished when it last asked for more.
    finished: usize,
    /// Of `finished`, those before this span.
    finished_before: usize,
    /// The work of this span before `since`.
    worked: Duration,
    /// Since when the program works, if it does.
    since: Option<Instant>,
    /// How many claims it finished in the span before, and in how much work.
    last: (usize, Duration),
}

impl Pace {
    /// The program receives a claim.
    pub(super) fn receive(&mut self, now: Instant) {
        self.received += 1;
        self.since.get_or_insert(now);
    }

    /// The program asks for more while it works on so many. A span has this length.
    pub(super) fn ask(&mut self, busy: usize, span: Duration, now: Instant) {
        self.finished = self.finished.max(self.received.saturating_sub(busy));
        let worked = self.worked(now);
        if worked >= span {
            self.last = (self.finished - self.finished_before, worked);
            self.finished_before = self.finished;
            self.worked = Duration::ZERO;
            self.since = self.since.map(|_| now);
        }
    }

    /// The program has asked for more, and there is none. If it works on none, it waits.
    pub(super) fn wait(&mut self, busy: usize, now: Instant) {
        if busy == 0 {
            self.worked = self.worked(now);
            self.since = None;
        }
    }

    /// Forgets what the program did before: it says nothing of what it does now.
    pub(super) fn forget(&mut self, now: Instant) {
        self.finished_before = self.finished;
        self.worked = Duration::ZERO;
        self.since = self.since.map(|_| now);
        self.last = (0, Duration::ZERO);
    }

    /// How many claims the program finishes in a span of this length.
    pub(super) fn finishes_in(&self, span: Duration, now: Instant) -> usize {
        let rate = |finished: usize, worked: Duration| {
            let finished = u128::try_from(finished).unwrap_or(u128::MAX);
            let share = finished.saturating_mul(span.as_nanos()) / worked.as_nanos().max(1);
            usize::try_from(share).unwrap_or(usize::MAX)
        };
        let (worked, finished) = (self.worked(now), self.finished - self.finished_before);
        let this = rate(finished, worked);
        if worked < span {
            let (finished_last, worked_last) = self.last;
            let expected = this.min(finished + finished / 2 + 1);
            expected.max(rate(finished_last, worked_last.max(span)))
        } else {
            this
        }
    }

    /// The work of this span.
    fn worked(&self, now: Instant) -> Duration {
        let since = self.since.map_or(Duration::ZERO, |since| now - since);
        self.worked + since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(50);

    /// A program with one place, and a clock that the test moves.
    struct Program {
        pace: Pace,
        now: Instant,
    }

    impl Program {
        fn new() -> Self {
            let (pace, now) = (Pace::default(), Instant::now());
            Program { pace, now }
        }

        /// Receives so many claims at once and finishes them in this time, then waits for the
        /// store.
        fn work(&mut self, claims: usize, time: Duration, store: Duration) {
            for _ in 0..claims {
                self.pace.receive(self.now);
            }
            self.now += time;
            self.pace.ask(0, SPAN, self.now);
            self.pace.wait(0, self.now);
            self.now += store;
        }

        fn in_a_span(&self) -> usize {
            self.pace.finishes_in(SPAN, self.now)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_store_does_not_make_a_program_slow() {
        let mut program = Program::new();
        for rounds in 1..=5 {
            program.work(64, SPAN / 100, SPAN * 10);
            assert_eq!(program.in_a_span(), 96 * rounds + 1);
        }
        for _ in 0..200 {
            program.work(64, SPAN / 100, SPAN * 10);
        }
        assert_eq!(program.in_a_span(), 6_400);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_program_finishes_none_in_a_span() {
        let mut program = Program::new();
        for _ in 0..3 {
            program.work(1, SPAN * 2, Duration::ZERO);
            assert_eq!(program.in_a_span(), 0);
        }
        program.work(16, SPAN * 4, Duration::ZERO);
        assert_eq!(program.in_a_span(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn claims_that_are_worked_on_are_not_finished() {
        let mut program = Program::new();
        for _ in 0..16 {
            program.pace.receive(program.now);
        }
        for (busy, expected) in [(16, 0), (15, 2), (14, 4), (13, 5), (12, 7)] {
            program.pace.ask(busy, SPAN, program.now);
            program.pace.wait(busy, program.now);
            assert_eq!(program.in_a_span(), expected);
        }
        program.now += SPAN * 4;
        assert_eq!(program.in_a_span(), 1, "it works on twelve all the time");
    }

    #[tokio::test(start_paused = true)]
    async fn program_that_turns_slow_is_noticed_within_a_span() {
        let mut program = Program::new();
        for _ in 0..20 {
            program.work(64, SPAN / 10, Duration::ZERO);
        }
        assert_eq!(program.in_a_span(), 640);
        program.pace.receive(program.now);
        program.now += SPAN / 2;
        assert_eq!(program.in_a_span(), 640);
        program.now += SPAN * 2;
        assert_eq!(program.in_a_span(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn few_more_are_expected_in_a_longer_span_than_were_seen() {
        let mut program = Program::new();
        for _ in 0..5 {
            program.work(1, SPAN / 5, Duration::ZERO);
        }
        let long = SPAN * 4;
        assert_eq!(program.pace.finishes_in(long, program.now), 5);
        for finished in 1..=20 {
            program.pace.receive(program.now);
            program.now += SPAN / 5;
            program.pace.ask(0, long, program.now);
            let expected = program.pace.finishes_in(long, program.now);
            assert_eq!(expected, (finished + finished / 2 + 1).clamp(5, 20));
        }
    }
}
