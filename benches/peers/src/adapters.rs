//! The cost of the adapters of hyper, quinn and tower, next to these crates' own timers on Tokio.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use hyper::rt::Timer;
use hyper_util::rt::TokioTimer;
use quinn::{Runtime, TokioRuntime};
use tickwheel_adapters::hyper::WheelTimer;
use tickwheel_adapters::quinn::WheelRuntime;
use tickwheel_adapters::tower::TimeoutLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::churn::LONG;
use crate::measure::{Meter, Scale, Spent, alternate, emit_cost};
use crate::sides::{PendingOnce, runtime, wheel_on};

const WORKERS: usize = 2;

const TASKS: u64 = 64;

/// Sleeps of hyper and timers of quinn, on a runtime with two workers.
pub fn timers(scale: Scale) {
    let runtime = runtime(WORKERS);
    let wheel = wheel_on(&runtime);
    let hyper: [Arc<dyn Timer + Send + Sync>; 2] = [
        Arc::new(TokioTimer::new()),
        Arc::new(WheelTimer::new(&wheel)),
    ];
    let quinn: [Arc<dyn Runtime>; 2] =
        [Arc::new(TokioRuntime), Arc::new(WheelRuntime::new(&wheel))];
    let series = [
        "hyper reset: TokioTimer",
        "hyper reset: tickwheel",
        "hyper sleep: TokioTimer",
        "hyper sleep: tickwheel",
        "quinn reset: TokioRuntime",
        "quinn reset: tickwheel",
        "quinn reset and poll: TokioRuntime",
        "quinn reset and poll: tickwheel",
    ];
    let costs = alternate(scale, series.len(), |side, rounds| {
        let (hyper, quinn) = (Arc::clone(&hyper[side % 2]), Arc::clone(&quinn[side % 2]));
        runtime.block_on(async {
            // On a worker, where a service runs.
            let task = match side / 2 {
                0 => tokio::spawn(reset_hyper(hyper, rounds)),
                1 => return sleep_hyper(&hyper, rounds).await,
                2 => tokio::spawn(reset_quinn(quinn, false, rounds)),
                _ => tokio::spawn(reset_quinn(quinn, true, rounds)),
            };
            task.await.expect("it does not panic")
        })
    });
    for costs in costs {
        for (series, cost) in series.iter().zip(costs) {
            emit_cost(series, cost);
        }
    }
}

/// HTTP/2 keep-alive: a ping's timer is reset again and again.
async fn reset_hyper(timer: Arc<dyn Timer + Send + Sync>, rounds: u64) -> Spent {
    let mut sleep = timer.sleep(LONG);
    poll_once(|cx| sleep.as_mut().poll(cx)).await;
    let meter = Meter::start();
    for _ in 0..rounds {
        timer.reset(&mut sleep, Instant::now() + LONG);
    }
    meter.stop()
}

/// `header_read_timeout`: a sleep for each request, dropped when the head is there.
async fn sleep_hyper(timer: &Arc<dyn Timer + Send + Sync>, rounds: u64) -> Spent {
    let each = rounds.div_ceil(TASKS);
    let meter = Meter::start();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let timer = Arc::clone(timer);
            tokio::spawn(async move {
                for _ in 0..each {
                    let mut sleep = timer.sleep_until(Instant::now() + LONG);
                    poll_once(|cx| sleep.as_mut().poll(cx)).await;
                    PendingOnce::default().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no round panics");
    }
    meter.stop()
}

/// A connection's timer is reset with most packets, and polled after that.
async fn reset_quinn(runtime: Arc<dyn Runtime>, polled: bool, rounds: u64) -> Spent {
    let mut timer = runtime.new_timer(Instant::now() + LONG);
    poll_once(|cx| timer.as_mut().poll(cx)).await;
    let meter = Meter::start();
    for _ in 0..rounds {
        timer.as_mut().reset(Instant::now() + LONG);
        if polled {
            poll_once(|cx| timer.as_mut().poll(cx)).await;
        }
    }
    meter.stop()
}

async fn poll_once(mut poll: impl FnMut(&mut std::task::Context<'_>) -> Poll<()>) {
    poll_fn(|cx| {
        assert!(poll(cx).is_pending(), "30 s are not over");
        Poll::Ready(())
    })
    .await;
}

/// Calls that wait once, by many tasks; reported is the cost above that of a service without a
/// limit. A server clones its service for each connection, and axum for each request.
pub fn calls(scale: Scale, cloned: bool) {
    let runtime = runtime(WORKERS);
    let wheel = wheel_on(&runtime);
    let service = service_fn(|()| async {
        PendingOnce::default().await;
        Ok::<_, Infallible>(())
    });
    let tokio = ServiceBuilder::new().timeout(LONG).service(service);
    let ours = ServiceBuilder::new()
        .layer(TimeoutLayer::new(&wheel, LONG))
        .service(service);
    let costs = alternate(scale, 3, |side, rounds| {
        runtime.block_on(async {
            match side {
                0 => call(service.map_err(BoxError::from), cloned, rounds).await,
                1 => call(tokio.clone(), cloned, rounds).await,
                _ => call(ours.clone(), cloned, rounds).await,
            }
        })
    });
    for costs in costs {
        emit_cost("no limit", costs[0]);
        emit_cost("tower::timeout", costs[1].above(costs[0]));
        emit_cost("tickwheel", costs[2].above(costs[0]));
    }
}

async fn call<S>(service: S, cloned: bool, rounds: u64) -> Spent
where
    S: Service<(), Error = BoxError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let each = rounds.div_ceil(TASKS);
    // All tasks clone the same one, as the router of a server.
    let service = Arc::new(service);
    let meter = Meter::start();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let shared = Arc::clone(&service);
            let mut own = S::clone(&service);
            tokio::spawn(async move {
                for _ in 0..each {
                    let call = if cloned {
                        S::clone(&shared).call(())
                    } else {
                        own.call(())
                    };
                    assert!(call.await.is_ok(), "30 s are not over");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no round panics");
    }
    meter.stop()
}
