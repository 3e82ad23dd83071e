//! Provider failures as the client sees them: before the first byte an error that SDKs of both families can parse;
//! later an event in the client's format or a visible truncation. The log row agrees.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{ProxyFixture, TestResponse};
use crate::upstream::{RefusingAddress, Reply};

/// Asserts the four error fields, the provider and the attempts.
#[track_caller]
fn check_failure(answer: &TestResponse, status: u16, code: &str, upstream_status: &Value) -> Value {
    let body = answer.expect(status);
    assert_eq!((&body["code"], &body["error_code"]), (&json!(code), &json!(code)));
    assert!(body["message"].as_str().is_some_and(|text| text.starts_with("openai: ")), "{body}");
    assert_eq!(body["message"], body["error"]);
    assert_eq!((&body["provider"], &body["upstream_status"]), (&json!("openai"), upstream_status));
    let attempts = body["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!((&attempts[0]["provider"], &attempts[0]["model"]), (&json!("openai"), &json!("gpt-4o")));
    assert_eq!(&attempts[0]["status"], upstream_status);
    assert!(attempts[0]["error"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    for name in ["start_ms", "latency_ms"] {
        assert!(attempts[0][name].is_i64(), "{body}");
    }
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    assert_eq!(answer.header("x-gateway-provider"), Some("openai"));
    assert_eq!(answer.header("x-gateway-model"), Some("gpt-4o"));
    let upstream_status = upstream_status.as_u64().map(|status| status.to_string());
    assert_eq!(answer.header("x-gateway-upstream-status"), upstream_status.as_deref());
    assert!(answer.header("server-timing").is_some() && answer.header("x-ratelimit-limit").is_some());
    body
}

async fn check_row(proxy: &ProxyFixture, answer: &TestResponse, code: &str, upstream_status: &Value) {
    let row = proxy.log_row(answer).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(answer.status.as_u16()), &json!(code)));
    assert_eq!((&row["level"], &row["prompt_tokens"]), (&json!("error"), &Value::Null));
    assert_eq!((&row["cost_usd"], &row["usage_estimated"]), (&Value::Null, &json!(false)));
    assert_eq!(row["attempts"], answer.json()["attempts"]);
    assert_eq!(&row["attempts"][0]["status"], upstream_status);
}

fn body() -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]})
}

#[tokio::test]
async fn a_provider_that_breaks_before_its_head_is_a_502() {
    let proxy = ProxyFixture::start().await;
    for reply in [
        Reply::reset(),
        Reply::garbage("SSH-2.0-OpenSSH_9.6\r\n"),
        Reply::garbage("HTTP/1.1 2"),
        Reply::garbage("HTTP/1.1 200 OK\r\ncontent-le"),
        Reply::garbage(""),
    ] {
        let what = format!("{reply:?}");
        proxy.upstream.push(reply);
        let answer = proxy.chat(&body()).send().await;
        assert_eq!(answer.status.as_u16(), 502, "{what}");
        check_failure(&answer, 502, "provider_error", &Value::Null);
        check_row(&proxy, &answer, "provider_error", &Value::Null).await;
    }
    assert_eq!(proxy.upstream.requests().len(), 5, "what was sent once is not sent again unasked");
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_a_502() {
    let nobody = RefusingAddress::start();
    let settings = [("GATEWAY_PROVIDER_OPENAI_BASE_URL", &*nobody.url())];
    let proxy = ProxyFixture::start_with(crate::support::Backend::Sqlite, &settings).await;
    let answer = proxy.chat(&body()).send().await;
    let told = check_failure(&answer, 502, "provider_error", &Value::Null);
    assert!(told["message"].as_str().unwrap().contains("cannot connect"), "{told}");
    check_row(&proxy, &answer, "provider_error", &Value::Null).await;
}

#[tokio::test]
async fn a_providers_server_error_is_a_502_with_its_message() {
    let proxy = ProxyFixture::start().await;
    for status in [500, 503, 529] {
        proxy.upstream.push(Reply::json(status, r#"{"error":{"message":"the model is \"overloaded\""}}"#));
        let answer = proxy.chat(&body()).send().await;
        let told = check_failure(&answer, 502, "provider_error", &json!(status));
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("the model is \\\"overloaded\\\""), "{message}");
        check_row(&proxy, &answer, "provider_error", &json!(status)).await;
    }
}

#[tokio::test]
async fn a_refusal_by_the_provider_passes_untouched() {
    let proxy = ProxyFixture::start().await;
    let redirects = (300..=308).filter(|status| *status != 304);
    let refusals = (400..=431).chain([451, 499]);
    let mut answers = Vec::new();
    for status in redirects.chain(refusals) {
        let text = format!("{{\"error\" :{{\"message\":\"no\",\"status\":{status}}}}}\n");
        let reply = Reply::json(status, &text).header("retry-after", "7").header("x-reason", "because");
        proxy.upstream.push(reply.header("allow", "GET").header("location", "/elsewhere"));
        let answer = proxy.chat(&body()).send().await;
        assert_eq!((answer.status.as_u16(), answer.text()), (status, text));
        assert_eq!((answer.header("retry-after"), answer.header("x-reason")), (Some("7"), Some("because")));
        assert_eq!((answer.header("allow"), answer.header("location")), (Some("GET"), Some("/elsewhere")));
        assert_eq!(answer.header("x-gateway-provider"), Some("openai"), "{status}");
        assert_eq!(answer.header("x-gateway-upstream-status"), Some(&*status.to_string()));
        answers.push(answer);
    }
    for answer in answers {
        let (row, status) = (proxy.log_row(&answer).await, answer.status.as_u16());
        let level = if status < 400 { "info" } else { "warn" };
        assert_eq!((&row["status"], &row["level"]), (&json!(status), &json!(level)));
        assert_eq!(row["error_code"], Value::Null, "{status}");
        assert_eq!(row["cost_usd"], Value::Null, "{status}");
    }
}

#[tokio::test]
async fn a_long_refusal_of_a_stream_passes_whole() {
    let proxy = ProxyFixture::start().await;
    let text = json!({"error": {"message": "x".repeat(100_000)}}).to_string();
    proxy.upstream.push(Reply::json(400, &text));
    let answer = proxy.chat(&json!({"model": "gpt-4o", "stream": true})).send().await;
    assert!(answer.status.as_u16() == 400 && answer.text() == text, "{} bytes", answer.body.len());
    assert_eq!(proxy.upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_provider_that_is_too_slow_is_a_504() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::no_response());
    let began = Instant::now();
    let answer = proxy.chat(&body()).header("x-gateway-timeout", "300").send().await;
    let took = began.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_millis(900)).contains(&took), "{took:?}");
    check_failure(&answer, 504, "provider_timeout", &Value::Null);
    check_row(&proxy, &answer, "provider_timeout", &Value::Null).await;
    proxy.upstream.wait_for_aborts(1, Duration::from_secs(1)).await;
}

#[tokio::test]
async fn the_time_limit_covers_the_whole_call() {
    let proxy = ProxyFixture::start().await;
    let reply = Reply::sse(&["one"]).delay_head(Duration::from_millis(400)).then_stall();
    proxy.upstream.push(reply);
    let began = Instant::now();
    let stream = json!({"model": "gpt-4o", "stream": true, "stream_options": {"include_usage": true}});
    let answer = proxy.chat(&stream).header("x-gateway-timeout", "600").send().await;
    let took = began.elapsed();
    assert!(took < Duration::from_millis(900), "the head's time is part of the limit: {took:?}");
    let text = answer.text();
    assert!(text.starts_with("data: one\n\n") && text.contains("provider_timeout"), "{text}");
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(200), &json!("provider_timeout")));
    assert_eq!(row["level"], "error");
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_in_the_callers_format() {
    let proxy = ProxyFixture::start().await;
    for (provider, path, check) in [
        ("openai", "/v1/chat/completions", check_openai as fn(&str)),
        ("openai", "/v1/responses", check_responses),
        ("anthropic", "/v1/messages", check_anthropic),
        ("gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", check_gemini),
    ] {
        for reply in [Reply::sse(&["{\"a\":1}"]).then_reset(), Reply::sse(&["{\"a\":1}"]).then_truncate()] {
            proxy.upstream.push(reply);
            let mut raw = proxy.connect().await;
            raw.send(proxy.raw_post(provider, path, &[], br#"{"model":"gpt-4o","stream":true}"#)).await;
            let head = raw.head().await;
            let body = raw.body(&head).await.expect("the body ends as it should");
            let text = String::from_utf8(body).unwrap();
            let error = text.strip_prefix("data: {\"a\":1}\n\n").expect("what came before stays");
            check(error);
            let row = proxy.log_row_by_id(head.log_id()).await;
            assert_eq!((&row["status"], &row["error_code"]), (&json!(200), &json!("provider_error")));
            assert_eq!((&row["level"], &row["stream"]), (&json!("error"), &json!(true)));
        }
    }
}

fn data_of(event: &str) -> Value {
    let data = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("an event with data");
    serde_json::from_str(data).unwrap()
}

fn check_openai(text: &str) {
    let events: Vec<&str> = text.trim_end().split("\n\n").collect();
    assert_eq!((events.len(), events[1]), (2, "data: [DONE]"));
    assert_eq!(data_of(events[0])["error"]["code"], "provider_error");
    assert_eq!(data_of(events[0])["choices"][0]["finish_reason"], "error");
}

fn check_responses(text: &str) {
    assert!(text.starts_with("event: error\n") && text.contains("event: response.failed\n"), "{text}");
    assert_eq!(data_of(text)["code"], "provider_error");
}

fn check_anthropic(text: &str) {
    assert!(text.starts_with("event: error\n") && text.ends_with("\n\n"), "{text}");
    assert_eq!(data_of(text)["error"]["type"], "api_error");
}

fn check_gemini(text: &str) {
    assert_eq!(data_of(text)["error"]["code"], 502);
}

#[tokio::test]
async fn an_error_event_never_lands_inside_a_broken_one() {
    let proxy = ProxyFixture::start().await;
    let reply = Reply::new(200).header("content-type", "text/event-stream; charset=utf-8").chunked();
    proxy.upstream.push(reply.piece("data: {\"text\":\"caf\u{e9}").then_reset());
    let body = json!({"model": "gpt-4o", "stream": true, "stream_options": {"include_usage": true}});
    let text = proxy.chat(&body).send().await.text();
    let (broken, error) = text.split_once("\n\n").unwrap();
    assert_eq!(broken, "data: {\"text\":\"caf\u{e9}");
    check_openai(error);
}

#[tokio::test]
async fn a_truncated_plain_response_is_visibly_truncated() {
    let proxy = ProxyFixture::start().await;
    let whole = r#"{"choices":[{"message":{"content":"Hello"#;
    let json = || Reply::new(200).header("content-type", "application/json");
    for reply in [
        json().piece(whole).then_truncate(),
        json().chunked().piece(whole).then_truncate(),
        json().piece(whole).then_reset(),
    ] {
        proxy.upstream.push(reply);
        let mut raw = proxy.connect().await;
        raw.send(proxy.raw_post("openai", "/v1/chat/completions", &[], b"{\"model\":\"gpt-4o\"}")).await;
        let head = raw.head().await;
        assert_eq!(head.status, 200);
        let cut = raw.body(&head).await.expect_err("the caller must see that it is incomplete");
        assert!(String::from_utf8_lossy(&cut.got).starts_with(whole) || cut.got.is_empty());
        let row = proxy.log_row_by_id(head.log_id()).await;
        assert_eq!((&row["error_code"], &row["level"]), (&json!("provider_error"), &json!("error")));
    }
}

#[tokio::test]
async fn an_error_inside_a_good_stream_is_recorded_as_one() {
    let proxy = ProxyFixture::start().await;
    let start = r#"{"type":"message_start","message":{"model":"claude-sonnet-4-5","usage":{"input_tokens":10,"output_tokens":1}}}"#;
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    proxy.upstream.push(Reply::sse(&[start, error]));
    let body = r#"{"model":"claude-sonnet-4-5","stream":true}"#;
    let answer = proxy.post("anthropic", "/v1/messages", body).send().await;
    assert_eq!(answer.text(), format!("data: {start}\n\ndata: {error}\n\n"), "it passes untouched");
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["level"], &row["error_code"]), (&json!("error"), &json!("provider_error")));
    assert_eq!(row["attempts"][0]["error"], "overloaded_error: Overloaded");
    assert_eq!(row["prompt_tokens"], 10);
}
