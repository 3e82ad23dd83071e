//! Marks for the prompt caches of providers: who gets them, what they save, and when they pause.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::named_models::sent;
use crate::support::{Backend, ProxyFixture, TestRequest};
use crate::upstream::Reply;

const MODEL: &str = "claude-sonnet-4-5";
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// An answer of Claude with this usage.
fn answer(input: u64, read: u64, written: u64) -> Reply {
    let usage = json!({
        "input_tokens": input, "output_tokens": 5,
        "cache_read_input_tokens": read, "cache_creation_input_tokens": written,
    });
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hello"}], "usage": usage,
    });
    Reply::json(200, &body.to_string())
}

/// A request that is long enough to be cached, in Anthropic's format.
fn body(system: &str) -> String {
    let system = format!("{system} {}", "Be careful. ".repeat(500));
    json!({
        "model": MODEL, "max_tokens": 9, "system": [{"type": "text", "text": system}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    })
    .to_string()
}

fn ask(proxy: &ProxyFixture) -> TestRequest {
    proxy.post("anthropic", "/v1/messages", body("Always."))
}

async fn set(proxy: &ProxyFixture, settings: Value) {
    let path = format!("/api/v1/orgs/{}", proxy.ada.org_id);
    proxy.app.put(&path, json!({"settings": settings})).bearer(&proxy.ada.token).send().await.expect(200);
}

/// Sends a request and returns the body that the provider received, and the marks in the log row.
async fn marks(proxy: &ProxyFixture, request: TestRequest) -> (String, Value) {
    let answer = request.send().await;
    answer.expect(200);
    let received = proxy.upstream.requests().last().unwrap().body.clone();
    (String::from_utf8(received).unwrap(), proxy.log_row(&answer).await["cache_marks"].clone())
}

#[tokio::test]
async fn marks_are_added_where_a_setting_or_a_header_asks_for_them() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        proxy.upstream.set_default_reply(answer(10, 0, 0));
        let plain = body("Always.");
        assert_eq!(marks(&proxy, ask(&proxy)).await, (plain.clone(), Value::Null));
        let auto = || ask(&proxy).header("x-gateway-prompt-cache", "auto");
        let (marked, count) = marks(&proxy, auto()).await;
        assert_eq!(count, 2);
        assert_eq!(marked.matches(MARK).count(), 2, "{marked}");
        // Everything else keeps its bytes.
        assert_eq!(marked.replace(MARK, ""), plain);
        // An unknown field is ignored.
        set(&proxy, json!({"prompt_cache": {"mode": "auto", "colour": "red"}})).await;
        assert_eq!(marks(&proxy, ask(&proxy)).await, (marked, json!(2)));
        let off = ask(&proxy).header("x-gateway-prompt-cache", "off");
        assert_eq!(marks(&proxy, off).await, (plain.clone(), Value::Null));
        // A prompt below the minimum is left alone.
        set(&proxy, json!({"prompt_cache": {"mode": "auto", "min_tokens": 100_000}})).await;
        assert_eq!(marks(&proxy, ask(&proxy)).await, (plain, json!(0)));
        let wrong = ask(&proxy).header("x-gateway-prompt-cache", "on").send().await;
        wrong.expect_error(400, "bad_request");
    }
}

#[tokio::test]
async fn a_named_model_has_its_own_setting_and_marks_follow_the_translation() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(answer(10, 0, 0));
    let targets = json!([{"provider": "anthropic", "model": MODEL}]);
    proxy.save("claude", json!({"targets": targets, "prompt_cache": {"mode": "auto", "ttl": "1h"}})).await;
    let messages = json!([
        {"role": "system", "content": "Be careful. ".repeat(500)}, {"role": "user", "content": "hi"},
    ]);
    let request = || proxy.by_name_with("claude", json!({"messages": messages}));
    request().send().await.expect(200);
    let body = sent(&proxy.upstream);
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}), "{body}");
    assert_eq!(body["messages"][0]["content"][0]["cache_control"], json!({"type": "ephemeral"}), "{body}");
    request().header("x-gateway-prompt-cache", "off").send().await.expect(200);
    assert!(!sent(&proxy.upstream).to_string().contains("cache_control"));
    // The model's setting comes before the organization's.
    set(&proxy, json!({"prompt_cache": {"mode": "auto"}})).await;
    proxy.save("claude", json!({"targets": targets, "prompt_cache": {"mode": "off"}})).await;
    request().send().await.expect(200);
    assert!(!sent(&proxy.upstream).to_string().contains("cache_control"));
    let path = format!("/api/v1/orgs/{}/models", proxy.ada.org_id);
    let wrong = json!({"name": "x", "targets": targets, "prompt_cache": {"mode": "auto", "min_tokens": 0}});
    let wrong = proxy.app.post(&path, wrong).bearer(&proxy.ada.token).send().await;
    wrong.expect_error(400, "bad_request");
}

#[tokio::test]
async fn models_that_take_no_marks_get_none() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(answer(10, 0, 0));
    for (provider, path, model) in [
        ("anthropic", "/v1/messages", "claude-2.1"),
        ("openai", "/v1/chat/completions", "gpt-4o"),
        ("gemini", "/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-pro"),
    ] {
        let body = body("Always.").replace(MODEL, model);
        let request = proxy.post(provider, path, body.clone()).header("x-gateway-prompt-cache", "auto");
        let (received, _) = marks(&proxy, request).await;
        assert_eq!(received, body, "{provider}");
    }
}

#[tokio::test]
async fn a_system_prompt_that_changes_with_every_call_is_not_marked() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(answer(10, 0, 0));
    let mut seen = Vec::new();
    for time in ["12:01", "12:02", "12:03", "12:04", "12:04"] {
        let request = proxy.post("anthropic", "/v1/messages", body(&format!("It is {time}.")));
        let request = request.header("x-gateway-prompt-cache", "auto").header("x-gateway-session", "s");
        seen.push(marks(&proxy, request).await.1);
    }
    assert_eq!(seen, [2, 2, 0, 0, 2]);
}

#[tokio::test]
async fn usage_shows_what_the_prompt_cache_saved() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        proxy.upstream.push(answer(10, 0, 10_000));
        proxy.upstream.push(answer(10, 100_000, 0));
        for _ in 0..2 {
            let answer = ask(&proxy).header("x-gateway-prompt-cache", "auto").send().await;
            answer.expect(200);
            proxy.log_row(&answer).await;
        }
        let get = |path: &str| proxy.app.get(&format!("/api/v1/usage/{path}")).key(&proxy.ada.api_key).send();
        // 100,000 x (3 - 0.3) less 10,000 x (3.75 - 3), per million.
        let saved = |sums: &Value| {
            let usd = sums["cache_saved_usd"].as_f64().unwrap();
            assert!((usd - 0.262_5).abs() < 1e-9, "{sums}");
            (sums["cached_tokens"].clone(), sums["cache_write_tokens"].clone())
        };
        let summary = get("summary").await.expect(200);
        assert_eq!(saved(&summary), (json!(100_000), json!(10_000)));
        assert_eq!(summary["prompt_cache_pauses"], json!([]));
        for by in ["model", "key"] {
            let breakdown = get(&format!("breakdown?by={by}")).await.expect(200);
            assert_eq!(saved(&breakdown["rows"][0]), (json!(100_000), json!(10_000)), "{by}");
        }
        // A range that ends now is read from the rows.
        let series = get("timeseries?interval=minute").await.expect(200);
        let buckets = series["buckets"].as_array().unwrap();
        let sum: f64 = buckets.iter().map(|bucket| bucket["cache_saved_usd"].as_f64().unwrap()).sum();
        assert!((sum - 0.262_5).abs() < 1e-9, "{series}");
    }
}

/// The requests of an agent: tools and instructions of about 20,000 tokens, and about 2,600 more with every turn.
fn agent_requests() -> Vec<String> {
    let tools: Vec<Value> = (0..30)
        .map(|tool| json!({"name": format!("tool_{tool}"), "description": "does something useful ".repeat(50)}))
        .collect();
    let system = "You are a careful engineer. ".repeat(1_500);
    let mut messages = vec![json!({"role": "user", "content": "fix the failing test"})];
    let mut requests = Vec::new();
    for call in 0..45 {
        let body = json!({
            "model": MODEL, "max_tokens": 9, "tools": tools, "system": system, "messages": messages,
        });
        requests.push(body.to_string());
        let id = format!("toolu_{call}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "text", "text": format!("Step {call}. {}", "I look at the file. ".repeat(40))},
            {"type": "tool_use", "id": id, "name": "tool_1", "input": {"path": format!("src/{call}.rs")}},
        ]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": "let line = read(input)?;\n".repeat(380)},
        ]}));
    }
    requests
}

#[tokio::test]
async fn an_agent_of_45_calls_pays_less_than_a_fifth_for_its_input() {
    let (proxy, claude) = (ProxyFixture::start().await, Claude::start().await);
    proxy.provider("claude", "anthropic", json!({"base_url": claude.url()})).await;
    let keys = [("auto", proxy.key(&["proxy"]).await), ("off", proxy.key(&["proxy"]).await)];
    for body in agent_requests() {
        for (mode, key) in &keys {
            let request = proxy.app.call(http::Method::POST, "/v1/messages").key(key);
            let request = request.header("x-gateway-provider", "claude").header("x-gateway-log", "metadata");
            let request = request.header("x-gateway-prompt-cache", mode).raw(body.clone());
            request.send().await.expect(200);
        }
    }
    let mut used = Vec::new();
    for (_, key) in &keys {
        used.push(proxy.app.get("/api/v1/me/usage").key(key).send().await.expect(200));
    }
    let [marked, plain] = [&used[0], &used[1]];
    assert_eq!(marked["prompt_tokens"], plain["prompt_tokens"]);
    assert!(plain["prompt_tokens"].as_i64().unwrap() > 3_000_000, "{plain}");
    let usd = |usage: &Value, field: &str| usage[field].as_f64().unwrap();
    let (with, without) = (usd(marked, "cost_usd"), usd(plain, "cost_usd"));
    assert!(with * 5.0 <= without, "{with} of {without}");
    assert!((usd(marked, "cache_saved_usd") - (without - with)).abs() < 1e-6, "{marked}");
    assert!(usd(plain, "cache_saved_usd").abs() < 1e-9, "{plain}");
}

#[tokio::test]
async fn a_setting_that_loses_money_pauses_for_the_key() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        proxy.upstream.set_default_reply(answer(10, 0, 10_000));
        let targets = json!([{"provider": "anthropic", "model": MODEL}]);
        let definition = json!({"targets": targets, "prompt_cache": {"mode": "auto"}});
        proxy.save("claude", definition.clone()).await;
        let ask = || proxy.post("auto", "/v1/messages", body("Always.").replace(MODEL, "claude"));
        for _ in 0..100 {
            ask().send().await.expect(200);
        }
        let path = format!("/api/v1/orgs/{}/models/claude", proxy.ada.org_id);
        let get = || proxy.app.get(&path).bearer(&proxy.ada.token).send();
        let mut model = get().await.expect(200);
        for _ in 0..500 {
            if model["prompt_cache_pauses"] != json!([]) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            model = get().await.expect(200);
        }
        let pause = &model["prompt_cache_pauses"][0];
        assert!(pause["saved_usd"].as_f64().unwrap() < 0.0 && pause["key_id"].is_string(), "{model}");
        assert_eq!(marks(&proxy, ask()).await.1, 0);
        // A caller that asks for marks gets them, and so do other keys.
        assert_eq!(marks(&proxy, ask().header("x-gateway-prompt-cache", "auto")).await.1, 2);
        let other = proxy.key(&["*"]).await;
        let request = proxy.app.call(http::Method::POST, "/v1/messages").key(&other);
        let request = request.header("x-gateway-provider", "auto").header("content-type", "application/json");
        let request = request.raw(body("Always.").replace(MODEL, "claude"));
        assert_eq!(marks(&proxy, request).await.1, 2);
        let summary = proxy.app.get("/api/v1/usage/summary").key(&proxy.ada.api_key).send().await.expect(200);
        assert_eq!(summary["prompt_cache_pauses"][0]["model"], "claude");
        // What a response shows can be sent back. A new version ends the pause.
        proxy.app.put(&path, model).bearer(&proxy.ada.token).send().await.expect(200);
        assert_eq!(get().await.expect(200)["prompt_cache_pauses"], json!([]));
        assert_eq!(marks(&proxy, ask()).await.1, 2);
    }
}
