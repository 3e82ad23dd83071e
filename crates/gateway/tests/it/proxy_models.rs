//! Requests by the name of a model: strategies, parameters, scopes, prices, the cache and the list of models.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::support::fallback_chain::{CLAUDE, FallbackChain, good, good_stream};
use crate::support::named_models::{chain_of, sent, served};
use crate::support::{Backend, Cluster, ProxyFixture, TestRequest, wait_for_response};
use crate::upstream::{Reply, Signal};

#[tokio::test]
async fn a_name_is_served_by_its_target_on_both_databases() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        proxy.upstream.set_default_reply(good());
        proxy.save("smart", json!({"strategy": {"mode": "single"}, "targets": [{"provider": "openai", "model": "gpt-4o"}]})).await;
        let answer = proxy.by_name("smart").send().await;
        answer.expect(200);
        assert_eq!(served(&answer), ("openai", "gpt-4o"));
        assert_eq!(answer.header("x-gateway-model-name"), Some("smart"));
        assert_eq!(sent(&proxy.upstream)["model"], "gpt-4o");
        let row = proxy.log_row(&answer).await;
        assert_eq!((&row["provider"], &row["model"]), (&json!("openai"), &json!("gpt-4o")));
        // The very next request sees a change.
        proxy.save("smart", json!({"targets": [{"provider": "openai", "model": "o3"}]})).await;
        assert_eq!(served(&proxy.by_name("smart").send().await), ("openai", "o3"));
        proxy
            .save("smart", json!({"targets": [{"provider": "openai", "model": "o3"}], "enabled": false}))
            .await;
        let disabled = proxy.by_name("smart").send().await.expect_error(400, "bad_request");
        assert!(disabled["message"].as_str().unwrap().contains("disabled"));
        let path = format!("/api/v1/orgs/{}/models/smart", proxy.ada.org_id);
        proxy.app.delete(&path).bearer(&proxy.ada.token).send().await.expect(200);
        proxy.by_name("smart").send().await.expect_error(400, "bad_request");
    }
}

#[tokio::test]
async fn other_names_are_found_as_before_and_a_named_provider_is_not_asked() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    proxy.save("gpt-4o", json!({"targets": [{"provider": "openai", "model": "gpt-4o-mini"}]})).await;
    assert_eq!(served(&proxy.by_name("gpt-4o").send().await), ("openai", "gpt-4o-mini"));
    let explicit = proxy.chat(&json!({"model": "gpt-4o", "messages": []})).send().await;
    assert_eq!((served(&explicit), explicit.header("x-gateway-model-name")), (("openai", "gpt-4o"), None));
    let priced = proxy.by_name("gpt-4.1").send().await;
    assert_eq!((served(&priced), priced.header("x-gateway-model-name")), (("openai", "gpt-4.1"), None));
    assert_eq!(served(&proxy.by_name("openai/gpt-4o").send().await), ("openai", "gpt-4o"));
}

#[tokio::test]
async fn a_star_keeps_what_it_matched_and_the_longest_prefix_wins() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    for (name, model) in
        [("house/*", "*"), ("house/gpt-*", "gpt-*"), ("house/gpt-4o", "exact"), ("*", "last-resort")]
    {
        proxy.save(name, json!({"targets": [{"provider": "openai", "model": model}]})).await;
    }
    for (asked, expected) in [
        ("house/a/b", "a/b"),
        ("house/gpt-5", "gpt-5"),
        ("house/gpt-4o", "exact"),
        ("anything", "last-resort"),
    ] {
        let answer = proxy.by_name(asked).send().await;
        assert_eq!(served(&answer), ("openai", expected), "{asked}");
        assert_eq!(answer.header("x-gateway-model-name"), Some(asked));
    }
}

#[tokio::test]
async fn weights_share_the_calls_and_sessions_stay() {
    let chain = FallbackChain::start().await;
    for upstream in [&chain.proxy.upstream, &chain.second] {
        upstream.set_default_reply(good());
    }
    let targets = json!([
        {"provider": "openai", "model": "a", "weight": 1},
        {"provider": "second", "model": "b", "weight": 1},
        {"provider": "third", "model": "c", "weight": 0},
    ]);
    chain.proxy.save("mix", json!({"strategy": {"mode": "weighted"}, "targets": targets})).await;
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        let answer = chain.proxy.by_name("mix").send().await;
        answer.expect(200);
        seen.insert(served(&answer).0.to_owned());
    }
    assert_eq!(seen, BTreeSet::from(["openai".to_owned(), "second".to_owned()]));
    let mut in_session = BTreeSet::new();
    for _ in 0..8 {
        let answer = chain.proxy.by_name("mix").header("x-gateway-session", "s1").send().await;
        in_session.insert(served(&answer).0.to_owned());
    }
    assert_eq!(in_session.len(), 1);
}

#[tokio::test]
async fn the_cheapest_and_the_fastest_target_come_first() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(good());
    chain.second.set_default_reply(good());
    let targets = json!([
        {"provider": "openai", "model": "gpt-4o"},
        {"provider": "second", "model": "no-price-at-all"},
        {"provider": "openai", "model": "gpt-4o-mini"},
    ]);
    chain.proxy.save("cheap", json!({"strategy": {"mode": "cheapest"}, "targets": targets})).await;
    assert_eq!(served(&chain.proxy.by_name("cheap").send().await), ("openai", "gpt-4o-mini"));
    let targets = json!([{"provider": "openai", "model": "slow"}, {"provider": "second", "model": "quick"}]);
    chain.proxy.save("fast", json!({"strategy": {"mode": "fastest"}, "targets": targets})).await;
    // The first two calls measure both targets.
    chain.proxy.upstream.set_default_reply(good().delay_head(Duration::from_millis(80)));
    let measured: BTreeSet<String> = {
        let first = chain.proxy.by_name("fast").send().await;
        let second = chain.proxy.by_name("fast").send().await;
        [first, second].iter().map(|answer| served(answer).0.to_owned()).collect()
    };
    assert_eq!(measured.len(), 2);
    for _ in 0..3 {
        assert_eq!(served(&chain.proxy.by_name("fast").send().await), ("second", "quick"));
    }
}

#[tokio::test]
async fn params_defaults_and_formats_are_applied_per_target() {
    let chain = FallbackChain::start().await;
    chain.second.set_default_reply(good());
    let definition = json!({"targets": [
        {
            "provider": "anthropic", "model": "claude-x", "params": {"stop": ["END"]},
            "defaults": {"max_tokens": 77, "seed": 1},
        },
        {"provider": "second", "model": "two", "params": {"temperature": 0.75}, "defaults": {"seed": 2, "top_p": 0.5}},
    ]});
    chain.proxy.save("m", definition).await;
    chain.proxy.upstream.push(Reply::json(529, "{}"));
    let body = json!({"temperature": 1, "top_p": 1, "messages": [{"role": "user", "content": "hi"}]});
    chain.proxy.by_name_with("m", body.clone()).send().await.expect(200);
    let claude = sent(&chain.proxy.upstream);
    assert_eq!(chain.proxy.upstream.requests()[0].target(), "/v1/messages");
    assert_eq!((&claude["model"], &claude["max_tokens"]), (&json!("claude-x"), &json!(77)));
    assert_eq!(claude["stop_sequences"], json!(["END"]));
    let two = sent(&chain.second);
    assert_eq!((&two["temperature"], &two["top_p"], &two["seed"]), (&json!(0.75), &json!(1), &json!(2)));
    assert_eq!((&two["max_tokens"], &two["stop"]), (&Value::Null, &Value::Null));
    // The answer comes back in the caller's format, and a credential of the caller goes nowhere.
    chain.proxy.upstream.push(Reply::json(200, CLAUDE));
    let answer = chain.proxy.by_name_with("m", body).header("authorization", "Bearer sk-mine").send().await;
    assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], "hello");
    let last = chain.proxy.upstream.requests().pop().unwrap();
    assert_eq!((last.header("authorization"), last.header("x-api-key")), (None, None));
}

#[tokio::test]
async fn one_place_decides_the_route() {
    let chain = FallbackChain::start().await;
    chain.proxy.save("m", chain_of(None)).await;
    for (header, value) in [("x-gateway-fallback", "second"), ("x-gateway-route", "cheapest")] {
        let answer = chain.proxy.by_name("m").header(header, value).send().await;
        let message = answer.expect_error(400, "bad_request")["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(header), "{message}");
    }
    let form = chain.proxy.call(Method::POST, "auto", "/v1/audio/transcriptions");
    let form = form.header("content-type", "multipart/form-data; boundary=b");
    let body = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n";
    form.raw(body).send().await.expect_error(400, "bad_request");
    assert_eq!(chain.proxy.upstream.connections(), 0);
    // A target whose provider is gone is left out; without another one the call is refused.
    let path = format!("/api/v1/orgs/{}/providers/second", chain.proxy.ada.org_id);
    chain.proxy.app.delete(&path).bearer(&chain.proxy.ada.token).send().await.expect(200);
    chain.proxy.upstream.push(good());
    assert_eq!(served(&chain.proxy.by_name("m").send().await), ("openai", "one"));
}

#[tokio::test]
async fn scopes_name_the_model_or_all_its_providers() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(good());
    chain.proxy.save("m", chain_of(None)).await;
    for (scopes, allowed) in [
        (&["model:m"][..], true),
        (&["model:one", "model:two"], false),
        (&["provider:openai"], false),
        (&["provider:openai", "provider:second"], true),
        (&["provider:openai", "provider:second", "model:other"], false),
        (&["proxy"], true),
    ] {
        let key = chain.proxy.key(scopes).await;
        let call = |path: &str, method: Method| {
            chain.proxy.app.call(method, path).key(&key).header("x-gateway-provider", "auto")
        };
        let answer = call("/v1/chat/completions", Method::POST)
            .json(json!({"model": "m", "messages": []}))
            .send()
            .await;
        if allowed {
            answer.expect(200);
        } else {
            answer.expect_error(403, "scope_denied");
        }
        let list = call("/v1/models", Method::GET).send().await.expect(200);
        assert_eq!(list["data"].as_array().unwrap().len(), usize::from(allowed), "{scopes:?}");
    }
}

#[tokio::test]
async fn the_price_of_a_model_is_what_its_calls_cost() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    let target = json!([{"provider": "openai", "model": "gpt-4o", "params": {"max_tokens": 1000}}]);
    let price = json!({"input_per_mtok": 1_000_000.0, "output_per_mtok": 500_000.0});
    proxy.save("m", json!({"targets": target, "price": price})).await;
    let answer = proxy.by_name("m").send().await;
    answer.expect(200);
    // Three tokens read and one written.
    assert_eq!(proxy.log_row(&answer).await["cost_usd"], 3.5);
    // A budget reserves what a running call may cost at that price, with the limit that the target sets.
    let budget = json!({"scope": "org", "period": "daily", "hard_limit_usd": 400});
    let path = format!("/api/v1/orgs/{}/budgets", proxy.ada.org_id);
    proxy.app.post(&path, budget).bearer(&proxy.ada.token).send().await.expect(201);
    let signal = Signal::new();
    proxy.upstream.push(good().wait_before_head(&signal));
    let running = tokio::spawn(proxy.by_name("m").send());
    proxy.upstream.wait_for_requests(2, Duration::from_secs(5)).await;
    proxy.by_name("m").send().await.expect_error(403, "budget_exceeded");
    signal.notify();
    running.await.unwrap().expect(200);
}

#[tokio::test]
async fn a_model_may_have_a_cache_of_its_own() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    let definition = |temperature: f64| {
        json!({
            "targets": [{"provider": "openai", "model": "gpt-4o", "params": {"temperature": temperature}}],
            "cache": {"mode": "exact", "ttl": 60},
        })
    };
    proxy.save("m", definition(0.5)).await;
    assert_eq!(proxy.by_name("m").send().await.header("x-gateway-cache"), Some("MISS"));
    let hit = proxy.by_name("m").send().await;
    assert_eq!((hit.header("x-gateway-cache"), hit.header("x-gateway-model-name")), (Some("HIT"), Some("m")));
    assert_eq!(
        proxy.by_name("m").header("x-gateway-cache", "false").send().await.header("x-gateway-cache"),
        None
    );
    // Other parameters are another request.
    proxy.save("m", definition(0.75)).await;
    assert_eq!(proxy.by_name("m").send().await.header("x-gateway-cache"), Some("MISS"));
}

#[tokio::test]
async fn the_list_has_the_models_in_the_callers_format() {
    let proxy = ProxyFixture::start().await;
    let to = |provider: &str, model: &str| json!([{"provider": provider, "model": model}]);
    let described = json!({"targets": to("openai", "gpt-4o"), "description": "The usual one."});
    proxy.save("smart", described).await;
    proxy.save("house", json!({"targets": to("openai", "house-llm")})).await;
    proxy.save("secret", json!({"targets": to("openai", "gpt-4o"), "hidden": true})).await;
    proxy.save("off", json!({"targets": to("openai", "gpt-4o"), "enabled": false})).await;
    proxy.save("all/*", json!({"targets": to("openai", "*")})).await;
    let get = |path: &str| proxy.call(Method::GET, "auto", path);
    let answer = get("/v1/models").send().await;
    assert!(answer.header("x-gateway-request-id").is_some() && answer.header("x-ratelimit-limit").is_some());
    let list = answer.expect(200);
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!((&list["object"], ids), (&json!("list"), vec!["house", "smart"]));
    let (house, smart) = (&list["data"][0], &list["data"][1]);
    assert_eq!((&house["pricing"], &house["context_length"]), (&Value::Null, &Value::Null));
    assert_eq!((&smart["object"], &smart["description"]), (&json!("model"), &json!("The usual one.")));
    assert_eq!(smart["pricing"]["input_per_mtok"], 2.5);
    assert_eq!(smart["context_length"], 128_000);
    assert!(smart["created"].as_i64().unwrap() > 1_700_000_000);
    assert_eq!(&get("/v1/models/smart").send().await.expect(200), smart);
    get("/v1/models/secret").send().await.expect_error(404, "not_found");
    let claude = get("/v1/models").header("x-gateway-format", "anthropic").send().await.expect(200);
    assert_eq!((&claude["data"][1]["type"], &claude["has_more"]), (&json!("model"), &json!(false)));
    assert_eq!(claude["data"][1]["display_name"], "smart");
    let gemini = get("/v1beta/models").send().await.expect(200);
    assert_eq!(gemini["models"][1]["name"], "models/smart");
    assert_eq!(proxy.upstream.connections(), 0);
}

#[tokio::test]
async fn a_default_provider_serves_requests_that_name_none() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    proxy.save("smart", json!({"targets": [{"provider": "openai", "model": "gpt-4o"}]})).await;
    let call = |path: &str| {
        let call = proxy.app.call(Method::POST, path).key(&proxy.ada.api_key);
        call.json(json!({"model": "smart", "messages": []}))
    };
    let set = |provider: Value| {
        let path = format!("/api/v1/orgs/{}", proxy.ada.org_id);
        let body = json!({"settings": {"default_provider": provider}});
        proxy.app.put(&path, body).bearer(&proxy.ada.token).send()
    };
    call("/v1/chat/completions").send().await.expect_error(400, "bad_request");
    let refused = set(json!("nobody")).await.expect_error(400, "bad_request");
    assert!(refused["message"].as_str().unwrap().starts_with("settings.default_provider"));
    assert_eq!(set(json!("auto")).await.expect(200)["settings"]["default_provider"], "auto");
    let answer = call("/v1/chat/completions").send().await;
    answer.expect(200);
    assert_eq!(answer.header("x-gateway-model-name"), Some("smart"));
    // An error has the fields of a proxied request.
    let unknown = proxy.app.call(Method::POST, "/v1/chat/completions").key(&proxy.ada.api_key);
    let unknown = unknown.json(json!({"model": "nothing"})).send().await.expect_error(400, "bad_request");
    assert!(unknown["error"].is_string() || unknown["error"].is_object(), "{unknown}");
    for own in ["/api/v1/nothing", "/mcp/x", "/scim/v2/Users", "/s/token"] {
        let answer = call(own).send().await;
        assert!(matches!(answer.status.as_u16(), 400 | 404), "{own}: {}", answer.text());
        assert_eq!(answer.header("x-gateway-model-name"), None, "{own}");
    }
    assert_eq!(set(json!("openai")).await.expect(200)["settings"]["default_provider"], "openai");
    assert_eq!(served(&call("/v1/chat/completions").send().await), ("openai", "smart"));
    set(Value::Null).await.expect(200);
    call("/v1/chat/completions").send().await.expect_error(400, "bad_request");
}

#[tokio::test]
async fn the_playground_tries_a_named_model() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    proxy.save("smart", json!({"targets": [{"provider": "openai", "model": "gpt-4o"}]})).await;
    let body = json!({"provider": "auto", "model": "smart", "messages": [{"role": "user", "content": "hi"}]});
    let run =
        proxy.app.post("/api/v1/playground/run", body).bearer(&proxy.ada.token).send().await.expect(200);
    assert!(run.to_string().contains("hello"), "{run}");
    assert_eq!(sent(&proxy.upstream)["model"], "gpt-4o");
}

#[tokio::test]
async fn streams_and_other_endpoints_use_named_models_too() {
    let proxy = ProxyFixture::start().await;
    proxy.save("smart", json!({"targets": [{"provider": "openai", "model": "gpt-4o"}]})).await;
    proxy.upstream.push(good_stream());
    let answer = proxy.by_name_with("smart", json!({"stream": true})).send().await;
    assert!(answer.text().contains("hello") && answer.text().contains("[DONE]"));
    assert_eq!(answer.header("x-gateway-model-name"), Some("smart"));
    // The name is in the path, and the request is translated.
    proxy.upstream.push(good());
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    let gemini = proxy.post("auto", "/v1beta/models/smart:generateContent", body.to_string()).send().await;
    assert_eq!(gemini.expect(200)["candidates"][0]["content"]["parts"][0]["text"], "hello");
    assert_eq!(sent(&proxy.upstream)["model"], "gpt-4o");
    proxy.upstream.push(Reply::json(200, r#"{"object":"list","data":[{"embedding":[1.0]}],"model":"e"}"#));
    let body = json!({"model": "smart", "input": "x"});
    let embedded = proxy.post("auto", "/v1/embeddings", body.to_string()).send().await;
    assert_eq!(served(&embedded), ("openai", "gpt-4o"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_saved_on_one_node_is_used_by_the_others_within_a_second() {
    let cluster = Cluster::start(2, &[]).await;
    let ask = |node: usize| {
        let call = TestRequest::new(cluster.addresses()[node], Method::POST, "/v1/chat/completions");
        let call = call.key(&cluster.key).header("x-gateway-provider", "auto");
        call.json(json!({"model": "smart", "messages": []}))
    };
    for node in 0..2 {
        ask(node).send().await.expect_error(400, "bad_request");
    }
    let definition =
        |model: &str| json!({"name": "smart", "targets": [{"provider": "openai", "model": model}]});
    cluster
        .manage(0, Method::POST, &cluster.in_org("/models"))
        .json(definition("one"))
        .send()
        .await
        .expect(201);
    ask(0).send().await.expect(200);
    let second = Duration::from_secs(1);
    wait_for_response(second, || ask(1), |answer| served(answer).1 == "one").await;
    let path = cluster.in_org("/models/smart");
    cluster.manage(1, Method::PUT, &path).json(definition("two")).send().await.expect(200);
    assert_eq!(served(&ask(1).send().await).1, "two");
    wait_for_response(second, || ask(0), |answer| served(answer).1 == "two").await;
}
