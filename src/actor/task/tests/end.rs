//! Late timers, and the actor's end.

use super::warnings::Warnings;
use super::*;

// --- being late ---

#[tokio::test(start_paused = true)]
async fn warns_of_being_late_once_in_ten_seconds() {
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    let (mut actor, wheel) = start_with(ms(100));
    let mut late_by = |late: u64| {
        let sleep = armed(&wheel, ms(1));
        assert_eq!(step(&mut actor), "wait");
        jump(ms(1 + late));
        assert_eq!(step(&mut actor), "wait");
        assert!(sleep.is_elapsed());
        warnings.count()
    };
    assert_eq!(late_by(100), 0, "that is not too late yet");
    assert_eq!(late_by(101), 1);
    assert_eq!(late_by(4_999), 1);
    assert_eq!(
        late_by(4_998),
        1,
        "a millisecond less than ten seconds after"
    );
    assert_eq!(late_by(101), 2);
    assert_eq!(late_by(4_999), 2);
    assert_eq!(late_by(4_999), 3, "ten seconds after");
}

// --- the end ---

struct SawTheEnd(Arc<Shared>, std::sync::Mutex<Vec<bool>>);

impl Wake for SawTheEnd {
    fn wake(self: Arc<Self>) {
        self.1.lock().expect("no panic").push(self.0.is_ended());
    }
}

#[tokio::test(start_paused = true)]
async fn has_ended_only_when_all_are_woken() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let saw = Arc::new(SawTheEnd(Arc::clone(&shared), std::sync::Mutex::default()));
    let waker = Waker::from(Arc::clone(&saw));
    let mut on_the_wheel = wheel.sleep(ms(5));
    assert!(poll(&mut on_the_wheel, &waker).is_pending());
    assert_eq!(step(&mut actor), "wait");
    let mut in_a_queue = wheel.sleep(ms(5));
    assert!(poll(&mut in_a_queue, &waker).is_pending());
    drop(actor);
    assert_eq!(*saw.1.lock().expect("no panic"), [false, false]);
    assert!(shared.is_ended());
}

#[tokio::test(start_paused = true)]
async fn sweeps_cancelled_sleeps_in_bounded_turns() {
    let (mut actor, wheel) = start();
    let mut sleeps: Vec<_> = (0..9_000).map(|_| Some(armed(&wheel, FAR))).collect();
    while step(&mut actor) == "again" {}
    for n in [0, 4_095, 4_096, 8_191, 8_192, 8_999] {
        // This thread keeps its entry for the next sleep.
        sleeps[n] = None;
    }
    assert_eq!(actor.items(), 9_000);
    drop(wheel);
    for (after, end) in [
        (9_000, "again"),
        (8_998, "again"),
        (8_996, "again"),
        (8_994, "wait"),
    ] {
        assert_eq!(step(&mut actor), end);
        assert_eq!(actor.items(), after);
    }
    assert_eq!(actor.sweep, Sweep::None);
    drop(sleeps);
    assert_eq!(step(&mut actor), "again");
    while step(&mut actor) == "again" {}
    assert_eq!(step(&mut actor), "end");
    assert!(actor.is_unused());
}

#[tokio::test(start_paused = true)]
async fn actor_waits_after_a_sweep_of_exactly_its_limit() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..4_096).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "wait");
    drop(wheel);
    assert_eq!(step(&mut actor), "again", "it sweeps next");
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.sweep, Sweep::None);
}

#[tokio::test(start_paused = true)]
async fn ends_by_command_or_without_handles_and_timers() {
    let (mut actor, wheel) = start();
    assert_eq!(step(&mut actor), "wait");
    drop(wheel);
    assert_eq!(step(&mut actor), "again", "it sweeps next");
    assert_eq!(step(&mut actor), "end");

    let (mut actor, wheel) = start();
    let _sleep = armed(&wheel, ms(3));
    drop(wheel);
    assert_eq!(step(&mut actor), "again", "it sweeps next");
    assert_eq!(step(&mut actor), "wait");
    jump(ms(3));
    assert_eq!(step(&mut actor), "end");

    let (mut actor, wheel) = start();
    let _sleep = armed(&wheel, ms(3));
    let shared = Arc::clone(wheel.shared());
    assert!(shared.send(0, Request::Shutdown).is_ok());
    assert_eq!(step(&mut actor), "end");
}
