//! Streams of list changes, for clients of both eras.

use serde_json::{Value, json};

use crate::on_both;
use crate::support::client::Events;
use crate::support::mcp::servers_path;
use crate::support::mcp_server::{McpServer, Speaks, tool};

const CHANGED: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];

/// The next message of a stream. `None` at its end.
async fn next(events: &mut Events) -> Option<Value> {
    events.next().await.map(|event| serde_json::from_str(&event.data).unwrap())
}

on_both!(a_modern_client_is_told_what_it_asked_for_until_its_key_is_revoked, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    let key = json!({"name": "agent", "scopes": ["mcp:*"]});
    let key = app.post("/api/v1/keys", key).bearer(&ada.token).send().await.expect(201);
    let raw = key["raw_key"].as_str().unwrap();
    let wrong = app.modern("/mcp", "subscriptions/listen", json!({})).key(raw).send().await.expect(200);
    assert_eq!(wrong["error"]["code"], -32_602);
    let listen = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["file:///a"]}});
    let mut events = app.modern("/mcp", "subscriptions/listen", listen).key(raw).open().await;
    let first = next(&mut events).await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({"toolsListChanged": true}));
    let named = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(first["params"]["_meta"][named], 7);
    // A new server.
    app.mcp_server(&ada, "s", &server, json!({})).await;
    let told = next(&mut events).await.unwrap();
    assert_eq!((&told["method"], &told["params"]["_meta"][named]), (&json!(CHANGED[0]), &json!(7)));
    // Another tool of the server.
    server.change(|script| script.tools.push(tool("third", "A tool.")));
    let refresh = format!("{}/s/refresh", servers_path(&ada));
    app.post(&refresh, json!({})).bearer(&ada.token).send().await.expect(200);
    assert_eq!(next(&mut events).await.unwrap()["method"], CHANGED[0]);
    // A tool that is offered no more. What does not change a list is not told.
    let change = |body: Value| app.put(&format!("{}/s", servers_path(&ada)), body).bearer(&ada.token);
    change(json!({"instructions": "Use it."})).send().await.expect(200);
    change(json!({"deny": ["third"]})).send().await.expect(200);
    assert_eq!(next(&mut events).await.unwrap()["method"], CHANGED[0]);
    let path = format!("/api/v1/keys/{}", key["key"]["id"].as_str().unwrap());
    app.delete(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(next(&mut events).await, None, "a revoked key hears nothing more");
});

on_both!(an_older_client_is_told_of_all_lists_with_get, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Legacy).await;
    let get = || app.get("/mcp").key(&ada.api_key);
    assert_eq!(get().send().await.status, 405, "it reads no events");
    let modern = get().header("accept", "text/event-stream").header("mcp-protocol-version", "2026-07-28");
    assert_eq!(modern.send().await.status, 405);
    let lost = get().header("accept", "text/event-stream").header("mcp-session-id", "gws_lost").send().await;
    lost.expect_error(404, "not_found");
    let mut events = get().header("accept", "text/event-stream").open().await;
    app.mcp_server(&ada, "s", &server, json!({})).await;
    for method in CHANGED {
        let told = next(&mut events).await.unwrap();
        assert_eq!(told, json!({"jsonrpc": "2.0", "method": method, "params": {}}));
    }
    let about = app.legacy("/mcp", "initialize", json!({"protocolVersion": "2025-06-18"})).key(&ada.api_key);
    let about = about.send().await.expect(200);
    assert_eq!(about["result"]["capabilities"]["tools"], json!({"listChanged": true}));
});
