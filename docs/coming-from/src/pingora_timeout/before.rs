use std::io;
use std::time::Duration;

pub async fn fetch(limit: Duration, request: impl Future<Output = u32>) -> io::Result<u32> {
    let answer = pingora_timeout::timeout(limit, request).await;
    answer.map_err(|_| io::ErrorKind::TimedOut.into())
}

pub async fn pause(length: Duration) {
    pingora_timeout::sleep(length).await;
}
