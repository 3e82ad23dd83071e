//! Clients that know only a base URL and a key, below `/sdk`: where the key may stand, formats of answers, errors and
//! lists of models.

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::fallback_chain::{CLAUDE, good};
use crate::support::named_models::{sent, served};
use crate::support::{Account, Backend, ProxyFixture, TestApp, TestRequest, log_id};
use crate::upstream::Reply;

const SANDBOX: &str = "sandbox/sandbox-small";
const SANDBOX_ANSWER: &str = "The sandbox read: hello";

fn post(app: &TestApp, account: &Account, path: &str, body: Value) -> TestRequest {
    app.call(Method::POST, path).json(body).bearer(&account.api_key)
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 50})
}

fn contents() -> Value {
    json!({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]})
}

fn ids(list: &Value, name: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|model| model[name].as_str().unwrap().to_owned()).collect()
}

on_both!(the_key_stands_where_clients_put_it, |app| async move {
    let ada = app.signup("acme").await;
    let bearer = format!("Bearer {}", ada.api_key);
    for (header, value) in [
        ("authorization", bearer.as_str()),
        ("x-api-key", &ada.api_key),
        ("api-key", &ada.api_key),
        ("x-goog-api-key", &ada.api_key),
        ("x-gateway-key", &ada.api_key),
    ] {
        let call = app.call(Method::POST, "/sdk/v1/chat/completions").json(chat(SANDBOX));
        let answer = call.header(header, value).send().await;
        let body = answer.expect(200);
        assert_eq!(body["choices"][0]["message"]["content"], SANDBOX_ANSWER, "{header}");
        assert_eq!(served(&answer), ("sandbox", "sandbox-small"));
        let path = format!("/api/v1/logs/{}", log_id(&answer));
        let row = app.get(&path).key(&ada.api_key).send().await.expect(200);
        assert_eq!(row["provider"], "sandbox");
        assert!(row["cost_usd"].as_f64().is_some_and(|usd| usd > 0.0), "{row}");
    }
});

on_both!(other_credentials_are_refused_in_the_format_of_the_caller, |app| async move {
    let ada = app.signup("acme").await;
    let unknown = format!("sk-gateway-{}", "0".repeat(64));
    for credential in [Some(ada.token.as_str()), Some("sk-other"), Some(unknown.as_str()), None] {
        let send = |path: &str, body: Value| {
            let call = app.call(Method::POST, path).json(body);
            credential.map_or_else(|| app.call(Method::POST, path), |text| call.bearer(text)).send()
        };
        let openai = send("/sdk/v1/chat/completions", chat(SANDBOX)).await.expect(401);
        assert_eq!(openai["error"]["code"], "unauthorized");
        assert!(openai["error"]["message"].is_string());
        let anthropic = send("/sdk/v1/messages", chat(SANDBOX)).await.expect(401);
        assert_eq!(
            (&anthropic["type"], &anthropic["error"]["type"]),
            (&json!("error"), &json!("authentication_error"))
        );
        let gemini = send("/sdk/v1beta/models/sandbox-small:generateContent", contents()).await.expect(401);
        assert_eq!(gemini["error"]["status"], "UNAUTHENTICATED");
    }
    // A token in the place of the key, and a token beside a wrong key.
    let call = app.get("/sdk/v1/models").key(&ada.token).send().await;
    assert_eq!(call.expect(401)["error"]["code"], "unauthorized");
    app.get("/sdk/v1/models").key(&unknown).bearer(&ada.token).send().await.expect(401);
});

on_both!(answers_have_the_format_of_the_path, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"model": SANDBOX, "input": "hello"});
    let responses = post(&app, &ada, "/sdk/v1/responses", body).send().await.expect(200);
    assert_eq!(responses["object"], "response");
    let messages = post(&app, &ada, "/sdk/v1/messages", chat(SANDBOX)).send().await.expect(200);
    assert_eq!(
        (&messages["type"], &messages["content"][0]["text"]),
        (&json!("message"), &json!(SANDBOX_ANSWER))
    );
    for model in ["sandbox-small", SANDBOX] {
        let path = format!("/sdk/v1beta/models/{model}:generateContent");
        let gemini = post(&app, &ada, &path, contents()).send().await.expect(200);
        assert_eq!(gemini["candidates"][0]["content"]["parts"][0]["text"], SANDBOX_ANSWER);
    }
    let embeddings = post(&app, &ada, "/sdk/v1/embeddings", json!({"model": "sandbox-embed", "input": "a"}));
    assert_eq!(embeddings.send().await.expect(200)["object"], "list");
    let mut streamed = chat(SANDBOX);
    streamed["stream"] = json!(true);
    let events = post(&app, &ada, "/sdk/v1/messages", streamed).send().await;
    assert!(events.text().starts_with("event: message_start"), "{}", events.text());
    assert!(events.text().contains("event: message_stop"));
});

on_both!(the_version_may_be_missing_and_azures_path_works, |app| async move {
    let ada = app.signup("acme").await;
    for path in [
        "/sdk/chat/completions",
        "/sdk/v1/v1/chat/completions",
        "/sdk/openai/v1/chat/completions",
        "/sdk/openai/deployments/sandbox-small/chat/completions?api-version=2025-01-01",
    ] {
        let call = app.call(Method::POST, path).json(chat("sandbox-small"));
        let answer = call.header("api-key", &ada.api_key).send().await;
        assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], SANDBOX_ANSWER, "{path}");
    }
    for path in ["/sdk", "/sdk/"] {
        let found = app.get(path).bearer(&ada.api_key).send().await;
        assert_eq!(found.expect(404)["error"]["code"], "not_found");
        assert!(found.header("x-ratelimit-limit").is_some(), "a caller who is known is counted");
        // What there is, is told to callers only.
        let unknown = format!("sk-gateway-{}", "0".repeat(64));
        for credential in [ada.token.as_str(), unknown.as_str()] {
            let refused = app.get(path).bearer(credential).send().await.expect(401);
            assert_eq!(refused["error"]["code"], "unauthorized");
        }
        let refused = app.get(path).send().await.expect(401);
        assert_eq!(refused["error"]["code"], "unauthorized");
    }
});

on_both!(the_list_has_what_the_key_may_use, |app| async move {
    let ada = app.signup("acme").await;
    let providers = format!("/api/v1/orgs/{}/providers", ada.org_id);
    let groq = json!({"name": "groq", "api_key": "gsk-1", "models": ["llama-a", "org/llama-b"]});
    app.post(&providers, groq).bearer(&ada.token).send().await.expect(201);
    let models = format!("/api/v1/orgs/{}/models", ada.org_id);
    let smart = json!({"name": "smart", "targets": [{"provider": "sandbox", "model": "sandbox-large"}]});
    app.post(&models, smart).bearer(&ada.token).send().await.expect(201);

    let all = [
        "smart",
        "groq/llama-a",
        "groq/org/llama-b",
        "sandbox/sandbox-small",
        "sandbox/sandbox-large",
        "sandbox/sandbox-embed",
    ];
    let openai = app.get("/sdk/v1/models").bearer(&ada.api_key).send().await.expect(200);
    assert_eq!(
        (&openai["object"], ids(&openai["data"], "id")),
        (&json!("list"), all.map(String::from).to_vec())
    );
    assert_eq!(openai["data"][1]["owned_by"], "groq");
    let small = &openai["data"][3];
    assert_eq!(small["pricing"]["input_per_mtok"], 0.15);
    let call = app.get("/sdk/v1/models?limit=100").header("x-api-key", &ada.api_key);
    let anthropic = call.header("anthropic-version", "2023-06-01").send().await.expect(200);
    assert_eq!((&anthropic["has_more"], &anthropic["first_id"]), (&json!(false), &json!("smart")));
    assert_eq!(anthropic["data"][1]["type"], "model");
    let gemini =
        app.get("/sdk/v1beta/models").header("x-goog-api-key", &ada.api_key).send().await.expect(200);
    assert_eq!(ids(&gemini["models"], "name")[1], "models/groq/llama-a");
    for path in ["/sdk/v1/models/groq/org/llama-b", "/sdk/v1/models/groq%2Forg%2Fllama-b"] {
        let one = app.get(path).bearer(&ada.api_key).send().await.expect(200);
        assert_eq!(one["id"], "groq/org/llama-b");
    }
    let missing = app.get("/sdk/v1/models/groq/none").bearer(&ada.api_key).send().await.expect(404);
    assert_eq!(missing["error"]["code"], "not_found");

    let body = json!({"name": "few", "scopes": ["model:llama-*"]});
    let made = app.post("/api/v1/keys", body).bearer(&ada.token).send().await.expect(201);
    let few = app.get("/sdk/v1/models").bearer(made["raw_key"].as_str().unwrap()).send().await.expect(200);
    assert_eq!(ids(&few["data"], "id"), ["groq/llama-a"]);
    // Without /sdk the list has the named models only.
    let call = app.get("/v1/models").key(&ada.api_key).header("x-gateway-provider", "auto");
    assert_eq!(ids(&call.send().await.expect(200)["data"], "id"), ["smart"]);
    // Another organization has none of it.
    let eve = app.signup("evil").await;
    let other = app.get("/sdk/v1/models").bearer(&eve.api_key).send().await.expect(200);
    assert!(ids(&other["data"], "id").iter().all(|id| id.starts_with("sandbox/")), "{other}");
});

#[tokio::test]
async fn a_proxy_key_is_enough_and_a_native_path_stays_strict() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let key = proxy.key(&["proxy"]).await;
        let call = proxy.app.call(Method::POST, "/sdk/v1/chat/completions").json(chat(SANDBOX));
        call.bearer(&key).send().await.expect(200);
        let native = proxy.app.call(Method::POST, "/v1/chat/completions").json(chat(SANDBOX));
        native
            .bearer(&key)
            .header("x-gateway-provider", "auto")
            .send()
            .await
            .expect_error(401, "unauthorized");
    }
}

#[tokio::test]
async fn a_provider_that_the_caller_names_answers_in_the_callers_format() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("claude", "anthropic", json!({"api_key": "sk-stored"})).await;
    proxy.upstream.set_default_reply(Reply::json(200, CLAUDE));
    let call = post(&proxy.app, &proxy.ada, "/sdk/v1/chat/completions", chat("claude-x"));
    let answer = call.header("x-gateway-provider", "claude").send().await;
    assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], "hello");
    let call = post(&proxy.app, &proxy.ada, "/sdk/v1/chat/completions", chat("claude/claude-x")).send().await;
    assert_eq!(call.expect(200)["object"], "chat.completion");
    for request in proxy.upstream.requests() {
        assert_eq!(request.target(), "/v1/messages");
        assert_eq!(request.header("x-api-key"), Some("sk-stored"));
        assert!(!String::from_utf8_lossy(&request.body).contains("sk-gateway-"));
        assert_eq!(request.header("authorization"), None);
    }
    assert_eq!(sent(&proxy.upstream)["model"], "claude-x");
}

#[tokio::test]
async fn errors_of_providers_and_of_the_gateway_have_the_callers_format() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("other", "openai", json!({"api_key": "sk-stored"})).await;
    proxy.upstream.set_default_reply(Reply::json(429, r#"{"error":{"message":"slow down","type":"t"}}"#));
    let refused = post(&proxy.app, &proxy.ada, "/sdk/v1/messages", chat("other/m")).send().await.expect(429);
    assert_eq!((&refused["type"], &refused["error"]["type"]), (&json!("error"), &json!("rate_limit_error")));
    let unknown = post(&proxy.app, &proxy.ada, "/sdk/v1/messages", chat("no-such-model")).send().await;
    let unknown = unknown.expect(400);
    assert_eq!(unknown["error"]["type"], "invalid_request_error");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("no-such-model"));
    let key = proxy.key(&["model:gpt-*"]).await;
    let call = proxy.app.call(Method::POST, "/sdk/v1beta/models/sandbox-small:generateContent");
    let denied = call.json(contents()).header("x-goog-api-key", &key).send().await.expect(403);
    assert_eq!(denied["error"]["status"], "PERMISSION_DENIED");
}

#[tokio::test]
async fn named_models_serve_any_client() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    proxy.save("claude-*", json!({"targets": [{"provider": "openai", "model": "gpt-4o"}]})).await;
    let call = post(&proxy.app, &proxy.ada, "/sdk/v1/messages?beta=true", chat("claude-sonnet-4-5"));
    let answer = call.header("anthropic-version", "2023-06-01").send().await;
    assert_eq!(answer.expect(200)["content"][0]["text"], "hello");
    assert_eq!(served(&answer), ("openai", "gpt-4o"));
}

#[tokio::test]
async fn nothing_below_sdk_reaches_the_management_api_or_the_console() {
    let proxy = ProxyFixture::start().await;
    for path in ["/sdk/api/v1/keys", "/sdk/console/", "/sdk/openapi.yaml", "/sdk/healthz"] {
        let answer = proxy.app.get(path).bearer(&proxy.ada.api_key).send().await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.text());
        assert!(answer.json()["error"]["message"].is_string(), "{path}: {}", answer.text());
    }
    let answer = proxy.app.get("/sdk/v1/../api/v1/keys").bearer(&proxy.ada.api_key).send().await;
    assert!(answer.status.is_client_error(), "{}", answer.text());
    assert!(proxy.upstream.requests().is_empty());
}
