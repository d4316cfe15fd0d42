//! The traces of the explorer, on a clock of the tests' own in front of the built-in one.

use std::sync::Arc;
use std::time::SystemTime;

use tickwheel_durable_conformance::explorer::replay_on_clock;
use tickwheel_durable_conformance::{Pace, World};

use crate::Database;
use crate::server;

/// The built-in functions step aside, because the server knows these by their numbers.
const CLOCK: &str = "
    CREATE TABLE public.test_clock (at timestamptz NOT NULL);
    INSERT INTO public.test_clock VALUES (now());
    ALTER FUNCTION pg_catalog.now() RENAME TO real_now;
    ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO real_clock_timestamp;
    CREATE FUNCTION pg_catalog.now() RETURNS timestamptz STABLE LANGUAGE sql
        AS 'SELECT at FROM public.test_clock';
    CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
        AS 'SELECT at FROM public.test_clock'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_each_transition_are_those_of_memory() {
    let Some(url) = server::database("explored").await else {
        return server::missing();
    };
    let client = Arc::new(server::client(&url).await);
    client.batch_execute(CLOCK).await.expect("it has a clock");
    let set_clock = move |time: SystemTime| {
        let client = Arc::clone(&client);
        async move {
            let set = "UPDATE public.test_clock SET at = $1";
            client.execute(set, &[&time]).await.expect("it is set");
        }
    };
    let world = World::new(Database(url), Pace::default());
    let traces = replay_on_clock(&world, set_clock).await;
    println!("{traces} traces");
    assert!(traces > 500, "{traces} traces");
}
