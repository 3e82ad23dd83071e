//! Clients of other gateways below `/compat`: keys where they put them, headers and fields by the tables, answers with
//! their headers.

use http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::fallback_chain::{CLAUDE, FallbackChain, good};
use crate::support::named_models::{sent, served};
use crate::support::{Backend, ProxyFixture, TestRequest};
use crate::upstream::Reply;

const ALL: (&str, &str) = ("GATEWAY_COMPAT", "litellm,portkey, helicone,openrouter,bifrost");

async fn start(backend: Backend) -> ProxyFixture {
    let proxy = ProxyFixture::start_with(backend, &[ALL]).await;
    proxy.upstream.set_default_reply(good());
    proxy.save("smart", json!({"targets": [{"provider": "openai", "model": "gpt-4o"}]})).await;
    proxy
}

fn post(proxy: &ProxyFixture, path: &str, body: Value) -> TestRequest {
    proxy.app.call(Method::POST, path).json(body)
}

#[tokio::test]
async fn a_dialect_that_is_not_named_is_not_served() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_COMPAT", "portkey")]).await;
    let body = json!({"model": "gpt-4o", "messages": []});
    for path in ["/compat/litellm/v1/chat/completions", "/compat/nginx/v1/chat/completions"] {
        let call = post(&proxy, path, body.clone()).bearer(&proxy.ada.api_key);
        call.send().await.expect_error(404, "not_found");
    }
    let call = post(&proxy, "/compat/portkey/v1/chat/completions", body);
    call.send().await.expect_error(401, "unauthorized");
}

#[tokio::test]
async fn only_callers_who_are_known_learn_why_a_request_is_refused() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[("GATEWAY_COMPAT", "portkey")]).await;
        let unknown = format!("sk-gateway-{}", "0".repeat(64));
        let body = json!({"model": "gpt-4o", "messages": []});
        for path in ["/compat/litellm/v1/chat/completions", "/compat/nginx/v1/x", "/compat/helicone/v1/x"] {
            let call = || post(&proxy, path, body.clone());
            call().send().await.expect_error(401, "unauthorized");
            call().bearer(&unknown).send().await.expect_error(401, "unauthorized");
            call().bearer("sk-imported").send().await.expect_error(401, "unauthorized");
            call().key(&proxy.ada.api_key).send().await.expect_error(404, "not_found");
            call().bearer(&proxy.ada.token).send().await.expect_error(404, "not_found");
        }
        let call = post(&proxy, "/compat/helicone/v1/x", body.clone());
        let bearer = format!("Bearer {}", proxy.ada.api_key);
        let told = call.header("helicone-auth", &bearer).send().await;
        let error = told.expect_error(404, "not_found");
        assert_eq!((&error["error_code"], &error["error"]), (&error["code"], &error["message"]));
        assert!(told.header("x-ratelimit-limit").is_some(), "a caller who is known is counted");
        // A header of another dialect, below a dialect that is served.
        let call = || {
            let call = post(&proxy, "/compat/portkey/v1/chat/completions", body.clone());
            call.header("helicone-user-id", "u")
        };
        call().header("x-portkey-api-key", &unknown).send().await.expect_error(401, "unauthorized");
        let refused = call().header("x-portkey-api-key", &proxy.ada.api_key).send().await;
        let error = refused.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("helicone-user-id"), "{error}");
        assert!(refused.header("x-ratelimit-limit").is_some());
        assert_eq!(proxy.upstream.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_key_or_control_header_that_is_given_twice_is_refused() {
    let proxy = start(Backend::Sqlite).await;
    let list = || proxy.app.get("/compat/litellm/models").bearer(&proxy.ada.api_key);
    list().send().await.expect(200);
    list().bearer(&proxy.ada.api_key).send().await.expect(401);
    let call = list().header("x-gateway-provider", "openai").header("x-gateway-provider", "auto");
    let told = call.send().await.expect(400);
    assert!(told.to_string().contains("x-gateway-provider"), "{told}");
}

#[tokio::test]
async fn large_bodies_are_rewritten_by_the_threads_for_computation() {
    let proxy = start(Backend::Sqlite).await;
    let started = || proxy.app.app.services.compute.stats().granted;
    for (length, pieces_of_work) in [(100, 0), (200 << 10, 1)] {
        let messages = json!([{"role": "user", "content": "x".repeat(length)}]);
        let body = json!({"model": "openai/gpt-4o", "num_retries": 1, "messages": messages});
        let before = started();
        let call = post(&proxy, "/compat/litellm/v1/chat/completions", body).bearer(&proxy.ada.api_key);
        call.send().await.expect(200);
        assert_eq!(started() - before, pieces_of_work, "{length} bytes");
        let sent = proxy.upstream.requests().pop().unwrap().json();
        assert_eq!(sent, json!({"model": "gpt-4o", "messages": messages}));
    }
    let body = json!({"model": "openai/gpt-4o", "tags": vec![1; 200_000], "messages": []});
    let call = post(&proxy, "/compat/litellm/v1/chat/completions", body).bearer(&proxy.ada.api_key);
    let error = call.send().await.expect_error(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("262144 bytes"), "{error}");
}

#[tokio::test]
async fn clients_of_litellm_need_only_another_base_url_and_key() {
    for backend in Backend::BOTH {
        let proxy = start(backend).await;
        let body = json!({
            "model": "smart", "messages": [], "num_retries": 1, "metadata": {"team": "a"}, "user": "ada",
        });
        for path in ["/compat/litellm/v1/chat/completions", "/compat/litellm/chat/completions"] {
            let call = post(&proxy, path, body.clone()).bearer(&proxy.ada.api_key);
            let answer = call.header("x-litellm-trace-id", "t-1").header("x-litellm-odd", "1").send().await;
            answer.expect(200);
            assert_eq!(served(&answer), ("openai", "gpt-4o"));
            assert_eq!(answer.header("x-litellm-model-group"), Some("smart"));
            assert_eq!(answer.header("x-litellm-call-id"), answer.header("x-gateway-log-id"));
            assert_eq!(answer.header("x-gateway-dropped"), Some("x-litellm-odd"));
            let upstream = sent(&proxy.upstream);
            assert!(upstream.get("num_retries").is_none() && upstream.get("metadata").is_none());
            let row = proxy.log_row(&answer).await;
            assert_eq!((&row["compat"], &row["user"]), (&json!("litellm"), &json!("ada")));
            assert_eq!(row["metadata"], json!({"team": "a", "trace_id": "t-1"}));
        }
        let listed =
            proxy.app.get("/compat/litellm/models").bearer(&proxy.ada.api_key).send().await.expect(200);
        assert_eq!(listed["data"][0]["id"], "smart");
    }
}

#[tokio::test]
async fn imported_keys_go_on_working_until_they_are_revoked() {
    for backend in Backend::BOTH {
        let proxy = start(backend).await;
        let old = "sk-of-litellm-1234";
        let rows =
            json!([{"token": hex::encode(Sha256::digest(old)), "key_alias": "old", "models": ["smart"]}]);
        let body = json!({"source": "litellm-keys", "data": rows.to_string(), "apply": true});
        let path = format!("/api/v1/orgs/{}/import", proxy.ada.org_id);
        let chat = |model: &str| {
            let body = json!({"model": model, "messages": []});
            post(&proxy, "/compat/litellm/v1/chat/completions", body).bearer(old)
        };
        chat("smart").send().await.expect_error(401, "unauthorized");
        proxy.app.post(&path, body).bearer(&proxy.ada.token).send().await.expect(200);
        chat("smart").send().await.expect(200);
        chat("gpt-4o").send().await.expect_error(403, "scope_denied");
        // Not on native paths.
        let native = proxy
            .app
            .call(Method::POST, "/v1/chat/completions")
            .key(old)
            .header("x-gateway-provider", "auto");
        native.json(json!({"model": "smart"})).send().await.expect_error(401, "unauthorized");
        let keys = proxy.app.get("/api/v1/keys").bearer(&proxy.ada.token).send().await.expect(200);
        let key = keys["keys"].as_array().unwrap().iter().find(|key| key["name"] == "old").unwrap().clone();
        let others = keys["keys"].as_array().unwrap().iter().filter(|key| key["name"] != "old");
        assert!(others.map(|key| &key["imported"]).all(Value::is_null));
        let path = format!("/api/v1/keys/{}", key["id"].as_str().unwrap());
        let read = proxy.app.get(&path).bearer(&proxy.ada.token).send().await.expect(200);
        let renamed = proxy.app.put(&path, json!({"name": "older"})).bearer(&proxy.ada.token).send().await;
        for key in [&key, &read, &renamed.expect(200)] {
            assert_eq!(key["imported"], "litellm", "{key}");
        }
        proxy.app.delete(&path).bearer(&proxy.ada.token).send().await.expect(200);
        chat("smart").send().await.expect_error(401, "unauthorized");
    }
}

#[tokio::test]
async fn clients_of_portkey_name_providers_and_configs() {
    let proxy = start(Backend::Sqlite).await;
    let chat = |body: Value| {
        post(&proxy, "/compat/portkey/v1/chat/completions", body)
            .header("x-portkey-api-key", &proxy.ada.api_key)
            .bearer("OPENAI_API_KEY")
    };
    let answer =
        chat(json!({"model": "o3", "messages": []})).header("x-portkey-provider", "@openai").send().await;
    answer.expect(200);
    assert_eq!(served(&answer), ("openai", "o3"));
    let answer =
        chat(json!({"model": "any", "messages": []})).header("x-portkey-config", "smart").send().await;
    assert_eq!(served(&answer), ("openai", "gpt-4o"));
    let refused = chat(json!({"model": "m"})).header("x-portkey-guardrails", "pii").send().await;
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("x-portkey-guardrails"), "{}", refused.text());
    let other = chat(json!({"model": "m"})).header("helicone-user-id", "u").send().await;
    other.expect_error(400, "bad_request");
}

#[tokio::test]
async fn a_provider_that_a_client_of_portkey_names_gets_its_own_format() {
    let proxy = start(Backend::Sqlite).await;
    proxy.provider("claude-main", "anthropic", json!({"api_key": "sk-stored"})).await;
    proxy.upstream.set_default_reply(Reply::json(200, CLAUDE));
    let call = |path: &str, body: Value| {
        post(&proxy, &format!("/compat/portkey{path}"), body).header("x-portkey-api-key", &proxy.ada.api_key)
    };
    let chat = || {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        call("/v1/chat/completions", json!({"model": "claude-x", "messages": messages}))
    };
    let cases = [
        ("x-portkey-provider", "@claude-main", "OPENAI_API_KEY", "sk-stored"),
        ("x-portkey-virtual-key", "claude-main", "OPENAI_API_KEY", "sk-stored"),
        ("x-portkey-provider", "anthropic", "sk-ant-mine", "sk-ant-mine"),
    ];
    for (header, provider, credential, expected) in cases {
        let answer = chat().header(header, provider).bearer(credential).send().await;
        let body = answer.expect(200);
        assert_eq!(body["choices"][0]["message"]["content"], "hello");
        assert_eq!((&body["object"], &body["usage"]["total_tokens"]), (&json!("chat.completion"), &json!(5)));
        let sent = proxy.upstream.requests().pop().unwrap();
        assert_eq!((sent.target(), sent.header("x-api-key")), ("/v1/messages", Some(expected)));
        assert_eq!((sent.header("authorization"), &sent.json()["model"]), (None, &json!("claude-x")));
    }
    // A request in the provider's own format stays as it is.
    let body = json!({"model": "claude-x", "max_tokens": 5, "messages": [], "odd": 1});
    let answer = call("/v1/messages", body).header("x-portkey-provider", "@claude-main").send().await;
    assert_eq!((&answer.expect(200)["type"], &sent(&proxy.upstream)["odd"]), (&json!("message"), &json!(1)));
    // Helicone forwards what it gets.
    proxy.upstream.set_default_reply(good());
    let body = json!({"model": "claude-x", "messages": []});
    let helicone = post(&proxy, "/compat/helicone/v1/chat/completions", body)
        .header("helicone-auth", &format!("Bearer {}", proxy.ada.api_key))
        .header("helicone-target-provider", "claude-main");
    helicone.send().await.expect(200);
    assert_eq!(proxy.upstream.requests().pop().unwrap().target(), "/v1/chat/completions");
}

#[tokio::test]
async fn fallbacks_in_a_body_of_litellm_replace_those_of_the_named_model() {
    let FallbackChain { proxy, second, third } = &FallbackChain::start_with(&[ALL]).await;
    let targets = json!([{"provider": "openai", "model": "a"}, {"provider": "second", "model": "b"}]);
    proxy.save("chain", json!({"targets": targets})).await;
    let long = json!({"provider": "second", "model": "long", "when": "context"});
    proxy.save("short", json!({"targets": [{"provider": "openai", "model": "short"}, long]})).await;
    let other = json!([{"provider": "third", "model": "c"}, {"provider": "second", "model": "d"}]);
    proxy.save("other", json!({"targets": other})).await;
    let broken = || Reply::json(500, "{}");
    let too_long = || {
        let error = json!({"error": {"code": "context_length_exceeded", "message": "too long"}});
        Reply::json(400, &error.to_string())
    };
    proxy.upstream.set_default_reply(broken());
    for upstream in [second, third] {
        upstream.set_default_reply(good());
    }
    let ask = |model: &str, fallbacks: Value| {
        let body = json!({"model": model, "messages": [], "fallbacks": fallbacks});
        post(proxy, "/compat/litellm/v1/chat/completions", body).bearer(&proxy.ada.api_key)
    };
    for (fallbacks, served_by) in [
        (Value::Null, ("second", "b")),
        (json!(["other"]), ("third", "c")),
        (json!([{"chain": ["third/e"]}]), ("third", "e")),
        (json!([{"*": ["other"]}]), ("third", "c")),
    ] {
        let answer = ask("chain", fallbacks.clone()).send().await;
        answer.expect(200);
        assert_eq!(served(&answer), served_by, "{fallbacks}");
    }
    let calls_of_second = second.requests().len();
    assert_eq!(calls_of_second, 1);
    // No other model follows, neither of the first nor of the fallback.
    third.push(broken());
    for fallbacks in [json!([]), json!(["other"]), json!([{"another": ["other"]}])] {
        let answer = ask("chain", fallbacks.clone()).send().await;
        assert!(answer.status.is_server_error(), "{fallbacks}: {}", answer.text());
    }
    assert_eq!(second.requests().len(), calls_of_second);
    // Lists by model say nothing about inputs that are too long.
    proxy.upstream.set_default_reply(too_long());
    assert_eq!(served(&ask("short", json!([{"short": ["other"]}])).send().await), ("second", "long"));
    assert_eq!(ask("short", json!(["other"])).send().await.status, 400);
}

#[tokio::test]
async fn clients_of_helicone_openrouter_and_bifrost() {
    let proxy = start(Backend::Sqlite).await;
    let body = json!({"model": "smart", "messages": []});
    let helicone = post(&proxy, "/compat/helicone/v1/chat/completions", body.clone())
        .header("helicone-auth", &format!("Bearer {}", proxy.ada.api_key))
        .header("helicone-property-env", "prod")
        .header("helicone-user-id", "ada");
    let answer = helicone.send().await;
    answer.expect(200);
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["user"], &row["metadata"]["env"]), (&json!("ada"), &json!("prod")));
    let openrouter = post(
        &proxy,
        "/compat/openrouter/api/v1/chat/completions",
        json!({"model": "openai/gpt-4o:floor", "messages": [], "usage": {"include": true}}),
    );
    let answer = openrouter.bearer(&proxy.ada.api_key).header("x-title", "My app").send().await;
    answer.expect(200);
    assert_eq!(served(&answer), ("openai", "gpt-4o"));
    assert!(answer.header("x-generation-id").is_some());
    assert!(answer.header("x-gateway-cost-usd").is_some());
    let bifrost =
        post(&proxy, "/compat/bifrost/v1/chat/completions", body).header("x-bf-vk", &proxy.ada.api_key);
    bifrost.send().await.expect(200);
}

#[tokio::test]
async fn nothing_below_compat_reaches_the_management_api() {
    let proxy = start(Backend::Sqlite).await;
    let answer = proxy.app.get("/compat/litellm/api/v1/keys").bearer(&proxy.ada.api_key).send().await;
    assert!(answer.status.is_client_error(), "{}", answer.text());
    let answer = proxy.app.get("/compat/litellm/openai/api/v1/keys").bearer(&proxy.ada.api_key).send().await;
    answer.expect(200);
    assert_eq!(proxy.upstream.requests().last().unwrap().target(), "/api/v1/keys");
}
