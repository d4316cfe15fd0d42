//! Encrypted connections: the certificates are checked.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::crypto;
use crate::store::StoreError;

/// Trusts what the file has signed, else what the system trusts.
pub(super) fn connector(roots: Option<&Path>) -> Result<MakeRustlsConnect, StoreError> {
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
