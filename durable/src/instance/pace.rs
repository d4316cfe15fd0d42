//! How quickly a program finishes claims.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the claims that the program finishes in a *span* of its work.
///
/// The program works from when it receives a claim until it has none: a time in which it waits for
/// the store with nothing to do is none of its work. So a program whose handlers return at once is
/// quick, however slow the store is.
#[derive(Debug)]
pub(super) struct Pace {
    /// The length of a span.
    span: Duration,
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
    /// How many it finished in the span before.
    last: usize,
}

impl Pace {
    pub(super) fn new(span: Duration) -> Self {
        Pace {
            span,
            received: 0,
            finished: 0,
            finished_before: 0,
            worked: Duration::ZERO,
            since: None,
            last: 0,
        }
    }

    /// The program receives a claim.
    pub(super) fn receive(&mut self, now: Instant) {
        self.received += 1;
        self.since.get_or_insert(now);
    }

    /// The program asks for more while it works on so many.
    pub(super) fn ask(&mut self, busy: usize, now: Instant) {
        self.finished = self.finished.max(self.received.saturating_sub(busy));
        if self.worked(now) >= self.span {
            self.last = self.per_span(now);
            self.finished_before = self.finished;
            self.worked = Duration::ZERO;
            self.since = self.since.map(|_| now);
        }
    }

    /// The program asks for more, and there is none. It waits with nothing to do if it works on
    /// none.
    pub(super) fn wait(&mut self, busy: usize, now: Instant) {
        if busy == 0 {
            self.worked = self.worked(now);
            self.since = None;
        }
    }

    /// Counts from the beginning: what the program did before says nothing of what it does now.
    pub(super) fn forget(&mut self, now: Instant) {
        self.finished_before = self.finished;
        self.worked = Duration::ZERO;
        self.since = self.since.map(|_| now);
        self.last = 0;
    }

    /// How many claims the program finishes in a span of work: as many as in this one, or in the
    /// last one if this has just begun.
    pub(super) fn per_span(&self, now: Instant) -> usize {
        let finished = self.finished - self.finished_before;
        let worked = self.worked(now);
        if worked < self.span {
            return finished.max(self.last);
        }
        let finished = u128::try_from(finished).unwrap_or(u128::MAX);
        let rate = finished.saturating_mul(self.span.as_nanos()) / worked.as_nanos().max(1);
        usize::try_from(rate).unwrap_or(usize::MAX)
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
            let (pace, now) = (Pace::new(SPAN), Instant::now());
            Program { pace, now }
        }

        /// Receives so many claims at once and finishes them in this time, then waits for the
        /// store.
        fn work(&mut self, claims: usize, time: Duration, store: Duration) {
            for _ in 0..claims {
                self.pace.receive(self.now);
            }
            self.now += time;
            self.pace.ask(0, self.now);
            self.pace.wait(0, self.now);
            self.now += store;
        }

        fn per_span(&self) -> usize {
            self.pace.per_span(self.now)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_store_does_not_make_a_program_slow() {
        let mut program = Program::new();
        for rounds in 1..=5 {
            program.work(64, SPAN / 100, SPAN * 10);
            assert_eq!(program.per_span(), 64 * rounds);
        }
        for _ in 0..200 {
            program.work(64, SPAN / 100, SPAN * 10);
        }
        assert_eq!(program.per_span(), 6_400);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_program_finishes_none_in_a_span() {
        let mut program = Program::new();
        for _ in 0..3 {
            program.work(1, SPAN * 2, Duration::ZERO);
            assert_eq!(program.per_span(), 0);
        }
        program.work(16, SPAN * 4, Duration::ZERO);
        assert_eq!(program.per_span(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn claims_that_are_worked_on_are_not_finished() {
        let mut program = Program::new();
        for _ in 0..16 {
            program.pace.receive(program.now);
        }
        for busy in (12..=16).rev() {
            program.pace.ask(busy, program.now);
            program.pace.wait(busy, program.now);
            assert_eq!(program.per_span(), 16 - busy);
        }
        program.now += SPAN * 4;
        assert_eq!(program.per_span(), 1, "it works on twelve all the time");
    }

    #[tokio::test(start_paused = true)]
    async fn program_that_turns_slow_is_noticed_within_a_span() {
        let mut program = Program::new();
        for _ in 0..20 {
            program.work(64, SPAN / 10, Duration::ZERO);
        }
        assert_eq!(program.per_span(), 640);
        program.pace.receive(program.now);
        program.now += SPAN / 2;
        assert_eq!(program.per_span(), 640);
        program.now += SPAN * 2;
        assert_eq!(program.per_span(), 0);
    }
}
