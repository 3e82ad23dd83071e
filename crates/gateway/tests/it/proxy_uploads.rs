//! Slow uploads: the whole request body must arrive within the time limit of the call. Then everything that the request
//! held is released.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fallback_chain::{FallbackChain, good};
use crate::support::{Backend, ProxyFixture, RawConnection, http_chunk};
use crate::upstream::Reply;

const START: &[u8] = br#"{"model":"gpt-4o","stream":false,"max_tokens":10,"messages":[],"pad":""#;
const SOON: Duration = Duration::from_secs(5);

/// Starts a chunked upload and sends a byte every few milliseconds until the response arrives.
async fn drip(proxy: &ProxyFixture, headers: &[(&str, &str)]) -> (u16, Option<i64>, Value) {
    let mut raw = proxy.connect().await;
    let mut all = vec![("transfer-encoding", "chunked"), ("content-type", "application/json")];
    all.extend_from_slice(headers);
    raw.send(proxy.raw_head("openai", "/v1/chat/completions", &all)).await;
    raw.send(http_chunk(START)).await;
    let head = loop {
        tokio::select! {
            head = raw.head() => break head,
            () = tokio::time::sleep(Duration::from_millis(30)) => {}
        }
        raw.send(http_chunk(b"x")).await;
    };
    let body = raw.body(&head).await.unwrap();
    let log_id = head.header("x-gateway-log-id").and_then(|id| id.parse().ok());
    (head.status, log_id, serde_json::from_slice(&body).unwrap())
}

async fn check(proxy: &ProxyFixture, headers: &[(&str, &str)]) {
    let (status, log_id, body) = drip(proxy, headers).await;
    assert_eq!((status, &body["code"]), (408, &json!("request_timeout")), "{headers:?}: {body}");
    let row = proxy.log_row_by_id(log_id.expect("a log id")).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(408), &json!("request_timeout")), "{headers:?}");
}

#[tokio::test]
async fn a_dripping_upload_ends_at_the_time_limit() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_PROXY_TIMEOUT_MS", "400")]).await;
    proxy.upstream.set_default_reply(good());
    // Streamed to the provider, buffered for a retry, and buffered for a fallback.
    check(&proxy, &[]).await;
    proxy.upstream.wait_for_aborts(1, SOON).await;
    check(&proxy, &[("x-gateway-retry", "1")]).await;
    check(&proxy, &[("x-gateway-fallback", "sandbox")]).await;
    assert!(proxy.upstream.requests().is_empty(), "no request was completed");
}

#[tokio::test]
async fn a_dripping_upload_ends_at_the_timeout_that_the_caller_asked_for() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    check(&proxy, &[("x-gateway-timeout", "300")]).await;
}

#[tokio::test]
async fn a_dripping_upload_gives_its_reservation_back() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_PROXY_TIMEOUT_MS", "400")]).await;
    let path = format!("/api/v1/orgs/{}/budgets", proxy.ada.org_id);
    let budget = json!({"scope": "org", "period": "monthly", "hard_limit_usd": 0.01});
    proxy.app.post(&path, budget).bearer(&proxy.ada.token).send().await.expect(201);
    let (status, _, body) = drip(&proxy, &[]).await;
    assert_eq!((status, &body["code"]), (408, &json!("request_timeout")), "{body}");
    proxy.upstream.set_default_reply(good());
    let body = json!({"model": "gpt-4o", "max_tokens": 900, "messages": []});
    proxy.chat(&body).send().await.expect(200);
}

#[tokio::test]
async fn a_dripping_upload_is_not_a_failure_of_the_target() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(good());
    for _ in 0..6 {
        check(&chain.proxy, &[("x-gateway-timeout", "100")]).await;
    }
    let body = json!({"model": "gpt-4o", "messages": []});
    let answer = chain.proxy.chat(&body).header("x-gateway-fallback", "second").send().await;
    assert_eq!(answer.header("x-gateway-provider"), Some("openai"));
}

#[tokio::test]
async fn a_provider_that_does_not_read_the_upload_is_the_one_that_timed_out() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::no_response().early());
    let mut raw: RawConnection = proxy.connect().await;
    let length = (20 << 20).to_string();
    let headers = [("content-length", length.as_str()), ("x-gateway-timeout", "500")];
    raw.send(proxy.raw_head("openai", "/v1/embeddings", &headers)).await;
    raw.send(br#"{"model":"m","stream":false,"input":""#).await;
    // More than the buffers of all sockets on the way hold.
    let sending = async { while raw.try_send(vec![b'a'; 1 << 16]).await {} };
    let _ = tokio::time::timeout(SOON, sending).await;
    let row = proxy.only_row().await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(504), &json!("provider_timeout")));
}
