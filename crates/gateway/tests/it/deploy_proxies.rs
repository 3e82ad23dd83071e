//! The gateway behind nginx and Caddy, with the configurations of `deploy/`: streams pass as they come, large bodies pass,
//! and the address that a caller claims is not believed. A proxy that is not installed is left out, which is said.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::fallback_chain::{HELLO, ROLE, STOP, good};
use crate::support::{Backend, ProxyFixture, TestRequest};
use crate::upstream::{Reply, Signal};

/// More than nginx accepts by default.
const MAX_BODY: usize = 3 << 20;

const PATIENCE: Duration = Duration::from_secs(20);

struct FrontProxy {
    address: SocketAddr,
    process: Child,
    _folder: TempDir,
}

impl Drop for FrontProxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn deploy_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Replaces a part of a configuration, which must be there.
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old} is not in\n{text}");
    text.replace(old, new)
}

#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("{program} is not installed: its configuration in deploy/ is not tested");
    }
    found.is_ok()
}

/// Starts nginx with a configuration of `deploy/` whose addresses are replaced.
async fn nginx(name: &str, gateway: SocketAddr) -> Option<FrontProxy> {
    if !is_installed("nginx") {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (address, at) = (free_address(), folder.path().display().to_string());
    let mut text = deploy_file(name);
    if name == "nginx.conf" {
        for node in 1..=3 {
            text = replaced(&text, &format!("server gateway-{node}:8080"), &format!("server {gateway}"));
        }
        text = replaced(&text, "listen 8080 default_server", &format!("listen {address} default_server"));
    } else {
        text = replaced(&text, "server 127.0.0.1:8080", &format!("server {gateway}"));
        // The tests' client speaks plain HTTP; `nginx -t` has seen the TLS settings.
        check_tls(&text, &folder);
        text = replaced(&text, "listen 443 ssl http2", &format!("listen {address}"));
        let kept = text.lines().filter(|line| !line.trim().starts_with("ssl_"));
        text = kept.flat_map(|line| [line, "\n"]).collect();
    }
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, with_own_paths(&text, &at)).unwrap();
    let mut command = Command::new("nginx");
    command
        .args(["-e", "stderr", "-p", &at, "-c"])
        .arg(&file)
        .args(["-g", "daemon off; master_process off;"]);
    Some(started(command, address, folder).await)
}

/// The files that nginx writes are in the folder of the test.
fn with_own_paths(text: &str, folder: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    let text = replaced(text, "\nhttp {\n", &format!("\nhttp {{\n{temporary}"));
    format!("error_log stderr;\npid {folder}/nginx.pid;\n{text}")
}

/// Has nginx check the configuration with its TLS settings and a certificate.
fn check_tls(text: &str, folder: &TempDir) {
    let at = folder.path().display().to_string();
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
        .args(["-subj", "/CN=gateway.example.com", "-keyout", "privkey.pem", "-out", "fullchain.pem"])
        .current_dir(folder.path())
        .output();
    assert!(made.is_ok_and(|made| made.status.success()), "openssl is needed for this test");
    let text = replaced(text, "/etc/nginx/tls", &at);
    // The check opens the listener for a moment.
    let listen = format!("listen {} ssl http2", free_address());
    let text = replaced(&text, "listen 443 ssl http2", &listen);
    let file = folder.path().join("tls.conf");
    std::fs::write(&file, with_own_paths(&text, &at)).unwrap();
    let tested =
        Command::new("nginx").args(["-t", "-e", "stderr", "-p", &at, "-c"]).arg(&file).output().unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
}

async fn caddy(gateway: SocketAddr) -> Option<FrontProxy> {
    if !is_installed("caddy") {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let text = deploy_file("Caddyfile");
    let valid = Command::new("caddy")
        .args(["validate", "--adapter", "caddyfile", "--config"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/Caddyfile"))
        .env("HOME", folder.path())
        .output()
        .unwrap();
    assert!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stderr));
    // The name would make Caddy ask for a certificate.
    let text =
        replaced(&text, "gateway.example.com {", &format!("http://:{} {{\n\tbind 127.0.0.1", address.port()));
    let text = replaced(&text, "{\n\tservers {", "{\n\tadmin off\n\tservers {");
    let text = replaced(&text, "reverse_proxy 127.0.0.1:8080", &format!("reverse_proxy {gateway}"));
    let file = folder.path().join("Caddyfile");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file).env("HOME", folder.path());
    Some(started(command, address, folder).await)
}

async fn started(mut command: Command, address: SocketAddr, folder: TempDir) -> FrontProxy {
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut proxy = FrontProxy { address, process, _folder: folder };
    for _ in 0..400 {
        if tokio::net::TcpStream::connect(address).await.is_ok() {
            return proxy;
        }
        assert!(proxy.process.try_wait().unwrap().is_none(), "the proxy has ended");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the proxy does not listen on {address}");
}

async fn gateway() -> ProxyFixture {
    let limit = MAX_BODY.to_string();
    let settings = [("GATEWAY_TRUSTED_PROXIES", "127.0.0.1"), ("GATEWAY_MAX_BODY_BYTES", limit.as_str())];
    ProxyFixture::start_with(Backend::Sqlite, &settings).await
}

async fn check(gateway: &ProxyFixture, front: &FrontProxy) {
    let call = |path: &str| {
        TestRequest::new(front.address, Method::POST, path)
            .key(&gateway.ada.api_key)
            .header("x-gateway-provider", "openai")
            .header("content-type", "application/json")
    };
    let (first, end) = (Signal::new(), Signal::new());
    let reply = Reply::sse(&[]).flush().wait_for(&first).event(ROLE).event(HELLO);
    gateway.upstream.push(reply.wait_for(&end).event(STOP).event("[DONE]"));
    let body =
        json!({"model": "m", "messages": [], "stream": true, "stream_options": {"include_usage": true}});
    let opened = call("/v1/chat/completions").raw(body.to_string()).open();
    let mut events =
        tokio::time::timeout(PATIENCE, opened).await.expect("the head passes before the first event");
    first.notify();
    for expected in [ROLE, HELLO] {
        let event =
            tokio::time::timeout(PATIENCE, events.next()).await.expect("an event passes before the next");
        assert_eq!(event.unwrap().data, expected);
    }
    end.notify();
    assert_eq!(events.next().await.unwrap().data, STOP);

    gateway.upstream.set_default_reply(good());
    let body = json!({"model": "m", "messages": [], "padding": "x".repeat(MAX_BODY - 1024)}).to_string();
    call("/v1/chat/completions").raw(body).send().await.expect(200);
    let sent = gateway.upstream.requests();
    assert!(sent.last().unwrap().body.len() > MAX_BODY - 1024);

    let login = TestRequest::new(front.address, Method::POST, "/api/v1/login")
        .header("x-forwarded-for", "203.0.113.77")
        .json(json!({"email": gateway.ada.email, "password": crate::support::PASSWORD}));
    let token = login.send().await.expect(200)["token"].as_str().unwrap().to_owned();
    let sessions = gateway.app.get("/api/v1/auth/sessions").bearer(&token).send().await.expect(200);
    let text = sessions.to_string();
    assert!(text.contains("127.0.0.1") && !text.contains("203.0.113.77"), "{text}");
}

#[tokio::test]
async fn behind_nginx() {
    for name in ["nginx.conf", "nginx-tls.conf"] {
        let gateway = gateway().await;
        if let Some(front) = nginx(name, gateway.app.address).await {
            check(&gateway, &front).await;
        }
    }
}

#[tokio::test]
async fn behind_caddy() {
    let gateway = gateway().await;
    if let Some(front) = caddy(gateway.app.address).await {
        check(&gateway, &front).await;
    }
}
