//! The wheel as hyper's timer: [`WheelTimer`] is a [`hyper::rt::Timer`].
//!
//! Pass it wherever hyper or hyper-util takes a timer, instead of `hyper_util::rt::TokioTimer`. It
//! is a type of this crate, not [`TimerWheel`] itself, because a trait of one crate cannot be
//! implemented here for a type of another. These limits then run on the wheel:
//!
//! * HTTP/1 servers: `header_read_timeout`. hyper arms a sleep for each request and drops it once
//!   the head has arrived. It counts from the end of the request before, so it also closes idle
//!   connections that are kept alive.
//! * HTTP/2 servers and clients: `keep_alive_interval` and `keep_alive_timeout`. hyper resets one
//!   sleep for each ping.
//! * Clients of hyper-util: `timer` and `pool_timer`, for how long an unused connection stays in
//!   the pool.
//!
//! hyper limits neither a slow handler nor a stalled body; the layers of the tower adapter do. The
//! [front page](crate#the-limits-of-a-server) compares the limits of a server.
//!
//! # Examples
//!
//! A server that closes a connection on which a request does not begin and send its head within ten
//! seconds, or on which a response does not go on for a minute:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use hyper::server::conn::http1;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response, body::Incoming};
//! use hyper_util::rt::TokioIo;
//! use tickwheel::TimerWheel;
//! use tickwheel_adapters::hyper::WheelTimer;
//! use tickwheel_adapters::keep_alive::KeepAliveStream;
//! use tokio::net::TcpListener;
//!
//! async fn answer(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     Ok(Response::new("hello\n".to_owned()))
//! }
//!
//! async fn serve(listener: TcpListener, wheel: TimerWheel) -> std::io::Result<()> {
//!     let mut http = http1::Builder::new();
//!     http.timer(WheelTimer::new(&wheel)).header_read_timeout(Duration::from_secs(10));
//!     loop {
//!         let (socket, _) = listener.accept().await?;
//!         let socket = KeepAliveStream::new(socket, &wheel, Duration::from_secs(60));
//!         tokio::spawn(http.serve_connection(TokioIo::new(socket), service_fn(answer)));
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
//! # let address = listener.local_addr().unwrap();
//! # tokio::spawn(serve(listener, TimerWheel::new()));
//! # let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
//! # client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
//! # let mut answer = String::new();
//! # client.read_to_string(&mut answer).await.unwrap();
//! # assert!(answer.ends_with("hello\n"), "{answer}");
//! # }
//! ```

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tickwheel::TimerWheel;

/// A [`hyper::rt::Timer`] with its sleeps on a wheel.
///
/// Cloning it costs as much as cloning the wheel's handle.
#[derive(Debug, Clone)]
pub struct WheelTimer(TimerWheel);

impl WheelTimer {
    /// Makes a timer of `wheel`.
    pub fn new(wheel: &TimerWheel) -> Self {
        WheelTimer(wheel.clone())
    }
}

impl Timer for WheelTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(WheelSleep(self.0.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(WheelSleep(self.0.sleep_until(deadline.into())))
    }

    /// The clock of the current runtime, which may be paused.
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Resets a sleep of this or another wheel; a sleep of another timer is replaced by one of this
    /// wheel.
    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<WheelSleep>() {
            Some(sleep) => sleep.get_mut().0.set_deadline(new_deadline.into()),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

/// A sleep as hyper takes it.
#[derive(Debug)]
struct WheelSleep(tickwheel::Sleep);

impl Future for WheelSleep {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.get_mut().0).poll(cx)
    }
}

impl Sleep for WheelSleep {}
