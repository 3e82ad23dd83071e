//! Webhooks as a resource: representation, validation and permissions.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_field_error, assert_uuid_v7, fields, missing_id, time};

const HOOKS: &str = "/api/v1/webhooks";

on_both!(a_new_webhook_shows_its_secret_once, |app| async move {
    let ada = app.enterprise("acme").await;
    let body =
        json!({"url": "https://example.com/hook?x=1", "events": ["key.create", "app.delete", "key.create"]});
    let made = app.post(HOOKS, body).bearer(&ada.token).send().await.expect(201);
    assert_uuid_v7(&made["id"]);
    time(&made["created_at"]);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 6 + 44, "{secret}");
    assert_eq!(made["url"], "https://example.com/hook?x=1");
    assert_eq!(made["events"], json!(["key.create", "app.delete"]));
    assert_eq!((&made["active"], &made["failing_since"]), (&json!(true), &Value::Null));
    let path = format!("{HOOKS}/{}", made["id"].as_str().unwrap());
    let found = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(
        fields(&found),
        ["active", "created_at", "deactivated_reason", "events", "failing_since", "id", "url"]
    );
    let list = app.get(HOOKS).key(&ada.api_key).send().await.expect(200);
    assert_eq!(list, json!({"webhooks": [found], "next_cursor": null}));
});

on_both!(no_events_means_all_of_them, |app| async move {
    let ada = app.enterprise("acme").await;
    for body in [json!({"url": "https://example.com"}), json!({"url": "https://example.com", "events": []})] {
        let made = app.post(HOOKS, body).bearer(&ada.token).send().await.expect(201);
        assert_eq!(made["events"], json!([]));
        assert_eq!(made["url"], "https://example.com", "an address stays as it was written");
    }
});

on_both!(bad_bodies_name_the_field_and_change_nothing, |app| async move {
    let ada = app.enterprise("acme").await;
    let send = async |body: Value| app.post(HOOKS, body).bearer(&ada.token).send().await;
    for url in [
        json!("example.com"),
        json!("ftp://example.com"),
        json!("https://"),
        json!(5),
        json!("http://u:p@h/"),
    ] {
        assert_field_error(&send(json!({"url": url})).await, "url");
    }
    assert_field_error(&send(json!({})).await, "url");
    for events in [json!(["key.explode"]), json!("key.create"), json!([1]), json!(["webhook.test"])] {
        assert_field_error(&send(json!({"url": "https://example.com", "events": events})).await, "events");
    }
    let list = app.get(HOOKS).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["webhooks"], json!([]));
    let hook = app.create_webhook(&ada, "https://example.com", &["key.create"]).await;
    let put = async |body: Value| app.put(&hook.path(), body).bearer(&ada.token).send().await;
    assert_field_error(&put(json!({"url": "nowhere"})).await, "url");
    assert_field_error(&put(json!({"active": false, "events": ["x"]})).await, "events");
    assert_field_error(&put(json!({"active": "no"})).await, "active");
    let rotate = app.post(&format!("{}/rotate-secret", hook.path()), json!({"overlap_hours": 721}));
    assert_field_error(&rotate.bearer(&ada.token).send().await, "overlap_hours");
    let found = app.get(&hook.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&found["active"], &found["events"]), (&json!(true), &json!(["key.create"])));
});

on_both!(fields_left_out_of_a_change_stay, |app| async move {
    let ada = app.enterprise("acme").await;
    let hook = app.create_webhook(&ada, "https://example.com/a", &["key.create"]).await;
    let put = async |body: Value| app.put(&hook.path(), body).bearer(&ada.token).send().await.expect(200);
    let changed = put(json!({"url": "https://example.com/b"})).await;
    assert_eq!(
        (&changed["url"], &changed["events"]),
        (&json!("https://example.com/b"), &json!(["key.create"]))
    );
    let changed = put(json!({"active": false})).await;
    assert_eq!((&changed["url"], &changed["active"]), (&json!("https://example.com/b"), &json!(false)));
    assert_eq!(put(json!({"events": []})).await["events"], json!([]));
    assert!(put(json!({})).await.get("secret").is_none());
});

on_both!(a_deleted_webhook_is_gone, |app| async move {
    let ada = app.enterprise("acme").await;
    let hook = app.create_webhook(&ada, "https://example.com/a", &[]).await;
    let gone = app.delete(&hook.path()).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    for path in [hook.path(), format!("{}/deliveries", hook.path())] {
        app.get(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    }
    app.delete(&hook.path()).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.put(&hook.path(), json!({})).bearer(&ada.token).send().await.expect_error(404, "not_found");
    for path in ["test", "rotate-secret", "deliveries/retry"] {
        let answer = app.post(&format!("{}/{path}", hook.path()), json!({})).bearer(&ada.token).send().await;
        answer.expect_error(404, "not_found");
    }
    let retry = format!("{HOOKS}/{}/deliveries/{}/retry", hook.id, missing_id().as_str().unwrap());
    app.post(&retry, json!({})).bearer(&ada.token).send().await.expect_error(404, "not_found");
    app.get(&format!("{HOOKS}/nonsense")).bearer(&ada.token).send().await.expect_error(400, "bad_request");
});

on_both!(lists_come_in_pages, |app| async move {
    let ada = app.enterprise("acme").await;
    let mut made = Vec::new();
    for number in 0..5 {
        made.push(app.create_webhook(&ada, &format!("https://example.com/{number}"), &[]).await.id);
    }
    made.reverse();
    let (mut seen, mut path) = (Vec::new(), format!("{HOOKS}?limit=2"));
    loop {
        let page = app.get(&path).bearer(&ada.token).send().await.expect(200);
        seen.extend(
            page["webhooks"].as_array().unwrap().iter().map(|hook| hook["id"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{HOOKS}?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, made);
    assert_field_error(&app.get(&format!("{HOOKS}?limit=0")).bearer(&ada.token).send().await, "limit");
    assert_field_error(&app.get(&format!("{HOOKS}?cursor=%21")).bearer(&ada.token).send().await, "cursor");
});

on_both!(the_plan_comes_before_the_role_and_the_role_before_the_body, |app| async move {
    let ada = app.signup("acme").await;
    for (method, path) in [
        (http::Method::GET, HOOKS.to_owned()),
        (http::Method::POST, HOOKS.to_owned()),
        (http::Method::GET, format!("{HOOKS}/nonsense")),
        (http::Method::POST, format!("{HOOKS}/nonsense/test")),
        (http::Method::GET, format!("{HOOKS}/nonsense/deliveries")),
    ] {
        let refused = app.call(method, &path).bearer(&ada.token).send().await;
        let body = refused.expect_error(403, "forbidden");
        assert!(body["message"].as_str().unwrap().contains("plan"), "{body}");
    }
    app.set_enterprise_plan(&ada).await;
    let hook = app.create_webhook(&ada, "https://example.com", &[]).await;
    for role in ["viewer", "member"] {
        let caller = app.join(&ada, role).await;
        app.get(&hook.path()).bearer(&caller.token).send().await.expect(200);
        app.get(&format!("{}/deliveries", hook.path())).bearer(&caller.token).send().await.expect(200);
        let refused = app.call(http::Method::POST, HOOKS).raw("{").bearer(&caller.token).send().await;
        let body = refused.expect_error(403, "forbidden");
        assert!(body["message"].as_str().unwrap().contains("admin"), "{body}");
    }
});

on_both!(concurrent_requests_do_not_exceed_the_limit, |app| async move {
    let ada = app.enterprise("acme").await;
    let create = |number: usize| {
        let body = json!({"url": format!("https://example.com/{number}"), "events": ["key.create"]});
        app.post(HOOKS, body).bearer(&ada.token).send()
    };
    let answers = futures_util::future::join_all((0..110).map(create)).await;
    let created = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(created, 100);
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        refused.expect_error(403, "quota_exceeded");
    }
});

on_both!(a_delivery_log_is_filtered, |app| async move {
    let ada = app.enterprise("acme").await;
    let hook = app.create_webhook(&ada, "http://127.0.0.1:9/closed", &["key.create", "app.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    app.post(&format!("/api/v1/orgs/{}/apps", ada.org_id), json!({"name": "a"}))
        .bearer(&ada.token)
        .send()
        .await
        .expect(201);
    let ask = async |query: &str| {
        let path = format!("{}/deliveries?{query}", hook.path());
        let list = app.get(&path).bearer(&ada.token).send().await.expect(200);
        let types = list["deliveries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["event_type"].as_str().unwrap().to_owned());
        types.collect::<Vec<_>>()
    };
    assert_eq!(ask("").await, ["app.create", "key.create"]);
    assert_eq!(ask("type=key.create").await, ["key.create"]);
    assert_eq!(ask("status=pending").await.len(), 2);
    assert!(ask("status=delivered").await.is_empty());
    assert!(ask("to=2020-01-01T00:00:00Z").await.is_empty());
    assert_eq!(ask("from=2020-01-01T00:00:00Z").await.len(), 2);
    for (query, field) in [("status=lost", "status"), ("from=yesterday", "from"), ("limit=x", "limit")] {
        let path = format!("{}/deliveries?{query}", hook.path());
        assert_field_error(&app.get(&path).bearer(&ada.token).send().await, field);
    }
});
