//! Scopes of keys in the management API: whose log rows, sessions and usage a key reads, and what `read` and `proxy` allow.

use std::time::Duration;

use gateway_core::access::Role;
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::routes::{fill_params, routes};
use crate::support::{Account, TestApp, TestRequest, log_id};

/// Sends a chat request to the sandbox and returns its log id.
async fn chat(app: &TestApp, key: &str, session: &str) -> i64 {
    let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": "needle"}]});
    let call = app.post("/v1/chat/completions", body).key(key).header("x-gateway-provider", "sandbox");
    let answer = call.header("x-gateway-session", session).header("x-gateway-user", "erin").send().await;
    answer.expect(200);
    log_id(&answer)
}

async fn key(app: &TestApp, owner: &Account, scopes: &[&str]) -> (String, String) {
    let body = json!({"name": "scoped", "scopes": scopes});
    let made = app.post("/api/v1/keys", body).bearer(&owner.token).send().await.expect(201);
    assert_eq!(made["key"]["scopes"], json!(scopes));
    (made["key"]["id"].as_str().unwrap().to_owned(), made["raw_key"].as_str().unwrap().to_owned())
}

fn get(app: &TestApp, key: &str, path: &str) -> TestRequest {
    app.get(&format!("/api/v1{path}")).key(key)
}

fn ids(list: &Value) -> Vec<i64> {
    list["logs"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

on_both!(a_scoped_key_reads_only_the_rows_that_it_made, |app| async move {
    let ada = app.signup("acme").await;
    let (own_id, scoped) = key(&app, &ada, &["provider:sandbox"]).await;
    let (_, other) = key(&app, &ada, &["provider:sandbox", "model:*"]).await;
    let foreign = chat(&app, &ada.api_key, "mixed").await;
    let neighbour = chat(&app, &other, "others").await;
    let own = chat(&app, &scoped, "own").await;
    let mixed = chat(&app, &scoped, "mixed").await;

    let list = get(&app, &scoped, "/logs").send().await.expect(200);
    assert_eq!(ids(&list), [mixed, own]);
    assert_eq!(ids(&get(&app, &scoped, "/logs?q=needle").send().await.expect(200)), [mixed, own]);
    let by_key = format!("/logs?key_id={own_id}");
    assert_eq!(ids(&get(&app, &scoped, &by_key).send().await.expect(200)), [mixed, own]);
    let all = get(&app, &ada.api_key, "/logs").send().await.expect(200);
    assert_eq!(ids(&all), [mixed, own, neighbour, foreign]);
    let of_ada = all["logs"][3]["key_id"].as_str().unwrap();
    assert_eq!(
        ids(&get(&app, &scoped, &format!("/logs?key_id={of_ada}")).send().await.expect(200)),
        [0_i64; 0]
    );
    assert_eq!(get(&app, &scoped, &format!("/logs/{own}")).send().await.expect(200)["id"], own);
    let missing = get(&app, &scoped, "/logs/1").send().await;
    for id in [foreign, neighbour] {
        let answer = get(&app, &scoped, &format!("/logs/{id}")).send().await;
        answer.expect_error(404, "not_found");
        assert_eq!((answer.status, &answer.body), (missing.status, &missing.body));
        get(&app, &ada.api_key, &format!("/logs/{id}")).send().await.expect(200);
    }

    // A session with rows of others is a session of others.
    let sessions = get(&app, &scoped, "/sessions").send().await.expect(200);
    let names: Vec<_> = sessions["sessions"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(names, ["own"]);
    for (session, status) in [("own", 200), ("mixed", 404), ("others", 404)] {
        for below in ["", "/timeline"] {
            let path = format!("/sessions/{session}{below}");
            assert_eq!(get(&app, &scoped, &path).send().await.status, status, "{path}");
            get(&app, &ada.api_key, &path).send().await.expect(200);
        }
    }

    let requests = |path: &str| {
        let call = get(&app, &scoped, path);
        async move { call.send().await.expect(200) }
    };
    assert_eq!(requests("/usage/summary").await["requests"], 2);
    assert_eq!(requests(&format!("/usage/summary?key_id={of_ada}")).await["requests"], 0);
    let days = requests("/usage/timeseries").await;
    let counted: i64 =
        days["buckets"].as_array().unwrap().iter().map(|day| day["requests"].as_i64().unwrap()).sum();
    assert_eq!(counted, 2);
    for by in ["provider", "model", "key", "team", "app", "user"] {
        let rows = requests(&format!("/usage/breakdown?by={by}")).await["rows"].clone();
        assert_eq!((rows.as_array().unwrap().len(), &rows[0]["requests"]), (1, &json!(2)), "{by}");
    }
    assert_eq!(requests("/users/erin/summary").await["requests"], 2);
    get(&app, &scoped, &format!("/users/{}/summary", ada.user_id))
        .send()
        .await
        .expect_error(404, "not_found");
    get(&app, &scoped, "/metrics").send().await.expect_error(403, "scope_denied");
    // Its other rights are those of a member.
    for path in ["/keys", "/prompts", "/datasets", "/usage/prices"] {
        get(&app, &scoped, path).send().await.expect(200);
    }
    // Session tokens read everything, as before.
    let list = app.get("/api/v1/logs").bearer(&ada.token).send().await.expect(200);
    assert_eq!(ids(&list).len(), 4);
});

on_both!(rows_of_others_reach_a_scoped_key_neither_by_datasets_nor_by_evals, |app| async move {
    let ada = app.signup("acme").await;
    let (_, scoped) = key(&app, &ada, &["provider:sandbox"]).await;
    let (foreign, own) = (chat(&app, &ada.api_key, "a").await, chat(&app, &scoped, "b").await);
    get(&app, &ada.api_key, "/logs").send().await.expect(200);
    let made = app.post("/api/v1/datasets", json!({"name": "d"})).key(&scoped).send().await.expect(201);
    let cases = format!("/api/v1/datasets/{}/from-logs", made["id"].as_str().unwrap());
    let take = |ids: Value, key: &str| app.post(&cases, json!({"log_ids": ids})).key(key).send();
    take(json!([own, foreign]), &scoped).await.expect_error(400, "bad_request");
    take(json!([own]), &scoped).await.expect(201);
    take(json!([foreign]), &ada.api_key).await.expect(201);
    let eval = json!({"name": "e", "type": "static", "evaluator": "contains",
        "config": {"field": "request", "value": "needle"}});
    let eval = app.post("/api/v1/evals", eval).key(&scoped).send().await.expect(201);
    let run = format!("/api/v1/evals/{}/run", eval["id"]);
    let start = |body: Value, key: &str| app.post(&run, body).key(key).send();
    start(json!({"log_ids": [foreign]}), &scoped).await.expect_error(400, "bad_request");
    assert_eq!(start(json!({"log_ids": [own]}), &scoped).await.expect(202)["total"], 1);
    assert_eq!(start(json!({}), &scoped).await.expect(202)["total"], 1);
    assert_eq!(start(json!({}), &ada.api_key).await.expect(202)["total"], 2);
});

on_both!(a_scoped_key_follows_only_its_own_rows, |app| async move {
    let ada = app.signup("acme").await;
    let (id, scoped) = key(&app, &ada, &["provider:sandbox"]).await;
    let mut stream = get(&app, &scoped, "/logs/stream").open().await;
    let foreign = chat(&app, &ada.api_key, "a").await;
    let own = chat(&app, &scoped, "b").await;
    let event = stream.next().await.unwrap();
    assert_eq!(event.id, own.to_string());
    // A resuming client gets no row of others either.
    let resumed = get(&app, &scoped, "/logs/stream").header("last-event-id", "1");
    assert_eq!(resumed.open().await.next().await.unwrap().id, own.to_string());
    assert!(foreign < own);
    // A key that may read more has to ask again, and so has one that may read less.
    let path = format!("/api/v1/keys/{id}");
    app.put(&path, json!({"scopes": ["read"]})).bearer(&ada.token).send().await.expect(200);
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.next()).await;
    assert!(ended.expect("the stream ends").is_none());
});

on_both!(the_scope_read_reads_what_a_viewer_may_and_nothing_else, |app| async move {
    let ada = app.signup("acme").await;
    let (_, reader) = key(&app, &ada, &["read"]).await;
    let (_, both) = key(&app, &ada, &["read", "provider:sandbox"]).await;
    let row = chat(&app, &ada.api_key, "s").await;
    for key in [&reader, &both] {
        get(&app, key, &format!("/logs/{row}")).send().await.expect(200);
        assert!(ids(&get(&app, key, "/logs").send().await.expect(200)).contains(&row));
        for path in ["/sessions/s", "/metrics", "/keys", "/users/erin/summary", "/auth/entitlements"] {
            get(&app, key, path).send().await.expect(200);
        }
    }
    let role = |key: &str| get(&app, key, "/auth/entitlements").send();
    assert_eq!(role(&reader).await.expect(200)["role"], "viewer");
    assert_eq!(role(&both).await.expect(200)["role"], "member");
    let body = json!({"namespace": "n", "slug": "s", "content": "c"});
    app.post("/api/v1/prompts", body.clone()).key(&reader).send().await.expect_error(403, "forbidden");
    app.post("/api/v1/prompts", body).key(&both).send().await.expect(201);
    let body = json!({"model": "sandbox-small", "messages": []});
    let call = app.post("/v1/chat/completions", body).key(&reader).header("x-gateway-provider", "sandbox");
    call.send().await.expect_error(403, "scope_denied");
    chat(&app, &both, "t").await;
});

on_both!(the_scope_proxy_reaches_all_models_and_only_its_own_rows, |app| async move {
    let ada = app.signup("acme").await;
    let (_, proxy) = key(&app, &ada, &["proxy"]).await;
    let (_, reader) = key(&app, &ada, &["proxy", "read"]).await;
    let foreign = chat(&app, &ada.api_key, "s").await;
    let own = chat(&app, &proxy, "s").await;
    assert_eq!(ids(&get(&app, &proxy, "/logs").send().await.expect(200)), [own]);
    get(&app, &proxy, &format!("/logs/{foreign}")).send().await.expect_error(404, "not_found");
    get(&app, &proxy, &format!("/logs/{own}")).send().await.expect(200);
    assert_eq!(get(&app, &proxy, "/usage/summary").send().await.expect(200)["requests"], 1);
    assert_eq!(get(&app, &reader, "/usage/summary").send().await.expect(200)["requests"], 2);
    get(&app, &reader, "/keys").send().await.expect(200);
    let mut denied = 0;
    for route in routes().iter().filter(|route| !route.public && !route.root) {
        let is_own =
            ["/logs", "/usage", "/me/"].iter().any(|area| route.path.starts_with(&format!("/api/v1{area}")));
        if is_own && route.method == Method::GET {
            assert_eq!(route.role, Some(Role::Viewer));
            continue;
        }
        // Keys with any scope of MCP use it, and learn nothing of servers that their scopes do not name.
        if route.path.starts_with("/api/v1/mcp-connections") {
            continue;
        }
        let path = fill_params(&route.path, |param| match param {
            "orgId" => ada.org_id.clone(),
            "evalId" | "runId" => "4711".to_owned(),
            _ => uuid::Uuid::new_v4().to_string(),
        });
        let answer = app.call(route.method.clone(), &path).key(&proxy).send().await;
        answer.expect_error(403, "scope_denied");
        denied += 1;
    }
    assert!(denied > 80, "only {denied} routes: the table was not walked");
});
