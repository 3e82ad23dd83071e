//! Fallback chains, retries, breakers, several credentials, the choice of a provider by model, and the order of a
//! chain: what callers get when providers fail.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Backend, Proxied};
use crate::upstream::{Refusing, Reply, Signal, Upstream};

const GOOD: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;
const CLAUDE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
const ROLE: &str =
    r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
const HELLO: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"hello"}}]}"#;
const WORLD: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":" world"}}]}"#;
const STOP: &str = r#"{"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const ERROR: &str = r#"{"error":{"message":"overloaded inside","type":"server_error"}}"#;

/// The first target is `openai`, the others are providers of the organization's own.
struct Chain {
    it: Proxied,
    second: Upstream,
    third: Upstream,
}

impl Chain {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(settings: &[(&str, &str)]) -> Self {
        let it = Proxied::start_with(Backend::Sqlite, settings).await;
        let (second, third) = (Upstream::start().await, Upstream::start().await);
        it.provider("second", "openai", json!({"base_url": second.url(), "api_key": "sk-second"})).await;
        it.provider("third", "groq", json!({"base_url": third.url(), "api_key": "sk-third"})).await;
        Self { it, second, third }
    }

    fn chat(&self) -> crate::support::Call {
        self.it
            .chat(&json!({"model": "m", "messages": []}))
            .header("x-gateway-fallback", "second, third/other")
    }

    fn stream(&self) -> crate::support::Call {
        let body = json!({"model": "m", "messages": [], "stream": true});
        self.it.chat(&body).header("x-gateway-fallback", "second")
    }
}

fn good() -> Reply {
    Reply::json(200, GOOD)
}

fn good_stream() -> Reply {
    Reply::sse(&[ROLE, HELLO, STOP, "[DONE]"])
}

fn tried(row: &Value) -> Vec<(String, Value)> {
    let attempts = row["attempts"].as_array().unwrap();
    attempts.iter().map(|a| (a["provider"].as_str().unwrap().to_owned(), a["status"].clone())).collect()
}

#[tokio::test]
async fn what_is_the_targets_fault_goes_to_the_next_target() {
    let chain = Chain::start().await;
    chain.second.always(good());
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
                .claiming_length(90)
                .then_reset(),
            Value::Null,
        ),
    ];
    for (count, (failure, status)) in failures.into_iter().enumerate() {
        // Each has a model of its own, so that no breaker is in the way.
        let body = json!({"model": format!("m{count}"), "messages": []});
        chain.it.upstream.push(failure);
        let answer = chain.it.chat(&body).header("x-gateway-fallback", "second, third/other").send().await;
        assert_eq!(answer.expect(200)["id"], "x", "{status}");
        assert_eq!(answer.header("x-gateway-provider"), Some("second"));
        assert_eq!(answer.header("x-gateway-model"), Some(format!("m{count}").as_str()));
        assert_eq!(answer.header("x-gateway-attempts"), Some("2"));
        let row = chain.it.row_of(&answer).await;
        assert_eq!(tried(&row), [("openai".into(), status), ("second".into(), json!(200))]);
        assert!(row["attempts"][0]["error"].is_string() && row["attempts"][1]["error"].is_null());
        assert_eq!((&row["provider"], &row["status"]), (&json!("second"), &json!(200)));
    }
}

#[tokio::test]
async fn what_is_the_callers_fault_stops_the_walk() {
    let chain = Chain::start().await;
    for status in [400, 413, 422] {
        chain.it.upstream.push(Reply::json(status, r#"{"error":{"message":"bad"}}"#));
        let answer = chain.chat().header("x-gateway-retry", "3").send().await;
        assert_eq!(answer.expect(status)["error"]["message"], "bad");
        assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    }
    // A key of the caller's own that is rejected is the caller's affair.
    chain.it.upstream.push(Reply::json(401, "{}"));
    let own = chain.chat().header("authorization", "Bearer sk-mine").send().await;
    own.expect(401);
    assert_eq!((chain.second.connections(), chain.third.connections()), (0, 0));
}

#[tokio::test]
async fn the_model_of_a_step_is_put_into_the_body_and_nothing_else_changes() {
    let chain = Chain::start().await;
    chain.it.upstream.push(Reply::json(500, "{}"));
    chain.second.push(Reply::json(503, "{}"));
    chain.third.push(good());
    let body = br#"{ "messages":[{"content":"\u0041"}],"model" : "m","n": 1.0 }"#;
    let answer = chain
        .it
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
    let row = chain.it.row_of(&answer).await;
    assert_eq!((&row["model"], row["attempts"].as_array().unwrap().len()), (&json!("other"), 3));
}

#[tokio::test]
async fn a_callers_credential_goes_to_the_provider_that_it_named_and_to_no_other() {
    let chain = Chain::start().await;
    chain.it.upstream.push(Reply::json(500, "{}"));
    chain.second.push(good());
    chain.chat().header("authorization", "Bearer sk-mine").send().await.expect(200);
    assert_eq!(chain.it.upstream.requests()[0].header("authorization"), Some("Bearer sk-mine"));
    assert_eq!(chain.second.requests()[0].header("authorization"), Some("Bearer sk-second"));
    // Another model of the same provider is within what was named.
    chain.it.upstream.push(Reply::json(500, "{}"));
    chain.it.upstream.push(good());
    let same = chain.it.chat(&json!({"model": "m"})).header("x-gateway-fallback", "openai/n");
    same.header("authorization", "Bearer sk-mine").send().await.expect(200);
    assert_eq!(chain.it.upstream.requests()[2].header("authorization"), Some("Bearer sk-mine"));
}

#[tokio::test]
async fn every_target_of_a_chain_must_be_within_the_keys_scopes() {
    let chain = Chain::start().await;
    let key = chain.it.key(&["provider:openai", "provider:second", "model:m"]).await;
    let call = |steps: &str| {
        let call = chain.it.app.call(http::Method::POST, "/v1/chat/completions").key(&key);
        call.header("x-gateway-provider", "openai")
            .header("x-gateway-fallback", steps)
            .json(json!({"model": "m"}))
    };
    for steps in ["third", "second/other", "second, third/m"] {
        call(steps).send().await.expect_error(403, "scope_denied");
    }
    assert_eq!(chain.it.upstream.connections(), 0);
    chain.it.upstream.push(Reply::json(500, "{}"));
    chain.second.push(good());
    call("second").send().await.expect(200);
}

#[tokio::test]
async fn chains_retries_and_routes_that_make_no_sense_are_refused_by_name() {
    let chain = Chain::start().await;
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
        let answer = chain.it.chat(&json!({"model": "m"})).header(name, value).send().await;
        let message = answer.expect_error(400, "bad_request")["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(name), "{name}: {value} gave: {message}");
    }
    assert_eq!(chain.it.upstream.connections(), 0);
}

#[tokio::test]
async fn a_retry_waits_as_long_as_it_was_told() {
    let it = Proxied::start().await;
    it.upstream.push(Reply::json(429, "{}").header("retry-after-ms", "400").header("retry-after", "20"));
    it.upstream.push(good());
    let began = Instant::now();
    let answer = it.chat(&json!({"model": "m"})).header("x-gateway-retry", "1").send().await;
    answer.expect(200);
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!(answer.header("x-gateway-attempts"), Some("2"));
    let row = it.row_of(&answer).await;
    assert_eq!(tried(&row), [("openai".into(), json!(429)), ("openai".into(), json!(200))]);
}

#[tokio::test]
async fn retries_end_with_the_last_answer_as_it_is() {
    let it = Proxied::start().await;
    it.upstream.always(Reply::json(429, r#"{"error":{"message":"slow down"}}"#));
    let answer = it.chat(&json!({"model": "m"})).header("x-gateway-retry", "2").send().await;
    assert_eq!(answer.expect(429)["error"]["message"], "slow down");
    assert_eq!((answer.header("x-gateway-attempts"), it.upstream.requests().len()), (Some("3"), 3));
    let it = Proxied::start().await;
    it.upstream.always(Reply::json(500, r#"{"error":"broken"}"#));
    let answer = it.chat(&json!({"model": "m"})).header("x-gateway-retry", "1").send().await;
    let body = answer.expect_error(502, "provider_error");
    assert_eq!(body["attempts"].as_array().unwrap().len(), 2);
    assert_eq!((&body["upstream_status"], &body["attempts"][0]["status"]), (&json!(500), &json!(500)));
    assert_eq!(it.row_of(&answer).await["attempts"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_refused_connection_and_slow_heads_and_bodies_fall_over() {
    let chain = Chain::start().await;
    let refusing = Refusing::start();
    chain.it.provider("nowhere", "openai", json!({"base_url": refusing.url()})).await;
    chain.second.always(good());
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
            chain.it.upstream.push(reply);
        }
        let call = chain.it.post(provider, "/v1/chat/completions", r#"{"model":"m"}"#);
        let answer =
            call.header("x-gateway-fallback", "second").header("x-gateway-timeout", "300").send().await;
        assert_eq!(answer.expect(200)["id"], "x");
        assert_eq!(answer.header("x-gateway-provider"), Some("second"));
    }
}

#[tokio::test]
async fn an_error_as_the_first_event_of_a_stream_falls_over() {
    let chain = Chain::start().await;
    chain.second.always(good_stream());
    for first in [&[ERROR][..], &[ROLE, ERROR]] {
        chain.it.upstream.push(Reply::sse(first));
        let answer = chain.stream().send().await;
        assert_eq!(answer.status, 200);
        let text = answer.text();
        assert!(text.contains("hello") && !text.contains("overloaded"), "{text}");
        assert_eq!(answer.header("x-gateway-provider"), Some("second"));
        let row = chain.it.row_of(&answer).await;
        let error = row["attempts"][0]["error"].as_str().unwrap();
        assert!(error.contains("overloaded inside"), "{error}");
        assert_eq!(row["error_code"], Value::Null);
    }
    // Anthropic's streams begin with an event that says nothing yet.
    let start = r#"{"type":"message_start","message":{"id":"a","model":"c","usage":{"input_tokens":3,"output_tokens":0}}}"#;
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    chain.it.upstream.push(Reply::sse(&[start, error]));
    chain.it.provider("claude", "anthropic", json!({"base_url": chain.third.url()})).await;
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#;
    chain.third.push(Reply::sse(&[start, delta, r#"{"type":"message_stop"}"#]));
    let call = chain.it.post("anthropic", "/v1/messages", r#"{"model":"c","stream":true}"#);
    let answer = call.header("x-gateway-fallback", "claude").send().await;
    assert!(answer.text().contains("hello") && !answer.text().contains("Overloaded"), "{}", answer.text());
}

#[tokio::test]
async fn a_stream_that_ends_before_its_first_word_falls_over() {
    for events in [&[ROLE][..], &[]] {
        let chain = Chain::start().await;
        chain.it.upstream.always(Reply::sse(events));
        chain.second.always(good_stream());
        let answer = chain.stream().send().await;
        assert_eq!(answer.header("x-gateway-provider"), Some("second"), "{events:?}");
        assert_eq!((answer.text().matches("hello").count(), answer.text().contains("[DONE]")), (1, true));
    }
}

#[tokio::test]
async fn a_stream_that_broke_after_its_first_words_ends_with_an_error_and_is_never_spliced() {
    let chain = Chain::start().await;
    chain.it.upstream.push(
        Reply::new(200)
            .header("content-type", "text/event-stream")
            .chunked()
            .event(HELLO)
            .event(WORLD)
            .flush()
            .then_reset(),
    );
    chain.second.always(good_stream());
    let answer = chain.stream().send().await;
    let text = answer.text();
    assert!(text.contains("hello") && text.contains("world") && text.contains("provider_error"), "{text}");
    assert_eq!((text.matches("hello").count(), chain.second.connections()), (1, 0));
    let row = chain.it.row_of(&answer).await;
    assert_eq!(row["error_code"], "provider_error");
}

#[tokio::test]
async fn a_breaker_opens_is_passed_over_and_never_blocks_the_last_target() {
    let chain = Chain::start().await;
    chain.it.upstream.always(Reply::json(500, "{}"));
    chain.second.always(good());
    for _ in 0..5 {
        chain.chat().send().await.expect(200);
    }
    assert_eq!(chain.it.upstream.requests().len(), 5);
    let answer = chain.chat().send().await;
    answer.expect(200);
    assert_eq!(chain.it.upstream.requests().len(), 5, "an open breaker lets nothing through");
    assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    let row = chain.it.row_of(&answer).await;
    assert_eq!(tried(&row), [("openai".into(), Value::Null), ("second".into(), json!(200))]);
    assert!(row["attempts"][0]["error"].as_str().unwrap().contains("passed over"), "{row}");
    // Alone, or as the last of a chain, it is tried all the same.
    chain.it.chat(&json!({"model": "m"})).send().await.expect_error(502, "provider_error");
    chain.second.always(Reply::json(500, "{}"));
    let last = chain.it.post("second", "/v1/chat/completions", r#"{"model":"m"}"#);
    last.header("x-gateway-fallback", "openai").send().await.expect_error(502, "provider_error");
    assert_eq!(chain.it.upstream.requests().len(), 7);
}

#[tokio::test]
async fn after_its_rest_one_probe_closes_a_breaker_again() {
    let chain = Chain::start().await;
    chain.it.upstream.always(Reply::json(500, "{}"));
    chain.second.always(good());
    for _ in 0..6 {
        chain.chat().send().await.expect(200);
    }
    chain.it.app.app.clock.advance(11_000);
    chain.it.upstream.always(good());
    for _ in 0..3 {
        assert_eq!(chain.chat().send().await.header("x-gateway-provider"), Some("openai"));
    }
    assert_eq!(chain.it.upstream.requests().len(), 8);
}

#[tokio::test]
async fn a_probe_that_is_refused_for_the_callers_fault_closes_the_breaker_too() {
    let chain = Chain::start().await;
    chain.it.upstream.always(Reply::json(500, "{}"));
    chain.second.always(good());
    for _ in 0..6 {
        chain.chat().send().await.expect(200);
    }
    chain.it.app.app.clock.advance(11_000);
    chain.it.upstream.push(Reply::json(400, r#"{"error":"your fault"}"#));
    chain.it.upstream.always(good());
    chain.chat().send().await.expect(400);
    // The target is alive: nobody has to wait until a probe is given up.
    assert_eq!(chain.chat().send().await.header("x-gateway-provider"), Some("openai"));
}

#[tokio::test]
async fn a_request_that_cannot_be_put_into_a_targets_words_is_not_held_against_it() {
    let it = Proxied::start().await;
    it.upstream.always(Reply::json(500, "{}"));
    let claude = Upstream::start().await;
    claude.always(Reply::json(200, CLAUDE));
    it.provider("claude", "anthropic", json!({"base_url": claude.url(), "api_key": "sk-c"})).await;
    let chat = |more: Value| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        it.chat(&body).header("x-gateway-fallback", "claude/claude-x, sandbox")
    };
    for _ in 0..6 {
        let answer = chat(json!({"functions": [{"name": "f"}]})).send().await;
        answer.expect(200);
        assert_eq!(answer.header("x-gateway-provider"), Some("sandbox"));
    }
    assert_eq!(claude.connections(), 0);
    let answer = chat(json!({})).send().await;
    answer.expect(200);
    assert_eq!(answer.header("x-gateway-provider"), Some("claude"));
}

#[tokio::test]
async fn breakers_are_of_one_organization() {
    let chain = Chain::start().await;
    chain.it.upstream.always(Reply::json(500, "{}"));
    chain.second.always(good());
    for _ in 0..6 {
        chain.chat().send().await.expect(200);
    }
    let bob = chain.it.app.signup("other").await;
    let call = chain.it.app.call(http::Method::POST, "/v1/chat/completions").key(&bob.api_key);
    let call = call.header("x-gateway-provider", "openai").header("x-gateway-fallback", "sandbox");
    call.json(json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}))
        .send()
        .await
        .expect(200);
    assert_eq!(chain.it.upstream.requests().len(), 6);
}

fn with_keys(weights: [u32; 2]) -> Value {
    json!({"api_keys": [
        {"label": "a", "api_key": "sk-a", "weight": weights[0]},
        {"label": "b", "api_key": "sk-b", "weight": weights[1]},
    ]})
}

fn keys_used(upstream: &Upstream) -> Vec<String> {
    let requests = upstream.requests();
    requests
        .iter()
        .map(|request| request.header("authorization").unwrap().replace("Bearer sk-", ""))
        .collect()
}

async fn call_mine(it: &Proxied, session: Option<&str>) -> crate::support::Answer {
    let mut call = it.post("mine", "/v1/chat/completions", r#"{"model":"m"}"#);
    if let Some(session) = session {
        call = call.header("x-gateway-session", session);
    }
    call.send().await
}

#[tokio::test]
async fn several_credentials_share_the_calls_by_weight_and_a_session_stays_with_one() {
    let it = Proxied::start().await;
    it.provider("mine", "openai", with_keys([1, 3])).await;
    it.upstream.always(good());
    for _ in 0..60 {
        call_mine(&it, None).await.expect(200);
    }
    let b = keys_used(&it.upstream).iter().filter(|key| *key == "b").count();
    assert!((30..=57).contains(&b), "{b} of 60 calls used the credential of weight 3");
    for _ in 0..10 {
        call_mine(&it, Some("one")).await.expect(200);
    }
    let used = keys_used(&it.upstream)[60..].to_vec();
    assert!(used.iter().all(|key| *key == used[0]), "{used:?}");
}

#[tokio::test]
async fn a_rejected_credential_is_put_aside_and_a_limited_one_rests_as_long_as_it_was_told() {
    for (status, back_after) in [(401, 301_000), (403, 301_000), (402, 301_000), (429, 31_000)] {
        let it = Proxied::start().await;
        it.provider("mine", "openai", with_keys([1, 1])).await;
        it.upstream.push(Reply::json(status, "{}").header("retry-after", "30"));
        it.upstream.always(good());
        let answer = call_mine(&it, Some("s")).await;
        answer.expect(200);
        assert_eq!(answer.header("x-gateway-attempts"), Some("2"), "{status}");
        let used = keys_used(&it.upstream);
        assert_ne!(used[0], used[1]);
        // The session would choose the first again, but that one is at rest.
        call_mine(&it, Some("s")).await.expect(200);
        assert_eq!(keys_used(&it.upstream)[2], used[1], "{status}");
        it.app.app.clock.advance(back_after);
        call_mine(&it, Some("s")).await.expect(200);
        assert_eq!(keys_used(&it.upstream)[3], used[0], "{status}");
    }
}

#[tokio::test]
async fn when_every_credential_is_rejected_the_callers_sees_the_last_answer() {
    let it = Proxied::start().await;
    it.provider("mine", "openai", with_keys([1, 1])).await;
    it.upstream.always(Reply::json(401, r#"{"error":"no"}"#));
    let answer = call_mine(&it, None).await;
    assert_eq!(answer.expect(401)["error"], "no");
    assert_eq!(answer.header("x-gateway-attempts"), Some("2"));
    it.upstream.always(good());
    call_mine(&it, None).await.expect(200);
}

#[tokio::test]
async fn a_call_whose_other_credential_was_put_aside_meanwhile_is_not_made_without_one() {
    let it = Proxied::start().await;
    it.provider("mine", "openai", with_keys([1, 1])).await;
    it.upstream.always(good());
    let (mut of_a, mut of_b) = (None, None);
    for session in (0..64).map(|number| format!("s{number}")) {
        call_mine(&it, Some(&session)).await.expect(200);
        let used = keys_used(&it.upstream).pop().unwrap();
        *(if used == "a" { &mut of_a } else { &mut of_b }) = Some(session);
    }
    let (of_a, of_b) = (of_a.unwrap(), of_b.unwrap());
    let go = Signal::new();
    it.upstream.push(Reply::json(401, "{}").hold_head(&go));
    let call = it.post("mine", "/v1/chat/completions", r#"{"model":"m"}"#).header("x-gateway-session", &of_a);
    let waiting = tokio::spawn(call.send());
    it.upstream.wait_for_requests(65, Duration::from_secs(10)).await;
    it.upstream.push(Reply::json(401, "{}"));
    call_mine(&it, Some(&of_b)).await.expect(200);
    go.give();
    let answer = waiting.await.unwrap();
    answer.expect(401);
    assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    assert_eq!(keys_used(&it.upstream)[64..], ["a", "b", "a"]);
}

#[tokio::test]
async fn what_one_account_keeps_is_not_asked_of_another() {
    let chain = Chain::start().await;
    chain.it.upstream.always(Reply::json(500, "{}"));
    for body in [
        r#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#,
        "{\"model\": \"m\", \"input\": \"hi\", \"previous_response_id\" :\n \"resp_1\"}",
    ] {
        let call = chain.it.post("openai", "/v1/responses", body).header("x-gateway-fallback", "second");
        call.send().await.expect_error(502, "provider_error");
        assert_eq!(chain.second.connections(), 0, "{body}");
    }
}

#[tokio::test]
async fn auto_finds_the_provider_by_prefix_by_list_and_by_price() {
    let chain = Chain::start().await;
    chain
        .it
        .provider("listed", "openai", json!({"base_url": chain.third.url(), "models": ["house-1"]}))
        .await;
    chain.it.upstream.always(good());
    chain.second.always(good());
    chain.third.always(good());
    for (asked, provider, model) in [
        ("second/gpt-x", "second", "gpt-x"),
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("house-1", "listed", "house-1"),
        ("gpt-4o-mini", "openai", "gpt-4o-mini"),
    ] {
        let body = json!({"model": asked, "messages": []}).to_string();
        let answer = chain.it.post("auto", "/v1/chat/completions", body).send().await;
        answer.expect(200);
        let served = (answer.header("x-gateway-provider"), answer.header("x-gateway-model"));
        assert_eq!(served, (Some(provider), Some(model)), "{asked}");
    }
    let sent: Value = serde_json::from_slice(&chain.second.requests()[0].body).unwrap();
    assert_eq!(sent["model"], "gpt-x");
}

#[tokio::test]
async fn auto_names_the_candidates_when_it_cannot_tell() {
    let chain = Chain::start().await;
    for name in ["one", "two"] {
        chain.it.provider(name, "openai", json!({"models": ["shared-1"]})).await;
    }
    let ask = |model: Value| {
        let body = json!({"model": model, "messages": []}).to_string();
        chain.it.post("auto", "/v1/chat/completions", body)
    };
    let several = ask(json!("shared-1")).send().await.expect_error(400, "bad_request");
    let message = several["message"].as_str().unwrap();
    assert!(message.contains("one") && message.contains("two"), "{message}");
    let unknown = ask(json!("no-such-model-1")).send().await.expect_error(400, "bad_request");
    assert!(unknown["message"].as_str().unwrap().contains("no-such-model-1"));
    let none = chain.it.post("auto", "/v1/chat/completions", "{}").send().await;
    none.expect_error(400, "bad_request");
    assert_eq!(chain.it.upstream.connections(), 0);
}

#[tokio::test]
async fn a_credential_for_an_unnamed_provider_is_not_passed_on_by_auto() {
    let chain = Chain::start().await;
    chain.it.upstream.always(good());
    let ask = |model: &str| {
        let body = json!({"model": model, "messages": []}).to_string();
        chain.it.post("auto", "/v1/chat/completions", body).header("authorization", "Bearer sk-mine")
    };
    ask("gpt-4o-mini").send().await.expect(200);
    ask("openai/gpt-4o").send().await.expect(200);
    let sent = chain.it.upstream.requests();
    assert_eq!(sent[0].header("authorization"), None);
    assert_eq!(sent[1].header("authorization"), Some("Bearer sk-mine"));
}

#[tokio::test]
async fn cheapest_and_weighted_and_fastest_choose_the_first_target() {
    let chain = Chain::start().await;
    chain.it.upstream.always(good().delay_head(Duration::from_millis(60)));
    chain.second.always(good());
    let ask = |model: &str, steps: &str, route: &str| {
        let body = json!({"model": model, "messages": []});
        chain.it.chat(&body).header("x-gateway-fallback", steps).header("x-gateway-route", route)
    };
    let cheap = ask("gpt-4o", "openai/gpt-4o-mini, second/unpriced", "cheapest").send().await;
    assert_eq!(cheap.header("x-gateway-model"), Some("gpt-4o-mini"));

    // Both are measured once; from then on the faster one is first, and a session stays where it is.
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
    let chain = Chain::start().await;
    chain.it.upstream.always(good().delay_head(Duration::from_millis(80)));
    chain.second.always(good());
    let ask = || {
        let call = chain.it.chat(&json!({"model": "m"})).header("x-gateway-fallback", "second");
        call.header("x-gateway-route", "fastest").header("x-gateway-session", "s")
    };
    let first = ask().send().await.header("x-gateway-provider").unwrap().to_owned();
    for _ in 0..4 {
        assert_eq!(ask().send().await.header("x-gateway-provider"), Some(first.as_str()));
    }
}

#[tokio::test]
async fn the_whole_walk_ends_within_the_servers_limit() {
    let chain = Chain::start_with(&[("GATEWAY_PROXY_TIMEOUT_MS", "700")]).await;
    chain.it.upstream.always(Reply::silence());
    chain.second.always(Reply::silence());
    chain.third.always(Reply::silence());
    let began = Instant::now();
    let answer = chain.chat().header("x-gateway-timeout", "400").header("x-gateway-retry", "5").send().await;
    let body = answer.expect_error(504, "provider_timeout");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(!body["attempts"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn the_timeline_of_a_session_tells_of_the_fallback() {
    let chain = Chain::start().await;
    chain.it.upstream.push(Reply::json(500, "{}"));
    chain.second.push(good());
    let answer = chain.chat().header("x-gateway-session", "told").send().await;
    chain.it.row_of(&answer).await;
    let path = "/api/v1/sessions/told/timeline";
    let timeline = chain.it.app.get(path).key(&chain.it.ada.api_key).send().await.expect(200);
    let types: Vec<&str> =
        timeline["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["request", "fallback", "response"]);
}

#[tokio::test]
async fn a_caller_that_hangs_up_between_retries_is_let_go_and_leaves_its_row() {
    let it = Proxied::start().await;
    it.upstream.always(Reply::json(503, "{}").header("retry-after", "4"));
    let mut raw = it.connect().await;
    let bytes =
        it.raw_post("openai", "/v1/chat/completions", &[("x-gateway-retry", "5")], br#"{"model":"m"}"#);
    raw.send(&bytes).await;
    it.upstream.wait_for_requests(1, Duration::from_secs(5)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(raw);
    let row = it.only_row().await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
    assert_eq!(it.upstream.requests().len(), 1);
}
