//! The wheel as quinn's timer: a [`quinn::Runtime`] that leaves sockets and tasks to another
//! runtime.
//!
//! quinn has one timer for each connection and resets it with most packets. A reset to later sends
//! no command to the actor.
//!
//! # Examples
//!
//! An endpoint with connections that use the wheel, for idle timeouts, keep-alives and
//! retransmissions:
//!
//! ```
//! use std::net::UdpSocket;
//! use std::sync::Arc;
//!
//! use quinn::{Endpoint, EndpointConfig, ServerConfig};
//! use tickwheel::TimerWheel;
//! use tickwheel_adapters::quinn::WheelRuntime;
//!
//! fn listen(
//!     wheel: &TimerWheel,
//!     endpoint: EndpointConfig,
//!     server: ServerConfig,
//! ) -> std::io::Result<Endpoint> {
//!     let socket = UdpSocket::bind("127.0.0.1:0")?;
//!     Endpoint::new(endpoint, Some(server), socket, Arc::new(WheelRuntime::new(wheel)))
//! }
//! ```

use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use tickwheel::{Sleep, TimerWheel};

/// A [`quinn::Runtime`] with its timers on a wheel. Everything else is left to the runtime that it
/// wraps.
#[derive(Debug)]
pub struct WheelRuntime<R = TokioRuntime> {
    wheel: TimerWheel,
    inner: R,
}

impl WheelRuntime {
    /// Tokio's sockets and tasks, and timers on the wheel.
    ///
    /// An endpoint made with it is used within a Tokio runtime, as with [`TokioRuntime`].
    pub fn new(wheel: &TimerWheel) -> Self {
        Self::wrap(wheel, TokioRuntime)
    }
}

impl<R> WheelRuntime<R> {
    /// The sockets and tasks of `inner`, and timers on the wheel.
    pub fn wrap(wheel: &TimerWheel, inner: R) -> Self {
        WheelRuntime {
            wheel: wheel.clone(),
            inner,
        }
    }
}

impl<R: Runtime> Runtime for WheelRuntime<R> {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(WheelSleep(self.wheel.sleep_until(deadline.into())))
    }

    #[track_caller]
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.inner.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        self.inner.wrap_udp_socket(socket)
    }

    /// The clock of the current Tokio runtime, by which the wheel's deadlines are set.
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// A sleep as quinn takes it.
#[derive(Debug)]
struct WheelSleep(Sleep);

impl AsyncTimer for WheelSleep {
    fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.get_mut().0.set_deadline(deadline.into());
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.get_mut().0).poll(cx)
    }
}
