//! Each operation of an idle stream, with each outcome, against each limit: which is activity, and
//! which task is woken.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tickwheel::{IdleLimits, IdleStream, TimerWheel};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio::time::{self, Instant};
use tokio_test::{assert_pending, task};

const IDLE: Duration = Duration::from_millis(100);

/// The instant of the operation.
const LATER: Duration = Duration::from_millis(60);

/// The result of the inner stream's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Three bytes, where the operation moves any.
    Progress,
    /// Nothing to move: the end of the file, or no byte taken.
    Nothing,
    Failure,
    Pending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    FillBuf,
    Consume,
    Write,
    WriteVectored,
    Flush,
    Shutdown,
}

use Operation::{Consume, FillBuf, Flush, Read, Shutdown, Write, WriteVectored};

const OPERATIONS: [Operation; 7] = [
    Read,
    FillBuf,
    Consume,
    Write,
    WriteVectored,
    Flush,
    Shutdown,
];

const OUTCOMES: [Outcome; 4] = [
    Outcome::Progress,
    Outcome::Nothing,
    Outcome::Failure,
    Outcome::Pending,
];

/// A stream with a fixed outcome. It keeps no waker.
struct Scripted(Outcome);

impl Scripted {
    fn poll<T>(&self, progress: T, nothing: T) -> Poll<io::Result<T>> {
        match self.0 {
            Outcome::Progress => Poll::Ready(Ok(progress)),
            Outcome::Nothing => Poll::Ready(Ok(nothing)),
            Outcome::Failure => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            Outcome::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes: Poll<io::Result<&[u8]>> = self.poll(&[7; 3], &[]);
        bytes.map_ok(|bytes| buf.put_slice(bytes))
    }
}

impl AsyncBufRead for Scripted {
    fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.poll(&[7; 3], &[])
    }

    fn consume(self: Pin<&mut Self>, _: usize) {}
}

impl AsyncWrite for Scripted {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(3, 0)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(3, 0)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll((), ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll((), ())
    }
}

/// The result of an operation, without its bytes.
type Returned = Poll<Result<(), ErrorKind>>;

fn poll(
    stream: &mut IdleStream<Scripted>,
    operation: Operation,
    outcome: Outcome,
    cx: &mut Context<'_>,
) -> Returned {
    stream.get_mut().0 = outcome;
    let mut stream = Pin::new(stream);
    let done = match operation {
        Read => stream.poll_read(cx, &mut ReadBuf::new(&mut [0; 8])),
        FillBuf => stream.poll_fill_buf(cx).map_ok(|_| ()),
        Consume => {
            let amount = if outcome == Outcome::Progress { 3 } else { 0 };
            stream.as_mut().consume(amount);
            Poll::Ready(Ok(()))
        }
        Write => stream.poll_write(cx, &[1; 3]).map_ok(|_| ()),
        WriteVectored => {
            let bufs = [IoSlice::new(&[1; 3])];
            stream.poll_write_vectored(cx, &bufs).map_ok(|_| ())
        }
        Flush => stream.poll_flush(cx),
        Shutdown => stream.poll_shutdown(cx),
    };
    done.map_err(|error| error.kind())
}

/// The limits, and which operations are activity to them.
fn limits() -> [(IdleLimits, &'static [Operation]); 3] {
    let none = IdleLimits::none;
    [
        (none().read(IDLE), &[Read, FillBuf, Consume]),
        (none().write(IDLE), &[Write, WriteVectored]),
        (
            none().either(IDLE),
            &[Read, FillBuf, Consume, Write, WriteVectored],
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn only_progress_in_own_direction_is_activity() {
    for (limits, active) in limits() {
        for (operation, outcome) in OPERATIONS
            .into_iter()
            .flat_map(|operation| OUTCOMES.map(|outcome| (operation, outcome)))
        {
            let case = format!("{limits:?} {operation:?} {outcome:?}");
            let wheel = TimerWheel::new();
            let start = Instant::now();
            let mut stream = wheel.idle_stream_with(Scripted(Outcome::Pending), &limits);
            time::advance(LATER).await;
            let mut task = task::spawn(());
            let returned = task.enter(|cx, _| poll(&mut stream, operation, outcome, cx));
            let expected = match (outcome, operation) {
                (Outcome::Progress | Outcome::Nothing, _) | (_, Consume) => Poll::Ready(Ok(())),
                (Outcome::Failure, _) => Poll::Ready(Err(ErrorKind::ConnectionReset)),
                (Outcome::Pending, _) => Poll::Pending,
            };
            assert_eq!(returned, expected, "{case}");

            let counts = outcome == Outcome::Progress && active.contains(&operation);
            let mut read = task::spawn(());
            let mut poll_read =
                || read.enter(|cx, _| poll(&mut stream, Read, Outcome::Pending, cx));
            assert_pending!(poll_read(), "{case}");
            let idle = if counts { LATER + IDLE } else { IDLE };
            time::sleep_until(start + idle - Duration::from_millis(1)).await;
            assert_pending!(poll_read(), "{case}");
            time::advance(Duration::from_millis(1)).await;
            assert_eq!(poll_read(), Poll::Ready(Err(ErrorKind::TimedOut)), "{case}");
        }
    }
}

/// Each pending operation is woken when the stream is idle, and fails, with or without one in the
/// other direction.
#[tokio::test(start_paused = true)]
async fn wakes_and_fails_each_pending_operation() {
    for limit in limits().map(|(limits, _)| limits) {
        for reading in [Read, FillBuf] {
            for writing in [Write, WriteVectored, Flush] {
                for reversed in [false, true] {
                    let case = format!("{limit:?} {reading:?} {writing:?} {reversed}");
                    let wheel = TimerWheel::new();
                    let mut stream = wheel.idle_stream_with(Scripted(Outcome::Pending), &limit);
                    let mut operations = [reading, writing];
                    if reversed {
                        operations.reverse();
                    }
                    let mut waiting = operations.map(|operation| (task::spawn(()), operation));
                    for (task, operation) in &mut waiting {
                        let polled =
                            task.enter(|cx, _| poll(&mut stream, *operation, Outcome::Pending, cx));
                        assert_pending!(polled, "{case}");
                    }
                    time::advance(IDLE).await;
                    wheel.settle().await;
                    for (task, operation) in &mut waiting {
                        assert!(task.is_woken(), "{case}: {operation:?}");
                        let failed =
                            task.enter(|cx, _| poll(&mut stream, *operation, Outcome::Pending, cx));
                        assert_eq!(failed, Poll::Ready(Err(ErrorKind::TimedOut)), "{case}");
                    }
                    assert!(stream.is_idle());
                }
            }
        }
    }
}

/// The last poller of a direction is woken, and a poll of the other direction does not take its
/// place.
#[tokio::test(start_paused = true)]
async fn wakes_last_poller_of_each_direction() {
    let wheel = TimerWheel::new();
    let mut stream = wheel.idle_stream(Scripted(Outcome::Pending), IDLE);
    let mut tasks = [(); 4].map(|()| task::spawn(()));
    for (task, operation) in tasks.iter_mut().zip([Read, Flush, FillBuf, Write]) {
        let polled = task.enter(|cx, _| poll(&mut stream, operation, Outcome::Pending, cx));
        assert_pending!(polled);
    }
    time::advance(IDLE).await;
    wheel.settle().await;
    let woken = tasks.each_ref().map(task::Spawn::is_woken);
    assert_eq!(woken, [false, false, true, true]);
    for task in &tasks[..2] {
        assert_eq!(task.waker_ref_count(), 1, "it is not kept");
    }
}

/// An operation that has no cooperative budget left is pending although it could make progress.
#[tokio::test(start_paused = true)]
async fn exhausted_budget_is_not_idleness() {
    let wheel = TimerWheel::new();
    let (socket, mut peer) = tokio::io::duplex(64);
    let mut stream = wheel.idle_stream(socket, IDLE);
    tokio::io::AsyncWriteExt::write_all(&mut peer, b"x")
        .await
        .expect("there is room");
    let reading = tokio::spawn(async move {
        time::advance(IDLE * 2).await;
        let mut polls = 0;
        let read = std::future::poll_fn(|cx| {
            polls += 1;
            while let (1, Poll::Ready(budget)) = (polls, coop::poll_proceed(cx)) {
                budget.made_progress();
            }
            let mut byte = [0];
            Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut byte))
        });
        let read = read.await.map_err(|error| error.kind());
        (polls, read)
    });
    assert_eq!(reading.await.unwrap(), (2, Ok(())));
}
