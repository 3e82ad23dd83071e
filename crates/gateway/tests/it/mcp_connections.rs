//! Credentials that callers store for themselves at MCP servers.

use gateway_store::mcp_connections;
use serde_json::json;

use crate::on_both;
use crate::support::mcp::{names, text};
use crate::support::mcp_server::{McpServer, Speaks};
use crate::support::{Account, TestApp};

on_both!(each_caller_signs_in_with_a_credential_of_its_own, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    server.change(|script| script.wants = Some("Bearer own".into()));
    app.mcp_server(
        &ada,
        "s",
        &server,
        json!({"auth": {"type": "per_user_headers", "names": ["Authorization"]}}),
    )
    .await;
    let path = "/api/v1/mcp-connections/s";
    let state = app.get(path).key(&ada.api_key).send().await.expect(200);
    assert_eq!((&state["state"], &state["names"]), (&json!("needs_auth"), &json!(["Authorization"])));
    let wrong = app.put(path, json!({"headers": {"X-Other": "x"}})).key(&ada.api_key).send().await;
    wrong.expect_error(400, "bad_request");
    let own = json!({"headers": {"Authorization": "Bearer own"}});
    let stored = app.put(path, own.clone()).key(&ada.api_key).send().await.expect(200);
    assert!(stored["state"] == "active" && !stored.to_string().contains("Bearer own"), "{stored}");
    let list = app.modern("/mcp", "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
    assert_eq!(names(&list), ["s__echo", "s__fail"]);
    let call = |name: &str| app.modern("/mcp", "tools/call", json!({"name": name, "arguments": {}}));
    assert_eq!(text(&call("s__echo").key(&ada.api_key).send().await.expect(200)), "{}");
    // The end user of a key is somebody else, and so is another key.
    let user = call("s__echo").key(&ada.api_key).header("x-gateway-user", "maria").send().await;
    assert_eq!(user.expect(502)["error"]["code"], -32_603);
    let put = app.put(path, own.clone()).key(&ada.api_key).header("x-gateway-user", "maria");
    put.send().await.expect(200);
    let user = call("s__echo").key(&ada.api_key).header("x-gateway-user", "maria").send().await;
    assert_eq!(text(&user.expect(200)), "{}");
    // A credential that stopped working is named in the result, which every client shows.
    server.change(|script| script.wants = Some("Bearer newer".into()));
    let refused = call("s__echo").key(&ada.api_key).send().await.expect(200);
    assert_eq!(refused["result"]["isError"], true);
    assert!(text(&refused).contains("/api/v1/mcp-connections/s"), "{refused}");
    app.delete(path).key(&ada.api_key).send().await.expect(200);
    app.delete(path).key(&ada.api_key).send().await.expect_error(404, "not_found");
    // Keys without a scope for the server do not learn of it.
    let other = app.scoped_key(&ada, &["mcp:other"]).await;
    app.get(path).key(&other).send().await.expect_error(404, "not_found");
    let scoped = app.scoped_key(&ada, &["mcp:s"]).await;
    assert_eq!(app.get(path).key(&scoped).send().await.expect(200)["state"], "needs_auth");
    let plain = McpServer::start(Speaks::Modern).await;
    app.mcp_server(&ada, "plain", &plain, json!({})).await;
    app.get("/api/v1/mcp-connections/plain").key(&ada.api_key).send().await.expect_error(404, "not_found");
});

async fn stored(app: &TestApp, of: &Account) -> i64 {
    let mut tx = app.app.services.db.begin().await.unwrap();
    mcp_connections::count(&mut tx, of.org_id.parse().unwrap(), "s").await.unwrap()
}

on_both!(credentials_are_deleted_with_the_key_and_with_the_member_that_stored_them, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    let auth = json!({"auth": {"type": "per_user_headers", "names": ["Authorization"]}});
    app.mcp_server(&ada, "s", &server, auth).await;
    let path = "/api/v1/mcp-connections/s";
    let own = json!({"headers": {"Authorization": "Bearer own"}});
    let made = app.post("/api/v1/keys", json!({"name": "agent"})).bearer(&ada.token).send().await.expect(201);
    let raw = made["raw_key"].as_str().unwrap();
    app.put(path, own.clone()).key(raw).send().await.expect(200);
    app.put(path, own.clone()).key(raw).header("x-gateway-user", "maria").send().await.expect(200);
    app.put(path, own.clone()).key(&ada.api_key).send().await.expect(200);
    assert_eq!(stored(&app, &ada).await, 3);
    let key = format!("/api/v1/keys/{}", made["key"]["id"].as_str().unwrap());
    app.delete(&key).bearer(&ada.token).send().await.expect(200);
    assert_eq!(stored(&app, &ada).await, 1, "only that of the other key is left");
    let bob = app.join(&ada, "member").await;
    app.put(path, own.clone()).bearer(&bob.token).send().await.expect(200);
    let key = app.post("/api/v1/keys", json!({"name": "bob's"})).bearer(&bob.token).send().await.expect(201);
    app.put(path, own).key(key["raw_key"].as_str().unwrap()).send().await.expect(200);
    assert_eq!(stored(&app, &ada).await, 3);
    let member = format!("/api/v1/orgs/{}/members/{}", ada.org_id, bob.user_id);
    app.delete(&member).bearer(&ada.token).send().await.expect(200);
    assert_eq!(stored(&app, &ada).await, 1);
});
