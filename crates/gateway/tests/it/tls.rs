//! TLS of the listener: HTTP/1.1 and HTTP/2, renewal without a restart, and the limits of connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::tls::create_certificate;
use crate::support::{Backend, GatewayProcess, TestApp, command};

fn settings(directory: &TempDir) -> [(String, String); 2] {
    let path = |name: &str| directory.path().join(name).display().to_string();
    [("GATEWAY_TLS_CERT".to_owned(), path("tls.crt")), ("GATEWAY_TLS_KEY".to_owned(), path("tls.key"))]
}

async fn start(directory: &TempDir, more: &[(&str, &str)]) -> TestApp {
    create_certificate(directory.path());
    let tls = settings(directory);
    let mut all: Vec<(&str, &str)> =
        tls.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    all.extend_from_slice(more);
    TestApp::start_with(Backend::Sqlite, &all).await
}

/// A connection of a client that trusts exactly the current certificate.
async fn connect(app: &TestApp, directory: &TempDir, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(directory.path().join("tls.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(app.address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn health(stream: TlsStream<TcpStream>, is_http2: bool) -> (u16, http::Version) {
    let request = http::Request::get("https://localhost/healthz").header("host", "localhost");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let response = if is_http2 {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    let found = (response.status().as_u16(), response.version());
    response.into_body().collect().await.unwrap();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_versions_of_http_are_served_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let app = start(&directory, &[]).await;
    for (alpn, is_http2, version) in
        [(&b"http/1.1"[..], false, http::Version::HTTP_11), (&b"h2"[..], true, http::Version::HTTP_2)]
    {
        let stream = connect(&app, &directory, alpn).await.unwrap();
        assert_eq!(health(stream, is_http2).await, (200, version));
    }
    // Plain HTTP gets no answer, and the listener goes on.
    let mut plain = TcpStream::connect(app.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let stream = connect(&app, &directory, b"http/1.1").await.unwrap();
    assert_eq!(health(stream, false).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_used_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let app = start(&directory, &[]).await;
    let open = connect(&app, &directory, b"http/1.1").await.unwrap();
    // A damaged file changes nothing.
    let good = std::fs::read(directory.path().join("tls.crt")).unwrap();
    std::fs::write(directory.path().join("tls.crt"), "no certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    std::fs::write(directory.path().join("tls.crt"), good).unwrap();
    connect(&app, &directory, b"http/1.1").await.unwrap();
    create_certificate(directory.path());
    let deadline = Instant::now() + Duration::from_secs(20);
    while connect(&app, &directory, b"http/1.1").await.is_err() {
        assert!(Instant::now() < deadline, "the new certificate is not in use");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(health(open, false).await.0, 200, "open connections continue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_must_end_in_time_and_counts_as_a_connection() {
    let directory = tempfile::tempdir().unwrap();
    let limits = [("GATEWAY_HEAD_TIMEOUT_MS", "300"), ("GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", "3")];
    let app = start(&directory, &limits).await;
    // The start of a client's hello, and then nothing.
    let mut held = Vec::new();
    for start in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(app.address).await.unwrap();
        stream.write_all(start).await.unwrap();
        held.push(stream);
    }
    for mut stream in held {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the connection is still open");
    }
    // A complete handshake without a request is closed as well.
    let mut silent = connect(&app, &directory, b"http/1.1").await.unwrap();
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the connection is still open");
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(TcpStream::connect(app.address).await.unwrap());
    }
    let mut refused = TcpStream::connect(app.address).await.unwrap();
    let mut rest = Vec::new();
    let _ = refused.write_all(b"\x16").await;
    let ended = tokio::time::timeout(Duration::from_millis(10_000), refused.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "one connection too many");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_says_that_it_serves_https_and_refuses_files_that_do_not_fit() {
    let here = tempfile::tempdir().unwrap();
    create_certificate(here.path());
    let [cert, key] = settings(&here);
    let mut serve = command(here.path(), &["serve"]);
    let process = GatewayProcess::start(serve.envs([cert.clone(), key.clone()]));
    assert!(process.ready["url"].as_str().unwrap().starts_with("https://"), "{}", process.ready);
    drop(process);
    let run = |settings: &[(String, String)]| {
        let mut serve = command(here.path(), &["serve"]);
        crate::support::run(serve.envs(settings.iter().cloned()))
    };
    let only = run(std::slice::from_ref(&cert));
    assert_eq!(only.code, Some(2), "{only:?}");
    assert!(only.stderr.contains("GATEWAY_TLS_KEY"), "{only:?}");
    std::fs::rename(here.path().join("tls.crt"), here.path().join("old.crt")).unwrap();
    let missing = run(&[cert.clone(), key.clone()]);
    assert!(missing.code == Some(1) && missing.stderr.contains("tls.crt"), "{missing:?}");
    create_certificate(here.path());
    std::fs::rename(here.path().join("old.crt"), here.path().join("tls.crt")).unwrap();
    let foreign = run(&[cert, key]);
    assert!(foreign.code == Some(1) && foreign.stderr.contains("do not belong together"), "{foreign:?}");
}
