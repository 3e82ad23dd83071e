//! Rate limits: login attempts by address, requests by key and by user.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_unauthorized, fields};
use crate::support::{TestApp, TestResponse};

const SIGNUP: &str = "/api/v1/signup";
const LOGIN: &str = "/api/v1/login";
const SETUP: &str = "/api/v1/setup";
const ME: &str = "/api/v1/auth/entitlements";

/// A body that is rejected before a password is hashed, so that attempts are cheap.
fn hopeless(path: &str) -> Value {
    match path {
        LOGIN => json!({"email": "nobody@example.com", "password": "wrong"}),
        SIGNUP => json!({"email": "nobody", "password": "short", "org_slug": "-"}),
        _ => json!({"org_name": ""}),
    }
}

#[track_caller]
fn assert_too_many(answer: &TestResponse, longest: i64) -> i64 {
    let body = answer.expect_error(429, "rate_limited");
    assert_eq!(fields(&body), ["code", "message"]);
    let wait: i64 = answer.header("retry-after").expect("Retry-After").parse().unwrap();
    assert!((1..=longest).contains(&wait), "{wait}");
    wait
}

on_both!(the_eleventh_attempt_waits_for_the_window_to_open, [("GATEWAY_AUTH_ATTEMPTS", "10")], |app| {
    eleventh_attempt(app)
});

async fn eleventh_attempt(app: TestApp) {
    for (path, usual) in [(LOGIN, 401), (SIGNUP, 400), (SETUP, 400)] {
        for attempt in 1..=10 {
            let answer = app.post(path, hopeless(path)).send().await;
            assert_eq!(answer.status, usual, "attempt {attempt} at {path}: {}", answer.text());
            assert_eq!(answer.header("retry-after"), None);
        }
        // Each of the three has its own counter, so all of them get this far.
        let wait = assert_too_many(&app.post(path, hopeless(path)).send().await, 900);
        assert!(wait >= 880, "{wait}");
    }
    // The alias shares the counter, also for a body that cannot be parsed.
    assert_too_many(&app.post("/api/login", hopeless(LOGIN)).send().await, 900);
    assert_too_many(&app.post(LOGIN, json!({})).send().await, 900);
    // Rejected attempts do not extend the window.
    app.app.services.clock.advance(14 * 60_000);
    assert_too_many(&app.post(LOGIN, hopeless(LOGIN)).send().await, 60);
    app.app.services.clock.advance(60_000);
    app.post(LOGIN, hopeless(LOGIN)).send().await.expect_error(401, "unauthorized");
    app.post(SETUP, json!({"org_name": "x"})).send().await.expect(201);
    // Authenticated callers are not affected.
    assert_unauthorized(&app.get(ME).send().await);
}

on_both!(an_attempt_that_cannot_be_read_is_an_attempt, [("GATEWAY_AUTH_ATTEMPTS", "2")], |app| async move {
    for body in ["", "{"] {
        app.call(http::Method::POST, SETUP).raw(body).send().await.expect_error(400, "bad_request");
    }
    assert_too_many(&app.post(SETUP, json!({"org_name": "x"})).send().await, 900);
});

on_both!(
    a_forwarded_address_is_not_believed_from_just_anyone,
    [("GATEWAY_AUTH_ATTEMPTS", "1")],
    |app| async move {
        let from = |address: &str| app.post(SETUP, hopeless(SETUP)).header("x-forwarded-for", address).send();
        from("198.51.100.1").await.expect_error(400, "bad_request");
        assert_too_many(&from("198.51.100.2").await, 900);
    }
);

on_both!(
    a_trusted_proxy_is_believed_about_its_clients,
    [("GATEWAY_AUTH_ATTEMPTS", "1"), ("GATEWAY_TRUSTED_PROXIES", "127.0.0.1/32, 10.0.0.0/8")],
    |app| async move {
        let from = |address: &str| app.post(SETUP, hopeless(SETUP)).header("x-forwarded-for", address).send();
        from("198.51.100.1").await.expect_error(400, "bad_request");
        from("198.51.100.2").await.expect_error(400, "bad_request");
        assert_too_many(&from("198.51.100.1").await, 900);
        // Entries sent by the client are on the left and are ignored.
        assert_too_many(&from("203.0.113.77, 198.51.100.1").await, 900);
        assert_too_many(&from("203.0.113.78, 198.51.100.2, 10.1.2.3").await, 900);
        // Without the header the proxy counts as the client.
        app.post(SETUP, hopeless(SETUP)).send().await.expect_error(400, "bad_request");
        assert_too_many(&app.post(SETUP, hopeless(SETUP)).send().await, 900);
    }
);

fn window(answer: &TestResponse) -> [i64; 3] {
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
        .map(|name| answer.header(name).unwrap_or_else(|| panic!("no {name}")).parse().unwrap())
}

on_both!(responses_show_the_state_of_the_rate_limit_window, [("GATEWAY_RATE_LIMIT_FREE", "3")], |app| {
    three_a_minute(app)
});

async fn three_a_minute(app: TestApp) {
    let ada = app.signup("acme").await;
    app.advance_to_next_minute();
    let end = (app.app.services.clock.now().0 / 60_000 + 1) * 60;
    for remaining in [2, 1, 0] {
        let answer = app.get(ME).key(&ada.api_key).send().await;
        answer.expect(200);
        assert_eq!(window(&answer), [3, remaining, end]);
        assert_eq!(answer.header("retry-after"), None);
    }
    let refused = app.get(ME).key(&ada.api_key).send().await;
    assert_too_many(&refused, 60);
    assert_eq!(window(&refused), [3, 0, end]);
    // A second key and the user have their own windows.
    let second = app.create_key(&ada.token, json!({"name": "second"})).await;
    assert_eq!(window(&app.get(ME).key(&second.raw).send().await), [3, 2, end]);
    assert_eq!(window(&app.get(ME).bearer(&ada.token).send().await), [3, 1, end]);
    // Another session of the same user shares the window.
    let login = app.login(&ada.email, crate::support::PASSWORD).await.expect(200);
    let token = login["token"].as_str().unwrap();
    assert_eq!(window(&app.get(ME).bearer(token).send().await), [3, 0, end]);
    assert_too_many(&app.get(ME).bearer(&ada.token).send().await, 60);
    // Unknown paths count and are limited as well.
    assert_too_many(&app.get("/api/v1/nothing").bearer(&ada.token).send().await, 60);
    // The next window starts.
    app.advance_to_next_minute();
    for credential in [&ada.api_key, &second.raw] {
        assert_eq!(window(&app.get(ME).key(credential).send().await), [3, 2, end + 60]);
    }
    app.get(ME).bearer(&ada.token).send().await.expect(200);
}

on_both!(every_authenticated_response_shows_the_window_also_errors, |app| async move {
    let ada = app.signup("acme").await;
    app.advance_to_next_minute();
    let cases = [
        (http::Method::GET, ME, 200),
        (http::Method::GET, "/api/v1/keys/7", 400),
        (http::Method::POST, "/api/v1/auth/logout", 403),
        (http::Method::GET, "/api/v1/nothing", 404),
        (http::Method::PATCH, "/api/v1/keys", 405),
        (http::Method::GET, "/nothing", 400),
        (http::Method::GET, "/openapi.yaml", 200),
    ];
    for (n, (method, path, status)) in (1_i64..).zip(cases) {
        let answer = app.call(method, path).key(&ada.api_key).send().await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(window(&answer)[..2], [1000, 1000 - n], "{path}");
    }
    let public = app.get("/healthz").key(&ada.api_key).send().await;
    assert_eq!(public.header("x-ratelimit-limit"), None, "public paths do not count");
});

on_both!(the_limit_follows_the_plan, [("GATEWAY_RATE_LIMIT_PRO", "7")], |app| async move {
    let ada = app.signup("acme").await;
    app.advance_to_next_minute();
    assert_eq!(window(&app.get(ME).key(&ada.api_key).send().await)[..2], [1000, 999]);
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&org, json!({"plan": "pro"})).bearer(&ada.token).send().await.expect(200);
    assert_eq!(window(&app.get(ME).key(&ada.api_key).send().await)[..2], [7, 5]);
});

on_both!(an_unlimited_plan_has_no_rate_headers, [("GATEWAY_RATE_LIMIT_FREE", "0")], |app| async move {
    let ada = app.signup("acme").await;
    for _ in 0..5 {
        let answer = app.get(ME).key(&ada.api_key).send().await;
        let me = answer.expect(200);
        assert_eq!(me["rate_limit"], json!({"requests_per_minute": 0}));
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
    }
});

on_both!(
    a_flood_gets_no_more_through_than_the_limit,
    [("GATEWAY_RATE_LIMIT_FREE", "10")],
    |app| async move {
        let ada = app.signup("acme").await;
        app.advance_to_next_minute();
        let calls = (0..40).map(|_| app.get(ME).key(&ada.api_key).send());
        let answers = futures_util::future::join_all(calls).await;
        let through = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(through, 10);
        answers.iter().filter(|answer| answer.status != 200).for_each(|answer| {
            assert_too_many(answer, 60);
        });
        // Updating the key does not start a new window.
        let keys = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
        let path = format!("/api/v1/keys/{}", keys["keys"][0]["id"].as_str().unwrap());
        app.put(&path, json!({"name": "renamed"})).bearer(&ada.token).send().await.expect(200);
        assert_too_many(&app.get(ME).key(&ada.api_key).send().await, 60);
    }
);
