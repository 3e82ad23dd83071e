//! Saved views over HTTP: what is valid, who sees and changes them, limits, races, and what ends with a member.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestResponse};

fn path(of: &Account) -> String {
    format!("/api/v1/orgs/{}/views", of.org_id)
}

fn one(of: &Account, view: &Value) -> String {
    format!("{}/{}", path(of), view["id"].as_str().unwrap())
}

fn failures() -> Value {
    json!({"name": "failures", "page": "logs", "query": "status:error -source:api", "sort": "latency", "range": "24h",
        "columns": ["time", "model", "error"]})
}

fn named(name: &str, shared: bool) -> Value {
    json!({"name": name, "page": "logs", "shared": shared})
}

async fn create(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&path(by), body).bearer(&by.token).send().await
}

async fn change(app: &TestApp, by: &Account, view: &Value, body: Value) -> TestResponse {
    app.call(http::Method::PATCH, &one(by, view)).json(body).bearer(&by.token).send().await
}

async fn names(app: &TestApp, by: &Account, query: &str) -> Vec<String> {
    let list = app.get(&format!("{}{query}", path(by))).bearer(&by.token).send().await.expect(200);
    let views = list["views"].as_array().unwrap();
    views.iter().map(|view| view["name"].as_str().unwrap().to_owned()).collect()
}

on_both!(a_view_is_saved_read_changed_and_deleted, |app| async move {
    let ada = app.signup("acme").await;
    let made = create(&app, &ada, failures()).await.expect(201);
    for (field, value) in failures().as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    assert_eq!((&made["shared"], &made["created_by"]), (&json!(false), &json!(ada.user_id)));
    let usage = json!({"name": "spend", "page": "usage", "by": "user"});
    let usage = create(&app, &ada, usage).await.expect(201);
    assert_eq!(usage["by"], "user");
    let usage = change(&app, &ada, &usage, json!({"by": null})).await.expect(200);
    for field in ["columns", "sort", "by", "range"] {
        assert_eq!(usage[field], Value::Null, "{field}");
    }
    assert_eq!(names(&app, &ada, "").await, ["spend", "failures"]);
    assert_eq!(names(&app, &ada, "?page=logs").await, ["failures"]);
    assert_eq!(names(&app, &ada, "?limit=1").await, ["spend"]);
    let changed = change(&app, &ada, &made, json!({"name": "errors", "sort": null})).await.expect(200);
    assert_eq!((&changed["name"], &changed["sort"]), (&json!("errors"), &Value::Null));
    assert_eq!((&changed["query"], &changed["columns"]), (&made["query"], &made["columns"]));
    assert_eq!(app.get(&one(&ada, &made)).bearer(&ada.token).send().await.expect(200), changed);
    app.delete(&one(&ada, &made)).bearer(&ada.token).send().await.expect(200);
    app.get(&one(&ada, &made)).bearer(&ada.token).send().await.expect_error(404, "not_found");
});

on_both!(a_wrong_view_is_refused_with_the_name_of_the_field, |app| async move {
    let ada = app.signup("acme").await;
    let made = create(&app, &ada, failures()).await.expect(201);
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("x".repeat(81))),
        ("query", json!("nothing:1")),
        ("query", json!("a".repeat(2049))),
        ("columns", json!([])),
        ("columns", json!(["a", "a"])),
        ("sort", json!("p95")),
        ("by", json!("model")),
        ("range", json!("tomorrow")),
        ("color", json!("red")),
    ] {
        let mut body = failures();
        (body["name"], body[field]) = (json!("other"), value.clone());
        let refused = create(&app, &ada, body).await.expect_error(400, "bad_request");
        assert!(refused["message"].to_string().contains(field), "{field}: {refused}");
        let mut body = json!({});
        body[field] = value;
        let refused = change(&app, &ada, &made, body).await.expect_error(400, "bad_request");
        assert!(refused["message"].to_string().contains(field), "{field}: {refused}");
    }
    let place = json!({"query": "status:200 bad:1"});
    let place = change(&app, &ada, &made, place).await.expect_error(400, "bad_request");
    assert_eq!((&place["position"], &place["length"]), (&json!(11), &json!(3)));
    create(&app, &ada, json!({"name": "a", "page": "keys"})).await.expect_error(400, "bad_request");
    change(&app, &ada, &made, json!({"page": "usage"})).await.expect_error(400, "bad_request");
});

on_both!(a_name_is_unique_for_its_owner_only, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    create(&app, &ada, failures()).await.expect(201);
    create(&app, &ada, failures()).await.expect_error(409, "conflict");
    create(&app, &bob, failures()).await.expect(201);
    let other = create(&app, &ada, named("other", true)).await.expect(201);
    change(&app, &ada, &other, json!({"name": "failures"})).await.expect_error(409, "conflict");
    change(&app, &ada, &other, json!({"name": "other"})).await.expect(200);
});

on_both!(private_views_are_seen_by_their_creator_and_shared_ones_by_all, |app| async move {
    let ada = app.signup("acme").await;
    let (bob, victor) = (app.join(&ada, "member").await, app.join(&ada, "viewer").await);
    let private = create(&app, &bob, named("private", false)).await.expect(201);
    let shared = create(&app, &bob, named("shared", true)).await.expect(201);
    for reader in [&ada, &victor] {
        assert_eq!(names(&app, reader, "").await, ["shared"]);
        app.get(&one(reader, &shared)).bearer(&reader.token).send().await.expect(200);
        app.get(&one(reader, &private)).bearer(&reader.token).send().await.expect_error(404, "not_found");
        change(&app, reader, &private, json!({"name": "x"})).await.expect_error(404, "not_found");
        app.delete(&one(reader, &private)).bearer(&reader.token).send().await.expect_error(404, "not_found");
    }
    assert_eq!(names(&app, &bob, "").await, ["shared", "private"]);
});

on_both!(shared_views_are_changed_by_their_creator_and_admins, |app| async move {
    let ada = app.signup("acme").await;
    let (bob, carl) = (app.join(&ada, "member").await, app.join(&ada, "member").await);
    let victor = app.join(&ada, "viewer").await;
    let view = create(&app, &bob, named("shared", true)).await.expect(201);
    for other in [&carl, &victor] {
        change(&app, other, &view, json!({"name": "x"})).await.expect_error(403, "forbidden");
        app.delete(&one(other, &view)).bearer(&other.token).send().await.expect_error(403, "forbidden");
    }
    let changed = change(&app, &ada, &view, json!({"query": "status:error"})).await.expect(200);
    assert_eq!((&changed["query"], &changed["created_by"]), (&json!("status:error"), &json!(bob.user_id)));
    // It would vanish for the others, and count against the private views of its creator.
    change(&app, &ada, &view, json!({"shared": false})).await.expect_error(403, "forbidden");
    assert_eq!(change(&app, &bob, &view, json!({"shared": false})).await.expect(200)["shared"], false);
    change(&app, &ada, &view, json!({"name": "x"})).await.expect_error(404, "not_found");
    // Viewers have private views, and share none.
    let own = create(&app, &victor, named("mine", false)).await.expect(201);
    create(&app, &victor, named("ours", true)).await.expect_error(403, "forbidden");
    change(&app, &victor, &own, json!({"shared": true})).await.expect_error(403, "forbidden");
    change(&app, &bob, &view, json!({"shared": true})).await.expect(200);
    app.delete(&one(&ada, &view)).bearer(&ada.token).send().await.expect(200);
    assert!(names(&app, &bob, "").await.is_empty());
});

on_both!(a_key_has_shared_views_only, |app| async move {
    let ada = app.signup("acme").await;
    let by_key = |body: Value| app.post(&path(&ada), body).key(&ada.api_key).send();
    let refused = by_key(named("mine", false)).await.expect_error(400, "bad_request");
    assert!(refused["message"].to_string().contains("shared"), "{refused}");
    let made = by_key(named("ours", true)).await.expect(201);
    assert_ne!(made["created_by"], json!(ada.user_id));
    assert_eq!(names(&app, &ada, "").await, ["ours"]);
    let reads = json!({"name": "reader", "scopes": ["read"]});
    let reads = app.post("/api/v1/keys", reads).bearer(&ada.token).send().await.expect(201);
    let reads = reads["raw_key"].as_str().unwrap();
    app.get(&one(&ada, &made)).key(reads).send().await.expect(200);
    app.post(&path(&ada), named("more", true)).key(reads).send().await.expect_error(403, "forbidden");
});

on_both!(other_organizations_see_nothing, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let view = create(&app, &ada, named("shared", true)).await.expect(201);
    let foreign = one(&ada, &view).replace(&ada.org_id, &eve.org_id);
    for call in [app.get(&foreign), app.delete(&foreign), app.get(&path(&ada)), app.get(&one(&ada, &view))] {
        call.bearer(&eve.token).send().await.expect_error(404, "not_found");
    }
    change(&app, &eve, &view, json!({"name": "x"})).await.expect_error(404, "not_found");
    assert!(names(&app, &eve, "").await.is_empty());
    assert_eq!(names(&app, &ada, "").await, ["shared"]);
});

on_both!(concurrent_saves_keep_to_the_limits_and_to_one_name, |app| async move {
    let ada = app.signup("acme").await;
    let same = join_all((0..6).map(|_| create(&app, &ada, failures()))).await;
    let created: Vec<u16> = same.iter().map(|answer| answer.status.as_u16()).collect();
    assert_eq!(created.iter().filter(|status| **status == 201).count(), 1, "{created:?}");
    assert_eq!(created.iter().filter(|status| **status == 409).count(), 5, "{created:?}");
    let bodies: Vec<Value> = (0..55).map(|number| named(&format!("v{number}"), false)).collect();
    let many = join_all(bodies.into_iter().map(|body| create(&app, &ada, body))).await;
    assert_eq!(many.iter().filter(|answer| answer.status == 201).count(), 49);
    assert_eq!(many.iter().filter(|answer| answer.status == 409).count(), 6);
    // A shared one is no private one, until it is made one.
    let shared = create(&app, &ada, named("ours", true)).await.expect(201);
    change(&app, &ada, &shared, json!({"shared": false})).await.expect_error(409, "conflict");
    for number in 0..149 {
        create(&app, &ada, named(&format!("s{number}"), true)).await.expect(201);
    }
    let last = create(&app, &ada, named("one more", true)).await.expect_error(409, "conflict");
    assert!(last["message"].to_string().contains("200"), "{last}");
});

on_both!(views_end_with_their_member_and_the_audit_log_hides_private_ones, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let mut secret = named("about the layoffs", false);
    secret["query"] = json!("layoffs");
    create(&app, &bob, secret).await.expect(201);
    create(&app, &bob, named("shared by bob", true)).await.expect(201);
    create(&app, &ada, named("shared by ada", true)).await.expect(201);
    let log = format!("/api/v1/orgs/{}/audit?limit=200", ada.org_id);
    let log = app.get(&log).bearer(&ada.token).send().await.expect(200).to_string();
    assert!(log.contains("view.create") && log.contains("shared by bob"), "{log}");
    assert!(!log.contains("layoffs"), "{log}");
    let member = format!("/api/v1/orgs/{}/members/{}", ada.org_id, bob.user_id);
    app.delete(&member).bearer(&ada.token).send().await.expect(200);
    assert_eq!(names(&app, &ada, "").await, ["shared by ada"]);
    let left = "SELECT COUNT(*) AS n FROM views";
    let left = app.app.services.db.opt(left, Vec::new()).await.unwrap().unwrap();
    assert_eq!(left.get::<i64>("n").unwrap(), 1);
});
