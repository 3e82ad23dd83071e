//! Calls that wait for their limits: order, ageing, bounds, hang-ups, drain, and shares of classes.

use std::time::Duration;

use serde_json::json;

use crate::support::limits::{answer, chat_body};
use crate::support::{Backend, ProxyFixture, TestResponse};
use crate::upstream::{Reply, Signal};

/// A fixture with one concurrent call, which is running until the signal.
async fn occupied(backend: Backend) -> (ProxyFixture, Signal, tokio::task::JoinHandle<TestResponse>) {
    let fixture = ProxyFixture::start_with(backend, &[]).await;
    let signal = Signal::new();
    fixture.upstream.push(answer().wait_before_head(&signal));
    fixture.upstream.set_default_reply(answer());
    fixture.limit(json!({"name": "one", "concurrent": 1})).await;
    let first = tokio::spawn(fixture.ask_model("first").send());
    fixture.upstream.wait_for_requests(1, Duration::from_secs(10)).await;
    (fixture, signal, first)
}

fn waiting(fixture: &ProxyFixture, name: &str, priority: u8) -> tokio::task::JoinHandle<TestResponse> {
    let call = fixture.ask_model(name).header("x-gateway-wait", "30000");
    tokio::spawn(call.header("x-gateway-priority", &priority.to_string()).send())
}

/// Sets the clock, so that the time that a test takes does not count as waiting.
fn set_clock(fixture: &ProxyFixture, at: i64) {
    let clock = &fixture.app.app.services.clock;
    clock.advance(at - clock.now().0);
}

/// The models in the order in which the upstream got their requests.
fn served(fixture: &ProxyFixture) -> Vec<String> {
    let model = |body: &[u8]| {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        body["model"].as_str().unwrap().to_owned()
    };
    fixture.upstream.requests().iter().map(|request| model(&request.body)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_are_served_by_priority_then_by_arrival() {
    let (fixture, signal, first) = occupied(Backend::Sqlite).await;
    let mut calls = Vec::new();
    let start = fixture.app.app.services.clock.now().0;
    for round in 0..10 {
        for priority in 0..10_u8 {
            // All within a second, which is less than a step of priority.
            set_clock(&fixture, start + 100 * round);
            calls.push(waiting(&fixture, &format!("p{priority}-{round}"), priority));
            fixture.wait_for_waiting(calls.len()).await;
        }
    }
    signal.notify();
    assert_eq!(first.await.unwrap().status, 200);
    for call in calls {
        let answer = call.await.unwrap();
        answer.expect(200);
    }
    let mut expected = vec!["first".to_owned()];
    for priority in (0..10).rev() {
        expected.extend((0..10).map(|round| format!("p{priority}-{round}")));
    }
    assert_eq!(served(&fixture), expected);
    let rows = fixture.wait_for_rows(101).await;
    let queued = rows.iter().filter(|row| row["queued_ms"].as_u64().is_some()).count();
    assert_eq!(queued, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_seconds_of_waiting_count_as_a_step_so_nobody_starves() {
    let (fixture, signal, first) = occupied(Backend::Sqlite).await;
    let start = fixture.app.app.services.clock.now().0;
    let low = waiting(&fixture, "low", 0);
    fixture.wait_for_waiting(1).await;
    set_clock(&fixture, start + 16_000);
    let before = waiting(&fixture, "before", 9);
    fixture.wait_for_waiting(2).await;
    set_clock(&fixture, start + 30_000);
    let after = waiting(&fixture, "after", 9);
    fixture.wait_for_waiting(3).await;
    signal.notify();
    for call in [first, low, before, after] {
        call.await.unwrap().expect(200);
    }
    assert_eq!(served(&fixture), ["first", "before", "low", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_the_refill_and_no_longer_than_it_asked_for() {
    for backend in Backend::BOTH {
        let fixture = ProxyFixture::start_with(backend, &[]).await;
        fixture.upstream.set_default_reply(answer());
        // A hundred tokens a second.
        fixture.limit(json!({"name": "t", "tokens": 6_000})).await;
        let mut large = chat_body("m");
        large["max_tokens"] = 5_900.into();
        fixture.upstream.push(Reply::json(
            200,
            r#"{"choices":[],"usage":{"prompt_tokens":5950,"completion_tokens":350}}"#,
        ));
        fixture.chat(&large).send().await.expect(200);
        let waited = fixture.ask_model("m").header("x-gateway-wait", "20000").send().await;
        waited.expect(200);
        let row = fixture.log_row(&waited).await;
        let queued = row["queued_ms"].as_u64().unwrap();
        assert!((1..10_000).contains(&queued), "{row}");
        assert_eq!(row["limits"][0]["waited_ms"], row["queued_ms"]);
        let gave_up = fixture.chat(&large).header("x-gateway-wait", "30").send().await;
        gave_up.expect_error(429, "rate_limited");
        assert!(gave_up.header("retry-after").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_says_how_its_calls_wait() {
    let (fixture, signal, first) = occupied(Backend::Sqlite).await;
    let key = json!({"name": "patient", "wait_ms": 20_000, "max_priority": 3});
    let made = fixture.app.post("/api/v1/keys", key).bearer(&fixture.ada.token).send().await.expect(201);
    let patient = made["raw_key"].as_str().unwrap().to_owned();
    let call = |model: &str, priority: &str| {
        let body = chat_body(model);
        let call = fixture.app.post("/v1/chat/completions", body).key(&patient);
        tokio::spawn(
            call.header("x-gateway-provider", "openai").header("x-gateway-priority", priority).send(),
        )
    };
    let bold = call("bold", "9");
    fixture.wait_for_waiting(1).await;
    let usual = waiting(&fixture, "usual", 4);
    fixture.wait_for_waiting(2).await;
    signal.notify();
    for call in [first, bold, usual] {
        call.await.unwrap().expect(200);
    }
    assert_eq!(served(&fixture), ["first", "usual", "bold"], "9 is more than the key may ask for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_leaves_the_queue() {
    let (fixture, signal, first) = occupied(Backend::Sqlite).await;
    let headers = [("content-type", "application/json"), ("x-gateway-wait", "30000")];
    let body = chat_body("gone").to_string();
    let mut connection = fixture.connect().await;
    connection.send(fixture.raw_post("openai", "/v1/chat/completions", &headers, body.as_bytes())).await;
    fixture.wait_for_waiting(1).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(connection);
    fixture.wait_for_waiting(0).await;
    signal.notify();
    first.await.unwrap().expect(200);
    let rows = fixture.wait_for_rows(2).await;
    let gone = rows.iter().find(|row| row["status"] == 499).unwrap_or_else(|| panic!("{rows:?}"));
    assert!(gone["queued_ms"].as_u64() >= Some(20), "the row says how long it waited: {gone}");
    assert_eq!(served(&fixture), ["first"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_sends_those_who_wait_to_another() {
    let (fixture, signal, first) = occupied(Backend::Sqlite).await;
    let calls: Vec<_> = (0..5).map(|_| waiting(&fixture, "late", 5)).collect();
    fixture.wait_for_waiting(5).await;
    fixture.app.app.services.tasks.begin_stop();
    for call in calls {
        let answer = call.await.unwrap();
        answer.expect_error(503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    signal.notify();
    first.await.unwrap().expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_those_who_wait_are_bounded() {
    let (fixture, signal, first) = occupied(Backend::Sqlite).await;
    let mut body = chat_body("large");
    body["messages"][0]["content"] = "x".repeat(6 << 20).into();
    let call = || tokio::spawn(fixture.chat(&body).header("x-gateway-wait", "30000").send());
    let waits = [call(), call()];
    fixture.wait_for_waiting(2).await;
    let refused = call().await.unwrap();
    refused.expect_error(429, "rate_limited");
    signal.notify();
    first.await.unwrap().expect(200);
    for call in waits {
        call.await.unwrap().expect(200);
    }
}

/// One user whose own bucket is empty waits, and does not hold up others who share another limit with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_an_own_bucket_holds_up_nobody_else() {
    let fixture = ProxyFixture::start().await;
    fixture.upstream.set_default_reply(answer());
    fixture.limit(json!({"name": "all", "requests": 1000, "window": "day"})).await;
    fixture.limit(json!({"name": "each", "requests": 1, "window": "day", "per": "user"})).await;
    let call = |user: &str| fixture.ask_model("m").header("x-gateway-user", user);
    call("u1").send().await.expect(200);
    let waits = tokio::spawn(call("u1").header("x-gateway-wait", "2000").send());
    fixture.wait_for_waiting(1).await;
    call("u2").send().await.expect(200);
    waits.await.unwrap().expect_error(429, "rate_limited");
}

/// Keys of a class always find its share; others stop before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_is_kept_for_the_keys_of_its_class() {
    for backend in Backend::BOTH {
        let fixture = ProxyFixture::start_with(backend, &[]).await;
        fixture.upstream.set_default_reply(answer());
        let key = json!({"name": "prod", "class": "prod"});
        let made = fixture.app.post("/api/v1/keys", key).bearer(&fixture.ada.token).send().await.expect(201);
        let prod = made["raw_key"].as_str().unwrap().to_owned();
        fixture.limit(json!({"name": "l", "requests": 100, "window": "day", "reserve": {"prod": 0.7}})).await;
        let as_prod = || {
            let call = fixture.app.post("/v1/chat/completions", chat_body("m")).key(&prod);
            call.header("x-gateway-provider", "openai").send()
        };
        as_prod().await.expect(200);
        let mut others = 0;
        while fixture.ask_model("m").send().await.status == 200 {
            others += 1;
            assert!(others <= 30);
        }
        assert_eq!(others, 29, "of the 30 that are not reserved one was used by the class itself");
        for _ in 0..5 {
            as_prod().await.expect(200);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_of_the_concurrent_calls_is_kept_for_the_keys_of_its_class() {
    for backend in Backend::BOTH {
        let fixture = ProxyFixture::start_with(backend, &[]).await;
        let key = json!({"name": "prod", "class": "prod"});
        let made = fixture.app.post("/api/v1/keys", key).bearer(&fixture.ada.token).send().await.expect(201);
        let prod = made["raw_key"].as_str().unwrap().to_owned();
        let signal = Signal::new();
        for _ in 0..10 {
            fixture.upstream.push(answer().wait_before_head(&signal));
        }
        fixture.limit(json!({"name": "c", "concurrent": 10, "reserve": {"prod": 0.7}})).await;
        let as_prod = || {
            let call = fixture.app.post("/v1/chat/completions", chat_body("m")).key(&prod);
            tokio::spawn(call.header("x-gateway-provider", "openai").send())
        };
        let mut running = Vec::new();
        let is_prod = |count: usize| count == 1 || count > 3;
        for count in 1..=10 {
            if count == 4 {
                let refused = fixture.ask_model("m").send().await.expect_error(429, "rate_limited");
                assert_eq!(refused["limit"]["unit"], "concurrent");
            }
            let other = || tokio::spawn(fixture.ask_model("m").send());
            running.push(if is_prod(count) { as_prod() } else { other() });
            fixture.upstream.wait_for_requests(count, Duration::from_secs(20)).await;
        }
        as_prod().await.unwrap().expect_error(429, "rate_limited");
        signal.notify();
        for call in running {
            call.await.unwrap().expect(200);
        }
    }
}
