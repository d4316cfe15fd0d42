//! The timers that are compared, each as its users would use it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pingora_timeout::fast_timeout::{fast_sleep, fast_timeout};
use tickwheel::TimerWheel;
use tokio::runtime::{Builder, Runtime};

/// Something that can sleep.
pub trait Timer: Clone + Send + Sync + 'static {
    /// Runs the future under a timeout.
    fn timeout<F>(&self, length: Duration, future: F) -> impl Future<Output = ()> + Send
    where
        F: Future<Output = ()> + Send;

    fn sleep(&self, length: Duration) -> impl Future<Output = ()> + Send;

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }
}

#[derive(Debug, Clone)]
pub struct Tickwheel(pub TimerWheel);

/// `tickwheel::time`, which finds its wheel itself.
#[derive(Debug, Clone)]
pub struct Ambient;

#[derive(Debug, Clone)]
pub struct Tokio;

#[derive(Debug, Clone)]
pub struct Pingora;

#[derive(Debug, Clone)]
pub struct FuturesTimer;

#[derive(Debug, Clone)]
pub struct AsyncIo;

/// A `timerfd` for each sleep.
#[derive(Debug, Clone)]
pub struct TokioTimerfd;

/// No timer at all: what the loop around it costs.
#[derive(Debug, Clone)]
pub struct Floor;

impl Timer for Tickwheel {
    fn timeout<F>(&self, length: Duration, future: F) -> impl Future<Output = ()> + Send
    where
        F: Future<Output = ()> + Send,
    {
        let timeout = self.0.timeout(length, future);
        async {
            let _ = timeout.await;
        }
    }

    fn sleep(&self, length: Duration) -> impl Future<Output = ()> + Send {
        self.0.sleep(length)
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send {
        self.0.sleep_until(deadline.into())
    }
}

impl Timer for Ambient {
    // Like the wheel held by hand: the timeout is made, and then awaited.
    fn timeout<F>(&self, length: Duration, future: F) -> impl Future<Output = ()> + Send
    where
        F: Future<Output = ()> + Send,
    {
        let timeout = tickwheel::time::timeout(length, future);
        async {
            let _ = timeout.await;
        }
    }

    fn sleep(&self, length: Duration) -> impl Future<Output = ()> + Send {
        tickwheel::time::sleep(length)
    }
}

impl Timer for Tokio {
    async fn timeout<F>(&self, length: Duration, future: F)
    where
        F: Future<Output = ()> + Send,
    {
        let _ = tokio::time::timeout(length, future).await;
    }

    fn sleep(&self, length: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(length)
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send {
        tokio::time::sleep_until(deadline.into())
    }
}

impl Timer for Pingora {
    async fn timeout<F>(&self, length: Duration, future: F)
    where
        F: Future<Output = ()> + Send,
    {
        let _ = fast_timeout(length, future).await;
    }

    fn sleep(&self, length: Duration) -> impl Future<Output = ()> + Send {
        fast_sleep(length)
    }
}

impl Timer for FuturesTimer {
    async fn timeout<F>(&self, length: Duration, future: F)
    where
        F: Future<Output = ()> + Send,
    {
        either(future, futures_timer::Delay::new(length)).await;
    }

    fn sleep(&self, length: Duration) -> impl Future<Output = ()> + Send {
        futures_timer::Delay::new(length)
    }
}

impl Timer for AsyncIo {
    async fn timeout<F>(&self, length: Duration, future: F)
    where
        F: Future<Output = ()> + Send,
    {
        either(future, async_io::Timer::after(length)).await;
    }

    async fn sleep(&self, length: Duration) {
        async_io::Timer::after(length).await;
    }
}

impl Timer for TokioTimerfd {
    async fn timeout<F>(&self, length: Duration, future: F)
    where
        F: Future<Output = ()> + Send,
    {
        either(future, tokio_timerfd::sleep(length)).await;
    }

    async fn sleep(&self, length: Duration) {
        let slept = tokio_timerfd::sleep(length).await;
        slept.expect("the system has descriptors left");
    }
}

impl Timer for Floor {
    fn timeout<F>(&self, _: Duration, future: F) -> impl Future<Output = ()> + Send
    where
        F: Future<Output = ()> + Send,
    {
        future
    }

    async fn sleep(&self, _: Duration) {}
}

/// Waits until one of them is ready, and polls the first one first.
async fn either<T>(future: impl Future<Output = ()>, timer: impl Future<Output = T>) {
    let (mut future, mut timer) = (pin!(future), pin!(timer));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => timer.as_mut().poll(cx).map(drop),
    })
    .await;
}

/// The timers by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Floor,
    Tickwheel,
    /// With a tick of 1 ms.
    LongTick,
    /// With the actor on its own thread.
    OwnThread,
    /// With an actor that waits on a precise timer.
    Precise,
    /// The same with ticks of 50, 20 and 10 us.
    Precise50,
    Precise20,
    Precise10,
    /// With `tickwheel::time`.
    Ambient,
    Tokio,
    /// On a runtime with Tokio's alternative timer: see [`runtime`].
    TokioAlternative,
    Pingora,
    FuturesTimer,
    AsyncIo,
    TokioTimerfd,
}

impl Side {
    pub const ALL: [Side; 15] = [
        Side::Floor,
        Side::Tickwheel,
        Side::LongTick,
        Side::OwnThread,
        Side::Precise,
        Side::Precise50,
        Side::Precise20,
        Side::Precise10,
        Side::Ambient,
        Side::Tokio,
        Side::TokioAlternative,
        Side::Pingora,
        Side::FuturesTimer,
        Side::AsyncIo,
        Side::TokioTimerfd,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Side::Floor => "floor",
            Side::Tickwheel => "tickwheel",
            Side::LongTick => "tickwheel, tick of 1 ms",
            Side::OwnThread => "tickwheel, own thread",
            Side::Precise => "tickwheel, precise",
            Side::Precise50 => "tickwheel, precise, tick of 50 us",
            Side::Precise20 => "tickwheel, precise, tick of 20 us",
            Side::Precise10 => "tickwheel, precise, tick of 10 us",
            Side::Ambient => "tickwheel::time",
            Side::Tokio => "tokio::time",
            Side::TokioAlternative => "tokio::time, alternative",
            Side::Pingora => "pingora-timeout",
            Side::FuturesTimer => "futures-timer",
            Side::AsyncIo => "async-io",
            Side::TokioTimerfd => "tokio-timerfd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|side| side.name() == name)
    }
}

/// Runs the same code with the type of a side.
#[macro_export]
#[doc(hidden)]
macro_rules! with_side {
    ($side:expr, $wheel:expr, |$timer:ident| $body:expr) => {
        match $side {
            $crate::sides::Side::Floor => {
                let $timer = $crate::sides::Floor;
                $body
            }
            $crate::sides::Side::Tickwheel
            | $crate::sides::Side::LongTick
            | $crate::sides::Side::OwnThread
            | $crate::sides::Side::Precise
            | $crate::sides::Side::Precise50
            | $crate::sides::Side::Precise20
            | $crate::sides::Side::Precise10 => {
                let $timer = $crate::sides::Tickwheel($wheel.clone());
                $body
            }
            $crate::sides::Side::Ambient => {
                let $timer = $crate::sides::Ambient;
                $body
            }
            $crate::sides::Side::Tokio | $crate::sides::Side::TokioAlternative => {
                let $timer = $crate::sides::Tokio;
                $body
            }
            $crate::sides::Side::Pingora => {
                let $timer = $crate::sides::Pingora;
                $body
            }
            $crate::sides::Side::FuturesTimer => {
                let $timer = $crate::sides::FuturesTimer;
                $body
            }
            $crate::sides::Side::AsyncIo => {
                let $timer = $crate::sides::AsyncIo;
                $body
            }
            $crate::sides::Side::TokioTimerfd => {
                let $timer = $crate::sides::TokioTimerfd;
                $body
            }
        }
    };
}
pub use crate::with_side;

/// A runtime with so many workers; with one, a single-threaded one. In a program built with
/// `--cfg tokio_unstable`, a runtime with several workers has Tokio's alternative timer.
pub fn runtime(workers: usize) -> Runtime {
    let runtime = if workers == 1 {
        Builder::new_current_thread().enable_all().build()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).enable_all();
        #[cfg(tokio_unstable)]
        builder.enable_alt_timer();
        builder.build()
    };
    runtime.expect("the runtime starts")
}

/// A wheel on that runtime, with default settings.
pub fn wheel_on(runtime: &Runtime) -> TimerWheel {
    wheel_of(Side::Tickwheel, runtime)
}

/// The wheel of this side.
pub fn wheel_of(side: Side, runtime: &Runtime) -> TimerWheel {
    let micros = Duration::from_micros;
    let builder = TimerWheel::builder();
    let builder = match side {
        Side::LongTick => builder.tick(micros(1_000)),
        Side::OwnThread => return wheel_on_thread(builder),
        Side::Precise => builder.precise(true),
        Side::Precise50 => builder.precise(true).tick(micros(50)),
        Side::Precise20 => builder.precise(true).tick(micros(20)),
        Side::Precise10 => builder.precise(true).tick(micros(10)),
        _ => builder,
    };
    let wheel = runtime.block_on(async { builder.start() });
    wheel.expect("the wheel starts")
}

/// A wheel on a thread of its own, which bears its name.
pub fn wheel_on_thread(builder: tickwheel::Builder) -> TimerWheel {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("the runtime starts");
    let wheel = builder.runtime(runtime.handle().clone()).start();
    let wheel = wheel.expect("the wheel starts");
    let weak = wheel.downgrade();
    let thread = std::thread::Builder::new().name(wheel.name().to_owned());
    let thread = thread.spawn(move || runtime.block_on(weak.closed()));
    drop(thread.expect("the thread starts"));
    wheel
}

/// Pending once, and ready when polled again.
#[derive(Debug, Default)]
pub struct PendingOnce(bool);

impl Future for PendingOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
