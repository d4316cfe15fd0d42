//! A proxy between a store and its server, which outlives both.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Connects each new connection to the server that it is told, and keeps those it has.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: AtomicU16,
    /// Whether what is sent on the present connections is held back; a new one has its own.
    held: Mutex<watch::Sender<bool>>,
    /// How many answers have come on connections that were held back once.
    answers: AtomicU64,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let shared = Arc::new(Shared {
            server: AtomicU16::new(server),
            held: Mutex::new(watch::Sender::new(false)),
            answers: AtomicU64::new(0),
        });
        let proxy = Proxy {
            port: listener.local_addr().expect("it has one").port(),
            shared: Arc::clone(&shared),
        };
        drop(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                drop(tokio::spawn(carry(client, Arc::clone(&shared))));
            }
        }));
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// New connections go to another server.
    pub(crate) fn lead_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::Relaxed);
    }

    /// Holds back what is sent on the connections that there are, until the sender says no. Those
    /// made later are not held.
    pub(crate) fn hold(&self) -> watch::Sender<bool> {
        let held = std::mem::replace(&mut *self.shared.held(), watch::Sender::new(false));
        held.send_replace(true);
        held
    }

    /// How many answers have come to what was held back.
    pub(crate) fn late_answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, watch::Sender<bool>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries bytes both ways. What a client has sent reaches the server also when the client has gone
/// since.
async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let server = ("127.0.0.1", shared.server.load(Ordering::Relaxed));
    let mut held = shared.held().subscribe();
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let was_held = held.clone();
    let answers = tokio::spawn(async move {
        let mut bytes = vec![0; 65_536];
        while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
            if was_held.has_changed().unwrap_or(true) {
                shared.answers.fetch_add(1, Ordering::Relaxed);
            }
            // The client may have gone.
            let _ = to_client.write_all(&bytes[..read]).await;
        }
    });
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
        // An error means that the proxy has ended.
        let _ = held.wait_for(|held| !held).await;
        if to_server.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
    // The server answers what it has been sent, and the proxy lets it.
    let _ = answers.await;
    drop(to_server);
}
