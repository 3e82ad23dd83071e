//! Prompts selected by a header of a proxied request: placement of the rendered text, the log row, and rejections.

use serde_json::{Value, json};

use crate::support::{Backend, ProxyFixture};
use crate::upstream::Reply;

const CHAT: &str = "/v1/chat/completions";
const OPENAI: &str = r#"{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;
const CLAUDE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
const GEMINI: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5},"modelVersion":"m"}"#;

async fn start(backend: Backend) -> ProxyFixture {
    let proxy = ProxyFixture::start_with(backend, &[]).await;
    let body = json!({"namespace": "support", "slug": "hello", "content": "Be {{how}}."});
    proxy.app.post("/api/v1/prompts", body).bearer(&proxy.ada.token).send().await.expect(201);
    proxy
}

fn chat() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn the_rendered_text_arrives_in_every_format_and_the_row_names_it() {
    for backend in Backend::BOTH {
        let proxy = start(backend).await;
        let gemini = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
        let claude = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
        for (provider, path, body, reply, place) in [
            ("openai", CHAT, chat(), OPENAI, "/messages/0/content"),
            ("anthropic", "/v1/messages", claude, CLAUDE, "/system"),
            ("gemini", "/v1beta/models/m:generateContent", gemini, GEMINI, "/systemInstruction/parts/0/text"),
        ] {
            proxy.upstream.push(Reply::json(200, reply));
            let call = proxy.post(provider, path, body.to_string());
            let call = call.header("x-gateway-prompt", "support/hello");
            let answer = call.header("x-gateway-prompt-variables", r#"{"how": "kind"}"#).send().await;
            answer.expect(200);
            let sent = proxy.upstream.requests().pop().unwrap();
            assert_eq!(sent.json().pointer(place), Some(&json!("Be kind.")), "{provider}: {}", sent.json());
            assert_eq!((sent.header("x-gateway-prompt"), sent.target()), (None, path));
            let row = proxy.log_row(&answer).await;
            assert_eq!((&row["prompt"], &row["prompt_version"]), (&json!("support/hello"), &json!(1)));
            assert_eq!(row["request"], body, "the row has what the caller sent");
        }
        let by = proxy.app.get("/api/v1/usage/breakdown?by=prompt").key(&proxy.ada.api_key).send().await;
        let by = by.expect(200);
        let row = &by["rows"][0];
        assert_eq!((&row["key"], &row["requests"]), (&json!("support/hello"), &json!(3)), "{by}");
    }
}

#[tokio::test]
async fn a_stream_and_a_named_version_are_no_different() {
    let proxy = start(Backend::Sqlite).await;
    let change = json!({"content": "Be {{how}}, briefly."});
    proxy.app.put("/api/v1/prompts/support/hello", change).bearer(&proxy.ada.token).send().await.expect(200);
    for (prompt, text, version) in
        [("support/hello@1", "Be kind.", 1), ("support/hello", "Be kind, briefly.", 2)]
    {
        proxy
            .upstream
            .push(Reply::sse(&["{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}", "[DONE]"]));
        let mut body = chat();
        body["stream"] = json!(true);
        let call = proxy.chat(&body).header("x-gateway-prompt", prompt);
        let answer = call.header("x-gateway-prompt-variables", r#"{"how": "kind"}"#).send().await;
        assert!(answer.text().ends_with("data: [DONE]\n\n"));
        let sent = proxy.upstream.requests().pop().unwrap().json();
        let expected = json!([{"role": "system", "content": text}, {"role": "user", "content": "hi"}]);
        assert_eq!(sent["messages"], expected);
        assert_eq!(proxy.log_row(&answer).await["prompt_version"], version);
    }
}

#[tokio::test]
async fn translation_and_fallback_carry_the_prompt_along() {
    let proxy = start(Backend::Sqlite).await;
    let call = |provider: &str| {
        proxy
            .post(provider, CHAT, chat().to_string())
            .header("x-gateway-prompt", "support/hello")
            .header("x-gateway-prompt-variables", r#"{"how": "kind"}"#)
    };
    proxy.upstream.push(Reply::json(200, CLAUDE));
    call("anthropic").header("x-gateway-format", "openai").send().await.expect(200);
    let sent = proxy.upstream.requests().pop().unwrap();
    assert_eq!(sent.target(), "/v1/messages");
    assert!(sent.json()["system"].to_string().contains("Be kind."), "{}", sent.json());

    proxy.upstream.push(Reply::json(500, "{}"));
    proxy.upstream.push(Reply::json(200, GEMINI));
    let answer = call("openai").header("x-gateway-fallback", "gemini/g").send().await;
    answer.expect(200);
    let sent = proxy.upstream.requests();
    assert_eq!(sent[1].json()["messages"][0]["content"], "Be kind.");
    assert!(sent[2].json()["systemInstruction"].to_string().contains("Be kind."), "{}", sent[2].json());
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["prompt"], &row["provider"]), (&json!("support/hello"), &json!("gemini")));
}

#[tokio::test]
async fn answers_are_cached_by_what_was_rendered() {
    let proxy = start(Backend::Sqlite).await;
    proxy.upstream.set_default_reply(Reply::json(200, OPENAI));
    for (how, cache) in [("kind", "MISS"), ("kind", "HIT"), ("brief", "MISS")] {
        let call = proxy.chat(&chat()).header("x-gateway-cache", "exact");
        let call = call.header("x-gateway-prompt", "support/hello");
        let variables = json!({"how": how}).to_string();
        let answer = call.header("x-gateway-prompt-variables", &variables).send().await;
        answer.expect(200);
        assert_eq!(answer.header("x-gateway-cache"), Some(cache), "{how}");
        assert_eq!(proxy.log_row(&answer).await["prompt"], "support/hello");
    }
}

#[tokio::test]
async fn what_cannot_be_rendered_is_refused_with_a_row_and_never_sent() {
    let proxy = start(Backend::Sqlite).await;
    let eve = proxy.app.signup("evil").await;
    let cases = [
        ("support/none", "{}", CHAT, 400, "bad_request", "x-gateway-prompt:"),
        ("support/hello@9", "{}", CHAT, 400, "bad_request", "x-gateway-prompt:"),
        ("Support", "{}", CHAT, 400, "bad_request", "x-gateway-prompt:"),
        (
            "support/hello",
            "{}",
            CHAT,
            422,
            "validation_error",
            "x-gateway-prompt-variables: no value for how",
        ),
        ("support/hello", "{", CHAT, 400, "bad_request", "x-gateway-prompt-variables:"),
        ("support/hello", r#"{"how": 1}"#, CHAT, 400, "bad_request", "x-gateway-prompt-variables:"),
        ("support/hello", r#"{"how": "x"}"#, "/v1/embeddings", 400, "bad_request", "x-gateway-prompt:"),
    ];
    for (prompt, variables, path, status, code, message) in cases {
        let call = proxy.post("openai", path, chat().to_string()).header("x-gateway-prompt", prompt);
        let answer = call.header("x-gateway-prompt-variables", variables).send().await;
        let error = answer.expect_error(status, code);
        assert!(error["message"].as_str().unwrap().starts_with(message), "{prompt} {variables}: {error}");
        let row = proxy.log_row(&answer).await;
        assert_eq!((&row["status"], &row["error_code"]), (&json!(status), &json!(code)));
        assert_eq!(row["prompt"], Value::Null);
    }
    let missing = proxy.chat(&chat()).header("x-gateway-prompt", "support/hello").send().await;
    assert_eq!(missing.expect_error(422, "validation_error")["missing"], json!(["how"]));
    proxy
        .chat(&chat())
        .header("x-gateway-prompt-variables", "{}")
        .send()
        .await
        .expect_error(400, "bad_request");
    let not_json = proxy.post("openai", CHAT, "no").header("x-gateway-prompt", "support/hello");
    let not_json = not_json.header("x-gateway-prompt-variables", r#"{"how": "x"}"#).send().await;
    not_json.expect_error(400, "bad_request");
    // A prompt of another organization looks missing.
    let foreign = proxy.app.call(http::Method::POST, CHAT).key(&eve.api_key).raw(chat().to_string());
    let foreign = foreign.header("x-gateway-provider", "openai").header("x-gateway-prompt", "support/hello");
    let foreign = foreign.send().await.expect_error(400, "bad_request");
    assert_eq!(foreign["message"], "x-gateway-prompt: there is no such prompt in this organization");
    assert!(proxy.upstream.arrivals().is_empty());
}
