//! Conversion of responses: a stream into a body, a body into a stream, and between wire formats.

use http::Method;
use serde_json::{Value, json};

use crate::support::ProxyFixture;
use crate::upstream::Reply;

const PLAIN: &str = r#"{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello world"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;
const CHUNKS: [&str; 5] = [
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"hello world"},"finish_reason":null}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#,
    "[DONE]",
];
const CLAUDE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"hello world"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
const CLAUDE_EVENTS: [(&str, &str); 6] = [
    (
        "message_start",
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}"#,
    ),
    (
        "content_block_start",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello world"}}"#,
    ),
    ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
    (
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}"#,
    ),
    ("message_stop", r#"{"type":"message_stop"}"#),
];

fn as_events(events: &[(&str, &str)]) -> String {
    let event = |(name, data): &(&str, &str)| format!("event: {name}\ndata: {data}\n\n");
    events.iter().map(event).collect::<Vec<_>>().concat()
}

fn claude_stream() -> Reply {
    let events = as_events(&CLAUDE_EVENTS);
    Reply::new(200).header("content-type", "text/event-stream").chunked().body(events)
}

fn ask(stream: bool) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "stream": stream})
}

fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn said(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
}

#[tokio::test]
async fn a_caller_that_wants_one_body_gets_the_aggregated_stream() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::sse(&CHUNKS));
    let answer = proxy.chat(&ask(true)).header("x-gateway-stream", "false").send().await;
    let body = answer.expect(200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(body["choices"][0]["message"]["content"], "hello world");
    assert_eq!((&body["object"], &body["usage"]["total_tokens"]), (&json!("chat.completion"), &json!(5)));
    assert_eq!(proxy.upstream.requests()[0].json()["stream"], true, "it was collected from the stream");
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["total_tokens"], &row["status"]), (&json!(5), &json!(200)));
}

#[tokio::test]
async fn a_caller_that_wants_a_stream_gets_one_whatever_its_body_says() {
    let proxy = ProxyFixture::start().await;
    // One provider that streams on request, and one that does not.
    proxy.upstream.push(Reply::sse(&CHUNKS));
    proxy.upstream.push(Reply::json(200, PLAIN));
    for _ in 0..2 {
        let answer = proxy.chat(&ask(false)).header("x-gateway-stream", "true").send().await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, Some("text/event-stream")));
        let text = answer.text();
        let events = events(&text);
        assert_eq!(said(&events), "hello world");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        assert!(events.iter().all(|event| event["usage"].is_null()), "nobody asked for usage");
        assert_eq!(proxy.log_row(&answer).await["total_tokens"], 5);
    }
    assert_eq!(proxy.upstream.requests()[0].json()["stream"], true);
}

#[tokio::test]
async fn a_stream_that_breaks_during_aggregation_is_an_error_and_not_a_partial_response() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::sse(&CHUNKS[..2]));
    let answer = proxy.chat(&ask(true)).header("x-gateway-stream", "false").send().await;
    answer.expect_error(502, "provider_error");
    let wrong = proxy.chat(&ask(true)).header("x-gateway-stream", "maybe").send().await;
    wrong.expect_error(400, "bad_request");
}

#[tokio::test]
async fn a_stream_is_aggregated_and_a_body_is_streamed_in_the_providers_own_format() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(claude_stream());
    let body = json!({"model": "claude-x", "max_tokens": 5, "messages": [], "stream": true}).to_string();
    let folded =
        proxy.post("anthropic", "/v1/messages", body).header("x-gateway-stream", "false").send().await;
    assert_eq!(folded.expect(200)["content"][0]["text"], "hello world");
    proxy.upstream.push(Reply::json(200, CLAUDE));
    let body = json!({"model": "claude-x", "max_tokens": 5, "messages": []}).to_string();
    let replayed =
        proxy.post("anthropic", "/v1/messages", body).header("x-gateway-stream", "true").send().await;
    let text = replayed.text();
    assert!(text.contains("event: message_start") && text.contains("event: message_stop"), "{text}");
    let gemini = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2},"modelVersion":"g"}"#;
    proxy.upstream.push(Reply::sse(&[gemini]));
    let path = "/v1beta/models/g:generateContent";
    let streamed =
        proxy.post("gemini", path, r#"{"contents":[]}"#).header("x-gateway-stream", "true").send().await;
    assert!(streamed.text().contains("hello"));
    let sent = proxy.upstream.requests().pop().unwrap();
    assert_eq!(sent.target(), "/v1beta/models/g:streamGenerateContent?alt=sse");
}

#[tokio::test]
async fn a_chat_caller_talks_to_claude_and_back() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, CLAUDE));
    let call = |stream| {
        proxy
            .post("anthropic", "/v1/chat/completions", ask(stream).to_string())
            .header("x-gateway-format", "openai")
            .header("authorization", "Bearer sk-ant-mine")
    };
    let answer = call(false).send().await;
    let body = answer.expect(200);
    assert_eq!(body["choices"][0]["message"]["content"], "hello world");
    assert_eq!((&body["object"], &body["usage"]["total_tokens"]), (&json!("chat.completion"), &json!(5)));
    let sent = &proxy.upstream.requests()[0];
    assert_eq!(sent.target(), "/v1/messages");
    assert_eq!((sent.header("x-api-key"), sent.header("authorization")), (Some("sk-ant-mine"), None));
    assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(sent.json()["messages"][0]["role"], "user");
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["provider"], &row["total_tokens"]), (&json!("anthropic"), &json!(5)));

    proxy.upstream.push(claude_stream());
    let answer = call(true).send().await;
    let text = answer.text();
    assert_eq!(said(&events(&text)), "hello world");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(proxy.log_row(&answer).await["total_tokens"], 5);
}

#[tokio::test]
async fn errors_are_returned_in_the_callers_format() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#,
    ));
    let call = proxy.post("anthropic", "/v1/chat/completions", ask(false).to_string());
    let answer = call.header("x-gateway-format", "openai").send().await;
    assert_eq!(answer.expect(429)["error"]["message"], "slow down");
    // Also in the middle of a stream.
    let start = as_events(&CLAUDE_EVENTS[..3]);
    proxy.upstream.push(
        Reply::new(200)
            .header("content-type", "text/event-stream")
            .chunked()
            .piece(start)
            .flush()
            .then_reset(),
    );
    let call = proxy.post("anthropic", "/v1/chat/completions", ask(true).to_string());
    let answer = call.header("x-gateway-format", "openai").send().await;
    let text = answer.text();
    assert!(text.contains("hello world") && text.contains("provider_error"), "{text}");
    assert_eq!(proxy.log_row(&answer).await["error_code"], "provider_error");
}

#[tokio::test]
async fn untranslatable_fields_are_rejected_or_reported() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, CLAUDE));
    let call = |body: Value| {
        proxy.post("anthropic", "/v1/chat/completions", body.to_string()).header("x-gateway-format", "openai")
    };
    let mut body = ask(false);
    body["seed"] = json!(7);
    let answer = call(body).send().await;
    answer.expect(200);
    assert_eq!(answer.header("x-gateway-dropped"), Some("seed"));
    let mut body = ask(false);
    body["n"] = json!(2);
    let refused = call(body).send().await.expect_error(422, "validation_error");
    assert!(refused["message"].as_str().unwrap().starts_with("n:"), "{refused}");
    call(json!({"model": "m", "messages": "no"})).send().await.expect_error(400, "bad_request");
    assert_eq!(proxy.upstream.requests().len(), 1);
    let wrong = proxy.chat(&ask(false)).header("x-gateway-format", "soap").send().await;
    wrong.expect_error(400, "bad_request");
    let other = proxy.chat(&ask(false)).header("x-gateway-format", "anthropic").send().await;
    other.expect_error(400, "bad_request");
}

#[tokio::test]
async fn a_fallback_to_another_shape_is_translated_by_itself() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(500, "{}"));
    proxy.upstream.push(Reply::json(200, CLAUDE));
    let answer = proxy
        .chat(&ask(false))
        .header("authorization", "Bearer sk-openai-mine")
        .header("x-gateway-fallback", "anthropic/claude-x")
        .send()
        .await;
    assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], "hello world");
    let served = (answer.header("x-gateway-provider"), answer.header("x-gateway-model"));
    assert_eq!(served, (Some("anthropic"), Some("claude-x")));
    let sent = &proxy.upstream.requests()[1];
    assert_eq!(
        (sent.target(), sent.header("authorization"), sent.header("x-api-key")),
        ("/v1/messages", None, None)
    );
}

#[tokio::test]
async fn auto_routes_a_chat_request_to_a_provider_of_another_format() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, CLAUDE));
    let body = json!({"model": "anthropic/claude-x", "messages": [{"role": "user", "content": "hi"}]});
    let answer = proxy.post("auto", "/v1/chat/completions", body.to_string()).send().await;
    assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], "hello world");
    assert_eq!(proxy.upstream.requests()[0].json()["model"], "claude-x");
}

#[tokio::test]
async fn models_are_listed_in_the_callers_shape() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(
        200,
        r#"{"data":[{"type":"model","id":"claude-x","display_name":"X","created_at":"2025-01-01T00:00:00Z"}],"has_more":false,"first_id":"claude-x","last_id":"claude-x"}"#,
    ));
    let call = proxy.call(Method::GET, "anthropic", "/v1/models").header("x-gateway-format", "openai");
    let list = call.send().await.expect(200);
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("claude-x")));
}

#[tokio::test]
async fn embeddings_of_another_format_are_translated_for_the_caller() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, r#"{"embeddings":[{"values":[0.5,-0.25]}]}"#));
    let body = json!({"model": "gemini-embedding-001", "input": "hi"}).to_string();
    let call = proxy.post("gemini", "/v1/embeddings", body).header("x-gateway-format", "openai");
    let answer = call.send().await.expect(200);
    assert_eq!(answer["data"][0]["embedding"], json!([0.5, -0.25]));
}
