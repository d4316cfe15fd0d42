//! Wakers of pending operations that panic when they are dropped.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tickwheel::{IdleStream, TimerWheel};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio_test::{assert_pending, assert_ready};

use crate::support::{Wakes, advance, hooked_waker, ms};

type Operation = fn(&mut IdleStream<DuplexStream>, &Waker) -> Poll<io::Result<()>>;

fn read(stream: &mut IdleStream<DuplexStream>, waker: &Waker) -> Poll<io::Result<()>> {
    let mut cx = Context::from_waker(waker);
    Pin::new(stream).poll_read(&mut cx, &mut ReadBuf::new(&mut [0]))
}

fn write(stream: &mut IdleStream<DuplexStream>, waker: &Waker) -> Poll<io::Result<()>> {
    let mut cx = Context::from_waker(waker);
    Pin::new(stream).poll_write(&mut cx, b"x").map_ok(|_| ())
}

// The panic unwound into the other task, and no limit woke any task of the stream after that.
#[tokio::test(start_paused = true)]
async fn p12_replaced_waker_whose_drop_panics_harms_no_other_task() {
    for operation in [read as Operation, write] {
        let wheel = TimerWheel::new();
        let (socket, _peer) = duplex(1);
        let mut stream = wheel.idle_stream(socket, ms(50));
        assert!(assert_ready!(write(&mut stream, Waker::noop())).is_ok());
        let panicking = hooked_waker(|| (), || panic!("the drop of a waker panics"));
        assert_pending!(operation(&mut stream, &panicking));
        drop(panicking); // the stream has the only references
        let (woken, waker) = Wakes::new();
        let polled = catch_unwind(AssertUnwindSafe(|| operation(&mut stream, &waker)));
        assert_pending!(polled.expect("that waker is another task's"));
        advance(&wheel, ms(49)).await;
        assert_eq!(woken.count(), 0);
        advance(&wheel, ms(2)).await;
        assert_eq!(woken.count(), 1);
        let failed = assert_ready!(operation(&mut stream, &waker));
        assert!(failed.is_err_and(|error| error.kind() == ErrorKind::TimedOut));
    }
}
