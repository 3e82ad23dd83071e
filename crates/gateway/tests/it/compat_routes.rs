//! The routes of other gateways' clients: fallbacks, preferences among providers and configs in requests, and what the
//! answers say about them.

use http::Method;
use serde_json::{Value, json};

use crate::support::fallback_chain::{FallbackChain, GOOD, HELLO, ROLE, attempted_providers, good};
use crate::support::named_models::{sent, served};
use crate::support::{ProxyFixture, TestRequest};
use crate::upstream::{Reply, Signal, Upstream};

const SETTINGS: [(&str, &str); 2] = [
    ("GATEWAY_COMPAT", "litellm,portkey,helicone,openrouter,bifrost"),
    ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
];

/// Three targets: `openai`, `second` of its kind, and `third`. All serve.
async fn start() -> FallbackChain {
    let chain = FallbackChain::start_with(&SETTINGS).await;
    for upstream in [&chain.proxy.upstream, &chain.second, &chain.third] {
        upstream.set_default_reply(good());
    }
    chain
}

fn broken() -> Reply {
    Reply::json(500, "{}")
}

#[expect(clippy::needless_pass_by_value, reason = "bodies are written in place, as json!({…})")]
fn call(proxy: &ProxyFixture, dialect: &str, fields: Value) -> TestRequest {
    let mut body = json!({"messages": []});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    proxy.app.call(Method::POST, &format!("/compat/{dialect}/v1/chat/completions")).json(body)
}

fn litellm(proxy: &ProxyFixture, fields: Value) -> TestRequest {
    call(proxy, "litellm", fields).bearer(&proxy.ada.api_key)
}

fn portkey(proxy: &ProxyFixture, fields: Value) -> TestRequest {
    call(proxy, "portkey", fields).header("x-portkey-api-key", &proxy.ada.api_key)
}

fn openrouter(proxy: &ProxyFixture, fields: Value) -> TestRequest {
    call(proxy, "openrouter", fields).bearer(&proxy.ada.api_key)
}

fn helicone(proxy: &ProxyFixture, fields: Value) -> TestRequest {
    let key = format!("Bearer {}", proxy.ada.api_key);
    call(proxy, "helicone", fields).header("helicone-auth", &key)
}

/// The models that an upstream was asked for.
fn asked(upstream: &Upstream) -> Vec<Value> {
    upstream.requests().iter().map(|request| request.json()["model"].clone()).collect()
}

#[tokio::test]
async fn fallbacks_of_a_body_are_named_models_and_targets() {
    let FallbackChain { proxy, second, .. } = &start().await;
    proxy.save("backup", json!({"targets": [{"provider": "third", "model": "c"}]})).await;
    proxy.upstream.push(broken());
    second.push(broken());
    let body = json!({"model": "openai/a", "fallbacks": ["second/b", "backup"], "user": "ada"});
    let answer = litellm(proxy, body).send().await;
    answer.expect(200);
    assert_eq!(served(&answer), ("third", "c"));
    for (name, value) in [
        ("x-litellm-model-id", "c"),
        ("x-litellm-model-group", "openai/a"),
        ("x-litellm-attempted-fallbacks", "2"),
        ("x-litellm-attempted-retries", "0"),
        ("llm_provider-content-type", "application/json"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    for name in ["x-litellm-call-id", "x-litellm-response-duration-ms", "x-litellm-overhead-duration-ms"] {
        let number: f64 = answer.header(name).unwrap().parse().unwrap();
        assert!(number > 0.0, "{name}: {number}");
    }
    assert_eq!(answer.header("llm_provider-x-gateway-log-id"), None);
    let row = proxy.log_row(&answer).await;
    let attempts = attempted_providers(&row);
    let attempts: Vec<(&str, &Value)> =
        attempts.iter().map(|(name, status)| (name.as_str(), status)).collect();
    assert_eq!(attempts, [("openai", &json!(500)), ("second", &json!(500)), ("third", &json!(200))]);
    assert_eq!((&row["compat"], &row["user"]), (&json!("litellm"), &json!("ada")));
    assert!(sent(&proxy.upstream).get("fallbacks").is_none());
    // LiteLLM's names of providers, and fields for one of the models.
    proxy.upstream.push(broken());
    let body = json!({"model": "openai/a", "fallbacks": [{"model": "second/b", "temperature": 0.5}]});
    litellm(proxy, body).send().await.expect(200);
    assert_eq!((&sent(second)["temperature"], &sent(second)["model"]), (&json!(0.5), &json!("b")));
    assert!(sent(&proxy.upstream).get("temperature").is_none());
}

#[tokio::test]
async fn calls_can_do_without_fallbacks() {
    let FallbackChain { proxy, second, .. } = &start().await;
    let targets = json!([{"provider": "openai", "model": "a"}, {"provider": "second", "model": "b"}]);
    proxy.save("chain", json!({"targets": targets})).await;
    proxy.upstream.set_default_reply(broken());
    let body = json!({"model": "chain", "fallbacks": ["second/b"], "disable_fallbacks": true});
    let answer = litellm(proxy, body).send().await;
    assert!(answer.status.is_server_error(), "{}", answer.text());
    assert!(second.requests().is_empty());
    let answer = litellm(proxy, json!({"model": "chain", "disable_fallbacks": false})).send().await;
    assert_eq!(served(&answer), ("second", "b"));
}

#[tokio::test]
async fn a_stream_that_does_not_start_in_time_is_given_up() {
    let FallbackChain { proxy, second, .. } = &start().await;
    proxy.upstream.push(Reply::sse(&[]).wait_before_head(&Signal::new()));
    second.push(Reply::sse(&[ROLE, HELLO, "[DONE]"]));
    let body = json!({"model": "openai/a", "fallbacks": ["second/b"], "stream": true, "stream_timeout": 1});
    let answer = litellm(proxy, body).send().await;
    assert_eq!(served(&answer), ("second", "b"));
    assert!(answer.text().contains("hello"), "{}", answer.text());
}

#[tokio::test]
async fn scopes_apply_to_everything_that_a_request_lists() {
    let FallbackChain { proxy, second, .. } = &start().await;
    proxy.save("backup", json!({"targets": [{"provider": "third", "model": "c"}]})).await;
    let (of_a, of_backup) = (proxy.key(&["model:a"]).await, proxy.key(&["model:backup"]).await);
    let ask = |key: &str, fields: Value| call(proxy, "litellm", fields).bearer(key).send();
    ask(&of_a, json!({"model": "openai/a"})).await.expect(200);
    ask(&of_backup, json!({"model": "backup", "disable_fallbacks": true})).await.expect(200);
    for (key, fields) in [
        (&of_a, json!({"model": "openai/a", "fallbacks": ["second/b"]})),
        (&of_a, json!({"model": "openai/a", "fallbacks": ["backup"]})),
        (&of_backup, json!({"model": "backup", "fallbacks": ["second/a"]})),
        (&of_backup, json!({"model": "openai/a", "fallbacks": ["backup"]})),
    ] {
        ask(key, fields.clone()).await.expect_error(403, "scope_denied");
    }
    let config = json!({"virtual_key": "second", "override_params": {"model": "b"}}).to_string();
    let refused = call(proxy, "portkey", json!({"model": "a"})).header("x-portkey-api-key", &of_a);
    refused.header("x-portkey-config", &config).send().await.expect_error(403, "scope_denied");
    assert!(second.requests().is_empty());
}

#[tokio::test]
async fn a_config_in_a_request_is_the_route_of_a_saved_one() {
    let FallbackChain { proxy, second, .. } = &start().await;
    let config = json!({
        "strategy": {"mode": "fallback"},
        "targets": [
            {"provider": "openai", "override_params": {"temperature": 0}},
            {"virtual_key": "second", "override_params": {"model": "o3"}},
        ],
    });
    let data = json!({"configs": [{"slug": "pc-saved", "name": "Saved", "config": config}]}).to_string();
    let path = format!("/api/v1/orgs/{}/import", proxy.ada.org_id);
    let import = json!({"source": "portkey", "data": data, "apply": true});
    proxy.app.post(&path, import).bearer(&proxy.ada.token).send().await.expect(200);
    for header in ["pc-saved", &config.to_string()] {
        proxy.upstream.push(broken());
        let request = portkey(proxy, json!({"model": "gpt-4o"})).header("x-portkey-trace-id", "t-9");
        let answer = request.header("x-portkey-config", header).send().await;
        answer.expect(200);
        assert_eq!(served(&answer), ("second", "o3"));
        assert_eq!(answer.header("x-portkey-last-used-option-index"), Some("config.targets[1]"));
        assert_eq!(answer.header("x-portkey-retry-attempt-count"), Some("0"));
        assert_eq!(answer.header("x-portkey-cache-status"), Some("DISABLED"));
        assert_eq!(answer.header("x-portkey-trace-id"), Some("t-9"));
        let first = sent(&proxy.upstream);
        assert_eq!((&first["model"], &first["temperature"]), (&json!("gpt-4o"), &json!(0)));
        assert_eq!(proxy.log_row(&answer).await["compat"], "portkey");
    }
    assert_eq!(asked(second), ["o3", "o3"]);
    // Without a target of its own model, a call must name one.
    let answer = portkey(proxy, json!({})).header("x-portkey-config", &config.to_string()).send().await;
    answer.expect_error(400, "bad_request");
}

#[tokio::test]
async fn the_conditions_of_a_config_see_the_metadata_of_the_request() {
    let FallbackChain { proxy, .. } = &start().await;
    let config = json!({
        "strategy": {
            "mode": "conditional", "default": "free",
            "conditions": [{"query": {"metadata.plan": {"$eq": "paid"}}, "then": "paid"}],
        },
        "targets": [{"name": "free", "provider": "openai"}, {"name": "paid", "provider": "@second"}],
    })
    .to_string();
    for (plan, provider) in [("paid", "second"), ("none", "openai")] {
        let request = portkey(proxy, json!({"model": "m"})).header("x-portkey-config", &config);
        let metadata = json!({"plan": plan, "_user": "ada"}).to_string();
        let answer = request.header("x-portkey-metadata", &metadata).send().await;
        assert_eq!(served(&answer), (provider, "m"));
        assert_eq!(proxy.log_row(&answer).await["user"], "ada");
    }
}

#[tokio::test]
async fn what_a_config_cannot_mean_here_is_named() {
    let FallbackChain { proxy, .. } = &start().await;
    for (status, field, config) in [
        (422, "x-portkey-config.api_key", json!({"provider": "openai", "api_key": "sk-secret"})),
        (422, "x-portkey-config.input_guardrails", json!({"provider": "openai", "input_guardrails": ["g"]})),
        (422, "x-portkey-config.provider", json!({"provider": "nobody"})),
        (400, "provider 'nobody'", json!({"provider": "@nobody"})),
    ] {
        let request = portkey(proxy, json!({"model": "m"})).header("x-portkey-config", &config.to_string());
        let answer = request.send().await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        assert!(answer.text().contains(field) && !answer.text().contains("sk-secret"), "{}", answer.text());
    }
    let odd = json!({"provider": "openai", "odd": 1}).to_string();
    let answer = portkey(proxy, json!({"model": "m"})).header("x-portkey-config", &odd).send().await;
    answer.expect(200);
    assert_eq!(answer.header("x-gateway-dropped"), Some("x-portkey-config.odd"));
    assert!(proxy.upstream.requests().len() == 1);
}

#[tokio::test]
async fn providers_are_found_by_their_names_and_addresses() {
    let FallbackChain { proxy, second, .. } = &start().await;
    let ask = |name: &str, value: &str| portkey(proxy, json!({"model": "m"})).header(name, value).send();
    assert_eq!(served(&ask("x-portkey-custom-host", &format!("{}/v1", second.url())).await).0, "second");
    assert_eq!(served(&ask("x-portkey-virtual-key", "second").await).0, "second");
    ask("x-portkey-custom-host", "https://nobody.example").await.expect_error(400, "bad_request");
    let answer = portkey(proxy, json!({"model": "@second/o3"})).send().await;
    assert_eq!(served(&answer), ("second", "o3"));
    let target =
        helicone(proxy, json!({"model": "o3"})).header("helicone-target-url", &second.url()).send().await;
    assert_eq!(served(&target), ("second", "o3"));
    // The operator sends its calls elsewhere.
    let known =
        helicone(proxy, json!({"model": "o3"})).header("helicone-target-url", "https://api.openai.com/v1");
    assert_eq!(served(&known.send().await), ("openai", "o3"));
    let other = helicone(proxy, json!({"model": "o3"}))
        .header("helicone-target-url", "https://api.openai.com.example");
    other.send().await.expect_error(400, "bad_request");
}

#[tokio::test]
async fn preferences_choose_among_the_providers_of_a_model() {
    let FallbackChain { proxy, second, third } = &start().await;
    let targets =
        json!([{"provider": "openai", "model": "gpt-4o"}, {"provider": "second", "model": "gpt-4o-mini"}]);
    proxy.save("mix", json!({"targets": targets})).await;
    let ask = |fields: Value| openrouter(proxy, fields).send();
    for (fields, provider, model) in [
        (json!({"model": "openai/gpt-4o", "provider": {"order": ["second"]}}), "second", "gpt-4o"),
        (json!({"model": "openai/gpt-4o", "provider": {"only": ["third"]}}), "third", "gpt-4o"),
        (json!({"model": "mix"}), "openai", "gpt-4o"),
        (json!({"model": "mix:floor"}), "second", "gpt-4o-mini"),
        (json!({"model": "mix", "provider": {"sort": "price"}}), "second", "gpt-4o-mini"),
        (json!({"model": "mix", "provider": {"order": ["second"]}}), "second", "gpt-4o-mini"),
        (json!({"model": "mix", "provider": {"max_price": {"prompt": 1}}}), "second", "gpt-4o-mini"),
        (json!({"models": ["second/a", "mix"]}), "second", "a"),
    ] {
        let answer = ask(fields.clone()).await;
        assert_eq!((answer.status.as_u16(), served(&answer)), (200, (provider, model)), "{fields}");
        assert!(answer.header("x-generation-id").is_some());
    }
    assert!(sent(second).get("provider").is_none() && sent(second).get("models").is_none());
    proxy.provider("private", "openai", json!({"api_key": "sk-private", "no_retention": true})).await;
    for provider in
        [json!({"only": ["private"], "zdr": true}), json!({"order": ["private"], "data_collection": "deny"})]
    {
        let answer = ask(json!({"model": "openai/gpt-4o", "provider": provider})).await;
        assert_eq!(served(&answer), ("private", "gpt-4o"), "{provider}");
    }
    // The others follow, unless the request does not want it.
    second.set_default_reply(broken());
    let order = json!({"model": "openai/gpt-4o", "provider": {"order": ["second"]}});
    assert_eq!(served(&ask(order).await), ("openai", "gpt-4o"));
    assert_eq!(served(&ask(json!({"model": "second/a", "models": ["mix"]})).await), ("openai", "gpt-4o"));
    let before = proxy.upstream.requests().len();
    for provider in [
        json!({"order": ["second"], "allow_fallbacks": false}),
        json!({"sort": "price", "allow_fallbacks": false}),
    ] {
        let answer = ask(json!({"model": "mix", "provider": provider})).await;
        assert!(answer.status.is_server_error(), "{provider}: {}", answer.text());
    }
    assert_eq!((proxy.upstream.requests().len(), third.requests().len()), (before, 1));
    for (field, provider) in [
        ("provider: no target", json!({"only": ["groq-9"]})),
        ("no_retention", json!({"zdr": true})),
        ("provider.max_price.image", json!({"max_price": {"image": 1}})),
    ] {
        let refused = ask(json!({"model": "mix", "provider": provider})).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.text().contains(field), "{}", refused.text());
    }
}

#[tokio::test]
async fn the_cost_of_a_call_is_in_its_usage() {
    let FallbackChain { proxy, .. } = &start().await;
    let body = GOOD.replace(r#""model":"m""#, r#""model":"gpt-4o""#);
    proxy.upstream.set_default_reply(Reply::json(200, &body));
    let asked = json!({"model": "openai/gpt-4o", "usage": {"include": true}});
    let answer = openrouter(proxy, asked).send().await;
    let usage = &answer.expect(200)["usage"];
    let row = proxy.log_row(&answer).await;
    assert_eq!((&usage["cost"], &usage["total_tokens"]), (&row["cost_usd"], &json!(4)));
    assert!(usage["cost"].as_f64().unwrap() > 0.0);
    assert_eq!(answer.header("content-length").unwrap(), answer.text().len().to_string());
    let unasked = openrouter(proxy, json!({"model": "openai/gpt-4o"})).send().await;
    assert!(unasked.expect(200)["usage"].get("cost").is_none());
    // Clients of LiteLLM read it from a header.
    let answer = litellm(proxy, json!({"model": "openai/gpt-4o"})).send().await;
    let cost: f64 = answer.header("x-litellm-response-cost").unwrap().parse().unwrap();
    assert!(cost > 0.0 && answer.expect(200)["usage"].get("cost").is_none());
    let usage =
        json!({"model": "gpt-4o", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    proxy.upstream.set_default_reply(Reply::sse(&[HELLO, &usage.to_string(), "[DONE]"]));
    let asked = json!({"model": "openai/gpt-4o", "usage": {"include": true}, "stream": true});
    let text = openrouter(proxy, asked).send().await.text();
    assert!(text.contains("\"cost\":"), "{text}");
    // A stream of theirs gets no chunk that they did not ask for.
    let text = litellm(proxy, json!({"model": "openai/gpt-4o", "stream": true})).send().await.text();
    assert!(!text.contains("\"usage\""), "{text}");
}

#[tokio::test]
async fn a_stream_that_fails_ends_with_an_error_of_the_dialect() {
    let FallbackChain { proxy, .. } = &start().await;
    proxy.upstream.push(Reply::sse(&[ROLE, HELLO]).then_truncate());
    let answer = openrouter(proxy, json!({"model": "openai/gpt-4o", "stream": true})).send().await;
    let text = answer.text();
    let events: Vec<&str> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!((events[1], events.last()), (HELLO, Some(&"[DONE]")), "{text}");
    let error: Value = serde_json::from_str(events[2]).unwrap();
    assert_eq!(error["choices"][0], json!({"index": 0, "delta": {"content": ""}, "finish_reason": "error"}));
    assert_eq!((&error["provider"], &error["error"]["code"]), (&json!("openai"), &json!("provider_error")));
    assert_eq!(error["id"].as_str(), answer.header("x-generation-id"));
    assert_eq!(proxy.log_row(&answer).await["error_code"], "provider_error");
}

#[tokio::test]
async fn lists_and_addresses_of_helicone_are_tried_in_order() {
    let FallbackChain { proxy, second, .. } = &start().await;
    proxy.upstream.push(broken());
    let body = json!({"model": "gpt-4o/openai, o3/second"});
    let answer = helicone(proxy, body).header("helicone-request-id", "r-1").send().await;
    assert_eq!(served(&answer), ("second", "o3"));
    assert_eq!(
        (answer.header("helicone-id"), answer.header("helicone-fallback-index")),
        (Some("r-1"), Some("1"))
    );
    assert_eq!(answer.header("helicone-status"), Some("200"));
    proxy.upstream.push(Reply::json(429, "{}"));
    let list = json!([
        {"target-url": proxy.upstream.url(), "onCodes": [429]},
        {"target-url": second.url(), "bodyKeyOverride": {"model": "o4", "top_p": 0.5}},
    ]);
    let request =
        helicone(proxy, json!({"model": "gpt-4o"})).header("helicone-target-url", &proxy.upstream.url());
    let answer = request.header("helicone-fallbacks", &list.to_string()).send().await;
    answer.expect(200);
    assert_eq!(served(&answer), ("second", "o4"));
    assert_eq!(sent(second)["top_p"], 0.5);
    // Only after the statuses of the list.
    proxy.upstream.push(broken());
    let request = helicone(proxy, json!({"model": "gpt-4o"})).header("helicone-fallbacks", &list.to_string());
    assert!(request.send().await.status.is_server_error());
}

#[tokio::test]
async fn bifrost_names_providers_of_its_own_in_fallbacks_and_paths() {
    let FallbackChain { proxy, second, .. } = &start().await;
    proxy.upstream.push(broken());
    let body = json!({"model": "openai/gpt-4o", "fallbacks": [{"provider": "second", "model": "o3"}]});
    let answer = call(proxy, "bifrost", body).header("x-bf-vk", &proxy.ada.api_key).send().await;
    assert_eq!(served(&answer), ("second", "o3"));
    for (model, provider) in [("gpt-4o", "openai"), ("second/o4", "second")] {
        let request = call(proxy, "bifrost/openai", json!({"model": model}));
        let answer = request.header("x-bf-vk", &proxy.ada.api_key).send().await;
        assert_eq!(served(&answer).0, provider, "{}", answer.text());
    }
    assert_eq!(asked(second), ["o3", "o4"]);
    let cached = || {
        let request = call(proxy, "bifrost", json!({"model": "openai/gpt-4o"}));
        let request = request.header("x-bf-vk", &proxy.ada.api_key);
        request.header("x-bf-cache-key", "k").header("x-bf-cache-ttl", "5m").send()
    };
    cached().await.expect(200);
    assert_eq!(cached().await.header("x-gateway-cache"), Some("HIT"));
}

#[tokio::test]
async fn a_header_of_the_gateway_and_a_list_of_the_client_contradict_each_other() {
    let FallbackChain { proxy, .. } = &start().await;
    let body = json!({"model": "openai/a", "fallbacks": ["second/b"]});
    let answer = litellm(proxy, body).header("x-gateway-fallback", "third").send().await;
    answer.expect_error(400, "bad_request");
    assert!(answer.text().contains("x-gateway-fallback"), "{}", answer.text());
}
