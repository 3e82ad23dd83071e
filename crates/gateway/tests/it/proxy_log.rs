//! The log row of a request: its fields, stored bodies, and which requests get one.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::support::{Backend, ProxyFixture, log_id, request};
use crate::upstream::Reply;

const LIMIT: usize = 256 << 10;

fn body() -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Wie geht's?"}], "user": "in-the-body"})
}

#[tokio::test]
async fn a_row_describes_the_request_and_its_outcome() {
    check_row(Backend::Sqlite).await;
    check_row(Backend::Postgres).await;
}

async fn check_row(backend: Backend) {
    let proxy = ProxyFixture::start_with(backend, &[]).await;
    proxy
        .upstream
        .push(Reply::json(200, r#"{"id":"x","model":"gpt-4o"}"#).delay_head(Duration::from_millis(30)));
    let call = proxy.post("openai", "/v1/chat/completions?secret=1", body().to_string());
    let answer = call.header("x-request-id", "r-1").send().await;
    let row = proxy.log_row(&answer).await;
    let expected = json!({
        "request_id": "r-1", "level": "info", "source": "proxy", "provider": "openai", "model": "gpt-4o",
        "method": "POST", "path": "/v1/chat/completions", "status": 200, "error_code": null, "stream": false,
        "user": "in-the-body", "metadata": {}, "request_stored": "full", "response_stored": "full",
        "request": body(), "response": {"id": "x", "model": "gpt-4o"},
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{name}");
    }
    let number = |value: &Value| value.as_i64().unwrap();
    assert!((30..5_000).contains(&number(&row["latency_ms"])));
    assert!((30..=number(&row["latency_ms"])).contains(&number(&row["ttft_ms"])));
    let attempts = row["attempts"].as_array().unwrap();
    assert_eq!(
        (attempts.len(), &attempts[0]["status"], &attempts[0]["error"]),
        (1, &json!(200), &Value::Null)
    );
    assert_eq!((&attempts[0]["provider"], &attempts[0]["model"]), (&json!("openai"), &json!("gpt-4o")));
    assert!(number(&attempts[0]["start_ms"]) >= 0 && number(&attempts[0]["latency_ms"]) >= 30);
    let keys = proxy.app.get("/api/v1/keys").key(&proxy.ada.api_key).send().await.expect(200);
    assert_eq!(row["key_id"], keys["keys"][0]["id"]);
    // A session token has no key id.
    proxy.upstream.push(Reply::json(200, "{}"));
    let call = proxy.app.get("/v1/files").bearer(&proxy.ada.token).header("x-gateway-provider", "openai");
    assert_eq!(proxy.log_row(&call.send().await).await["key_id"], Value::Null);
}

#[tokio::test]
async fn session_user_and_metadata_are_recorded_with_the_row() {
    check_tags(Backend::Sqlite).await;
    check_tags(Backend::Postgres).await;
}

async fn check_tags(backend: Backend) {
    let proxy = ProxyFixture::start_with(backend, &[]).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let call = proxy.chat(&body()).header("x-gateway-session", "s-1").header("x-gateway-user", "ada");
    let answer =
        call.header("x-gateway-metadata", r#"{"team":"blue","n":[1,2.5],"x":{"y":null}}"#).send().await;
    let row = proxy.log_row(&answer).await;
    assert_eq!(
        (&row["session_id"], &row["user"]),
        (&json!("s-1"), &json!("ada")),
        "the header beats the body"
    );
    assert_eq!(row["metadata"], json!({"team": "blue", "n": [1, 2.5], "x": {"y": null}}));
    // Names may be any text.
    let mut raw = proxy.connect().await;
    let headers = [
        ("x-gateway-key", proxy.ada.api_key.as_str()),
        ("x-gateway-provider", "openai"),
        ("x-gateway-user", "J\u{fc}rgen \u{1F600}"),
        ("x-gateway-metadata", "{\"\u{fc}\":\"\u{65e5}\"}"),
    ];
    raw.send(request("GET", "/v1/files", &headers, b"")).await;
    let row = proxy.log_row_by_id(raw.head().await.log_id()).await;
    assert_eq!(
        (&row["user"], &row["metadata"]),
        (&json!("J\u{fc}rgen \u{1F600}"), &json!({"\u{fc}": "\u{65e5}"}))
    );
}

#[tokio::test]
async fn a_trace_continues_through_the_gateway() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let call = proxy.chat(&body()).header("traceparent", trace).header("tracestate", "vendor=1");
    let answer = call.send().await;
    let seen = &proxy.upstream.requests()[0];
    assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (Some(trace), Some("vendor=1")));
    assert_eq!(proxy.traceparent(log_id(&answer)).await.as_deref(), Some(trace));
}

#[tokio::test]
async fn bodies_are_kept_only_where_all_agree() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, r#"{"secret":"answer"}"#));
    let nothing = |row: &Value| {
        assert_eq!((&row["request_stored"], &row["response_stored"]), (&json!("off"), &json!("off")));
        assert_eq!((&row["request"], &row["response"]), (&Value::Null, &Value::Null));
        assert_eq!((&row["status"], &row["model"]), (&json!(200), &json!("gpt-4o")));
    };
    nothing(&proxy.log_row(&proxy.chat(&body()).header("x-gateway-log", "metadata").send().await).await);
    let row = proxy.log_row(&proxy.chat(&body()).header("x-gateway-log", "full").send().await).await;
    assert_eq!((&row["request"], &row["response"]), (&body(), &json!({"secret": "answer"})));
    let path = format!("/api/v1/orgs/{}", proxy.ada.org_id);
    let change = proxy.app.put(&path, json!({"settings": {"log_bodies": false}})).bearer(&proxy.ada.token);
    change.send().await.expect(200);
    nothing(&proxy.log_row(&proxy.chat(&body()).header("x-gateway-log", "full").send().await).await);
}

#[tokio::test]
async fn the_operator_can_switch_bodies_off_for_all() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_LOG_BODIES", "false")]).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let row = proxy.log_row(&proxy.chat(&body()).header("x-gateway-log", "full").send().await).await;
    assert_eq!((&row["request_stored"], &row["request"]), (&json!("off"), &Value::Null));
}

#[tokio::test]
async fn an_estimate_needs_no_stored_body() {
    let proxy = ProxyFixture::start().await;
    proxy
        .upstream
        .set_default_reply(Reply::json(200, r#"{"choices":[{"message":{"content":"a short answer"}}]}"#));
    let prompt = "word ".repeat(40_000);
    let long = json!({"model": "gpt-4o", "stream": false, "messages": [{"role": "user", "content": prompt}]});
    let estimate = async |log: &str| {
        let row = proxy.log_row(&proxy.chat(&long).header("x-gateway-log", log).send().await).await;
        assert_eq!(row["usage_estimated"], true);
        row["prompt_tokens"].as_i64().unwrap()
    };
    let (kept, dropped) = (estimate("full").await, estimate("metadata").await);
    assert!(kept > 20_000, "{kept}");
    assert!((kept / 2..kept * 2).contains(&dropped), "{dropped} is not about {kept}");
}

#[tokio::test]
async fn bodies_are_cut_at_256_kib() {
    let proxy = ProxyFixture::start().await;
    for (length, stored) in [(LIMIT, "full"), (LIMIT + 1, "truncated"), (3 * LIMIT, "truncated")] {
        let text = |start: &str| format!("{start}{}\"}}", "x".repeat(length - start.len() - 2));
        let (sent, back) = (text(r#"{"model":"gpt-4o","stream":false,"a":""#), text(r#"{"b":""#));
        proxy.upstream.push(Reply::json(200, &back));
        let answer = proxy.post("openai", "/v1/embeddings", sent.clone()).send().await;
        assert!(
            answer.body == back.as_bytes()
                && proxy.upstream.requests().last().unwrap().body == sent.as_bytes()
        );
        let row = proxy.log_row(&answer).await;
        assert_eq!(
            (&row["request_stored"], &row["response_stored"]),
            (&json!(stored), &json!(stored)),
            "{length}"
        );
        for (kept, whole) in [(&row["request"], &sent), (&row["response"], &back)] {
            let kept = kept.as_str().map_or_else(|| kept.to_string(), ToOwned::to_owned);
            assert!(kept == whole[..length.min(LIMIT)], "{} bytes were kept of {length}", kept.len());
        }
    }
}

#[tokio::test]
async fn ids_ascend_and_fit_into_a_double() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let mut last = 0;
    for _ in 0..10 {
        let id = log_id(&proxy.chat(&body()).send().await);
        assert!(id > last && id < 1 << 53, "{last} then {id}");
        last = id;
    }
    // Takes effect at once on all workers.
    let calls = (0..60).map(|_| tokio::spawn(proxy.chat(&body()).send()));
    let mut ids = HashSet::new();
    for call in calls.collect::<Vec<_>>() {
        assert!(ids.insert(log_id(&call.await.unwrap())), "no two requests share an id");
    }
    assert!(ids.iter().all(|id| *id > last));
}

#[tokio::test]
async fn only_admitted_requests_leave_a_row() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let scoped = proxy.key(&["provider:anthropic"]).await;
    proxy.app.get("/v1/files").header("x-gateway-provider", "openai").send().await.expect(401);
    proxy.app.get("/v1/files").key(&scoped).header("x-gateway-provider", "openai").send().await.expect(403);
    proxy.call(Method::GET, "nobody", "/v1/files").send().await.expect(400);
    proxy.chat(&body()).header("x-gateway-timeout", "x").send().await.expect(400);
    proxy.app.get("/api/v1/keys").key(&proxy.ada.api_key).send().await.expect(200);
    let answer = proxy.chat(&body()).send().await;
    proxy.log_row(&answer).await;
    assert_eq!(proxy.only_row().await["id"], log_id(&answer));
}

#[tokio::test]
async fn the_sandbox_is_accounted_for_like_any_provider() {
    let proxy = ProxyFixture::start().await;
    let call = proxy.post("sandbox", "/v1/chat/completions", body().to_string());
    let answer = call.header("x-sandbox-reply", "pong").send().await;
    assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], "pong");
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["provider"], &row["usage_estimated"]), (&json!("sandbox"), &json!(false)));
    assert_eq!(row["prompt_tokens"], answer.json()["usage"]["prompt_tokens"]);

    let mut stream = body();
    stream["stream"] = json!(true);
    let call = proxy.post("sandbox", "/v1/chat/completions", stream.to_string());
    let answer = call.header("x-sandbox-chunks", "3").send().await;
    let text = answer.text();
    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("\"usage\":{"), "{text}");
    assert!(proxy.log_row(&answer).await["total_tokens"].as_i64().is_some_and(|total| total > 0));

    let call = proxy.post("sandbox", "/v1/chat/completions", body().to_string());
    let answer = call.header("x-sandbox-status", "503").send().await;
    assert_eq!(answer.expect_error(502, "provider_error")["upstream_status"], 503);
    assert_eq!(proxy.log_row(&answer).await["error_code"], "provider_error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expensive_body_does_not_delay_the_rows_of_others() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        proxy.upstream.set_default_reply(Reply::json(400, "{}"));
        let other = proxy.app.signup("other").await;
        let half = 128 << 10;
        let bodies = [
            "[".repeat(half) + &",".repeat(half),
            r#"{"messages":[{"role":"user","content":"#.repeat(half / 20),
            format!("{{\"input\":\"{}", "\\ud83d".repeat(half / 3)),
        ];
        for body in &bodies {
            for _ in 0..3 {
                proxy.post("openai", "/v1/chat/completions", body.clone()).send().await.expect(400);
            }
        }
        let call = proxy.app.post("/v1/chat/completions", json!({"model": "m", "messages": []}));
        let answer = call.key(&other.api_key).header("x-gateway-provider", "openai").send().await;
        let path = format!("/api/v1/logs/{}", log_id(&answer));
        let sent = Instant::now();
        while proxy.app.get(&path).key(&other.api_key).send().await.status != 200 {
            assert!(sent.elapsed() < Duration::from_secs(4), "the row of another organization is not stored");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
