//! Permissions of every route: none without a credential, none below the documented role.

use gateway_core::access::Role;
use http::Method;
use serde_json::json;

use crate::on_both;
use crate::support::routes::{RouteInfo, fill_params, routes};
use crate::support::{Account, TestApp};

/// Fills the path with the caller's organization and with ids that no resource has.
fn path_in(org: &str, route: &RouteInfo) -> String {
    fill_params(&route.path, |param| match param {
        "orgId" => org.to_owned(),
        "name" => "absent".to_owned(),
        "evalId" | "runId" | "replayId" => "4711".to_owned(),
        _ => uuid::Uuid::new_v4().to_string(),
    })
}

/// Returns the canonical path and its alias.
fn both(route: &RouteInfo, path: &str) -> Vec<String> {
    if route.root {
        vec![path.to_owned()]
    } else {
        vec![path.to_owned(), path.replacen("/api/v1", "/api", 1)]
    }
}

/// One caller per role in an organization on the enterprise plan, so that plans do not interfere.
async fn everybody(app: &TestApp) -> Vec<(Role, Account)> {
    let owner = app.signup("acme").await;
    let path = format!("/api/v1/orgs/{}", owner.org_id);
    app.put(&path, json!({"plan": "enterprise"})).bearer(&owner.token).send().await.expect(200);
    let mut all = Vec::new();
    for role in [Role::Viewer, Role::Member, Role::Admin] {
        all.push((role, app.join(&owner, role.as_str()).await));
    }
    all.push((Role::Owner, owner));
    all
}

on_both!(every_route_but_the_public_ones_wants_a_credential, |app| async move {
    let mut guarded = 0;
    for route in routes() {
        for path in both(&route, &path_in(&uuid::Uuid::new_v4().to_string(), &route)) {
            let bare = app.call(route.method.clone(), &path).send().await;
            let wrong = app
                .call(route.method.clone(), &path)
                .key(&format!("sk-gateway-{}", "0".repeat(64)))
                .send()
                .await;
            let malformed = app.call(route.method.clone(), &path).bearer("nonsense").send().await;
            if route.public {
                assert_ne!(bare.status, 401, "{} {path}", route.method);
                continue;
            }
            guarded += 1;
            for answer in [bare, wrong, malformed] {
                answer.expect_error(401, "unauthorized");
                assert!(answer.header("www-authenticate").is_some());
            }
        }
    }
    assert!(guarded > 40, "only {guarded} guarded paths: the table was not walked");
});

on_both!(callers_below_the_documented_role_are_refused_on_every_route, |app| async move {
    let everybody = everybody(&app).await;
    let (_, owner) = everybody.last().unwrap();
    let limited = json!({"name": "limited", "scopes": ["provider:openai"]});
    let limited = app.post("/api/v1/keys", limited).bearer(&owner.token).send().await.expect(201);
    let limited = limited["raw_key"].as_str().unwrap();
    let mut refused = 0;
    for route in routes() {
        let Some(needed) = route.role else { continue };
        let path = path_in(&owner.org_id, &route);
        for (_, below) in everybody.iter().filter(|(role, _)| *role < needed) {
            let answer = app.call(route.method.clone(), &path).bearer(&below.token).send().await;
            assert_eq!(answer.status, 403, "{} {path}: {}", route.method, answer.text());
            answer.expect_error(403, "forbidden");
            refused += 1;
        }
        // A key is an admin when its scopes are `*` and a member otherwise.
        for (key, role) in [(owner.api_key.as_str(), Role::Admin), (limited, Role::Member)] {
            if role < needed {
                let answer = app.call(route.method.clone(), &path).key(key).send().await;
                assert_eq!(answer.status, 403, "{} {path} by key: {}", route.method, answer.text());
            }
        }
    }
    assert!(refused >= 30, "only {refused} refusals: the table was not walked");
});

on_both!(callers_of_the_documented_role_get_past_the_guard_on_every_route, |app| async move {
    let everybody = everybody(&app).await;
    let (_, owner) = everybody.last().unwrap();
    let mut passed = 0;
    for route in routes() {
        let Some(needed) = route.role else { continue };
        // Every member may leave, so that route admits viewers. Deleting the organization would end the test.
        let leaving = route.method == Method::DELETE && route.path.ends_with("/members/{userId}");
        let ending = route.method == Method::DELETE && route.path.ends_with("/orgs/{orgId}");
        // Its answer never ends.
        let following = route.path.ends_with("/audit/stream");
        if leaving || ending || following {
            continue;
        }
        let (_, caller) = everybody.iter().find(|(role, _)| *role == needed).unwrap();
        let path = path_in(&owner.org_id, &route);
        // Without a body and with missing ids an admitted caller gets 400, 404 or a list.
        let answer = app.call(route.method.clone(), &path).bearer(&caller.token).send().await;
        let code = answer.status.as_u16();
        assert!([200, 201, 202, 400, 404].contains(&code), "{} {path}: {}", route.method, answer.text());
        passed += 1;
    }
    assert!(passed >= 20, "only {passed} routes: the table was not walked");
});

on_both!(routes_for_people_refuse_keys, |app| async move {
    let owner = app.signup("acme").await;
    let mut asked = 0;
    for route in routes().iter().filter(|route| route.role.is_none() && !route.public && !route.root) {
        let body = json!({"name": "x", "org_id": owner.org_id});
        let path = path_in(&owner.org_id, route);
        let answer = app.call(route.method.clone(), &path).json(body).key(&owner.api_key).send().await;
        assert_eq!(answer.status, 403, "{} {}: {}", route.method, route.path, answer.text());
        asked += 1;
    }
    assert!(asked >= 3, "only {asked} routes");
});
