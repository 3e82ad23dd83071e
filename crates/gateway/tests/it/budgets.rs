//! Budgets: permissions, what counts against them, and what happens when they are exhausted.

use std::time::Duration;

use gateway_core::time::DAY;
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::fields;
use crate::support::{Account, Backend, ProxyFixture, TestApp, TestRequest, TestResponse};
use crate::upstream::{Reply, Signal};

/// 10 + 100 tokens of gpt-4o cost 0.001025 USD.
const ANSWER: &str = r#"{"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}"#;
const COST: f64 = 0.001_025;

fn path(of: &Account) -> String {
    format!("/api/v1/orgs/{}/budgets", of.org_id)
}

fn org_budget(hard: f64) -> Value {
    json!({"scope": "org", "period": "daily", "hard_limit_usd": hard})
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&path(by), body).bearer(&by.token).send().await
}

async fn get(app: &TestApp, by: &Account, id: &Value) -> Value {
    let path = format!("{}/{}", path(by), id.as_str().unwrap());
    app.get(&path).bearer(&by.token).send().await.expect(200)
}

fn near(value: &Value, usd: f64) -> bool {
    (value.as_f64().unwrap() - usd).abs() < 1e-9
}

fn ask() -> Value {
    json!({"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]})
}

/// The same request with another key.
fn ask_with(proxy: &ProxyFixture, key: &str) -> TestRequest {
    let call = proxy.app.call(Method::POST, "/v1/chat/completions").key(key);
    call.header("x-gateway-provider", "openai").json(ask())
}

async fn started(backend: Backend) -> ProxyFixture {
    let proxy = ProxyFixture::start_with(backend, &[]).await;
    proxy.upstream.set_default_reply(Reply::json(200, ANSWER));
    proxy
}

/// Waits for `count` budget events.
async fn events(app: &TestApp, org: &str, count: usize) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for _ in 0..100 {
        found = app.events(org).await;
        found.retain(|(kind, _)| kind.starts_with("budget."));
        if found.len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    found
}

on_both!(a_budget_is_created_read_changed_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"scope": "org", "period": "monthly", "soft_limit_usd": 5, "hard_limit_usd": 10.5});
    let made = create(&app, &ada, body).await.expect(201);
    assert_eq!(
        fields(&made),
        [
            "created_at",
            "hard_limit_usd",
            "id",
            "opening_usd",
            "period",
            "resets_at",
            "scope",
            "scope_id",
            "soft_limit_usd",
            "spent_usd",
            "unpriced",
            "unpriced_flat_usd"
        ]
    );
    assert_eq!((&made["scope"], &made["scope_id"]), (&json!("org"), &json!(ada.org_id)));
    assert_eq!((&made["soft_limit_usd"], &made["hard_limit_usd"]), (&json!(5.0), &json!(10.5)));
    assert_eq!(made["spent_usd"], json!(0.0));
    assert!(made["resets_at"].as_str().unwrap().ends_with("-01T00:00:00.000Z"));
    assert_eq!(get(&app, &ada, &made["id"]).await, made);
    let list = app.get(&path(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list, json!({"budgets": [made], "next_cursor": null}));
    let one = format!("{}/{}", path(&ada), made["id"].as_str().unwrap());
    let change = json!({"soft_limit_usd": null, "hard_limit_usd": 3, "period": "daily"});
    let changed = app.put(&one, change).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&changed["soft_limit_usd"], &changed["hard_limit_usd"]), (&Value::Null, &json!(3.0)));
    assert_eq!((&changed["period"], &changed["id"]), (&json!("daily"), &made["id"]));
    let gone = app.delete(&one).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    for answer in [
        app.get(&one).bearer(&ada.token).send().await,
        app.delete(&one).bearer(&ada.token).send().await,
        app.put(&one, json!({"hard_limit_usd": 1})).bearer(&ada.token).send().await,
    ] {
        answer.expect_error(404, "not_found");
    }
});

on_both!(what_makes_no_sense_is_refused_by_its_name, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let nobody = uuid::Uuid::new_v4().to_string();
    for (change, named) in [
        (json!({"scope": "user"}), "scope"),
        (json!({"scope": "team"}), "scope_id"),
        (json!({"scope": "team", "scope_id": nobody}), "scope_id"),
        (json!({"scope": "app", "scope_id": nobody}), "scope_id"),
        (json!({"scope": "key", "scope_id": nobody}), "scope_id"),
        (json!({"scope": "key", "scope_id": "x"}), "scope_id"),
        (json!({"scope_id": eve.org_id}), "scope_id"),
        (json!({"period": "yearly"}), "period"),
        (json!({"hard_limit_usd": -1}), "hard_limit_usd"),
        (json!({"hard_limit_usd": 1_000_000_001}), "hard_limit_usd"),
        (json!({"hard_limit_usd": "1"}), "hard_limit_usd"),
        (json!({"hard_limit_usd": null}), "hard_limit_usd"),
        (json!({"soft_limit_usd": 2}), "soft_limit_usd"),
        (json!({"soft_limit_usd": 0}), "soft_limit_usd"),
    ] {
        let mut body = org_budget(1.0);
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let error = create(&app, &ada, body).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{change}: {error}");
    }
    let list = app.get(&path(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["budgets"], json!([]));
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_may_be_a_billion() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let body = json!({"scope": "org", "period": "monthly", "soft_limit_usd": 12_345_678.5, "hard_limit_usd": 1e9});
        let made = create(&proxy.app, &proxy.ada, body).await.expect(201);
        assert_eq!((&made["soft_limit_usd"], &made["hard_limit_usd"]), (&json!(12_345_678.5), &json!(1e9)));
        let answer = proxy.chat(&ask()).send().await;
        answer.expect(200);
        let remaining: f64 = answer.header("x-gateway-budget-remaining").unwrap().parse().unwrap();
        assert!((999_999_999.0..=1e9).contains(&remaining), "{remaining}");
        proxy.log_row(&answer).await;
        let found = get(&proxy.app, &proxy.ada, &made["id"]).await;
        assert_eq!((&found["soft_limit_usd"], &found["hard_limit_usd"]), (&json!(12_345_678.5), &json!(1e9)));
        assert!(near(&found["spent_usd"], COST), "{found}");
        // The same budget with a small limit again.
        let one = format!("{}/{}", path(&proxy.ada), made["id"].as_str().unwrap());
        let change = json!({"soft_limit_usd": null, "hard_limit_usd": 0.001});
        let changed = proxy.app.put(&one, change).bearer(&proxy.ada.token).send().await.expect(200);
        assert_eq!(changed["hard_limit_usd"], json!(0.001));
        proxy.chat(&ask()).send().await.expect_error(403, "budget_exceeded");
    }
}

/// Sends 30 requests at once, each of which costs 0.01 USD, and returns how many were admitted.
async fn admitted_of_30(proxy: &ProxyFixture, provider: &str, body: &Value) -> usize {
    let usage = json!({"prompt_tokens": 0, "completion_tokens": 1_000, "total_tokens": 1_000});
    let choices = json!([{"index": 0, "message": {"role": "assistant", "content": "x"}}]);
    let answer = json!({"model": "gpt-4o", "choices": choices, "usage": usage}).to_string();
    let all_sent = Signal::new();
    proxy.upstream.set_default_reply(Reply::json(200, &answer).wait_before_head(&all_sent));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let call = proxy.post(provider, "/v1/chat/completions", body.to_string());
        calls.spawn(async move { call.send().await.status.as_u16() });
    }
    // A request is rejected or it is at the provider; then nothing more is decided.
    let (mut rejected, before) = (0, proxy.upstream.requests().len());
    while rejected + (proxy.upstream.requests().len() - before) < 30 {
        tokio::select! {
            Some(status) = calls.join_next() => {
                assert_eq!(status.unwrap(), 403);
                rejected += 1;
            }
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
    }
    all_sent.notify();
    let statuses = calls.join_all().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    statuses.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_of_another_type_is_reserved_for_all_the_same() {
    let ask = |fields: Value| {
        let mut body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    for (fields, provider, expected) in [
        (json!({"max_tokens": 1000}), "openai", 4),
        (json!({"max_tokens": "1000"}), "openai", 4),
        (json!({"max_tokens": 1000.0, "stream": "false"}), "openai", 4),
        (json!({"max_completion_tokens": "1000", "stream": 0, "stream_options": "none"}), "auto", 4),
        // The model's maximum is reserved for a limit that cannot be read.
        (json!({"max_tokens": [1000]}), "openai", 1),
        (json!({"max_tokens": 1000, "max_completion_tokens": "many"}), "openai", 1),
        (json!({"max_tokens": -1}), "openai", 1),
    ] {
        let proxy = started(Backend::Sqlite).await;
        create(&proxy.app, &proxy.ada, org_budget(0.035)).await.expect(201);
        assert_eq!(admitted_of_30(&proxy, provider, &ask(fields.clone())).await, expected, "{fields}");
    }
}

on_both!(admins_write_and_viewers_read, |app| async move {
    let ada = app.signup("acme").await;
    let member = app.join(&ada, "member").await;
    let viewer = app.join(&ada, "viewer").await;
    let admin = app.join(&ada, "admin").await;
    create(&app, &member, org_budget(1.0)).await.expect_error(403, "forbidden");
    let made = create(&app, &admin, org_budget(1.0)).await.expect(201);
    assert_eq!(get(&app, &viewer, &made["id"]).await["hard_limit_usd"], 1.0);
});

async fn a_spent_budget_refuses(backend: Backend) {
    let proxy = started(backend).await;
    let body = json!({"scope": "org", "period": "daily", "soft_limit_usd": 0.001, "hard_limit_usd": 0.002});
    let made = create(&proxy.app, &proxy.ada, body).await.expect(201);
    let first = proxy.chat(&ask()).send().await;
    first.expect(200);
    assert_eq!(first.header("x-gateway-budget-remaining"), Some("0.002"));
    let warned = events(&proxy.app, &proxy.ada.org_id, 1).await;
    assert_eq!(warned.len(), 1);
    let second = proxy.chat(&ask()).send().await;
    assert_eq!(second.header("x-gateway-budget-remaining"), Some("0.000975"));
    let calls = proxy.upstream.requests().len();
    let refused = proxy.chat(&ask()).send().await;
    let error = refused.expect_error(403, "budget_exceeded");
    assert_eq!((&error["error_code"], &error["error"]), (&error["code"], &error["message"]));
    assert_eq!(refused.header("x-gateway-budget-remaining"), Some("0"));
    // Requests by a member and by the playground count as well.
    let run = json!({"provider": "sandbox", "model": "m", "messages": [{"role": "user", "content": "x"}]});
    let tried = proxy.app.post("/api/v1/playground/run", run).bearer(&proxy.ada.token).send().await;
    tried.expect_error(403, "budget_exceeded");
    assert_eq!(proxy.upstream.requests().len(), calls, "nothing was sent");
    assert!(near(&get(&proxy.app, &proxy.ada, &made["id"]).await["spent_usd"], 2.0 * COST));
    let told = events(&proxy.app, &proxy.ada.org_id, 2).await;
    let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["budget.warning", "budget.exceeded"]);
    let data = &told[1].1;
    assert_eq!(fields(data), ["budget_id", "limit_usd", "period", "scope", "scope_id", "spent_usd"]);
    assert_eq!((&data["budget_id"], &data["limit_usd"]), (&made["id"], &json!(0.002)));
    assert!(near(&data["spent_usd"], 2.0 * COST));

    // After raising the limit the next request is admitted, and no event repeats within the period.
    let one = format!("{}/{}", path(&proxy.ada), made["id"].as_str().unwrap());
    proxy.app.put(&one, json!({"hard_limit_usd": 0.003})).bearer(&proxy.ada.token).send().await.expect(200);
    proxy.chat(&ask()).send().await.expect(200);
    proxy.chat(&ask()).send().await.expect_error(403, "budget_exceeded");
    // A new day starts with no spending.
    proxy.app.app.services.clock.advance(DAY);
    let next = proxy.chat(&ask()).send().await;
    assert_eq!(next.header("x-gateway-budget-remaining"), Some("0.003"));
    next.expect(200);
    // The session token has expired by now.
    let read = proxy.app.get(&one).key(&proxy.ada.api_key).send().await.expect(200);
    assert!(near(&read["spent_usd"], COST));
    let told = events(&proxy.app, &proxy.ada.org_id, 3).await;
    assert_eq!(told.len(), 3, "the warning of the new day: {told:?}");
    // Without a budget the response does not mention one.
    proxy.app.delete(&one).key(&proxy.ada.api_key).send().await.expect(200);
    assert_eq!(proxy.chat(&ask()).send().await.header("x-gateway-budget-remaining"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_refuses_until_there_is_money_or_a_new_day_on_sqlite() {
    a_spent_budget_refuses(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_refuses_until_there_is_money_or_a_new_day_on_postgres() {
    a_spent_budget_refuses(Backend::Postgres).await;
}

async fn many_at_once(backend: Backend) {
    let proxy = started(backend).await;
    proxy.upstream.set_default_reply(Reply::json(200, ANSWER).delay(Duration::from_millis(20)));
    let limit = 10.0 * COST;
    let made = create(&proxy.app, &proxy.ada, org_budget(limit)).await.expect(201);
    let calls: Vec<_> = (0..200).map(|_| tokio::spawn(proxy.chat(&ask()).send())).collect();
    let mut passed = 0;
    for call in calls {
        let answer = call.await.unwrap();
        if answer.status == 200 {
            passed += 1;
        } else {
            answer.expect_error(403, "budget_exceeded");
        }
    }
    let spent = get(&proxy.app, &proxy.ada, &made["id"]).await["spent_usd"].clone();
    assert!((1..=11).contains(&passed), "{passed} passed");
    assert!(near(&spent, f64::from(passed) * COST), "{spent}");
    assert!(spent.as_f64().unwrap() <= limit + COST);
    // Their reservations are released: the rest of the budget can be spent.
    while proxy.chat(&ask()).send().await.status == 200 {
        passed += 1;
    }
    assert!((10..=11).contains(&passed), "{passed} in all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_spend_no_more_than_the_limit_and_one_call_on_sqlite() {
    many_at_once(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_spend_no_more_than_the_limit_and_one_call_on_postgres() {
    many_at_once(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_scope_counts_its_own_and_all_apply_together() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let make = async |what: &str, body: Value| {
            let path = format!("/api/v1/orgs/{}/{what}", proxy.ada.org_id);
            proxy.app.post(&path, body).bearer(&proxy.ada.token).send().await.expect(201)["id"].clone()
        };
        let team = make("teams", json!({"name": "t"})).await;
        let app = make("apps", json!({"name": "a", "team_id": team})).await;
        let key = proxy.app.create_key(&proxy.ada.token, json!({"name": "k", "app_id": app})).await;
        for (scope, id) in [("team", &team), ("app", &app), ("key", &json!(key.id))] {
            let body = json!({"scope": scope, "scope_id": id, "period": "weekly", "hard_limit_usd": COST});
            let made = create(&proxy.app, &proxy.ada, body).await.expect(201);
            assert_eq!((&made["scope"], &made["scope_id"]), (&json!(scope), id));
            // Spending from before the budget's creation counts, so all but the first are exhausted already.
            let first = ask_with(&proxy, &key.raw).send().await;
            assert_eq!(first.status, if scope == "team" { 200 } else { 403 }, "{scope}");
            ask_with(&proxy, &key.raw).send().await.expect_error(403, "budget_exceeded");
            let other = proxy.chat(&ask()).send().await;
            assert_eq!((other.status.as_u16(), other.header("x-gateway-budget-remaining")), (200, None));
            assert!(near(&get(&proxy.app, &proxy.ada, &made["id"]).await["spent_usd"], COST), "{scope}");
            if scope == "key" {
                // A rotated key keeps its budget.
                let fresh =
                    proxy.app.post(&format!("{}/rotate", key.path()), json!({})).bearer(&proxy.ada.token);
                let fresh = fresh.send().await.expect(201);
                let raw = fresh["raw_key"].as_str().unwrap();
                ask_with(&proxy, raw).send().await.expect_error(403, "budget_exceeded");
            }
            let one = format!("{}/{}", path(&proxy.ada), made["id"].as_str().unwrap());
            proxy.app.delete(&one).bearer(&proxy.ada.token).send().await.expect(200);
        }
        let eve = proxy.app.signup("evil").await;
        create(&proxy.app, &proxy.ada, org_budget(0.0)).await.expect(201);
        proxy.chat(&ask()).send().await.expect_error(403, "budget_exceeded");
        ask_with(&proxy, &eve.api_key).send().await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_cached_answers_and_unpriced_models_cost_nothing() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let made = create(&proxy.app, &proxy.ada, org_budget(1.0)).await.expect(201);
        let cached = || proxy.chat(&ask()).header("x-gateway-cache", "true").send();
        cached().await.expect(200);
        let hit = cached().await;
        assert_eq!(
            (hit.header("x-gateway-cache"), hit.header("x-gateway-budget-remaining").is_some()),
            (Some("HIT"), true)
        );
        let unpriced = json!({"model": "nobody-knows", "messages": [{"role": "user", "content": "hi"}]});
        proxy.upstream.push(Reply::json(200, &ANSWER.replace("gpt-4o", "nobody-knows")));
        proxy.chat(&unpriced).send().await.expect(200);
        proxy.upstream.set_default_reply(Reply::json(400, r#"{"error":{"message":"no"}}"#));
        assert_eq!(proxy.chat(&ask()).send().await.status, 400);
        assert!(near(&get(&proxy.app, &proxy.ada, &made["id"]).await["spent_usd"], COST));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_spent_outlives_a_restart_and_is_counted_once() {
    for backend in Backend::BOTH {
        let ProxyFixture { app, upstream, ada } = started(backend).await;
        let made = create(&app, &ada, org_budget(2.0 * COST)).await.expect(201);
        let proxy = ProxyFixture { app, upstream, ada };
        proxy.chat(&ask()).send().await.expect(200);
        let ProxyFixture { app, upstream, ada } = proxy;
        let (config, data) = app.stop().await;
        let proxy = ProxyFixture { app: TestApp::start(config, data).await, upstream, ada };
        assert!(near(&get(&proxy.app, &proxy.ada, &made["id"]).await["spent_usd"], COST));
        proxy.chat(&ask()).send().await.expect(200);
        proxy.chat(&ask()).send().await.expect_error(403, "budget_exceeded");
        proxy.wait_for_rows(3).await;
        assert!(near(&get(&proxy.app, &proxy.ada, &made["id"]).await["spent_usd"], 2.0 * COST));
        assert_eq!(events(&proxy.app, &proxy.ada.org_id, 1).await.len(), 1);
    }
}

on_both!(what_was_read_can_be_put_back_and_unknown_fields_are_ignored, |app| async move {
    let ada = app.signup("acme").await;
    let mut body = org_budget(2.0);
    body["colour"] = json!("red");
    let mut made = create(&app, &ada, body).await.expect(201);
    let one = format!("{}/{}", path(&ada), made["id"].as_str().unwrap());
    made["hard_limit_usd"] = json!(3.0);
    let changed = app.put(&one, made.clone()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(changed, made);
    // A misspelt limit alone is none.
    let misspelt = json!({"scope": "org", "period": "daily", "hard_limit": 1});
    create(&app, &ada, misspelt).await.expect_error(400, "bad_request");
});

on_both!(a_wrong_limit_of_the_list_is_named, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, org_budget(2.0)).await.expect(201);
    let list = |query: &str| app.get(&format!("{}?{query}", path(&ada))).bearer(&ada.token).send();
    for query in ["limit=abc", "limit=0", "limit=1.5&user=ada"] {
        let error = list(query).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().starts_with("limit: "), "{query}: {error}");
    }
    for query in ["limit=", "limit=1", "limit=1&user="] {
        let found = list(query).await.expect(200);
        assert_eq!(found["budgets"].as_array().unwrap().len(), 1, "{query}: {found}");
    }
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_has_a_row_without_cost_or_attempts() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let made = create(&proxy.app, &proxy.ada, org_budget(COST)).await.expect(201);
        proxy.chat(&ask()).send().await.expect(200);
        let refused = proxy.chat(&ask()).send().await;
        let error = refused.expect_error(403, "budget_exceeded");
        assert_eq!(error["budget_id"], made["id"]);
        assert_eq!(refused.header("x-gateway-budget-remaining"), Some("0"));
        assert!(refused.header("x-gateway-request-id").is_some());
        let row = proxy.log_row(&refused).await;
        assert_eq!((&row["status"], &row["error_code"]), (&json!(403), &json!("budget_exceeded")), "{row}");
        assert_eq!((&row["cost_usd"], &row["prompt_tokens"]), (&Value::Null, &Value::Null));
        assert_eq!((&row["attempts"], &row["model"]), (&json!([]), &json!("gpt-4o")));
        assert_eq!((&row["request"], &row["request_stored"]), (&ask(), &json!("full")), "{row}");
        assert_eq!(proxy.wait_for_rows(2).await.len(), 2);
        assert_eq!(proxy.upstream.requests().len(), 1);
        // Nothing is held for it or counted.
        assert!(near(&get(&proxy.app, &proxy.ada, &made["id"]).await["spent_usd"], COST));
        let one = format!("{}/{}", path(&proxy.ada), made["id"].as_str().unwrap());
        let more = json!({"hard_limit_usd": 2.0 * COST});
        proxy.app.put(&one, more).bearer(&proxy.ada.token).send().await.expect(200);
        proxy.chat(&ask()).send().await.expect(200);
        // A refusal by scopes comes first.
        let limited = proxy.key(&["provider:anthropic"]).await;
        ask_with(&proxy, &limited).send().await.expect_error(403, "scope_denied");
        assert_eq!(proxy.wait_for_rows(3).await.len(), 3);
    }
}
