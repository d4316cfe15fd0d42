//! The server: what it is made of, how it echoes, and how it stops.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{
    ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, RecvStream, SendStream,
    ServerConfig, TransportConfig, VarInt,
};
use tickwheel::TimerWheel;
use tickwheel_adapters::quinn::WheelRuntime;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Outcome;

/// How long a server that is asked to stop waits for the streams in flight.
const DRAIN: Duration = Duration::from_secs(10);

/// An endpoint with its timers on the wheel, of a server if it has a configuration for one.
pub(crate) fn endpoint(
    wheel: &TimerWheel,
    socket: UdpSocket,
    server: Option<ServerConfig>,
) -> io::Result<Endpoint> {
    let runtime = Arc::new(WheelRuntime::new(wheel));
    Endpoint::new(
        EndpointConfig::default(),
        server,
        socket.into_std()?,
        runtime,
    )
}

/// A certificate for "localhost" that is signed by itself, and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    pub(crate) fn new() -> Outcome<Self> {
        let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        Ok(Identity {
            key: PrivatePkcs8KeyDer::from(generated.key_pair.serialize_der()),
            certificate: generated.cert.into(),
        })
    }

    /// A server with this identity that ends connections on which nothing comes in for so long.
    pub(crate) fn config(&self, idle: Duration) -> Outcome<ServerConfig> {
        let mut transport = TransportConfig::default();
        transport
            .max_idle_timeout(idle_timeout(idle))
            .max_concurrent_uni_streams(0_u32.into());
        let certificates = vec![self.certificate.clone()];
        let mut config = ServerConfig::with_single_cert(certificates, self.key.clone_key().into())?;
        config.transport_config(Arc::new(transport));
        Ok(config)
    }
}

/// QUIC counts it in whole milliseconds. Zero means never there, and so does what does not fit
/// here.
fn idle_timeout(idle: Duration) -> Option<IdleTimeout> {
    let millis = u64::try_from(idle.as_nanos().div_ceil(1_000_000)).ok()?;
    VarInt::from_u64(millis).ok().map(IdleTimeout::from)
}

/// The traffic of the connections, and how they ended.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Ends {
    /// Streams that were echoed to their ends.
    pub(crate) streams: u64,
    /// Received and sent.
    pub(crate) datagrams: u64,
    /// By the client, or because the server stopped.
    pub(crate) closed: u64,
    /// By the server: nothing came in for too long.
    pub(crate) idle: u64,
    pub(crate) failed: u64,
}

impl Ends {
    fn count(&mut self, end: &End) {
        self.streams += end.streams;
        self.datagrams += end.datagrams;
        let count = match end.reason {
            ConnectionError::TimedOut => &mut self.idle,
            ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => {
                &mut self.closed
            }
            _ => &mut self.failed,
        };
        *count += 1;
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "connections: {} closed, {} ended by idle timeout, {} failed",
            self.closed, self.idle, self.failed
        )
    }
}

/// The end of one connection.
struct End {
    reason: ConnectionError,
    streams: u64,
    datagrams: u64,
}

/// Serves until `stop` completes and the streams that are open then are echoed.
pub(crate) async fn run(
    endpoint: &Endpoint,
    wheel: &TimerWheel,
    stop: impl Future<Output = ()>,
) -> Ends {
    let (stopping, stopped) = watch::channel(());
    let mut ends = Ends::default();
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            Some(incoming) = endpoint.accept() => {
                connections.spawn(serve(incoming, stopped.clone()));
            }
            Some(Ok(end)) = connections.join_next() => ends.count(&end),
            () = &mut stop => break,
        }
    }
    drop(stopping);
    let mut drain = wheel.sleep(DRAIN);
    while !connections.is_empty() {
        tokio::select! {
            Some(incoming) = endpoint.accept() => incoming.refuse(),
            Some(Ok(end)) = connections.join_next() => ends.count(&end),
            () = &mut drain, if !drain.is_elapsed() => {
                endpoint.close(1_u32.into(), b"the server stops now");
            }
        }
    }
    // The last clients are told.
    endpoint.wait_idle().await;
    ends
}

/// Serves one connection until it ends, or the server stops: `stopped` is closed.
async fn serve(incoming: Incoming, mut stopped: watch::Receiver<()>) -> End {
    let connection = match incoming.await {
        Ok(connection) => connection,
        Err(reason) => {
            return End {
                reason,
                streams: 0,
                datagrams: 0,
            };
        }
    };
    let mut echoed = 0;
    let mut streams = JoinSet::new();
    let reason = loop {
        tokio::select! {
            // It serves what has come in before it stops.
            biased;
            accepted = connection.accept_bi() => match accepted {
                Ok((send, receive)) => drop(streams.spawn(echo(send, receive))),
                Err(reason) => break reason,
            },
            Some(done) = streams.join_next() => echoed += u64::from(matches!(done, Ok(Ok(())))),
            _ = stopped.changed(), if streams.is_empty() => {
                connection.close(0_u32.into(), b"the server stops");
            }
        }
    };
    // Those that have ended before the connection did.
    while let Some(done) = streams.join_next().await {
        echoed += u64::from(matches!(done, Ok(Ok(()))));
    }
    let stats = connection.stats();
    End {
        reason,
        streams: echoed,
        datagrams: stats.udp_rx.datagrams + stats.udp_tx.datagrams,
    }
}

/// Sends back what comes in on a stream. Returns once the client has all of it.
async fn echo(mut send: SendStream, mut receive: RecvStream) -> Outcome<()> {
    let copied = async {
        while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
            send.write_chunk(chunk.bytes).await?;
        }
        Ok(())
    };
    if let Err(error) = copied.await {
        // Dropped, the stream would end as if that were all.
        let _ = send.reset(0_u32.into());
        return Err(error);
    }
    send.finish()?;
    send.stopped().await?;
    Ok(())
}
