//! Target selection: the provider found by model, and chains ordered by price, latency and weight.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fallback_chain::{FallbackChain, good};

#[tokio::test]
async fn auto_finds_the_provider_by_prefix_by_list_and_by_price() {
    let chain = FallbackChain::start().await;
    chain
        .proxy
        .provider("listed", "openai", json!({"base_url": chain.third.url(), "models": ["house-1"]}))
        .await;
    chain.proxy.upstream.set_default_reply(good());
    chain.second.set_default_reply(good());
    chain.third.set_default_reply(good());
    for (asked, provider, model) in [
        ("second/gpt-x", "second", "gpt-x"),
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("house-1", "listed", "house-1"),
        ("gpt-4o-mini", "openai", "gpt-4o-mini"),
    ] {
        let body = json!({"model": asked, "messages": []}).to_string();
        let answer = chain.proxy.post("auto", "/v1/chat/completions", body).send().await;
        answer.expect(200);
        let served = (answer.header("x-gateway-provider"), answer.header("x-gateway-model"));
        assert_eq!(served, (Some(provider), Some(model)), "{asked}");
    }
    let sent: Value = serde_json::from_slice(&chain.second.requests()[0].body).unwrap();
    assert_eq!(sent["model"], "gpt-x");
    // Fields of another type do not hide the model.
    let body = r#"{"model":"gpt-4o","messages":[],"max_tokens":"10","stream":"false","stream_options":[1]}"#;
    let answer = chain.proxy.post("auto", "/v1/chat/completions", body).send().await;
    assert_eq!((answer.status.as_u16(), answer.header("x-gateway-model")), (200, Some("gpt-4o")));
}

#[tokio::test]
async fn auto_names_the_candidates_when_the_model_is_ambiguous() {
    let chain = FallbackChain::start().await;
    for name in ["one", "two"] {
        chain.proxy.provider(name, "openai", json!({"models": ["shared-1"]})).await;
    }
    let ask = |model: Value| {
        let body = json!({"model": model, "messages": []}).to_string();
        chain.proxy.post("auto", "/v1/chat/completions", body)
    };
    let several = ask(json!("shared-1")).send().await.expect_error(400, "bad_request");
    let message = several["message"].as_str().unwrap();
    assert!(message.contains("one") && message.contains("two"), "{message}");
    let unknown = ask(json!("no-such-model-1")).send().await.expect_error(400, "bad_request");
    assert!(unknown["message"].as_str().unwrap().contains("no-such-model-1"));
    let none = chain.proxy.post("auto", "/v1/chat/completions", "{}").send().await;
    none.expect_error(400, "bad_request");
    assert_eq!(chain.proxy.upstream.connections(), 0);
}

#[tokio::test]
async fn a_credential_for_an_unnamed_provider_is_not_passed_on_by_auto() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(good());
    let ask = |model: &str| {
        let body = json!({"model": model, "messages": []}).to_string();
        chain.proxy.post("auto", "/v1/chat/completions", body).header("authorization", "Bearer sk-mine")
    };
    ask("gpt-4o-mini").send().await.expect(200);
    ask("openai/gpt-4o").send().await.expect(200);
    let sent = chain.proxy.upstream.requests();
    assert_eq!(sent[0].header("authorization"), None);
    assert_eq!(sent[1].header("authorization"), Some("Bearer sk-mine"));
}

#[tokio::test]
async fn cheapest_and_weighted_and_fastest_choose_the_first_target() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(good().delay_head(Duration::from_millis(60)));
    chain.second.set_default_reply(good());
    let ask = |model: &str, steps: &str, route: &str| {
        let body = json!({"model": model, "messages": []});
        chain.proxy.chat(&body).header("x-gateway-fallback", steps).header("x-gateway-route", route)
    };
    let cheap = ask("gpt-4o", "openai/gpt-4o-mini, second/unpriced", "cheapest").send().await;
    assert_eq!(cheap.header("x-gateway-model"), Some("gpt-4o-mini"));

    // Both are measured once. After that the faster one is first, and a session stays on its target.
    for _ in 0..2 {
        ask("m", "second", "fastest").send().await.expect(200);
    }
    for _ in 0..3 {
        assert_eq!(ask("m", "second", "fastest").send().await.header("x-gateway-provider"), Some("second"));
    }
    let mut heavy = 0;
    for _ in 0..30 {
        let answer = ask("w", "openai/w;w=1, second/w;w=9", "weighted").send().await;
        heavy += usize::from(answer.header("x-gateway-provider") == Some("second"));
    }
    assert!((18..=30).contains(&heavy), "{heavy} of 30 went to the target of weight 9");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..8 {
        let answer = ask("w", "second/w;w=1", "weighted").header("x-gateway-session", "s1").send().await;
        seen.insert(answer.header("x-gateway-provider").unwrap().to_owned());
    }
    assert_eq!(seen.len(), 1, "a session stays with its target");
}

#[tokio::test]
async fn a_session_stays_with_the_target_that_was_the_fastest() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(good().delay_head(Duration::from_millis(80)));
    chain.second.set_default_reply(good());
    let ask = || {
        let call = chain.proxy.chat(&json!({"model": "m"})).header("x-gateway-fallback", "second");
        call.header("x-gateway-route", "fastest").header("x-gateway-session", "s")
    };
    let first = ask().send().await.header("x-gateway-provider").unwrap().to_owned();
    for _ in 0..4 {
        assert_eq!(ask().send().await.header("x-gateway-provider"), Some(first.as_str()));
    }
}
