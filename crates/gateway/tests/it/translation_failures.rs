//! A stream that cannot be translated to its end: the caller gets an error in its own format, and the log row, usage and
//! circuit breaker count the call as failed.

use gateway_core::llm::eventstream;
use serde_json::{Value, json};

use crate::support::{ProxyFixture, TestRequest};
use crate::upstream::Reply;

/// The events of a stream that has begun, as the provider frames them.
fn beginning(provider: &str) -> Vec<Vec<u8>> {
    let sse = |data: &[&str]| data.iter().map(|data| format!("data: {data}\n\n").into_bytes()).collect();
    match provider {
        "openai" => sse(&[
            r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"hello"}}]}"#,
        ]),
        "anthropic" => sse(&[
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"c","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
        ]),
        "gemini" => sse(&[
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"index":0}],"modelVersion":"g"}"#,
        ]),
        "cohere" => sse(&[
            r#"{"id":"c","type":"message-start","delta":{"message":{"role":"assistant","content":[]}}}"#,
            r#"{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}"#,
            r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"hello"}}}}"#,
        ]),
        _ => vec![
            frame("messageStart", r#"{"role":"assistant"}"#),
            frame("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"hello"}}"#),
        ],
    }
}

fn frame(name: &str, payload: &str) -> Vec<u8> {
    let headers = [(":message-type", "event"), (":event-type", name), (":content-type", "application/json")];
    eventstream::encode(&headers, payload.as_bytes()).unwrap()
}

/// The ways in which a stream breaks, as bytes behind its beginning.
fn breakages(provider: &str) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = vec![("the stream ends early", Vec::new())];
    if provider == "bedrock" {
        let mut corrupt = frame("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"more"}}"#);
        let last = corrupt.len() - 1;
        corrupt[last] ^= 1;
        all.push(("a frame is corrupt", corrupt));
        all.push(("an event is not JSON", frame("contentBlockDelta", r#"{"delta":{"text":"mo"#)));
        all.push(("a frame is cut off", frame("contentBlockDelta", "{}")[..20].to_vec()));
    } else {
        all.push(("an event is not JSON", b"data: {\"choices\":[{\"del\n\n".to_vec()));
        all.push(("an event is cut off", b"data: {\"choices\":[{\"del".to_vec()));
    }
    all
}

fn reply(provider: &str, rest: &[u8]) -> Reply {
    let kind = if provider == "bedrock" { "application/vnd.amazon.eventstream" } else { "text/event-stream" };
    let stream = Reply::new(200).header("content-type", kind).chunked();
    let stream = beginning(provider).iter().fold(stream, Reply::piece);
    if rest.is_empty() { stream } else { stream.piece(rest) }
}

fn ask(proxy: &ProxyFixture, client: &str, provider: &str) -> TestRequest {
    let text = "hi";
    let (path, body) = match client {
        "openai" => (
            "/v1/chat/completions",
            json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": text}]}),
        ),
        "openai-responses" => ("/v1/responses", json!({"model": "m", "stream": true, "input": text})),
        "anthropic" => (
            "/v1/messages",
            json!({"model": "m", "stream": true, "max_tokens": 9, "messages": [{"role": "user", "content": text}]}),
        ),
        _ => (
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}),
        ),
    };
    proxy.post(provider, path, body.to_string()).header("x-gateway-format", client)
}

const CLIENTS: [&str; 4] = ["openai", "openai-responses", "anthropic", "gemini"];
const PROVIDERS: [&str; 5] = ["openai", "anthropic", "gemini", "bedrock", "cohere"];

/// The pairs between which a stream is translated.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = CLIENTS.into_iter().flat_map(|client| PROVIDERS.map(|provider| (client, provider)));
    all.filter(|(client, provider)| !client.starts_with(provider))
}

fn has_error(text: &str) -> bool {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let parsed = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    parsed.into_iter().any(|event| {
        let failed = event["type"] == "error" || event["type"] == "response.failed";
        failed || event.get("error").is_some_and(|error| !error.is_null())
    })
}

#[tokio::test]
async fn a_stream_that_cannot_be_translated_is_logged_as_a_failure() {
    let proxy = ProxyFixture::start().await;
    let mut failed = Vec::new();
    for (client, provider) in pairs() {
        for (what, rest) in breakages(provider) {
            let case = format!("{what}: {provider} for a caller of {client}");
            proxy.upstream.push(reply(provider, &rest));
            let answer = ask(&proxy, client, provider).send().await;
            let text = answer.text();
            assert!(answer.status == 200 && text.contains("hello"), "{case}: {} {text}", answer.status);
            assert!(has_error(&text), "{case}: {text}");
            failed.push((case, answer));
        }
    }
    assert!(failed.len() >= 48, "{} cases", failed.len());
    for (case, answer) in &failed {
        let row = proxy.log_row(answer).await;
        assert_eq!((&row["status"], &row["error_code"]), (&json!(200), &json!("provider_error")), "{case}");
        assert_eq!(row["level"], "error", "{case}");
        assert!(row["attempts"][0]["error"].as_str().is_some_and(|text| !text.is_empty()), "{case}: {row}");
    }
    let usage = proxy.app.get("/api/v1/usage/summary").key(&proxy.ada.api_key).send().await.expect(200);
    assert_eq!((&usage["requests"], &usage["errors"]), (&json!(failed.len()), &json!(failed.len())));
}

#[tokio::test]
async fn too_large_events_and_too_many_tool_calls_end_the_call_at_once() {
    let proxy = ProxyFixture::start().await;
    let overlong = [b"data: {\"x\":\"".as_slice(), &vec![b'a'; 9 << 20]].concat();
    let call = |number: usize| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":{number},\"id\":\"c{number}\",\
             \"type\":\"function\",\"function\":{{\"name\":\"f\",\"arguments\":\"\"}}}}]}}}}]}}\n\n"
        )
    };
    let calls: String = (0..1_100).map(call).collect();
    for (what, rest) in [("an overlong event", overlong), ("too many tool calls", calls.into_bytes())] {
        // The provider would go on for ever.
        proxy.upstream.push(reply("openai", &rest).then_stall());
        let answer = ask(&proxy, "anthropic", "openai").send().await;
        assert!(has_error(&answer.text()), "{what}: {}", answer.text());
        let row = proxy.log_row(&answer).await;
        assert_eq!(
            (&row["error_code"], &row["level"]),
            (&json!("provider_error"), &json!("error")),
            "{what}"
        );
    }
    proxy.upstream.wait_for_aborts(2, std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_aggregate_of_a_broken_stream_is_a_failure() {
    let proxy = ProxyFixture::start().await;
    for (client, provider) in pairs() {
        for (what, rest) in breakages(provider) {
            proxy.upstream.push(reply(provider, &rest));
            let answer = ask(&proxy, client, provider).header("x-gateway-stream", "false").send().await;
            assert_eq!(answer.status.as_u16(), 502, "{what}, {provider} for {client}: {}", answer.text());
            let row = proxy.log_row(&answer).await;
            assert_eq!(
                (&row["status"], &row["error_code"]),
                (&json!(502), &json!("provider_error")),
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn failed_translations_open_the_circuit_breaker() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(reply("anthropic", b""));
    let call = || ask(&proxy, "openai", "anthropic").header("x-gateway-fallback", "sandbox/sandbox-small");
    let mut served = Vec::new();
    for _ in 0..6 {
        served.push(call().send().await.header("x-gateway-provider").unwrap().to_owned());
    }
    assert_eq!(served[0], "anthropic");
    assert_eq!(served[5], "sandbox", "the breaker is open: {served:?}");
}

#[tokio::test]
async fn a_failed_translation_is_not_cached() {
    let proxy = ProxyFixture::start().await;
    for _ in 0..2 {
        proxy.upstream.push(reply("anthropic", b""));
        let answer = ask(&proxy, "openai", "anthropic").header("x-gateway-cache", "true").send().await;
        assert_eq!(answer.header("x-gateway-cache"), Some("MISS"));
    }
}

#[tokio::test]
async fn large_bodies_are_translated_by_the_threads_for_computation() {
    let proxy = ProxyFixture::start().await;
    let started = || proxy.app.app.services.compute.stats().granted;
    for (asked, answered, pieces_of_work) in [(9, 9, 0), (200 << 10, 9, 1), (9, 200 << 10, 1)] {
        let answer = json!({"id": "x", "model": "m", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a".repeat(answered)}}
        ]});
        proxy.upstream.push(Reply::json(200, &answer.to_string()));
        let question = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q".repeat(asked)}]});
        let before = started();
        let call = proxy.post("openai", "/v1/messages", question.to_string());
        let translated = call.header("x-gateway-format", "anthropic").send().await.expect(200);
        assert_eq!(translated["content"][0]["text"].as_str().unwrap().len(), answered, "{translated}");
        assert_eq!(started() - before, pieces_of_work, "{asked} and {answered} bytes");
        let sent = proxy.upstream.requests().pop().unwrap().json();
        assert_eq!(sent["messages"][0]["content"].as_str().unwrap().len(), asked);
    }
}
