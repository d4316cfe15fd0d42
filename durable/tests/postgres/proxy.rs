//! A proxy whose connections hang on demand, as those of a server that is stopped.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Stands between a store and its server.
pub(crate) struct Proxy {
    pub(crate) url: String,
    freezes: watch::Sender<u32>,
}

impl Proxy {
    /// A proxy before the server of this URL.
    pub(crate) async fn start(server: &str) -> Self {
        let config: tokio_postgres::Config = server.parse().expect("it parses");
        let server_port = config.get_ports()[0];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("it binds");
        let port = listener.local_addr().expect("it is bound").port();
        let (freezes, frozen) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut frozen = frozen.clone();
                frozen.mark_unchanged();
                drop(tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", server_port)).await;
                    let mut server = server.expect("it accepts");
                    let hangs = tokio::select! {
                        _ = copy_bidirectional(&mut socket, &mut server) => false,
                        changed = frozen.changed() => changed.is_ok(),
                    };
                    if hangs {
                        // Both stay open.
                        std::future::pending::<()>().await;
                    }
                }));
            }
        });
        let url = server.replace(&format!(":{server_port}/"), &format!(":{port}/"));
        Proxy { url, freezes }
    }

    /// Makes the connections that there are hang. New ones work.
    pub(crate) fn freeze(&self) {
        self.freezes.send_modify(|freezes| *freezes += 1);
    }
}
