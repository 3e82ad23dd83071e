//! Limits over the management API: their life, every error, roles, and what belongs to a limit.

use gateway_core::time::{HOUR, Timestamp};
use gateway_store::limits::{Refusals, add_refusals, record_notice};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::fields;
use crate::support::skills::ENTERPRISE;
use crate::support::{Account, TestApp, TestRequest, TestResponse};

fn path(of: &Account) -> String {
    format!("/api/v1/orgs/{}/limits", of.org_id)
}

fn one(of: &Account, limit: &Value) -> String {
    format!("{}/{}", path(of), limit["id"].as_str().unwrap())
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&path(by), body).bearer(&by.token).send().await
}

async fn list(app: &TestApp, by: &Account) -> Vec<Value> {
    let list = app.get(&path(by)).bearer(&by.token).send().await.expect(200);
    list["limits"].as_array().unwrap().clone()
}

on_both!(a_limit_is_created_read_changed_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let made = create(&app, &ada, json!({"name": "team-tokens", "tokens": 60_000, "per": "user"})).await;
    let made = made.expect(201);
    assert_eq!(
        fields(&made),
        [
            "concurrent",
            "count_cached",
            "created_at",
            "enabled",
            "id",
            "input_tokens",
            "missing",
            "mode",
            "models",
            "name",
            "output_tokens",
            "per",
            "requests",
            "reserve",
            "scope",
            "scope_id",
            "tokens",
            "updated_at",
            "window"
        ]
    );
    assert_eq!((&made["scope"], &made["scope_id"]), (&json!("org"), &Value::Null));
    assert_eq!((&made["window"], &made["mode"]), (&json!("minute"), &json!("enforce")));
    assert_eq!((&made["missing"], &made["per"]), (&json!("shared"), &json!("user")));
    assert_eq!((&made["enabled"], &made["count_cached"]), (&json!(true), &json!(true)));
    assert_eq!(app.get(&one(&ada, &made)).bearer(&ada.token).send().await.expect(200), made);
    let all = app.get(&path(&ada)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(all["limits"], json!([made]));
    assert!(["exact", "slices"].contains(&all["exactness"].as_str().unwrap()));
    // The answer can be sent back, and a PUT replaces everything.
    app.put(&one(&ada, &made), made.clone()).bearer(&ada.token).send().await.expect(200);
    let change = json!({
        "name": "hourly", "requests": 10, "concurrent": 2, "window": "hour", "models": ["claude-*"], "mode": "dry_run",
        "reserve": {"prod": 0.7}, "missing": "refuse", "enabled": false, "count_cached": false,
    });
    let changed = app.put(&one(&ada, &made), change.clone()).bearer(&ada.token).send().await.expect(200);
    for (field, value) in change.as_object().unwrap() {
        assert_eq!(changed[field], *value, "{field}");
    }
    assert_eq!((&changed["tokens"], &changed["per"]), (&Value::Null, &json!("none")));
    assert_eq!((&changed["id"], &changed["created_at"]), (&made["id"], &made["created_at"]));
    let gone = app.delete(&one(&ada, &made)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    for answer in [
        app.get(&one(&ada, &made)).bearer(&ada.token).send().await,
        app.get(&format!("{}/usage", one(&ada, &made))).bearer(&ada.token).send().await,
        app.delete(&one(&ada, &made)).bearer(&ada.token).send().await,
        app.put(&one(&ada, &made), json!({"name": "x", "requests": 1})).bearer(&ada.token).send().await,
    ] {
        answer.expect_error(404, "not_found");
    }
});

on_both!(a_wrong_limit_is_refused_with_the_name_of_the_field, |app| async move {
    let ada = app.signup("acme").await;
    let nobody = uuid::Uuid::new_v4().to_string();
    let cases = [
        (json!({"requests": 1}), "name"),
        (json!({"name": "With Blanks", "requests": 1}), "name"),
        (json!({"name": "a".repeat(41), "requests": 1}), "name"),
        (json!({"name": "a"}), "requests"),
        (json!({"name": "a", "requests": 0}), "requests"),
        (json!({"name": "a", "requests": "many"}), "requests: expected a whole number from 0"),
        (json!({"name": "a", "tokens": -1}), "tokens"),
        (json!({"name": "a", "tokens": 10_000_000_001_u64}), "tokens"),
        (json!({"name": "a", "requests": 1, "request": 1}), "request"),
        (json!({"name": "a", "requests": 1, "window": "week"}), "window"),
        (json!({"name": "a", "requests": 1, "per": "planet"}), "per"),
        (json!({"name": "a", "requests": 1, "mode": "off"}), "mode"),
        (json!({"name": "a", "requests": 1, "missing": "ignore"}), "missing"),
        (json!({"name": "a", "requests": 1, "models": []}), "models"),
        (json!({"name": "a", "requests": 1, "reserve": {"prod": 1.5}}), "reserve"),
        (json!({"name": "a", "requests": 1, "reserve": {"a": 0.6, "b": 0.6}}), "reserve"),
        (json!({"name": "a", "requests": 1, "scope": "team"}), "scope_id"),
        (json!({"name": "a", "requests": 1, "scope": "org", "scope_id": nobody}), "scope_id"),
        (json!({"name": "a", "requests": 1, "scope": "team", "scope_id": nobody}), "scope_id"),
        (json!({"name": "a", "requests": 1, "scope": "app", "scope_id": nobody}), "scope_id"),
        (json!({"name": "a", "requests": 1, "scope": "key", "scope_id": nobody}), "scope_id"),
        (json!({"name": "a", "requests": 1, "scope": "key", "scope_id": "x"}), "scope_id"),
    ];
    for (body, field) in cases {
        let error = create(&app, &ada, body.clone()).await.expect_error(400, "bad_request");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(field), "{body}: {message}");
    }
    assert_eq!(list(&app, &ada).await, Vec::<Value>::new());
});

on_both!(names_are_unique_and_their_number_is_limited, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let body = |n: usize| json!({"name": format!("limit-{n}"), "requests": 5});
    let first = create(&app, &ada, body(0)).await.expect(201);
    create(&app, &ada, body(0)).await.expect_error(409, "conflict");
    // Another organization has names of its own.
    create(&app, &eve, body(0)).await.expect(201);
    for n in 1..100 {
        create(&app, &ada, body(n)).await.expect(201);
    }
    let error = create(&app, &ada, body(100)).await.expect_error(409, "conflict");
    assert!(error["message"].as_str().unwrap().contains("100 limits"), "{error}");
    app.put(&one(&ada, &first), body(1)).bearer(&ada.token).send().await.expect_error(409, "conflict");
    app.put(&one(&ada, &first), body(0)).bearer(&ada.token).send().await.expect(200);
});

on_both!(admins_write_and_viewers_read, |app| async move {
    let ada = app.signup("acme").await;
    let limit = create(&app, &ada, json!({"name": "a", "requests": 1})).await.expect(201);
    for role in ["member", "viewer"] {
        let bob = app.join(&ada, role).await;
        let send = |call: TestRequest| call.bearer(&bob.token).send();
        send(app.get(&path(&ada))).await.expect(200);
        send(app.get(&one(&ada, &limit))).await.expect(200);
        send(app.get(&format!("{}/usage", one(&ada, &limit)))).await.expect(200);
        let body = json!({"name": "b", "requests": 1});
        send(app.post(&path(&ada), body.clone())).await.expect_error(403, "forbidden");
        send(app.put(&one(&ada, &limit), body)).await.expect_error(403, "forbidden");
        send(app.delete(&one(&ada, &limit))).await.expect_error(403, "forbidden");
    }
});

on_both!(a_limit_goes_with_what_it_belongs_to, |app| async move {
    let ada = app.signup("acme").await;
    let below = |what: &str| format!("/api/v1/orgs/{}/{what}", ada.org_id);
    let team = app.post(&below("teams"), json!({"name": "t"})).bearer(&ada.token).send().await.expect(201);
    let shop = app.post(&below("apps"), json!({"name": "a"})).bearer(&ada.token).send().await.expect(201);
    for (scope, id) in [("team", &team["id"]), ("app", &shop["id"])] {
        let body = json!({"name": scope, "requests": 1, "scope": scope, "scope_id": id});
        create(&app, &ada, body).await.expect(201);
    }
    create(&app, &ada, json!({"name": "model", "requests": 1, "scope": "model", "scope_id": "gpt-4o"}))
        .await
        .expect(201);
    for (what, id) in [("teams", &team["id"]), ("apps", &shop["id"])] {
        let path = format!("{}/{}", below(what), id.as_str().unwrap());
        app.delete(&path).bearer(&ada.token).send().await.expect(200);
    }
    let left: Vec<Value> = list(&app, &ada).await.iter().map(|limit| limit["name"].clone()).collect();
    assert_eq!(left, [json!("model")]);
});

on_both!(the_successor_of_a_key_has_its_limit_and_its_place_in_the_queue, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "ci", "class": "prod", "wait_ms": 500, "max_priority": 7});
    let key = app.post("/api/v1/keys", body).bearer(&ada.token).send().await.expect(201)["key"].clone();
    assert_eq!(
        (&key["class"], &key["wait_ms"], &key["max_priority"]),
        (&json!("prod"), &json!(500), &json!(7))
    );
    let body = json!({"name": "of-key", "requests": 1, "scope": "key", "scope_id": key["id"]});
    let limit = create(&app, &ada, body).await.expect(201);
    let path = format!("/api/v1/keys/{}", key["id"].as_str().unwrap());
    let new = app.post(&format!("{path}/rotate"), json!({})).bearer(&ada.token).send().await.expect(201);
    let new_path = format!("/api/v1/keys/{}", new["key"]["id"].as_str().unwrap());
    let successor = app.get(&new_path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&successor["class"], &successor["wait_ms"]), (&json!("prod"), &json!(500)));
    let (org, id) = (ada.org_id.parse().unwrap(), limit["id"].as_str().unwrap().parse().unwrap());
    let stored = gateway_store::limits::find(&app.app.services.db, org, id).await.unwrap().unwrap();
    assert_eq!(stored.keys.len(), 2);
    let change = json!({"class": null, "wait_ms": null, "max_priority": null});
    let changed = app.put(&path, change).bearer(&ada.token).send().await.expect(200);
    for field in ["class", "wait_ms", "max_priority"] {
        assert!(changed[field].is_null(), "{field}");
    }
    for (field, value) in [
        ("class", json!("Not A Class")),
        ("wait_ms", json!(30_001)),
        ("wait_ms", json!(-1)),
        ("max_priority", json!(10)),
    ] {
        let error = app.put(&path, json!({field: value})).bearer(&ada.token).send().await;
        let error = error.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().starts_with(field), "{error}");
    }
});

on_both!(the_limits_of_a_key_are_those_that_its_calls_count_against, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let make =
        async |path: &str, body: Value| app.post(path, body).bearer(&ada.token).send().await.expect(201);
    let below = |what: &str| format!("/api/v1/orgs/{}/{what}", ada.org_id);
    let team = make(&below("teams"), json!({"name": "t"})).await;
    let shop = make(&below("apps"), json!({"name": "a", "team_id": team["id"]})).await;
    let own = make("/api/v1/keys", json!({"name": "own", "app_id": shop["id"]})).await["key"].clone();
    let other = make("/api/v1/keys", json!({"name": "other"})).await["key"].clone();
    for body in [
        json!({"name": "org", "requests": 1}),
        json!({"name": "model", "requests": 1, "scope": "model", "scope_id": "gpt-4o"}),
        json!({"name": "team", "requests": 1, "scope": "team", "scope_id": team["id"]}),
        json!({"name": "app", "requests": 1, "scope": "app", "scope_id": shop["id"]}),
        json!({"name": "own", "requests": 1, "scope": "key", "scope_id": own["id"]}),
        json!({"name": "other", "requests": 1, "scope": "key", "scope_id": other["id"]}),
        json!({"name": "off", "requests": 1, "enabled": false}),
    ] {
        create(&app, &ada, body).await.expect(201);
    }
    let of_key = |account: &Account, key: &Value| {
        let path = format!("{}?limit=1&key={}", path(account), key["id"].as_str().unwrap());
        app.get(&path).bearer(&account.token).send()
    };
    let names = async |key: &Value| -> Vec<String> {
        let found = of_key(&ada, key).await.expect(200);
        assert!(found["next_cursor"].is_null(), "all are on one page");
        let limits = found["limits"].as_array().unwrap();
        let names = limits.iter().map(|limit| limit["name"].as_str().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    assert_eq!(names(&own).await, ["app", "model", "org", "own", "team"]);
    assert_eq!(names(&other).await, ["model", "org", "other"]);
    let rotate = format!("/api/v1/keys/{}/rotate", own["id"].as_str().unwrap());
    let successor = make(&rotate, json!({})).await["key"].clone();
    assert_eq!(names(&successor).await, ["app", "model", "org", "own", "team"]);
    let error = of_key(&eve, &own).await.expect_error(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("no such key"), "{error}");
    of_key(&ada, &json!({"id": "x"})).await.expect_error(400, "bad_request");
});

on_both!(the_class_of_a_key_chooses_a_target, |app| async move {
    let ada = app.signup("acme").await;
    let model = json!({
        "name": "by-class",
        "strategy": {
            "mode": "conditional", "default": "small",
            "conditions": [{"query": {"key.class": "prod"}, "then": "large"}],
        },
        "targets": [
            {"id": "large", "provider": "sandbox", "model": "sandbox-large"},
            {"id": "small", "provider": "sandbox", "model": "sandbox-small"},
        ],
    });
    let models = format!("/api/v1/orgs/{}/models", ada.org_id);
    app.post(&models, model).bearer(&ada.token).send().await.expect(201);
    let key = json!({"name": "prod", "class": "prod"});
    let key = app.post("/api/v1/keys", key).bearer(&ada.token).send().await.expect(201);
    for (key, expected) in
        [(key["raw_key"].as_str().unwrap(), "sandbox-large"), (&ada.api_key, "sandbox-small")]
    {
        let body = json!({"model": "by-class", "messages": [{"role": "user", "content": "hi"}]});
        let answer =
            app.post("/v1/chat/completions", body).key(key).header("x-gateway-provider", "auto").send().await;
        answer.expect(200);
        assert_eq!(answer.header("x-gateway-model"), Some(expected));
    }
});

on_both!(members_cannot_give_a_key_a_class_or_raise_its_priority, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let send = |call: TestRequest| call.bearer(&bob.token).send();
    let keys = "/api/v1/keys";
    send(app.post(keys, json!({"name": "k", "class": "prod"}))).await.expect_error(403, "forbidden");
    let key = send(app.post(keys, json!({"name": "k", "max_priority": 3}))).await.expect(201);
    let path = format!("{keys}/{}", key["key"]["id"].as_str().unwrap());
    send(app.put(&path, json!({"max_priority": 4}))).await.expect_error(403, "forbidden");
    send(app.put(&path, json!({"max_priority": 2, "wait_ms": 100, "class": null}))).await.expect(200);
});

on_both!(refusals_are_shown_by_hour_and_a_window_is_noticed_once, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let limit = create(&app, &ada, json!({"name": "a", "requests": 1})).await.expect(201);
    let id = limit["id"].as_str().unwrap().parse().unwrap();
    let (db, now) = (&app.app.services.db, app.app.services.clock.now());
    let hour = Timestamp(now.0 - now.0.rem_euclid(HOUR));
    let gone = uuid::Uuid::new_v4().into();
    for _ in 0..2 {
        let of = |limit, hour| Refusals { limit, hour, refused: 2, would_refuse: 1 };
        let refusals =
            [of(id, hour), of(id, hour.plus(-HOUR)), of(id, hour.plus(-200 * HOUR)), of(gone, hour)];
        add_refusals(db, &refusals).await.unwrap();
    }
    let usage = app.get(&format!("{}/usage", one(&ada, &limit))).bearer(&ada.token).send().await.expect(200);
    let shown = |hour: Timestamp| json!({"hour": hour, "refused": 4, "would_refuse": 2});
    assert_eq!(
        usage,
        json!({"buckets": [], "scope": "all", "refusals": [shown(hour.plus(-HOUR)), shown(hour)]})
    );
    let foreign = format!("{}/{}/usage", path(&eve), limit["id"].as_str().unwrap());
    app.get(&foreign).bearer(&eve.token).send().await.expect_error(404, "not_found");

    let mut tx = db.begin().await.unwrap();
    let (ours, theirs) = (ada.org_id.parse().unwrap(), eve.org_id.parse().unwrap());
    assert!(!record_notice(&mut tx, theirs, id, hour).await.unwrap());
    assert!(record_notice(&mut tx, ours, id, hour).await.unwrap());
    assert!(!record_notice(&mut tx, ours, id, hour).await.unwrap());
    assert!(record_notice(&mut tx, ours, id, hour.plus(HOUR)).await.unwrap());
    tx.commit().await.unwrap();
});

on_both!(the_setting_of_the_headers_is_one_of_three, |app| async move {
    let ada = app.signup("acme").await;
    let path = format!("/api/v1/orgs/{}", ada.org_id);
    let org = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(org["settings"]["limit_headers"], "all");
    for value in ["minimal", "off"] {
        let change = json!({"settings": {"limit_headers": value}});
        let changed = app.put(&path, change).bearer(&ada.token).send().await.expect(200);
        assert_eq!(changed["settings"]["limit_headers"], value);
    }
    let wrong = json!({"settings": {"limit_headers": "some"}});
    app.put(&path, wrong).bearer(&ada.token).send().await.expect_error(400, "bad_request");
});

on_both!(a_webhook_can_ask_for_reached_limits, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"url": "http://127.0.0.1:9/", "events": ["limit.reached"]});
    app.post("/api/v1/webhooks", body).bearer(&ada.token).send().await.expect(201);
});

on_both!(limits_are_deleted_with_their_organization, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, json!({"name": "a", "requests": 1})).await.expect(201);
    app.delete(&format!("/api/v1/orgs/{}", ada.org_id)).bearer(&ada.token).send().await.expect(200);
    let org = ada.org_id.parse().unwrap();
    let left = gateway_store::limits::list_all(&app.app.services.db, org).await.unwrap();
    assert_eq!(left, []);
});
