//! Exports as a resource: representation, validation and permissions.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::TestResponse;
use crate::support::assertions::{assert_uuid_v7, fields, missing_id, time, with, without_field};
use crate::support::receiver::{WAIT_TIMEOUT, is_signed_by};
use crate::upstream::{Reply, Upstream};

const EXPORTS: &str = "/api/v1/exports";

fn otlp() -> Value {
    json!({"name": "collector", "kind": "otlp", "endpoint": "https://example.com", "enabled": false})
}

/// Asserts an error body with two fields whose message names the problem.
#[track_caller]
fn assert_refused(answer: &TestResponse, status: u16, code: &str, word: &str) {
    let body = answer.expect(status);
    assert_eq!((fields(&body), &body["error_code"]), (vec!["error", "error_code"], &json!(code)), "{body}");
    assert!(body["error"].as_str().unwrap().contains(word), "{body} does not name {word}");
}

on_both!(a_new_export_never_shows_headers_or_secret, |app| async move {
    let ada = app.enterprise("acme").await;
    let body = json!({"name": "hook", "kind": "webhook", "endpoint": "https://example.com/x", "secret": "s3cret-text",
        "headers": {"Authorization": "Bearer t0ken-text"}, "include_sources": ["otel", "proxy"], "enabled": false});
    let made = app.post(EXPORTS, body).bearer(&ada.token).send().await.expect(201);
    assert_eq!(
        fields(&made),
        [
            "created_at",
            "enabled",
            "endpoint",
            "has_secret",
            "id",
            "include_sources",
            "kind",
            "name",
            "query",
            "status",
            "updated_at"
        ]
    );
    assert_uuid_v7(&made["id"]);
    time(&made["created_at"]);
    assert_eq!((&made["has_secret"], &made["enabled"]), (&json!(true), &json!(false)));
    assert_eq!(made["include_sources"], json!(["otel", "proxy"]));
    assert_eq!(
        made["status"],
        json!({"last_success_at": null, "last_error": null, "delivered": 0, "failed": 0, "dropped": 0, "skipped": 0, "lag": 0})
    );
    let path = format!("{EXPORTS}/{}", made["id"].as_str().unwrap());
    let found = app.get(&path).key(&ada.api_key).send().await.expect(200);
    assert_eq!(found, made);
    let list = app.get("/api/exports").bearer(&ada.token).send().await;
    assert_eq!(list.expect(200), json!({"exports": [found], "next_cursor": null}));
    let changed = app.put(&path, json!({"name": "renamed"})).bearer(&ada.token).send().await;
    for text in [list.text(), changed.text()] {
        assert!(!text.contains("s3cret-text") && !text.contains("t0ken-text"), "{text}");
    }
});

on_both!(defaults_are_proxy_and_api_and_enabled, |app| async move {
    let ada = app.enterprise("acme").await;
    let body = json!({"name": "c", "kind": "otlp", "endpoint": "http://127.0.0.1:9"});
    let made = app.post(EXPORTS, body).bearer(&ada.token).send().await.expect(201);
    assert_eq!(made["include_sources"], json!(["proxy", "api"]));
    assert_eq!((&made["enabled"], &made["has_secret"]), (&json!(true), &json!(false)));
    assert_eq!(made["endpoint"], "http://127.0.0.1:9");
});

on_both!(bad_bodies_are_refused_and_change_nothing, |app| async move {
    let ada = app.enterprise("acme").await;
    let send = async |body: &Value| app.post(EXPORTS, body.clone()).bearer(&ada.token).send().await;
    let malformed = app.call(http::Method::POST, EXPORTS).raw("{").bearer(&ada.token).send().await;
    assert_refused(&malformed, 400, "invalid_body", "JSON");
    assert_refused(&send(&with(&otlp(), "name", 5)).await, 400, "invalid_body", "name");
    assert_refused(&send(&with(&otlp(), "headers", json!({"a": 1}))).await, 400, "invalid_body", "headers");
    for field in ["name", "kind", "endpoint"] {
        assert_refused(&send(&without_field(&otlp(), field)).await, 400, "invalid_config", field);
    }
    for (field, value) in [
        ("kind", json!("kafka")),
        ("name", json!("")),
        ("endpoint", json!("nowhere")),
        ("endpoint", json!("ftp://example.com")),
        ("include_sources", json!(["proxy", "console"])),
        ("include_sources", json!([])),
        ("secret", json!("only webhooks sign")),
        ("headers", json!({"Content-Length": "5"})),
        ("headers", json!({"bad name": "x"})),
    ] {
        assert_refused(&send(&with(&otlp(), field, value)).await, 400, "invalid_config", field);
    }
    let hook = with(&with(&otlp(), "kind", "webhook"), "secret", "whsec_???");
    assert_refused(&send(&hook).await, 400, "invalid_config", "secret");
    let list = app.get(EXPORTS).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["exports"], json!([]));

    let id = app.export(&ada, &otlp()).await;
    let path = format!("{EXPORTS}/{id}");
    let put = async |body: Value| app.put(&path, body).bearer(&ada.token).send().await;
    assert_refused(&put(json!({"enabled": "yes"})).await, 400, "invalid_body", "enabled");
    assert_refused(&put(json!({"name": "x", "kind": "smoke"})).await, 400, "invalid_config", "kind");
    let malformed = app.call(http::Method::PUT, &path).raw("[").bearer(&ada.token).send().await;
    assert_refused(&malformed, 400, "invalid_body", "object");
    let found = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(found["name"], "collector");
});

on_both!(a_name_is_taken_once_in_an_organization, |app| async move {
    let (ada, eve) = (app.enterprise("acme").await, app.enterprise("evil").await);
    app.export(&ada, &otlp()).await;
    app.export(&eve, &otlp()).await;
    let again = app.post(EXPORTS, otlp()).bearer(&ada.token).send().await;
    assert_refused(&again, 409, "duplicate_name", "name");
    let other = app.export(&ada, &with(&otlp(), "name", "other")).await;
    let rename =
        app.put(&format!("{EXPORTS}/{other}"), json!({"name": "collector"})).bearer(&ada.token).send().await;
    assert_refused(&rename, 409, "duplicate_name", "name");
    let same =
        app.put(&format!("{EXPORTS}/{other}"), json!({"name": "other"})).bearer(&ada.token).send().await;
    same.expect(200);
});

on_both!(ids_that_are_none_or_name_nothing, |app| async move {
    let ada = app.enterprise("acme").await;
    let missing = format!("{EXPORTS}/{}", missing_id().as_str().unwrap());
    let bad = format!("{EXPORTS}/42");
    for (path, status, code) in [(bad, 400, "invalid_id"), (missing, 404, "not_found")] {
        assert_refused(&app.get(&path).bearer(&ada.token).send().await, status, code, "");
        assert_refused(&app.put(&path, json!({})).bearer(&ada.token).send().await, status, code, "");
        assert_refused(&app.delete(&path).bearer(&ada.token).send().await, status, code, "");
        let test = app.post(&format!("{path}/test"), json!({})).bearer(&ada.token).send().await;
        assert_refused(&test, status, code, "");
    }
});

on_both!(fields_left_out_of_a_change_stay, |app| async move {
    let ada = app.enterprise("acme").await;
    let hook = with(&with(&otlp(), "kind", "webhook"), "secret", "abc");
    let path = format!("{EXPORTS}/{}", app.export(&ada, &hook).await);
    let put = async |body: Value| app.put(&path, body).bearer(&ada.token).send().await.expect(200);
    let changed = put(json!({"endpoint": "https://example.com/other"})).await;
    assert_eq!((&changed["has_secret"], &changed["kind"]), (&json!(true), &json!("webhook")));
    assert_eq!(put(json!({"include_sources": ["api"]})).await["include_sources"], json!(["api"]));
    assert_eq!(put(json!({"secret": null})).await["has_secret"], false);
    assert_eq!(put(json!({"secret": "whsec_c2VjcmV0"})).await["has_secret"], true);
    let changed = put(json!({"kind": "otlp"})).await;
    assert_eq!((&changed["kind"], &changed["has_secret"]), (&json!("otlp"), &json!(false)));
    assert!(time(&changed["updated_at"]) >= time(&changed["created_at"]));
    let gone = app.delete(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(gone, json!({"deleted": true}));
    assert_refused(&app.get(&path).bearer(&ada.token).send().await, 404, "not_found", "");
});

on_both!(the_plan_comes_before_the_role_and_the_role_before_the_body, |app| async move {
    let ada = app.signup("acme").await;
    for (method, path) in [
        (http::Method::GET, EXPORTS.to_owned()),
        (http::Method::POST, EXPORTS.to_owned()),
        (http::Method::GET, format!("{EXPORTS}/42")),
        (http::Method::DELETE, format!("{EXPORTS}/42")),
    ] {
        assert_refused(&app.call(method, &path).bearer(&ada.token).send().await, 403, "forbidden", "plan");
    }
    app.set_enterprise_plan(&ada).await;
    let id = app.export(&ada, &otlp()).await;
    for role in ["viewer", "member"] {
        let caller = app.join(&ada, role).await;
        app.get(&format!("{EXPORTS}/{id}")).bearer(&caller.token).send().await.expect(200);
        let refused = app.call(http::Method::POST, EXPORTS).raw("{").bearer(&caller.token).send().await;
        assert_refused(&refused, 403, "forbidden", "admin");
    }
});

on_both!(a_test_says_what_the_destination_answered, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::new(200));
    let hook = json!({"name": "h", "kind": "webhook", "endpoint": upstream.url(), "secret": "abc", "enabled": false,
        "headers": {"X-Tenant": "acme"}});
    let id = app.export(&ada, &hook).await;
    let test = async |id: &str| {
        app.post(&format!("{EXPORTS}/{id}/test"), json!({})).bearer(&ada.token).send().await.expect(200)
    };
    let answer = test(&id).await;
    assert_eq!(fields(&answer), ["error", "latency_ms", "ok", "status"]);
    assert_eq!(
        (&answer["ok"], &answer["status"], &answer["error"]),
        (&json!(true), &json!(200), &Value::Null)
    );
    let request = upstream.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    assert!(is_signed_by(&request, "abc"));
    assert_eq!((request.header("x-tenant"), request.target()), (Some("acme"), "/"));
    assert_eq!(request.json()["data"], json!({"traces": [], "test": true}));

    let collector = json!({"name": "c", "kind": "otlp", "endpoint": upstream.url(), "enabled": false});
    let id = app.export(&ada, &collector).await;
    upstream.push(Reply::json(401, r#"{"error": "who are you"}"#));
    let answer = test(&id).await;
    assert_eq!((&answer["ok"], &answer["status"]), (&json!(false), &json!(401)));
    assert!(answer["error"].as_str().unwrap().contains("401"));
    let request = upstream.wait_for_requests(2, WAIT_TIMEOUT).await.remove(1);
    assert_eq!(request.target(), "/v1/traces");
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    drop(upstream);
    let answer = test(&id).await;
    assert_eq!((&answer["ok"], &answer["status"]), (&json!(false), &Value::Null));
});

on_both!(concurrent_requests_do_not_exceed_the_limit, |app| async move {
    let (ada, eve) = (app.enterprise("acme").await, app.enterprise("evil").await);
    let create = |number: usize| {
        let body = with(&otlp(), "name", format!("collector {number}"));
        app.post(EXPORTS, body).bearer(&ada.token).send()
    };
    let answers = futures_util::future::join_all((0..110).map(create)).await;
    let created = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(created, 100);
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        let problem = refused.expect_error(403, "quota_exceeded");
        assert_eq!((&problem["quota"], &problem["limit"]), (&json!("exports"), &json!(100)));
    }
    app.post(EXPORTS, otlp()).bearer(&eve.token).send().await.expect(201);
});

on_both!(a_wrong_change_is_refused_before_a_missing_export, |app| async move {
    let ada = app.enterprise("acme").await;
    let missing = format!("{EXPORTS}/{}", missing_id().as_str().unwrap());
    for (field, value) in [
        ("kind", json!("bogus")),
        ("name", json!("")),
        ("endpoint", json!("ftp://example.com")),
        ("include_sources", json!([])),
        ("secret", json!("")),
        ("headers", json!({"a b": "x"})),
    ] {
        let answer = app.put(&missing, json!({field: value})).bearer(&ada.token).send().await;
        assert_refused(&answer, 400, "invalid_config", field);
    }
    // Whether it may have a secret depends on the stored kind.
    let valid = json!({"name": "x", "secret": "whsec_c2VjcmV0"});
    assert_refused(&app.put(&missing, valid).bearer(&ada.token).send().await, 404, "not_found", "");
});
