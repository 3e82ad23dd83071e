//! TLS for tests: a certificate, and a host that speaks TLS in front of one that does not.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Writes a certificate for localhost that signs itself: `tls.crt` and `tls.key`.
pub fn create_certificate(directory: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "new.key", "-out", "new.crt"])
        .current_dir(directory)
        .output();
    assert!(made.is_ok_and(|made| made.status.success()), "openssl is needed for this test");
    std::fs::rename(directory.join("new.key"), directory.join("tls.key")).unwrap();
    std::fs::rename(directory.join("new.crt"), directory.join("tls.crt")).unwrap();
}

/// What a host with TLS does with a connection.
#[derive(Clone)]
pub enum Behind {
    /// Passes the bytes on to another host.
    Forward(SocketAddr),
    /// Responds by HTTP/2 with this body.
    Http2(&'static str),
}

/// A host that speaks TLS. Closed on drop.
pub struct TlsHost {
    address: SocketAddr,
    protocols: Arc<Mutex<Vec<String>>>,
    directory: TempDir,
    accepting: JoinHandle<()>,
}

impl TlsHost {
    /// `alpn`: the protocols that it offers, the preferred one first.
    pub async fn start(alpn: &[&str], behind: Behind) -> Self {
        let directory = tempfile::tempdir().unwrap();
        create_certificate(directory.path());
        let certificate = CertificateDer::from_pem_file(directory.path().join("tls.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(directory.path().join("tls.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let protocols = Arc::<Mutex<Vec<String>>>::default();
        let accepting =
            tokio::spawn(accept(listener, Arc::new(config).into(), behind, Arc::clone(&protocols)));
        Self { address, protocols, directory, accepting }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// The certificate, for a client that trusts it.
    pub fn certificate(&self) -> String {
        self.directory.path().join("tls.crt").display().to_string()
    }

    /// What was negotiated for each connection.
    pub fn protocols(&self) -> Vec<String> {
        self.protocols.lock().unwrap().clone()
    }
}

impl Drop for TlsHost {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    behind: Behind,
    protocols: Arc<Mutex<Vec<String>>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, behind, protocols) = (acceptor.clone(), behind.clone(), Arc::clone(&protocols));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let protocol = stream.get_ref().1.alpn_protocol().unwrap_or_default();
            protocols.lock().unwrap().push(String::from_utf8_lossy(protocol).into_owned());
            match behind {
                Behind::Forward(to) => forward(stream, to).await,
                Behind::Http2(body) => respond_by_http2(stream, body).await,
            }
        });
    }
}

async fn forward(mut stream: TlsStream<TcpStream>, to: SocketAddr) {
    let mut behind = TcpStream::connect(to).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut behind).await;
    let _ = stream.shutdown().await;
}

async fn respond_by_http2(stream: TlsStream<TcpStream>, body: &'static str) {
    let respond = |_: http::Request<Incoming>| async move {
        let response = http::Response::builder().header("content-type", "application/json");
        response.body(Full::new(Bytes::from_static(body.as_bytes())))
    };
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), hyper::service::service_fn(respond)).await;
}
