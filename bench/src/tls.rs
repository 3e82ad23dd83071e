//! TLS between the targets and the upstream, as with every real provider. The certificate is made for the run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::{BenchResult, Context};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Makes a certificate for localhost in a directory. Returns its file, or `None` without `openssl`.
pub(crate) fn create_certificate(folder: &Path) -> Option<PathBuf> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    command.args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", KEY, "-out", CERTIFICATE]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success()).then(|| folder.join(CERTIFICATE))
}

/// Accepts connections for one protocol, with the certificate in a directory.
pub(crate) fn acceptor(folder: &Path, protocol: &str) -> BenchResult<TlsAcceptor> {
    let certificate =
        CertificateDer::from_pem_file(folder.join(CERTIFICATE)).context("reading the certificate")?;
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).context("reading the key of the certificate")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.context("choosing TLS versions")?.with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate], key).context("using the certificate")?;
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(Arc::new(config).into())
}
