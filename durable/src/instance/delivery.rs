//! The queue between the instance, which fires, and the stream of claims; and the demand that it
//! fires for.
//!
//! # Demand
//!
//! 1. **Wanted.** A program that waits for claims says how many it can take: `recv` one,
//!    `recv_many` its limit, `dispatch` as many as it has places free. While it does not wait, it
//!    wants none.
//! 2. **Ahead.** So many claims may wait for the program besides: as many as its handlers finish in
//!    50 ms of [work](super::pace), at most 1,024, and none if it has received nothing for a poll.
//!    So a quick program does not wait for round trips, and a slow one holds nothing that it does
//!    not work on. The time is a twentieth of a poll, or an eighth of a lease, if that is less.
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
//! 6. **Stale** is a claim that has waited for the program until half of its lease was over. It is
//!    unfired, and nothing is fired until the program asks again.

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
    /// A program that receives nothing for this time has nothing ahead of it.
    poll: Duration,
}

/// The time in which a program works on what is ahead of it.
const AHEAD: Duration = Duration::from_millis(50);

/// At most so many claims are ahead of a program.
const MAX_AHEAD: usize = 1_024;

#[derive(Debug)]
struct State {
    queue: VecDeque<Delivery>,
    receiver: Option<Waker>,
    /// How many claims the program waits for; zero while it does not.
    wanted: usize,
    /// How quickly the program finishes claims.
    pace: Pace,
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
    /// How many claims may wait for the program.
    fn ahead(&self, poll: Duration) -> usize {
        let now = Instant::now();
        match self.received {
            Some(received) if now - received < poll => self.pace.per_span(now).min(MAX_AHEAD),
            _ => 0,
        }
    }

    /// How many more claims the program can take, and how many of these are ahead of it.
    fn demand(&self, part: usize, poll: Duration) -> (usize, usize) {
        let ahead = self.ahead(poll);
        let there = self.queue.len() + self.firing[part];
        ((self.wanted + ahead).saturating_sub(there), ahead)
    }

    /// Notes that the program receives a claim.
    fn receive(&mut self, poll: Duration) {
        let now = Instant::now();
        let last = self.received.replace(now);
        if last.is_some_and(|last| now - last >= poll) {
            self.pace.forget(now);
        }
        self.pace.receive(now);
    }
}

impl Deliveries {
    /// For this number of parts.
    pub(super) fn new(settings: &Settings, parts: usize) -> Self {
        let span = AHEAD.min(settings.poll / 20).min(settings.lease / 8);
        let state = State {
            queue: VecDeque::new(),
            receiver: None,
            wanted: 0,
            pace: Pace::new(span),
            firing: vec![0; parts],
            received: None,
            open: parts,
            abandoned: false,
        };
        Deliveries {
            state: Mutex::new(state),
            asked: (0..parts).map(|_| Notify::new()).collect(),
            poll: settings.poll,
        }
    }

    fn notify(&self) {
        self.asked.iter().for_each(Notify::notify_one);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more claims the program can take from a part, and how many of these are ahead of
    /// it.
    pub(super) fn demand(&self, part: usize) -> (usize, usize) {
        self.lock().demand(part, self.poll)
    }

    /// Returns when the program waits for a claim, or can take half of what may be ahead of it.
    pub(super) async fn demanded(&self, part: usize) {
        while !self.is_demanded(part) {
            self.asked[part].notified().await;
        }
    }

    /// A program that does not wait has claims to work on, so what it can take meanwhile is
    /// gathered to a larger batch.
    fn is_demanded(&self, part: usize) -> bool {
        let state = self.lock();
        let (demand, ahead) = state.demand(part, self.poll);
        demand > 0 && (state.wanted > 0 || demand >= ahead / 2)
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
            state.queue.extend(deliveries);
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
        let now = Instant::now();
        state.pace.ask(want.busy, now);
        if let Some(delivery) = state.queue.pop_front() {
            state.receive(self.poll);
            state.wanted = 0;
            drop(state);
            self.notify();
            return Poll::Ready(Some(delivery));
        }
        if state.open == 0 {
            return Poll::Ready(None);
        }
        state.pace.wait(want.busy, now);
        state.wanted = want.now;
        let stale = state.receiver.replace(cx.waker().clone());
        drop(state);
        drop(stale);
        self.notify();
        Poll::Pending
    }

    /// When the first one has waited too long to be handed out.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        self.lock().queue.front()?.lease.stale_at()
    }

    /// Takes out what has waited too long. The program has not come for it, so nothing is fired
    /// until it does.
    pub(super) fn take_stale(&self) -> Vec<Delivery> {
        let mut state = self.lock();
        let mut stale = Vec::new();
        while state
            .queue
            .front()
            .is_some_and(|first| first.lease.is_stale())
        {
            stale.extend(state.queue.pop_front());
        }
        if !stale.is_empty() {
            (state.wanted, state.received) = (0, None);
            state.pace.forget(Instant::now());
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
            let (held, rest): (Vec<_>, Vec<_>) = queue
                .partition(|delivery| delivery.lease.part() == part && delivery.lease.is_held());
            if state.open > 0 || !state.abandoned {
                state.queue = rest.into();
            }
            let receiver = (state.open == 0).then(|| state.receiver.take());
            (held, receiver.flatten())
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        unreceived
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn deliveries() -> Deliveries {
        Deliveries::new(&Settings::default(), 1)
    }

    /// The program receives a claim and finishes it in this time, so often.
    async fn finish(state: &mut State, claims: usize, time: Duration) {
        for _ in 0..claims {
            state.receive(Duration::from_secs(1));
            advance(time).await;
            state.pace.ask(0, Instant::now());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_program_can_take_is_gathered_while_it_works() {
        let mut deliveries = deliveries();
        let state = deliveries.state.get_mut().expect("no test panics");
        finish(state, 8, Duration::ZERO).await;
        let is_demanded = |wanted, firing| {
            let mut state = deliveries.lock();
            (state.wanted, state.firing[0]) = (wanted, firing);
            drop(state);
            deliveries.is_demanded(0)
        };
        assert!(!is_demanded(0, 5));
        assert!(is_demanded(0, 4));
        assert!(is_demanded(1, 8), "it waits for the one");
        assert!(!is_demanded(1, 9), "it is being fired");
    }

    #[tokio::test(start_paused = true)]
    async fn program_has_ahead_what_it_finishes_in_fifty_milliseconds() {
        let mut deliveries = deliveries();
        let poll = deliveries.poll;
        let state = deliveries.state.get_mut().expect("no test panics");
        for (micros, claims, ahead) in [
            (10, 10_000, MAX_AHEAD),
            (100, 1_000, 500),
            (10_000, 10, 5),
            (60_000, 2, 0),
        ] {
            let time = Duration::from_micros(micros);
            finish(state, claims, time).await;
            assert_eq!(state.ahead(poll), ahead, "{time:?} each");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pace_is_forgotten_after_a_poll_without_a_claim() {
        let mut deliveries = deliveries();
        let poll = deliveries.poll;
        let state = deliveries.state.get_mut().expect("no test panics");
        finish(state, 100, Duration::ZERO).await;
        assert_eq!(state.ahead(poll), 100);
        state.pace.wait(0, Instant::now());
        advance(poll).await;
        assert_eq!(state.ahead(poll), 0);
        state.receive(poll);
        assert_eq!(state.ahead(poll), 0);
    }
}
