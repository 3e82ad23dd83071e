//! Properties of what the gateway itself reads: request heads, query strings and cursors, spooled records, session
//! tokens, and settings. See `gateway-core/tests/hostile` for everything else.

#[path = "../../../gateway-core/tests/hostile/harness.rs"]
mod harness;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use gateway::auth::tokens::{Claims, Tokens};
use gateway::config::{Config, RawSettings};
use gateway::log::spool::{Spool, read_records};
use gateway_core::access::Role;
use gateway_core::logs::LogRow;
use gateway_core::time::Timestamp;

use crate::support::log_rows::row_in_org;
use crate::support::{Backend, TestApp};
use harness::{FuzzTarget, fuzz};

const FIXTURES: &str = "tests/it/fixtures/fuzz";
const SECONDS: u64 = 8;

#[test]
fn stored_and_signed_bytes() {
    let token = tokens().issue(&claims()).unwrap();
    let targets = vec![
        FuzzTarget { name: "records", seeds: vec![segment()], check: records },
        FuzzTarget { name: "encoded-rows", seeds: vec![encoded_row()], check: encoded_rows },
        FuzzTarget { name: "tokens", seeds: vec![token.into_bytes()], check: read_token },
        FuzzTarget {
            name: "settings",
            seeds: [
                "GATEWAY_LISTEN=[::1]:8080\nGATEWAY_TRUSTED_PROXIES=10.0.0.0/8, ::1/128\nGATEWAY_DATABASE_CONNECTIONS=12",
                "GATEWAY_QUOTAS=free.keys=3, pro.rows_per_day=0\nGATEWAY_DATABASE_URL=postgres://a:b@c/d\nGATEWAY_WORKERS=2",
                "GATEWAY_PROVIDER_OPENAI_BASE_URL=https://example.com/v1\nGATEWAY_REDIS_URL=redis://localhost",
            ]
            .map(|text| text.as_bytes().to_vec())
            .to_vec(),
            check: settings,
        },
    ];
    fuzz(FIXTURES, targets, SECONDS);
}

/// The bytes of a segment with some rows.
fn segment() -> Vec<u8> {
    let data = tempfile::tempdir().unwrap();
    let spool = Spool::open(data.path().to_owned(), 1, 1 << 20).unwrap();
    for number in 0..3 {
        spool.append(0, row_in_org(&uuid::Uuid::nil().to_string(), Timestamp(1_800_000_000_000 + number)));
    }
    let segments = spool.segments().unwrap();
    std::fs::read(&segments[0].path).unwrap()
}

fn records(bytes: &[u8]) {
    let found = read_records(bytes);
    assert!(usize::try_from(found.length).unwrap() <= bytes.len());
    let kept: usize = found.rows.iter().map(|row| row.request.len() + row.response.len()).sum();
    assert!(kept <= bytes.len());
}

/// What a record has behind its checksum, which would keep changed bytes from being read.
fn encoded_row() -> Vec<u8> {
    let mut bytes = Vec::new();
    row_in_org(&uuid::Uuid::nil().to_string(), Timestamp(1_800_000_000_000)).encode(&mut bytes);
    bytes
}

/// Whatever is read is encoded to what reads the same.
fn encoded_rows(bytes: &[u8]) {
    let Ok(row) = LogRow::decode(bytes) else { return };
    let mut again = Vec::new();
    row.encode(&mut again);
    assert!(again.len() <= 2 * bytes.len() + 64, "{} and {}", again.len(), bytes.len());
    assert_eq!(LogRow::decode(&again).unwrap(), row);
}

fn tokens() -> &'static Tokens {
    static TOKENS: OnceLock<Tokens> = OnceLock::new();
    TOKENS.get_or_init(|| Tokens::new(&"a token secret for tests, 32 bytes or more".to_owned().into()))
}

fn claims() -> Claims {
    let id = uuid::Uuid::from_u128(7);
    Claims { sub: id.into(), org: id.into(), role: Role::Viewer, iat: 0, exp: 2_000_000_000, jti: id.into() }
}

/// A token is accepted only with the claims that were signed.
fn read_token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(read) = tokens().read(&text, Timestamp(1)) {
        assert_eq!(serde_json::to_value(read).unwrap(), serde_json::to_value(claims()).unwrap());
    }
}

fn settings(bytes: &[u8]) {
    static DATA: OnceLock<tempfile::TempDir> = OnceLock::new();
    let data = DATA.get_or_init(|| tempfile::tempdir().unwrap()).path();
    let text = String::from_utf8_lossy(bytes);
    let given = text.lines().filter_map(|line| line.split_once('='));
    let mut environment: Vec<(String, String)> =
        given.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    environment.push(("GATEWAY_DATA_DIR".to_owned(), data.display().to_string()));
    let values = RawSettings::load(None, environment).unwrap();
    if let Err(error) = Config::validate(&values) {
        assert!(!error.to_string().is_empty());
    }
    let file = data.join("gateway.toml");
    std::fs::write(&file, bytes).unwrap();
    let _ = RawSettings::load(Some(&file), Vec::new());
}

static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_heads() {
    let app = TestApp::start_with(Backend::Sqlite, &[]).await;
    let ada = app.signup("acme").await;
    ADDRESS.set(app.address).unwrap();
    let key = &ada.api_key;
    let head = |line: &str| {
        format!("{line} HTTP/1.1\r\nHost: a\r\nX-Gateway-Key: {key}\r\nConnection: close\r\n\r\n")
            .into_bytes()
    };
    let lists =
        ["logs", "sessions", "keys", "prompts", "datasets", "evals", "usage/timeseries", "usage/breakdown"];
    let queries = lists.map(|list| {
        head(&format!(
            "GET /api/v1/{list}?limit=5&cursor=MTIz&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z&q=a%20b&status=5xx&\
             interval=hour&by=model"
        ))
    });
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#;
    let proxied = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-Gateway-Key: {key}\r\nX-Gateway-Provider: sandbox\r\n\
         X-Gateway-Cache: 60\r\nX-Gateway-Fallback: sandbox/x, sandbox\r\nX-Gateway-Timeout: 500\r\n\
         X-Gateway-Metadata: {{\"a\":1}}\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let fuzzing = move || {
        let targets = vec![
            FuzzTarget { name: "queries", seeds: queries.to_vec(), check: answered },
            FuzzTarget { name: "heads", seeds: vec![proxied.into_bytes()], check: answered },
        ];
        fuzz(FIXTURES, targets, SECONDS);
    };
    tokio::task::spawn_blocking(fuzzing).await.unwrap();
    app.get("/healthz").send().await.expect(200);
}

/// The server answers, or closes the connection. No head is an error of its own.
fn answered(head: &[u8]) {
    let mut connection = TcpStream::connect(ADDRESS.get().unwrap()).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let sent = connection.write_all(head).and_then(|()| connection.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    if sent.is_err() || connection.read_to_end(&mut answer).is_err() || answer.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    let status = status.unwrap_or_else(|| panic!("not a response: {text}"));
    // 501 and 505 are answers to methods and versions that the server does not have.
    assert!(status < 500 || matches!(status, 501 | 505), "{text}");
}
