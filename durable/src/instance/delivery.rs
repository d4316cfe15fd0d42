//! The queue between the instance, which fires, and the stream of claims; and the demand that it
//! fires for.
//!
//! # Demand
//!
//! 1. **Wanted.** A program that waits for claims says how many it can take: `recv` one,
//!    `recv_many` its limit, `dispatch` as many as it has places free. While it does not wait, it
//!    wants none.
//! 2. **Ahead.** So many claims may wait for the program besides: as many as it finishes in a
//!    *span* of [work](super::pace), at most 512, and none if it has received nothing for a poll.
//!    A span is two round trips of a fire: while the program works on half of what is ahead, the
//!    other half is fired. To these come 50 ms, so that a quick program needs few fires. A span is
//!    bounded by half a poll and an eighth of a lease. So nothing waits long for a program that
//!    goes on as before, and a slow one holds nothing that it does not work on.
//! 3. **Fired** is what is due, up to wanted and ahead together, less what waits for the program
//!    already, and within the capacity. The rest stays here and *due*, earliest first. Nothing else
//!    decides when to fire: a place that comes free fires a row that is here, without a load. While
//!    a program works on what is ahead of it, half of that is gathered before the next call.
//!
//!    The [parts](super::cores) of a namespace share this queue, and each fires up to the demand. A
//!    part counts what waits here and what itself is firing, but not what others are firing: one
//!    with a hanging store would hold them up. So of `n` parts that fire at the same moment, all
//!    but one may fire what the program does not ask for: up to `n - 1` times the demand.
//! 4. **Loaded**, of what is due already, are as many rows as that, and as many again as may be
//!    ahead, less those that are due here. When a load has left due rows out, the instance fires
//!    these without loading them, as much as its program asks for, until a fire finds no more of
//!    them. Only then does it load what is due later, as far as it has room. When a load has left
//!    that out, the instance makes the next one as soon as there is demand for it.
//! 5. **Left to others** is what others *lack*: due rows that their last loads asked for, by rule
//!    4, and did not get. The store records this number with each load, and tells it to the other
//!    instances when they load. An instance may hold rows that have been due here for half a poll,
//!    more than may be ahead of its program. It takes its mark off as many of these as are lacking,
//!    earliest first. The number lacking is then reset, and all instances get a hint: one that
//!    still lacks rows says so in its next load. So rows change hands only on request, and each
//!    request is met once. While an instance has more due than its program takes, it also leaves
//!    the near rows that its own calls set unmarked.
//!
//!    A load comes with each poll. Two kinds of instances load four times a poll: one that holds
//!    more due rows than may be ahead of its program, for as long as others have lacked any; and
//!    one that lacks rows, for a poll after its program has asked for overdue ones.
//! 6. **Stale** is a claim that has waited for the program for a poll, and a second at least, or
//!    until half of its lease was over: the program has turned slow, or has not come back. It is
//!    unfired, and nothing is ahead of the program until it has finished more claims.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::lease::Lease;
use super::pace::Pace;
use crate::settings::Settings;
use crate::store::Fired;

/// A timer that this instance has fired.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) fired: Fired,
    pub(crate) lease: Lease,
}

/// What the program says when it asks for a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    /// How many it can take at once.
    pub(crate) now: usize,
    /// How many it has received and works on.
    pub(crate) busy: usize,
}

/// Deliveries that wait to be received.
#[derive(Debug)]
pub(crate) struct Deliveries {
    state: Mutex<State>,
    /// Notifies the task of each part that fires when the program can take more.
    asked: Vec<Notify>,
}

/// The shortest span, of a store without round trips.
const MIN_SPAN: Duration = Duration::from_millis(50);

/// At most so many claims are ahead of a program: half of the usual capacity, so that these are
/// fired while those before are acknowledged.
const MAX_AHEAD: usize = 512;

/// No claim is stale sooner, unless half of its lease is over.
const MIN_STALE: Duration = Duration::from_secs(1);

/// A round trip counts for a quarter of the average, those before for the rest.
const ROUND_TRIPS: u32 = 4;

#[derive(Debug)]
struct State {
    /// With when they came here.
    queue: VecDeque<(Instant, Delivery)>,
    receiver: Option<Waker>,
    /// How many claims the program waits for; zero while it does not.
    wanted: usize,
    /// How quickly the program finishes claims.
    pace: Pace,
    /// How long a fire takes, on average.
    round_trip: Duration,
    /// The longest span.
    max_span: Duration,
    /// A program that receives nothing for this time has nothing ahead of it.
    poll: Duration,
    /// How many each part is firing.
    firing: Vec<usize>,
    /// When the program last received a claim.
    received: Option<Instant>,
    /// How many parts have not closed it.
    open: usize,
    /// The program has stopped receiving.
    abandoned: bool,
}

impl State {
    fn span(&self) -> Duration {
        (MIN_SPAN + 2 * self.round_trip).min(self.max_span)
    }

    /// How many claims may wait for the program.
    fn ahead(&self) -> usize {
        let now = Instant::now();
        match self.received {
            Some(received) if now - received < self.poll => {
                self.pace.finishes_in(self.span(), now).min(MAX_AHEAD)
            }
            _ => 0,
        }
    }

    /// How many more claims the program can take, and how many of these are ahead of it.
    fn demand(&self, part: usize) -> (usize, usize) {
        let ahead = self.ahead();
        let there = self.queue.len() + self.firing[part];
        ((self.wanted + ahead).saturating_sub(there), ahead)
    }

    /// Whether it is time to fire. A program that does not wait has claims to work on, so what it
    /// can take meanwhile is gathered to a larger batch.
    fn is_demanded(&self, part: usize) -> bool {
        let (demand, ahead) = self.demand(part);
        demand > 0 && (self.wanted > 0 || demand >= ahead / 2)
    }

    /// Notes that the program receives a claim.
    fn receive(&mut self) {
        let now = Instant::now();
        let last = self.received.replace(now);
        if last.is_some_and(|last| now - last >= self.poll) {
            self.pace.forget(now);
        }
        self.pace.receive(now);
    }

    /// When the first one that waits is stale.
    fn stale_at(&self) -> Option<Instant> {
        let (came, first) = self.queue.front()?;
        let at = first.lease.stale_at()?;
        Some(at.min(*came + self.poll.max(MIN_STALE)))
    }
}

impl Deliveries {
    /// For this number of parts.
    pub(super) fn new(settings: &Settings, parts: usize) -> Self {
        let state = State {
            queue: VecDeque::new(),
            receiver: None,
            wanted: 0,
            pace: Pace::default(),
            round_trip: Duration::ZERO,
            max_span: (settings.poll / 2).min(settings.lease / 8),
            poll: settings.poll,
            firing: vec![0; parts],
            received: None,
            open: parts,
            abandoned: false,
        };
        Deliveries {
            state: Mutex::new(state),
            asked: (0..parts).map(|_| Notify::new()).collect(),
        }
    }

    /// Notifies the tasks that have something to fire now.
    fn notify(&self, state: &State) {
        for (part, asked) in self.asked.iter().enumerate() {
            if state.is_demanded(part) {
                asked.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more claims the program can take from a part, and how many of these are ahead of
    /// it.
    pub(super) fn demand(&self, part: usize) -> (usize, usize) {
        self.lock().demand(part)
    }

    /// Returns when the program waits for a claim, or can take half of what may be ahead of it.
    pub(super) async fn demanded(&self, part: usize) {
        while !self.lock().is_demanded(part) {
            self.asked[part].notified().await;
        }
    }

    /// Notes how long a fire took.
    pub(super) fn note_round_trip(&self, took: Duration) {
        let mut state = self.lock();
        state.round_trip = if state.round_trip.is_zero() {
            took
        } else {
            (state.round_trip * (ROUND_TRIPS - 1) + took) / ROUND_TRIPS
        };
    }

    /// So many are being fired, until the next [`push`](Self::push).
    pub(super) fn begin_firing(&self, part: usize, rows: usize) {
        self.lock().firing[part] = rows;
    }

    /// Adds what a part has fired. The part closes it after its last call of this.
    pub(super) fn push(&self, part: usize, deliveries: Vec<Delivery>) {
        let receiver = {
            let mut state = self.lock();
            state.firing[part] = 0;
            let now = Instant::now();
            state
                .queue
                .extend(deliveries.into_iter().map(|new| (now, new)));
            if state.queue.is_empty() {
                None
            } else {
                state.receiver.take()
            }
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    /// Takes the next one; `None` once all parts have closed it.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>, want: Want) -> Poll<Option<Delivery>> {
        let mut state = self.lock();
        let (now, span) = (Instant::now(), state.span());
        state.pace.ask(want.busy, span, now);
        if let Some((_, delivery)) = state.queue.pop_front() {
            state.receive();
            state.wanted = 0;
            self.notify(&state);
            return Poll::Ready(Some(delivery));
        }
        if state.open == 0 {
            return Poll::Ready(None);
        }
        state.pace.wait(want.busy, now);
        state.wanted = want.now;
        let stale = state.receiver.replace(cx.waker().clone());
        self.notify(&state);
        drop(state);
        drop(stale);
        Poll::Pending
    }

    /// When the first one has waited too long.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        self.lock().stale_at()
    }

    /// Takes out what has waited too long.
    pub(super) fn take_stale(&self) -> Vec<Delivery> {
        let mut state = self.lock();
        let now = Instant::now();
        let mut stale = Vec::new();
        while state.stale_at().is_some_and(|at| at <= now) {
            stale.extend(state.queue.pop_front().map(|(_, delivery)| delivery));
        }
        if !stale.is_empty() {
            // The program has not come for it, so nothing is fired until it does.
            state.wanted = 0;
            state.pace.forget(now);
        }
        stale
    }

    /// Notes that the program has stopped receiving.
    pub(super) fn abandon(&self) {
        let gone = {
            let mut state = self.lock();
            state.abandoned = true;
            // `close` releases the rest.
            let closed = state.open == 0;
            closed.then(|| std::mem::take(&mut state.queue))
        };
        drop(gone);
    }

    /// Ends the stream for a part, and returns what was not received of it and can be released. The
    /// rest comes before the end, which comes when all parts have ended it.
    pub(super) fn close(&self, part: usize) -> Vec<Delivery> {
        let (unreceived, receiver) = {
            let mut state = self.lock();
            state.open -= 1;
            let queue = std::mem::take(&mut state.queue).into_iter();
            let (held, rest): (Vec<_>, Vec<_>) =
                queue.partition(|(_, waits)| waits.lease.part() == part && waits.lease.is_held());
            if state.open > 0 || !state.abandoned {
                state.queue = rest.into();
            }
            let receiver = (state.open == 0).then(|| state.receiver.take());
            (held, receiver.flatten())
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        unreceived.into_iter().map(|(_, waits)| waits).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn deliveries() -> Deliveries {
        Deliveries::new(&Settings::default(), 1)
    }

    /// The program receives so many claims, and finishes each in this time.
    async fn finish(deliveries: &Deliveries, claims: usize, time: Duration) {
        for _ in 0..claims {
            deliveries.lock().receive();
            advance(time).await;
            let mut state = deliveries.lock();
            let span = state.span();
            state.pace.ask(0, span, Instant::now());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_program_can_take_is_gathered_while_it_works() {
        let deliveries = deliveries();
        finish(&deliveries, 8, Duration::ZERO).await;
        let is_demanded = |wanted, firing| {
            let mut state = deliveries.lock();
            (state.wanted, state.firing[0]) = (wanted, firing);
            state.is_demanded(0)
        };
        // 13 may be ahead of it.
        assert!(!is_demanded(0, 8));
        assert!(is_demanded(0, 7));
        assert!(is_demanded(1, 13), "it waits for the one");
        assert!(!is_demanded(1, 14), "it is being fired");
        advance(Duration::from_secs(1)).await;
        assert!(!is_demanded(0, 0), "it has received nothing for a poll");
    }

    #[tokio::test(start_paused = true)]
    async fn slower_store_has_more_claims_ahead_up_to_half_a_poll() {
        let milli = Duration::from_millis(1);
        for (round_trip, ahead) in [(1, 52), (20, 90), (40, 130), (200, 450), (2_000, 500)] {
            let deliveries = deliveries();
            for _ in 0..20 {
                deliveries.note_round_trip(round_trip * milli);
            }
            finish(&deliveries, 1_100, milli).await;
            let found = deliveries.lock().ahead();
            assert!(found.abs_diff(ahead) <= 2, "{found} of {ahead}");
        }
    }
}
