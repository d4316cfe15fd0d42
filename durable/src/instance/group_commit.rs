//! Many callers, one call of the store.
//!
//! Items wait in a queue. One task takes them, sends them as one batch, and returns each caller's
//! result. The next batch gathers meanwhile. So a store that commits slowly gets large batches, and
//! a quick one small batches.
//!
//! A lone caller must not wait for others, and callers just woken together should share one batch.
//! So the task waits for more only if the last batch had more than is there now, for a millisecond
//! at most, and never once [`MIN_BATCH`] are there.
//!
//! Batches are bounded, in items and in bytes. They go one after the other and keep the order of
//! the queue. So two items of one key take effect in the order in which they were submitted. Items
//! that a store hands back, because a transaction has locked their key, and those that are to be
//! kept when a call fails, are sent again later: see [`deferred`](super::deferred).

use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::deferred::Deferred;
use crate::error::Error;

/// A batch of this many items waits for no more.
const MIN_BATCH: usize = 256;

/// A batch has at most this many items.
const MAX_BATCH: usize = 1024;

/// A batch has at most this many bytes, unless one item has more. A server that runs one batch at a
/// time is kept from everything else meanwhile: Redis for some 25 ms for each megabyte. With fewer,
/// values of a kilobyte would make smaller batches.
const MAX_BYTES: usize = 1 << 20;

/// A retry of deferred items has about this many, so that others have room in its batch.
const RETRIED: usize = MAX_BATCH / 2;

/// How long a batch waits for more items.
const LINGER: Duration = Duration::from_millis(1);

/// Submits items. The task ends when the last of its clones is gone.
pub(crate) struct Group<I, O> {
    queue: mpsc::UnboundedSender<Item<I, O>>,
    call: &'static str,
    limit: Duration,
}

#[allow(clippy::struct_field_names)] // what callers submit is an item
struct Item<I, O> {
    item: I,
    /// When its caller gives up. `None` for one that is kept: it is sent until there is a result,
    /// whether a caller waits for it or not.
    until: Option<Instant>,
    reply: oneshot::Sender<Result<O, Error>>,
}

impl<I, O> Item<I, O> {
    /// Whether its caller has stopped waiting, and has received an error.
    fn is_given_up(&self) -> bool {
        self.until.is_some() && self.reply.is_closed()
    }
}

/// The receiving end, which the task owns.
pub(crate) struct Batches<I, O> {
    queue: mpsc::UnboundedReceiver<Item<I, O>>,
    limit: Duration,
}

/// The outcome of an item.
pub(crate) enum Outcome<I, O> {
    /// Its result.
    Done(Result<O, Error>),
    /// The item again: its key is locked. All items of the key in the batch are then.
    Locked(I),
    /// The item again: the call has failed, and the item is kept.
    Failed(I),
}

/// A group with calls that may take as long as `limit`, waiting included.
pub(crate) fn group<I, O>(call: &'static str, limit: Duration) -> (Group<I, O>, Batches<I, O>) {
    let (sender, queue) = mpsc::unbounded_channel();
    let group = Group {
        queue: sender,
        call,
        limit,
    };
    (group, Batches { queue, limit })
}

impl<I, O> Group<I, O> {
    /// Puts an item into the queue. The future waits for its result.
    ///
    /// When the future is dropped or its time is over, an item that is still in the queue is not
    /// sent.
    pub(crate) fn submit(&self, item: I) -> impl Future<Output = Result<O, Error>> + use<I, O> {
        self.submit_until(item, Instant::now() + self.limit)
    }

    /// As [`submit`](Self::submit), for a call that has begun earlier and gives up then.
    pub(crate) fn submit_until(
        &self,
        item: I,
        until: Instant,
    ) -> impl Future<Output = Result<O, Error>> + use<I, O> {
        let (reply, answer) = oneshot::channel();
        let (call, limit) = (self.call, self.limit);
        let item = Item {
            item,
            until: Some(until),
            reply,
        };
        let sent = self.queue.send(item).is_ok();
        async move {
            if !sent {
                return Err(Error::Closed);
            }
            match timeout_at(until, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Error::Closed),
                Err(_) => Err(Error::Timeout { call, after: limit }),
            }
        }
    }

    /// Puts an item into the queue that is sent until there is a result.
    pub(crate) fn keep(&self, item: I, reply: oneshot::Sender<Result<O, Error>>) {
        // After a shutdown the task is gone, and the caller learns it from the reply.
        let until = None;
        let _ = self.queue.send(Item { item, until, reply });
    }
}

impl<I, O> Batches<I, O> {
    /// Sends batches with `flush`, which returns an outcome for each item, until no [`Group`] is
    /// left. `size` is how many bytes an item has, and `key` is what items have in common whose
    /// order counts. The second argument of `flush` is when the first caller of the batch gives up:
    /// nothing of the batch is to take effect after that.
    pub(crate) async fn run<K, F>(
        mut self,
        size: impl Fn(&I) -> usize,
        key: impl Fn(&I) -> K,
        mut flush: impl FnMut(Vec<I>, Option<Instant>) -> F,
    ) where
        K: Clone + Eq + Hash,
        F: Future<Output = Vec<Outcome<I, O>>>,
    {
        let mut gathered = Vec::new();
        let mut deferred = Deferred::new();
        let mut last = 0;
        while self.gather(&mut gathered, last, deferred.retry_at()).await {
            deferred.add_followers(&mut gathered, |item| key(&item.item));
            gathered.splice(..0, deferred.take(RETRIED));
            gathered.retain(|item| !item.is_given_up());
            let (len, until) = first_batch(&gathered, &size, self.limit);
            let waiting = gathered.drain(..len);
            let (items, replies): (Vec<_>, Vec<_>) = waiting
                .map(|Item { item, until, reply }| (item, (until, reply)))
                .unzip();
            last = items.len();
            if items.is_empty() {
                continue;
            }
            let (mut failed, mut worked) = (false, false);
            for ((until, reply), outcome) in replies.into_iter().zip(flush(items, until).await) {
                let item = match outcome {
                    Outcome::Done(result) => {
                        worked |= result.is_ok();
                        // A caller that has given up needs no result.
                        let _ = reply.send(result);
                        continue;
                    }
                    Outcome::Locked(item) => item,
                    Outcome::Failed(item) => {
                        failed = true;
                        item
                    }
                };
                deferred.add(key(&item), Item { item, until, reply });
            }
            if failed || worked {
                deferred.note(failed);
            }
        }
    }

    /// Fills the batch, or waits until deferred items are to be sent again. `false` when no more
    /// will come.
    async fn gather(
        &mut self,
        batch: &mut Vec<Item<I, O>>,
        last: usize,
        retry_at: Option<Instant>,
    ) -> bool {
        // Items that did not fit into the last batch do not wait again.
        if !batch.is_empty() {
            return true;
        }
        if let Some(retry_at) = retry_at {
            match timeout_at(retry_at, self.queue.recv_many(batch, MAX_BATCH)).await {
                Ok(1..) => {}
                Ok(0) => {
                    sleep_until(retry_at).await;
                    return true;
                }
                Err(_) => return true,
            }
        } else if self.queue.recv_many(batch, MAX_BATCH).await == 0 {
            return false;
        }
        let until = Instant::now() + LINGER;
        while batch.len() < last.min(MIN_BATCH) {
            let room = MAX_BATCH - batch.len();
            match timeout_at(until, self.queue.recv_many(batch, room)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        true
    }
}

/// How many of the items make a batch, and when the first of their callers gives up. A batch takes
/// effect until then or not at all, so an item that has much more time waits for the next one.
fn first_batch<I, O>(
    items: &[Item<I, O>],
    size: impl Fn(&I) -> usize,
    limit: Duration,
) -> (usize, Option<Instant>) {
    let (mut len, mut bytes) = (0, 0);
    let (mut first, mut last) = (None, None);
    for item in items {
        bytes += size(&item.item);
        let untils = [first, item.until].into_iter().flatten();
        let (earliest, latest) = (untils.min(), item.until.max(last));
        // `None`, of an item that is kept, is less than any `Some`: it fits beside all.
        let fits = bytes <= MAX_BYTES && latest <= earliest.map(|until| until + limit / 2);
        if len > 0 && (!fits || len == MAX_BATCH) {
            break;
        }
        (first, last) = (earliest, latest);
        len += 1;
    }
    (len, first)
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn done<I>(batch: Vec<I>) -> Vec<Outcome<I, I>> {
        let outcomes = batch.into_iter().map(|item| Outcome::Done(Ok(item)));
        outcomes.collect()
    }

    /// A thousand values of a megabyte were one batch of a gigabyte, which blocked a server for
    /// half a minute.
    #[tokio::test(start_paused = true)]
    async fn batches_are_bounded_in_bytes() {
        let (group, batches) = group::<usize, usize>("write", LIMIT);
        let sizes = [
            MAX_BYTES,
            1,
            MAX_BYTES / 2,
            MAX_BYTES / 2,
            1,
            2 * MAX_BYTES,
            3,
        ];
        let answers = sizes.map(|size| group.submit(size));
        drop(group);
        let mut flushed = Vec::new();
        let flush = |batch: Vec<usize>, _| {
            flushed.push(batch.clone());
            async move { done(batch) }
        };
        batches.run(|&size| size, |&size| size, flush).await;
        let half = MAX_BYTES / 2;
        let expected = [
            vec![MAX_BYTES],
            vec![1, half],
            vec![half, 1],
            vec![2 * MAX_BYTES],
            vec![3],
        ];
        assert_eq!(flushed, expected);
        for (answer, size) in answers.into_iter().zip(sizes) {
            assert_eq!(answer.await, Ok(size));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lone_caller_does_not_wait_for_others() {
        let (group, batches) = group("write", LIMIT);
        let flush = |batch: Vec<u32>, _| async { done(batch) };
        let run = batches.run(|_| 1, |&item| item, flush);
        let calls = async move {
            for item in 0..3 {
                let began = Instant::now();
                assert_eq!(group.submit(item).await, Ok(item));
                assert_eq!(began.elapsed(), Duration::ZERO);
            }
        };
        join(run, calls).await;
    }

    #[tokio::test(start_paused = true)]
    async fn every_caller_is_told_of_an_error() {
        let (group, batches) = group::<u32, u32>("write", LIMIT);
        let answers: Vec<_> = (0..1_500).map(|item| group.submit(item)).collect();
        drop(group);
        let refused = Error::Timeout {
            call: "store",
            after: Duration::ZERO,
        };
        let mut batch_lens = Vec::new();
        let flush = |batch: Vec<u32>, _| {
            batch_lens.push(batch.len());
            let outcomes = batch.iter().map(|_| Outcome::Done(Err(refused.clone())));
            std::future::ready(outcomes.collect())
        };
        batches.run(|_| 1, |&item| item, flush).await;
        assert_eq!(batch_lens, [MAX_BATCH, 1_500 - MAX_BATCH]);
        for answer in answers {
            assert_eq!(answer.await, Err(refused.clone()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_in_the_queue_counts_towards_the_limit() {
        let (group, batches) = group("write", LIMIT);
        let flush = |batch: Vec<u32>, _| async {
            sleep(LIMIT * 3 / 5).await;
            done(batch)
        };
        let calls = async move {
            let first = group.submit(1);
            sleep(Duration::from_millis(1)).await;
            let second = group.submit(2);
            drop(group);
            let began = Instant::now();
            let both = join(first, second).await;
            (both, began.elapsed())
        };
        let ((), ((first, second), took)) =
            join(batches.run(|_| 1, |&item| item, flush), calls).await;
        assert_eq!(first, Ok(1));
        let (call, after) = ("write", LIMIT);
        assert_eq!(second, Err(Error::Timeout { call, after }));
        assert_eq!(took, LIMIT);
    }

    /// A batch takes effect while its first caller waits, also if others who wait longer share it.
    /// One that has come much later would have failed with it, long before its own time limit.
    #[tokio::test(start_paused = true)]
    async fn batch_has_the_earliest_time_limit_and_no_much_later_caller() {
        let (group, batches) = group::<u32, u32>("write", LIMIT);
        let began = Instant::now();
        let mut flushed = Vec::new();
        let flush = |batch: Vec<u32>, until: Option<Instant>| {
            let until = until.map(|until| until - began);
            flushed.push((batch.clone(), until));
            let slow = LIMIT * u32::from(batch == [0]) * 4 / 5;
            async move {
                sleep(slow).await;
                done(batch)
            }
        };
        let calls = async move {
            let first = group.submit(0);
            sleep(LIMIT / 50).await;
            let early = group.submit(1);
            sleep(LIMIT / 4).await;
            let beside = group.submit(3);
            sleep(LIMIT / 2).await;
            let late = group.submit(2);
            drop(group);
            (first.await, early.await, beside.await, late.await)
        };
        let ((), answers) = join(batches.run(|_| 1, |&item| item, flush), calls).await;
        assert_eq!(answers, (Ok(0), Ok(1), Ok(3), Ok(2)));
        let expected = [
            (vec![0], Some(LIMIT)),
            (vec![1, 3], Some(LIMIT + LIMIT / 50)),
            (vec![2], Some(LIMIT + LIMIT / 50 + LIMIT * 3 / 4)),
        ];
        assert_eq!(flushed, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn caller_with_little_time_left_takes_none_from_others() {
        let (group, batches) = group("write", LIMIT);
        let (soon, later) = (Instant::now() + LIMIT / 5, Instant::now() + LIMIT);
        let _answers = (group.submit(1), group.submit_until(2, soon));
        drop(group);
        let mut untils = Vec::new();
        let flush = |batch: Vec<u32>, until: Option<Instant>| {
            untils.extend(until);
            async { done(batch) }
        };
        batches.run(|_| 1, |&item| item, flush).await;
        assert_eq!(untils, [later, soon]);
    }

    /// A store in which a key, the hundreds of an item, is locked until a time.
    async fn run_with_locked(
        batches: Batches<u32, u32>,
        locked: u32,
        until: Instant,
        done: &mut Vec<u32>,
    ) {
        let flush = |batch: Vec<u32>, _| {
            let is_locked = Instant::now() < until;
            let outcome = |item| {
                if is_locked && item / 100 == locked {
                    return Outcome::Locked(item);
                }
                done.push(item);
                Outcome::Done(Ok(item))
            };
            let outcomes = batch.into_iter().map(outcome).collect();
            async move { outcomes }
        };
        batches.run(|_| 1, |&item| item / 100, flush).await;
    }

    #[tokio::test(start_paused = true)]
    async fn locked_key_holds_up_no_other() {
        let (group, batches) = group("write", LIMIT);
        let began = Instant::now();
        let calls = async move {
            let locked = group.submit(100);
            assert_eq!(group.submit(200).await, Ok(200));
            let follows = group.submit(101);
            assert_eq!(group.submit(201).await, Ok(201));
            assert!(began.elapsed() < Duration::from_millis(5));
            drop(group);
            (locked.await, follows.await, began.elapsed())
        };
        let mut done = Vec::new();
        let until = began + LIMIT / 2;
        let run = run_with_locked(batches, 1, until, &mut done);
        let ((), (locked, follows, took)) = join(run, calls).await;
        assert_eq!((locked, follows), (Ok(100), Ok(101)));
        assert!(took >= LIMIT / 2 && took < LIMIT / 2 + Duration::from_millis(50));
        assert_eq!(done, [200, 201, 100, 101]);
    }

    #[tokio::test(start_paused = true)]
    async fn more_locked_items_than_a_batch_keep_their_order() {
        let (group, batches) = group("write", LIMIT);
        let began = Instant::now();
        let items = || (0..3_000).map(|n| 100 * (n % 2) + n % 100);
        let answers: Vec<_> = items().map(|item| group.submit(item)).collect();
        drop(group);
        let mut done = Vec::new();
        run_with_locked(batches, 1, began + LIMIT / 2, &mut done).await;
        for (answer, item) in answers.into_iter().zip(items()) {
            assert_eq!(answer.await, Ok(item));
        }
        for key in [0, 1] {
            let of_key = |items: &mut dyn Iterator<Item = u32>| {
                items.filter(|item| item / 100 == key).collect::<Vec<_>>()
            };
            assert_eq!(of_key(&mut done.iter().copied()), of_key(&mut items()));
        }
    }

    /// The lock ends while the first call waits to be sent again.
    #[tokio::test(start_paused = true)]
    async fn later_call_on_a_locked_key_waits_for_the_first() {
        let (group, batches) = group("write", LIMIT);
        let began = Instant::now();
        let calls = async move {
            let first = group.submit(100);
            sleep(Duration::from_millis(3)).await;
            let second = group.submit(101);
            drop(group);
            (first.await, second.await)
        };
        let mut done = Vec::new();
        let until = began + Duration::from_millis(2);
        let run = run_with_locked(batches, 1, until, &mut done);
        let ((), answers) = join(run, calls).await;
        assert_eq!(answers, (Ok(100), Ok(101)));
        assert_eq!(done, [100, 101]);
    }

    #[tokio::test(start_paused = true)]
    async fn locked_key_fails_its_own_calls_in_time() {
        let (group, batches) = group("write", LIMIT);
        let began = Instant::now();
        let (reply, kept) = oneshot::channel();
        let calls = async move {
            group.keep(101, reply);
            let answer = group.submit(100).await;
            assert_eq!(began.elapsed(), LIMIT);
            answer
        };
        let mut done = Vec::new();
        let run = run_with_locked(batches, 1, began + 3 * LIMIT, &mut done);
        let ((), answer) = join(run, calls).await;
        let (call, after) = ("write", LIMIT);
        assert_eq!(answer, Err(Error::Timeout { call, after }));
        // The one that is kept is sent when the lock has ended.
        assert_eq!(kept.await, Ok(Ok(101)));
        assert_eq!(done, [101]);
    }

    #[tokio::test(start_paused = true)]
    async fn kept_item_is_sent_until_a_call_works() {
        let (group, batches) = group::<u32, u32>("settle", LIMIT);
        let began = Instant::now();
        let mut tries = Vec::new();
        let flush = |batch: Vec<u32>, _| {
            tries.push(began.elapsed());
            let is_away = began.elapsed() < 10 * LIMIT;
            let outcome = |item| match item {
                1 if is_away => Outcome::Failed(item),
                _ if is_away => Outcome::Done(Err(Error::Closed)),
                _ => Outcome::Done(Ok(item)),
            };
            let outcomes = batch.into_iter().map(outcome).collect();
            async move { outcomes }
        };
        let (reply, kept) = oneshot::channel();
        group.keep(1, reply);
        let calls = async move {
            sleep(LIMIT).await;
            let answer = group.submit(2).await;
            drop(group);
            (answer, kept.await)
        };
        let ((), (other, kept)) = join(batches.run(|_| 1, |&item| item, flush), calls).await;
        assert_eq!((other, kept), (Err(Error::Closed), Ok(Ok(1))));
        let last = tries.last().expect("it was sent");
        let late = last.saturating_sub(10 * LIMIT);
        assert!(late < Duration::from_millis(1_200), "{late:?}");
        assert!(tries.len() < 70, "{} tries", tries.len());
    }
}
