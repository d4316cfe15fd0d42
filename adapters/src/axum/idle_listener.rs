//! A listener that closes connections that are idle.

use std::io;
use std::time::Duration;

use axum::serve::{Listener, ListenerExt, TapIo};
use tickwheel::{IdleLimits, IdleStream, TimerWheel};

use crate::keep_alive::KeepAliveStream;

/// An [`IdleListener`] as `axum::serve` takes it.
///
/// axum lets handlers take `ConnectInfo<SocketAddr>` for its own listeners only, and [`TapIo`] is
/// one of them. This one taps nothing.
pub type TappedListener<L> = TapIo<IdleListener<L>, fn(&mut <IdleListener<L> as Listener>::Io)>;

/// A listener for `axum::serve` that wraps each connection into a [`KeepAliveStream`].
///
/// See the [module](crate::axum) for an example, and for which connections are closed when.
#[derive(Debug)]
pub struct IdleListener<L> {
    listener: L,
    wheel: TimerWheel,
    idle: Duration,
    limits: IdleLimits,
}

impl<L: Listener> IdleListener<L> {
    /// Closes each connection of `listener` once no request is in flight and nothing has happened
    /// for `idle`.
    ///
    /// A client that sends half a request and stops keeps its connection open: add a limit on
    /// reading, by [`with_limits`](Self::with_limits), unless something else limits that.
    ///
    /// Handlers can take `ConnectInfo<L::Addr>`, such as `ConnectInfo<SocketAddr>`.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[allow(clippy::new_ret_no_self)] // axum gives handlers the peer's address for this type only
    #[track_caller]
    pub fn new(listener: L, wheel: &TimerWheel, idle: Duration) -> TappedListener<L> {
        Self::with_limits(listener, wheel, idle, IdleLimits::none())
    }

    /// Closes each connection of `listener` once no request is in flight and nothing has happened
    /// for `idle`, or once it reaches one of the limits, also during a request.
    ///
    /// Handlers can take `ConnectInfo<L::Addr>`, as with [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    ///
    /// # Examples
    ///
    /// Half a request ends after five minutes without a byte, and no handler takes as long:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::{IdleLimits, TimerWheel};
    /// # use tickwheel_adapters::axum::IdleListener;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let wheel = TimerWheel::new();
    /// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    /// let limits = IdleLimits::none().read(Duration::from_secs(300));
    /// let listener =
    ///     IdleListener::with_limits(listener, &wheel, Duration::from_secs(60), limits);
    /// # drop(axum::serve(listener, axum::Router::new()));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn with_limits(
        listener: L,
        wheel: &TimerWheel,
        idle: Duration,
        limits: IdleLimits,
    ) -> TappedListener<L> {
        assert!(!idle.is_zero(), "an idle duration must be longer than zero");
        let listener = IdleListener {
            listener,
            wheel: wheel.clone(),
            idle,
            limits,
        };
        let nothing: fn(&mut KeepAliveStream<IdleStream<L::Io>>) = |_| {};
        listener.tap_io(nothing)
    }
}

impl<L: Listener> Listener for IdleListener<L> {
    type Io = KeepAliveStream<IdleStream<L::Io>>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (io, peer) = self.listener.accept().await;
        let io = self.wheel.idle_stream_with(io, &self.limits);
        let io = KeepAliveStream::new(io.shutdown_when_idle(), &self.wheel, self.idle);
        (io.shutdown_when_idle(), peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
