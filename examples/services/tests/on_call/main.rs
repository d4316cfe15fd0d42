//! Each alert of `docs/on-call` fires when its cause is there, no other does, and it stops when the
//! cause has gone. The dashboard asks for metrics that exist.
//!
//! A program runs for more than an hour of a paused clock and is scraped four times a minute.
//! `promtool` applies the rules to what was scraped.

mod monitor;
#[path = "../../../../durable/tests/support/not_run.rs"]
mod not_run;
mod program;
mod promtool;

use std::time::Duration;

use tickwheel_durable::store::{Namespace, Store as _};
use tickwheel_durable::{Memory, builder};
use tickwheel_durable_conformance::FaultPoint;
use tokio::sync::watch;
use tokio::time::sleep;

use monitor::Monitor;
use program::{
    Consumer, FIRED, HEALTHY, INTERVAL, Mode, Program, RECOVERED, ROUNDS, scrape_rounds,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Runs a program, and its handlers go over to `mode` for a while; `alert` fires then, and only it.
async fn fires_alone(alert: &str, mode: Mode) {
    let (modes, mode_now) = watch::channel(Mode::Quick);
    let mut program = Program::start(Memory::new(), Consumer::Dispatch, mode_now).await;
    program.run(HEALTHY).await;
    modes.send_replace(mode);
    program.run(FIRED).await;
    modes.send_replace(Mode::Quick);
    program.run(RECOVERED).await;
    program.scrapes.assert_fires(alert);
}

#[tokio::test(start_paused = true)]
async fn healthy_program_fires_no_alert() {
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(Memory::new(), Consumer::Dispatch, mode).await;
    program.run(ROUNDS).await;
    program.scrapes.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn late_wheel_fires_its_alert_only() {
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(Memory::new(), Consumer::Dispatch, mode).await;
    program.run(HEALTHY).await;
    // As if its threads stood still for most of the time.
    program.run_in_jumps(FIRED).await;
    program.run(RECOVERED).await;
    program.scrapes.assert_fires("TickwheelLate");
}

#[tokio::test(start_paused = true)]
async fn wheel_that_takes_no_turns_fires_its_alert_only() {
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(Memory::new(), Consumer::Dispatch, mode).await;
    program.run(HEALTHY).await;
    program.wheel.shutdown().await;
    program.run(FIRED).await;
    program.scrapes.assert_fires("TickwheelStopped");
}

#[tokio::test(start_paused = true)]
async fn store_that_is_away_fires_its_alert_only() {
    let store = program::Faulty::new(Memory::new());
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(store.clone(), Consumer::Dispatch, mode).await;
    program.run(HEALTHY).await;
    store.set_away(true);
    program.run(FIRED).await;
    store.set_away(false);
    program.run(RECOVERED).await;
    program.scrapes.assert_fires("TickwheelDurableFailing");
}

#[tokio::test(start_paused = true)]
async fn instance_that_differs_from_its_charter_fires_its_alert_only() {
    let store = Memory::new();
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(store.clone(), Consumer::Dispatch, mode).await;
    program.run(HEALTHY).await;
    let admin = program.timers.admin();
    let as_before = admin.charter().await.expect("there is one");
    let mut other = as_before.clone();
    other.no_overlap = true;
    admin.amend(&other).await.expect("it can be amended");
    program.run(FIRED).await;
    admin.amend(&as_before).await.expect("it can be amended");
    program.run(RECOVERED).await;
    program.scrapes.assert_fires("TickwheelDurableDiffers");
}

#[tokio::test(start_paused = true)]
async fn slow_store_fires_the_alert_of_lateness_only() {
    let store = program::Faulty::new(Memory::new());
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(store.clone(), Consumer::Dispatch, mode).await;
    program.run(HEALTHY).await;
    store.set_delay(Duration::from_secs(4));
    program.run(FIRED).await;
    store.set_delay(Duration::ZERO);
    program.run(RECOVERED).await;
    program.scrapes.assert_fires("TickwheelDurableLate");
}

#[tokio::test(start_paused = true)]
async fn handlers_that_cannot_keep_up_fire_their_alert_only() {
    fires_alone("TickwheelDurableOverloaded", Mode::Slow).await;
}

/// Programs that ended, or do not start: no series is left to compare.
#[tokio::test(start_paused = true)]
async fn instances_that_are_gone_fire_their_alert_only() {
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(Memory::new(), Consumer::Dispatch, mode).await;
    program.run(HEALTHY).await;
    for _ in 0..FIRED {
        program.scrapes.add("");
    }
    program.run(RECOVERED).await;
    program.scrapes.assert_fires("TickwheelDurableGone");
}

/// As the server of an operator sees it, which no program reports to.
#[tokio::test(start_paused = true)]
async fn due_timers_that_no_instance_fires_fire_their_alert_only() {
    let store = Memory::new();
    let (_modes, mode) = watch::channel(Mode::Quick);
    let first = Program::start(store.clone(), Consumer::Dispatch, mode.clone()).await;
    let mut monitor = Monitor::new(store.clone());
    monitor.run(HEALTHY).await;
    // It goes on setting timers.
    first.timers.shutdown().await;
    monitor.run(FIRED).await;
    let _second = Program::start(store, Consumer::Dispatch, mode).await;
    monitor.run(RECOVERED).await;
    monitor.scrapes.assert_fires("TickwheelStoreOverdue");
}

#[tokio::test(start_paused = true)]
async fn store_that_an_operator_cannot_read_fires_its_alert_only() {
    // As a whole, and one namespace of two.
    for is_whole in [true, false] {
        let store = program::Faulty::new(Memory::new());
        let (_modes, mode) = watch::channel(Mode::Quick);
        let _program = Program::start(store.clone(), Consumer::Dispatch, mode).await;
        let other = Namespace::new("other").expect("it is a name");
        let opened = store.open(&other, &"json".into()).await;
        opened.expect("it opens");
        let mut monitor = Monitor::new(store.clone());
        monitor.run(HEALTHY).await;
        for _ in 0..FIRED {
            sleep(INTERVAL).await;
            let failing = is_whole.then_some("count");
            store.set_failing(failing);
            if !is_whole {
                store.fail_at(store.calls(), FaultPoint::Before);
            }
            monitor.scrape().await;
            store.set_failing(None);
        }
        monitor.run(RECOVERED).await;
        monitor.scrapes.assert_fires("TickwheelStoreUnread");
    }
}

#[tokio::test(start_paused = true)]
async fn server_of_an_operator_that_is_gone_fires_its_alert_only() {
    let store = Memory::new();
    let (_modes, mode) = watch::channel(Mode::Quick);
    let _program = Program::start(store.clone(), Consumer::Dispatch, mode).await;
    let mut monitor = Monitor::new(store);
    monitor.run(HEALTHY).await;
    for _ in 0..FIRED {
        monitor.scrapes.add("");
    }
    monitor.run(RECOVERED).await;
    monitor.scrapes.assert_fires("TickwheelStoreGone");
}

/// The latest call of a kind may have failed a day ago.
#[test]
fn call_that_failed_long_ago_hides_no_alert() {
    let mut scrapes = promtool::Scrapes::default();
    for round in 0..HEALTHY + FIRED {
        let due = if round < HEALTHY { 0 } else { 9 };
        scrapes.add(&format!(
            "tickwheel_durable_due{{namespace=\"orders\"}} {due}
            tickwheel_durable_failing{{namespace=\"orders\",call=\"settle\"}} 1
            tickwheel_durable_store_errors_total{{namespace=\"orders\"}} 2"
        ));
    }
    scrapes.assert_fires("TickwheelDurableOverloaded");
}

/// The scrapes of a program, one in `every` rounds. By a round, `number` of its writes have failed.
fn writes_that_fail(every: usize, number: impl Fn(usize) -> usize) -> promtool::Scrapes {
    let mut scrapes = promtool::Scrapes::default();
    for round in 0..HEALTHY + FIRED {
        let (number, is_scraped) = (number(round), round % every == 0);
        let page = format!(
            "tickwheel_durable_failing{{namespace=\"orders\",call=\"write\"}} {}
            tickwheel_durable_store_errors_total{{namespace=\"orders\"}} {number}",
            number.min(1)
        );
        scrapes.add(if is_scraped { &page } else { "" });
    }
    scrapes
}

/// A failover met the only write of ten minutes, and nothing had cleared it when it was long over.
#[test]
fn write_that_failed_once_fires_no_alert() {
    for every in [1, scrape_rounds(MINUTE)] {
        for minutes in [3, 4] {
            let begins = HEALTHY + FIRED - scrape_rounds(minutes * MINUTE);
            let failed = |round| usize::from(round >= begins);
            writes_that_fail(every, failed).assert_quiet();
        }
    }
}

#[test]
fn old_snapshot_fires_its_alert_only() {
    let mut scrapes = promtool::Scrapes::default();
    for round in 0..HEALTHY + FIRED {
        let age = if round < HEALTHY { 3_000 } else { 4_000 };
        scrapes.add(&format!(
            "tickwheel_durable_oldest_snapshot_seconds{{namespace=\"orders\"}} {age}"
        ));
    }
    scrapes.assert_fires("TickwheelDurableOldSnapshot");
}

/// By default Prometheus scrapes once a minute, and no minute had two scrapes to compare.
#[test]
fn writes_that_go_on_failing_fire_their_alert_only() {
    for every in [1, scrape_rounds(MINUTE)] {
        let failed = |round: usize| round.saturating_sub(HEALTHY);
        writes_that_fail(every, failed).assert_fires("TickwheelDurableFailing");
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_that_fail_for_good_fire_their_alert_only() {
    fires_alone("TickwheelDurableDead", Mode::Fails).await;
}

#[tokio::test(start_paused = true)]
async fn handlers_that_sometimes_hang_fire_their_alert_only() {
    fires_alone("TickwheelDurableTimedOut", Mode::SometimesHangs).await;
}

/// A program whose store becomes what `change` makes of it, and of what it was a minute before.
async fn program_whose_store_changes(change: impl FnOnce(&Memory, &Memory)) -> Program {
    let store = Memory::new();
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(store.clone(), Consumer::Dispatch, mode).await;
    // The alert fires for a quarter of an hour after it.
    let fires_for = scrape_rounds(5 * MINUTE);
    program
        .run(HEALTHY + FIRED - fires_for - scrape_rounds(MINUTE))
        .await;
    let earlier = store.fork();
    program.run(scrape_rounds(MINUTE)).await;
    change(&store, &earlier);
    program.run(fires_for + RECOVERED).await;
    program
}

#[tokio::test(start_paused = true)]
async fn store_that_returns_to_an_earlier_state_fires_its_alert_only() {
    let program = program_whose_store_changes(Memory::restore).await;
    program.scrapes.assert_fires("TickwheelDurableReturned");
}

#[tokio::test(start_paused = true)]
async fn store_that_is_emptied_fires_its_alert_only() {
    let empty = |store: &Memory, _: &Memory| store.restore(&Memory::new());
    let program = program_whose_store_changes(empty).await;
    program.scrapes.assert_fires("TickwheelDurableEmptied");
}

#[tokio::test(start_paused = true)]
async fn claims_held_for_too_long_fire_their_alert_only() {
    let (modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(Memory::new(), Consumer::Receive, mode).await;
    program.run(HEALTHY).await;
    modes.send_replace(Mode::Slow);
    program.run(FIRED).await;
    modes.send_replace(Mode::Quick);
    program.run(RECOVERED).await;
    program.scrapes.assert_fires("TickwheelDurableLost");
}

#[tokio::test(start_paused = true)]
async fn values_of_another_version_fire_their_alert_only() {
    let store = Memory::new();
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(store.clone(), Consumer::Dispatch, mode).await;
    // A later version of the program, which sets texts and takes no timers.
    let later = builder::<String, String>(program::NAMESPACE);
    let (later, _claims) = later.start(&program.wheel, store).await.expect("it starts");
    program.run(HEALTHY).await;
    let setting = tokio::spawn(async move {
        for number in 0_u32.. {
            let key = format!("text {number}");
            let set = later.set_timer(&key, &key, Duration::from_secs(10)).await;
            set.expect("it is set");
            sleep(MINUTE).await;
        }
    });
    program.run(FIRED).await;
    setting.abort();
    program.run(RECOVERED).await;
    program.scrapes.assert_fires("TickwheelDurableUndecoded");
}

/// Each panel's questions can be parsed, and ask for metrics that a healthy program publishes.
#[tokio::test(start_paused = true)]
async fn dashboard_asks_for_metrics_that_exist() {
    let (_modes, mode) = watch::channel(Mode::Quick);
    let mut program = Program::start(Memory::new(), Consumer::Dispatch, mode).await;
    program.run(scrape_rounds(MINUTE)).await;
    program.scrapes.assert_answers_dashboard();
}

#[test]
fn page_has_a_section_for_every_alert() {
    let rules = include_str!("../../../../docs/on-call/alerts.yml");
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let page = include_str!("../../../../docs/on-call/README.md");
    let sections = page
        .lines()
        .filter_map(|line| line.strip_prefix("## Tickwheel"));
    let sections = sections.map(|name| format!("Tickwheel{name}"));
    assert_eq!(alerts.collect::<Vec<_>>(), sections.collect::<Vec<_>>());
}
