//! Signup, login and setup: valid input, responses, and the state after a failed attempt.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_field_error, assert_uuid_v7, fields, time, with, without_field};
use crate::support::{PASSWORD, TestApp};

const SIGNUP: &str = "/api/v1/signup";
const LOGIN: &str = "/api/v1/login";
const SETUP: &str = "/api/v1/setup";

fn ada() -> Value {
    json!({
        "email": "ada@example.com", "password": PASSWORD, "org_slug": "engines",
        "org_name": "Analytical Engines", "display_name": "Ada Lovelace",
    })
}

on_both!(signup_answers_the_organization_the_user_a_key_and_a_token, |app| async move {
    let answer = app.post(SIGNUP, ada()).send().await;
    let body = answer.expect(201);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(fields(&body), ["api_key", "org", "token", "user"]);
    assert_eq!(fields(&body["org"]), ["id", "plan", "slug"]);
    assert_eq!(fields(&body["user"]), ["email", "id"]);
    assert_uuid_v7(&body["org"]["id"]);
    assert_uuid_v7(&body["user"]["id"]);
    assert_eq!((&body["org"]["slug"], &body["org"]["plan"]), (&json!("engines"), &json!("free")));
    assert_eq!(body["user"]["email"], "ada@example.com");
    assert!(!answer.text().contains(PASSWORD));

    let (key, token) = (body["api_key"].as_str().unwrap(), body["token"].as_str().unwrap());
    let by_key = app.get("/api/v1/auth/entitlements").key(key).send().await.expect(200);
    let by_token = app.get("/api/v1/auth/entitlements").bearer(token).send().await.expect(200);
    assert_eq!((&by_key["role"], &by_token["role"]), (&json!("admin"), &json!("owner")));
    assert_eq!((&by_key["org_id"], &by_token["org_id"]), (&body["org"]["id"], &body["org"]["id"]));

    let keys = app.get("/api/v1/keys").bearer(token).send().await.expect(200);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1);
    assert_eq!(keys["keys"][0]["scopes"], json!(["*"]));
    assert_eq!(keys["keys"][0]["created_by"], body["user"]["id"]);
    let login = app.login("ada@example.com", PASSWORD).await.expect(200);
    assert_eq!(login["user"]["display_name"], "Ada Lovelace");
    assert_eq!(login["org"]["name"], "Analytical Engines");
});

on_both!(a_signup_that_lacks_or_garbles_a_field_is_refused_and_names_it, |app| async move {
    for field in ["email", "password", "org_slug"] {
        assert_field_error(&app.post(SIGNUP, without_field(&ada(), field)).send().await, field);
        assert_field_error(&app.post(SIGNUP, with(&ada(), field, Value::Null)).send().await, field);
    }
    for field in ["email", "password", "org_slug", "org_name", "display_name", "invite_token"] {
        for wrong in [json!(["x"]), json!({"x": "y"}), json!(true), json!(31_415_926)] {
            let answer = app.post(SIGNUP, with(&ada(), field, wrong)).send().await;
            assert_field_error(&answer, field);
            assert!(!answer.text().contains("31415926"), "{}", answer.text());
        }
    }
    let (long, wide) = ("x".repeat(257), "x".repeat(201));
    let cases: &[(&str, &[&str])] = &[
        (
            "email",
            &["", "ada", "@example.com", "ada@", "a b@example.com", "ada@a..b", "a@b@c.d", "a\u{7}@b.c"],
        ),
        ("password", &["", "1234567", &long]),
        ("org_slug", &["", "-a", "a-", "Acme", "a_b", "a b", "ä", "a.b", &long]),
        ("org_name", &["", "  ", &wide, "a\nb"]),
        ("display_name", &["", " ", &wide, "a\u{1b}b"]),
        ("invite_token", &["", "inv-unknown"]),
    ];
    for (field, values) in cases {
        for value in *values {
            let answer = app.post(SIGNUP, with(&ada(), field, *value)).send().await;
            assert_field_error(&answer, field);
            assert!(*field != "password" || value.is_empty() || !answer.text().contains(value));
        }
    }
    // Nothing was stored: the same email and slug are still free.
    app.post(SIGNUP, ada()).send().await.expect(201);
});

on_both!(names_that_are_left_out_are_made_from_slug_and_email, |app| async move {
    let body = json!({"email": "grace.hopper@example.com", "password": PASSWORD, "org_slug": "navy"});
    app.post(SIGNUP, body).send().await.expect(201);
    let login = app.login("grace.hopper@example.com", PASSWORD).await.expect(200);
    assert_eq!(login["user"]["display_name"], "grace.hopper");
    assert_eq!(login["org"]["name"], "navy");
});

on_both!(passwords_of_8_and_of_256_characters_work, |app| async move {
    for (slug, password) in [("short", "pässwört".to_owned()), ("long", "ü".repeat(256))] {
        let email = format!("{slug}@example.com");
        let body = json!({"email": email, "password": password, "org_slug": slug});
        app.post(SIGNUP, body).send().await.expect(201);
        app.login(&email, &password).await.expect(200);
        app.login(&email, &password[..password.len() - 2]).await.expect_error(401, "unauthorized");
    }
});

on_both!(emails_are_the_same_whatever_their_case, |app| async move {
    let answer = app.post(SIGNUP, with(&ada(), "email", "  Ada@Example.COM ")).send().await.expect(201);
    assert_eq!(answer["user"]["email"], "ada@example.com");
    app.login("ADA@example.com", PASSWORD).await.expect(200);
    let again = with(&with(&ada(), "email", "aDa@eXample.com"), "org_slug", "other");
    app.post(SIGNUP, again).send().await.expect_error(409, "conflict");
});

on_both!(a_taken_email_or_slug_is_a_conflict_that_leaves_nothing_behind, |app| async move {
    app.post(SIGNUP, ada()).send().await.expect(201);
    let same_email = with(&ada(), "org_slug", "second");
    let conflict = app.post(SIGNUP, same_email).send().await.expect_error(409, "conflict");
    assert_eq!(fields(&conflict), ["code", "message"]);
    let same_slug = with(&ada(), "email", "bob@example.com");
    app.post(SIGNUP, same_slug).send().await.expect_error(409, "conflict");
    // The slug of the first loser and the email of the second are free.
    let both = with(&with(&ada(), "org_slug", "second"), "email", "bob@example.com");
    app.post(SIGNUP, both).send().await.expect(201);
});

on_both!(of_many_signups_with_one_slug_exactly_one_wins, |app| async move {
    let signup = |n: usize, slug: &str| {
        let email = format!("racer{n}@example.com");
        app.post(SIGNUP, json!({"email": email, "password": PASSWORD, "org_slug": slug})).send()
    };
    let answers = join_all((0..20).map(|n| signup(n, "wanted"))).await;
    let winners: Vec<usize> = (0..20).filter(|n| answers[*n].status == 201).collect();
    assert_eq!(winners.len(), 1);
    for (n, answer) in answers.iter().enumerate() {
        if n != winners[0] {
            answer.expect_error(409, "conflict");
        }
    }
    // No partial user remains: both losers can sign up with the same email.
    let losers = (0..20).filter(|n| *n != winners[0]).take(2);
    for n in losers {
        app.login(&format!("racer{n}@example.com"), PASSWORD).await.expect_error(401, "unauthorized");
        signup(n, &format!("calm-{n}")).await.expect(201);
    }
});

on_both!(of_many_signups_with_one_email_exactly_one_wins, |app| async move {
    let signup = |slug: String| app.post(SIGNUP, with(&ada(), "org_slug", slug)).send();
    let answers = join_all((0..6).map(|n| signup(format!("race-{n}")))).await;
    let winner = answers.iter().position(|answer| answer.status == 201).unwrap();
    for (_, answer) in answers.iter().enumerate().filter(|(n, _)| *n != winner) {
        answer.expect_error(409, "conflict");
    }
    // The losers' organizations do not exist.
    let free = format!("race-{}", (winner + 1) % 6);
    let other = with(&with(&ada(), "org_slug", free), "email", "someone@example.com");
    app.post(SIGNUP, other).send().await.expect(201);
    let mine = app.login("ada@example.com", PASSWORD).await.expect(200);
    assert_eq!(mine["orgs"].as_array().unwrap().len(), 1);
});

on_both!(login_answers_a_token_the_user_and_the_organizations, |app| async move {
    let owner = app.signup("acme").await;
    let answer = app.login(&owner.email, PASSWORD).await;
    let body = answer.expect(200);
    assert_eq!(fields(&body), ["expires_at", "org", "orgs", "token", "user"]);
    let user = json!({"id": owner.user_id, "email": owner.email, "display_name": "acme"});
    assert_eq!(body["user"], user);
    let org = json!({"id": owner.org_id, "slug": "acme", "name": "acme", "plan": "free", "role": "owner"});
    assert_eq!(body["org"], org);
    assert_eq!(body["orgs"], json!([org]));
    let life = time(&body["expires_at"]) - app.app.services.clock.now().0;
    assert!((86_390_000..=86_400_000).contains(&life), "{life}");
    assert!(!answer.text().contains(PASSWORD) && !answer.text().contains("argon2"));
    assert_eq!(app.status_with_token(body["token"].as_str().unwrap()).await, 200);
    assert_ne!(body["token"], json!(owner.token), "each session has a token of its own");
});

on_both!(a_wrong_password_and_an_unknown_email_are_answered_alike, |app| async move {
    let owner = app.signup("acme").await;
    let wrong = app.login(&owner.email, "not the password").await;
    let unknown = app.login("nobody@example.com", PASSWORD).await;
    wrong.expect_error(401, "unauthorized");
    assert_eq!((wrong.status, &wrong.body), (unknown.status, &unknown.body));
    let names = |answer: &crate::support::TestResponse| answer.headers.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&wrong), names(&unknown));
    // Passwords are compared exactly, including case and spaces.
    app.login(&owner.email, &PASSWORD.to_uppercase()).await.expect_error(401, "unauthorized");
    app.login(&owner.email, &format!("{PASSWORD} ")).await.expect_error(401, "unauthorized");
});

on_both!(a_login_that_lacks_a_field_names_it, |app| async move {
    let whole = json!({"email": "ada@example.com", "password": PASSWORD});
    for field in ["email", "password"] {
        assert_field_error(&app.post(LOGIN, without_field(&whole, field)).send().await, field);
        let answer = app.post(LOGIN, with(&whole, field, 27_182_818)).send().await;
        assert_field_error(&answer, field);
        assert!(!answer.text().contains("27182818"), "{}", answer.text());
    }
});

on_both!(setup_makes_an_organization_an_application_and_an_admins_key, |app| async move {
    let body = app.post(SETUP, json!({"org_name": "Acme Labs"})).send().await.expect(201);
    assert_eq!(fields(&body), ["api_key", "app", "key", "org"]);
    assert_eq!(fields(&body["org"]), ["id", "plan", "slug"]);
    assert_eq!(fields(&body["app"]), ["id", "name"]);
    assert_eq!(fields(&body["key"]), ["id", "key_prefix"]);
    for id in [&body["org"]["id"], &body["app"]["id"], &body["key"]["id"]] {
        assert_uuid_v7(id);
    }
    assert_eq!(body["org"]["plan"], "free");
    assert!(body["org"]["slug"].as_str().unwrap().starts_with("acme-labs"), "{body}");
    assert_eq!(body["app"]["name"], "default");
    let raw = body["api_key"].as_str().unwrap();
    assert_eq!(body["key"]["key_prefix"], raw[..19]);

    let path = format!("/api/v1/keys/{}", body["key"]["id"].as_str().unwrap());
    let key = app.get(&path).key(raw).send().await.expect(200);
    assert_eq!((&key["app_id"], &key["created_by"]), (&body["app"]["id"], &Value::Null));
    let org = format!("/api/v1/orgs/{}", body["org"]["id"].as_str().unwrap());
    let renamed = app.put(&org, json!({"name": "Acme"})).key(raw).send().await.expect(200);
    assert_eq!((&renamed["name"], &renamed["role"]), (&json!("Acme"), &json!("admin")));
    app.delete(&org).key(raw).send().await.expect_error(403, "forbidden");

    let kinds: Vec<String> =
        app.events(body["org"]["id"].as_str().unwrap()).await.into_iter().map(|event| event.0).collect();
    assert_eq!(kinds, ["app.create", "key.create"]);
});

on_both!(setup_takes_names_and_refuses_bad_ones, |app| async move {
    let whole = json!({"org_name": "Acme", "org_slug": "acme", "app_name": "crawler"});
    let body = app.post(SETUP, whole.clone()).send().await.expect(201);
    assert_eq!((&body["org"]["slug"], &body["app"]["name"]), (&json!("acme"), &json!("crawler")));
    app.post(SETUP, whole.clone()).send().await.expect_error(409, "conflict");
    assert_field_error(&app.post(SETUP, without_field(&whole, "org_name")).send().await, "org_name");
    for (field, value) in [("org_name", ""), ("org_slug", "A"), ("app_name", " ")] {
        assert_field_error(&app.post(SETUP, with(&whole, field, value)).send().await, field);
        assert_field_error(&app.post(SETUP, with(&whole, field, 1)).send().await, field);
    }
    // Concurrent requests with the same name do not interfere.
    for _ in 0..3 {
        app.post(SETUP, json!({"org_name": "日本 Acme"})).send().await.expect(201);
    }
});

on_both!(the_plan_of_new_organizations_is_the_configured_one, [("GATEWAY_DEFAULT_PLAN", "pro")], |app| {
    plan_is_pro(app)
});

async fn plan_is_pro(app: TestApp) {
    let setup = app.post(SETUP, json!({"org_name": "Acme"})).send().await.expect(201);
    assert_eq!(setup["org"]["plan"], "pro");
    let signup = app.post(SIGNUP, ada()).send().await.expect(201);
    assert_eq!(signup["org"]["plan"], "pro");
}

on_both!(slugs_that_mean_something_else_are_not_taken, |app| async move {
    let founder = app.signup("acme").await;
    for slug in ["shelf", "gateway"] {
        assert_field_error(&app.post(SIGNUP, with(&ada(), "org_slug", slug)).send().await, "org_slug");
        let named = json!({"org_name": "Acme", "org_slug": slug});
        assert_field_error(&app.post(SETUP, named).send().await, "org_slug");
        let named = json!({"name": "Acme", "slug": slug});
        let refused = app.post("/api/v1/orgs", named).bearer(&founder.token).send().await;
        assert_field_error(&refused, "slug");
        let made = app.post(SETUP, json!({"org_name": slug})).send().await.expect(201);
        assert!(made["org"]["slug"].as_str().unwrap().starts_with(&format!("{slug}-")), "{made}");
    }
});
