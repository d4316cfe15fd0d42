use std::io;
use std::time::Duration;

pub async fn fetch(limit: Duration, request: impl Future<Output = u32>) -> io::Result<u32> {
    let answer = tickwheel::time::timeout(limit, request).await;
    Ok(answer?)
}

pub async fn pause(length: Duration) {
    tickwheel::time::sleep(length).await;
}
