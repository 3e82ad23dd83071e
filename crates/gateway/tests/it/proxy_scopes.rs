//! Scopes apply to every path and body format, and rejected requests never reach a provider.

use http::Method;
use serde_json::json;

use crate::support::{Backend, ProxyFixture, TestResponse, http_chunk};
use crate::upstream::Reply;

const CHAT: &str = "/v1/chat/completions";

async fn start() -> ProxyFixture {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy.provider("azure", "azure-openai", json!({})).await;
    proxy
}

impl ProxyFixture {
    async fn as_key(
        &self,
        key: &str,
        provider: &str,
        path: &str,
        body: impl Into<bytes::Bytes>,
    ) -> TestResponse {
        let call = self.app.call(Method::POST, path).key(key).header("x-gateway-provider", provider);
        call.header("content-type", "application/json").raw(body).send().await
    }

    /// Asserts that the key allows the request.
    async fn passes(&self, key: &str, provider: &str, path: &str, body: &str) {
        let before = self.upstream.requests().len();
        let answer = self.as_key(key, provider, path, body.to_owned()).await;
        assert_eq!(answer.status.as_u16(), 200, "{provider} {path} {body}: {}", answer.text());
        assert_eq!(self.upstream.requests().len(), before + 1);
    }

    /// Asserts that the request is rejected by scope, without a connection to the upstream.
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
    let proxy = start().await;
    let key = proxy.key(&["provider:openai", "provider:anth*"]).await;
    proxy.passes(&key, "openai", CHAT, &model("anything")).await;
    proxy.passes(&key, "openai", "/v1/files", "").await;
    proxy.passes(&key, "anthropic", "/v1/messages", &model("claude")).await;
    proxy.is_denied(&key, "gemini", "/v1beta/models/gemini-2.5-pro:generateContent", "{}").await;
    proxy.is_denied(&key, "azure", CHAT, &model("gpt-4o")).await;
    proxy.is_denied(&key, "sandbox", CHAT, &model("gpt-4o")).await;
    // A custom provider is matched by its name, not by its kind.
    proxy.provider("openai-2", "openai", json!({})).await;
    proxy.is_denied(&key, "openai-2", CHAT, &model("gpt-4o")).await;
}

#[tokio::test]
async fn a_model_scope_holds_for_all_models_from_which_the_provider_may_choose() {
    let proxy = start().await;
    proxy.provider("router", "openrouter", json!({})).await;
    let key = proxy.key(&["model:gpt-4o*", "model:assistant"]).await;
    let body = |models: &str| format!(r#"{{"model":"gpt-4o","messages":[],"models":{models}}}"#);
    for allowed in ["null", "[]", r#"["gpt-4o-mini","gpt\u002d4o"]"#] {
        proxy.passes(&key, "router", CHAT, &body(allowed)).await;
    }
    let long = format!(r#"["{}"]"#, "gpt-4o".repeat(20_000));
    for other in [r#"["gpt-4o","o3"]"#, r#"["gpt-4o",null]"#, r#""o3""#, r#"{"0":"o3"}"#, &long] {
        proxy.is_denied(&key, "router", CHAT, &body(other)).await;
    }
    // A named model sends the field to its targets.
    let model = json!({"name": "assistant", "targets": [{"provider": "router", "model": "gpt-4o"}]});
    let path = format!("/api/v1/orgs/{}/models", proxy.ada.org_id);
    proxy.app.post(&path, model).bearer(&proxy.ada.token).send().await.expect(201);
    let named = |models: &str| format!(r#"{{"model":"assistant","messages":[],"models":{models}}}"#);
    proxy.passes(&key, "auto", CHAT, &named(r#"["gpt-4o-mini"]"#)).await;
    proxy.is_denied(&key, "auto", CHAT, &named(r#"["o3"]"#)).await;
    // Without scopes that name models, the field is the provider's matter.
    let key = proxy.key(&["provider:router"]).await;
    proxy.passes(&key, "router", CHAT, &body(r#"["o3"]"#)).await;
}

#[tokio::test]
async fn a_model_scope_allows_that_model_wherever_it_is_named() {
    let proxy = start().await;
    let key = proxy.key(&["model:gpt-4o", "model:claude-*", "model:whisper-1", "model:gemini-2.5-pro"]).await;
    proxy.passes(&key, "openai", CHAT, &model("gpt-4o")).await;
    proxy.passes(&key, "openai", CHAT, "{\"mod\\u0065l\":\"gpt\\u002d4o\"}").await;
    proxy.passes(&key, "anthropic", "/v1/messages", &model("claude-sonnet-4-5")).await;
    proxy.passes(&key, "gemini", "/v1beta/models/gemini-2.5-pro:generateContent", "{}").await;
    proxy.passes(&key, "bedrock", "/model/claude-x-v1%3A0/converse", "{}").await;
    proxy.passes(&key, "azure", "/openai/deployments/gpt-4o/chat/completions?api-version=1", "{}").await;
    for other in ["gpt-4", "gpt-4o-mini", "GPT-4o", "gpt-4o ", "xclaude-1", ""] {
        proxy.is_denied(&key, "openai", CHAT, &model(other)).await;
    }
    proxy.is_denied(&key, "gemini", "/v1beta/models/gemini-2.5-flash:generateContent", "{}").await;
    proxy
        .is_denied(&key, "gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", "{}")
        .await;
    proxy.is_denied(&key, "bedrock", "/model/amazon.nova-v1%3A0/converse", "{}").await;
    proxy.is_denied(&key, "azure", "/openai/deployments/gpt-4/chat/completions", "{}").await;
}

#[tokio::test]
async fn with_both_kinds_of_scope_a_request_must_match_one_of_each() {
    let proxy = start().await;
    let key = proxy.key(&["provider:openai", "provider:anthropic", "model:gpt-4o", "model:claude-*"]).await;
    proxy.passes(&key, "openai", CHAT, &model("gpt-4o")).await;
    proxy.passes(&key, "anthropic", "/v1/messages", &model("claude-1")).await;
    proxy.is_denied(&key, "openai", CHAT, &model("gpt-4")).await;
    proxy.is_denied(&key, "azure", CHAT, &model("gpt-4o")).await;
}

#[tokio::test]
async fn a_model_in_the_path_beats_the_bodys() {
    let proxy = start().await;
    let key = proxy.key(&["model:cheap"]).await;
    proxy.is_denied(&key, "azure", "/openai/deployments/dear/chat/completions", &model("cheap")).await;
    proxy.passes(&key, "azure", "/openai/deployments/cheap/chat/completions", &model("dear")).await;
    proxy.is_denied(&key, "gemini", "/v1beta/models/dear:generateContent", &model("cheap")).await;
    proxy.is_denied(&key, "bedrock", "/model/dear/invoke", &model("cheap")).await;
    // An ambiguous path is rejected.
    for path in [
        "/openai/deployments/cheap/../dear/chat/completions",
        "/openai/deployments/cheap%2F..%2Fdear/chat/completions",
        "/v1beta/models/cheap:generateContent/../../models/dear:generateContent",
        "/v1beta//models/cheap:generateContent",
        "/model/cheap/model/dear/converse",
    ] {
        let answer = proxy.as_key(&key, "azure", path, "{}").await;
        assert!(matches!(answer.status.as_u16(), 400 | 403), "{path}: {}", answer.status);
    }
    assert_eq!(proxy.upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_names_no_model_is_refused_to_a_key_that_names_models() {
    let proxy = start().await;
    let key = proxy.key(&["model:gpt-4o"]).await;
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xabV\xcaM";
    for body in
        ["", "{}", "[]", "null", "no json", "{\"model\":null}", "{\"model\":[\"gpt-4o\"]}", "{\"model\":4}"]
    {
        proxy.is_denied(&key, "openai", CHAT, body).await;
    }
    for nested in ["{\"a\":{\"model\":\"gpt-4o\"}}", "{\"Model\":\"gpt-4o\"}", "{\"model\":\"gpt-4o\""] {
        proxy.is_denied(&key, "openai", CHAT, nested).await;
    }
    proxy.as_key(&key, "openai", CHAT, gzip.to_vec()).await.expect_error(403, "scope_denied");
    proxy.is_denied(&key, "openai", "/v1/files", "").await;
    // Listing models names no model and is allowed.
    let list = proxy.app.get("/v1/models").key(&key).header("x-gateway-provider", "openai");
    list.send().await.expect(200);
    assert_eq!(proxy.upstream.requests().len(), 1);
}

#[tokio::test]
async fn two_models_in_one_body_are_refused_to_everybody() {
    let proxy = start().await;
    let scoped = proxy.key(&["model:cheap"]).await;
    for key in [&scoped, &proxy.ada.api_key] {
        for body in [
            r#"{"model":"cheap","model":"dear"}"#,
            r#"{"model":"dear","messages":[],"mod\u0065l":"cheap"}"#,
            r#"{"model":"cheap","model":"cheap"}"#,
        ] {
            let answer = proxy.as_key(key, "openai", CHAT, body).await;
            let told = answer.expect_error(400, "bad_request");
            assert!(told["message"].as_str().unwrap().contains("model"), "{told}");
        }
    }
    // With a model scope the gateway reads the whole body, however late the model appears.
    let mut raw = proxy.connect().await;
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
    assert_eq!(proxy.upstream.connections(), 0);
}

#[tokio::test]
async fn a_form_names_its_model_too() {
    let proxy = start().await;
    let key = proxy.key(&["model:whisper-1"]).await;
    let part = |head: &str, content: &str| {
        format!("--B\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n")
    };
    let file = part("name=\"file\"; filename=\"a.wav\"", &"\0\u{1}data".repeat(300_000));
    let form = |parts: &[String]| format!("{}--B--\r\n", parts.concat());
    let field = |name: &str| part("name=\"model\"", name);
    let send = async |key: &str, body: String| {
        let call = proxy.app.call(Method::POST, "/v1/audio/transcriptions").key(key);
        let call = call.header("x-gateway-provider", "openai");
        call.header("content-type", "multipart/form-data; boundary=B").raw(body).send().await
    };
    let good = form(&[file.clone(), field("whisper-1")]);
    let answer = send(&key, good.clone()).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-gateway-model")), (200, Some("whisper-1")));
    assert!(proxy.upstream.requests()[0].body == good.as_bytes());
    for body in [
        form(&[file.clone(), field("whisper-2")]),
        form(std::slice::from_ref(&file)),
        form(&[field("whisper-1"), file, field("whisper-2")]),
        "{\"model\":\"whisper-1\"}".to_owned(),
    ] {
        send(&key, body).await.expect_error(403, "scope_denied");
    }
    assert_eq!(proxy.upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_change_of_scopes_applies_from_the_next_request_on() {
    let proxy = start().await;
    let body = json!({"name": "k", "scopes": ["provider:openai"]});
    let made = proxy.app.post("/api/v1/keys", body).bearer(&proxy.ada.token).send().await.expect(201);
    let (key, id) = (made["raw_key"].as_str().unwrap(), made["key"]["id"].as_str().unwrap());
    proxy.passes(key, "openai", CHAT, &model("m")).await;
    let path = format!("/api/v1/keys/{id}");
    let put = proxy.app.put(&path, json!({"scopes": ["provider:anthropic"]})).bearer(&proxy.ada.token);
    put.send().await.expect(200);
    proxy.is_denied(key, "openai", CHAT, &model("m")).await;
    proxy.app.delete(&path).bearer(&proxy.ada.token).send().await.expect(200);
    proxy.as_key(key, "anthropic", "/v1/messages", model("m")).await.expect_error(401, "unauthorized");
    assert_eq!(proxy.upstream.requests().len(), 1);
}
