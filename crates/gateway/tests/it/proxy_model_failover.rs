//! What follows a failed attempt at a target of a named model, and which targets conditions choose.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fallback_chain::{ERROR, FallbackChain, GOOD, HELLO, ROLE, attempted_providers, good};
use crate::support::named_models::{chain_of, served};
use crate::upstream::Reply;

type Failure = fn() -> Reply;

const CONTEXT: &str = r#"{"error":{"message":"This model's maximum context length is 10 tokens.","code":"context_length_exceeded"}}"#;
const FILTERED: &str = r#"{"error":{"message":"blocked","code":"content_filter"}}"#;

#[tokio::test]
async fn conditions_choose_one_target_and_nothing_else() {
    let chain = FallbackChain::start().await;
    for upstream in [&chain.proxy.upstream, &chain.second, &chain.third] {
        upstream.set_default_reply(good());
    }
    let definition = json!({
        "strategy": {
            "mode": "conditional",
            "conditions": [
                {"query": {"metadata.plan": {"$eq": "paid"}}, "then": "paid"},
                {"query": {"params.temperature": {"$gt": 1}}, "then": "wild"},
                {"query": {"headers.x-team": {"$regex": "^red"}, "user": {"$in": ["ada", "bob"]}}, "then": "wild"},
                {"query": {"input_tokens": {"$gt": 1000}}, "then": "paid"},
            ],
            "default": "plain",
        },
        "targets": [
            {"id": "plain", "provider": "openai", "model": "p"},
            {"id": "paid", "provider": "second", "model": "q"},
            {"id": "wild", "targets": [{"provider": "third", "model": "r"}, {"provider": "openai", "model": "s"}]},
        ],
    });
    chain.proxy.save("picky", definition).await;
    let ask = |fields: Value, headers: &[(&str, &str)]| {
        let call = chain.proxy.by_name_with("picky", fields);
        headers.iter().fold(call, |call, (name, value)| call.header(name, value)).send()
    };
    let long = "x".repeat(5_000);
    for (fields, headers, expected) in [
        (json!({}), &[][..], ("openai", "p")),
        (json!({}), &[("x-gateway-metadata", r#"{"plan":"paid"}"#)], ("second", "q")),
        (json!({"temperature": 1.5}), &[], ("third", "r")),
        (json!({"temperature": 1}), &[], ("openai", "p")),
        (json!({"user": "ada"}), &[("x-team", "red-1")], ("third", "r")),
        (json!({"user": "eve"}), &[("x-team", "red-1")], ("openai", "p")),
        (json!({"messages": [{"role": "user", "content": long}]}), &[], ("second", "q")),
    ] {
        let answer = ask(fields.clone(), headers).await;
        answer.expect(200);
        assert_eq!(served(&answer), expected, "{headers:?}");
    }
    // The choice stands alone, but a group that is chosen has its own order.
    chain.second.push(Reply::json(500, "{}"));
    ask(json!({}), &[("x-gateway-metadata", r#"{"plan":"paid"}"#)]).await.expect_error(502, "provider_error");
    chain.third.push(Reply::json(500, "{}"));
    assert_eq!(served(&ask(json!({"temperature": 2}), &[]).await), ("openai", "s"));
}

#[tokio::test]
async fn each_cause_falls_back_where_it_is_listed_and_stops_elsewhere() {
    let chain = FallbackChain::start().await;
    chain.second.set_default_reply(good());
    let streamed_error = || Reply::sse(&[ROLE, ERROR]);
    let cases: [(Value, Failure, u16); 8] = [
        (json!(429), || Reply::json(429, "{}"), 429),
        (json!("5xx"), || Reply::json(503, "{}"), 502),
        (json!(503), || Reply::json(503, "{}"), 502),
        (json!(404), || Reply::json(404, "{}"), 404),
        (json!("connect"), Reply::reset, 502),
        (json!("timeout"), Reply::no_response, 504),
        (json!("context"), || Reply::json(400, CONTEXT), 400),
        (json!("content_filter"), || Reply::json(400, FILTERED), 400),
    ];
    for (index, (cause, failure, status)) in cases.into_iter().enumerate() {
        // Each has its own models, so that no circuit breaker interferes.
        let mut definition = chain_of(Some(json!([cause])));
        definition["targets"][0]["model"] = json!(format!("one-{index}"));
        definition["timeout_ms"] = json!(300);
        chain.proxy.save("m", definition.clone()).await;
        chain.proxy.upstream.push(failure());
        let answer = chain.proxy.by_name("m").send().await;
        assert_eq!(answer.status, 200, "{cause}: {}", answer.text());
        assert_eq!(served(&answer), ("second", "two"), "{cause}");
        let row = chain.proxy.log_row(&answer).await;
        assert_eq!(attempted_providers(&row).len(), 2, "{cause}");
        // Another cause is not listed.
        definition["strategy"]["on"] = json!([410]);
        definition["targets"][0]["model"] = json!(format!("alone-{index}"));
        chain.proxy.save("m", definition).await;
        chain.proxy.upstream.push(failure());
        let answer = chain.proxy.by_name("m").send().await;
        assert_eq!(answer.status.as_u16(), status, "{cause}");
        assert_eq!(answer.header("x-gateway-attempts"), Some("1"), "{cause}");
    }
    // Without a list the usual causes hold, and a refused input is not one of them.
    chain.proxy.save("m", chain_of(None)).await;
    chain.proxy.upstream.push(Reply::json(400, CONTEXT));
    assert_eq!(chain.proxy.by_name("m").send().await.expect(400)["error"]["code"], "context_length_exceeded");
    chain.proxy.upstream.push(streamed_error());
    let answer = chain.proxy.by_name_with("m", json!({"stream": false})).send().await;
    assert_eq!(served(&answer), ("second", "two"));
}

#[tokio::test]
async fn a_target_whose_translation_takes_too_long_is_passed_over() {
    let chain = FallbackChain::start().await;
    chain.second.set_default_reply(good());
    let claude = json!({"base_url": chain.third.url(), "api_key": "sk-claude"});
    chain.proxy.provider("claude", "anthropic", claude).await;
    let claude = json!({"provider": "claude", "model": "c", "timeout_ms": 1});
    let many = vec![json!({"role": "user", "content": "x"}); 50_000];
    let ask = || chain.proxy.by_name_with("m", json!({"messages": many})).send();
    let second = json!({"provider": "second", "model": "two"});
    chain.proxy.save("m", json!({"targets": [claude, second]})).await;
    let answer = ask().await;
    answer.expect(200);
    assert_eq!(served(&answer), ("second", "two"));
    chain.proxy.save("m", json!({"targets": [claude]})).await;
    ask().await.expect_error(503, "overloaded");
    assert!(chain.third.requests().is_empty());
}

#[tokio::test]
async fn targets_with_when_serve_their_refusal_first_and_nothing_else() {
    let chain = FallbackChain::start().await;
    chain.second.set_default_reply(good());
    chain.third.set_default_reply(good());
    let definition = json!({"targets": [
        {"provider": "openai", "model": "small"},
        {"provider": "second", "model": "other"},
        {"provider": "third", "model": "long", "when": "context"},
    ]});
    chain.proxy.save("m", definition.clone()).await;
    chain.proxy.upstream.push(Reply::json(400, CONTEXT));
    let answer = chain.proxy.by_name("m").send().await;
    answer.expect(200);
    assert_eq!(served(&answer), ("third", "long"));
    let row = chain.proxy.log_row(&answer).await;
    assert_eq!(attempted_providers(&row)[0], ("openai".to_owned(), json!(400)));
    // Another failure goes to the ordinary target, and another refusal to none.
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    assert_eq!(served(&chain.proxy.by_name("m").send().await), ("second", "other"));
    chain.proxy.upstream.push(Reply::json(400, FILTERED));
    chain.proxy.by_name("m").send().await.expect(400);
    // A refusal within a 200.
    for refused in [
        Reply::json(
            200,
            r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"content_filter"}]}"#,
        ),
        Reply::sse(&[
            r#"{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}"#,
            "[DONE]",
        ]),
    ] {
        let mut filtered = definition.clone();
        filtered["targets"][2]["when"] = json!("content_filter");
        chain.proxy.save("m", filtered).await;
        chain.proxy.upstream.push(refused);
        let answer = chain.proxy.by_name("m").send().await;
        assert_eq!(served(&answer), ("third", "long"), "{}", answer.text());
    }
    // Content before the refusal has been sent on already.
    let late = r#"{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}"#;
    chain.proxy.upstream.push(Reply::sse(&[ROLE, HELLO, late, "[DONE]"]));
    let answer = chain.proxy.by_name_with("m", json!({"stream": true})).send().await;
    assert_eq!(served(&answer), ("openai", "small"));
    // Nothing else to try: the caller gets the refusal as it is.
    chain.third.push(Reply::json(400, FILTERED));
    chain.proxy.upstream.push(Reply::json(400, FILTERED));
    assert_eq!(chain.proxy.by_name("m").send().await.expect(400)["error"]["code"], "content_filter");
}

#[tokio::test]
async fn retries_and_timeouts_are_the_models_unless_the_call_says_otherwise() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(good());
    let one = |fields: Value| {
        let mut definition = json!({"targets": [{"provider": "openai", "model": "x"}]});
        definition.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        definition
    };
    chain.proxy.save("m", one(json!({"retries": 1}))).await;
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    assert_eq!(chain.proxy.by_name("m").send().await.header("x-gateway-attempts"), Some("2"));
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    chain.proxy.by_name("m").header("x-gateway-retry", "0").send().await.expect_error(502, "provider_error");
    chain.proxy.save("m", one(json!({"timeout_ms": 150}))).await;
    for timeout in ["150", "60000"] {
        chain.proxy.upstream.push(Reply::no_response());
        let call = chain.proxy.by_name("m").header("x-gateway-timeout", timeout);
        call.send().await.expect_error(504, "provider_timeout");
    }
    chain.proxy.save("m", one(json!({"first_byte_timeout_ms": 150}))).await;
    chain.proxy.upstream.push(Reply::no_response());
    chain.proxy.by_name("m").send().await.expect_error(504, "provider_timeout");
    // What has started may go on for longer.
    let slow = Reply::new(200).header("content-type", "application/json").chunked();
    chain.proxy.upstream.push(slow.piece(&GOOD[..20]).delay(Duration::from_millis(300)).piece(&GOOD[20..]));
    chain.proxy.by_name("m").send().await.expect(200);
}
