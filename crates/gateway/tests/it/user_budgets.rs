//! Budgets of end users: defaults and budgets of one user, what they refuse, and what many users do to them.

use std::time::Duration;

use gateway_core::logs::{LogRow, LogSource};
use gateway_core::time::DAY;
use gateway_store::logs::{self, BatchLimits, LineLimits, SpendSnapshot};
use gateway_store::testing::count;
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::receiver::WAIT_TIMEOUT;
use crate::support::{Account, Backend, ProxyFixture, TestApp, TestRequest, TestResponse};
use crate::upstream::Reply;

/// 10 + 100 tokens of gpt-4o cost 0.001025 USD.
const ANSWER: &str = r#"{"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}"#;
const COST: f64 = 0.001_025;
const CHAT: &str = "/v1/chat/completions";

fn path(of: &Account) -> String {
    format!("/api/v1/orgs/{}/budgets", of.org_id)
}

/// A daily budget of a user for this many calls.
fn user_budget(user: &str, calls: f64) -> Value {
    json!({"scope": "user", "scope_id": user, "period": "daily", "hard_limit_usd": calls * COST})
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&path(by), body).bearer(&by.token).send().await
}

async fn started(backend: Backend) -> ProxyFixture {
    let proxy = ProxyFixture::start_with(backend, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    proxy.upstream.set_default_reply(Reply::json(200, ANSWER));
    proxy
}

fn ask() -> Value {
    json!({"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]})
}

fn ask_as(proxy: &ProxyFixture, user: &str) -> TestRequest {
    proxy.chat(&ask()).header("x-gateway-user", user)
}

/// Calls of a user until its budget refuses one.
async fn calls_until_refused(proxy: &ProxyFixture, user: &str) -> usize {
    for passed in 0..100 {
        let answer = ask_as(proxy, user).send().await;
        if answer.status != 200 {
            let error = answer.expect_error(403, "budget_exceeded");
            assert!(error["message"].as_str().unwrap().contains("budget of the user"), "{error}");
            return passed;
        }
    }
    panic!("no call of {user} was refused");
}

fn near(value: &Value, usd: f64) -> bool {
    (value.as_f64().unwrap() - usd).abs() < 1e-9
}

/// The budgets that hold for a user.
async fn budgets_of(app: &TestApp, by: &Account, user: &str) -> Vec<Value> {
    let list = app.get(&format!("{}?user={user}", path(by))).key(&by.api_key).send().await.expect(200);
    list["budgets"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_holds_for_each_user_and_a_budget_of_a_user_replaces_it() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        let every = create(app, ada, user_budget("*", 2.0)).await.expect(201);
        assert_eq!(
            (&every["scope"], &every["scope_id"], &every["spent_usd"]),
            (&json!("user"), &json!("*"), &Value::Null)
        );
        let own = create(app, ada, user_budget("vip", 4.0)).await.expect(201);
        assert_eq!((&own["scope_id"], &own["spent_usd"]), (&json!("vip"), &json!(0.0)));
        let first = ask_as(&proxy, "ada").send().await;
        assert_eq!(first.header("x-gateway-budget-remaining"), Some("0.00205"), "{}", first.text());
        assert_eq!(calls_until_refused(&proxy, "ada").await, 1);
        assert_eq!(calls_until_refused(&proxy, "J\u{fc}rgen").await, 2);
        assert_eq!(calls_until_refused(&proxy, "vip").await, 4);
        // Calls without a user have no budget of a user.
        for _ in 0..3 {
            let free = proxy.chat(&ask()).send().await;
            free.expect(200);
            assert_eq!(free.header("x-gateway-budget-remaining"), None);
        }
        // The user of the body is the user of the row.
        let mut body = ask();
        body["user"] = json!("ada");
        let error = proxy.chat(&body).send().await.expect_error(403, "budget_exceeded");
        assert_eq!(error["budget_id"], every["id"]);
        assert!(error["resets_at"].is_string());
        let of_ada = budgets_of(app, ada, "ada").await;
        assert_eq!(
            (of_ada.len(), &of_ada[0]["id"], &of_ada[0]["scope_id"]),
            (1, &every["id"], &json!("ada"))
        );
        assert!(near(&of_ada[0]["spent_usd"], 2.0 * COST), "{of_ada:?}");
        let of_vip = budgets_of(app, ada, "vip").await;
        assert_eq!((of_vip.len(), &of_vip[0]["id"]), (1, &own["id"]));
        assert!(near(&of_vip[0]["spent_usd"], 4.0 * COST), "{of_vip:?}");
        // 11 that were answered, and 4 that were refused.
        proxy.wait_for_rows(15).await;
        let summary = app.get("/api/v1/users/vip/summary").key(&ada.api_key).send().await.expect(200);
        assert_eq!(summary["budgets"], json!(of_vip));
        let list = app.get(&path(ada)).key(&ada.api_key).send().await.expect(200);
        let ids: Vec<&Value> =
            list["budgets"].as_array().unwrap().iter().map(|budget| &budget["id"]).collect();
        assert_eq!(ids, [&own["id"], &every["id"]], "newest first");
        // A change is in force at once, and what was spent stays.
        let one = format!("{}/{}", path(ada), own["id"].as_str().unwrap());
        app.put(&one, json!({"hard_limit_usd": 5.0 * COST})).bearer(&ada.token).send().await.expect(200);
        assert_eq!(calls_until_refused(&proxy, "vip").await, 1);
        // Without a budget of its own the default holds, which is spent too.
        app.delete(&one).bearer(&ada.token).send().await.expect(200);
        assert_eq!(calls_until_refused(&proxy, "vip").await, 0);
        app.get(&one).bearer(&ada.token).send().await.expect_error(404, "not_found");
        // A new day begins with nothing spent.
        app.app.services.clock.advance(DAY);
        assert_eq!(calls_until_refused(&proxy, "vip").await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_who_reaches_a_limit_is_reported_once() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let body = json!({"scope": "user", "scope_id": "*", "period": "monthly",
            "soft_limit_usd": COST, "hard_limit_usd": 2.0 * COST});
        let made = create(&proxy.app, &proxy.ada, body).await.expect(201);
        for user in ["ada", "bob"] {
            assert_eq!(calls_until_refused(&proxy, user).await, 2);
        }
        ask_as(&proxy, "eve").send().await.expect(200);
        let mut told = Vec::new();
        for _ in 0..200 {
            told = proxy.app.events(&proxy.ada.org_id).await;
            told.retain(|(kind, _)| kind.starts_with("budget."));
            if told.len() >= 5 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut seen: Vec<(&str, &str)> =
            told.iter().map(|(kind, data)| (kind.as_str(), data["scope_id"].as_str().unwrap())).collect();
        seen.sort_unstable();
        let (warning, exceeded) = ("budget.warning", "budget.exceeded");
        assert_eq!(
            seen,
            [(exceeded, "ada"), (exceeded, "bob"), (warning, "ada"), (warning, "bob"), (warning, "eve")]
        );
        assert!(told.iter().all(|(_, data)| data["budget_id"] == made["id"] && data["scope"] == "user"));
        // After a restart the ledgers are empty, and nothing is reported again.
        let ProxyFixture { app, upstream, ada } = proxy;
        let (config, data) = app.stop().await;
        let proxy = ProxyFixture { app: TestApp::start(config, data).await, upstream, ada };
        assert_eq!(calls_until_refused(&proxy, "ada").await, 0);
        assert_eq!(calls_until_refused(&proxy, "eve").await, 1);
        for _ in 0..200 {
            told = proxy.app.events(&proxy.ada.org_id).await;
            told.retain(|(kind, _)| kind.starts_with("budget."));
            if told.len() >= 6 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!((told.len(), &told[5].1["scope_id"]), (6, &json!("eve")), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_user_at_once_spend_no_more_than_the_limit_and_one_call() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        proxy.upstream.set_default_reply(Reply::json(200, ANSWER).delay(Duration::from_millis(20)));
        create(&proxy.app, &proxy.ada, user_budget("*", 5.0)).await.expect(201);
        let users = ["ada", "bob", "eve"];
        let calls: Vec<_> =
            (0..150).map(|number| tokio::spawn(ask_as(&proxy, users[number % 3]).send())).collect();
        let mut passed = [0; 3];
        for (number, call) in calls.into_iter().enumerate() {
            let answer = call.await.unwrap();
            if answer.status == 200 {
                passed[number % 3] += 1;
            } else {
                answer.expect_error(403, "budget_exceeded");
            }
        }
        assert!(passed.iter().all(|passed| (1..=6).contains(passed)), "{passed:?}");
        for (user, passed) in users.iter().zip(passed) {
            let rest = calls_until_refused(&proxy, user).await;
            assert!((5..=6).contains(&(passed + rest)), "{user}: {passed} and {rest}");
            let spent = &budgets_of(&proxy.app, &proxy.ada, user).await[0]["spent_usd"];
            assert!(near(spent, f64::from(u32::try_from(passed + rest).unwrap()) * COST), "{user}: {spent}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_holds_its_share_and_a_hang_up_gives_the_rest_back() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        create(&proxy.app, &proxy.ada, user_budget("*", 1.0)).await.expect(201);
        let body =
            json!({"model": "gpt-4o", "stream": true, "max_tokens": 16_000, "messages": []}).to_string();
        let text = json!({"choices": [{"index": 0, "delta": {"content": "y".repeat(40)}}]}).to_string();
        proxy.upstream.push(Reply::sse(&[&text]).then_stall());
        let mut raw = proxy.connect().await;
        raw.send(proxy.raw_post("openai", CHAT, &[("x-gateway-user", "ada")], body.as_bytes())).await;
        let head = raw.head().await;
        raw.chunks_until("yyyy").await;
        let held = ask_as(&proxy, "ada").send().await.expect_error(403, "budget_exceeded");
        assert!(held["message"].as_str().unwrap().contains("reserved"), "{held}");
        ask_as(&proxy, "bob").send().await.expect(200);
        drop(raw);
        proxy.upstream.wait_for_aborts(1, WAIT_TIMEOUT).await;
        let row = proxy.log_row_by_id(head.log_id()).await;
        let cost = row["cost_usd"].as_f64().unwrap();
        assert!(cost > 0.0 && cost < COST, "{cost}");
        let of_ada = budgets_of(&proxy.app, &proxy.ada, "ada").await;
        assert!(near(&of_ada[0]["spent_usd"], cost), "{of_ada:?}");
        assert_eq!(calls_until_refused(&proxy, "ada").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_spent_outlives_a_restart_and_counts_with_the_other_budgets() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        // Spent before there is a budget.
        ask_as(&proxy, "ada").send().await.expect(200);
        proxy.wait_for_rows(1).await;
        create(&proxy.app, &proxy.ada, user_budget("*", 3.0)).await.expect(201);
        let whole = json!({"scope": "org", "period": "daily", "hard_limit_usd": 4.0 * COST});
        create(&proxy.app, &proxy.ada, whole).await.expect(201);
        let second = ask_as(&proxy, "ada").send().await;
        assert_eq!(second.header("x-gateway-budget-remaining"), Some("0.00205"), "the smaller of the two");
        let ProxyFixture { app, upstream, ada } = proxy;
        let (config, data) = app.stop().await;
        let proxy = ProxyFixture { app: TestApp::start(config, data).await, upstream, ada };
        let of_ada = budgets_of(&proxy.app, &proxy.ada, "ada").await;
        assert!(near(&of_ada[0]["spent_usd"], 2.0 * COST), "{of_ada:?}");
        assert_eq!(calls_until_refused(&proxy, "ada").await, 1);
        ask_as(&proxy, "bob").send().await.expect(200);
        let error = ask_as(&proxy, "bob").send().await.expect_error(403, "budget_exceeded");
        assert!(error["message"].as_str().unwrap().contains("budget of the org"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_the_same_name_in_two_organizations_have_nothing_in_common() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let eve = proxy.app.signup("evil").await;
        let made = create(&proxy.app, &proxy.ada, user_budget("ada", 1.0)).await.expect(201);
        assert_eq!(calls_until_refused(&proxy, "ada").await, 1);
        let call = proxy.app.call(Method::POST, CHAT).key(&eve.api_key).header("x-gateway-user", "ada");
        let theirs = call.header("x-gateway-provider", "openai").json(ask()).send().await;
        theirs.expect(200);
        assert_eq!(theirs.header("x-gateway-budget-remaining"), None);
        assert_eq!(budgets_of(&proxy.app, &eve, "ada").await, [Value::Null; 0]);
        let one = |of: &Account| format!("{}/{}", path(of), made["id"].as_str().unwrap());
        for answer in [
            proxy.app.get(&one(&eve)).bearer(&eve.token).send().await,
            proxy.app.put(&one(&eve), json!({"hard_limit_usd": 1})).bearer(&eve.token).send().await,
            proxy.app.delete(&one(&eve)).bearer(&eve.token).send().await,
            proxy.app.get(&one(&proxy.ada)).bearer(&eve.token).send().await,
        ] {
            answer.expect_error(404, "not_found");
        }
        let list = proxy.app.get(&path(&eve)).bearer(&eve.token).send().await.expect(200);
        assert_eq!(list["budgets"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_are_all_counted_and_none_is_forgotten() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        create(&proxy.app, &proxy.ada, user_budget("*", 2.0)).await.expect(201);
        ask_as(&proxy, "ada").send().await.expect(200);
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..300 {
            let call = ask_as(&proxy, &format!("user {number}"));
            calls.spawn(async move { call.send().await.status.as_u16() });
        }
        assert!(calls.join_all().await.iter().all(|status| *status == 200));
        assert_eq!(calls_until_refused(&proxy, "ada").await, 1);
        assert_eq!(calls_until_refused(&proxy, "user 299").await, 1);
        ask_as(&proxy, &"x".repeat(257)).send().await.expect_error(400, "bad_request");
    }
}

on_both!(admins_set_budgets_of_users_and_viewers_read_them, |app| async move {
    let ada = app.signup("acme").await;
    let member = app.join(&ada, "member").await;
    let viewer = app.join(&ada, "viewer").await;
    let admin = app.join(&ada, "admin").await;
    create(&app, &member, user_budget("*", 1.0)).await.expect_error(403, "forbidden");
    let made = create(&app, &admin, user_budget("ada", 1.0)).await.expect(201);
    let one = format!("{}/{}", path(&ada), made["id"].as_str().unwrap());
    assert_eq!(app.get(&one).bearer(&viewer.token).send().await.expect(200), made);
    let list = app.get(&format!("{}?user=ada", path(&ada))).bearer(&viewer.token).send().await.expect(200);
    assert_eq!(list["budgets"], json!([made]));
    app.put(&one, json!({"hard_limit_usd": 9}))
        .bearer(&member.token)
        .send()
        .await
        .expect_error(403, "forbidden");
    app.delete(&one).bearer(&viewer.token).send().await.expect_error(403, "forbidden");
    for wrong in ["", " ada", "a\nb", &"x".repeat(257)] {
        let error = create(&app, &ada, user_budget(wrong, 1.0)).await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("scope_id"), "{error}");
    }
    // A budget may become one of another scope and keeps its id.
    let changed = app.put(&one, json!({"scope": "org"})).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&changed["id"], &changed["scope"]), (&made["id"], &json!("org")));
    let change = json!({"scope": "user", "scope_id": "*", "soft_limit_usd": COST / 2.0});
    let changed = app.put(&one, change).bearer(&ada.token).send().await.expect(200);
    assert_eq!(
        (&changed["id"], &changed["scope_id"], &changed["spent_usd"]),
        (&made["id"], &json!("*"), &Value::Null)
    );
    let list = app.get(&path(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["budgets"], json!([changed]));
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_the_user_of_its_own_calls() {
    for backend in Backend::BOTH {
        let proxy = started(backend).await;
        let member = proxy.app.join(&proxy.ada, "member").await;
        create(&proxy.app, &proxy.ada, user_budget(&member.user_id, 0.0)).await.expect(201);
        let call = |token: &str| {
            let call = proxy.app.call(Method::POST, CHAT).bearer(token);
            call.header("x-gateway-provider", "openai").json(ask()).send()
        };
        call(&member.token).await.expect_error(403, "budget_exceeded");
        call(&proxy.ada.token).await.expect(200);
    }
}

on_both!(users_beyond_the_maximum_of_a_day_share_one_budget, |app| async move {
    let ada = app.signup("acme").await;
    let (store, now) = (&app.app.services.logs, app.app.services.clock.now());
    let org = ada.org_id.parse().unwrap();
    let lines = LineLimits { spenders: 3, ..BatchLimits::default().lines };
    let limits = BatchLimits { lines, ..BatchLimits::default() };
    let today = now.plus(-now.0.rem_euclid(DAY));
    let rows = |users: std::ops::Range<i64>, offset: i64| -> Vec<LogRow> {
        let one = |number: i64| {
            with(row(&ada, today.plus(offset + number)), |row| row.user = Some(format!("user-{number}")))
        };
        users.map(one).collect()
    };
    for (users, offset) in [(0..3, 0), (3..6, 0), (0..1, 1_000)] {
        logs::write_batch_within(store, &rows(users, offset), &limits).await.unwrap();
    }
    // A span of others is not spending, and neither is a call that cost nothing.
    let span = with(row(&ada, today.plus(2_000)), |row| {
        (row.user, row.source) = (Some("user-1".into()), LogSource::Otel);
    });
    let free =
        with(row(&ada, today.plus(3_000)), |row| (row.user, row.cost_usd) = (Some("user-1".into()), None));
    logs::write_batch_within(store, &[span, free], &limits).await.unwrap();
    assert_eq!(count(store, "user_spend").await.unwrap(), 4, "three users and the others");
    let mut snapshot = SpendSnapshot::open(store).await.unwrap();
    let spent = snapshot.of_users(org, (today, today), &["user-0", "user-1", "user-5", "new"]).await.unwrap();
    let cost: Vec<i64> = spent.iter().map(|days| days.iter().map(|day| day.cost).sum()).collect();
    assert_eq!(cost, [2, 1, 3, 3].map(|calls| calls * 1_000_000_000), "0.001 USD each");
    // On the next day nobody pays for what others did.
    let tomorrow = today.plus(DAY);
    let spent = snapshot.of_users(org, (today, tomorrow), &["user-0", "new"]).await.unwrap();
    assert_eq!(spent.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
    drop(snapshot);
    logs::sweep(store, today.plus(70 * DAY), 30, &[]).await.unwrap();
    assert_eq!(count(store, "user_spend").await.unwrap(), 0);
});
