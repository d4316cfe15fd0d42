//! `tickwheel-durable`. Tuned: it loads 8,192 timers ahead instead of 1,024.

use std::time::SystemTime;

use futures_util::{StreamExt, stream};
use tickwheel::TimerWheel;
use tickwheel_durable::{DurableTimers, Postgres, builder};

use crate::measure::{HANDLERS, Queue, handled, micros};

pub(crate) struct Tickwheel(DurableTimers<u64, u64>);

impl Queue for Tickwheel {
    const LEFT: &str = "SELECT count(*) FROM tickwheel_timers";
    const EMPTY: &str = "DELETE FROM tickwheel_timers";

    async fn start(url: &str, is_tuned: bool) -> Self {
        let store = Postgres::connect(url).await.expect("it connects");
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
        Tickwheel(timers)
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
