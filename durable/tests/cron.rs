//! Timers that repeat by a cron expression, through whole instances.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tickwheel_durable::store::{
    Answer, BoxFuture, ChangedRows, Charter, Counts, DeadChange, DeadRows, Fire, FireReport,
    Inspect, InstanceId, List, Load, Loaded, Namespace, Opened, Schedules, Settle, Settled, Store,
    Stored, Terms, Version, Write, WriteOutcome,
};
use tickwheel_durable::{
    Backoff, Builder, Claim, Claims, CronError, Error, Memory, Missed, Moved, Removed, SetIfAbsent,
};
use tokio::time::{sleep, timeout};

use log::Log;
use support::{HOUR, SECOND, Timers, next, set, start};

#[path = "support/log.rs"]
mod log;
#[path = "support/pass_on.rs"]
#[macro_use]
mod pass_on;
mod support;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Seconds since the epoch, at midnight of UTC.
const MARCH_28: u64 = 1_774_656_000;
const OCTOBER_24: u64 = 1_792_800_000;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A store with a clock that shows this time.
fn store_at(seconds: u64) -> Memory {
    let store = Memory::new();
    store.set_clock(at(seconds));
    store
}

/// Polls seldom, because days pass.
fn patient(builder: Builder<String, u32>) -> Builder<String, u32> {
    builder.poll(MINUTE).window(HOUR).lease(DAY)
}

async fn set_cron(timers: &Timers, key: &str, expression: &str, zone: &str) {
    let set = timers.set_cron(key, &7, expression, zone).await;
    set.expect("it is set");
}

/// The next claim, within two days.
async fn next_day(claims: &mut Claims<String, u32>) -> Claim<String, u32> {
    let claim = timeout(2 * DAY, claims.recv()).await;
    claim.expect("it comes").expect("the stream goes on")
}

async fn schedule_of(timers: &Timers, key: &str) -> Option<String> {
    let entry = timers.admin().get(key).await.expect("it reads");
    entry.expect("it waits").schedule
}

#[tokio::test(start_paused = true)]
async fn nightly_job_runs_once_in_each_night() {
    for (midnight, times) in [
        // 2:30, 3:00 since 2:30 is left out, 2:30.
        (MARCH_28, [5_400, 86_400 + 3_600, 2 * 86_400 + 1_800]),
        // 2:30, the first 2:30, 2:30.
        (OCTOBER_24, [1_800, 86_400 + 1_800, 2 * 86_400 + 5_400]),
    ] {
        let (timers, mut claims) = start(store_at(midnight), patient).await;
        set_cron(&timers, "nightly", "30 2 * * *", "Europe/Berlin").await;
        for time in times {
            let claim = next_day(&mut claims).await;
            assert_eq!(claim.deadline, at(midnight + time));
            assert_eq!((claim.value, claim.attempt, claim.missed), (7, 1, 0));
            let lateness = timers.metrics().lateness;
            assert!(lateness.max() <= SECOND / 1_000, "it is on time");
            claim.ack().await.expect("it is held");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn next_deadline_is_there_before_the_first_is_acknowledged() {
    let (timers, mut claims) = start(store_at(MARCH_28), |b| b).await;
    set_cron(&timers, "a", "*/5 * * * * *", "UTC").await;
    let mut held = Vec::new();
    for number in 1..=4 {
        let claim = next(&mut claims).await;
        assert_eq!(claim.deadline, at(MARCH_28 + 5 * number));
        let deadline = timers.deadline("a").await.expect("it reads");
        assert_eq!(deadline, Some(at(MARCH_28 + 5 * number + 5)));
        let text = schedule_of(&timers, "a").await;
        assert_eq!(text.as_deref(), Some("*/5 * * * * * UTC"));
        held.push(claim);
    }
    // A claim is of one occurrence, which does not repeat.
    let in_flight = timers.admin().in_flight(None, 9).await.expect("it lists");
    assert_eq!(in_flight.len(), 4);
    assert!(in_flight.iter().all(|entry| entry.schedule.is_none()));
}

/// The schedule comes with the load or with the fire before, so that it takes no extra call.
#[tokio::test(start_paused = true)]
async fn each_occurrence_takes_one_call_to_fire() {
    let (timers, mut claims) = start(store_at(MARCH_28), |b| b).await;
    for expression in ["* * * * * *", "*/40 * * * * *"] {
        set_cron(&timers, expression, expression, "UTC").await;
    }
    // Set near by this instance, it has its schedule from the first fire.
    for _ in 0..2 {
        next(&mut claims).await.ack().await.expect("it is held");
    }
    let before = timers.metrics();
    for _ in 0..120 {
        next(&mut claims).await.ack().await.expect("it is held");
    }
    let after = timers.metrics();
    let fires = after.fire_batches.count - before.fire_batches.count;
    let fired = after.claimed - before.claimed;
    assert!(fires <= fired, "{fires} calls fired {fired}");
}

#[tokio::test(start_paused = true)]
async fn missed_occurrences_follow_the_rule() {
    for (missed, deadlines, counts) in [
        (Missed::FireOnce, vec![60, 360], vec![4, 0]),
        (
            Missed::FireAll,
            vec![60, 120, 180, 240, 300, 360],
            vec![0; 6],
        ),
        (Missed::Skip, vec![360], vec![0]),
    ] {
        let store = store_at(MARCH_28);
        let (timers, claims) = start(store.clone(), |b| b).await;
        set_cron(&timers, "a", "* * * * *", "Europe/Berlin").await;
        timers.shutdown().await;
        drop(claims);
        sleep(5 * MINUTE + SECOND / 2).await;
        let (timers, mut claims) = start(store, |b| b.missed(missed)).await;
        for (deadline, missed) in deadlines.into_iter().zip(counts) {
            let claim = next(&mut claims).await;
            assert_eq!(claim.deadline, at(MARCH_28 + deadline));
            assert_eq!((claim.missed, claim.attempt), (missed, 1));
            claim.ack().await.expect("it is held");
        }
        let left = timers.counts().await.expect("it counts");
        assert_eq!((left.waiting, left.in_flight), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn occurrence_waits_while_one_is_in_flight() {
    let (timers, mut claims) = start(store_at(MARCH_28), Builder::no_overlap).await;
    set_cron(&timers, "a", "*/10 * * * * *", "UTC").await;
    let first = next(&mut claims).await;
    assert_eq!(first.deadline, at(MARCH_28 + 10));
    let other = timeout(25 * SECOND, claims.recv()).await;
    assert!(other.is_err(), "{other:?}");
    first.ack().await.expect("it is held");
    let second = next(&mut claims).await;
    // It stands for those of 20 and 30 seconds, and comes at 40.
    assert_eq!(second.deadline, at(MARCH_28 + 20));
    assert_eq!(second.missed, 2);
    assert_eq!(timers.metrics().lateness.max(), 20 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn retries_and_deaths_leave_the_schedule_alone() {
    let attempts = |b: Builder<String, u32>| b.max_attempts(2).backoff(Backoff::fixed(SECOND));
    let (timers, mut claims) = start(store_at(MARCH_28), attempts).await;
    set_cron(&timers, "a", "0 * * * *", "UTC").await;
    let fails = claims.dispatch(1, |_| async {
        Err(std::io::Error::other("no such report").into())
    });
    let over = timeout(3 * HOUR + MINUTE, fails).await;
    assert!(over.is_err(), "it goes on");
    let dead = timers.admin().dead(None, 9).await.expect("it lists");
    let deadlines: Vec<_> = dead.iter().map(|dead| dead.deadline).collect();
    assert_eq!(dead.len(), 3, "{deadlines:?}");
    assert!(
        dead.iter()
            .all(|dead| dead.attempt == 2 && dead.schedule.is_none())
    );
    let deadline = timers.deadline("a").await.expect("it reads");
    assert_eq!(deadline, Some(at(MARCH_28 + 4 * 3_600)));
}

#[tokio::test(start_paused = true)]
async fn setting_it_again_keeps_an_overdue_occurrence() {
    let store = store_at(MARCH_28);
    let (timers, claims) = start(store.clone(), |b| b).await;
    set_cron(&timers, "nightly", "30 2 * * *", "UTC").await;
    timers.shutdown().await;
    drop(claims);
    sleep(4 * HOUR).await;
    // Each instance sets its timers when it starts.
    let (timers, mut claims) = start(store, patient).await;
    let set = timers.set_cron("nightly", &8, " 30  2 * * * ", "UTC").await;
    set.expect("it is set");
    let claim = next(&mut claims).await;
    assert_eq!((claim.deadline, claim.value), (at(MARCH_28 + 9_000), 8));
    claim.ack().await.expect("it is held");

    set_cron(&timers, "nightly", "45 2 * * *", "UTC").await;
    let deadline = timers.deadline("nightly").await.expect("it reads");
    assert_eq!(
        deadline,
        Some(at(MARCH_28 + 86_400 + 9_900)),
        "another expression"
    );
}

#[tokio::test(start_paused = true)]
async fn moving_it_moves_one_occurrence() {
    let (timers, mut claims) = start(store_at(MARCH_28), patient).await;
    set_cron(&timers, "nightly", "30 2 * * *", "UTC").await;
    let moved = timers.move_timer("nightly", SECOND).await;
    assert_eq!(moved, Ok(Moved::Done));
    let absent = timers.set_if_absent("nightly", &1, SECOND).await;
    assert_eq!(absent, Ok(SetIfAbsent::Present));
    let absent = timers.set_cron_if_absent("nightly", &1, "0 3 * * *", "UTC");
    assert_eq!(absent.await, Ok(SetIfAbsent::Present));
    for deadline in [1, 9_000, 86_400 + 9_000] {
        let claim = next_day(&mut claims).await;
        assert_eq!(claim.deadline, at(MARCH_28 + deadline));
        claim.ack().await.expect("it is held");
    }
    let removed = timers.remove_timer("nightly").await;
    assert_eq!(removed, Ok(Removed::Done(7)));
    let absent = timers.set_cron_if_absent("nightly", &7, "30 2 * * *", "UTC");
    assert_eq!(absent.await, Ok(SetIfAbsent::Done));
    let schedule = schedule_of(&timers, "nightly").await;
    assert_eq!(schedule.as_deref(), Some("30 2 * * * UTC"));
    timers
        .set_timer("nightly", &9, SECOND)
        .await
        .expect("it is set");
    assert_eq!(schedule_of(&timers, "nightly").await, None);
    assert_eq!(next(&mut claims).await.value, 9);
    assert_eq!(
        timers.deadline("nightly").await,
        Ok(None),
        "it has stopped repeating"
    );
}

/// One that waits with its schedule keeps its time otherwise.
#[tokio::test(start_paused = true)]
async fn setting_it_revives_what_was_moved_to_never() {
    let (timers, _claims) = start(store_at(MARCH_28), patient).await;
    set_cron(&timers, "nightly", "30 2 * * *", "UTC").await;
    let moved = timers.move_timer("nightly", Duration::MAX).await;
    assert_eq!(moved, Ok(Moved::Done));
    set_cron(&timers, "nightly", "30 2 * * *", "UTC").await;
    let deadline = timers.deadline("nightly").await;
    assert_eq!(deadline, Ok(Some(at(MARCH_28 + 9_000))));
}

#[tokio::test(start_paused = true)]
async fn refuses_what_it_cannot_keep() {
    let (timers, _claims) = start(store_at(MARCH_28), |b| b).await;
    let expression = "0 0 30 2 *".to_owned();
    let never = timers.set_cron("a", &1, &expression, "UTC").await;
    assert_eq!(
        never,
        Err(Error::Cron(CronError::NeverOccurs { expression }))
    );
    let zone = "Mars/Olympus".to_owned();
    let nowhere = timers.set_cron("a", &1, "0 0 * * *", &zone).await;
    let nowhere = nowhere.expect_err("there is no such zone");
    assert_eq!(
        nowhere.to_string(),
        "there is no time zone \"Mars/Olympus\""
    );
    assert_eq!(nowhere, Error::Cron(CronError::Zone { zone }));
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
}

/// One of two instances does not know the zone. It takes no timer from the other, whichever of the
/// two set, moved or loaded it.
#[tokio::test(start_paused = true)]
async fn unknown_schedule_is_left_to_the_instance_that_knows_it() {
    let store = store_at(MARCH_28);
    let log = Log::default();
    let _capturing = log.capture();
    let ignorant = Other {
        store: store.clone(),
        zone: "Mars/Olympus",
    };
    let (others, mut theirs) = start(ignorant, |b| b).await;
    let (timers, mut claims) = start(store, |b| b).await;
    for key in 0..20 {
        set_cron(&timers, &format!("{key}"), "*/20 * * * * *", "UTC").await;
    }
    let others_claim = tokio::spawn(async move { theirs.recv().await });
    for round in 1..=30 {
        for _ in 0..20 {
            let claim = next(&mut claims).await;
            assert_eq!(claim.deadline, at(MARCH_28 + 20 * round), "none is missed");
            claim.ack().await.expect("it is held");
        }
    }
    assert!(!others_claim.is_finished());
    let late = timers.metrics().lateness.max();
    // The other one had loaded some before it saw their schedule.
    assert!(late <= 2 * SECOND, "{late:?}");
    assert_eq!(
        log.with(&[
            "WARN",
            "*/20 * * * * * Mars/Olympus",
            "left to other instances"
        ]),
        1
    );
    let loaded = others.metrics().loaded;
    assert!(loaded <= 20, "it has loaded {loaded} in vain");
    let left = others.metrics().left_to_others;
    assert!(left <= 20, "it has left {left} to the other");

    // Moved by the one that does not know it, it is marked by it, and fires all the same.
    let moved = others.move_timer("7", SECOND).await;
    assert_eq!(moved, Ok(Moved::Done));
    let claim = next(&mut claims).await;
    assert_eq!((claim.key.as_str(), claim.missed), ("7", 0));
    let removed = others.remove_timer("8").await;
    assert_eq!(removed, Ok(Removed::Done(7)));
}

/// No instance knows the schedule: the timer delays no other one, and is there when an instance
/// starts that knows it.
#[tokio::test(start_paused = true)]
async fn unknown_schedule_waits_for_an_instance_that_knows_it() {
    let store = store_at(MARCH_28);
    let (timers, claims) = start(store.clone(), |b| b).await;
    for key in 0..50 {
        set_cron(&timers, &format!("{key}"), "*/10 * * * * *", "UTC").await;
    }
    timers.shutdown().await;
    drop(claims);
    let ignorant = Other {
        store: store.clone(),
        zone: "Mars/Olympus",
    };
    let (others, mut theirs) = start(ignorant, |b| b.capacity(4)).await;
    for _ in 0..30 {
        let set = others.set_timer("known", &1, SECOND).await;
        set.expect("it is set");
        let claim = next(&mut theirs).await;
        assert_eq!(claim.key, "known");
        claim.ack().await.expect("it is held");
    }
    let late = others.metrics().lateness.max();
    assert!(late <= SECOND, "{late:?}");
    let calls = others.metrics().fire_batches.count;
    assert!(calls < 200, "{calls} calls to fire thirty timers");
    let (timers, mut claims) = start(store, |b| b).await;
    for _ in 0..50 {
        let claim = next(&mut claims).await;
        assert_eq!((claim.deadline, claim.missed), (at(MARCH_28 + 10), 2));
    }
    assert_eq!(timers.counts().await.expect("it counts").waiting, 50);
}

/// A backlog that is fired without being loaded has rows with schedules in it.
#[tokio::test(start_paused = true)]
async fn backlog_of_both_kinds_is_delivered() {
    let store = store_at(MARCH_28);
    let (timers, claims) = start(store.clone(), |b| b).await;
    for key in 0..300 {
        set(&timers, &format!("once {key}"), 30 * SECOND).await;
        set_cron(&timers, &format!("cron {key}"), "* * * * *", "UTC").await;
    }
    timers.shutdown().await;
    drop(claims);
    sleep(90 * SECOND).await;
    let (timers, mut claims) = start(store, |b| b.capacity(16)).await;
    let mut keys = std::collections::BTreeSet::new();
    while keys.len() < 600 {
        let claim = next(&mut claims).await;
        assert_eq!(claim.attempt, 1);
        sleep(Duration::from_millis(20)).await;
        assert!(keys.insert(claim.key.clone()), "{claim:?}");
        claim.ack().await.expect("it is held");
    }
    assert_eq!(timers.counts().await.expect("it counts").waiting, 300);
}

#[tokio::test(start_paused = true)]
async fn interval_begins_at_an_instant() {
    let (timers, mut claims) = start(store_at(MARCH_28 + 5_000), patient).await;
    // Ahead, and long ago.
    for (key, first, due) in [
        ("ahead", at(MARCH_28 + 9_000), 9_000),
        ("ago", at(MARCH_28 - 80 * 86_400 + 600), 86_400 + 600),
    ] {
        let set = timers.set_interval_at(key, &1, first, DAY).await;
        set.expect("it is set");
        let deadline = timers.deadline(key).await.expect("it reads");
        assert_eq!(deadline, Some(at(MARCH_28 + due)), "{key}");
    }
    for due in [9_000, 86_400 + 600, 86_400 + 9_000, 2 * 86_400 + 600] {
        let claim = next_day(&mut claims).await;
        assert_eq!(claim.deadline, at(MARCH_28 + due));
        claim.ack().await.expect("it is held");
    }
    let short = timers
        .set_interval_at("short", &1, at(0), Duration::ZERO)
        .await;
    assert!(matches!(short, Err(Error::Period { .. })), "{short:?}");
}

/// A store in which the zone `UTC` has another name, which the instance may not know.
struct Other {
    store: Memory,
    zone: &'static str,
}

impl Other {
    fn of(&self, _: &Namespace) -> &Memory {
        &self.store
    }

    fn renamed(&self, schedule: &mut String) {
        *schedule = schedule.replace("UTC", self.zone);
    }

    fn known(&self, schedules: &mut Schedules) {
        if let Schedules::AllBut(unknown) = schedules {
            for schedule in unknown {
                *schedule = schedule.replace(self.zone, "UTC");
            }
        }
    }
}

impl Store for Other {
    pass_on!(of);

    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    fn load(&self, namespace: &Namespace, mut request: Load) -> Answer<'_, Loaded> {
        let namespace = namespace.clone();
        Box::pin(async move {
            self.known(&mut request.schedules);
            let mut loaded = self.store.load(&namespace, request).await?;
            for row in &mut loaded.scheduled {
                self.renamed(&mut row.schedule);
            }
            Ok(loaded)
        })
    }
    fn fire(&self, namespace: &Namespace, mut request: Fire) -> Answer<'_, FireReport> {
        let namespace = namespace.clone();
        Box::pin(async move {
            self.known(&mut request.schedules);
            let mut report = self.store.fire(&namespace, request).await?;
            for row in &mut report.scheduled {
                self.renamed(&mut row.schedule);
            }
            Ok(report)
        })
    }
}

/// The first time was computed from a clock that an idle program had last heard an hour before.
#[tokio::test(start_paused = true)]
async fn first_time_is_after_now_for_a_program_that_only_sets() {
    let store = store_at(MARCH_28);
    let (timers, claims) = start(store.clone(), |builder| builder).await;
    drop(claims);
    sleep(2 * MINUTE).await;
    let now = MARCH_28 + 34_200;
    store.set_clock(at(now));
    set_cron(&timers, "a", "0 0 9 * * *", "UTC").await;
    let first = timers.deadline("a").await.expect("it reads");
    assert_eq!(first, Some(at(MARCH_28 + 86_400 + 32_400)));
    sleep(2 * MINUTE).await;
    store.set_clock(at(now + 3_600));
    let hour = Duration::from_secs(3_600);
    let set = timers.set_interval_at("b", &1, at(MARCH_28), hour).await;
    set.expect("it is set");
    let first = timers.deadline("b").await.expect("it reads");
    assert_eq!(first, Some(at(MARCH_28 + 11 * 3_600)));
}

/// Regression: the search for the first time of an expression kept the runtime's thread from its
/// timers, for seconds if clocks leave out all of its times.
#[tokio::test]
async fn first_time_is_looked_for_on_another_thread() {
    let only_one = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    let only_one = only_one.expect("it is built");
    let tried = std::thread::spawn(move || {
        only_one.block_on(async {
            let (timers, _claims) = start(Memory::new(), |builder| builder).await;
            let (release, released) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let setting = timers.set_cron("a", &7, "* * 2 8-14 3 +SUN", "America/New_York");
            let mut setting = std::pin::pin!(setting);
            // Everything else goes on meanwhile.
            for _ in 0..20 {
                let early = timeout(Duration::from_millis(5), &mut setting).await;
                early.expect_err("the search waits for a thread");
                let set = timers.set_timer("b", &8, HOUR).await;
                set.expect("it is set");
            }
            drop(release);
            busy.await.expect("it ends").expect_err("nothing was sent");
            setting.await
        })
    });
    let never = tried.join().expect("it ends").expect_err("it is refused");
    let expression = "* * 2 8-14 3 +SUN".to_owned();
    assert_eq!(never, Error::Cron(CronError::NeverOccurs { expression }));
}
