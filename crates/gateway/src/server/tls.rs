//! TLS of the listener. The certificate is read again when its files change, so that a renewal needs no restart.

use std::io::Error;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::TlsFiles;
use crate::services::{Services, StartError};

/// How often the files are compared with what is in use.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// The certificate in use.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Loaded>,
}

struct Loaded {
    /// The contents of both files.
    contents: [Vec<u8>; 2],
    certificate: Arc<CertifiedKey>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    pub fn open(files: &TlsFiles) -> Result<Arc<Self>, StartError> {
        let contents = read(files).map_err(|error| StartError::Tls(error.to_string()))?;
        let loaded = load(contents).map_err(|error| {
            StartError::Tls(format!("{error} in {} or {}", files.cert.display(), files.key.display()))
        })?;
        Ok(Arc::new(Self { files: files.clone(), current: RwLock::new(loaded) }))
    }

    /// The settings of connections: HTTP/2 is offered, and the certificate is looked up for each.
    pub fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, StartError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| StartError::Tls(error.to_string()))?;
        let resolver: Arc<dyn ResolvesServerCert> = self.clone();
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reads the certificate again whenever its files change, until the service stops.
    pub async fn watch(self: Arc<Self>, services: Arc<Services>) {
        let mut failed = None;
        while tokio::time::timeout(RELOAD_INTERVAL, services.tasks.stopping()).await.is_err() {
            let tls = Arc::clone(&self);
            let reloaded = tokio::task::spawn_blocking(move || tls.reload()).await;
            match reloaded {
                Ok(Ok(true)) => tracing::info!("the TLS certificate was read again"),
                Ok(Err(error)) if failed.as_ref() != Some(&error) => {
                    tracing::error!(
                        error,
                        "cannot read the new TLS certificate; the previous one stays in use"
                    );
                    failed = Some(error);
                    continue;
                }
                Ok(Err(_)) => continue,
                Ok(Ok(false)) | Err(_) => {}
            }
            failed = None;
        }
    }

    /// Returns true if the certificate was replaced.
    fn reload(&self) -> Result<bool, String> {
        let contents = read(&self.files).map_err(|error| error.to_string())?;
        if self.current.read().unwrap_or_else(PoisonError::into_inner).contents == contents {
            return Ok(false);
        }
        let loaded = load(contents).map_err(|error| error.to_string())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(true)
    }
}

impl ResolvesServerCert for Tls {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).certificate))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn read(files: &TlsFiles) -> std::io::Result<[Vec<u8>; 2]> {
    let read = |path: &Path, setting: &str| {
        std::fs::read(path).map_err(|error| {
            Error::new(error.kind(), format!("cannot read {} of {setting}: {error}", path.display()))
        })
    };
    Ok([read(&files.cert, "GATEWAY_TLS_CERT")?, read(&files.key, "GATEWAY_TLS_KEY")?])
}

/// Parses the PEM files and checks that the key belongs to the certificate. Messages have no contents.
fn load(contents: [Vec<u8>; 2]) -> std::io::Result<Loaded> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents[0]).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| Error::other("GATEWAY_TLS_CERT has no PEM certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&contents[1])
        .map_err(|_| Error::other("GATEWAY_TLS_KEY has no PEM private key"))?;
    let certificate = CertifiedKey::from_der(chain, key, &provider())
        .map_err(|_| Error::other("GATEWAY_TLS_CERT and GATEWAY_TLS_KEY do not belong together"))?;
    Ok(Loaded { contents, certificate: Arc::new(certificate) })
}
