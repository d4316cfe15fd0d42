//! Switching a program from `tokio::time`, and the edits that take more than a line. Documentation
//! only; its example is a test.
//!
//! Most files need one edit: `use tokio::time` becomes `use tickwheel::time`. Types that a program
//! names without a `use` change in the same way:
//!
//! ```sh
//! cargo add tickwheel && cargo add --dev tickwheel --features test-util
//! grep -rlZ --include='*.rs' 'tokio::time' src tests | xargs -0 perl -pi -e 's/\btokio::time\b/tickwheel::time/g'
//! ```
//!
//! | the code has | edit |
//! |---|---|
//! | `use tokio::{net::TcpStream, time};` | two lines: `use tokio::net::TcpStream;` and `use tickwheel::time;` |
//! | `Elapsed` in a signature, an enum or a `From` | its path; convert Tokio's own `Elapsed`, which other crates return, [as below](#elapsed) |
//! | a public function that takes or returns a `Sleep`, `Interval` or `Timeout` | none: keep Tokio's timer there, or release a breaking version |
//! | `IntervalStream` of `tokio-stream` | [`time::IntervalStream`](crate::time::IntervalStream) |
//! | `FutureExt::timeout` of `tokio-util` | [`time::ext::FutureExt`](crate::time::ext::FutureExt) |
//! | `DelayQueue` of `tokio-util` | none, or [keyed timers](mod@crate::guide#keyed-timers) |
//! | `pause`, `advance` or `resume` in tests | the feature `test-util` for the development dependency, as above |
//! | a sleep of zero or of nanoseconds in a loop | a sleep of a millisecond, or `yield_now`: [it does not wait](#loops-that-sleep-for-zero) |
//!
//! In the repository, `docs/switching/rule.pl` makes the first two edits, and `docs/switching` has
//! a table of published crates, with their own tests run before and after them. [Coming
//! from](super::coming_from) is for those who use other timers.
//!
//! # Loops that sleep for zero
//!
//! ```ignore
//! while !is_ready() {
//!     sleep(Duration::ZERO).await;
//! }
//! ```
//!
//! Tokio's sleep waits for the next millisecond, so this loop runs some 800 times a second. A sleep
//! of the wheel whose deadline has passed is ready at its first poll: the loop runs hundreds of
//! thousands of times a second, and keeps a processor busy. Other tasks run nevertheless, since a
//! sleep that is ready takes a unit of the task's cooperative budget, as Tokio's does. Write the
//! pause that the loop needs, such as `sleep(Duration::from_millis(1))`. The same holds for sleeps
//! of nanoseconds, and for deadlines that have passed.
//!
//! # Elapsed
//!
//! ```
//! use tickwheel::time::error::Elapsed; // was `tokio::time::error::Elapsed`
//! use tickwheel::time::{Duration, timeout};
//!
//! #[derive(Debug)]
//! enum Failure {
//!     TooSlow(Elapsed),
//! }
//!
//! impl From<Elapsed> for Failure {
//!     fn from(elapsed: Elapsed) -> Self {
//!         Failure::TooSlow(elapsed)
//!     }
//! }
//!
//! /// A function of a crate that uses Tokio's timers.
//! async fn connect() -> Result<u32, tokio::time::error::Elapsed> {
//!     tokio::time::timeout(Duration::from_secs(1), std::future::pending()).await
//! }
//!
//! async fn fetch() -> Result<u32, Failure> {
//!     let answer = timeout(Duration::from_secs(5), connect()).await?;
//!     Ok(answer.map_err(Elapsed::from)?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! assert!(matches!(fetch().await, Err(Failure::TooSlow(_))));
//! # }
//! ```
