//! What a call reserves of its limits: from the body that is sent on, for every choice that it asks for, and for as long
//! as it runs, whatever the clock of the node does.

use serde_json::{Value, json};

use crate::support::limits::{answer, chat_body};
use crate::support::{Backend, ProxyFixture};
use crate::upstream::{Reply, Signal};

async fn both() -> [ProxyFixture; 2] {
    [
        ProxyFixture::start_with(Backend::Sqlite, &[]).await,
        ProxyFixture::start_with(Backend::Postgres, &[]).await,
    ]
}

/// What a call needs of the limit, which has too little for it.
fn needed(refused: &Value) -> u64 {
    refused["limit"]["needed"].as_u64().unwrap_or_else(|| panic!("{refused}"))
}

#[tokio::test]
async fn a_template_that_lengthens_the_body_is_counted() {
    for fixture in both().await {
        let text = "Answer in the tone of the house. ".repeat(200);
        let prompt = json!({"namespace": "support", "slug": "long", "content": text});
        fixture.app.post("/api/v1/prompts", prompt).bearer(&fixture.ada.token).send().await.expect(201);
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "t", "tokens": 1000, "window": "day"})).await;
        let call = fixture.ask_model("m").header("x-gateway-prompt", "support/long").send().await;
        let refused = call.expect_error(400, "limit_too_small");
        assert!(needed(&refused) > 1200, "6,600 characters of the template are counted: {refused}");
        fixture.ask_model("m").send().await.expect(200);
    }
}

#[tokio::test]
async fn every_choice_of_an_answer_is_reserved() {
    for fixture in both().await {
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "out", "output_tokens": 159, "window": "day"})).await;
        let mut body = chat_body("m");
        body["n"] = 8.into();
        let refused = fixture.chat(&body).send().await.expect_error(400, "limit_too_small");
        assert_eq!(needed(&refused), 8 * 20);
        body["n"] = 7.into();
        fixture.chat(&body).send().await.expect(200);
    }
}

#[tokio::test]
async fn a_user_of_more_than_256_bytes_is_refused() {
    for fixture in both().await {
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "each", "per": "user", "requests": 100})).await;
        let call = |length: usize| fixture.ask_model("m").header("x-gateway-user", &"u".repeat(length));
        call(256).send().await.expect(200);
        call(257).send().await.expect_error(400, "bad_request");
        call(4096).send().await.expect_error(400, "bad_request");
    }
}

/// A refused input was read by the provider, which counts it.
#[tokio::test]
async fn every_attempt_that_used_tokens_counts_and_holds_one_permit() {
    for fixture in both().await {
        fixture.provider("second", "openai", json!({"api_key": "sk-second"})).await;
        let definition = json!({"targets": [
            {"provider": "openai", "model": "small"},
            {"provider": "second", "model": "other", "when": "content_filter"},
        ]});
        fixture.save("m", definition).await;
        let limit = |name: &str, models: &str| json!({"name": name, "models": [models], "tokens": 1000, "window": "day"});
        let small = fixture.limit(limit("small", "small")).await;
        fixture.limit(limit("other", "other")).await;
        fixture.limit(json!({"name": "all", "tokens": 1000, "concurrent": 1, "window": "day"})).await;
        let filtered = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"content_filter"}],"usage":{"prompt_tokens":40,"completion_tokens":1,"total_tokens":41}}"#;
        fixture.upstream.push(Reply::json(200, filtered));
        fixture.upstream.push(answer());
        let served = fixture.by_name_with("m", json!({"max_tokens": 20})).send().await;
        served.expect(200);
        assert_eq!(fixture.upstream.requests().len(), 2);
        let row = fixture.log_row(&served).await;
        let used = |name: &str| {
            let limits = row["limits"].as_array().unwrap();
            limits.iter().find(|limit| limit["name"] == name).map(|limit| limit["used"].as_i64().unwrap())
        };
        assert_eq!((used("all"), used("other"), used("small")), (Some(71), Some(30), None), "{row}");
        let path = format!("/api/v1/orgs/{}/limits/{small}/usage", fixture.ada.org_id);
        let usage = fixture.app.get(&path).bearer(&fixture.ada.token).send().await.expect(200);
        assert_eq!(usage["buckets"][0]["used"], 41, "{usage}");
        // A retry of the same target holds the one permit that there is.
        fixture.upstream.push(Reply::json(500, "{}"));
        fixture.upstream.push(answer());
        let retried = fixture.ask_model("plain").header("x-gateway-retry", "1").send().await;
        retried.expect(200);
        assert_eq!(retried.header("x-gateway-attempts"), Some("2"));
        fixture.upstream.set_default_reply(answer());
        fixture.ask_model("plain").send().await.expect(200);
    }
}

/// A minute refills the whole limit, but the stream still runs.
#[tokio::test]
async fn a_stream_of_more_than_a_minute_keeps_its_permit() {
    for fixture in both().await {
        let signal = Signal::new();
        let reply = Reply::new(200).header("content-type", "text/event-stream").chunked().flush();
        fixture.upstream.push(reply.wait_for(&signal).event("[DONE]"));
        fixture.upstream.set_default_reply(answer());
        fixture.limit(json!({"name": "one", "concurrent": 1, "requests": 10})).await;
        let mut body = chat_body("m");
        body["stream"] = true.into();
        let mut connection = fixture.connect().await;
        let headers = [("content-type", "application/json")];
        let request =
            fixture.raw_post("openai", "/v1/chat/completions", &headers, body.to_string().as_bytes());
        connection.send(request).await;
        let head = connection.head().await;
        assert_eq!(head.status, 200);
        for _ in 0..4 {
            fixture.app.app.services.clock.advance(20_000);
            let refused = fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
            assert_eq!(refused["limit"]["unit"], "concurrent");
        }
        signal.notify();
        fixture.log_row_by_id(head.log_id()).await;
        fixture.ask_model("m").send().await.expect(200);
    }
}

/// A step back refills nothing and takes nothing; the time until it is full again stays what it was, and the step.
#[tokio::test]
async fn a_step_of_the_clock_lets_nothing_more_pass() {
    let fixture = ProxyFixture::start_with(Backend::Sqlite, &[]).await;
    let clock = &fixture.app.app.services.clock;
    fixture.upstream.set_default_reply(answer());
    fixture.limit(json!({"name": "r", "requests": 3})).await;
    for _ in 0..3 {
        fixture.ask_model("m").send().await.expect(200);
    }
    clock.advance(-2_000);
    for _ in 0..5 {
        fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
    }
    clock.advance(2_000);
    fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
    clock.advance(61_000);
    for _ in 0..3 {
        fixture.ask_model("m").send().await.expect(200);
    }
    fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
}
