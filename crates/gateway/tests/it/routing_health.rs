//! Circuit breakers of failing targets, and cooldown of rejected or rate-limited credentials.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fallback_chain::{CLAUDE, FallbackChain, HELLO, WORLD, attempted_providers, good};
use crate::support::{ProxyFixture, TestRequest, TestResponse};
use crate::upstream::{Reply, Signal, Upstream};

/// A chain whose first target has an open circuit breaker.
async fn with_an_open_breaker() -> FallbackChain {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(Reply::json(500, "{}"));
    chain.second.set_default_reply(good());
    for _ in 0..6 {
        chain.chat().send().await.expect(200);
    }
    chain
}

#[tokio::test]
async fn a_breaker_opens_is_passed_over_and_never_blocks_the_last_target() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(Reply::json(500, "{}"));
    chain.second.set_default_reply(good());
    for _ in 0..5 {
        chain.chat().send().await.expect(200);
    }
    assert_eq!(chain.proxy.upstream.requests().len(), 5);
    let answer = chain.chat().send().await;
    answer.expect(200);
    assert_eq!(chain.proxy.upstream.requests().len(), 5, "an open breaker lets nothing through");
    assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    let row = chain.proxy.log_row(&answer).await;
    assert_eq!(attempted_providers(&row), [("openai".into(), Value::Null), ("second".into(), json!(200))]);
    assert!(row["attempts"][0]["error"].as_str().unwrap().contains("circuit breaker open"), "{row}");
    // As the only or the last target of a chain it is still tried.
    chain.proxy.chat(&json!({"model": "m"})).send().await.expect_error(502, "provider_error");
    chain.second.set_default_reply(Reply::json(500, "{}"));
    let last = chain.proxy.post("second", "/v1/chat/completions", r#"{"model":"m"}"#);
    last.header("x-gateway-fallback", "openai").send().await.expect_error(502, "provider_error");
    assert_eq!(chain.proxy.upstream.requests().len(), 7);
}

#[tokio::test]
async fn after_its_cooldown_one_probe_closes_a_breaker() {
    let chain = with_an_open_breaker().await;
    chain.proxy.app.app.services.clock.advance(11_000);
    chain.proxy.upstream.set_default_reply(good());
    for _ in 0..3 {
        assert_eq!(chain.chat().send().await.header("x-gateway-provider"), Some("openai"));
    }
    assert_eq!(chain.proxy.upstream.requests().len(), 8);
}

#[tokio::test]
async fn a_probe_that_is_refused_for_the_callers_fault_closes_the_breaker_too() {
    let chain = with_an_open_breaker().await;
    chain.proxy.app.app.services.clock.advance(11_000);
    chain.proxy.upstream.push(Reply::json(400, r#"{"error":"your fault"}"#));
    chain.proxy.upstream.set_default_reply(good());
    chain.chat().send().await.expect(400);
    // The target is alive: requests do not wait for the probe to time out.
    assert_eq!(chain.chat().send().await.header("x-gateway-provider"), Some("openai"));
}

#[tokio::test]
async fn an_untranslatable_request_does_not_count_as_a_failure_of_the_target() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(500, "{}"));
    let claude = Upstream::start().await;
    claude.set_default_reply(Reply::json(200, CLAUDE));
    proxy.provider("claude", "anthropic", json!({"base_url": claude.url(), "api_key": "sk-c"})).await;
    let chat = |more: Value| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        proxy.chat(&body).header("x-gateway-fallback", "claude/claude-x, sandbox")
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

/// Asserts that the breaker of the first target is closed: the next request goes there.
async fn assert_closed(chain: &FallbackChain, what: &str) {
    chain.proxy.upstream.set_default_reply(good());
    chain.second.set_default_reply(good());
    let answer = chain.chat().send().await;
    assert_eq!(answer.header("x-gateway-provider"), Some("openai"), "{what}");
}

/// Sends the requests at the same time.
async fn all(requests: Vec<TestRequest>) -> Vec<TestResponse> {
    let sent: Vec<_> = requests.into_iter().map(|request| tokio::spawn(request.send())).collect();
    let mut answers = Vec::new();
    for answer in sent {
        answers.push(answer.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn a_timeout_counts_only_if_the_target_was_silent_for_a_second() {
    for (timeout, opens) in [("100", false), ("1000", true)] {
        let chain = FallbackChain::start().await;
        chain.proxy.upstream.set_default_reply(Reply::no_response());
        chain.second.set_default_reply(good());
        let slow = || chain.chat().header("x-gateway-timeout", timeout);
        for answer in all((0..6).map(|_| slow()).collect()).await {
            assert_eq!(answer.header("x-gateway-provider"), Some("second"));
        }
        chain.proxy.upstream.set_default_reply(good());
        let served = chain.chat().send().await;
        let expected = if opens { "second" } else { "openai" };
        assert_eq!(served.header("x-gateway-provider"), Some(expected), "{timeout} ms");
    }
}

#[tokio::test]
async fn a_stream_that_takes_longer_than_its_timeout_does_not_count() {
    let chain = FallbackChain::start().await;
    let steady =
        (0..100).fold(Reply::sse(&[HELLO]), |reply, _| reply.delay(Duration::from_millis(20)).event(WORLD));
    chain.proxy.upstream.set_default_reply(steady);
    let slow = || chain.stream().header("x-gateway-timeout", "300");
    for answer in all((0..6).map(|_| slow()).collect()).await {
        assert!(answer.text().contains("provider_timeout"), "{}", answer.text());
    }
    assert_closed(&chain, "the provider sent data all the time").await;
}

#[tokio::test]
async fn what_the_callers_own_credential_causes_does_not_count() {
    for status in [401, 402, 403, 404, 408, 409, 410, 429] {
        let chain = FallbackChain::start().await;
        chain.proxy.upstream.set_default_reply(Reply::json(status, "{}"));
        chain.second.set_default_reply(good());
        for _ in 0..6 {
            chain.chat().header("authorization", "Bearer sk-mine").send().await;
        }
        assert_eq!(chain.proxy.upstream.requests().len(), 6);
        assert_closed(&chain, &format!("{status} with a credential of the caller")).await;
    }
}

#[tokio::test]
async fn an_object_that_does_not_exist_does_not_count() {
    for status in [404, 409, 410] {
        let chain = FallbackChain::start().await;
        chain.proxy.upstream.set_default_reply(Reply::json(status, "{}"));
        chain.second.set_default_reply(Reply::json(200, "{}"));
        let get = || {
            let call = chain.proxy.call(http::Method::GET, "openai", "/v1/files/file-1");
            call.header("x-gateway-fallback", "second")
        };
        for _ in 0..6 {
            get().send().await.expect(200);
        }
        assert_eq!(chain.proxy.upstream.requests().len(), 6, "{status}");
    }
}

#[tokio::test]
async fn breakers_are_of_one_organization() {
    let chain = with_an_open_breaker().await;
    let bob = chain.proxy.app.signup("other").await;
    for (account, open) in [(&chain.proxy.ada, json!(["m"])), (&bob, json!([]))] {
        let list = chain.proxy.app.get("/api/v1/playground/providers").bearer(&account.token).send().await;
        let providers = list.expect(200)["providers"].as_array().unwrap().clone();
        let openai = providers.iter().find(|provider| provider["name"] == "openai").unwrap();
        assert_eq!(openai["open_breakers"], open);
    }
    let call = chain.proxy.app.call(http::Method::POST, "/v1/chat/completions").key(&bob.api_key);
    let call = call.header("x-gateway-provider", "openai").header("x-gateway-fallback", "sandbox");
    call.json(json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}))
        .send()
        .await
        .expect(200);
    assert_eq!(chain.proxy.upstream.requests().len(), 6);
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

async fn call_mine(proxy: &ProxyFixture, session: Option<&str>) -> TestResponse {
    let mut call = proxy.post("mine", "/v1/chat/completions", r#"{"model":"m"}"#);
    if let Some(session) = session {
        call = call.header("x-gateway-session", session);
    }
    call.send().await
}

#[tokio::test]
async fn several_credentials_share_the_calls_by_weight_and_a_session_stays_with_one() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("mine", "openai", with_keys([1, 3])).await;
    proxy.upstream.set_default_reply(good());
    for _ in 0..60 {
        call_mine(&proxy, None).await.expect(200);
    }
    let b = keys_used(&proxy.upstream).iter().filter(|key| *key == "b").count();
    assert!((30..=57).contains(&b), "{b} of 60 calls used the credential of weight 3");
    for _ in 0..10 {
        call_mine(&proxy, Some("one")).await.expect(200);
    }
    let used = keys_used(&proxy.upstream)[60..].to_vec();
    assert!(used.iter().all(|key| *key == used[0]), "{used:?}");
}

#[tokio::test]
async fn a_rejected_credential_is_skipped_and_a_rate_limited_one_cools_down_for_retry_after() {
    for (status, back_after) in [(401, 301_000), (403, 301_000), (402, 301_000), (429, 31_000)] {
        let proxy = ProxyFixture::start().await;
        proxy.provider("mine", "openai", with_keys([1, 1])).await;
        proxy.upstream.push(Reply::json(status, "{}").header("retry-after", "30"));
        proxy.upstream.set_default_reply(good());
        let answer = call_mine(&proxy, Some("s")).await;
        answer.expect(200);
        assert_eq!(answer.header("x-gateway-attempts"), Some("2"), "{status}");
        let used = keys_used(&proxy.upstream);
        assert_ne!(used[0], used[1]);
        // The session prefers the first credential, but that one is cooling down.
        call_mine(&proxy, Some("s")).await.expect(200);
        assert_eq!(keys_used(&proxy.upstream)[2], used[1], "{status}");
        proxy.app.app.services.clock.advance(back_after);
        call_mine(&proxy, Some("s")).await.expect(200);
        assert_eq!(keys_used(&proxy.upstream)[3], used[0], "{status}");
    }
}

#[tokio::test]
async fn when_every_credential_is_rejected_the_callers_sees_the_last_answer() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("mine", "openai", with_keys([1, 1])).await;
    proxy.upstream.set_default_reply(Reply::json(401, r#"{"error":"no"}"#));
    let answer = call_mine(&proxy, None).await;
    assert_eq!(answer.expect(401)["error"], "no");
    assert_eq!(answer.header("x-gateway-attempts"), Some("2"));
    proxy.upstream.set_default_reply(good());
    call_mine(&proxy, None).await.expect(200);
}

#[tokio::test]
async fn a_call_whose_other_credential_was_put_aside_meanwhile_is_not_made_without_one() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("mine", "openai", with_keys([1, 1])).await;
    proxy.upstream.set_default_reply(good());
    let (mut of_a, mut of_b) = (None, None);
    for session in (0..64).map(|number| format!("s{number}")) {
        call_mine(&proxy, Some(&session)).await.expect(200);
        let used = keys_used(&proxy.upstream).pop().unwrap();
        *(if used == "a" { &mut of_a } else { &mut of_b }) = Some(session);
    }
    let (of_a, of_b) = (of_a.unwrap(), of_b.unwrap());
    let go = Signal::new();
    proxy.upstream.push(Reply::json(401, "{}").wait_before_head(&go));
    let call =
        proxy.post("mine", "/v1/chat/completions", r#"{"model":"m"}"#).header("x-gateway-session", &of_a);
    let waiting = tokio::spawn(call.send());
    proxy.upstream.wait_for_requests(65, Duration::from_secs(10)).await;
    proxy.upstream.push(Reply::json(401, "{}"));
    call_mine(&proxy, Some(&of_b)).await.expect(200);
    go.notify();
    let answer = waiting.await.unwrap();
    answer.expect(401);
    assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    assert_eq!(keys_used(&proxy.upstream)[64..], ["a", "b", "a"]);
}

#[tokio::test]
async fn state_stored_at_one_account_is_not_requested_from_another() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.set_default_reply(Reply::json(500, "{}"));
    for body in [
        r#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#,
        "{\"model\": \"m\", \"input\": \"hi\", \"previous_response_id\" :\n \"resp_1\"}",
    ] {
        let call = chain.proxy.post("openai", "/v1/responses", body).header("x-gateway-fallback", "second");
        call.send().await.expect_error(502, "provider_error");
        assert_eq!(chain.second.connections(), 0, "{body}");
    }
}
