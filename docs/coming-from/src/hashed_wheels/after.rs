use tickwheel::{Expirations, KeyedTimers, TimerWheel};

/// `execute` runs for each timer that expires, eight at once, as go-zero's `execute` and Netty's
/// `TimerTask` do.
pub fn start<F>(
    wheel: &TimerWheel,
    mut execute: impl FnMut(String, u32) -> F + Send + 'static,
) -> KeyedTimers<String, u32>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (timers, mut expirations): (_, Expirations<String, u32>) = wheel.keyed();
    tokio::spawn(async move {
        expirations
            .dispatch(8, |expired| execute(expired.key, expired.value))
            .await;
    });
    timers
}
