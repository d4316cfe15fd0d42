//! A client over TLS is told that its idle connection ends. Without that it cannot tell the end
//! from an attack that cuts the connection.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use axum::serve::Listener;
use quinn::rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use quinn::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tickwheel::{IdleLimits, TimerWheel};
use tickwheel_adapters::axum::IdleListener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const IDLE: Duration = Duration::from_millis(300);

/// A listener whose connections are encrypted.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            if let Ok((stream, peer)) = self.listener.accept().await {
                if let Ok(stream) = self.acceptor.accept(stream).await {
                    return (stream, peer);
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn tls() -> (Tls, TlsConnector) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("it is made");
    let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("it is one");
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![made.cert.into()], key.into());
    let client = ClientConfig::builder().with_root_certificates(roots);
    let tls = Tls {
        listener: TcpListener::bind("127.0.0.1:0").await.expect("it listens"),
        acceptor: Arc::new(server.expect("the key fits")).into(),
    };
    (tls, Arc::new(client.with_no_client_auth()).into())
}

/// What a client reads that has got a response, and says nothing more.
async fn end_of(address: SocketAddr, connector: TlsConnector) -> io::Result<usize> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("it is a name");
    let mut client = connector.connect(name, stream).await.expect("it is TLS");
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.write_all(request).await.expect("it is open");
    let mut response = Vec::new();
    while !response.ends_with(b"hello") {
        let read = client.read_buf(&mut response).await;
        assert!(read.expect("it answers") > 0);
    }
    client.read(&mut [0]).await
}

#[tokio::test]
async fn idle_connection_ends_with_close_notify() {
    let (listener, connector) = tls().await;
    let address = listener.local_addr().expect("it has one");
    let listener = IdleListener::new(listener, &TimerWheel::new(), IDLE);
    let app = Router::new().route("/", get(async || "hello"));
    tokio::spawn(axum::serve(listener, app).into_future());
    let end = end_of(address, connector).await;
    assert_eq!(end.expect("it is told"), 0);
}

/// The control: a stream that is dropped once it is idle.
#[tokio::test]
async fn idle_connection_that_is_dropped_ends_without_close_notify() {
    let (mut listener, connector) = tls().await;
    let address = listener.local_addr().expect("it has one");
    let wheel = TimerWheel::new();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await;
        let mut stream = wheel.idle_stream_with(stream, &IdleLimits::none().either(IDLE));
        let mut request = vec![0; 1024];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").await;
        while stream.read(&mut request).await.is_ok_and(|read| read > 0) {}
    });
    let end = end_of(address, connector).await;
    let error = end.expect_err("it is cut");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}
