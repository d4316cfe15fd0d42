//! Every way in which code resets a pinned sleep of Tokio's, compiled for both. `reset` once took
//! `&mut self`, and most of these did not compile.

use std::pin::pin;

use crate::support::ms;
use tickwheel::time::Instant;

/// The forms, with the `time` of one side.
macro_rules! side {
    ($side:ident, $time:path) => {
        mod $side {
            use std::future::Future;
            use std::pin::{Pin, pin};
            use std::task::{Context, Poll};

            use self::time::Sleep;
            use crate::support::ms;
            use pin_project_lite::pin_project;
            use tokio::time::Instant;
            use $time as time;

            pin_project! {
                pub(super) struct Projected {
                    #[pin]
                    sleep: Sleep,
                    #[pin]
                    other: Option<Sleep>,
                }
            }

            impl Projected {
                fn reset(self: Pin<&mut Self>, at: Instant) {
                    let mut this = self.project();
                    this.sleep.reset(at);
                    if let Some(other) = this.other.as_mut().as_pin_mut() {
                        other.reset(at);
                    }
                }
            }

            impl Future for Projected {
                type Output = ();

                fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
                    let mut this = self.project();
                    let other = this.other.as_mut().as_pin_mut();
                    if other.is_some_and(|other| other.poll(cx).is_pending()) {
                        return Poll::Pending;
                    }
                    this.sleep.poll(cx)
                }
            }

            fn by_argument(sleep: Pin<&mut Sleep>, at: Instant) {
                sleep.reset(at);
            }

            fn by_path(sleep: Pin<&mut Sleep>, at: Instant) {
                Sleep::reset(sleep, at);
            }

            /// Resets a sleep in each way, each to 10 ms after the one before. Returns when they
            /// completed.
            pub(super) async fn run() -> Vec<Instant> {
                let mut at = Instant::now();
                let mut completed = Vec::new();
                let mut next = || {
                    at += ms(10);
                    at
                };

                let mut projected = pin!(Projected {
                    sleep: time::sleep(ms(1)),
                    other: Some(time::sleep(ms(1))),
                });
                projected.as_mut().reset(next());
                projected.await;
                completed.push(Instant::now());

                let mut pinned = pin!(time::sleep(ms(1)));
                let forms: [fn(Pin<&mut Sleep>, Instant); 3] = [by_argument, by_path, Sleep::reset];
                for reset in forms {
                    reset(pinned.as_mut(), next());
                    pinned.as_mut().await;
                    completed.push(Instant::now());
                }

                let mut boxed = Box::pin(time::sleep(ms(1)));
                boxed.as_mut().reset(next());
                boxed.as_mut().await;
                completed.push(Instant::now());

                let mut kept = Some(boxed);
                if let Some(boxed) = &mut kept {
                    boxed.as_mut().reset(next());
                    boxed.await;
                    completed.push(Instant::now());
                }
                completed
            }
        }
    };
}

side!(ours, tickwheel::time);
side!(tokios, tokio::time);

#[tokio::test(start_paused = true)]
async fn sleep_is_reset_in_every_form_of_tokio() {
    let start = Instant::now();
    let ours: Vec<_> = ours::run().await.iter().map(|&at| at - start).collect();
    let start = Instant::now();
    let tokios: Vec<_> = tokios::run().await.iter().map(|&at| at - start).collect();
    assert_eq!(ours, tokios);
}

#[tokio::test(start_paused = true)]
async fn sleep_without_a_pin_takes_a_new_deadline() {
    let start = Instant::now();
    let mut sleep = tickwheel::time::sleep(ms(5));
    sleep.set_deadline(start + ms(20));
    (&mut sleep).await;
    assert_eq!(start.elapsed(), ms(20));
    sleep.set_deadline(start + ms(30));
    let sleep = pin!(sleep);
    sleep.await;
    assert_eq!(start.elapsed(), ms(30));
}
