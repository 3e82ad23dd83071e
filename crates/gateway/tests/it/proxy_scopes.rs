//! Scopes hold on every path and for every shape of body, and what they refuse never reaches a provider.

use http::Method;
use serde_json::json;

use crate::support::{Answer, Backend, Proxied, http_chunk};
use crate::upstream::Reply;

const CHAT: &str = "/v1/chat/completions";

async fn start() -> Proxied {
    let it = Proxied::start_with(Backend::Sqlite, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    it.upstream.always(Reply::json(200, "{}"));
    it.provider("azure", "azure-openai", json!({})).await;
    it
}

impl Proxied {
    async fn as_key(&self, key: &str, provider: &str, path: &str, body: impl Into<bytes::Bytes>) -> Answer {
        let call = self.app.call(Method::POST, path).key(key).header("x-gateway-provider", provider);
        call.header("content-type", "application/json").raw(body).send().await
    }

    /// Asserts that the key may make this call.
    async fn passes(&self, key: &str, provider: &str, path: &str, body: &str) {
        let before = self.upstream.requests().len();
        let answer = self.as_key(key, provider, path, body.to_owned()).await;
        assert_eq!(answer.status.as_u16(), 200, "{provider} {path} {body}: {}", answer.text());
        assert_eq!(self.upstream.requests().len(), before + 1);
    }

    /// Asserts that the call is refused for its scope, without a connection to anybody.
    async fn is_denied(&self, key: &str, provider: &str, path: &str, body: &str) {
        let before = self.upstream.arrivals().len();
        let answer = self.as_key(key, provider, path, body.to_owned()).await;
        assert_eq!(answer.status.as_u16(), 403, "{provider} {path} {body}");
        let told = answer.expect_error(403, "scope_denied");
        assert_eq!((&told["error_code"], &told["error"]), (&told["code"], &told["message"]));
        assert_eq!(self.upstream.arrivals().len(), before, "{provider} {path} {body}");
    }
}

fn model(name: &str) -> String {
    json!({"messages": [], "model": name}).to_string()
}

#[tokio::test]
async fn a_provider_scope_allows_that_provider_and_any_model() {
    let it = start().await;
    let key = it.key(&["provider:openai", "provider:anth*"]).await;
    it.passes(&key, "openai", CHAT, &model("anything")).await;
    it.passes(&key, "openai", "/v1/files", "").await;
    it.passes(&key, "anthropic", "/v1/messages", &model("claude")).await;
    it.is_denied(&key, "gemini", "/v1beta/models/gemini-2.5-pro:generateContent", "{}").await;
    it.is_denied(&key, "azure", CHAT, &model("gpt-4o")).await;
    it.is_denied(&key, "sandbox", CHAT, &model("gpt-4o")).await;
    // A custom provider is meant by its own name, not by its kind.
    it.provider("openai-2", "openai", json!({})).await;
    it.is_denied(&key, "openai-2", CHAT, &model("gpt-4o")).await;
}

#[tokio::test]
async fn a_model_scope_allows_that_model_wherever_it_is_named() {
    let it = start().await;
    let key = it.key(&["model:gpt-4o", "model:claude-*", "model:whisper-1", "model:gemini-2.5-pro"]).await;
    it.passes(&key, "openai", CHAT, &model("gpt-4o")).await;
    it.passes(&key, "openai", CHAT, "{\"mod\\u0065l\":\"gpt\\u002d4o\"}").await;
    it.passes(&key, "anthropic", "/v1/messages", &model("claude-sonnet-4-5")).await;
    it.passes(&key, "gemini", "/v1beta/models/gemini-2.5-pro:generateContent", "{}").await;
    it.passes(&key, "bedrock", "/model/claude-x-v1%3A0/converse", "{}").await;
    it.passes(&key, "azure", "/openai/deployments/gpt-4o/chat/completions?api-version=1", "{}").await;
    for other in ["gpt-4", "gpt-4o-mini", "GPT-4o", "gpt-4o ", "xclaude-1", ""] {
        it.is_denied(&key, "openai", CHAT, &model(other)).await;
    }
    it.is_denied(&key, "gemini", "/v1beta/models/gemini-2.5-flash:generateContent", "{}").await;
    it.is_denied(&key, "gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", "{}").await;
    it.is_denied(&key, "bedrock", "/model/amazon.nova-v1%3A0/converse", "{}").await;
    it.is_denied(&key, "azure", "/openai/deployments/gpt-4/chat/completions", "{}").await;
}

#[tokio::test]
async fn with_both_kinds_of_scope_a_request_must_match_one_of_each() {
    let it = start().await;
    let key = it.key(&["provider:openai", "provider:anthropic", "model:gpt-4o", "model:claude-*"]).await;
    it.passes(&key, "openai", CHAT, &model("gpt-4o")).await;
    it.passes(&key, "anthropic", "/v1/messages", &model("claude-1")).await;
    it.is_denied(&key, "openai", CHAT, &model("gpt-4")).await;
    it.is_denied(&key, "azure", CHAT, &model("gpt-4o")).await;
}

#[tokio::test]
async fn a_model_in_the_path_beats_the_bodys() {
    let it = start().await;
    let key = it.key(&["model:cheap"]).await;
    it.is_denied(&key, "azure", "/openai/deployments/dear/chat/completions", &model("cheap")).await;
    it.passes(&key, "azure", "/openai/deployments/cheap/chat/completions", &model("dear")).await;
    it.is_denied(&key, "gemini", "/v1beta/models/dear:generateContent", &model("cheap")).await;
    it.is_denied(&key, "bedrock", "/model/dear/invoke", &model("cheap")).await;
    // A path that others might read differently is not guessed at.
    for path in [
        "/openai/deployments/cheap/../dear/chat/completions",
        "/openai/deployments/cheap%2F..%2Fdear/chat/completions",
        "/v1beta/models/cheap:generateContent/../../models/dear:generateContent",
        "/v1beta//models/cheap:generateContent",
        "/model/cheap/model/dear/converse",
    ] {
        let answer = it.as_key(&key, "azure", path, "{}").await;
        assert!(matches!(answer.status.as_u16(), 400 | 403), "{path}: {}", answer.status);
    }
    assert_eq!(it.upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_names_no_model_is_refused_to_a_key_that_names_models() {
    let it = start().await;
    let key = it.key(&["model:gpt-4o"]).await;
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xabV\xcaM";
    for body in
        ["", "{}", "[]", "null", "no json", "{\"model\":null}", "{\"model\":[\"gpt-4o\"]}", "{\"model\":4}"]
    {
        it.is_denied(&key, "openai", CHAT, body).await;
    }
    for nested in ["{\"a\":{\"model\":\"gpt-4o\"}}", "{\"Model\":\"gpt-4o\"}", "{\"model\":\"gpt-4o\""] {
        it.is_denied(&key, "openai", CHAT, nested).await;
    }
    it.as_key(&key, "openai", CHAT, gzip.to_vec()).await.expect_error(403, "scope_denied");
    it.is_denied(&key, "openai", "/v1/files", "").await;
    // Asking which models there are names none, and does no harm.
    let list = it.app.get("/v1/models").key(&key).header("x-gateway-provider", "openai");
    list.send().await.expect(200);
    assert_eq!(it.upstream.requests().len(), 1);
}

#[tokio::test]
async fn two_models_in_one_body_are_refused_to_everybody() {
    let it = start().await;
    let scoped = it.key(&["model:cheap"]).await;
    for key in [&scoped, &it.ada.api_key] {
        for body in [
            r#"{"model":"cheap","model":"dear"}"#,
            r#"{"model":"dear","messages":[],"mod\u0065l":"cheap"}"#,
            r#"{"model":"cheap","model":"cheap"}"#,
        ] {
            let answer = it.as_key(key, "openai", CHAT, body).await;
            let told = answer.expect_error(400, "bad_request");
            assert!(told["message"].as_str().unwrap().contains("model"), "{told}");
        }
    }
    // However far behind, and in however many pieces: a key that names models waits for the end.
    let mut raw = it.connect().await;
    let headers =
        [("x-gateway-key", &*scoped), ("x-gateway-provider", "openai"), ("transfer-encoding", "chunked")];
    raw.send(crate::support::request_head("POST", CHAT, &headers)).await;
    raw.send(http_chunk(br#"{"model":"cheap","stream":false,"x":""#)).await;
    for _ in 0..20 {
        raw.send(http_chunk(&[b'x'; 10_000])).await;
    }
    raw.send(http_chunk(br#"","model":"dear"}"#)).await;
    raw.send(b"0\r\n\r\n").await;
    assert_eq!(raw.head().await.status, 400);
    assert_eq!(it.upstream.connections(), 0);
}

#[tokio::test]
async fn a_form_names_its_model_too() {
    let it = start().await;
    let key = it.key(&["model:whisper-1"]).await;
    let part = |head: &str, content: &str| {
        format!("--B\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n")
    };
    let file = part("name=\"file\"; filename=\"a.wav\"", &"\0\u{1}data".repeat(300_000));
    let form = |parts: &[String]| format!("{}--B--\r\n", parts.concat());
    let field = |name: &str| part("name=\"model\"", name);
    let send = async |key: &str, body: String| {
        let call = it.app.call(Method::POST, "/v1/audio/transcriptions").key(key);
        let call = call.header("x-gateway-provider", "openai");
        call.header("content-type", "multipart/form-data; boundary=B").raw(body).send().await
    };
    let good = form(&[file.clone(), field("whisper-1")]);
    let answer = send(&key, good.clone()).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-gateway-model")), (200, Some("whisper-1")));
    assert!(it.upstream.requests()[0].body == good.as_bytes());
    for body in [
        form(&[file.clone(), field("whisper-2")]),
        form(std::slice::from_ref(&file)),
        form(&[field("whisper-1"), file, field("whisper-2")]),
        "{\"model\":\"whisper-1\"}".to_owned(),
    ] {
        send(&key, body).await.expect_error(403, "scope_denied");
    }
    assert_eq!(it.upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_change_of_scopes_holds_from_the_next_request_on() {
    let it = start().await;
    let body = json!({"name": "k", "scopes": ["provider:openai"]});
    let made = it.app.post("/api/v1/keys", body).bearer(&it.ada.token).send().await.expect(201);
    let (key, id) = (made["raw_key"].as_str().unwrap(), made["key"]["id"].as_str().unwrap());
    it.passes(key, "openai", CHAT, &model("m")).await;
    let path = format!("/api/v1/keys/{id}");
    let put = it.app.put(&path, json!({"scopes": ["provider:anthropic"]})).bearer(&it.ada.token);
    put.send().await.expect(200);
    it.is_denied(key, "openai", CHAT, &model("m")).await;
    it.app.delete(&path).bearer(&it.ada.token).send().await.expect(200);
    it.as_key(key, "anthropic", "/v1/messages", model("m")).await.expect_error(401, "unauthorized");
    assert_eq!(it.upstream.requests().len(), 1);
}
