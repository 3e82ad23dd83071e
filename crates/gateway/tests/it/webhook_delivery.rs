//! Webhook delivery: payloads, signatures and timing, whatever the receiver responds.

use std::time::Duration;

use gateway_core::time::{DAY, HOUR};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::TestApp;
use crate::support::assertions::{assert_uuid_v7, fields, time};
use crate::support::receiver::{WAIT_TIMEOUT, is_signed_by, receiver};
use crate::upstream::{RefusingAddress, Reply, Signal};

fn is(status: &'static str) -> impl Fn(&Value) -> bool {
    move |delivery| delivery["status"] == status
}

fn attempts(delivery: &Value) -> usize {
    delivery["attempts"].as_array().unwrap().len()
}

on_both!(each_operation_notifies_the_subscribed_webhooks, |app| async move {
    let ada = app.enterprise("acme").await;
    let (all, some) = (receiver(Reply::new(200)).await, receiver(Reply::new(204)).await);
    app.create_webhook(&ada, &format!("{}/all", all.url()), &[]).await;
    app.create_webhook(&ada, &some.url(), &["key.rotate"]).await;
    let key = app.create_key(&ada.token, json!({"name": "k"})).await;
    let rotated = app.post(&format!("{}/rotate", key.path()), json!({"overlap_hours": 3})).bearer(&ada.token);
    let rotated = rotated.send().await.expect(201);
    app.delete(&key.path()).bearer(&ada.token).send().await.expect(200);
    let apps = format!("/api/v1/orgs/{}/apps", ada.org_id);
    let made = app.post(&apps, json!({"name": "a"})).bearer(&ada.token).send().await.expect(201);
    app.delete(&format!("{apps}/{}", made["id"].as_str().unwrap()))
        .bearer(&ada.token)
        .send()
        .await
        .expect(200);
    let bob = app.join(&ada, "member").await;
    let member = format!("/api/v1/orgs/{}/members/{}", ada.org_id, bob.user_id);
    app.put(&member, json!({"role": "viewer"})).bearer(&ada.token).send().await.expect(200);
    app.delete(&member).bearer(&ada.token).send().await.expect(200);

    let requests = all.wait_for_requests(8, WAIT_TIMEOUT).await;
    let mut events: Vec<Value> = requests.iter().map(crate::upstream::Request::json).collect();
    events.sort_by_key(|event| event["id"].to_string());
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "key.create",
            "key.rotate",
            "key.revoke",
            "app.create",
            "app.delete",
            "user.invite",
            "user.role_change",
            "user.remove"
        ]
    );
    for event in &events {
        assert_eq!(fields(event), ["data", "id", "org_id", "timestamp", "type"]);
        assert_uuid_v7(&event["id"]);
        time(&event["timestamp"]);
        assert_eq!(event["org_id"], ada.org_id);
    }
    assert_eq!(
        events[1]["data"],
        json!({"key_id": key.id, "new_key_id": rotated["key"]["id"], "overlap_hours": 3})
    );
    assert_eq!(events[6]["data"]["previous_role"], "member");
    let only = some.wait_for_requests(1, WAIT_TIMEOUT).await;
    assert_eq!(only[0].json(), events[1], "the same event, byte for byte alike in both");
    assert!(requests.iter().all(|request| request.target() == "/all" && request.method() == "POST"));
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!((all.requests().len(), some.requests().len()), (8, 1), "each event is delivered once");
});

on_both!(a_delivery_is_signed_over_its_bytes_and_names_its_event, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::json(200, r#"{"thanks": true}"#)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    let before = app.app.services.clock.now().unix_seconds();
    app.create_key(&ada.token, json!({"name": "grün \u{1f600} \"quoted\""})).await;
    let request = upstream.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    assert!(is_signed_by(&request, &hook.secret));
    let event = request.json();
    assert_eq!(request.header("webhook-id"), event["id"].as_str());
    let at: i64 = request.header("webhook-timestamp").unwrap().parse().unwrap();
    assert!((before..before + 20).contains(&at));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let delivery = app.delivery(&ada, &hook, "delivered", is("delivered")).await;
    assert_eq!(
        fields(&delivery),
        ["attempts", "created_at", "event_id", "event_type", "id", "next_attempt_at", "payload", "status"]
    );
    assert_eq!((&delivery["event_id"], &delivery["payload"]), (&event["id"], &event));
    assert_eq!(delivery["next_attempt_at"], Value::Null);
    let attempt = &delivery["attempts"][0];
    assert_eq!(fields(attempt), ["at", "error", "latency_ms", "response_body", "status_code"]);
    assert_eq!((&attempt["status_code"], &attempt["error"]), (&json!(200), &Value::Null));
    assert_eq!(attempt["response_body"], r#"{"thanks": true}"#);
    let one = format!("{}/deliveries/{}", hook.path(), delivery["id"].as_str().unwrap());
    assert_eq!(app.get(&one).bearer(&ada.token).send().await.expect(200), delivery);
});

on_both!(a_failing_receiver_is_retried_with_the_same_id_and_a_new_signature, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(500)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    let mut waits = Vec::new();
    for made in 1..=7 {
        let delivery = app.delivery(&ada, &hook, "attempted", |d| attempts(d) == made).await;
        assert_eq!(delivery["status"], "pending");
        let wait = time(&delivery["next_attempt_at"]) - time(&delivery["attempts"][made - 1]["at"]);
        waits.push(wait);
        app.app.services.clock.advance(wait + 1);
    }
    let planned = [5_000, 60_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000];
    for (wait, planned) in waits.iter().zip(planned) {
        assert!((wait - planned).abs() <= planned / 10 + 1_000, "{wait} for {planned}");
    }
    let failed = app.delivery(&ada, &hook, "failed", is("failed")).await;
    assert_eq!((attempts(&failed), &failed["next_attempt_at"]), (8, &Value::Null));
    let requests = upstream.requests();
    assert_eq!(requests.len(), 8);
    let ids: std::collections::HashSet<_> =
        requests.iter().map(|r| r.header("webhook-id").unwrap()).collect();
    let times: std::collections::HashSet<_> =
        requests.iter().map(|r| r.header("webhook-timestamp").unwrap()).collect();
    assert_eq!((ids.len(), times.len()), (1, 8), "the id stays, the time is that of the attempt");
    assert!(requests.iter().all(|request| is_signed_by(request, &hook.secret)));
    assert!(requests.windows(2).all(|pair| pair[0].body == pair[1].body));

    upstream.set_default_reply(Reply::new(200));
    let retry = format!("{}/deliveries/{}/retry", hook.path(), failed["id"].as_str().unwrap());
    let again = app.post(&retry, json!({})).key(&ada.api_key).send().await.expect(202);
    assert_eq!((&again["status"], &again["id"]), (&json!("pending"), &failed["id"]));
    let delivered = app.delivery(&ada, &hook, "delivered", is("delivered")).await;
    assert_eq!(attempts(&delivered), 9);
});

on_both!(a_retry_respects_the_retry_after_of_the_receiver, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(429).header("retry-after", "3600")).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    let delivery = app.delivery(&ada, &hook, "attempted", |d| attempts(d) == 1).await;
    let wait = time(&delivery["next_attempt_at"]) - time(&delivery["attempts"][0]["at"]);
    assert!((HOUR..HOUR + 20_000).contains(&wait), "{wait}");
});

on_both!(a_receiver_that_is_gone_is_left_alone, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(410)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    let delivery = app.delivery(&ada, &hook, "failed", is("failed")).await;
    assert_eq!(attempts(&delivery), 1);
    let found = app.get(&hook.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(found["active"], false);
    assert!(found["deactivated_reason"].as_str().unwrap().contains("410"));
    app.create_key(&ada.token, json!({"name": "k2"})).await;
    assert_eq!(app.deliveries(&ada, &hook).await.len(), 1, "nothing is recorded for it any more");
    upstream.set_default_reply(Reply::new(200));
    let back = app.put(&hook.path(), json!({"active": true})).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&back["active"], &back["deactivated_reason"]), (&json!(true), &Value::Null));
    let many = format!("{}/deliveries/retry", hook.path());
    let retried = app.post(&many, json!({"type": "key.create"})).bearer(&ada.token).send().await.expect(202);
    assert_eq!(retried, json!({"retried": 1}));
    app.delivery(&ada, &hook, "delivered", is("delivered")).await;
    let none = app.post(&many, json!({})).bearer(&ada.token).send().await.expect(202);
    assert_eq!(none, json!({"retried": 0}), "only what failed, unless another status is named");
});

on_both!(an_attempt_at_the_old_address_does_not_mark_the_changed_webhook, |app| async move {
    let ada = app.enterprise("acme").await;
    let is_changed = Signal::new();
    let old = receiver(Reply::new(410).wait_before_head(&is_changed)).await;
    let new = receiver(Reply::new(200)).await;
    let hook = app.create_webhook(&ada, &old.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    old.wait_for_requests(1, WAIT_TIMEOUT).await;
    app.put(&hook.path(), json!({"url": new.url()})).bearer(&ada.token).send().await.expect(200);
    is_changed.notify();
    // What the old address refused is sent to the new one.
    let delivery = app.delivery(&ada, &hook, "delivered", is("delivered")).await;
    let statuses: Vec<&Value> =
        delivery["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["status_code"]).collect();
    assert_eq!(statuses, [&json!(410), &json!(200)]);
    let found = app.get(&hook.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(found["active"], true);
    assert_eq!((&found["failing_since"], &found["deactivated_reason"]), (&Value::Null, &Value::Null));

    // A failure that is not final does not mark it either.
    let is_changed = Signal::new();
    let failing = receiver(Reply::new(500).wait_before_head(&is_changed)).await;
    let other = app.create_webhook(&ada, &failing.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k2"})).await;
    failing.wait_for_requests(1, WAIT_TIMEOUT).await;
    app.put(&other.path(), json!({"url": new.url()})).bearer(&ada.token).send().await.expect(200);
    is_changed.notify();
    app.delivery(&ada, &other, "attempted", |delivery| attempts(delivery) == 1).await;
    let found = app.get(&other.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&found["active"], &found["failing_since"]), (&json!(true), &Value::Null));
});

on_both!(redirects_resets_and_refusals_are_failures_that_say_so, |app| async move {
    let ada = app.enterprise("acme").await;
    let elsewhere = receiver(Reply::new(200)).await;
    let redirecting = receiver(Reply::new(302).header("location", &elsewhere.url())).await;
    let resetting = receiver(Reply::reset().then_reset()).await;
    let refusing = RefusingAddress::start();
    for (url, status, word) in [
        (redirecting.url(), json!(302), "redirect"),
        (resetting.url(), Value::Null, "connection"),
        (refusing.url(), Value::Null, "connect"),
    ] {
        let hook = app.create_webhook(&ada, &url, &["budget.warning"]).await;
        app.post(&format!("{}/test", hook.path()), json!({})).bearer(&ada.token).send().await.expect(202);
        let delivery = app.delivery(&ada, &hook, "attempted", |d| attempts(d) == 1).await;
        let attempt = &delivery["attempts"][0];
        assert_eq!(
            (&delivery["status"], &attempt["status_code"]),
            (&json!("pending"), &status),
            "{delivery}"
        );
        assert!(attempt["error"].as_str().unwrap().contains(word), "{attempt}");
        let found = app.get(&hook.path()).bearer(&ada.token).send().await.expect(200);
        time(&found["failing_since"]);
    }
    assert!(elsewhere.arrivals().is_empty(), "a redirect is not followed");
});

on_both!(five_days_of_failure_switch_a_webhook_off, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(503)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    app.delivery(&ada, &hook, "attempted", |d| attempts(d) == 1).await;
    app.app.services.clock.advance(5 * DAY - HOUR);
    app.delivery(&ada, &hook, "attempted", |d| attempts(d) == 2).await;
    let by_key = async || app.get(&hook.path()).key(&ada.api_key).send().await.expect(200);
    assert_eq!(by_key().await["active"], true);
    app.app.services.clock.advance(2 * HOUR);
    for _ in 0..200 {
        if by_key().await["active"] == false {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let found = by_key().await;
    assert_eq!(found["active"], false);
    assert!(found["deactivated_reason"].as_str().unwrap().contains("5 days"));
});

on_both!(a_success_in_between_ends_the_count_of_failures, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    upstream.push(Reply::new(500));
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    app.delivery(&ada, &hook, "attempted", |d| attempts(d) == 1).await;
    app.app.services.clock.advance(10_000);
    app.delivery(&ada, &hook, "delivered", is("delivered")).await;
    let found = app.get(&hook.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&found["failing_since"], &found["active"]), (&Value::Null, &json!(true)));
});

on_both!(a_slow_receiver_delays_no_other_receiver, |app| async move {
    let ada = app.enterprise("acme").await;
    let signal = Signal::new();
    let slow = receiver(Reply::new(200).wait_before_head(&signal)).await;
    let quick = receiver(Reply::new(200)).await;
    app.create_webhook(&ada, &slow.url(), &["key.create"]).await;
    app.create_webhook(&ada, &quick.url(), &["key.create"]).await;
    for number in 0..20 {
        app.create_key(&ada.token, json!({"name": format!("k{number}")})).await;
    }
    quick.wait_for_requests(20, WAIT_TIMEOUT).await;
    slow.wait_until(WAIT_TIMEOUT, "four at once", || slow.arrivals().len() >= 4).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(slow.arrivals().len(), 4, "so many at once to one receiver, and no more");
    signal.notify();
    slow.wait_for_requests(20, WAIT_TIMEOUT).await;
});

on_both!(an_unresponsive_receiver_fails_after_fifteen_seconds, |app| async move {
    let ada = app.enterprise("acme").await;
    let silent = receiver(Reply::no_response().then_stall()).await;
    // The head arrives in time and the body never ends: still a valid response.
    let endless = receiver(Reply::new(200).with_content_length(100).piece("thanks").then_stall()).await;
    let (first, second) = (
        app.create_webhook(&ada, &silent.url(), &["key.create"]).await,
        app.create_webhook(&ada, &endless.url(), &["key.create"]).await,
    );
    app.create_key(&ada.token, json!({"name": "k"})).await;
    silent.wait_for_aborts(1, Duration::from_secs(20)).await;
    let failed = app.delivery(&ada, &first, "attempted", |d| attempts(d) == 1).await;
    let attempt = &failed["attempts"][0];
    assert_eq!((&failed["status"], &attempt["status_code"]), (&json!("pending"), &Value::Null));
    assert!(attempt["error"].as_str().unwrap().contains("15000 ms"), "{attempt}");
    assert!(attempt["latency_ms"].as_i64().unwrap() >= 15_000);
    let taken = app.delivery(&ada, &second, "delivered", is("delivered")).await;
    assert_eq!(taken["attempts"][0]["response_body"], "thanks");
});

on_both!(dead_receivers_of_one_organization_cannot_use_all_slots, |app| async move {
    let (eve, ada) = (app.enterprise("evil").await, app.enterprise("acme").await);
    let dead = receiver(Reply::no_response().then_stall()).await;
    let alive = receiver(Reply::new(200)).await;
    for _ in 0..100 {
        app.create_webhook(&eve, &dead.url(), &["key.create"]).await;
    }
    let more = app.post("/api/v1/webhooks", json!({"url": dead.url()})).bearer(&eve.token).send().await;
    more.expect_error(403, "quota_exceeded");
    for number in 0..5 {
        app.create_key(&eve.token, json!({"name": format!("k{number}")})).await;
    }
    dead.wait_until(WAIT_TIMEOUT, "sixteen at once", || dead.arrivals().len() >= 16).await;
    app.create_webhook(&ada, &alive.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    alive.wait_for_requests(1, Duration::from_secs(5)).await;
    assert_eq!(dead.arrivals().len(), 16, "so many of one organization at once, and no more");
});

on_both!(a_rotated_secret_signs_beside_the_old_one_for_a_while, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    let rotate = async |body: Value| {
        let path = format!("{}/rotate-secret", hook.path());
        app.post(&path, body).bearer(&ada.token).send().await.expect(201)
    };
    let send = async |count: usize| {
        app.create_key(&ada.token, json!({"name": "k"})).await;
        upstream.wait_for_requests(count, WAIT_TIMEOUT).await.pop().unwrap()
    };
    let second = rotate(json!({"overlap_hours": 2})).await;
    let (new, until) = (second["secret"].as_str().unwrap(), time(&second["previous_secret_until"]));
    assert!(new.starts_with("whsec_") && new != hook.secret);
    assert!((until - app.app.services.clock.now().0 - 2 * HOUR).abs() < 10_000);
    let during = send(1).await;
    assert!(is_signed_by(&during, new) && is_signed_by(&during, &hook.secret));
    assert_eq!(during.header("webhook-signature").unwrap().split(' ').count(), 2);
    app.app.services.clock.advance(2 * HOUR + 1_000);
    let after = send(2).await;
    assert!(is_signed_by(&after, new) && !is_signed_by(&after, &hook.secret));
    let third = rotate(json!({"overlap_hours": 0})).await;
    assert_eq!(third["previous_secret_until"], Value::Null);
    let at_once = send(3).await;
    assert!(is_signed_by(&at_once, third["secret"].as_str().unwrap()) && !is_signed_by(&at_once, new));
});

on_both!(a_test_event_is_sent_also_to_an_inactive_webhook, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.put(&hook.path(), json!({"active": false})).bearer(&ada.token).send().await.expect(200);
    app.create_key(&ada.token, json!({"name": "unheard"})).await;
    let test = app.call(http::Method::POST, &format!("{}/test", hook.path())).bearer(&ada.token).send().await;
    assert_eq!(test.expect(202)["event_type"], "webhook.test");
    let request = upstream.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    assert!(is_signed_by(&request, &hook.secret));
    let event = request.json();
    assert_eq!((&event["type"], &event["data"]), (&json!("webhook.test"), &json!({"webhook_id": hook.id})));
    app.delivery(&ada, &hook, "delivered", is("delivered")).await;
});

on_both!(deliveries_wait_while_a_webhook_is_switched_off, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(500)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    app.delivery(&ada, &hook, "attempted", |d| attempts(d) == 1).await;
    app.put(&hook.path(), json!({"active": false})).bearer(&ada.token).send().await.expect(200);
    app.app.services.clock.advance(10_000);
    upstream.set_default_reply(Reply::new(200));
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(upstream.arrivals().len(), 1);
    app.put(&hook.path(), json!({"active": true})).bearer(&ada.token).send().await.expect(200);
    app.delivery(&ada, &hook, "delivered", is("delivered")).await;
});

on_both!(
    a_private_address_is_refused_at_the_connection,
    [("GATEWAY_EGRESS_PRIVATE", "deny")],
    |app| async move {
        let ada = app.enterprise("acme").await;
        let upstream = receiver(Reply::new(200)).await;
        let port = upstream.url().rsplit(':').next().unwrap().to_owned();
        for url in [upstream.url(), format!("http://localhost:{port}/"), format!("http://0x7f.1:{port}/")] {
            let hook = app.create_webhook(&ada, &url, &["budget.warning"]).await;
            app.post(&format!("{}/test", hook.path()), json!({})).bearer(&ada.token).send().await.expect(202);
            let delivery = app.delivery(&ada, &hook, "attempted", |d| attempts(d) == 1).await;
            assert!(delivery["attempts"][0]["error"].as_str().unwrap().contains("private"), "{delivery}");
        }
        assert_eq!(upstream.connections(), 0);
    }
);

on_both!(an_event_of_a_change_that_failed_is_never_sent, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &[]).await;
    let members = format!("/api/v1/orgs/{}/members", ada.org_id);
    let again = json!({"email": ada.email, "role": "member"});
    app.post(&members, again).bearer(&ada.token).send().await.expect_error(409, "conflict");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(app.deliveries(&ada, &hook).await.is_empty() && upstream.arrivals().is_empty());
});

/// Two nodes on one database share the deliveries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_nodes_deliver_an_event_once() {
    let data = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let config = crate::support::migrated_config(crate::support::Backend::Postgres, &data, &[]).await;
    let mut second_config = config.clone();
    let second_data = std::sync::Arc::new(tempfile::tempdir().unwrap());
    second_config.data_dir = second_data.path().to_owned();
    let app = TestApp::start(config, data).await;
    let second = TestApp::start(second_config, second_data).await;
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200).delay_head(Duration::from_millis(20))).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    for number in 0..40 {
        let node = if number % 2 == 0 { &app } else { &second };
        node.create_key(&ada.token, json!({"name": format!("k{number}")})).await;
    }
    upstream.wait_for_requests(40, WAIT_TIMEOUT).await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    let requests = upstream.requests();
    let ids: std::collections::HashSet<_> =
        requests.iter().map(|r| r.header("webhook-id").unwrap()).collect();
    assert_eq!((requests.len(), ids.len()), (40, 40));
    assert!(app.deliveries(&ada, &hook).await.iter().all(|delivery| delivery["status"] == "delivered"));
}

on_both!(a_pending_delivery_is_not_sent_after_the_plan_lost_webhooks, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(500)).await;
    let hook = app.create_webhook(&ada, &upstream.url(), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    app.delivery(&ada, &hook, "tried once", |delivery| attempts(delivery) == 1).await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&path, json!({"plan": "free"})).bearer(&ada.token).send().await.expect(200);
    app.app.services.clock.advance(HOUR);
    let (org, webhook) = (ada.org_id.parse().unwrap(), hook.id.parse().unwrap());
    let page = gateway_store::page::Page { limit: 10, before: None };
    let mut is_failed = false;
    for _ in 0..200 {
        let filter = gateway_store::deliveries::DeliveryFilter::default();
        let list = gateway_store::deliveries::list(&app.app.services.db, org, webhook, &filter, &page).await;
        is_failed = list.unwrap().rows[0].status == gateway_store::deliveries::DeliveryStatus::Failed;
        if is_failed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(is_failed, "the delivery is given up");
    assert_eq!(upstream.requests().len(), 1);
    app.set_enterprise_plan(&ada).await;
    let delivery = app.delivery(&ada, &hook, "failed", is("failed")).await;
    let error = delivery["attempts"][1]["error"].as_str().unwrap();
    assert!(error.contains("plan"), "{error}");
});
