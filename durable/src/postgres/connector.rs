//! Functions that connect to one host.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{Stream, poll_fn};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::crypto;
use crate::store::{BoxError, BoxFuture, StoreError};

/// A client, and what its server sends.
pub(super) type Dialed = (Client, Messages);

/// The messages that a server sends unasked. The connection works while this is read.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, Error>> + Send>>;

/// Connects to one host.
pub(super) type Dial = dyn Fn(Config) -> BoxFuture<'static, Result<Dialed, BoxError>> + Send + Sync;

/// Changes the settings for one connection.
pub(super) type Prepare =
    dyn Fn(Config) -> BoxFuture<'static, Result<Config, BoxError>> + Send + Sync;

/// Connects by a function.
pub(super) fn by_function<F, R, S, T, E>(function: F) -> Arc<Dial>
where
    F: Fn(Config) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(Client, Connection<S, T>), E>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    E: Into<BoxError>,
{
    Arc::new(move |config| {
        let connected = function(config);
        Box::pin(async move {
            let (client, mut connection) = connected.await.map_err(Into::into)?;
            let messages: Messages = Box::pin(poll_fn(move |cx| connection.poll_message(cx)));
            Ok((client, messages))
        })
    })
}

/// Connects with a TLS connector.
pub(super) fn by_connector<T>(tls: T) -> Arc<Dial>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    by_function(move |config| {
        let tls = tls.clone();
        async move { config.connect(tls).await }
    })
}

/// Connects with TLS, and trusts what the file has signed, else what the system trusts. Both are
/// read each time.
pub(super) fn by_system(roots: Option<PathBuf>) -> Arc<Dial> {
    by_function(move |config| {
        let tls = system(roots.as_deref());
        async move { Ok::<_, BoxError>(config.connect(tls?).await?) }
    })
}

fn system(roots: Option<&Path>) -> Result<MakeRustlsConnect, StoreError> {
    let mut trusted = RootCertStore::empty();
    if let Some(path) = roots {
        let refused = |error| {
            let path = path.display();
            StoreError::refused(format!("the certificates in {path} cannot be read"))
                .because_of(error)
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(refused)? {
            // One that cannot be used signs nothing: the handshake says so.
            let _ = trusted.add(certificate.map_err(refused)?);
        }
    } else {
        trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let config = ClientConfig::builder_with_provider(crypto::provider()?)
        .with_safe_default_protocol_versions()
        .map_err(StoreError::refused)?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
