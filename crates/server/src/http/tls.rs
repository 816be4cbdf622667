//! TLS: a certificate and its key, from PEM files.

use super::serve::ServeError;
use crate::config::Tls;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Takes TLS connections with these files.
pub(crate) fn acceptor(files: &Tls) -> Result<TlsAcceptor, ServeError> {
    let fault = |file: &Path, expected: &'static str, reason: String| ServeError::Tls {
        file: file.to_path_buf(),
        expected,
        reason,
    };
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fault(&files.certificate, "certificate in PEM form", error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| fault(&files.key, "private key in PEM form", error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| fault(&files.certificate, "certificate of the given key", error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
