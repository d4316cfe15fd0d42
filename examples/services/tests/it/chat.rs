//! The example `chat` under real clients, and such as have died or do not read.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::examples::{HANG_TIMEOUT, Service};

type Client = WebSocketStream<TcpStream>;

fn chat(idle: &str) -> Service {
    Service::start("chat", &["--listen", "127.0.0.1:0", "--idle", idle])
}

async fn enter(service: &Service, name: &str) -> Client {
    let stream = TcpStream::connect(service.address).await;
    let url = format!("ws://{}/chat/{name}", service.address);
    let joined = client_async(url, stream.expect("it listens")).await;
    joined.expect("it is a WebSocket").0
}

/// A member that answers nothing from now on, not even a ping.
async fn enter_silently(service: &Service, name: &str) -> TcpStream {
    let mut stream = TcpStream::connect(service.address)
        .await
        .expect("it listens");
    let request = format!(
        "GET /chat/{name} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGlja3doZWVsIGNoYXRzIQ==\r\n\r\n"
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it is open");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("it answers"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    stream
}

/// Reads, and so answers pings, until a text has come.
async fn reads(client: &mut Client, expected: &str) {
    let reading = async {
        loop {
            let message = client.next().await.expect("it is open");
            if message.expect("it is whole") == Message::text(expected) {
                return;
            }
        }
    };
    let read = timeout(HANG_TIMEOUT, reading).await;
    read.unwrap_or_else(|_| panic!("{expected:?} does not come"));
}

/// Reads until it is told why it has to go.
async fn is_told(client: &mut Client) -> u16 {
    while let Some(message) = client.next().await {
        if let Message::Close(Some(close)) = message.expect("it is whole") {
            return close.code.into();
        }
    }
    panic!("it was cut without a word");
}

#[tokio::test]
async fn chat_passes_texts_on_and_kicks_who_says_nothing() {
    const IDLE: Duration = Duration::from_secs(3);
    let service = chat("3");
    let (mut anna, mut ben) = (enter(&service, "anna").await, enter(&service, "ben").await);
    let began = Instant::now();
    let talks = async {
        let mut longest = Duration::ZERO;
        while began.elapsed() < 2 * IDLE {
            let said = Instant::now();
            anna.send(Message::text("hello")).await.expect("it is open");
            reads(&mut anna, "anna: hello").await;
            sleep(IDLE / 10).await;
            longest = longest.max(said.elapsed());
        }
        longest
    };
    let is_kicked = async {
        reads(&mut ben, "anna: hello").await;
        (is_told(&mut ben).await, began.elapsed())
    };
    // A member that could not talk in time on this machine would be kicked, too.
    let (longest, (code, after)) = tokio::join!(talks, is_kicked);
    assert!(longest < IDLE, "this machine stood still for {longest:?}");
    assert_eq!(code, 4000);
    // It had joined shortly before that.
    assert!(after > IDLE / 2, "{after:?}");
}

#[tokio::test]
async fn chat_cuts_members_that_answer_no_ping_or_do_not_read() {
    let service = chat("600");
    let mut dead = enter_silently(&service, "dead").await;
    let deaf = enter(&service, "deaf").await;
    let mut anna = enter(&service, "anna").await;
    // More than the buffers between the two take.
    let text = "x".repeat(200_000);
    let talks = async {
        for _ in 0..100 {
            anna.send(Message::text(&text)).await.expect("it is open");
            reads(&mut anna, &format!("anna: {text}")).await;
        }
        anna
    };
    let ends = async {
        let mut bytes = Vec::new();
        // Pings and texts, until it is cut.
        let _ = dead.read_to_end(&mut bytes).await;
    };
    let ended = timeout(HANG_TIMEOUT, async { tokio::join!(talks, ends).0 });
    let mut anna = ended.await.expect("the dead one is cut");
    // It has read nothing yet. What had been sent comes, and then the end.
    let mut deaf = deaf.into_inner();
    let is_cut = async {
        let mut buffer = vec![0; 65_536];
        sleep(Duration::from_secs(6)).await;
        while deaf.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    let still_talks = async {
        loop {
            anna.send(Message::text("still here"))
                .await
                .expect("it is open");
            reads(&mut anna, "anna: still here").await;
            sleep(Duration::from_millis(200)).await;
        }
    };
    let cut = timeout(HANG_TIMEOUT, async {
        tokio::select! {
            () = is_cut => {}
            () = still_talks => {}
        }
    });
    cut.await.expect("the one that does not read is cut");
}

#[tokio::test]
#[cfg(unix)]
async fn chat_tells_its_members_when_it_stops() {
    let mut service = chat("600");
    let (mut anna, mut ben) = (enter(&service, "anna").await, enter(&service, "ben").await);
    anna.send(Message::text("hello")).await.expect("it is open");
    reads(&mut ben, "anna: hello").await;
    service.signal("-TERM");
    for member in [&mut anna, &mut ben] {
        assert_eq!(is_told(member).await, 1001);
    }
    let (code, said) = service.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn chat_demonstrates_a_kick() {
    let said = crate::examples::said("chat");
    assert!(said.contains("ben is kicked: 4000 idle"), "{said}");
}
