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

const NOTES: &str = "file:///notes.txt";

fn updated(uri: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
}

on_both!(updates_of_resources_reach_the_client_that_subscribed, |app| async move {
    let ada = app.signup("acme").await;
    let (server, older) =
        (McpServer::with_streams(Speaks::Modern).await, McpServer::start(Speaks::Legacy).await);
    app.mcp_server(&ada, "s", &server, json!({})).await;
    app.mcp_server(&ada, "older", &older, json!({})).await;
    let listen = |path: &str, uris: Value| {
        let filter = json!({"notifications": {"resourceSubscriptions": uris}});
        app.modern(path, "subscriptions/listen", filter)
    };
    let many: Vec<String> = (0..101).map(|number| format!("s+file:///{number}")).collect();
    let refused = listen("/mcp", json!(many)).key(&ada.api_key).send().await.expect(200);
    assert_eq!(refused["error"]["code"], -32_602);
    let uris = json!(["s+file:///notes.txt", "older+file:///a", "absent+file:///b", "nonsense"]);
    let mut events = listen("/mcp", uris).key(&ada.api_key).open().await;
    let first = next(&mut events).await.unwrap();
    assert_eq!(first["params"]["notifications"], json!({"resourceSubscriptions": ["s+file:///notes.txt"]}));
    let about = app.modern("/mcp/s", "server/discover", json!({})).key(&ada.api_key).send().await.expect(200);
    assert_eq!(about["result"]["capabilities"]["resources"]["subscribe"], true);
    server.say(&updated(NOTES));
    let told = next(&mut events).await.unwrap();
    assert_eq!(told["params"]["uri"], "s+file:///notes.txt");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    // What was missed while the stream was broken is not known, so everything may have changed.
    server.close_streams();
    assert_eq!(next(&mut events).await.unwrap()["params"]["uri"], "s+file:///notes.txt");
    let mut own = listen("/mcp/s", json!([NOTES])).key(&ada.api_key).open().await;
    assert_eq!(
        next(&mut own).await.unwrap()["params"]["notifications"]["resourceSubscriptions"],
        json!([NOTES])
    );
    server.say(&updated(NOTES));
    assert_eq!(next(&mut own).await.unwrap()["params"]["uri"], NOTES);
    // A key for tools does not learn of resources.
    let tools = app.scoped_key(&ada, &["mcp:s/echo"]).await;
    let mut none = listen("/mcp", json!(["s+file:///notes.txt"])).key(&tools).open().await;
    assert_eq!(next(&mut none).await.unwrap()["params"]["notifications"], json!({}));
    // Nothing is read of the server when nobody listens.
    drop((events, own, none));
    server.wait_for_streams(0).await;
});

on_both!(an_older_client_subscribes_at_a_server_of_the_newest_revision, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::with_streams(Speaks::Modern).await;
    app.mcp_server(&ada, "s", &server, json!({})).await;
    let send = async |method: &str, uri: &str| {
        app.legacy("/mcp/s", method, json!({"uri": uri})).key(&ada.api_key).send().await.expect(200)
    };
    assert_eq!(send("resources/subscribe", NOTES).await["result"], json!({}));
    assert_eq!(send("resources/subscribe", "file:///other").await["result"], json!({}));
    assert_eq!(send("resources/unsubscribe", "file:///other").await["result"], json!({}));
    let mut events = app.get("/mcp/s").key(&ada.api_key).header("accept", "text/event-stream").open().await;
    // One stream for the resource, and one for changes of lists.
    server.wait_for_streams(2).await;
    let asked = server.received("subscriptions/listen");
    let wanted = |listen: &Value| listen["params"]["notifications"]["resourceSubscriptions"].clone();
    assert!(asked.iter().any(|listen| wanted(&listen.body) == json!([NOTES])), "{asked:?}");
    server.say(&updated(NOTES));
    assert_eq!(next(&mut events).await.unwrap(), updated(NOTES));
});

on_both!(a_server_says_itself_that_its_tools_have_changed, |app| async move {
    let ada = app.signup("acme").await;
    for (name, speaks) in [("newer", Speaks::Modern), ("older", Speaks::Legacy)] {
        let server = McpServer::with_streams(speaks).await;
        server.change(|script| script.has_sessions = true);
        app.mcp_server(&ada, name, &server, json!({})).await;
        let path = format!("/mcp/{name}");
        app.legacy(&path, "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
        let filter = json!({"notifications": {"toolsListChanged": true}});
        let mut events = app.modern(&path, "subscriptions/listen", filter).key(&ada.api_key).open().await;
        assert_eq!(next(&mut events).await.unwrap()["method"], "notifications/subscriptions/acknowledged");
        server.wait_for_streams(1).await;
        server.change(|script| script.tools.push(tool("third", "A tool.")));
        server.say(&json!({"jsonrpc": "2.0", "method": CHANGED[0]}));
        assert_eq!(next(&mut events).await.unwrap()["method"], CHANGED[0], "{speaks:?}");
        drop(events);
        server.wait_for_streams(0).await;
    }
});

on_both!(what_a_server_says_in_a_session_reaches_its_client_outside_of_calls, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::with_sessions(Speaks::Legacy).await;
    server.change(|script| script.has_streams = true);
    app.mcp_server(&ada, "s", &server, json!({})).await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}});
    let begun = app.legacy("/mcp", "initialize", hello).key(&ada.api_key).send().await;
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let get = app.get("/mcp").key(&ada.api_key).header("accept", "text/event-stream");
    let mut events = get.header("mcp-session-id", &session).open().await;
    server.wait_for_streams(2).await;
    server.say(
        &json!({"jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": {"message": "Who?"}}),
    );
    let question = next(&mut events).await.unwrap();
    assert_eq!((&question["id"], &question["method"]), (&json!("gw:s:5"), &json!("elicitation/create")));
    server.say(&updated(NOTES));
    assert_eq!(next(&mut events).await.unwrap(), updated("s+file:///notes.txt"));
    let answer = json!({"jsonrpc": "2.0", "id": "gw:s:5", "result": {"action": "decline"}});
    let answered = app.post("/mcp", answer).key(&ada.api_key).header("mcp-session-id", &session).send().await;
    assert_eq!(answered.status, 202);
    // The gateway refuses at once what it is asked in the session of its own.
    let answers = || server.all_received().into_iter().map(|got| got.body).filter(|body| body["id"] == 5);
    for _ in 0..400 {
        if answers().count() == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    assert_eq!(answers().filter(|answer| answer["result"]["action"] == "decline").count(), 1);
    assert_eq!(answers().filter(|answer| answer["error"]["code"] == -32_601).count(), 1);
});
