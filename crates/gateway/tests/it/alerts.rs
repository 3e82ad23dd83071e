//! Alerts over HTTP: definitions, roles and isolation; when they fire and are resolved, who is told, mutes and history.

use gateway::app::alerts::{Notice, notify};
use gateway_core::alerts::Reading;
use gateway_core::time::MINUTE;
use gateway_store::alerts as store;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::receiver::{WAIT_TIMEOUT, receiver};
use crate::support::{Account, TestApp, TestRequest, TestResponse, wait_for_response};
use crate::upstream::Reply;

fn path(of: &Account) -> String {
    format!("/api/v1/orgs/{}/alerts", of.org_id)
}

fn one(of: &Account, alert: &Value) -> String {
    format!("{}/{}", path(of), alert["id"].as_str().unwrap())
}

fn failures() -> Value {
    json!({"name": "failures", "query": "model:gpt-4o* -source:api", "measure": "error_rate", "above": 0.4,
        "window_minutes": 10, "min_requests": 4})
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&path(by), body).bearer(&by.token).send().await
}

/// Writes rows of the last minute, of which some failed.
async fn write_rows(app: &TestApp, of: &Account, count: i64, failed: i64) {
    let now = app.app.services.clock.now();
    let rows: Vec<_> = (0..count)
        .map(|n| with(row(of, now.plus(-MINUTE + n)), |row| row.status = if n < failed { 500 } else { 200 }))
        .collect();
    app.write(&rows).await;
}

/// Waits until a check found this state.
async fn wait_until_firing(app: &TestApp, by: &Account, alert: &Value, firing: bool) -> Value {
    // The next check is due at once.
    app.app.services.clock.advance(MINUTE + 1);
    wait_for_response(
        WAIT_TIMEOUT,
        || app.get(&one(by, alert)).bearer(&by.token),
        |answer| answer.json()["firing"] == firing && !answer.json()["checked_at"].is_null(),
    )
    .await;
    app.get(&one(by, alert)).bearer(&by.token).send().await.expect(200)
}

async fn history(app: &TestApp, by: &Account, alert: &Value) -> Vec<Value> {
    let path = format!("{}/history", one(by, alert));
    let found = app.get(&path).bearer(&by.token).send().await.expect(200);
    found["history"].as_array().unwrap().clone()
}

on_both!(an_alert_is_created_read_changed_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let made = create(&app, &ada, failures()).await.expect(201);
    let expected = [
        ("window_minutes", json!(10)),
        ("min_requests", json!(4)),
        ("enabled", json!(true)),
        ("firing", json!(false)),
        ("muted_until", Value::Null),
        ("above", json!(0.4)),
    ];
    for (field, value) in expected {
        assert_eq!(made[field], value, "{field}");
    }
    create(&app, &ada, failures()).await.expect_error(409, "conflict");
    let few = create(&app, &ada, json!({"name": "few", "measure": "requests", "above": 3})).await.expect(201);
    assert_eq!((&few["query"], &few["window_minutes"]), (&json!(""), &json!(5)));
    let list = app.get(&path(&ada)).bearer(&ada.token).send().await.expect(200);
    let names: Vec<_> = list["alerts"].as_array().unwrap().iter().map(|alert| &alert["name"]).collect();
    assert_eq!(names, ["few", "failures"]);
    let change = json!({"name": "spend", "measure": "cost_usd", "above": 1.5, "enabled": false});
    let changed = app.put(&one(&ada, &made), change).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&changed["name"], &changed["enabled"]), (&json!("spend"), &json!(false)));
    app.delete(&one(&ada, &made)).bearer(&ada.token).send().await.expect(200);
    app.get(&one(&ada, &made)).bearer(&ada.token).send().await.expect_error(404, "not_found");
});

on_both!(a_wrong_alert_is_refused_with_the_name_of_the_field, |app| async move {
    let ada = app.signup("acme").await;
    let with = |field: &str, value: Value| {
        let mut body = failures();
        body[field] = value;
        body
    };
    for (field, value) in [
        ("name", json!("")),
        ("query", json!("x".repeat(2001))),
        ("query", json!("status:>")),
        ("query", json!("nothing:1")),
        ("above", json!(-1)),
        ("above", json!(1)),
        ("window_minutes", json!(0)),
        ("window_minutes", json!(1441)),
    ] {
        let refused = create(&app, &ada, with(field, value)).await.expect_error(400, "bad_request");
        assert!(refused["message"].to_string().contains(field), "{field}: {refused}");
    }
    let place =
        create(&app, &ada, with("query", json!("status:200 bad:1"))).await.expect_error(400, "bad_request");
    assert_eq!(place["position"], 11, "{place}");
    create(&app, &ada, with("measure", json!("p50"))).await.expect_error(400, "bad_request");
});

on_both!(what_was_read_can_be_put_back_and_unknown_fields_are_ignored, |app| async move {
    let ada = app.signup("acme").await;
    let mut body = failures();
    body["color"] = json!("red");
    let mut made = create(&app, &ada, body).await.expect(201);
    made["above"] = json!(0.5);
    let changed = app.put(&one(&ada, &made), made.clone()).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&changed["id"], &changed["above"]), (&made["id"], &json!(0.5)));
    let mute = json!({"minutes": 5, "reason": "maintenance"});
    let path = format!("{}/mute", one(&ada, &made));
    let muted = app.post(&path, mute).bearer(&ada.token).send().await.expect(200);
    assert!(muted["muted_until"].is_string(), "{muted}");
});

on_both!(the_number_of_alerts_is_limited, |app| async move {
    let ada = app.signup("acme").await;
    for number in 0..50 {
        let body = json!({"name": format!("a{number}"), "measure": "errors", "above": 1, "enabled": false});
        create(&app, &ada, body).await.expect(201);
    }
    create(&app, &ada, failures()).await.expect_error(409, "conflict");
});

on_both!(admins_write_viewers_read_and_others_see_nothing, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let alert = create(&app, &ada, failures()).await.expect(201);
    let at = one(&ada, &alert);
    let calls = || {
        [
            app.post(&path(&ada), failures()),
            app.put(&at, failures()),
            app.post(&format!("{at}/test"), json!({})),
            app.post(&format!("{at}/mute"), json!({"minutes": 5})),
            app.delete(&at),
        ]
    };
    let reads = || [app.get(&path(&ada)), app.get(&at), app.get(&format!("{at}/history"))];
    for role in ["member", "viewer"] {
        let bob = app.join(&ada, role).await;
        let send = |call: TestRequest| call.bearer(&bob.token).send();
        for call in reads() {
            send(call).await.expect(200);
        }
        for call in calls() {
            send(call).await.expect_error(403, "forbidden");
        }
    }
    let foreign = at.replace(&ada.org_id, &eve.org_id);
    for call in [app.get(&foreign), app.get(&format!("{foreign}/history")), app.delete(&foreign)] {
        call.bearer(&eve.token).send().await.expect_error(404, "not_found");
    }
});

on_both!(an_alert_fires_once_and_is_resolved_once, |app| async move {
    let ada = app.enterprise("acme").await;
    let (standard, slack) = (receiver(Reply::new(200)).await, receiver(Reply::new(200)).await);
    app.create_webhook(&ada, &standard.url(), &["alert.fired", "alert.resolved"]).await;
    let chat = json!({"url": slack.url(), "events": ["alert.fired"], "format": "slack"});
    let chat = app.post("/api/v1/webhooks", chat).bearer(&ada.token).send().await.expect(201);
    assert_eq!(chat["format"], "slack");
    write_rows(&app, &ada, 10, 5).await;
    let alert = create(&app, &ada, failures()).await.expect(201);
    let firing = wait_until_firing(&app, &ada, &alert, true).await;
    assert_eq!(firing["value"], 0.5);
    let told = standard.wait_for_requests(1, WAIT_TIMEOUT).await[0].json();
    assert_eq!(told["type"], "alert.fired");
    let expected = json!({
        "alert_id": alert["id"], "name": "failures", "query": "model:gpt-4o* -source:api", "measure": "error_rate",
        "above": 0.4, "value": 0.5, "requests": 10, "partial": false, "scanned_to": null, "window_minutes": 10, "test": false,
    });
    assert_eq!(told["data"], expected);
    let text = slack.wait_for_requests(1, WAIT_TIMEOUT).await[0].json();
    let text = text["text"].as_str().unwrap();
    let expected = "Alert \"failures\": error rate 50 % over the last 10 min (threshold 40 %). \
                    Query: model:gpt-4o* -source:api";
    assert_eq!(text, expected);
    // The rows leave the window. Further checks before that tell nothing.
    app.app.services.clock.advance(10 * MINUTE);
    let calm = wait_until_firing(&app, &ada, &alert, false).await;
    assert_eq!(calm["value"], Value::Null);
    let told = standard.wait_for_requests(2, WAIT_TIMEOUT).await[1].json();
    assert_eq!((&told["type"], &told["data"]["requests"]), (&json!("alert.resolved"), &json!(0)));
    let kinds: Vec<_> = history(&app, &ada, &alert).await.iter().map(|entry| entry["kind"].clone()).collect();
    assert_eq!(kinds, ["resolved", "fired"]);
    assert_eq!((standard.requests().len(), slack.requests().len()), (2, 1));
});

on_both!(a_muted_alert_tells_nobody_but_its_history, |app| async move {
    let ada = app.enterprise("acme").await;
    let told = receiver(Reply::new(200)).await;
    app.create_webhook(&ada, &told.url(), &["alert.fired", "alert.resolved"]).await;
    let alert = create(&app, &ada, failures()).await.expect(201);
    let mute = |minutes: u32| {
        app.post(&format!("{}/mute", one(&ada, &alert)), json!({"minutes": minutes})).bearer(&ada.token)
    };
    mute(43_201).send().await.expect_error(400, "bad_request");
    let muted = mute(600).send().await.expect(200);
    assert!(muted["muted_until"].is_string());
    write_rows(&app, &ada, 10, 10).await;
    wait_until_firing(&app, &ada, &alert, true).await;
    let entries = history(&app, &ada, &alert).await;
    assert_eq!((&entries[0]["kind"], &entries[0]["muted"]), (&json!("fired"), &json!(true)));
    assert!(told.requests().is_empty());
    // The mute ends while the alert still fires.
    assert_eq!(mute(0).send().await.expect(200)["muted_until"], Value::Null);
    let events = told.wait_for_requests(1, WAIT_TIMEOUT).await;
    assert_eq!(events[0].json()["type"], "alert.fired");
    let entries = history(&app, &ada, &alert).await;
    assert_eq!((&entries[0]["kind"], &entries[0]["muted"]), (&json!("fired"), &json!(false)));
    // A test is told in any case, and says what a check would find.
    let test = app.post(&format!("{}/test", one(&ada, &alert)), json!({})).bearer(&ada.token);
    let found = test.send().await.expect(200);
    assert_eq!(
        found,
        json!({"value": 1.0, "requests": 10, "partial": false, "scanned_to": null, "would_fire": true})
    );
    let events = told.wait_for_requests(2, WAIT_TIMEOUT).await;
    assert_eq!((events.len(), &events[1].json()["data"]["test"]), (2, &json!(true)));
    assert_eq!(history(&app, &ada, &alert).await[0]["kind"], "tested");
    // Those who know that it fires are told when it is changed or deleted.
    let changed = json!({"name": "failures", "measure": "errors", "above": 1000, "window_minutes": 10});
    app.put(&one(&ada, &alert), changed).bearer(&ada.token).send().await.expect(200);
    let events = told.wait_for_requests(3, WAIT_TIMEOUT).await;
    assert_eq!(events[2].json()["type"], "alert.resolved");
    app.delete(&one(&ada, &alert)).bearer(&ada.token).send().await.expect(200);
});

on_both!(an_alert_counts_only_rows_of_its_organization_and_query, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    write_rows(&app, &eve, 20, 20).await;
    write_rows(&app, &ada, 3, 3).await;
    let test = async |body: Value| {
        let alert = create(&app, &ada, body).await.expect(201);
        app.post(&format!("{}/test", one(&ada, &alert)), json!({}))
            .bearer(&ada.token)
            .send()
            .await
            .expect(200)
    };
    let body = |name: &str, query: &str, measure: &str| json!({"name": name, "query": query, "measure": measure, "above": 2, "enabled": false});
    let found = test(body("all", "", "requests")).await;
    assert_eq!(
        found,
        json!({"value": 3.0, "requests": 3, "partial": false, "scanned_to": null, "would_fire": true})
    );
    assert_eq!(test(body("none", "model:other", "requests")).await["value"], 0.0);
    assert_eq!(test(body("slow", "status:error", "p95_ms")).await["value"], 100.0);
    assert_eq!(test(body("spend", "", "cost_usd")).await["value"], 0.003);
});

on_both!(a_partial_reading_is_told_and_kept_in_the_history, |app| async move {
    let ada = app.enterprise("acme").await;
    let told = receiver(Reply::new(200)).await;
    app.create_webhook(&ada, &told.url(), &["alert.fired"]).await;
    let mut paused = failures();
    paused["enabled"] = json!(false);
    let alert = create(&app, &ada, paused).await.expect(201);
    assert_eq!((&alert["partial"], &alert["scanned_to"]), (&json!(false), &Value::Null));
    let db = &app.app.services.db;
    let scanned_to = app.app.services.clock.now().plus(-MINUTE);
    let mut tx = db.begin().await.unwrap();
    let (org, id) = (ada.org_id.parse().unwrap(), alert["id"].as_str().unwrap().parse().unwrap());
    let mut stored = store::find_for_update(&mut tx, org, id).await.unwrap().unwrap();
    let definition = serde_json::from_str(&stored.definition).unwrap();
    let reading =
        Reading { value: Some(0.5), requests: 200_000, scanned_to: Some(scanned_to), is_above: true };
    let notice = Notice { kind: "fired", is_sent: true };
    notify(&app.app, &mut tx, (&stored, &definition), reading, notice).await.unwrap();
    stored.scanned_to = Some(scanned_to);
    store::update(&mut tx, &stored).await.unwrap();
    tx.commit().await.unwrap();
    let facts = told.wait_for_requests(1, WAIT_TIMEOUT).await[0].json();
    let expected = (&json!(true), &json!(scanned_to));
    assert_eq!((&facts["data"]["partial"], &facts["data"]["scanned_to"]), expected);
    let entries = history(&app, &ada, &alert).await;
    assert_eq!((&entries[0]["partial"], &entries[0]["scanned_to"]), expected);
    let shown = app.get(&one(&ada, &alert)).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&shown["partial"], &shown["scanned_to"]), expected);
});
