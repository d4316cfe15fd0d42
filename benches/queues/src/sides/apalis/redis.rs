//! `apalis-redis`, as its first example: in batches of 10, with results, locks and events. What
//! becomes due waits for the heartbeat of every 30 s. Tuned: it polls every 0.1 s, in batches of
//! 500, without locks and events, with a heartbeat each second.
//!
//! Its script takes all that are due onto a list with one `unpack`, which Redis refuses for some
//! 8,000 or more: from then on each poll fails, and with it the worker.

use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage};

use super::{BATCH, HEARTBEAT, POLL, Storage, work_on};

impl Storage for RedisStorage<u64> {
    // A task that is done stays, with its result.
    const LEFT: &str =
        "return redis.call('HLEN', 'queues:data') - redis.call('SCARD', 'queues:done')";
    const EMPTY: &str = "local tasks = redis.call('HRANDFIELD', 'queues:data', 5000)
        for _, task in ipairs(tasks) do
            redis.call('UNLINK', 'queues:meta:' .. task)
        end
        if #tasks > 0 then
            return redis.call('HDEL', 'queues:data', unpack(tasks))
        end
        for _, key in ipairs(redis.call('KEYS', 'queues:inflight:*')) do
            redis.call('UNLINK', key)
        end
        return redis.call('UNLINK', 'queues:done', 'queues:scheduled', 'queues:active')";

    async fn start(url: &str, is_tuned: bool) -> Self {
        let connection = apalis_redis::connect(url).await.expect("it connects");
        let mut config = Config::default().queue("queues");
        if is_tuned {
            config = config
                .batch_size(BATCH)
                .lock_tasks(false)
                .emit_events(false)
                .heartbeat_interval(HEARTBEAT);
        }
        let storage = RedisStorage::new(connection).with_config(config);
        let worker = storage.clone();
        if is_tuned {
            work_on!(worker.clone().poll_with_interval(POLL));
        } else {
            work_on!(worker.clone());
        }
        storage
    }
}
