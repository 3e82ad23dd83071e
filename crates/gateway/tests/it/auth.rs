//! Authentication: accepted headers, ended sessions, changed roles and organizations, and the order of the checks.

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::PASSWORD;
use crate::support::assertions::{
    assert_field_error, assert_unauthorized, assert_uuid_v7, fields, missing_id, time,
};

const ME: &str = "/api/v1/auth/entitlements";

on_both!(a_request_without_a_good_credential_is_unauthorized, |app| async move {
    let ada = app.signup("acme").await;
    assert_unauthorized(&app.get(ME).send().await);
    let (token, key) = (&ada.token, &ada.api_key);
    let bad_authorization = [
        String::new(),
        "Bearer".into(),
        "Bearer ".into(),
        token.clone(),
        format!("Token {token}"),
        format!("Basic {token}"),
        format!("Bearer{token}"),
        format!("Bearer {token} x"),
        format!("Bearer {token}, Bearer {token}"),
        format!("Bearer \"{token}\""),
        format!("Bearer {key}"),
        format!("bearer {key}"),
        format!("Bearer {}", &token[..token.len() - 1]),
        format!("Bearer .{token}"),
        format!("Bearer {token}."),
        "Bearer a.b.c".into(),
        "Bearer ..".into(),
        "Bearer null".into(),
    ];
    for value in &bad_authorization {
        assert_unauthorized(&app.get(ME).header("authorization", value).send().await);
    }
    let bad_keys = [
        String::new(),
        "sk-gateway-".into(),
        key[..74].to_owned(),
        format!("{key}0"),
        format!("sk-gateway-{}", "0".repeat(64)),
        key.to_uppercase(),
        key["sk-gateway-".len()..].to_owned(),
        format!("Bearer {key}"),
        token.clone(),
    ];
    for value in &bad_keys {
        assert_unauthorized(&app.get(ME).key(value).send().await);
    }
    app.get(ME).header("authorization", &format!("bEARER {token}")).send().await.expect(200);
});

on_both!(a_key_in_the_query_is_not_supported, |app| async move {
    let ada = app.signup("acme").await;
    for name in ["key", "api_key", "x-gateway-key", "token"] {
        let path = format!("{ME}?{name}={}", ada.api_key);
        assert_unauthorized(&app.get(&path).send().await);
    }
    // It does not change the caller's identity either.
    let path = format!("{ME}?key={}", ada.api_key);
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200)["role"], "owner");
});

on_both!(a_key_wins_over_a_token_and_is_not_excused_by_one, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    let both = app.get(ME).key(&ada.api_key).bearer(&bob.token).send().await.expect(200);
    assert_eq!((&both["org_id"], &both["role"]), (&json!(ada.org_id), &json!("admin")));
    app.get(ME).key(&ada.api_key).bearer("nonsense").send().await.expect(200);
    assert_unauthorized(&app.get(ME).key("nonsense").bearer(&ada.token).send().await);
    assert_unauthorized(&app.get(ME).key("").bearer(&ada.token).send().await);
});

on_both!(logging_out_ends_that_session_and_no_other, |app| async move {
    let ada = app.signup("acme").await;
    let login = app.login(&ada.email, PASSWORD).await.expect(200);
    let other = login["token"].as_str().unwrap();
    assert_eq!(app.status_with_token(&ada.token).await, 200);
    let out = app.call(Method::POST, "/api/v1/auth/logout").bearer(&ada.token).send().await;
    assert_eq!(out.expect(200), json!({"revoked": true}));
    assert_unauthorized(&app.get(ME).bearer(&ada.token).send().await);
    assert_unauthorized(&app.call(Method::POST, "/api/v1/auth/logout").bearer(&ada.token).send().await);
    assert_eq!(app.status_with_token(other).await, 200);
    assert_eq!(app.status_with_key(&ada.api_key).await, 200);
    let by_key = app.call(Method::POST, "/api/v1/auth/logout").key(&ada.api_key).send().await;
    by_key.expect_error(403, "forbidden");
    // The session stays invalid after a restart.
    let (config, data) = app.stop().await;
    let app = crate::support::TestApp::start(config, data).await;
    assert_eq!(app.status_with_token(&ada.token).await, 401);
    assert_eq!(app.status_with_token(other).await, 200);
});

on_both!(a_removed_member_is_out_at_once, |app| async move {
    let owner = app.signup("acme").await;
    let bob = app.join(&owner, "member").await;
    assert_eq!(app.status_with_token(&bob.token).await, 200);
    let member = format!("/api/v1/orgs/{}/members/{}", owner.org_id, bob.user_id);
    app.delete(&member).bearer(&owner.token).send().await.expect(200);
    assert_unauthorized(&app.get(ME).bearer(&bob.token).send().await);
    // Rejoining makes the old token valid again: only the membership counts.
    app.accept(&owner, &bob, "viewer").await;
    let me = app.get(ME).bearer(&bob.token).send().await.expect(200);
    assert_eq!(me["role"], "viewer");
});

on_both!(a_demoted_member_loses_rights_and_a_promoted_one_gains_them_at_once, |app| async move {
    let owner = app.signup("acme").await;
    let bob = app.join(&owner, "admin").await;
    let org = format!("/api/v1/orgs/{}", owner.org_id);
    let member = format!("{org}/members/{}", bob.user_id);
    let rename = || app.put(&org, json!({"name": "Bob's"})).bearer(&bob.token).send();
    rename().await.expect(200);
    app.put(&member, json!({"role": "viewer"})).bearer(&owner.token).send().await.expect(200);
    rename().await.expect_error(403, "forbidden");
    app.post("/api/v1/keys", json!({"name": "x"}))
        .bearer(&bob.token)
        .send()
        .await
        .expect_error(403, "forbidden");
    assert_eq!(app.get(ME).bearer(&bob.token).send().await.expect(200)["role"], "viewer");
    app.put(&member, json!({"role": "admin"})).bearer(&owner.token).send().await.expect(200);
    rename().await.expect(200);
});

on_both!(tokens_and_keys_of_a_deleted_organization_are_dead, |app| async move {
    let owner = app.signup("acme").await;
    let bob = app.join(&owner, "member").await;
    let key = app.create_key(&bob.token, json!({"name": "bobs"})).await;
    assert_eq!(app.status_with_key(&key.raw).await, 200);
    let org = format!("/api/v1/orgs/{}", owner.org_id);
    app.delete(&org).bearer(&owner.token).send().await.expect(200);
    for token in [&owner.token, &bob.token] {
        assert_unauthorized(&app.get(ME).bearer(token).send().await);
    }
    for raw in [&owner.api_key, &key.raw] {
        assert_unauthorized(&app.get(ME).key(raw).send().await);
    }
});

on_both!(the_session_shows_plan_role_and_rate_limit, |app| async move {
    let owner = app.signup("acme").await;
    let mut me = app.get(ME).bearer(&owner.token).send().await.expect(200);
    let quotas = me.as_object_mut().unwrap().remove("quotas").unwrap();
    assert_eq!(quotas["keys"], json!({"limit": 1000, "used": 1}));
    assert_eq!(quotas["rows_per_day"], json!({"limit": 1_000_000, "used": 0}));
    let free = json!({
        "org_id": owner.org_id, "plan": "free", "role": "owner", "entitlements": [],
        "rate_limit": {"requests_per_minute": 1000}, "owned_orgs": {"limit": 100, "used": 1},
    });
    assert_eq!(me, free);
    let org = format!("/api/v1/orgs/{}", owner.org_id);
    app.put(&org, json!({"plan": "enterprise"})).bearer(&owner.token).send().await.expect(200);
    let me = app.get(ME).key(&owner.api_key).send().await.expect(200);
    let mut features: Vec<&str> =
        me["entitlements"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    features.sort_unstable();
    assert_eq!(features, ["integrations", "skill_marketplace", "webhooks"]);
    assert_eq!(me["rate_limit"], json!({"requests_per_minute": 100_000}));
    assert_eq!((&me["plan"], &me["role"]), (&json!("enterprise"), &json!("admin")));
});

on_both!(a_user_of_two_organizations_switches_between_them, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    app.accept(&ada, &bob, "member").await;
    let orgs = app.get("/api/v1/auth/orgs").bearer(&bob.token).send().await.expect(200);
    assert_eq!(fields(&orgs), ["orgs"]);
    let acme = json!({"id": ada.org_id, "slug": "acme", "name": "acme", "plan": "free", "role": "member"});
    let bobs = json!({"id": bob.org_id, "slug": "bobs", "name": "bobs", "plan": "free", "role": "owner"});
    assert_eq!(orgs["orgs"], json!([bobs, acme]));

    let switch =
        |org: Value| app.post("/api/v1/auth/switch-org", json!({"org_id": org})).bearer(&bob.token).send();
    let body = switch(json!(ada.org_id)).await.expect(200);
    assert_eq!(fields(&body), ["expires_at", "org", "token"]);
    assert_eq!(body["org"], acme);
    assert!(time(&body["expires_at"]) > app.app.services.clock.now().0);
    assert_uuid_v7(&body["org"]["id"]);
    let me = app.get(ME).bearer(body["token"].as_str().unwrap()).send().await.expect(200);
    assert_eq!((&me["org_id"], &me["role"]), (&json!(ada.org_id), &json!("member")));
    // The old token keeps its organization.
    let me = app.get(ME).bearer(&bob.token).send().await.expect(200);
    assert_eq!(me["org_id"], json!(bob.org_id));

    let carol = app.signup("carols").await;
    let (stranger, nowhere) = (switch(json!(carol.org_id)).await, switch(missing_id()).await);
    stranger.expect_error(403, "forbidden");
    assert_eq!((stranger.status, &stranger.body), (nowhere.status, &nowhere.body));
    for wrong in [json!("acme"), json!(1), Value::Null] {
        assert_field_error(&switch(wrong).await, "org_id");
    }
    let body = json!({"org_id": ada.org_id});
    let by_key = app.post("/api/v1/auth/switch-org", body).key(&bob.api_key).send().await;
    by_key.expect_error(403, "forbidden");
});

on_both!(authentication_comes_before_everything_else, |app| async move {
    for (method, path) in [
        (Method::GET, "/api/v1/nothing"),
        (Method::GET, "/api/nothing/at/all"),
        (Method::PATCH, "/api/v1/keys"),
        (Method::GET, "/api/v1/keys/not-an-id"),
        (Method::GET, "/api/v1/keys?limit=0"),
        (Method::POST, "/api/v1/keys"),
        (Method::POST, "/v1/chat/completions"),
        (Method::GET, "/anything"),
        (Method::POST, "/"),
        (Method::DELETE, "/"),
        (Method::GET, "/openapi.yaml"),
        (Method::GET, "/llms.txt"),
        (Method::GET, "/metrics"),
        (Method::POST, "/api/v1/signup/"),
        (Method::POST, "/api/v1/auth/logout"),
        (Method::GET, "/healthz/x"),
    ] {
        assert_unauthorized(&app.call(method, path).raw("{").send().await);
    }
    // Public paths need no credential.
    let get = app.get("/api/v1/login").send().await;
    get.expect_error(405, "method_not_allowed");
    assert_eq!(get.header("allow"), Some("POST"));
    assert_eq!(app.get("/").send().await.status, 307);
});

on_both!(then_come_routing_role_body_and_existence, |app| async move {
    let owner = app.signup("acme").await;
    let viewer = app.join(&owner, "viewer").await;
    let missing = format!("/api/v1/keys/{}", missing_id().as_str().unwrap());
    let key = |path: &str, method: Method| app.call(method, path).key(&owner.api_key).raw("{").send();
    key("/api/v1/nothing", Method::POST).await.expect_error(404, "not_found");
    key("/nothing", Method::POST).await.expect_error(400, "bad_request");
    let wrong_method = key(&missing, Method::PATCH).await;
    wrong_method.expect_error(405, "method_not_allowed");
    let mut allowed: Vec<&str> = wrong_method.header("allow").unwrap().split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["DELETE", "GET", "HEAD", "PUT"]);
    // The role is checked before the body and existence, the body before existence.
    for (method, path) in [
        (Method::POST, "/api/v1/keys".to_owned()),
        (Method::PUT, missing.clone()),
        (Method::DELETE, missing.clone()),
    ] {
        let denied = app.call(method, &path).bearer(&viewer.token).raw("{").send().await;
        denied.expect_error(403, "forbidden");
    }
    key(&missing, Method::PUT).await.expect_error(400, "bad_request");
    let body = json!({"name": "x"});
    app.put(&missing, body).key(&owner.api_key).send().await.expect_error(404, "not_found");
    let malformed = app.put("/api/v1/keys/7", json!({"name": "x"})).key(&owner.api_key).send().await;
    assert_field_error(&malformed, "keyId");
});

on_both!(every_route_answers_below_api_as_below_api_v1, |app| async move {
    let owner = app.post("/api/signup", json!({"email": "a@b.c", "password": PASSWORD, "org_slug": "a"}));
    let owner = owner.send().await.expect(201);
    let key = owner["api_key"].as_str().unwrap();
    for path in ["keys", "auth/entitlements", "auth/orgs", "orgs", "nothing", "keys/7", "keys?limit=0"] {
        let alias = app.get(&format!("/api/{path}")).key(key).send().await;
        let canonical = app.get(&format!("/api/v1/{path}")).key(key).send().await;
        assert_eq!((alias.status, &alias.body), (canonical.status, &canonical.body), "{path}");
    }
    let made = app.post("/api/keys", json!({"name": "x"})).key(key).send().await.expect(201);
    let path = format!("/api/keys/{}", made["key"]["id"].as_str().unwrap());
    assert_eq!(app.delete(&path).key(key).send().await.expect(200), json!({"revoked": true}));
    app.login("a@b.c", PASSWORD).await.expect(200);
    app.post("/api/login", json!({"email": "a@b.c", "password": PASSWORD})).send().await.expect(200);
    app.post("/api/setup", json!({"org_name": "x"})).send().await.expect(201);
});

on_both!(every_answer_carries_a_request_id, |app| async move {
    let sane = "Trace-1.2_3:4";
    for (path, status) in [("/healthz", 200), (ME, 401), ("/api/v1/login", 405)] {
        let echoed = app.get(path).header("x-request-id", sane).send().await;
        assert_eq!((echoed.status.as_u16(), echoed.header("x-request-id")), (status, Some(sane)));
        let (one, two) = (app.get(path).send().await, app.get(path).send().await);
        assert!(one.header("x-request-id").is_some_and(|id| id.len() >= 16));
        assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
    }
    for mad in ["", "a b", "<script>", &"x".repeat(129)] {
        let answer = app.get("/healthz").header("x-request-id", mad).send().await;
        assert_ne!(answer.header("x-request-id"), Some(mad));
    }
});
