//! Runs a script against the library and the oracle.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::{FutureExt, poll};
use tickwheel::{
    ClosedError, Expirations, Expired, KeyedTimers, SetTimerError, TimerWheel, TryRecvError,
    Unexpired,
};
use tokio::time::{self, Instant};

use super::flood::Flood;
use super::ops::{Op, Setup};
use super::oracle::{Counts, NEVER, Oracle, Out};
use crate::support::script_time::{LAST, Nanos, ScriptClock, Span, stall, to_duration};

/// A value that is counted.
#[derive(Debug, Clone)]
struct Value(u32, #[allow(dead_code)] Arc<()>);

/// A period of zero panics.
const SHORTEST_PERIOD: Duration = Duration::from_nanos(1);

type SetResult = Result<Option<Value>, SetTimerError<u8, Value>>;

struct Run {
    wheel: TimerWheel,
    handles: Vec<KeyedTimers<u8, Value>>,
    stream: Option<Expirations<u8, Value>>,
    oracle: Oracle,
    flood: Flood,
    clock: ScriptClock,
    is_shut_down: bool,
    next_value: u32,
    alive: Arc<()>,
}

pub(crate) fn run(setup: &Setup, script: &[Op]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        time::advance(setup.offset).await;
        let mut builder = TimerWheel::builder().tick(setup.tick).slots(setup.slots);
        if let Some(max_keyed) = setup.max_keyed {
            builder = builder.max_keyed(max_keyed);
        }
        if script.len() % 2 == 0 {
            // The slots of removed timers are kept, as on a real clock.
            builder = builder.sleeps_on_wheel();
        }
        let wheel = builder.start().expect("it is within bounds");
        let (timers, stream) = wheel.keyed();
        // A set more would take a part of the limit.
        let flood = Flood::new(&wheel, setup.max_keyed.is_none());
        let mut run = Run {
            wheel,
            flood,
            handles: vec![timers],
            stream: Some(stream),
            oracle: Oracle::new(setup.tick, setup.max_keyed),
            clock: ScriptClock::start(setup.tick),
            is_shut_down: false,
            next_value: 0,
            alive: Arc::new(()),
        };
        for &op in script {
            run.apply(op).await;
            run.check();
        }
        run.finish().await;
    });
}

impl Run {
    fn span(&self, span: Span) -> Duration {
        self.clock.length(span, || {
            let (_, timer) = self.oracle.earliest()?;
            Some(self.oracle.fires_at(timer.deadline))
        })
    }

    /// The deadline `span` from now: as an instant if there is such an instant, and as nanoseconds.
    fn after(&self, span: Duration) -> (Option<Instant>, Nanos) {
        let at = Instant::now().checked_add(span);
        (at, at.map_or(NEVER, |at| self.clock.nanos(at)))
    }

    fn value(&mut self) -> Value {
        self.next_value += 1;
        Value(self.next_value, Arc::clone(&self.alive))
    }

    fn is_open(&self) -> bool {
        !self.is_shut_down && self.stream.is_some()
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Set(key, span) => {
                let (_, deadline) = self.after(self.span(span));
                let span = self.span(span);
                self.set(key, deadline, None, |t, v| t.set_timer(key, v, span));
            }
            Op::SetAt(key, span) => {
                if let (Some(at), deadline) = self.after(self.span(span)) {
                    self.set(key, deadline, None, |t, v| t.set_timer_at(key, v, at));
                }
            }
            Op::SetPast(key, span) => {
                if let Some(at) = Instant::now().checked_sub(self.span(span)) {
                    let deadline = self.clock.nanos(at);
                    self.set(key, deadline, None, |t, v| t.set_timer_at(key, v, at));
                }
            }
            Op::SetInterval(key, span) => {
                let period = self.span(span).max(SHORTEST_PERIOD);
                let (_, deadline) = self.after(period.max(self.clock.tick));
                self.set(key, deadline, Some(period), |t, v| {
                    t.set_interval(key, v, period)
                });
            }
            Op::SetIfAbsent(key, span) => self.set_if_absent(key, self.span(span)),
            Op::Move(key, span) => {
                let span = self.span(span);
                let (_, deadline) = self.after(span);
                self.move_to(key, deadline, |t| t.move_timer(&key, span));
            }
            Op::MoveAt(key, span) => {
                if let (Some(at), deadline) = self.after(self.span(span)) {
                    self.move_to(key, deadline, |t| t.move_timer_at(&key, at));
                }
            }
            Op::MovePast(key, span) => {
                if let Some(at) = Instant::now().checked_sub(self.span(span)) {
                    self.move_to(key, self.clock.nanos(at), |t| t.move_timer_at(&key, at));
                }
            }
            Op::Remove(key) => {
                let Some(timers) = self.handles.last() else {
                    return;
                };
                let removed = timers.remove_timer(&key);
                assert_eq!(removed.is_ok(), self.is_open());
                if let Ok(removed) = removed {
                    let expected = self.oracle.remove(key);
                    assert_eq!(removed.map(|value| value.0), expected, "key {key}");
                }
            }
            Op::Deadline(key) => self.deadline(key),
            Op::Retain(keys) => self.retain(keys),
            Op::Drain => self.drain(),
            Op::Advance(span) => {
                let by = self.span(span).min(to_duration(LAST - self.clock.now()));
                time::advance(by).await;
                self.oracle.awaits();
            }
            Op::Stall(span) => {
                stall(self.span(span).min(to_duration(LAST - self.clock.now())));
            }
            Op::Flood(n, span) => {
                let span = self.span(span);
                let (_, deadline) = self.after(span);
                let fires_at = self.oracle.fires_at(deadline.min(NEVER));
                if self.is_open() {
                    self.flood.rise(n, span, fires_at);
                }
            }
            Op::ReadFlood(n) => self.flood.read(n.into(), self.clock.now()),
            Op::Settle => self.settle().await,
            Op::Yield => {
                tokio::task::yield_now().await;
                self.oracle.awaits();
            }
            Op::Recv => self.recv().await,
            Op::TryRecv => self.try_recv(),
            Op::RecvMany(limit) => self.recv_many(limit.into()),
            Op::CloneHandle => self.handles.extend(self.handles.last().cloned()),
            Op::DropHandle => drop(self.handles.pop()),
            Op::DropStream => {
                if self.stream.take().is_some() {
                    self.oracle.drain();
                }
            }
            Op::Shutdown => {
                self.wheel.shutdown().await;
                self.oracle.awaits();
                if !self.is_shut_down && !self.flood.is_due(self.clock.now()) {
                    // The actor's last turn has told all that was due.
                    self.oracle.settled(self.clock.now());
                }
                self.is_shut_down = true;
                assert!(self.wheel.is_shutdown());
            }
            Op::Unexpired => self.unexpired(),
        }
    }

    fn set(
        &mut self,
        key: u8,
        deadline: Nanos,
        period: Option<Duration>,
        call: impl FnOnce(&KeyedTimers<u8, Value>, Value) -> SetResult,
    ) {
        let value = self.value();
        let number = value.0;
        let Some(timers) = self.handles.last() else {
            return;
        };
        let result = call(timers, value);
        if self.is_open() {
            let expected = self.oracle.set(key, number, deadline, period);
            let replaced = (result.as_ref())
                .map(|replaced| replaced.as_ref().map(|value| value.0))
                .map_err(|_| ());
            assert_eq!(replaced, expected, "key {key}");
        }
        if let Err(refused) = result {
            assert_eq!(refused.is_closed(), !self.is_open());
            assert_eq!(refused.is_full(), self.is_open());
            let (back, value) = refused.into_inner();
            assert_eq!((back, value.0), (key, number), "returned");
        }
    }

    fn set_if_absent(&mut self, key: u8, delay: Duration) {
        let (_, deadline) = self.after(delay);
        if !self.oracle.pending.contains_key(&key) {
            return self.set(key, deadline, None, |timers, value| {
                let given_back = timers.set_if_absent(key, value, delay)?;
                assert!(given_back.is_none(), "key {key} has no timer");
                Ok(None)
            });
        }
        let Some(timers) = self.handles.last().cloned() else {
            return;
        };
        let value = self.value();
        let number = value.0;
        let back = match timers.set_if_absent(key, value, delay) {
            Ok(back) => back.expect("there is a timer"),
            Err(refused) => {
                assert!(refused.is_closed() && !self.is_open());
                refused.into_inner()
            }
        };
        assert_eq!((back.0, back.1.0), (key, number), "returned");
    }

    /// Keeps some keys, and writes a new number into each value that it visits.
    fn retain(&mut self, keys: u8) {
        let Some(timers) = self.handles.last() else {
            return;
        };
        let keeps = |key: u8| keys >> key & 1 == 1;
        let mut visited = Vec::new();
        let retained = timers.retain(|&key, value, deadline| {
            visited.push((key, value.0, deadline));
            value.0 += 1_000_000;
            keeps(key)
        });
        assert_eq!(retained.is_ok(), self.is_open());
        if retained.is_err() {
            assert!(visited.is_empty());
            return;
        }
        visited.sort_unstable_by_key(|&(key, ..)| key);
        let keys: Vec<u8> = visited.iter().map(|&(key, ..)| key).collect();
        assert!(keys.iter().eq(self.oracle.pending.keys()), "{keys:?}");
        for (key, value, deadline) in visited {
            let expected = self.oracle.pending[&key];
            assert_eq!(value, expected.value);
            self.assert_deadline(deadline, expected.deadline);
            if keeps(key) {
                self.oracle
                    .pending
                    .get_mut(&key)
                    .expect("it is pending")
                    .value += 1_000_000;
            } else {
                self.oracle.remove(key);
            }
        }
    }

    fn move_to(
        &mut self,
        key: u8,
        deadline: Nanos,
        call: impl FnOnce(&KeyedTimers<u8, Value>) -> Result<bool, ClosedError>,
    ) {
        let Some(timers) = self.handles.last() else {
            return;
        };
        let moved = call(timers);
        assert_eq!(moved.is_ok(), self.is_open());
        if let Ok(moved) = moved {
            assert_eq!(moved, self.oracle.move_to(key, deadline), "key {key}");
        }
    }

    fn drain(&mut self) {
        let Some(timers) = self.handles.last() else {
            return;
        };
        let drained = timers.drain();
        assert_eq!(drained.is_ok(), self.is_open());
        if let Ok(drained) = drained {
            let expected = self.oracle.drain();
            self.assert_all(drained, expected);
        }
    }

    fn deadline(&mut self, key: u8) {
        let Some(timers) = self.handles.last() else {
            return;
        };
        let deadline = timers.deadline(&key);
        assert_eq!(timers.contains(&key), deadline.is_some());
        let value = timers.get(&key).map(|value| value.0);
        assert_eq!(
            value,
            self.oracle.pending.get(&key).map(|timer| timer.value)
        );
        let expected = self.oracle.pending.get(&key).map(|timer| timer.deadline);
        assert_eq!(deadline.is_some(), expected.is_some(), "key {key}");
        if let (Some(deadline), Some(expected)) = (deadline, expected) {
            self.assert_deadline(deadline, expected);
        }
    }

    fn assert_deadline(&self, deadline: Instant, expected: Nanos) {
        if expected == NEVER {
            assert!(
                self.clock.nanos(deadline) > self.clock.now() + LAST / 10,
                "never is decades away"
            );
        } else {
            assert_eq!(self.clock.nanos(deadline), expected);
        }
    }

    fn assert_all(&self, all: Vec<Unexpired<u8, Value>>, expected: Vec<Out>) {
        assert_eq!(all.len(), expected.len());
        for (left, expected) in all.into_iter().zip(expected) {
            let got = (left.key, left.value.0);
            assert_eq!(got, (expected.key, expected.value), "expected {expected:?}");
            self.assert_deadline(left.deadline, expected.deadline);
        }
    }

    fn assert_out(&self, expired: &Expired<u8, Value>, expected: Out) {
        let got = (expired.key, expired.value.0);
        assert_eq!(got, (expected.key, expected.value), "expected {expected:?}");
        assert_eq!(Nanos::from(expired.missed), expected.missed);
        self.assert_deadline(expired.deadline, expected.deadline);
    }

    async fn settle(&mut self) {
        let now = Instant::now();
        self.wheel.settle().await;
        assert_eq!(Instant::now(), now, "settling takes no time");
        self.oracle.awaits();
        if self.is_open() {
            self.oracle.settled(self.clock.now());
            self.flood.settled(self.clock.now());
        }
    }

    /// Whether the stream should end once nothing more is due.
    fn is_finished(&self) -> bool {
        self.is_shut_down || (self.handles.is_empty() && self.oracle.pending.is_empty())
    }

    /// The stream has returned this.
    fn assert_received(&mut self, received: Option<&Expired<u8, Value>>) {
        let Some(expired) = received else {
            assert!(self.is_finished(), "it ended early");
            assert!(!self.oracle.is_any_known(), "it lost what was due");
            return;
        };
        let now = self.clock.now();
        let expected = self.oracle.receive(expired.key, now);
        self.assert_out(expired, expected);
    }

    /// Receives one, unless it would wait forever. Waiting lets the clock run up to the next timer.
    async fn recv(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        let earliest = self.oracle.earliest().filter(|_| !self.is_shut_down);
        let at = earliest.map(|(_, timer)| self.oracle.fires_at(timer.deadline));
        let before = self.clock.now();
        {
            let mut recv = pin!(stream.recv());
            match poll!(&mut recv) {
                Poll::Ready(received) => self.assert_received(received.as_ref()),
                Poll::Pending => {
                    assert!(!self.is_finished() && !self.oracle.is_any_known());
                    self.oracle.awaits();
                    if let Some(at) = at.filter(|at| *at < LAST) {
                        let received = recv.await;
                        self.assert_received(received.as_ref());
                        // Tokio's timer, on which the actor waits, rounds up to a millisecond, and
                        // a paused clock jumps in whole milliseconds from wherever it is.
                        let latest = at.max(before) + 2_000_000;
                        assert!(
                            self.clock.now() <= latest,
                            "due at {at}, and received at {}",
                            self.clock.now()
                        );
                    }
                }
            }
        }
        self.stream = Some(stream);
    }

    fn try_recv(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        match stream.try_recv() {
            Ok(expired) => self.assert_received(Some(&expired)),
            Err(TryRecvError::Closed) => self.assert_received(None),
            Err(TryRecvError::Empty) => {
                assert!(!self.is_finished(), "it should end");
                assert!(!self.oracle.is_any_known(), "due, and not received");
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn recv_many(&mut self, limit: usize) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        let mut into = Vec::new();
        let polled = stream.recv_many(&mut into, limit).now_or_never();
        if let Some(n) = polled {
            assert_eq!(n, into.len());
            assert!(n <= limit);
            for expired in &into {
                self.assert_received(Some(expired));
            }
            if n == 0 && limit > 0 {
                self.assert_received(None);
            }
            // It takes all that it knows of.
            assert!(n == limit || !self.oracle.is_any_known());
        } else {
            assert!(into.is_empty() && !self.is_finished() && !self.oracle.is_any_known());
        }
        self.stream = Some(stream);
    }

    fn unexpired(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let left = stream.unexpired();
        let expected = if self.is_shut_down {
            self.oracle.drain()
        } else {
            Vec::new()
        };
        self.assert_all(left, expected);
    }

    /// Asserts the invariants after every step.
    fn check(&self) {
        let m = self.wheel.metrics();
        let counts = Counts {
            set: m.keyed_set - self.flood.armed,
            fired: m.keyed_fired - self.flood.received,
            removed: m.keyed_removed,
            replaced: m.keyed_replaced,
            drained: m.keyed_drained,
            moved: m.keyed_moved,
        };
        assert_eq!(counts, self.oracle.counts);
        let pending = self.oracle.pending.len();
        assert_eq!(m.keyed_pending, pending as u64 + self.flood.pending());
        let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
        assert_eq!(m.keyed_set, m.keyed_pending + ended, "the counters add up");
        for timers in &self.handles {
            assert_eq!(timers.len(), pending);
            assert_eq!(timers.is_empty(), pending == 0);
            assert_eq!(timers.is_closed(), !self.is_open());
        }
        let alive = Arc::strong_count(&self.alive) - 1;
        assert_eq!(alive, pending, "values are dropped promptly");
    }

    /// Receives everything that fires; drops the rest.
    async fn finish(&mut self) {
        self.settle().await;
        self.check();
        if self.stream.is_some() {
            while self.oracle.is_any_known() {
                self.try_recv();
            }
            self.try_recv();
        }
        self.flood.read(usize::MAX, self.clock.now());
        self.handles.clear();
        self.check();
        if self.stream.take().is_some() {
            self.oracle.drain();
        }
        self.check();
        assert_eq!(Arc::strong_count(&self.alive), 1);
        self.wheel.shutdown().await;
    }
}
