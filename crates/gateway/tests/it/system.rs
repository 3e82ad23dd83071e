//! Health, discovery, and requests that match no route.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Backend, TestApp, TestResponse};

fn allowed(answer: &TestResponse) -> Vec<String> {
    let mut methods: Vec<_> =
        answer.header("allow").unwrap_or_default().split(',').map(|m| m.trim().to_owned()).collect();
    methods.sort();
    methods
}

on_both!(health_names_each_store_and_needs_no_credential, |app| async move {
    let answer = app.get("/healthz").send().await;
    let body = answer.expect(200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(body["status"], "ok");
    let components = body["components"].as_object().unwrap();
    assert!(components.contains_key("database"), "{body}");
    assert!(components.values().all(|component| component == &json!({"status": "ok"})), "{body}");
    // An invalid credential does not fail the health check: load balancers send arbitrary headers.
    app.get("/healthz").key("nonsense").send().await.expect(200);
});

on_both!(every_answer_carries_a_request_id, |app| async move {
    let ada = app.signup("acme").await;
    for call in [
        app.get("/healthz"),
        app.get("/api/v1/keys"),
        app.get("/api/v1/keys").bearer(&ada.token),
        app.get("/api/v1/nothing").bearer(&ada.token),
        app.delete("/api/v1/signup"),
        app.get("/"),
    ] {
        let answer = call.send().await;
        assert!(answer.header("x-request-id").is_some_and(|id| id.len() >= 8), "{}", answer.text());
    }
    let mine = app.get("/healthz").header("x-request-id", "trace-42").send().await;
    assert_eq!(mine.header("x-request-id"), Some("trace-42"));
    let long = app.get("/healthz").header("x-request-id", &"x".repeat(500)).send().await;
    assert!(long.header("x-request-id").unwrap().len() < 100);
});

on_both!(a_wrong_method_is_answered_with_the_right_ones, |app| async move {
    let ada = app.signup("acme").await;
    for (method, path, expected) in [
        (Method::PATCH, "/api/v1/keys".to_owned(), vec!["GET", "HEAD", "POST"]),
        (Method::DELETE, "/api/keys".to_owned(), vec!["GET", "HEAD", "POST"]),
        (Method::POST, format!("/api/v1/orgs/{}", ada.org_id), vec!["DELETE", "GET", "HEAD", "PUT"]),
        (Method::PATCH, "/api/v1/orgs/not-an-id".to_owned(), vec!["DELETE", "GET", "HEAD", "PUT"]),
        (Method::GET, "/api/v1/signup".to_owned(), vec!["POST"]),
        (Method::POST, "/healthz".to_owned(), vec!["GET", "HEAD"]),
        (Method::PUT, "/openapi.yaml".to_owned(), vec!["GET", "HEAD"]),
        (Method::TRACE, "/api/v1/auth/orgs".to_owned(), vec!["GET", "HEAD"]),
    ] {
        let answer = app.call(method.clone(), &path).bearer(&ada.token).send().await;
        answer.expect_error(405, "method_not_allowed");
        assert_eq!(allowed(&answer), expected, "{method} {path}");
    }
    // Without a credential the allowed methods are not revealed.
    let answer = app.call(Method::PATCH, "/api/v1/keys").send().await;
    answer.expect_error(401, "unauthorized");
    assert!(answer.header("allow").is_none());
});

on_both!(head_answers_like_get_without_a_body, |app| async move {
    let ada = app.signup("acme").await;
    for path in [
        "/healthz".to_owned(),
        "/api/v1/keys".to_owned(),
        format!("/api/orgs/{}", ada.org_id),
        "/openapi.yaml".to_owned(),
    ] {
        let get = app.get(&path).bearer(&ada.token).send().await;
        let head = app.call(Method::HEAD, &path).bearer(&ada.token).send().await;
        assert_eq!(
            (head.status, head.header("content-type")),
            (get.status, get.header("content-type")),
            "{path}"
        );
        assert!(head.body.is_empty() && !get.body.is_empty());
    }
    let missing = app.call(Method::HEAD, "/api/v1/keys").send().await;
    assert_eq!((missing.status.as_u16(), missing.body.len()), (401, 0));
    let wrong = app.call(Method::HEAD, "/api/v1/signup").send().await;
    assert_eq!((wrong.status.as_u16(), allowed(&wrong)), (405, vec!["POST".to_owned()]));
});

on_both!(options_lists_the_methods_for_authenticated_callers, |app| async move {
    let ada = app.signup("acme").await;
    let answer = app.call(Method::OPTIONS, "/api/v1/keys").bearer(&ada.token).send().await;
    assert_eq!(answer.status, 405);
    assert_eq!(allowed(&answer), ["GET", "HEAD", "POST"]);
    app.call(Method::OPTIONS, "/api/v1/keys").send().await.expect_error(401, "unauthorized");
});

on_both!(an_unknown_path_below_api_is_not_found, |app| async move {
    let ada = app.signup("acme").await;
    for path in [
        "/api",
        "/api/",
        "/api/v1",
        "/api/v1/",
        "/api/v1/nothing",
        "/api/v2/keys",
        "/api/v1/keys/",
        "/api/v1//keys",
        "/api/v1/Keys",
        "/api/v1/healthz",
        "/api/v1/signup/",
        "/api/v1/orgs/x/y/z/w",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = app.call(method, path).bearer(&ada.token).send().await;
            answer.expect_error(404, "not_found");
        }
        app.get(path).send().await.expect_error(401, "unauthorized");
    }
    // The skills endpoints use their own error format, also for unknown routes.
    let coded = app.get("/api/v1/exports/x/y/z").bearer(&ada.token).send().await.expect(404);
    assert_eq!((&coded["error_code"], coded.get("code")), (&json!("not_found"), None));
    assert!(coded["error"].is_string());
});

on_both!(any_other_path_asks_for_the_provider_header, |app| async move {
    let ada = app.signup("acme").await;
    for path in
        ["/v1/chat/completions", "/nothing", "/apis", "/keys", "/signup", "/healthz/", "/v1/models?x=1"]
    {
        for method in [Method::GET, Method::POST] {
            let answer = app.call(method, path).key(&ada.api_key).send().await;
            let error = answer.expect_error(400, "bad_request");
            assert!(error["message"].as_str().unwrap().contains("X-Gateway-Provider"), "{error}");
        }
        app.post(path, json!({})).send().await.expect_error(401, "unauthorized");
    }
});

on_both!(the_root_sends_a_browser_to_the_console_and_nobody_else, |app| async move {
    for method in [Method::GET, Method::HEAD] {
        let answer = app.call(method, "/").send().await;
        assert!(answer.status.is_redirection(), "{}", answer.text());
        assert!(answer.header("location").is_some_and(|place| place.starts_with("/console")));
    }
    let ada = app.signup("acme").await;
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        app.call(method.clone(), "/").send().await.expect_error(401, "unauthorized");
        let error = app.call(method, "/").key(&ada.api_key).send().await.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("X-Gateway-Provider"), "{error}");
    }
});

on_both!(authenticated_responses_show_the_rate_limit_whatever_the_status, |app| async move {
    let ada = app.signup("acme").await;
    let calls = [
        (app.get("/api/v1/keys"), 200),
        (app.post("/api/v1/keys", json!({})), 400),
        (app.get("/api/v1/nothing"), 404),
        (app.get("/nothing"), 400),
        (app.delete("/api/v1/keys"), 405),
        (app.get(&format!("/api/v1/keys/{}", uuid::Uuid::new_v4())), 404),
    ];
    for (number, (call, status)) in calls.into_iter().enumerate() {
        let answer = call.key(&ada.api_key).send().await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        assert_eq!(answer.header("x-ratelimit-limit"), Some("1000"), "call {number}: {}", answer.text());
        assert!(
            answer.header("x-ratelimit-remaining").is_some() && answer.header("x-ratelimit-reset").is_some()
        );
    }
});

on_both!(the_documents_are_for_callers_only_unless_made_public, |app| async move {
    let ada = app.signup("acme").await;
    for path in ["/openapi.yaml", "/llms.txt"] {
        app.get(path).send().await.expect_error(401, "unauthorized");
        assert_eq!(app.get(path).key(&ada.api_key).send().await.status, 200);
    }
});

on_both!(public_documents_need_no_credential, [("GATEWAY_PUBLIC_DOCS", "true")], |app| async move {
    for (path, kind) in [("/openapi.yaml", "application/yaml"), ("/llms.txt", "text/plain; charset=utf-8")] {
        let answer = app.get(path).send().await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, Some(kind)));
    }
    app.get("/api/v1/keys").send().await.expect_error(401, "unauthorized");
});

on_both!(the_alias_answers_like_the_canonical_path, |app| async move {
    let ada = app.signup("acme").await;
    for below in ["/keys", "/auth/orgs", "/orgs", "/auth/entitlements", "/keys/x", "/nothing"] {
        let canonical = app.get(&format!("/api/v1{below}")).bearer(&ada.token).send().await;
        let alias = app.get(&format!("/api{below}")).bearer(&ada.token).send().await;
        assert_eq!((alias.status, alias.text()), (canonical.status, canonical.text()), "{below}");
    }
});

on_both!(malformed_bodies_are_rejected_with_a_message, |app| async move {
    let ada = app.signup("acme").await;
    for body in [
        "",
        " ",
        "{",
        "nonsense",
        "{\"name\": \"x\"} trailing",
        "{\"name\": \"a\\u0000b\"}",
        "{\"name\": \"\\ud800\"}",
        "{\"name\":\"a\",\"name\":\"b\"}",
        "[\"x\"]",
        "null",
    ] {
        let call = app.call(Method::POST, "/api/v1/keys").header("content-type", "application/json");
        let answer = call.raw(body.to_owned()).bearer(&ada.token).send().await;
        answer.expect_error(400, "bad_request");
    }
    let bytes = app
        .call(Method::POST, "/api/v1/keys")
        .raw(b"{\"name\": \"\xff\"}".to_vec())
        .bearer(&ada.token)
        .send()
        .await;
    bytes.expect_error(400, "bad_request");
    let deep = format!("{{\"name\": {}{}}}", "[".repeat(5_000), "]".repeat(5_000));
    let answer = app.call(Method::POST, "/api/v1/keys").raw(deep).bearer(&ada.token).send().await;
    answer.expect_error(400, "bad_request");
    let list = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["keys"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["next_cursor"], Value::Null);
});

/// Background work that holds all its connections must not delay a management request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_work_cannot_take_the_connections_of_requests() {
    let app = TestApp::start_with(Backend::Postgres, &[]).await;
    let ada = app.signup("acme").await;
    let background = &app.app.services.logs_low_priority;
    let mut held = Vec::new();
    for _ in 0..64 {
        let begun = tokio::time::timeout(Duration::from_millis(300), background.begin()).await;
        let Ok(Ok(transaction)) = begun else { break };
        held.push(transaction);
    }
    assert!((1..64).contains(&held.len()), "{} connections", held.len());
    app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
    app.create_key(&ada.token, json!({"name": "k"})).await;
}
