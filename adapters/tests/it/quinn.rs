//! quinn's endpoints with timers on the wheel: real connections over the loopback interface.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::start_wheel;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, Runtime, ServerConfig,
    TransportConfig,
};
use tickwheel::TimerWheel;
use tickwheel_adapters::quinn::WheelRuntime;
use tokio::time;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Two ends of a connection; the endpoints live as long as they do.
struct Pair {
    client: Connection,
    server: Connection,
    endpoints: [Endpoint; 2],
}

fn transport(idle: Duration, keep_alive: Option<Duration>) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(idle.try_into().ok());
    transport.keep_alive_interval(keep_alive);
    Arc::new(transport)
}

/// A connection with the wheel at both ends.
async fn connect(
    wheel: &TimerWheel,
    idle: Duration,
    keep_alive: Option<Duration>,
) -> Result<Pair, Box<dyn std::error::Error>> {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(certificate.key_pair.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.cert.der().clone())?;
    let mut server = ServerConfig::with_single_cert(vec![certificate.cert.into()], key.into())?;
    server.transport_config(transport(idle, None));
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    client.transport_config(transport(idle, keep_alive));

    let endpoint = |server| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let runtime = Arc::new(WheelRuntime::new(wheel));
        Endpoint::new(EndpointConfig::default(), server, socket, runtime)
    };
    let endpoints = [endpoint(Some(server))?, endpoint(None)?];
    let connecting = endpoints[1].connect_with(client, endpoints[0].local_addr()?, "localhost")?;
    let accepting = async {
        let incoming = endpoints[0].accept().await.ok_or("closed")?;
        Ok::<_, Box<dyn std::error::Error>>(incoming.await?)
    };
    let (client, server) = tokio::join!(connecting, accepting);
    Ok(Pair {
        client: client?,
        server: server?,
        endpoints,
    })
}

#[tokio::test]
async fn closes_an_idle_connection_by_the_wheel() -> Outcome {
    let wheel = start_wheel();
    let idle = Duration::from_millis(300);
    let pair = connect(&wheel, idle, None).await?;
    let start = Instant::now();
    let ends = tokio::join!(pair.client.closed(), pair.server.closed());
    assert_eq!(ends, (ConnectionError::TimedOut, ConnectionError::TimedOut));
    assert!(start.elapsed() >= idle / 2, "{:?}", start.elapsed());
    assert!(wheel.metrics().sleeps_fired >= 2, "{:?}", wheel.metrics());
    Ok(())
}

#[tokio::test]
async fn keeps_a_silent_connection_alive_by_the_wheel() -> Outcome {
    let wheel = start_wheel();
    let idle = Duration::from_secs(2);
    let pair = connect(&wheel, idle, Some(idle / 20)).await?;
    let closed = async { tokio::join!(pair.client.closed(), pair.server.closed()) };
    assert!(
        time::timeout(idle * 3 / 2, closed).await.is_err(),
        "it is open"
    );
    assert!(wheel.metrics().sleeps_fired >= 10, "{:?}", wheel.metrics());
    Ok(())
}

#[tokio::test]
async fn resets_one_sleep_for_each_connection() -> Outcome {
    let wheel = start_wheel();
    let pair = connect(&wheel, Duration::from_secs(60), None).await?;
    let echo = tokio::spawn({
        let server = pair.server.clone();
        async move {
            while let Ok((mut send, mut receive)) = server.accept_bi().await {
                let asked = receive.read_to_end(64).await.expect("it is short");
                send.write_all(&asked).await.expect("it is open");
                send.finish().expect("it is not finished yet");
            }
        }
    });
    let before = wheel.metrics();
    for _ in 0..50 {
        let (mut send, mut receive) = pair.client.open_bi().await?;
        send.write_all(b"hello").await?;
        send.finish()?;
        assert_eq!(receive.read_to_end(64).await?, b"hello");
    }
    let after = wheel.metrics();
    let moved = after.sleeps_moved - before.sleeps_moved;
    assert!(moved >= 100, "{after:?}");
    // One that fired and is used again counts as made again.
    let made = after.sleeps_made - before.sleeps_made;
    assert!(made <= after.sleeps_fired + 2, "{after:?}");

    pair.client.close(0_u32.into(), b"");
    echo.await?;
    drop(pair);
    Ok(())
}

#[tokio::test]
async fn leaves_no_timer_when_all_is_closed() -> Outcome {
    let wheel = start_wheel();
    let pair = connect(&wheel, Duration::from_secs(60), None).await?;
    assert!(wheel.metrics().sleeps_pending >= 2);
    pair.client.close(0_u32.into(), b"");
    pair.server.closed().await;
    for endpoint in &pair.endpoints {
        endpoint.wait_idle().await;
    }
    drop(pair);
    // The drivers of the connections end in their own time.
    let ended = async {
        while wheel.metrics().sleeps_pending > 0 {
            tokio::task::yield_now().await;
        }
    };
    time::timeout(Duration::from_secs(20), ended).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn moves_the_timer_when_reset() {
    let wheel = start_wheel();
    let runtime = WheelRuntime::new(&wheel);
    let start = runtime.now();
    let mut timer = runtime.new_timer(start + Duration::from_secs(60));
    let fired = async |timer: &mut std::pin::Pin<Box<dyn quinn::AsyncTimer>>| {
        std::future::poll_fn(|cx| timer.as_mut().poll(cx)).await;
    };
    assert!(
        time::timeout(Duration::from_secs(1), fired(&mut timer))
            .await
            .is_err()
    );
    for seconds in [90, 30, 31] {
        let deadline = start + Duration::from_secs(seconds);
        timer.as_mut().reset(deadline);
        if seconds != 90 {
            fired(&mut timer).await;
            assert_eq!(runtime.now(), deadline);
        }
    }
    assert_eq!(wheel.metrics().sleeps_moved, 2);
}
