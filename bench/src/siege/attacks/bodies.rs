//! Attacks on memory and on the parsers of bodies.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::victim::api_request;
use super::Attacker;
use crate::exchange::read_reply;

const SANDBOX: &str = "X-Gateway-Provider: sandbox\r\n";
const DEEP_BODY_BYTES: usize = 256 << 10;
const LARGE_BODY_BYTES: usize = 24 << 20;
const PIECES: usize = 64 << 10;
const CACHED_BODY_BYTES: usize = 900 << 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Bodies that are expensive for a parser which copies its stack.
pub(super) async fn malformed(attacker: Arc<Attacker>, _: usize) {
    let body = ["[".repeat(DEEP_BODY_BYTES / 2), ",".repeat(DEEP_BODY_BYTES / 2)].concat();
    let request = attacker.proxied(SANDBOX, body.as_bytes());
    let mut client = attacker.client();
    loop {
        attacker.send("malformed-bodies", &mut client, &request).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Large bodies that must be kept for a retry while the provider sleeps.
pub(super) async fn held(attacker: Arc<Attacker>, _: usize) {
    let request = attacker.large_request.get_or_init(|| {
        let text = "a".repeat(LARGE_BODY_BYTES);
        let body =
            format!(r#"{{"model":"sandbox-small","messages":[{{"role":"user","content":"{text}"}}]}}"#);
        let headers = format!("{SANDBOX}X-Sandbox-Delay-Ms: 600000\r\nX-Gateway-Retry: 1\r\n");
        attacker.proxied(&headers, body.as_bytes())
    });
    loop {
        let mut client = attacker.client();
        attacker.send("held-bodies", &mut client, request).await;
        tokio::time::sleep(10 * PAUSE).await;
    }
}

/// Bodies in chunks of one byte.
pub(super) async fn tiny_pieces(attacker: Arc<Attacker>, _: usize) {
    let head = attacker.proxied(&format!("{SANDBOX}X-Gateway-Retry: 1\r\n"), b"");
    let head = String::from_utf8_lossy(&head).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let body = [&b"1\r\n \r\n".repeat(PIECES)[..], b"2\r\n{}\r\n0\r\n\r\n"].concat();
    loop {
        let answer = async {
            let mut stream = attacker.client().connect().await.ok()?;
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(&body).await.ok()?;
            Some(read_reply(&mut stream).await.ok()?.0.status)
        };
        match answer.await {
            Some(status) => attacker.count("tiny-pieces", status.to_string()),
            None => attacker.count("tiny-pieces", "closed"),
        }
        tokio::time::sleep(10 * PAUSE).await;
    }
}

/// Large and deep bodies, each with a cache entry of its own.
pub(super) async fn cached(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    for number in 0_u64.. {
        let depth = 100;
        let text = "b".repeat(CACHED_BODY_BYTES);
        let body = format!(
            r#"{{"model":"sandbox-small","user":"{task}-{number}","x":{}"{text}"{},"messages":[{{"role":"user","content":"hi"}}]}}"#,
            r#"{"y":"#.repeat(depth),
            "}".repeat(depth)
        );
        let request = attacker.proxied(&format!("{SANDBOX}X-Gateway-Cache: true\r\n"), body.as_bytes());
        attacker.send("cached-bodies", &mut client, &request).await;
        tokio::time::sleep(5 * PAUSE).await;
    }
}

/// A provider of the attacker that sends without end.
pub(super) async fn endless_answers(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let path = format!("/orgs/{}/providers", attacker.org);
    let name = format!("endless{task}");
    let body =
        json!({"name": name, "kind": "openai", "base_url": format!("http://{}", attacker.servers.endless)});
    attacker.api("endless-answers", &mut client, ("POST", &path), &body).await;
    let body = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    // The answer must be held to be validated.
    let headers = format!("X-Gateway-Provider: {name}\r\nX-Gateway-Retry: 1\r\nX-Gateway-Cache: true\r\n");
    let request = attacker.proxied(&headers, body);
    loop {
        let mut client = attacker.client();
        attacker.send("endless-answers", &mut client, &request).await;
        tokio::time::sleep(5 * PAUSE).await;
    }
}

/// The provider: one JSON string of 64 MiB.
pub(super) async fn answer_without_end(mut stream: TcpStream) {
    let mut request = [0; 16 << 10];
    while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 67108864\r\n\r\n\"";
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        let piece = vec![b'c'; 64 << 10];
        for _ in 0..1_024 {
            if stream.write_all(&piece).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Many spans in the past, and large ones.
pub(super) async fn spans(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    for number in 0_u64.. {
        let time = (1_700_000_000 + 86_400 * (number % 900)) * 1_000_000_000;
        let spans: Vec<_> = (0..200_u64)
            .map(|span| {
                json!({"traceId": format!("{task:08x}{number:024x}"), "spanId": format!("{span:016x}"),
                    "name": "chat", "kind": 3, "startTimeUnixNano": time.to_string(),
                    "endTimeUnixNano": (time + 1_000_000).to_string(),
                    "attributes": [
                        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                        {"key": "gen_ai.request.model", "value": {"stringValue": format!("m{number}-{span}")}},
                        {"key": "user.id", "value": {"stringValue": format!("u{number}-{span}")}}]})
            })
            .collect();
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
        let request = api_request("POST", "/otel/v1/traces", &attacker.key, &body);
        attacker.send("spans", &mut client, &request).await;
        tokio::time::sleep(5 * PAUSE).await;
    }
}
