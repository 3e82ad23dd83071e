//! Budget reservations of requests that succeed, fail, are cut off or die with the process. The reservation is
//! released, and usage is counted once.

use std::time::Duration;

use gateway_core::time::DAY;
use http::Method;
use serde_json::{Value, json};

use crate::support::receiver::{WAIT_TIMEOUT, receiver};
use crate::support::{Backend, GatewayProcess, PASSWORD, ProxyFixture, TestApp, command, fresh_settings};
use crate::upstream::{Reply, Upstream};

/// 10 + 100 tokens of gpt-4o cost 0.001025 USD.
const ANSWER: &str = r#"{"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}"#;
const COST: f64 = 0.001_025;
const CHAT: &str = "/v1/chat/completions";

fn ask() -> Value {
    json!({"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]})
}

/// A gateway whose organization has a budget for this many requests.
async fn started(backend: Backend, calls: f64) -> (ProxyFixture, String) {
    let proxy = ProxyFixture::start_with(backend, &[]).await;
    proxy.upstream.set_default_reply(Reply::json(200, ANSWER));
    let id = budget(&proxy, json!({"scope": "org", "period": "daily", "hard_limit_usd": calls * COST})).await;
    (proxy, id)
}

async fn budget(proxy: &ProxyFixture, body: Value) -> String {
    let path = format!("/api/v1/orgs/{}/budgets", proxy.ada.org_id);
    let made = proxy.app.post(&path, body).bearer(&proxy.ada.token).send().await.expect(201);
    format!("{path}/{}", made["id"].as_str().unwrap())
}

async fn spent(app: &TestApp, key: &str, path: &str) -> f64 {
    app.get(path).key(key).send().await.expect(200)["spent_usd"].as_f64().unwrap()
}

fn near(usd: f64, expected: f64) -> bool {
    (usd - expected).abs() < 1e-9
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_gives_back_what_was_held_for_it() {
    for backend in Backend::BOTH {
        // The budget covers one request: a leaked reservation would reject the next one.
        let (proxy, path) = started(backend, 1.0).await;
        for (reply, status) in [
            (Reply::json(500, "{}"), 502),
            (Reply::reset().then_reset(), 502),
            (Reply::json(400, r#"{"error":{"message":"no"}}"#), 400),
            (Reply::json(429, r#"{"error":{"message":"slow down"}}"#), 429),
            (Reply::no_response(), 504),
        ] {
            proxy.upstream.push(reply);
            let call = proxy.chat(&ask());
            let call = if status == 504 { call.header("x-gateway-timeout", "300") } else { call };
            let answer = call.send().await;
            assert_eq!(answer.status, status, "{}", answer.text());
        }
        assert!(near(spent(&proxy.app, &proxy.ada.api_key, &path).await, 0.0));
        proxy.chat(&ask()).send().await.expect(200);
        proxy.chat(&ask()).send().await.expect_error(403, "budget_exceeded");
        assert!(near(spent(&proxy.app, &proxy.ada.api_key, &path).await, COST));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_pays_for_what_was_used_and_for_no_more() {
    for backend in Backend::BOTH {
        let (proxy, path) = started(backend, 1.0).await;
        let body =
            json!({"model": "gpt-4o", "stream": true, "max_tokens": 16_000, "messages": []}).to_string();
        // Before the first byte: nothing was used.
        proxy.upstream.push(Reply::no_response());
        let mut raw = proxy.connect().await;
        raw.send(proxy.raw_post("openai", CHAT, &[], body.as_bytes())).await;
        proxy.upstream.wait_for_requests(1, WAIT_TIMEOUT).await;
        let held = proxy.chat(&ask()).send().await.expect_error(403, "budget_exceeded");
        assert!(held["message"].as_str().unwrap().contains("reserved"), "{held}");
        drop(raw);
        proxy.upstream.wait_for_aborts(1, WAIT_TIMEOUT).await;
        let rows = proxy.wait_for_rows(2).await;
        let statuses: Vec<_> = rows.iter().map(|row| &row["status"]).collect();
        assert_eq!(statuses, [&json!(499), &json!(403)]);
        assert!(near(spent(&proxy.app, &proxy.ada.api_key, &path).await, 0.0));
        // In the middle of the stream, the usage so far counts.
        let text = json!({"choices": [{"index": 0, "delta": {"content": "y".repeat(400)}}]}).to_string();
        proxy.upstream.push(Reply::sse(&[&text]).then_stall());
        let mut raw = proxy.connect().await;
        raw.send(proxy.raw_post("openai", CHAT, &[], body.as_bytes())).await;
        let head = raw.head().await;
        raw.chunks_until("yyyy").await;
        drop(raw);
        proxy.upstream.wait_for_aborts(2, WAIT_TIMEOUT).await;
        let row = proxy.log_row_by_id(head.log_id()).await;
        let cost = row["cost_usd"].as_f64().unwrap();
        assert!(cost > 0.0 && cost < 16_000.0 * 1e-5, "not all that it might have cost: {cost}");
        assert!(near(spent(&proxy.app, &proxy.ada.api_key, &path).await, cost), "and it is counted once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_stay_within_every_budget_that_covers_them() {
    for backend in Backend::BOTH {
        let (proxy, whole) = started(backend, 12.0).await;
        proxy.upstream.set_default_reply(Reply::json(200, ANSWER).delay(Duration::from_millis(20)));
        let key = proxy.app.create_key(&proxy.ada.token, json!({"name": "k"})).await;
        let limit =
            json!({"scope": "key", "scope_id": key.id, "period": "monthly", "hard_limit_usd": 5.0 * COST});
        let of_key = budget(&proxy, limit).await;
        let call = |raw: &str| {
            let call = proxy.app.call(Method::POST, CHAT).key(raw).header("x-gateway-provider", "openai");
            tokio::spawn(call.json(ask()).send())
        };
        let calls: Vec<_> = (0..120)
            .map(|number| call(if number % 2 == 0 { &key.raw } else { &proxy.ada.api_key }))
            .collect();
        let mut passed = 0;
        for answer in calls {
            passed += i32::from(answer.await.unwrap().status == 200);
        }
        let (all, part) = (
            spent(&proxy.app, &proxy.ada.api_key, &whole).await,
            spent(&proxy.app, &proxy.ada.api_key, &of_key).await,
        );
        assert!(near(all, f64::from(passed) * COST), "{all} for {passed}");
        assert!(part <= 6.0 * COST + 1e-9 && all <= 13.0 * COST + 1e-9, "{part} of {all}");
    }
}

async fn is_killed_in_the_middle(backend: Backend) {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, ANSWER));
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    settings.push(("GATEWAY_PROVIDER_OPENAI_BASE_URL".to_owned(), upstream.url()));
    let start = || GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned()));
    let process = start();
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
    let account = process.post("/api/v1/signup", &body).send().await.expect(201);
    let key = account["api_key"].as_str().unwrap().to_owned();
    let budgets = format!("/api/v1/orgs/{}/budgets", account["org"]["id"].as_str().unwrap());
    let limit =
        json!({"scope": "org", "period": "monthly", "soft_limit_usd": COST, "hard_limit_usd": 8.0 * COST});
    let made = process.post(&budgets, &limit).key(&key).send().await.expect(201);
    let path = format!("{budgets}/{}", made["id"].as_str().unwrap());
    let call = |process: &GatewayProcess| {
        process.post(CHAT, &ask()).key(&key).header("x-gateway-provider", "openai")
    };
    for _ in 0..3 {
        call(&process).send().await.expect(200);
    }
    // These requests have reservations when the process dies, so nothing settles them.
    upstream.set_default_reply(Reply::no_response());
    let open: Vec<_> = (0..5).map(|_| tokio::spawn(call(&process).send())).collect();
    upstream.wait_for_requests(8, WAIT_TIMEOUT).await;
    call(&process).send().await.expect_error(403, "budget_exceeded");
    drop(process);
    for call in open {
        call.abort();
    }

    upstream.set_default_reply(Reply::json(200, ANSWER));
    let process = start();
    let spent = async || process.get(&path).key(&key).send().await.expect(200)["spent_usd"].as_f64().unwrap();
    for _ in 0..200 {
        // The last rows may still be in the spool.
        if near(spent().await, 3.0 * COST) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(near(spent().await, 3.0 * COST), "what was spent, once: {}", spent().await);
    // On PostgreSQL another node may still be alive, so reservations are released only when the node's lease expires.
    let mut first = call(&process).send().await;
    for _ in 0..45 {
        if first.status == 200 || backend == Backend::Sqlite {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        first = call(&process).send().await;
    }
    first.expect(200);
    for _ in 0..4 {
        call(&process).send().await.expect(200);
    }
    call(&process).send().await.expect_error(403, "budget_exceeded");
    assert!(near(spent().await, 8.0 * COST));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_held_is_free_after_a_kill_and_what_was_spent_is_not_on_sqlite() {
    is_killed_in_the_middle(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_held_is_free_after_a_kill_and_what_was_spent_is_not_on_postgres() {
    is_killed_in_the_middle(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_get_each_limit_event_once_per_period_also_over_a_restart() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        proxy.app.set_enterprise_plan(&proxy.ada).await;
        proxy.upstream.set_default_reply(Reply::json(200, ANSWER));
        let hooks = receiver(Reply::new(200)).await;
        proxy.app.create_webhook(&proxy.ada, &hooks.url(), &["budget.warning", "budget.exceeded"]).await;
        let limits =
            json!({"scope": "org", "period": "daily", "soft_limit_usd": COST, "hard_limit_usd": 3.0 * COST});
        budget(&proxy, limits).await;
        let kinds = |count: usize| {
            let hooks = &hooks;
            async move {
                let events = hooks.wait_for_requests(count, WAIT_TIMEOUT).await;
                events
                    .iter()
                    .map(|event| event.json()["type"].as_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            }
        };
        proxy.chat(&ask()).send().await.expect(200);
        assert_eq!(kinds(1).await, ["budget.warning"]);
        let ProxyFixture { app, upstream, ada } = proxy;
        let (config, data) = app.stop().await;
        let proxy = ProxyFixture { app: TestApp::start(config, data).await, upstream, ada };
        proxy.chat(&ask()).send().await.expect(200);
        proxy.chat(&ask()).send().await.expect(200);
        assert_eq!(kinds(2).await, ["budget.warning", "budget.exceeded"]);
        let ProxyFixture { app, upstream, ada } = proxy;
        let (config, data) = app.stop().await;
        let proxy = ProxyFixture { app: TestApp::start(config, data).await, upstream, ada };
        proxy.chat(&ask()).send().await.expect_error(403, "budget_exceeded");
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(hooks.requests().len(), 2, "no limit is told of twice");
        proxy.app.app.services.clock.advance(DAY);
        for _ in 0..3 {
            proxy.chat(&ask()).send().await.expect(200);
        }
        let mut told = kinds(4).await.split_off(2);
        told.sort_unstable();
        assert_eq!(told, ["budget.exceeded", "budget.warning"], "a new day");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn judges_count_and_what_others_report_does_not() {
    for backend in Backend::BOTH {
        let (proxy, path) = started(backend, 2.5).await;
        let start = u64::try_from(proxy.app.app.services.clock.now().0 - 5_000).unwrap() * 1_000_000;
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let span = json!({"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "chat",
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": start.to_string(), "attributes": [
                text("gen_ai.operation.name", "chat"), text("gen_ai.provider.name", "openai"),
                text("gen_ai.request.model", "gpt-4o"),
                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "1000000000000000"}}]});
        let traces = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]});
        proxy.app.post("/api/v1/otel/v1/traces", traces).key(&proxy.ada.api_key).send().await.expect(200);
        let row = proxy.only_row().await;
        assert!(row["cost_usd"].as_f64().unwrap() > 1_000.0, "it costs, wherever it was paid: {row}");
        assert!(near(spent(&proxy.app, &proxy.ada.api_key, &path).await, 0.0));
        let answered = proxy.chat(&ask()).send().await;
        answered.expect(200);
        // As loaded from the store, not only from memory.
        proxy.app.app.proxy.budgets.load(proxy.ada.org_id.parse().unwrap()).await.unwrap();
        let seen = spent(&proxy.app, &proxy.ada.api_key, &path).await;
        assert!(near(seen, COST), "{seen}");

        let verdict = r#"{"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"{\"score\":1,\"reason\":\"ok\"}"}}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}"#;
        proxy.upstream.set_default_reply(Reply::json(200, verdict));
        let judge = json!({"provider": "openai", "model": "gpt-4o", "criteria": "any"});
        let eval = proxy.app.eval(&proxy.ada, "llm", "judge", judge).await;
        let only = json!({"log_ids": [crate::support::log_id(&answered)]});
        let run = proxy.app.eval_run(&proxy.ada, &eval, only.clone()).await;
        assert_eq!(run["status"], "completed", "{run}");
        assert!(near(spent(&proxy.app, &proxy.ada.api_key, &path).await, 2.0 * COST));
        proxy.chat(&ask()).send().await.expect(200);
        let calls = proxy.upstream.requests().len();
        let run = proxy.app.eval_run(&proxy.ada, &eval, only).await;
        assert_eq!((&run["status"], proxy.upstream.requests().len()), (&json!("failed"), calls), "{run}");
        assert!(run["error"].as_str().unwrap().contains("budget"), "{run}");
    }
}
