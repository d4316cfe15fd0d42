//! Which public types may be sent to and shared by threads, asserted by the compiler.

use std::cell::Cell;
use std::future::{Pending, pending};

use tickwheel::{
    BuildError, Builder, BusyGuard, Cause, ClosedError, DurationBucket, DurationHistogram, Elapsed,
    Expirations, Expired, IdleHandle, IdleLimits, IdleStream, IdleTimer, Interval, KeyedTimers,
    Reaper, SetTimerError, Sleep, Timeout, TimerWheel, TryRecvError, WatchGuard, WatchOptions,
    WeakKeyedTimers, WeakReaper, WeakTimerWheel, WheelMetrics, time as drop_in, wheel,
};

fn sends<T: Send>() {}
fn sends_and_shares<T: Send + Sync + 'static>() {}
fn moves_freely<T: Unpin>() {}

/// A value that may be sent, and must not be shared.
type Sent = Cell<u32>;

#[test]
fn handles_are_shared_whatever_values_they_take() {
    sends_and_shares::<TimerWheel>();
    sends_and_shares::<Builder>();
    sends_and_shares::<KeyedTimers<u32, Sent>>();
    sends_and_shares::<WeakKeyedTimers<u32, Sent>>();
    sends_and_shares::<Expirations<u32, Sent>>();
    sends_and_shares::<Reaper<Sent, Sent>>();
    sends_and_shares::<WeakReaper<Sent, Sent>>();
    sends_and_shares::<WeakTimerWheel>();
    sends_and_shares::<WatchGuard>();
    sends_and_shares::<WatchOptions>();
    sends_and_shares::<IdleHandle>();
    sends_and_shares::<IdleLimits>();
    sends_and_shares::<BusyGuard>();
    sends_and_shares::<wheel::Token>();
}

#[test]
fn futures_and_streams_are_as_their_contents() {
    sends_and_shares::<Sleep>();
    sends_and_shares::<Interval>();
    sends_and_shares::<IdleTimer>();
    sends_and_shares::<Timeout<Pending<u32>>>();
    sends_and_shares::<IdleStream<tokio::net::TcpStream>>();
    sends_and_shares::<drop_in::IntervalStream>();
    sends::<Timeout<std::future::Ready<Sent>>>();
    sends::<IdleStream<Sent>>();
    sends::<wheel::Wheel<Sent>>();
    sends_and_shares::<wheel::Wheel<u32>>();
    moves_freely::<Sleep>();
    moves_freely::<Interval>();
    moves_freely::<IdleTimer>();
    moves_freely::<Timeout<Pending<u32>>>();
    moves_freely::<IdleStream<tokio::net::TcpStream>>();
    moves_freely::<Expirations<u32, Sent>>();
}

#[test]
fn errors_and_reports_are_as_their_contents() {
    sends_and_shares::<BuildError>();
    sends_and_shares::<Elapsed>();
    sends_and_shares::<ClosedError>();
    sends_and_shares::<TryRecvError>();
    sends_and_shares::<drop_in::InstallError>();
    sends_and_shares::<SetTimerError<u32, u32>>();
    sends::<SetTimerError<Sent, Sent>>();
    sends_and_shares::<Expired<u32, u32>>();
    sends::<Expired<Sent, Sent>>();
    sends_and_shares::<Cause>();
    sends_and_shares::<WheelMetrics>();
    sends_and_shares::<DurationHistogram>();
    sends_and_shares::<DurationBucket>();
}

#[test]
fn futures_of_calls_can_be_spawned() {
    fn spawns(_: impl Future<Output: Send> + Send + 'static) {}
    fn calls(wheel: TimerWheel, mut stream: Expirations<u32, Sent>) {
        spawns(async move {
            stream.recv().await;
            stream.recv_many(&mut Vec::new(), 1).await;
            stream.dispatch(1, |_| async {}).await;
            wheel
                .interval(std::time::Duration::from_secs(1))
                .tick()
                .await;
            wheel.settle().await;
            wheel.shutdown().await;
            pending::<()>().await;
        });
    }
    let _: fn(TimerWheel, Expirations<u32, Sent>) = calls;
}
