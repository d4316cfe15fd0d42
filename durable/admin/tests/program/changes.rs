//! Changes of all timers in a state.

use std::time::SystemTime;

use super::HOUR;
use super::support::{File, counted, kill_timers, run, set};

/// A change of all is of all in its state: none of the others, dead ones least of all.
#[tokio::test]
async fn all_chooses_the_timers_in_the_state_that_is_changed() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["dead"], "poison").await;
    let (timers, mut claims) = instance;
    set(&timers, &["a", "b"], HOUR).await;
    let changed = |arguments: &[&str]| {
        let all = [arguments, &["--all", "--yes", "--json"]].concat();
        run(&file, &all).json()["changed"].clone()
    };
    assert_eq!(changed(&["move", "--in", "2h"]), 2);
    for key in ["a", "b"] {
        let deadline = timers.deadline(key).await.expect("it reads");
        assert!(deadline.expect("it waits") > SystemTime::now() + HOUR * 3 / 2);
    }
    assert_eq!(changed(&["run"]), 2);
    let mut both = [claims.recv().await, claims.recv().await].map(|claim| claim.expect("it comes"));
    both.sort_by(|one, other| one.key.cmp(&other.key));
    let [a, b] = both;
    assert_eq!((a.key.as_str(), b.key.as_str()), ("a", "b"));
    assert_eq!(counted(&timers).await, [0, 2, 1]);

    // Claims are chosen by key, too.
    let released = run(&file, &["release", "a"]);
    assert_eq!(released.code, 0, "{released:?}");
    let again = claims.recv().await.expect("it comes again");
    assert_eq!((again.key.as_str(), again.attempt), ("a", 2));
    a.ack().await.expect_err("it was released");
    let acknowledged = run(&file, &["acknowledge", "b", "--yes"]);
    assert_eq!(acknowledged.code, 0, "{acknowledged:?}");
    b.ack().await.expect_err("it was acknowledged");
    assert_eq!(counted(&timers).await, [0, 1, 1]);

    set(&timers, &["c"], HOUR).await;
    assert_eq!(changed(&["remove"]), 1);
    assert_eq!(counted(&timers).await, [0, 1, 1]);
    again.ack().await.expect("it is held");
    let shown = run(&file, &["show", "dead", "--json"]).json();
    assert_eq!(shown["timers"][0]["state"], "dead");
}
