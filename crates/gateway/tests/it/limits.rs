//! Limits on the request path: tokens are reserved before a call and settled after it, in streams too; what a call holds
//! is given back however it ends.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::limits::{answer, chat_body, passed};
use crate::support::{Backend, ProxyFixture};
use crate::upstream::{Reply, Signal};

/// A wire format: where its requests go, and what the upstream answers, plain and streamed.
struct Format {
    name: &'static str,
    provider: &'static str,
    path: &'static str,
    plain: Reply,
    streamed: Option<Reply>,
}

fn formats() -> Vec<Format> {
    let chat_events = [
        r#"{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}"#,
        r#"{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}"#,
        "[DONE]",
    ];
    let message = r#"{"id":"m","type":"message","role":"assistant","model":"x","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":20}}"#;
    let message_events = [
        r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":20}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let response = r#"{"id":"r","object":"response","status":"completed","output":[],"usage":{"input_tokens":10,"output_tokens":20,"total_tokens":30}}"#;
    let completed = format!(r#"{{"type":"response.completed","response":{response}}}"#);
    let created = r#"{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","output":[]}}"#;
    vec![
        Format {
            name: "chat",
            provider: "openai",
            path: "/v1/chat/completions",
            plain: answer(),
            streamed: Some(Reply::sse(&chat_events)),
        },
        Format {
            name: "messages",
            provider: "anthropic",
            path: "/v1/messages",
            plain: Reply::json(200, message),
            streamed: Some(Reply::sse(&message_events)),
        },
        Format {
            name: "responses",
            provider: "openai",
            path: "/v1/responses",
            plain: Reply::json(200, response),
            streamed: Some(Reply::sse(&[created, &completed])),
        },
        Format {
            name: "embeddings",
            provider: "openai",
            path: "/v1/embeddings",
            plain: Reply::json(
                200,
                r#"{"object":"list","data":[],"usage":{"prompt_tokens":30,"total_tokens":30}}"#,
            ),
            streamed: None,
        },
    ]
}

impl Format {
    fn body(&self, model: &str, stream: bool) -> Value {
        let mut body = match self.name {
            "responses" => json!({"model": model, "max_output_tokens": 20, "input": "hi"}),
            "embeddings" => json!({"model": model, "input": "hi, and some more words, so that it is longer"}),
            _ => chat_body(model),
        };
        if stream {
            body["stream"] = true.into();
        }
        body
    }
}

/// Every call uses 30 tokens of 100 a minute, and reserves more: all calls together use the limit and one call at most.
async fn parallel_calls(backend: Backend, calls: usize) {
    let fixture = ProxyFixture::start_with(backend, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    for format in formats() {
        for stream in [false, true] {
            let reply = if stream { format.streamed.clone() } else { Some(format.plain.clone()) };
            let Some(reply) = reply else {
                continue;
            };
            let model = format!("{}-{stream}", format.name);
            fixture.upstream.set_default_reply(reply);
            fixture.limit(json!({"name": format!("t-{model}"), "models": [model], "tokens": 100})).await;
            let body = format.body(&model, stream).to_string();
            let call = || fixture.post(format.provider, format.path, body.clone()).send();
            let answers = join_all((0..calls).map(|_| call())).await;
            let served = answers.iter().filter(|answer| passed(answer)).count();
            assert!((1..=4).contains(&served), "{model}: {served} calls of 30 tokens passed 100 a minute");
            let refused = answers.iter().find(|answer| answer.status == 429).unwrap();
            let limit = &refused.json()["limit"];
            assert_eq!((&limit["unit"], &limit["limit"]), (&json!("tokens"), &json!(100)));
            // After a minute all is free again.
            fixture.app.app.services.clock.advance(61_000);
            if backend == Backend::Sqlite {
                let again = call().await;
                assert_eq!(again.status, 200, "{model}: {}", again.text());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_and_five_hundred_parallel_calls_stay_within_the_tokens() {
    for calls in [5, 500] {
        parallel_calls(Backend::Sqlite, calls).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_calls_stay_within_the_tokens_on_postgres() {
    for calls in [5, 500] {
        parallel_calls(Backend::Postgres, calls).await;
    }
}

async fn both(settings: &[(&str, &str)]) -> [ProxyFixture; 2] {
    [
        ProxyFixture::start_with(Backend::Sqlite, settings).await,
        ProxyFixture::start_with(Backend::Postgres, settings).await,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_reserved_is_replaced_by_what_was_used() {
    for fixture in both(&[]).await {
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "day", "tokens": 1000, "window": "day"})).await;
        let first = fixture.ask_model("m").send().await;
        first.expect(200);
        let row = fixture.log_row(&first).await;
        let reserved = row["limits"][0]["reserved"].as_u64().unwrap();
        assert!(reserved > 40, "{row}");
        assert_eq!((&row["limits"][0]["name"], &row["limits"][0]["used"]), (&json!("day"), &json!(30)));
        assert_eq!(row["queued_ms"], Value::Null);
        let remaining = |answer: &crate::support::TestResponse| -> u64 {
            answer["x-ratelimit-remaining-tokens"].to_str().unwrap().parse().unwrap()
        };
        assert_eq!(remaining(&first), 1000 - reserved);
        let second = fixture.ask_model("m").send().await;
        assert_eq!(remaining(&second), 1000 - 30 - reserved, "30 of the first call, all of the second");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_says_which_limit_and_when_to_retry() {
    for fixture in both(&[]).await {
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "few", "requests": 2, "per": "user"})).await;
        let call = || fixture.ask_model("m").header("x-gateway-user", "u1").send();
        for _ in 0..2 {
            call().await.expect(200);
        }
        let refused = call().await;
        let body = refused.expect_error(429, "rate_limited");
        assert_eq!(body["error_code"], "rate_limited");
        let limit = &body["limit"];
        assert_eq!(
            (&limit["name"], &limit["unit"], &limit["per"]),
            (&json!("few"), &json!("requests"), &json!("user"))
        );
        assert_eq!((&limit["limit"], &limit["remaining"]), (&json!(2), &json!(0)));
        let seconds: u64 = refused["retry-after"].to_str().unwrap().parse().unwrap();
        let millis: u64 = refused["retry-after-ms"].to_str().unwrap().parse().unwrap();
        assert_eq!(seconds, millis.div_ceil(1000), "both name the same moment");
        assert!((1..=30).contains(&seconds), "{seconds}");
        let rate = refused.header("ratelimit").unwrap();
        assert!(rate.starts_with(&format!("\"few\";r=0;t={seconds}")), "{rate}");
        assert_eq!(limit["reset_seconds"], json!(seconds));
        let row = fixture.log_row(&refused).await;
        assert_eq!((&row["status"], &row["limits"][0]["name"]), (&json!(429), &json!("few")));
        assert_eq!(fixture.upstream.requests().len(), 2, "the provider saw nothing of it");
        // Another user has a bucket of its own, and so have those without one together.
        fixture.ask_model("m").header("x-gateway-user", "u2").send().await.expect(200);
        fixture.ask_model("m").send().await.expect(200);
    }
}

#[tokio::test]
async fn a_call_larger_than_the_limit_is_told_so() {
    let fixture = ProxyFixture::start().await;
    fixture.limit(json!({"name": "small", "tokens": 100})).await;
    let mut body = chat_body("m");
    body["max_tokens"] = 500.into();
    let refused = fixture.chat(&body).header("x-gateway-wait", "5000").send().await;
    let problem = refused.expect_error(400, "limit_too_small");
    let message = problem["message"].as_str().unwrap();
    assert!(message.contains("100") && message.contains("'small'"), "{message}");
    assert_eq!(problem["limit"]["limit"], 100);
    assert!(problem["limit"]["needed"].as_u64().unwrap() > 500);
    // Eight answers are asked for, so eight times the output is reserved.
    let mut body = chat_body("m");
    body["n"] = 8.into();
    fixture.chat(&body).send().await.expect_error(400, "limit_too_small");
    assert!(fixture.upstream.requests().is_empty());
}

#[tokio::test]
async fn callers_without_the_value_are_refused_where_the_limit_says_so() {
    let fixture = ProxyFixture::start().await;
    fixture.upstream.set_default_reply(answer());
    fixture.limit(json!({"name": "users", "requests": 5, "per": "user", "missing": "refuse"})).await;
    let refused = fixture.ask_model("m").send().await.expect_error(400, "bad_request");
    assert!(refused["message"].as_str().unwrap().contains("X-Gateway-User"), "{refused}");
    fixture.ask_model("m").header("x-gateway-user", "u").send().await.expect(200);
    fixture
        .ask_model("m")
        .header("x-gateway-user", &"u".repeat(257))
        .send()
        .await
        .expect_error(400, "bad_request");
    for header in ["x-gateway-wait", "x-gateway-priority"] {
        fixture.ask_model("m").header(header, "30001").send().await.expect_error(400, "bad_request");
    }
}

/// The headers are there before the first byte of a stream, and the permit is held until its last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_holds_its_permit_to_its_end() {
    for fixture in both(&[]).await {
        let signal = Signal::new();
        let reply = Reply::new(200).header("content-type", "text/event-stream").chunked().flush();
        fixture.upstream.push(reply.wait_for(&signal).event("[DONE]"));
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "one", "concurrent": 1, "tokens": 100_000})).await;
        let mut body = chat_body("m");
        body["stream"] = true.into();
        let mut connection = fixture.connect().await;
        let headers = [("content-type", "application/json")];
        connection
            .send(fixture.raw_post("openai", "/v1/chat/completions", &headers, body.to_string().as_bytes()))
            .await;
        let head = connection.head().await;
        assert_eq!(head.status, 200);
        let policy = head.header("ratelimit-policy").unwrap();
        assert!(policy.contains("\"one.tokens\";q=100000;w=60;qu=\"tokens\""), "{policy}");
        assert!(policy.contains("\"one.concurrent\";q=1;qu=\"concurrent-requests\""), "{policy}");
        assert!(head.header("x-ratelimit-limit-tokens").is_some());
        let refused = fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
        assert_eq!(refused["limit"]["unit"], "concurrent");
        signal.notify();
        let row = fixture.log_row_by_id(head.log_id()).await;
        assert_eq!(row["usage_estimated"], true, "the upstream sent no usage: {row}");
        assert_eq!(row["limits"][0]["used"], json!(row["total_tokens"]));
        fixture.ask_model("m").send().await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_gives_back_what_it_did_not_use() {
    for fixture in both(&[]).await {
        let reply = Reply::new(200).header("content-type", "text/event-stream").chunked().flush();
        fixture.upstream.push(reply.then_stall());
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "t", "tokens": 1000, "concurrent": 1, "window": "day"})).await;
        let mut body = chat_body("m");
        (body["stream"], body["max_tokens"]) = (true.into(), 900.into());
        let mut connection = fixture.connect().await;
        let headers = [("content-type", "application/json")];
        connection
            .send(fixture.raw_post("openai", "/v1/chat/completions", &headers, body.to_string().as_bytes()))
            .await;
        assert_eq!(connection.head().await.status, 200);
        body["stream"] = false.into();
        fixture.chat(&body).send().await.expect_error(429, "rate_limited");
        drop(connection);
        crate::support::wait_for_response(
            Duration::from_secs(10),
            || fixture.chat(&body),
            |answer| answer.status == 200,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_call_gives_back_its_tokens_but_not_its_request() {
    for fixture in both(&[]).await {
        fixture.upstream.set_default_reply(Reply::json(500, r#"{"error":{"message":"broken"}}"#));
        fixture.limit(json!({"name": "both", "tokens": 60, "requests": 3, "window": "day"})).await;
        for _ in 0..3 {
            fixture.ask_model("m").send().await.expect_error(502, "provider_error");
        }
        let refused = fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
        assert_eq!(refused["limit"]["unit"], "requests");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_in_dry_run_only_notes_what_it_would_refuse() {
    for fixture in both(&[]).await {
        fixture.upstream.set_default_reply(answer());
        let id =
            fixture.limit(json!({"name": "dry", "requests": 1, "window": "day", "mode": "dry_run"})).await;
        let first = fixture.ask_model("m").send().await;
        first.expect(200);
        assert_eq!(first.header("ratelimit"), None, "it promises nothing");
        assert_eq!(fixture.log_row(&first).await["limits"][0].get("would"), None);
        let second = fixture.ask_model("m").send().await;
        second.expect(200);
        let row = fixture.log_row(&second).await;
        assert_eq!(
            (&row["limits"][0]["name"], &row["limits"][0]["would"]),
            (&json!("dry"), &json!("refuse"))
        );
        let path = format!("/api/v1/orgs/{}/limits/{id}/usage", fixture.ada.org_id);
        let counted = |answer: &crate::support::TestResponse| answer.text().contains("\"would_refuse\":1");
        let ask = || fixture.app.get(&path).bearer(&fixture.ada.token);
        crate::support::wait_for_response(Duration::from_secs(10), ask, counted).await;
    }
}

#[tokio::test]
async fn an_answer_from_the_cache_counts_as_a_request_without_tokens() {
    let fixture = ProxyFixture::start().await;
    fixture.upstream.set_default_reply(answer());
    fixture.limit(json!({"name": "both", "tokens": 10_000, "requests": 3, "window": "day"})).await;
    let call = || fixture.ask_model("m").header("x-gateway-cache", "exact").send();
    call().await.expect(200);
    let hit = call().await;
    hit.expect(200);
    assert_eq!(hit.header("x-gateway-cache"), Some("HIT"));
    assert!(hit.header("ratelimit").is_some_and(|rate| rate.contains("\"both.requests\";r=1")));
    assert_eq!(fixture.log_row(&hit).await["limits"][0]["used"], 0);
    let third = call().await;
    let remaining: u64 = third["x-ratelimit-remaining-tokens"].to_str().unwrap().parse().unwrap();
    assert!(remaining > 10_000 - 30 - 70, "only the first call used tokens: {remaining}");
    call().await.expect_error(429, "rate_limited");
}

/// The permit of a call that falls back moves to the limits of the target that is called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallback_counts_against_the_limits_of_its_target() {
    for fixture in both(&[]).await {
        fixture.provider("second", "openai", json!({"api_key": "sk-second"})).await;
        fixture.limit(json!({"name": "big", "models": ["big-*"], "requests": 1, "window": "day"})).await;
        fixture.limit(json!({"name": "small", "models": ["small"], "requests": 2, "window": "day"})).await;
        let call = || fixture.ask_model("big-1").header("x-gateway-fallback", "second/small").send();
        for _ in 0..2 {
            fixture.upstream.push(Reply::json(503, r#"{"error":{"message":"overloaded"}}"#));
            fixture.upstream.push(answer());
            let served = call().await;
            served.expect(200);
            assert_eq!(served.header("x-gateway-model"), Some("small"));
            let row = fixture.log_row(&served).await;
            assert_eq!(row["limits"][0]["name"], "small", "{row}");
        }
        // The limit of the fallback is exhausted, so that it is skipped.
        fixture.upstream.push(Reply::json(503, r#"{"error":{"message":"overloaded"}}"#));
        let failed = call().await;
        failed.expect_error(502, "provider_error");
        let row = fixture.log_row(&failed).await;
        let skipped = row["attempts"].to_string();
        assert!(skipped.contains("limit 'small' reached"), "{skipped}");
    }
}

#[tokio::test]
async fn providers_headers_of_the_same_names_are_renamed() {
    let fixture = ProxyFixture::start().await;
    let theirs = answer().header("x-ratelimit-limit-tokens", "7").header("ratelimit", "\"x\";r=1");
    fixture.upstream.set_default_reply(theirs.clone());
    fixture.limit(json!({"name": "t", "tokens": 5000})).await;
    let served = fixture.ask_model("m").send().await;
    served.expect(200);
    assert_eq!(served.header("x-ratelimit-limit-tokens"), Some("5000"));
    assert_eq!(served.header("x-upstream-x-ratelimit-limit-tokens"), Some("7"));
    assert_eq!(served.header("x-upstream-ratelimit"), Some("\"x\";r=1"));
    assert!(served.header("ratelimit-policy").unwrap().contains("\"plan\";q="));
    let message = formats().remove(1);
    fixture.upstream.set_default_reply(message.plain.clone());
    let served = fixture.post("anthropic", message.path, message.body("m", false).to_string()).send().await;
    served.expect(200);
    assert_eq!(served.header("anthropic-ratelimit-tokens-limit"), Some("5000"));
    let settings = async |value: &str| {
        let path = format!("/api/v1/orgs/{}", fixture.ada.org_id);
        let body = json!({"settings": {"limit_headers": value}});
        fixture.app.put(&path, body).bearer(&fixture.ada.token).send().await.expect(200);
    };
    fixture.upstream.set_default_reply(theirs);
    settings("minimal").await;
    let served = fixture.ask_model("m").send().await;
    assert_eq!(served.header("x-ratelimit-limit-tokens"), Some("7"));
    assert!(served.header("ratelimit-policy").is_some());
    settings("off").await;
    assert_eq!(fixture.ask_model("m").send().await.header("ratelimit-policy"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_limit_lets_nothing_pass_until_it_has_drained() {
    for fixture in both(&[]).await {
        fixture.upstream.set_default_reply(answer());
        let definition = |requests: u64| json!({"name": "l", "requests": requests, "window": "day"});
        let id = fixture.limit(definition(5)).await;
        for _ in 0..3 {
            fixture.ask_model("m").send().await.expect(200);
        }
        let path = format!("/api/v1/orgs/{}/limits/{id}", fixture.ada.org_id);
        let change = async |requests| {
            fixture.app.put(&path, definition(requests)).bearer(&fixture.ada.token).send().await.expect(200);
        };
        change(2).await;
        fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
        change(4).await;
        crate::support::wait_for_response(
            Duration::from_secs(5),
            || fixture.ask_model("m"),
            |answer| answer.status == 200,
        )
        .await;
        fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
    }
}
