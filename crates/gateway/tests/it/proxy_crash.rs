//! The process is killed under load and restarted: every request that completed for the client has exactly one row.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;

use crate::support::{Backend, GatewayProcess, PASSWORD, all_log_ids, command, fresh_settings};
use crate::upstream::{Reply, Upstream};

const CLIENTS: usize = 8;

/// Sends streaming and plain requests until the gateway is gone. Returns the log ids of the completed ones.
async fn load(
    address: SocketAddr,
    key: String,
    number: usize,
    seen: Arc<Mutex<BTreeSet<i64>>>,
) -> Option<()> {
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    loop {
        let body = json!({"model": "gpt-4o", "stream": number.is_multiple_of(2), "messages": [{"content": "x".repeat(2_000)}]});
        let request = Request::post("/v1/chat/completions")
            .header("host", "gateway.test")
            .header("x-gateway-key", &key)
            .header("x-gateway-provider", if number.is_multiple_of(2) { "openai" } else { "anthropic" });
        let response =
            sender.send_request(request.body(Full::new(Bytes::from(body.to_string()))).ok()?).await.ok()?;
        let id = response.headers().get("x-gateway-log-id")?.to_str().ok()?.parse().ok()?;
        response.into_body().collect().await.ok()?;
        assert!(seen.lock().unwrap().insert(id), "an id was given twice");
    }
}

async fn survives_being_killed(backend: Backend) {
    // Streams and plain responses come from two upstreams.
    let (streams, answers) = (Upstream::start().await, Upstream::start().await);
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;
    let text = Reply::sse(&[r#"{"choices":[{"delta":{"content":"a"}}]}"#]);
    streams.set_default_reply(text.delay(Duration::from_millis(2)).event(usage).event("[DONE]"));
    answers.set_default_reply(Reply::json(200, r#"{"usage":{"input_tokens":3,"output_tokens":2}}"#));
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    settings.push(("GATEWAY_RATE_LIMIT_FREE".to_owned(), "0".to_owned()));
    settings.push(("GATEWAY_PROVIDER_OPENAI_BASE_URL".to_owned(), streams.url()));
    settings.push(("GATEWAY_PROVIDER_ANTHROPIC_BASE_URL".to_owned(), answers.url()));
    let start = || GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned()));

    let mut process = start();
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
    let account = process.post("/api/v1/signup", &body).send().await.expect(201);
    let key = account["api_key"].as_str().unwrap().to_owned();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    for time in [900, 350, 120] {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| tokio::spawn(load(process.address, key.clone(), number, Arc::clone(&seen))))
            .collect();
        tokio::time::sleep(Duration::from_millis(time)).await;
        let before = seen.lock().unwrap().len();
        // Dropping it sends SIGKILL, so the process cannot prepare.
        drop(process);
        for client in clients {
            client.await.unwrap();
        }
        assert!(before > 0, "there was load");
        process = start();
    }
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() > 50, "only {} requests ended", seen.len());

    let began = Instant::now();
    let stored = loop {
        let stored = all_log_ids(process.address, &key).await;
        let missing: Vec<_> = seen.iter().filter(|id| !stored.contains(id)).collect();
        if missing.is_empty() {
            break stored;
        }
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{} of {} rows are lost",
            missing.len(),
            seen.len()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let distinct: BTreeSet<i64> = stored.iter().copied().collect();
    assert_eq!(distinct.len(), stored.len(), "a row is there twice");
    let usage = process.get("/api/v1/usage/summary").key(&key).send().await.expect(200);
    assert_eq!(usage["requests"], stored.len(), "each row is counted once");
    for id in seen.iter().step_by(seen.len() / 20 + 1) {
        let row = process.get(&format!("/api/v1/logs/{id}")).key(&key).send().await.expect(200);
        assert_eq!((&row["status"], &row["total_tokens"]), (&json!(200), &json!(5)), "{row}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_that_a_caller_saw_end_is_lost_or_doubled_by_a_kill_on_sqlite() {
    survives_being_killed(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_that_a_caller_saw_end_is_lost_or_doubled_by_a_kill_on_postgres() {
    survives_being_killed(Backend::Postgres).await;
}
