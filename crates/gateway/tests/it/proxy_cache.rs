//! Cached responses: which requests hit, in which format, and at which cost.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Backend, ProxyFixture, TestRequest};
use crate::upstream::{Reply, Signal};

const PLAIN: &str = r#"{"id":"x","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"hello world"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;
const CHUNKS: [&str; 5] = [
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,"delta":{"content":"hello world"},"finish_reason":null}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#,
    "[DONE]",
];

fn ask(text: &str, stream: bool) -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}], "stream": stream})
}

fn cached(proxy: &ProxyFixture, text: &str) -> TestRequest {
    proxy.chat(&ask(text, false)).header("x-gateway-cache", "true")
}

#[tokio::test]
async fn the_same_question_is_answered_once_and_then_from_the_cache() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    let first = cached(&proxy, "hi").send().await;
    assert_eq!((first.header("x-gateway-cache"), first.header("age")), (Some("MISS"), None));
    proxy.app.app.services.clock.advance(2_500);
    // Key order, whitespace and number notation do not change the cache key.
    let body = r#"{"stream":false, "messages":[{"content":"hi","role":"user"}], "model":"gpt-4o"}"#;
    let again =
        proxy.post("openai", "/v1/chat/completions", body).header("x-gateway-cache", "exact").send().await;
    assert_eq!(again.text(), first.text());
    assert_eq!((again.header("x-gateway-cache"), again.header("age")), (Some("HIT"), Some("2")));
    assert_eq!(
        (again.header("x-gateway-provider"), again.header("x-gateway-attempts")),
        (Some("openai"), Some("0"))
    );
    assert_eq!(again.header("content-type"), Some("application/json"));
    assert_eq!(proxy.upstream.requests().len(), 1);
    let (paid, free) = (proxy.log_row(&first).await, proxy.log_row(&again).await);
    assert_eq!((&paid["cache"], &free["cache"]), (&json!("miss"), &json!("hit")));
    assert!(
        paid["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0) || paid["cost_usd"].is_string(),
        "{paid}"
    );
    assert_eq!(free["cost_usd"].as_f64().map(|cost| cost > 0.0), Some(false));
    assert_eq!(
        (&free["attempts"], &free["status"], &free["error_code"]),
        (&json!([]), &json!(200), &Value::Null)
    );
    let plain = proxy.chat(&ask("hi", false)).send().await;
    assert_eq!((plain.header("x-gateway-cache"), proxy.upstream.requests().len()), (None, 2));
}

#[tokio::test]
async fn one_entry_serves_plain_and_streamed_callers() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::sse(&CHUNKS));
    let stream = || proxy.chat(&ask("hi", true)).header("x-gateway-cache", "true");
    let first = stream().send().await;
    assert!(first.text().contains("hello world") && !first.text().contains("usage"), "{}", first.text());
    let plain = cached(&proxy, "hi").send().await;
    let body = plain.expect(200);
    assert_eq!(
        (&body["choices"][0]["message"]["content"], &body["usage"]["total_tokens"]),
        (&json!("hello world"), &json!(5))
    );
    let again = stream().send().await;
    assert_eq!(again.header("content-type"), Some("text/event-stream"));
    assert!(again.text().contains("hello") && again.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(proxy.upstream.requests().len(), 1);
    proxy.upstream.push(Reply::json(200, PLAIN));
    cached(&proxy, "other").send().await.expect(200);
    let streamed = proxy.chat(&ask("other", true)).header("x-gateway-cache", "true").send().await;
    assert_eq!((streamed.header("x-gateway-cache"), proxy.upstream.requests().len()), (Some("HIT"), 2));
    assert!(streamed.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn sixty_four_at_once_cost_one_call_and_get_the_same_answer() {
    let proxy = ProxyFixture::start().await;
    let go = Signal::new();
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN).wait_before_head(&go));
    let calls = (0..64).map(|_| cached(&proxy, "hi").send());
    let all = tokio::spawn(futures_util::future::join_all(calls.collect::<Vec<_>>()));
    proxy.upstream.wait_for_requests(1, Duration::from_secs(10)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    go.notify();
    let answers = all.await.unwrap();
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == PLAIN));
    assert_eq!(proxy.upstream.requests().len(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.header("x-gateway-cache") == Some("MISS")).count(), 1);
    let rows = proxy.wait_for_rows(64).await;
    assert_eq!(rows.iter().filter(|row| row["cache"] == "hit").count(), 63);
}

#[tokio::test]
async fn a_single_flight_leader_that_disconnects_or_fails_does_not_fail_the_followers() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::no_response());
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    let body = ask("hi", false).to_string();
    let mut leader = proxy.connect().await;
    let headers = [("x-gateway-cache", "true"), ("content-type", "application/json")];
    leader.send(&proxy.raw_post("openai", "/v1/chat/completions", &headers, body.as_bytes())).await;
    proxy.upstream.wait_for_requests(1, Duration::from_secs(5)).await;
    let others = futures_util::future::join_all((0..8).map(|_| cached(&proxy, "hi").send()));
    let others = tokio::spawn(others);
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(leader);
    let others = others.await.unwrap();
    assert!(others.iter().all(|answer| answer.text() == PLAIN));
    assert_eq!(proxy.upstream.requests().len(), 2, "one of the others took over");

    let proxy = ProxyFixture::start().await;
    let go = Signal::new();
    proxy.upstream.push(Reply::json(500, "{}").wait_before_head(&go));
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    let leader = tokio::spawn(cached(&proxy, "hi").send());
    proxy.upstream.wait_for_requests(1, Duration::from_secs(5)).await;
    let others = tokio::spawn(futures_util::future::join_all(
        (0..4).map(|_| cached(&proxy, "hi").send()).collect::<Vec<_>>(),
    ));
    tokio::time::sleep(Duration::from_millis(200)).await;
    go.notify();
    leader.await.unwrap().expect_error(502, "provider_error");
    assert!(others.await.unwrap().iter().all(|answer| answer.text() == PLAIN));
}

#[tokio::test]
async fn only_complete_successes_are_kept() {
    let proxy = ProxyFixture::start().await;
    for reply in [
        Reply::json(400, r#"{"error":{"message":"no"}}"#),
        Reply::json(429, "{}"),
        Reply::json(500, "{}"),
        Reply::json(200, r#"{"error":{"message":"inside"}}"#),
        Reply::json(200, r#"{"choices":[]}"#),
        Reply::new(200).header("content-type", "text/plain").body("hello"),
    ] {
        proxy.upstream.push(reply);
        cached(&proxy, "hi").send().await;
    }
    proxy.upstream.push(Reply::sse(&CHUNKS[..2]));
    proxy.chat(&ask("hi", true)).header("x-gateway-cache", "true").send().await;
    proxy.upstream.push(Reply::json(200, PLAIN));
    let answer = cached(&proxy, "hi").send().await;
    assert_eq!((answer.header("x-gateway-cache"), proxy.upstream.requests().len()), (Some("MISS"), 8));
}

#[tokio::test]
async fn organizations_namespaces_and_questions_never_share_an_entry() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[]).await;
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    cached(&proxy, "hi").send().await.expect(200);
    let bob = proxy.app.signup("other").await;
    let foreign = proxy.app.call(http::Method::POST, "/v1/chat/completions").key(&bob.api_key);
    let foreign = foreign.header("x-gateway-provider", "openai").header("x-gateway-cache", "true");
    let calls = [
        foreign.json(ask("hi", false)),
        cached(&proxy, "hi").header("x-gateway-cache-namespace", "a"),
        cached(&proxy, "hi").header("x-gateway-cache-namespace", "b"),
        cached(&proxy, "hi").header("x-gateway-fallback", "sandbox"),
        cached(&proxy, "hi").header("openai-beta", "x"),
        cached(&proxy, "hi there"),
    ];
    for (count, call) in calls.into_iter().enumerate() {
        let answer = call.send().await;
        assert_eq!(answer.header("x-gateway-cache"), Some("MISS"), "{count}");
    }
    assert_eq!(proxy.upstream.requests().len(), 7);
}

#[tokio::test]
async fn an_entry_ends_with_its_time_and_a_refresh_replaces_it() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, PLAIN));
    cached(&proxy, "hi").header("x-gateway-cache-ttl", "60").send().await.expect(200);
    proxy.upstream.push(Reply::json(200, &PLAIN.replace("hello", "fresh")));
    let refreshed = proxy.chat(&ask("hi", false)).header("x-gateway-cache", "refresh").send().await;
    assert_eq!(refreshed.header("x-gateway-cache"), Some("REFRESH"));
    let hit = cached(&proxy, "hi").send().await;
    assert!(hit.text().contains("fresh") && hit.header("x-gateway-cache") == Some("HIT"));
    proxy.app.app.services.clock.advance(3_601_000);
    proxy.upstream.push(Reply::json(200, PLAIN));
    assert_eq!(cached(&proxy, "hi").send().await.header("x-gateway-cache"), Some("MISS"));
}

#[tokio::test]
async fn a_purge_and_the_stats_show_the_stored_entries() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    for _ in 0..2 {
        cached(&proxy, "hi").send().await.expect(200);
    }
    let stats = proxy.app.get("/api/v1/cache/stats").key(&proxy.ada.api_key).send().await.expect(200);
    assert_eq!((&stats["entries"], &stats["hits"], &stats["misses"]), (&json!(1), &json!(1), &json!(1)));
    proxy.app.delete("/api/v1/cache").key(&proxy.ada.api_key).send().await.expect(200);
    assert_eq!(cached(&proxy, "hi").send().await.header("x-gateway-cache"), Some("MISS"));
}

#[tokio::test]
async fn an_answer_names_its_entry_with_which_that_one_alone_is_deleted() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    let key_of =
        |answer: &crate::support::TestResponse| answer.header("x-gateway-cache-key").unwrap().to_owned();
    let missed = cached(&proxy, "hi").send().await;
    let other = cached(&proxy, "bye").send().await;
    let key = key_of(&missed);
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert_ne!(key_of(&other), key);
    let refreshed = proxy.chat(&ask("hi", false)).header("x-gateway-cache", "refresh").send().await;
    let hit = cached(&proxy, "hi").send().await;
    let streamed = proxy.chat(&ask("hi", true)).header("x-gateway-cache", "true").send().await;
    assert_eq!([key_of(&refreshed), key_of(&hit), key_of(&streamed)], [&key; 3].map(Clone::clone));
    assert_eq!(proxy.chat(&ask("hi", false)).send().await.header("x-gateway-cache-key"), None);

    let delete = |key: &str| proxy.app.delete(&format!("/api/v1/cache?key={key}")).key(&proxy.ada.api_key);
    assert_eq!(delete(&key).send().await.expect(200)["entries"], 1);
    assert_eq!(cached(&proxy, "bye").send().await.header("x-gateway-cache"), Some("HIT"));
    let again = cached(&proxy, "hi").send().await;
    assert_eq!((again.header("x-gateway-cache"), key_of(&again)), (Some("MISS"), key));
}

#[tokio::test]
async fn a_near_answer_names_the_entry_that_it_comes_from() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    let near = |text: &str| {
        proxy
            .chat(&ask(text, false))
            .header("x-gateway-cache", "semantic")
            .header("x-gateway-cache-threshold", "0.6")
    };
    let first = near("What is the capital of France?").send().await;
    let hit = near("what is the capital of France").send().await;
    assert_eq!(hit.header("x-gateway-cache"), Some("HIT"));
    assert_eq!(hit.header("x-gateway-cache-key"), first.header("x-gateway-cache-key"));
}

#[tokio::test]
async fn an_entry_that_cannot_be_streamed_leaves_streams_to_the_provider() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, r#"{"text":"no chat that we know"}"#));
    cached(&proxy, "hi").send().await.expect(200);
    assert_eq!(cached(&proxy, "hi").send().await.header("x-gateway-cache"), Some("HIT"));
    proxy.upstream.push(Reply::sse(&CHUNKS));
    let streamed = proxy.chat(&ask("hi", true)).header("x-gateway-cache", "true").send().await;
    assert!(streamed.status == 200 && streamed.text().contains("hello world"), "{}", streamed.text());
    let row = proxy.log_row(&streamed).await;
    assert_eq!((&row["status"], &row["cache"]), (&json!(200), &json!("miss")));
}

#[tokio::test]
async fn a_near_question_is_a_semantic_hit_and_a_near_miss_is_none() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, PLAIN));
    let near = |text: &str| {
        proxy
            .chat(&ask(text, false))
            .header("x-gateway-cache", "semantic")
            .header("x-gateway-cache-threshold", "0.6")
    };
    near("What is the capital of France?").send().await.expect(200);
    let hit = near("what is the capital of France").send().await;
    assert_eq!(hit.header("x-gateway-cache"), Some("HIT"));
    assert_eq!(proxy.log_row(&hit).await["cache"], "hit");
    for other in ["What is the capital of Germany?", "What is not the capital of France?"] {
        assert_eq!(near(other).send().await.header("x-gateway-cache"), Some("MISS"), "{other}");
    }
    let exact = cached(&proxy, "what is the capital of France").send().await;
    assert_eq!(exact.header("x-gateway-cache"), Some("MISS"), "who asks for equal requests gets those only");
}

#[tokio::test]
async fn a_translated_answer_is_kept_in_the_callers_format() {
    let proxy = ProxyFixture::start().await;
    let claude = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"hello world"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
    proxy.upstream.push(Reply::json(200, claude));
    let call = |stream: bool| {
        let call = proxy.post("anthropic", "/v1/chat/completions", ask("hi", stream).to_string());
        call.header("x-gateway-format", "openai").header("x-gateway-cache", "true")
    };
    assert_eq!(call(false).send().await.expect(200)["object"], "chat.completion");
    let hit = call(false).send().await;
    assert_eq!(
        (hit.header("x-gateway-cache"), &hit.expect(200)["object"]),
        (Some("HIT"), &json!("chat.completion"))
    );
    assert!(call(true).send().await.text().contains("chat.completion.chunk"));
    assert_eq!(proxy.upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_translated_stream_that_cannot_be_cached_omits_chunks_only_for_the_cache() {
    let proxy = ProxyFixture::start().await;
    let events = [
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    proxy.upstream.set_default_reply(Reply::sse(&events));
    // A request with a duplicate key is never cached.
    for extra in ["", r#","metadata":{"a":"1","a":"2"}"#] {
        let body = format!(
            r#"{{"model":"claude-x","stream":true,"messages":[{{"role":"user","content":"hi {}"}}]{extra}}}"#,
            extra.len()
        );
        let call = proxy.post("anthropic", "/v1/chat/completions", body).header("x-gateway-format", "openai");
        let answer = call.header("x-gateway-cache", "true").send().await;
        let text = answer.text();
        assert!(text.contains("hello") && text.contains("[DONE]"), "{extra}: {text}");
        assert!(!text.contains("total_tokens"), "{extra}: {text}");
    }
}

#[tokio::test]
async fn cache_headers_that_make_no_sense_are_refused_by_name() {
    let proxy = ProxyFixture::start().await;
    for (name, value) in [
        ("x-gateway-cache", "yes"),
        ("x-gateway-cache-ttl", "0"),
        ("x-gateway-cache-ttl", "2592001"),
        ("x-gateway-cache-threshold", "1.5"),
        ("x-gateway-cache-threshold", "near"),
        ("x-gateway-cache-namespace", ""),
    ] {
        let answer = proxy.chat(&ask("hi", false)).header(name, value).send().await;
        let message = answer.expect_error(400, "bad_request")["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(name), "{name}: {value} gave: {message}");
    }
    assert_eq!(proxy.upstream.connections(), 0);
}
