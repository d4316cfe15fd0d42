//! The example `quic_echo` under clients with Tokio's timers.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use quinn::rustls::crypto::{CryptoProvider, verify_tls13_signature};
use quinn::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use quinn::rustls::{self, DigitallySignedStruct, SignatureScheme};
use quinn::{ClientConfig, ConnectionError, Endpoint, TransportConfig};
use tokio::time;

use crate::examples::Service;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Trusts any server: the certificate is a new one each time.
#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("QUIC has TLS 1.3")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A client with Tokio's timers, which trusts any server.
fn stranger(keep_alive: Option<Duration>) -> Result<Endpoint, Box<dyn std::error::Error>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let crypto = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAll(provider)))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(crypto)?));
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Duration::from_secs(60).try_into().ok());
    transport.keep_alive_interval(keep_alive);
    config.transport_config(Arc::new(transport));
    let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quic_echo_ends_what_is_idle_and_keeps_what_is_not() -> Outcome {
    let service = Service::start("quic_echo", &["--listen", "127.0.0.1:0", "--idle", "1.5"]);
    let (silent, kept) = (stranger(None)?, stranger(Some(Duration::from_millis(200)))?);
    let silent = silent.connect(service.address, "localhost")?.await?;
    let start = Instant::now();
    let kept = kept.connect(service.address, "localhost")?.await?;
    assert_eq!(silent.closed().await, ConnectionError::TimedOut);
    assert!(
        start.elapsed() >= Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    time::sleep(Duration::from_secs(2)).await;
    let (mut send, mut receive) = kept.open_bi().await?;
    send.write_all(b"still here").await?;
    send.finish()?;
    assert_eq!(receive.read_to_end(64).await?, b"still here");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(unix)]
async fn quic_echo_echoes_what_is_in_flight_before_it_stops() -> Outcome {
    for signal in ["-TERM", "-INT"] {
        let mut service = Service::start("quic_echo", &["--listen", "127.0.0.1:0", "--idle", "60"]);
        let client = stranger(None)?;
        let connection = client.connect(service.address, "localhost")?.await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(b"half").await?;
        receive.read_exact(&mut [0; 4]).await?;
        service.signal(signal);
        // A new client is refused as soon as the service has seen the signal.
        let mut accepted = Vec::new();
        let refused = loop {
            assert!(accepted.len() < 1_000, "new clients are accepted");
            match client.connect(service.address, "localhost")?.await {
                Ok(early) => accepted.push(early),
                Err(error) => break error,
            }
            time::sleep(Duration::from_millis(20)).await;
        };
        assert!(
            matches!(refused, ConnectionError::ConnectionClosed(_)),
            "{refused}"
        );
        send.write_all(b" and half").await?;
        send.finish()?;
        assert_eq!(receive.read_to_end(64).await?, b" and half");
        let closed = connection.closed().await;
        assert!(
            matches!(closed, ConnectionError::ApplicationClosed(_)),
            "{closed}"
        );
        let (code, said) = service.end();
        assert_eq!(code, Some(0), "{said}");
        let closed = accepted.len() + 1;
        let expected = format!("stopped; 1 streams echoed; connections: {closed} closed, 0 ended");
        assert!(said.starts_with(&expected), "{said}");
    }
    Ok(())
}
