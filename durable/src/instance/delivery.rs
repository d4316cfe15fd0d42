//! The queue between the instance, which fires, and the stream of claims; and the demand that it
//! fires for.
//!
//! # Demand
//!
//! 1. **Wanted.** A program that waits for claims says how many it can take: `recv` one,
//!    `recv_many` its limit, `dispatch` as many as it has places free. While it does not wait, it
//!    wants none.
//! 2. **Ahead.** So many claims may wait for the program besides: none at first, and twice as many
//!    and one more each time it comes back for more within an eighth of a poll. The limit is the
//!    places of `dispatch`, or what `recv_many` asks for, or 512. A program that is through with
//!    these before the store has fired others would wait for the store. So the limit is at least
//!    what it takes while the store fires twice, by its pace of the last 50 ms: at most 512, and
//!    what it takes in 100 ms. If the program does not come back for an eighth of a poll, no more
//!    are ahead of it than it has received in that time, and none if it receives nothing for a
//!    poll. So a quick program does not wait for round trips, and a slow one holds nothing that it
//!    does not work on.
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
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::lease::Lease;
use crate::lock::lock;
use crate::store::Fired;

/// A timer that this instance has fired.
pub(crate) struct Delivery {
    pub(crate) fired: Fired,
    pub(crate) lease: Lease,
}

/// How many claims the program can take:
#[derive(Clone, Copy)]
pub(crate) struct Want {
    /// At once. Zero if it takes only what is there, and does not wait.
    pub(crate) now: usize,
    /// When it works on nothing.
    pub(crate) places: usize,
}

/// How many more claims the program can take.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    /// All of them.
    pub(super) claims: usize,
    /// How many may wait for it besides those that it has asked for.
    pub(super) ahead: usize,
}

/// Deliveries that wait to be received.
pub(crate) struct Deliveries {
    state: Mutex<State>,
    /// Notifies the task of each part that fires when the program can take more.
    asked: Vec<Notify>,
    /// A program that receives nothing for this time has nothing ahead of it.
    poll: Duration,
}

/// A program has no more ahead of it than it has received within a poll divided by this.
const BURSTS_PER_POLL: u32 = 8;

/// At most so many claims wait for a program, or as many as it has places.
pub(crate) const MAX_AHEAD: usize = 512;

/// A program that asks for more claims than the largest capacity gets no more: no sum overflows.
const MAX_WANTED: usize = 1_000_000;

/// The pace of a program is what it receives in this time. A fire counts for no longer, either.
const PACE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct State {
    queue: VecDeque<Delivery>,
    receiver: Option<Waker>,
    /// How many claims the program waits for; zero while it does not.
    wanted: usize,
    /// How many claims may wait for the program, as long as it receives them.
    ahead: usize,
    /// When the program received the first claim of this eighth of a poll, and how many it has
    /// received since. A new one starts when the program waits.
    burst: Option<(Instant, usize)>,
    /// How many each part is firing.
    firing: Vec<Firing>,
    /// How long the last fire took, at most [`PACE`].
    fire: Duration,
    /// When the program received the first claim that is not in its pace yet, and how many since.
    counted: Option<(Instant, usize)>,
    /// How many claims the program has lately received in [`PACE`].
    pace: u128,
    /// When the program last received a claim.
    received: Option<Instant>,
    /// How many parts have not closed it.
    open: usize,
    /// The program has stopped receiving.
    abandoned: bool,
}

/// How many rows a part is firing, and since when.
#[derive(Clone, Copy, Default)]
struct Firing {
    rows: usize,
    since: Option<Instant>,
}

impl State {
    fn ahead(&self, poll: Duration) -> usize {
        match self.received {
            Some(received) if received.elapsed() < poll => self.ahead,
            _ => 0,
        }
    }

    fn demand(&self, part: usize, poll: Duration) -> Demand {
        let ahead = self.ahead(poll);
        let there = self.queue.len() + self.firing[part].rows;
        let claims = (self.wanted + ahead).saturating_sub(there);
        Demand { claims, ahead }
    }

    /// Notes that the program has received a claim.
    fn receive(&mut self, poll: Duration) {
        let now = Instant::now();
        self.ahead = self.ahead(poll);
        self.received = Some(now);
        let (began, received) = self.burst.get_or_insert((now, 0));
        *received += 1;
        if now - *began >= poll / BURSTS_PER_POLL {
            self.ahead = self.ahead.min(*received);
            self.burst = None;
        }
        let (since, counted) = self.counted.get_or_insert((now, 0));
        let took = now - *since;
        if took >= PACE {
            self.pace = *counted as u128 * PACE.as_nanos() / took.as_nanos();
            (*since, *counted) = (now, 0);
        }
        *counted += 1;
    }

    /// Notes that the program has come back for more. If that was soon, twice as many may wait for
    /// it next time: as many as it has places, or as it works on while the store fires.
    fn come_back(&mut self, poll: Duration, places: usize) {
        self.ahead = self.ahead(poll);
        let burst = self.burst.take();
        if burst.is_some_and(|(began, _)| began.elapsed() < poll / BURSTS_PER_POLL) {
            self.ahead = 2 * self.ahead + 1;
        }
        let meanwhile = 2 * self.pace * self.fire.as_nanos() / PACE.as_nanos();
        let meanwhile = usize::try_from(meanwhile).unwrap_or(MAX_AHEAD);
        let limit = meanwhile.min(MAX_AHEAD).max(places);
        self.ahead = self.ahead.min(limit);
    }
}

impl Deliveries {
    /// For this number of parts.
    pub(super) fn new(poll: Duration, parts: usize) -> Self {
        let state = State {
            firing: vec![Firing::default(); parts],
            open: parts,
            ..State::default()
        };
        Deliveries {
            state: Mutex::new(state),
            asked: (0..parts).map(|_| Notify::new()).collect(),
            poll,
        }
    }

    fn notify(&self) {
        self.asked.iter().for_each(Notify::notify_one);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// How many more claims the program can take from a part.
    pub(super) fn demand(&self, part: usize) -> Demand {
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
        let Demand { claims, ahead } = state.demand(part, self.poll);
        claims > 0 && (state.wanted > 0 || claims >= ahead / 2)
    }

    /// So many are being fired, until the next [`push`](Self::push).
    pub(super) fn begin_firing(&self, part: usize, rows: usize) {
        let since = Some(Instant::now());
        self.lock().firing[part] = Firing { rows, since };
    }

    /// Adds what a part has fired. The part closes it after its last call of this.
    pub(super) fn push(&self, part: usize, deliveries: Vec<Delivery>) {
        let receiver = {
            let mut state = self.lock();
            let fired = std::mem::take(&mut state.firing[part]);
            let took = fired.since.map(|since| since.elapsed());
            state.fire = took.map_or(state.fire, |took| took.min(PACE));
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
        if want.now == 0 {
            return Poll::Pending;
        }
        if state.wanted == 0 {
            state.come_back(self.poll, want.places.min(MAX_WANTED));
        }
        state.wanted = want.now.min(MAX_WANTED);
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
            (state.wanted, state.ahead) = (0, 0);
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

    const POLL: Duration = Duration::from_secs(1);

    /// A program with enough places receives so many claims, each after so long, and comes back
    /// for more.
    async fn take(state: &mut State, claims: u32, each: Duration) {
        for _ in 0..claims {
            state.receive(POLL);
            advance(each).await;
        }
        state.come_back(POLL, MAX_AHEAD);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_program_can_take_is_gathered_while_it_works() {
        let deliveries = Deliveries::new(POLL, 1);
        let is_demanded = |wanted, ahead, firing| {
            let mut state = deliveries.lock();
            (state.wanted, state.ahead, state.firing[0].rows) = (wanted, ahead, firing);
            state.received = Some(Instant::now());
            drop(state);
            deliveries.is_demanded(0)
        };
        assert!(!is_demanded(0, 8, 5));
        assert!(is_demanded(0, 8, 4));
        assert!(is_demanded(0, 1, 0));
        assert!(!is_demanded(0, 0, 0));
        assert!(is_demanded(1, 8, 8), "it waits for the one");
        assert!(!is_demanded(1, 8, 9), "it is being fired");
    }

    #[tokio::test(start_paused = true)]
    async fn twice_as_many_are_ahead_of_a_program_that_comes_back_soon() {
        let mut state = State::default();
        for ahead in [1, 3, 7, 15] {
            take(&mut state, 2, POLL / 20).await;
            assert_eq!(state.ahead(POLL), ahead);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_the_places_are_ahead_of_a_program_that_would_wait_for_the_store() {
        // The fire, the work on two claims, and the limit beside two places.
        for (fire, work, limit) in [
            (10, 1, 40),
            (10, 10, 4),
            (10, 20, 2),
            (10, 100, 2),
            (0, 1, 2),
        ] {
            let mut state = State {
                fire: Duration::from_millis(fire),
                ..State::default()
            };
            for _ in 0..200 {
                state.receive(POLL);
                state.receive(POLL);
                advance(Duration::from_millis(work)).await;
                state.come_back(POLL, 2);
            }
            assert_eq!(state.ahead(POLL), limit, "fires of {fire}, work of {work}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn none_are_ahead_of_a_program_that_works_on_each() {
        let mut state = State::default();
        for _ in 0..5 {
            take(&mut state, 1, POLL / 7).await;
            assert_eq!(state.ahead(POLL), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_ahead_of_a_program_that_turned_slow() {
        let mut state = State {
            ahead: 512,
            received: Some(Instant::now()),
            ..State::default()
        };
        // It never waits, since so many are ahead of it.
        for _ in 0..100 {
            state.receive(POLL);
            advance(POLL / 1_000).await;
        }
        assert_eq!(state.ahead(POLL), 512);
        for _ in 0..2 {
            state.receive(POLL);
            advance(POLL / 7).await;
        }
        assert_eq!(state.ahead(POLL), 102);
        for _ in 0..2 {
            state.receive(POLL);
            advance(POLL / 7).await;
        }
        assert_eq!(state.ahead(POLL), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn none_are_ahead_of_a_program_that_receives_nothing_for_a_poll() {
        let mut state = State::default();
        for _ in 0..5 {
            take(&mut state, 1, POLL / 20).await;
            assert_eq!(state.ahead(POLL), 1);
            advance(POLL).await;
            assert_eq!(state.ahead(POLL), 0);
        }
    }
}
