//! What callers see of their own use, and the keys that members make for themselves.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp, TestRequest, log_id};

fn chat(app: &TestApp) -> TestRequest {
    let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": "hi"}]});
    app.post("/v1/chat/completions", body).header("x-gateway-provider", "sandbox")
}

async fn sent(request: TestRequest) -> i64 {
    let answer = request.send().await;
    answer.expect(200);
    log_id(&answer)
}

fn ids(list: &Value) -> Vec<i64> {
    list["logs"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

async fn make_key(app: &TestApp, person: &Account, body: Value) -> Value {
    app.post("/api/v1/keys", body).bearer(&person.token).send().await.expect(201)
}

on_both!(a_member_sees_its_own_calls_and_those_of_its_keys, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let key = make_key(&app, &bob, json!({"name": "bob's", "scopes": ["proxy"]})).await;
    let key = key["raw_key"].as_str().unwrap();
    let by_session = sent(chat(&app).bearer(&bob.token)).await;
    let by_key = sent(chat(&app).key(key).header("x-gateway-user", "someone")).await;
    // Others' calls do not count, even if they name bob as their user.
    sent(chat(&app).key(&ada.api_key).header("x-gateway-user", &bob.user_id)).await;
    sent(chat(&app).bearer(&ada.token)).await;

    let logs = app.get("/api/v1/me/logs").bearer(&bob.token).send().await.expect(200);
    assert_eq!(ids(&logs), [by_key, by_session]);
    let page = app.get("/api/v1/me/logs?limit=1").bearer(&bob.token).send().await.expect(200);
    assert_eq!(ids(&page), [by_key]);
    let usage = app.get("/api/v1/me/usage").bearer(&bob.token).send().await.expect(200);
    assert_eq!((&usage["requests"], &usage["models"][0]["requests"]), (&json!(2), &json!(2)));
    assert_eq!(usage["models"][0]["model"], "sandbox-small");

    let logs = app.get("/api/v1/me/logs").key(key).send().await.expect(200);
    assert_eq!(ids(&logs), [by_key]);
    let usage = app.get("/api/v1/me/usage").key(key).send().await.expect(200);
    assert_eq!(usage["requests"], 1);
    // A key that may read everything sees only its own calls here.
    let usage = app.get("/api/v1/me/usage").key(&ada.api_key).send().await.expect(200);
    assert_eq!(usage["requests"], 1);
    app.get("/api/v1/me/usage").send().await.expect_error(401, "unauthorized");
});

on_both!(members_make_keys_within_the_bounds_of_the_organization, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    let set = |bounds: Value| {
        let body = json!({"settings": {"self_service_keys": bounds}});
        app.put(&org, body).bearer(&ada.token).send()
    };
    for wrong in [
        json!({"scopes": []}),
        json!({"scopes": ["all"]}),
        json!({"scopes": ["proxy"], "max": 0}),
        json!({"scopes": ["proxy"], "budget_usd": -1}),
    ] {
        set(wrong).await.expect_error(400, "bad_request");
    }
    set(json!({"scopes": ["proxy"], "more": 1})).await.expect(200);
    let bounds = json!({"scopes": ["model:sandbox-*"], "budget_usd": 5, "max": 2});
    let shown = set(bounds.clone()).await.expect(200);
    assert_eq!(shown["settings"]["self_service_keys"]["scopes"], bounds["scopes"]);

    let post = |body: Value| app.post("/api/v1/keys", body).bearer(&bob.token).send();
    for scopes in [json!(["*"]), json!(["proxy"]), json!(["model:*"]), json!(["provider:sandbox"])] {
        let refused = post(json!({"name": "wide", "scopes": scopes})).await;
        let refused = refused.expect_error(403, "forbidden");
        assert!(refused["message"].as_str().unwrap().contains("model:sandbox-*"), "{refused}");
    }
    let first = post(json!({"name": "one"})).await.expect(201);
    assert_eq!(first["key"]["scopes"], json!(["model:sandbox-*"]));
    let second = post(json!({"name": "two", "scopes": ["model:sandbox-small"]})).await.expect(201);
    post(json!({"name": "three"})).await.expect_error(409, "conflict");
    let budgets = app.get(&format!("{org}/budgets")).bearer(&ada.token).send().await.expect(200);
    let budgets = budgets["budgets"].as_array().unwrap();
    assert_eq!(budgets.len(), 2);
    assert!(budgets.iter().all(|budget| budget["scope"] == "key" && budget["hard_limit_usd"] == 5.0));
    sent(chat(&app).key(first["raw_key"].as_str().unwrap())).await;

    let path = format!("/api/v1/keys/{}", second["key"]["id"].as_str().unwrap());
    let put = |body: Value| app.put(&path, body).bearer(&bob.token).send();
    put(json!({"scopes": ["*"]})).await.expect_error(403, "forbidden");
    put(json!({"name": "renamed"})).await.expect(200);
    app.delete(&path).bearer(&bob.token).send().await.expect(200);
    let third = post(json!({"name": "three"})).await.expect(201);
    // A rotated key may stay valid beside its successor, but only one.
    let rotate = |key: &Value, body: Value| {
        let path = format!("/api/v1/keys/{}/rotate", key["key"]["id"].as_str().unwrap());
        app.post(&path, body).bearer(&bob.token).send()
    };
    rotate(&third, json!({})).await.expect(201);
    rotate(&first, json!({})).await.expect_error(409, "conflict");
    rotate(&first, json!({"overlap_hours": 0})).await.expect(201);
    // Admins are not bound, and without the setting nobody is.
    make_key(&app, &ada, json!({"name": "wide"})).await;
    set(Value::Null).await.expect(200);
    make_key(&app, &bob, json!({"name": "wide"})).await;
});
