//! Fallback chains and retries: responses to the client when providers fail.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::ProxyFixture;
use crate::support::fallback_chain::{
    ERROR, FallbackChain, HELLO, ROLE, WORLD, attempted_providers, good, good_stream,
};
use crate::upstream::{RefusingAddress, Reply};

#[tokio::test]
async fn failures_of_the_target_fall_back_to_the_next_target() {
    let chain = FallbackChain::start().await;
    chain.second.set_default_reply(good());
    let limited = Reply::json(429, "{}").header("retry-after", "60");
    let failures: [(Reply, Value); 8] = [
        (Reply::json(500, "{}"), json!(500)),
        (Reply::json(529, "{}"), json!(529)),
        (limited, json!(429)),
        (Reply::json(408, "{}"), json!(408)),
        (Reply::json(409, "{}"), json!(409)),
        (Reply::json(404, "{}"), json!(404)),
        (Reply::garbage("not http at all\r\n\r\n"), Value::Null),
        (
            Reply::new(200)
                .header("content-type", "application/json")
                .body("{\"id\":")
                .with_content_length(90)
                .then_reset(),
            Value::Null,
        ),
    ];
    for (count, (failure, status)) in failures.into_iter().enumerate() {
        // Each has its own model, so that no circuit breaker interferes.
        let body = json!({"model": format!("m{count}"), "messages": []});
        chain.proxy.upstream.push(failure);
        let answer = chain.proxy.chat(&body).header("x-gateway-fallback", "second, third/other").send().await;
        assert_eq!(answer.expect(200)["id"], "x", "{status}");
        assert_eq!(answer.header("x-gateway-provider"), Some("second"));
        assert_eq!(answer.header("x-gateway-model"), Some(format!("m{count}").as_str()));
        assert_eq!(answer.header("x-gateway-attempts"), Some("2"));
        let row = chain.proxy.log_row(&answer).await;
        assert_eq!(attempted_providers(&row), [("openai".into(), status), ("second".into(), json!(200))]);
        assert!(row["attempts"][0]["error"].is_string() && row["attempts"][1]["error"].is_null());
        assert_eq!((&row["provider"], &row["status"]), (&json!("second"), &json!(200)));
    }
}

#[tokio::test]
async fn failures_caused_by_the_caller_stop_the_fallback() {
    let chain = FallbackChain::start().await;
    for status in [400, 413, 422] {
        chain.proxy.upstream.push(Reply::json(status, r#"{"error":{"message":"bad"}}"#));
        let answer = chain.chat().header("x-gateway-retry", "3").send().await;
        assert_eq!(answer.expect(status)["error"]["message"], "bad");
        assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    }
    // A rejection of the caller's own credential is returned to the caller.
    chain.proxy.upstream.push(Reply::json(401, "{}"));
    let own = chain.chat().header("authorization", "Bearer sk-mine").send().await;
    own.expect(401);
    assert_eq!((chain.second.connections(), chain.third.connections()), (0, 0));
}

#[tokio::test]
async fn the_model_of_a_step_is_put_into_the_body_and_nothing_else_changes() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    chain.second.push(Reply::json(503, "{}"));
    chain.third.push(good());
    let body = br#"{ "messages":[{"content":"\u0041"}],"model" : "m","n": 1.0 }"#;
    let answer = chain
        .proxy
        .post("openai", "/v1/chat/completions", &body[..])
        .header("x-gateway-fallback", "second, third/other")
        .send()
        .await;
    answer.expect(200);
    assert_eq!(
        (answer.header("x-gateway-provider"), answer.header("x-gateway-model")),
        (Some("third"), Some("other"))
    );
    assert_eq!(chain.second.requests()[0].body, body);
    let other = br#"{ "messages":[{"content":"\u0041"}],"model" : "other","n": 1.0 }"#;
    assert_eq!(chain.third.requests()[0].body, other);
    let row = chain.proxy.log_row(&answer).await;
    assert_eq!((&row["model"], row["attempts"].as_array().unwrap().len()), (&json!("other"), 3));
}

#[tokio::test]
async fn a_callers_credential_is_sent_only_to_the_provider_that_it_named() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    chain.second.push(good());
    chain.chat().header("authorization", "Bearer sk-mine").send().await.expect(200);
    assert_eq!(chain.proxy.upstream.requests()[0].header("authorization"), Some("Bearer sk-mine"));
    assert_eq!(chain.second.requests()[0].header("authorization"), Some("Bearer sk-second"));
    // Another model of the same provider may use the same credential.
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    chain.proxy.upstream.push(good());
    let same = chain.proxy.chat(&json!({"model": "m"})).header("x-gateway-fallback", "openai/n");
    same.header("authorization", "Bearer sk-mine").send().await.expect(200);
    assert_eq!(chain.proxy.upstream.requests()[2].header("authorization"), Some("Bearer sk-mine"));
}

#[tokio::test]
async fn every_target_of_a_chain_must_be_within_the_keys_scopes() {
    let chain = FallbackChain::start().await;
    let key = chain.proxy.key(&["provider:openai", "provider:second", "model:m"]).await;
    let call = |steps: &str| {
        let call = chain.proxy.app.call(http::Method::POST, "/v1/chat/completions").key(&key);
        call.header("x-gateway-provider", "openai")
            .header("x-gateway-fallback", steps)
            .json(json!({"model": "m"}))
    };
    for steps in ["third", "second/other", "second, third/m"] {
        call(steps).send().await.expect_error(403, "scope_denied");
    }
    assert_eq!(chain.proxy.upstream.connections(), 0);
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    chain.second.push(good());
    call("second").send().await.expect(200);
}

#[tokio::test]
async fn chains_retries_and_routes_that_make_no_sense_are_refused_by_name() {
    let chain = FallbackChain::start().await;
    for (name, value) in [
        ("x-gateway-fallback", ""),
        ("x-gateway-fallback", "second,,third"),
        ("x-gateway-fallback", "nobody"),
        ("x-gateway-fallback", "azure-openai"),
        ("x-gateway-fallback", "second;w=0"),
        ("x-gateway-retry", "6"),
        ("x-gateway-retry", "-1"),
        ("x-gateway-retry", "two"),
        ("x-gateway-route", "random"),
    ] {
        let answer = chain.proxy.chat(&json!({"model": "m"})).header(name, value).send().await;
        let message = answer.expect_error(400, "bad_request")["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(name), "{name}: {value} gave: {message}");
    }
    assert_eq!(chain.proxy.upstream.connections(), 0);
}

#[tokio::test]
async fn a_retry_waits_for_the_retry_after_of_the_provider() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(429, "{}").header("retry-after-ms", "400").header("retry-after", "20"));
    proxy.upstream.push(good());
    let began = Instant::now();
    let answer = proxy.chat(&json!({"model": "m"})).header("x-gateway-retry", "1").send().await;
    answer.expect(200);
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!(answer.header("x-gateway-attempts"), Some("2"));
    let row = proxy.log_row(&answer).await;
    assert_eq!(attempted_providers(&row), [("openai".into(), json!(429)), ("openai".into(), json!(200))]);
}

#[tokio::test]
async fn a_retry_after_beyond_any_deadline_ends_the_retries() {
    let proxy = ProxyFixture::start().await;
    for wait in ["9999999999999999999", "18446744073709551615"] {
        proxy.upstream.push(Reply::json(429, r#"{"error":"slow down"}"#).header("retry-after", wait));
        proxy.upstream.push(good());
        let answer = proxy.chat(&json!({"model": "m"})).header("x-gateway-retry", "1").send().await;
        assert_eq!(answer.expect(429)["error"], "slow down", "{wait}");
        assert_eq!(
            (answer.header("x-gateway-attempts"), answer.header("retry-after")),
            (Some("1"), Some(wait))
        );
        assert_eq!(proxy.log_row(&answer).await["status"], 429, "{wait}");
        proxy.chat(&json!({"model": "m"})).send().await.expect(200);
    }
}

#[tokio::test]
async fn retries_end_with_the_last_answer_as_it_is() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(429, r#"{"error":{"message":"slow down"}}"#));
    let answer = proxy.chat(&json!({"model": "m"})).header("x-gateway-retry", "2").send().await;
    assert_eq!(answer.expect(429)["error"]["message"], "slow down");
    assert_eq!((answer.header("x-gateway-attempts"), proxy.upstream.requests().len()), (Some("3"), 3));
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(500, r#"{"error":"broken"}"#));
    let answer = proxy.chat(&json!({"model": "m"})).header("x-gateway-retry", "1").send().await;
    let body = answer.expect_error(502, "provider_error");
    assert_eq!(body["attempts"].as_array().unwrap().len(), 2);
    assert_eq!((&body["upstream_status"], &body["attempts"][0]["status"]), (&json!(500), &json!(500)));
    assert_eq!(proxy.log_row(&answer).await["attempts"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_refused_connection_and_slow_heads_and_bodies_fall_over() {
    let chain = FallbackChain::start().await;
    let refusing = RefusingAddress::start();
    chain.proxy.provider("nowhere", "openai", json!({"base_url": refusing.url()})).await;
    chain.second.set_default_reply(good());
    let slow_body = Reply::new(200)
        .header("content-type", "application/json")
        .body("{\"id\":")
        .flush()
        .delay(Duration::from_secs(9))
        .body("1}");
    for (provider, reply) in [
        ("nowhere", None),
        ("openai", Some(good().delay_head(Duration::from_secs(9)))),
        ("openai", Some(slow_body)),
    ] {
        if let Some(reply) = reply {
            chain.proxy.upstream.push(reply);
        }
        let call = chain.proxy.post(provider, "/v1/chat/completions", r#"{"model":"m"}"#);
        let answer =
            call.header("x-gateway-fallback", "second").header("x-gateway-timeout", "300").send().await;
        assert_eq!(answer.expect(200)["id"], "x");
        assert_eq!(answer.header("x-gateway-provider"), Some("second"));
    }
}

#[tokio::test]
async fn an_error_as_the_first_event_of_a_stream_falls_over() {
    let chain = FallbackChain::start().await;
    chain.second.set_default_reply(good_stream());
    for first in [&[ERROR][..], &[ROLE, ERROR]] {
        chain.proxy.upstream.push(Reply::sse(first));
        let answer = chain.stream().send().await;
        assert_eq!(answer.status, 200);
        let text = answer.text();
        assert!(text.contains("hello") && !text.contains("overloaded"), "{text}");
        assert_eq!(answer.header("x-gateway-provider"), Some("second"));
        let row = chain.proxy.log_row(&answer).await;
        let error = row["attempts"][0]["error"].as_str().unwrap();
        assert!(error.contains("overloaded inside"), "{error}");
        assert_eq!(row["error_code"], Value::Null);
    }
    // Anthropic's streams begin with an event without content.
    let start = r#"{"type":"message_start","message":{"id":"a","model":"c","usage":{"input_tokens":3,"output_tokens":0}}}"#;
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    chain.proxy.upstream.push(Reply::sse(&[start, error]));
    chain.proxy.provider("claude", "anthropic", json!({"base_url": chain.third.url()})).await;
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#;
    chain.third.push(Reply::sse(&[start, delta, r#"{"type":"message_stop"}"#]));
    let call = chain.proxy.post("anthropic", "/v1/messages", r#"{"model":"c","stream":true}"#);
    let answer = call.header("x-gateway-fallback", "claude").send().await;
    assert!(answer.text().contains("hello") && !answer.text().contains("Overloaded"), "{}", answer.text());
}

#[tokio::test]
async fn a_stream_that_ends_before_its_first_content_fails_over() {
    for events in [&[ROLE][..], &[]] {
        let chain = FallbackChain::start().await;
        chain.proxy.upstream.set_default_reply(Reply::sse(events));
        chain.second.set_default_reply(good_stream());
        let answer = chain.stream().send().await;
        assert_eq!(answer.header("x-gateway-provider"), Some("second"), "{events:?}");
        assert_eq!((answer.text().matches("hello").count(), answer.text().contains("[DONE]")), (1, true));
    }
}

#[tokio::test]
async fn a_stream_that_breaks_after_its_first_content_ends_with_an_error_and_is_never_spliced() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.push(
        Reply::new(200)
            .header("content-type", "text/event-stream")
            .chunked()
            .event(HELLO)
            .event(WORLD)
            .flush()
            .then_reset(),
    );
    chain.second.set_default_reply(good_stream());
    let answer = chain.stream().send().await;
    let text = answer.text();
    assert!(text.contains("hello") && text.contains("world") && text.contains("provider_error"), "{text}");
    assert_eq!((text.matches("hello").count(), chain.second.connections()), (1, 0));
    let row = chain.proxy.log_row(&answer).await;
    assert_eq!(row["error_code"], "provider_error");
}

#[tokio::test]
async fn the_whole_fallback_chain_ends_within_the_request_timeout() {
    let chain = FallbackChain::start_with(&[("GATEWAY_PROXY_TIMEOUT_MS", "700")]).await;
    chain.proxy.upstream.set_default_reply(Reply::no_response());
    chain.second.set_default_reply(Reply::no_response());
    chain.third.set_default_reply(Reply::no_response());
    let began = Instant::now();
    let answer = chain.chat().header("x-gateway-timeout", "400").header("x-gateway-retry", "5").send().await;
    let body = answer.expect_error(504, "provider_timeout");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(!body["attempts"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn the_timeline_of_a_session_shows_the_fallback() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    chain.second.push(good());
    let answer = chain.chat().header("x-gateway-session", "told").send().await;
    chain.proxy.log_row(&answer).await;
    let path = "/api/v1/sessions/told/timeline";
    let timeline = chain.proxy.app.get(path).key(&chain.proxy.ada.api_key).send().await.expect(200);
    let types: Vec<&str> =
        timeline["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["request", "fallback", "response"]);
}

#[tokio::test]
async fn a_client_disconnect_between_retries_stops_the_request_and_logs_its_row() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(503, "{}").header("retry-after", "4"));
    let mut raw = proxy.connect().await;
    let bytes =
        proxy.raw_post("openai", "/v1/chat/completions", &[("x-gateway-retry", "5")], br#"{"model":"m"}"#);
    raw.send(&bytes).await;
    proxy.upstream.wait_for_requests(1, Duration::from_secs(5)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(raw);
    let row = proxy.only_row().await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
    assert_eq!(proxy.upstream.requests().len(), 1);
}
