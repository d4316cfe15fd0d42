//! The provider that encrypts connections: the program's choice, or that of the crate's features.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use crate::store::StoreError;

/// The provider that the program has installed, else that of a feature.
pub(crate) fn provider() -> Result<Arc<CryptoProvider>, StoreError> {
    if let Some(installed) = CryptoProvider::get_default() {
        return Ok(Arc::clone(installed));
    }
    of_features().map(Arc::new).ok_or_else(|| {
        StoreError::refused(
            "the URL asks for TLS, and nothing is there that encrypts: enable the feature `tls-ring` or `tls-aws-lc-rs` of \
             tickwheel-durable, or install a provider of rustls for the process",
        )
    })
}

#[cfg(feature = "tls-ring")]
#[allow(clippy::unnecessary_wraps, reason = "without features there is none")]
fn of_features() -> Option<CryptoProvider> {
    Some(rustls::crypto::ring::default_provider())
}

#[cfg(all(feature = "tls-aws-lc-rs", not(feature = "tls-ring")))]
#[allow(clippy::unnecessary_wraps, reason = "without features there is none")]
fn of_features() -> Option<CryptoProvider> {
    Some(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(not(any(feature = "tls-aws-lc-rs", feature = "tls-ring")))]
fn of_features() -> Option<CryptoProvider> {
    None
}

/// Installs [`provider`] for the process, for a client that knows no other way.
#[cfg(feature = "redis")]
pub(crate) fn install() -> Result<(), StoreError> {
    let provider = provider()?;
    // Another thread may have been faster.
    let _ = CryptoProvider::install_default(CryptoProvider::clone(&provider));
    Ok(())
}
