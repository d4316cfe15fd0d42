//! Clients that are slow or silent.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::HOUR;
use super::server::Server;
use super::support::{File, counted, set};

/// Regression: a client that asks and does not read kept its place forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_does_not_read_is_cut() {
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    let large = "x".repeat(900_000);
    let set = timers.set_timer("large", &large, HOUR).await;
    set.expect("it is set");
    let server = Server::start(&file, &[]);
    let mut deaf = server.connect();
    let limit = deaf.set_write_timeout(Some(Duration::from_secs(1)));
    limit.expect("it is set");
    let request = "GET /n/orders/timer/226c6172676522 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // More answers than the system keeps for it.
    for _ in 0..100 {
        if deaf.write_all(request.as_bytes()).is_err() {
            break;
        }
    }
    let mut read = 0;
    let ended = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_secs(25));
        let limit = deaf.set_read_timeout(Some(Duration::from_secs(20)));
        limit.expect("it is set");
        let mut answer = vec![0; 1 << 16];
        loop {
            match deaf.read(&mut answer) {
                Ok(0) => return Ok(read),
                Ok(bytes) => read += bytes,
                Err(error) => return Err(error),
            }
        }
    });
    match ended.await.expect("it ends") {
        Ok(read) => assert!(read < 40_000_000, "{read} bytes came"),
        Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
    }
}

/// Regression: some hundred connections that send half a request, and slow ones, shut other clients
/// out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_keep_no_place() {
    let file = File::new();
    let _instance = file.instance().await;
    let server = Server::start(&file, &[]);
    // More than the server has places for: others wait until one of them is cut.
    let began = Instant::now();
    let mut halves = Vec::new();
    for _ in 0..600 {
        let mut half = server.connect();
        half.write_all(b"GET /n/orders HTTP/1.1\r\nHost: loc")
            .expect("it reads");
        halves.push(half);
    }
    let mut silent = server.connect();
    let mut body = server.connect();
    let head = format!(
        "POST /login HTTP/1.1\r\nHost: {}\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 20\r\n\r\ntok",
        server.address
    );
    body.write_all(head.as_bytes()).expect("it reads");
    // One byte a second is not enough.
    let mut drips = server.connect();
    drips.write_all(b"GET / HTTP/1.1\r\n").expect("it reads");
    let dripping = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        while drips.write_all(b"X").is_ok() {
            assert!(began.elapsed() < Duration::from_secs(120), "it is cut");
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let page = server.page("/n/orders");
    assert!(page.contains("orders"));
    assert!(
        began.elapsed() > Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let mut answer = String::new();
    for half in &mut halves {
        let limit = half.set_read_timeout(Some(Duration::from_secs(60)));
        limit.expect("it is set");
        answer.clear();
        let ended = half.read_to_string(&mut answer);
        assert!(ended.is_ok() || !answer.is_empty(), "{ended:?}");
    }
    for slow in [&mut silent, &mut body] {
        let limit = slow.set_read_timeout(Some(Duration::from_secs(60)));
        limit.expect("it is set");
        answer.clear();
        let ended = slow.read_to_string(&mut answer);
        assert!(ended.is_ok(), "{ended:?}");
    }
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    dripping.await.expect("it ends");
    for (bytes, status) in [(131_072, "401"), (131_073, "413")] {
        let form = format!("token={}", "x".repeat(bytes - 6));
        let answer = server.ask("POST /login", &[], &form);
        let status = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&status), "{bytes} bytes: {answer}");
    }
}

/// A form that is on its way changes what it asks for, and its browser is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_stopped_answers_what_it_was_asked() {
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a"], HOUR).await;
    let mut server = Server::start(&file, &["--allow-changes"]);
    let connect = || {
        let stream = server.connect();
        let limit = stream.set_read_timeout(Some(Duration::from_secs(60)));
        limit.expect("it is set");
        stream
    };
    let mut idle = connect();
    write!(idle, "GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    idle.read_exact(&mut [0]).expect("it answers");
    let form = "action=remove&row=key-226122&confirmed=1";
    let mut asked = connect();
    write!(
        asked,
        "POST /n/orders/change HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        form.len()
    )
    .expect("it reads");
    let mut goes_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    asked.read_exact(&mut goes_on).expect("it waits for it");
    server.terminate();
    // It closes what owes no answer once it knows that it is to stop.
    idle.read_to_end(&mut Vec::new()).expect("it is closed");
    asked.write_all(form.as_bytes()).expect("it reads");
    let mut answer = String::new();
    asked.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    assert_eq!(server.ended(), Some(0), "{}", server.log());
    assert_eq!(counted(&timers).await, [0, 0, 0]);
}
