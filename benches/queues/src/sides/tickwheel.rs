//! `tickwheel-durable`. Tuned: it loads 8,192 timers ahead instead of 1,024.

use std::marker::PhantomData;
use std::time::SystemTime;

use futures_util::{StreamExt, stream};
use tickwheel::TimerWheel;
use tickwheel_durable::store::Store;
use tickwheel_durable::{DurableTimers, Postgres, Redis, Sqlite, builder};

use crate::measure::{HANDLERS, Queue, handled, micros};

pub(crate) struct Tickwheel<S>(DurableTimers<u64, u64>, PhantomData<fn() -> S>);

pub(crate) trait Connect: Store {
    const LEFT: &str;
    const EMPTY: &str;

    async fn connect(url: &str) -> Self;
}

impl Connect for Postgres {
    const LEFT: &str = "SELECT count(*) FROM tickwheel_timers";
    const EMPTY: &str = "DELETE FROM tickwheel_timers";

    async fn connect(url: &str) -> Self {
        Postgres::connect(url).await.expect("it connects")
    }
}

impl Connect for Redis {
    const LEFT: &str = "return redis.call('HLEN', 'tickwheel:{queues}:rows')";
    // All timers are a day away, so that none is loaded, or all are acknowledged.
    const EMPTY: &str = "local key = 'tickwheel:{queues}:'
        return redis.call('UNLINK', key .. 'rows', key .. 'keys', key .. 'waiting')";

    async fn connect(url: &str) -> Self {
        Redis::connect(url).await.expect("it connects")
    }
}

impl Connect for Sqlite {
    const LEFT: &str = "SELECT count(*) FROM tickwheel_timers";
    const EMPTY: &str = "DELETE FROM tickwheel_timers;
        UPDATE tickwheel_namespaces SET waiting = 0, in_flight = 0, dead = 0";

    async fn connect(url: &str) -> Self {
        Sqlite::open(url).expect("it opens")
    }
}

impl<S: Connect> Queue for Tickwheel<S> {
    const LEFT: &str = S::LEFT;
    const EMPTY: &str = S::EMPTY;

    async fn start(url: &str, is_tuned: bool) -> Self {
        let store = S::connect(url).await;
        let mut settings = builder("queues");
        if is_tuned {
            settings = settings.capacity(8_192);
        }
        let started = settings.start(&TimerWheel::new(), store).await;
        let (timers, mut claims) = started.expect("the instance starts");
        tokio::spawn(async move {
            let handler = async |claim: tickwheel_durable::Claim<u64, u64>| {
                handled(claim.value);
                Ok(())
            };
            claims.dispatch(HANDLERS, handler).await;
        });
        Tickwheel(timers, PhantomData)
    }

    async fn set(&self, number: u64, deadline: SystemTime) {
        let set = self
            .0
            .set_timer_at(&number, &micros(deadline), deadline)
            .await;
        set.expect("it is set");
    }

    async fn fill(
        &self,
        numbers: std::ops::Range<u64>,
        deadline: impl Fn(u64) -> SystemTime + Send + Sync,
    ) {
        let sets = stream::iter(numbers).map(|number| self.set(number, deadline(number)));
        sets.buffer_unordered(1_024).collect::<()>().await;
    }
}
