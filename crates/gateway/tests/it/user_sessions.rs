//! Sessions of users, passwords, and the limit of wrong passwords per account.

use gateway_core::time::{DAY, HOUR, MINUTE};
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_field_error, assert_unauthorized, fields, missing_id};
use crate::support::{Account, PASSWORD, TestApp, TestResponse};

const SESSIONS: &str = "/api/v1/auth/sessions";
const CHANGE: &str = "/api/v1/auth/password";
const RESET: &str = "/api/v1/auth/reset";
const NEW: &str = "another long password";

fn token_of(login: &Value) -> String {
    login["token"].as_str().unwrap().to_owned()
}

async fn sessions(app: &TestApp, token: &str) -> Vec<Value> {
    let list = app.get(SESSIONS).bearer(token).send().await.expect(200);
    list["sessions"].as_array().unwrap().clone()
}

async fn change(app: &TestApp, token: &str, current: &str, new: &str) -> TestResponse {
    let body = json!({"current_password": current, "new_password": new});
    app.post(CHANGE, body).bearer(token).send().await
}

/// A login that comes from this address through a trusted proxy.
async fn login_from(app: &TestApp, address: &str, email: &str, password: &str) -> TestResponse {
    let body = json!({"email": email, "password": password});
    app.post("/api/v1/login", body).header("x-forwarded-for", address).send().await
}

on_both!(sessions_are_listed_and_ended_one_by_one, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"email": ada.email, "password": PASSWORD});
    let login = app.post("/api/v1/login", body).header("user-agent", "Browser/1").send().await.expect(200);
    let other = token_of(&login);
    let list = app.get(SESSIONS).bearer(&other).send().await;
    assert!(!list.text().contains(&other), "{}", list.text());
    let list = list.expect(200);
    let rows = list["sessions"].as_array().unwrap();
    let names = ["address", "created_at", "current", "expires_at", "id", "org_id", "user_agent"];
    assert_eq!(fields(&rows[0]), names);
    assert_eq!((rows.len(), &list["next_cursor"]), (2, &Value::Null));
    assert_eq!((&rows[0]["user_agent"], &rows[0]["address"]), (&json!("Browser/1"), &json!("127.0.0.1")));
    assert_eq!((&rows[0]["current"], &rows[1]["current"]), (&json!(true), &json!(false)));
    assert_eq!((&rows[0]["org_id"], &rows[0]["expires_at"]), (&json!(ada.org_id), &login["expires_at"]));
    let page = app.get(&format!("{SESSIONS}?limit=1")).bearer(&other).send().await.expect(200);
    let next = format!("{SESSIONS}?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    let next = app.get(&next).bearer(&other).send().await.expect(200);
    assert_eq!((&next["sessions"][0]["id"], &next["next_cursor"]), (&rows[1]["id"], &Value::Null));

    let path = |id: &Value| format!("{SESSIONS}/{}", id.as_str().unwrap());
    let bob = app.signup("bob").await;
    // The session of another user looks like a missing one.
    let foreign = app.delete(&path(&rows[1]["id"])).bearer(&bob.token).send().await;
    let missing = app.delete(&path(&missing_id())).bearer(&bob.token).send().await;
    foreign.expect_error(404, "not_found");
    assert_eq!((foreign.status, &foreign.body), (missing.status, &missing.body));
    app.delete(&format!("{SESSIONS}/7")).bearer(&bob.token).send().await.expect_error(400, "bad_request");
    // The role comes before the parameter.
    app.delete(&format!("{SESSIONS}/7")).key(&bob.api_key).send().await.expect_error(403, "forbidden");

    let ended = app.delete(&path(&rows[1]["id"])).bearer(&other).send().await.expect(200);
    assert_eq!(ended, json!({"deleted": true}));
    assert_unauthorized(&app.get(SESSIONS).bearer(&ada.token).send().await);
    app.delete(&path(&rows[1]["id"])).bearer(&other).send().await.expect_error(404, "not_found");
    assert_eq!(sessions(&app, &other).await.len(), 1);
    app.delete(&path(&rows[0]["id"])).bearer(&other).send().await.expect(200);
    assert_unauthorized(&app.get(SESSIONS).bearer(&other).send().await);
    assert_eq!(app.status_with_key(&ada.api_key).await, 200);
});

on_both!(switching_and_accepting_start_sessions_and_logging_out_ends_one, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bob").await);
    let login = app.accept(&ada, &bob, "viewer").await;
    let switch = json!({"org_id": ada.org_id});
    let switched = app.post("/api/v1/auth/switch-org", switch).bearer(&bob.token).send().await.expect(200);
    let rows = sessions(&app, &bob.token).await;
    let orgs: Vec<_> = rows.iter().map(|row| row["org_id"].as_str().unwrap()).collect();
    assert_eq!(orgs, [&ada.org_id, &ada.org_id, &bob.org_id]);
    app.call(Method::POST, "/api/v1/auth/logout").bearer(&token_of(&switched)).send().await.expect(200);
    assert_eq!(sessions(&app, &token_of(&login)).await.len(), 2);
    // What expires is not listed.
    app.app.services.clock.advance(DAY);
    let login = app.login(&bob.email, PASSWORD).await.expect(200);
    assert_eq!(sessions(&app, &token_of(&login)).await.len(), 1);
});

on_both!(logging_out_everywhere_ends_every_session_and_no_key, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let other = token_of(&app.login(&ada.email, PASSWORD).await.expect(200));
    for token in [&ada.token, &other, &bob.token] {
        assert_eq!(app.status_with_token(token).await, 200);
    }
    let out = app.call(Method::POST, "/api/v1/auth/logout-all").bearer(&other).send().await.expect(200);
    assert_eq!(out, json!({"revoked": true}));
    for token in [&ada.token, &other] {
        assert_eq!(app.status_with_token(token).await, 401);
    }
    assert_eq!(app.status_with_token(&bob.token).await, 200);
    assert_eq!(app.status_with_key(&ada.api_key).await, 200);
    // A session of the same second is a new one.
    let again = token_of(&app.login(&ada.email, PASSWORD).await.expect(200));
    assert_eq!(app.status_with_token(&again).await, 200);
    let by_key = app.call(Method::POST, "/api/v1/auth/logout-all").key(&ada.api_key).send().await;
    by_key.expect_error(403, "forbidden");
    let (config, data) = app.stop().await;
    let app = TestApp::start(config, data).await;
    assert_eq!(app.status_with_token(&ada.token).await, 401);
    assert_eq!(app.status_with_token(&again).await, 200);
});

on_both!(a_token_of_an_earlier_version_is_ended_too, |app| async move {
    let ada = app.signup("acme").await;
    // Earlier versions did not record sessions.
    let sql = "DELETE FROM user_sessions";
    app.app.services.db.exec(sql, vec![]).await.unwrap();
    assert_eq!(app.status_with_token(&ada.token).await, 200);
    change(&app, &ada.token, PASSWORD, NEW).await.expect(200);
    assert_eq!(app.status_with_token(&ada.token).await, 200, "the session of the request stays");
    app.app.services.db.exec(sql, vec![]).await.unwrap();
    let other = token_of(&app.login(&ada.email, NEW).await.expect(200));
    app.call(Method::POST, "/api/v1/auth/logout-all").bearer(&other).send().await.expect(200);
    assert_eq!(app.status_with_token(&ada.token).await, 401);
});

on_both!(a_new_password_ends_all_other_sessions, |app| async move {
    let ada = app.signup("acme").await;
    let other = token_of(&app.login(&ada.email, PASSWORD).await.expect(200));
    change(&app, &ada.token, "wrong password", NEW).await.expect_error(403, "forbidden");
    for bad in ["", "1234567", &"x".repeat(257)] {
        assert_field_error(&change(&app, &ada.token, PASSWORD, bad).await, "new_password");
    }
    for name in ["current_password", "new_password"] {
        let mut body = json!({"current_password": PASSWORD, "new_password": NEW});
        body.as_object_mut().unwrap().remove(name);
        assert_field_error(&app.post(CHANGE, body).bearer(&ada.token).send().await, name);
    }
    let body = json!({"current_password": PASSWORD, "new_password": NEW});
    app.post(CHANGE, body).key(&ada.api_key).send().await.expect_error(403, "forbidden");
    assert_eq!(app.status_with_token(&other).await, 200, "nothing has changed yet");

    assert_eq!(change(&app, &ada.token, PASSWORD, NEW).await.expect(200), json!({"changed": true}));
    assert_eq!(app.status_with_token(&ada.token).await, 200);
    assert_eq!(app.status_with_token(&other).await, 401);
    assert_eq!(sessions(&app, &ada.token).await.len(), 1);
    app.login(&ada.email, PASSWORD).await.expect_error(401, "unauthorized");
    app.login(&ada.email, NEW).await.expect(200);
    assert_eq!(app.status_with_key(&ada.api_key).await, 200);
});

on_both!(logins_that_race_a_password_change_do_not_outlive_it, |app| async move {
    let ada = app.signup("acme").await;
    let login = || async { app.login(&ada.email, PASSWORD).await };
    let (a, b, changed, c) = tokio::join!(login(), login(), change(&app, &ada.token, PASSWORD, NEW), login());
    changed.expect(200);
    for answer in [a, b, c] {
        if answer.status == 200 {
            assert_eq!(app.status_with_token(&token_of(&answer.json())).await, 401);
        } else {
            answer.expect_error(401, "unauthorized");
        }
    }
});

on_both!(
    wrong_passwords_are_limited_per_account,
    [("GATEWAY_TRUSTED_PROXIES", "127.0.0.0/8")],
    |app| async move {
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
        let home = "198.51.100.1";
        app.post("/api/v1/signup", body).header("x-forwarded-for", home).send().await.expect(201);
        let email = "ada@example.com";
        // Each attempt has its own address, and an account that does not exist is treated alike.
        for email in [email, "nobody@example.com"] {
            for number in 0..20 {
                let answer = login_from(&app, &format!("203.0.113.{number}"), email, "wrong password").await;
                answer.expect_error(401, "unauthorized");
            }
            for password in [PASSWORD, "wrong password"] {
                let answer = login_from(&app, "203.0.113.77", email, password).await;
                answer.expect_error(429, "rate_limited");
                let wait: i64 = answer.header("retry-after").unwrap().parse().unwrap();
                assert!((1..=15 * 60).contains(&wait), "{wait}");
            }
        }
        // The person is not locked out where they signed in before, and others are not locked in.
        login_from(&app, home, email, "wrong password").await.expect_error(401, "unauthorized");
        login_from(&app, home, email, PASSWORD).await.expect(200);
        login_from(&app, "203.0.113.78", email, PASSWORD).await.expect_error(429, "rate_limited");
        app.app.services.clock.advance(15 * MINUTE);
        login_from(&app, "203.0.113.78", email, PASSWORD).await.expect(200);
        // An address is known for 30 days.
        app.app.services.clock.advance(30 * DAY + MINUTE);
        for number in 0..20 {
            login_from(&app, &format!("203.0.113.{number}"), email, "wrong password").await.expect(401);
        }
        login_from(&app, "203.0.113.78", email, PASSWORD).await.expect_error(429, "rate_limited");
    }
);

on_both!(
    right_passwords_count_against_no_limit,
    [("GATEWAY_TRUSTED_PROXIES", "127.0.0.0/8")],
    |app| async move {
        let ada = app.signup("acme").await;
        for number in 0..21 {
            login_from(&app, &format!("203.0.113.{number}"), &ada.email, PASSWORD).await.expect(200);
        }
        login_from(&app, "198.51.100.1", &ada.email, "wrong password")
            .await
            .expect_error(401, "unauthorized");
    }
);

on_both!(
    guessing_the_current_password_is_limited_too,
    [("GATEWAY_TRUSTED_PROXIES", "127.0.0.0/8")],
    |app| async move {
        let ada = app.signup("acme").await;
        let guess = |password: &str| {
            let body = json!({"current_password": password, "new_password": NEW});
            app.post(CHANGE, body).bearer(&ada.token).header("x-forwarded-for", "203.0.113.1").send()
        };
        for _ in 0..20 {
            guess("wrong password").await.expect_error(403, "forbidden");
        }
        guess(PASSWORD).await.expect_error(429, "rate_limited");
    }
);

on_both!(
    changes_of_the_password_are_limited_per_user,
    [("GATEWAY_AUTH_ATTEMPTS", "10"), ("GATEWAY_TRUSTED_PROXIES", "127.0.0.0/8")],
    |app| async move {
        let (ada, bob) = (app.signup("acme").await, app.signup("bob").await);
        for number in 0..10 {
            let (current, new) = if number % 2 == 0 { (PASSWORD, NEW) } else { (NEW, PASSWORD) };
            // A new password that is too short costs nothing and counts nothing.
            assert_field_error(&change(&app, &ada.token, current, "short").await, "new_password");
            if number < 8 {
                change(&app, &ada.token, current, new).await.expect(200);
            } else {
                change(&app, &ada.token, "wrong password", new).await.expect_error(403, "forbidden");
            }
        }
        // From any address, and with the right password.
        let body = json!({"current_password": PASSWORD, "new_password": NEW});
        let answer = app.post(CHANGE, body).bearer(&ada.token).header("x-forwarded-for", "203.0.113.1");
        let answer = answer.send().await;
        let error = answer.expect_error(429, "rate_limited");
        assert_eq!(fields(&error), ["code", "message"]);
        let wait: i64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=15 * 60).contains(&wait), "{wait}");
        // Nothing else is limited by it.
        change(&app, &bob.token, PASSWORD, NEW).await.expect(200);
        app.login(&ada.email, PASSWORD).await.expect(200);
        app.app.services.clock.advance(15 * MINUTE);
        change(&app, &ada.token, PASSWORD, NEW).await.expect(200);
    }
);

/// Runs `gateway admin reset-password` on the application's database.
async fn reset_token(app: &TestApp, email: &str) -> String {
    let (token, hash) = gateway::auth::passwords::new_reset_token().unwrap();
    let (db, now) = (&app.app.services.db, app.app.services.clock.now());
    let user = gateway_store::accounts::find_by_email(db, email).await.unwrap().unwrap();
    let mut tx = db.begin().await.unwrap();
    gateway_store::sign_ins::insert_reset(&mut tx, user.id, &hash, now.plus(HOUR)).await.unwrap();
    tx.commit().await.unwrap();
    token
}

async fn reset(app: &TestApp, token: &str, password: &str) -> TestResponse {
    app.post(RESET, json!({"token": token, "new_password": password})).send().await
}

on_both!(a_reset_token_sets_a_password_once_and_for_an_hour, |app| async move {
    let ada: Account = app.signup("acme").await;
    let first = reset_token(&app, &ada.email).await;
    let token = reset_token(&app, &ada.email).await;
    for unknown in ["", "rst-", &first, &format!("rst-{}", "0".repeat(64))] {
        reset(&app, unknown, NEW).await.expect_error(404, "not_found");
    }
    assert_field_error(&reset(&app, &token, "short").await, "new_password");
    assert_field_error(&app.post(RESET, json!({"new_password": NEW})).send().await, "token");
    assert_eq!(reset(&app, &token, NEW).await.expect(200), json!({"reset": true}));
    assert_eq!(app.status_with_token(&ada.token).await, 401);
    assert_eq!(app.status_with_key(&ada.api_key).await, 200);
    reset(&app, &token, PASSWORD).await.expect_error(404, "not_found");
    app.login(&ada.email, PASSWORD).await.expect_error(401, "unauthorized");
    let login = token_of(&app.login(&ada.email, NEW).await.expect(200));

    let late = reset_token(&app, &ada.email).await;
    app.app.services.clock.advance(HOUR);
    reset(&app, &late, PASSWORD).await.expect_error(404, "not_found");
    // A change of the password makes a reset that is still open void.
    let void = reset_token(&app, &ada.email).await;
    change(&app, &login, NEW, PASSWORD).await.expect(200);
    reset(&app, &void, NEW).await.expect_error(404, "not_found");
});

on_both!(resets_are_limited_per_address, [("GATEWAY_AUTH_ATTEMPTS", "3")], |app| async move {
    for _ in 0..3 {
        reset(&app, "rst-guess", NEW).await.expect_error(404, "not_found");
    }
    reset(&app, "rst-guess", NEW).await.expect_error(429, "rate_limited");
});
