//! Near sleeps beside a flood of commands, on a runtime that gives the actor one turn for each
//! round of its tasks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{late_step as step, *};

/// Arms and drops sleeps: a command for each, except for the few that this thread's pool keeps.
fn arm_and_drop(wheel: &TimerWheel, sleeps: usize) {
    drop((0..sleeps).map(|_| armed(wheel, FAR)).collect::<Vec<_>>());
}

// A turn applied 4,096 commands, however many had come since the last one. So the backlog grew by
// 5,904 commands a round, and a near sleep waited behind all of it.
#[tokio::test(start_paused = true)]
async fn p11_near_sleeps_fire_within_rounds_of_a_lasting_flood() {
    const ROUNDS: usize = 100;
    let (mut actor, wheel) = start();
    let mut near = Vec::new();
    let mut slowest = 0;
    for round in 0..ROUNDS {
        arm_and_drop(&wheel, 10_000);
        near.push((round, armed(&wheel, ms(1))));
        // The task has taken this long.
        jump(ms(2));
        step(&mut actor);
        near.retain(|(armed_in, sleep)| {
            slowest = slowest.max(round - armed_in);
            !sleep.is_elapsed()
        });
    }
    assert!(slowest <= 2, "a sleep fired {slowest} rounds late");
}

#[tokio::test(start_paused = true)]
async fn turn_catches_up_for_as_long_as_others_ran() {
    let (mut actor, wheel) = start();
    let flood = || -> Vec<_> { (0..9_000).map(|_| armed(&wheel, FAR)).collect() };
    let applied = || wheel.metrics().commands;
    assert_eq!(step(&mut actor), "wait");
    // No task had to do without the thread in that hour, and the actor has run at once.
    jump(FAR);
    let _first = flood();
    assert_eq!(step(&mut actor), "again");
    assert_eq!(applied(), 4_096);
    // Other tasks have not run since.
    assert_eq!(step(&mut actor), "again");
    assert_eq!(applied(), 8_192);
    // They have since it let them, and then since it was notified.
    let _second = flood();
    jump(ms(1));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(applied(), 18_000);
    let _third = flood();
    jump(ms(1));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(applied(), 27_000);
}

// The tasks that a storm wakes would take long, and the next turn as long as they, and wake more.
#[tokio::test(start_paused = true)]
async fn storm_keeps_turn_from_catching_up() {
    let (mut actor, wheel) = start();
    let _storm: Vec<_> = (0..600).map(|_| armed(&wheel, ms(5))).collect();
    assert_eq!(step(&mut actor), "wait");
    let before = wheel.metrics().commands;
    let _flood: Vec<_> = (0..9_000).map(|_| armed(&wheel, FAR)).collect();
    jump(ms(10));
    assert_eq!(step(&mut actor), "again");
    assert!(fired(&wheel) <= 256 && wheel.metrics().commands - before <= 4_096);
}

/// A driver may have woken the deferred tasks of its worker already, as Tokio's alternative timer
/// has, and park next.
#[tokio::test(start_paused = true)]
async fn turn_in_a_driver_queues_the_task_if_work_is_left() {
    let (actor, wheel) = start();
    let (timers, mut expirations) = wheel.keyed();
    for key in 0..3 * INDICES_PER_TURN {
        timers.set_timer(key, (), ms(10)).unwrap();
    }
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let run = actor.run(Waker::noop().clone(), Handle::current());
    let run = Arc::new(Mutex::new(Box::pin(run)));
    let poll = move || {
        let mut run = run.lock().unwrap();
        assert!(
            run.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    };
    let task = tokio::spawn({
        let poll = poll.clone();
        async move {
            // It applies the commands, then waits.
            for _ in 0..10 {
                poll();
                tokio::task::yield_now().await;
            }
        }
    });
    task.await.unwrap();
    time::advance(ms(11)).await;
    let before = woken.0.load(Ordering::SeqCst);
    // This is no task, as a driver is none.
    poll();
    assert!(expirations.try_recv().is_err(), "work is left");
    assert_eq!(woken.0.load(Ordering::SeqCst), before + 1);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
