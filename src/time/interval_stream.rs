//! The ticks of an interval as a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};
use tokio::time::Instant;

use crate::sleep::Interval;

/// The ticks of an [`Interval`] as a [`Stream`] that does not end, like
/// `tokio_stream::wrappers::IntervalStream`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use futures::StreamExt;
/// use tickwheel::time::{self, Instant, IntervalStream};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = Instant::now();
/// let period = Duration::from_secs(1);
/// let ticks: Vec<Instant> = IntervalStream::new(time::interval(period)).take(3).collect().await;
/// assert_eq!(ticks, [start, start + period, start + 2 * period]);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "streams do nothing unless they are polled"]
pub struct IntervalStream {
    interval: Interval,
}

impl IntervalStream {
    /// Makes a stream of the interval's ticks.
    pub fn new(interval: Interval) -> Self {
        IntervalStream { interval }
    }

    /// Takes the interval back.
    pub fn into_inner(self) -> Interval {
        self.interval
    }
}

impl Stream for IntervalStream {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.interval.poll_tick(cx).map(Some)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl FusedStream for IntervalStream {
    /// It does not end.
    fn is_terminated(&self) -> bool {
        false
    }
}

impl AsRef<Interval> for IntervalStream {
    fn as_ref(&self) -> &Interval {
        &self.interval
    }
}

impl AsMut<Interval> for IntervalStream {
    fn as_mut(&mut self) -> &mut Interval {
        &mut self.interval
    }
}
