//! The store that fails on demand.

use std::time::Duration;

use tickwheel_durable::store::{Action, Due, Namespace, Store, Terms, Write};
use tickwheel_durable::{Charter, Memory};
use tickwheel_durable_conformance::Faulty;
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);

/// Regression: it failed, and returned so, or was late and took effect.
#[tokio::test(start_paused = true)]
async fn call_of_a_killed_instance_neither_returns_nor_takes_effect() {
    let (memory, space) = (Memory::new(), Namespace::new("a").expect("it is a name"));
    let opened = memory.open(&space, &Charter::new("test")).await;
    opened.expect("it opens");
    let set: [fn(&Faulty<Memory>); 4] = [
        |_| {},
        |faults| faults.set_failing(Some("write")),
        |faults| faults.set_losing(Some("write")),
        |faults| faults.set_late(Some(("write", SECOND))),
    ];
    for set in set {
        let faults = Faulty::new(memory.clone());
        set(&faults);
        faults.kill();
        let action = Action::set(b"1".to_vec(), Due::In(SECOND), None, false);
        let writes = vec![Write::new(b"a".to_vec(), action)];
        let written = timeout(9 * SECOND, faults.write(&space, writes, Terms::NONE)).await;
        assert!(written.is_err(), "{written:?}");
        assert_eq!(memory.count(&space).await.expect("it counts").waiting, 0);
    }
}

#[test]
#[should_panic(expected = "\"lode\"")]
fn name_of_no_call_panics() {
    Faulty::new(Memory::new()).set_failing(Some("lode"));
}
