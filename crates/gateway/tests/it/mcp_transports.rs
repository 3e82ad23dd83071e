//! Servers with the transport before Streamable HTTP, and bounds of what servers send and are asked at once.

use serde_json::json;

use crate::on_both;
use crate::support::mcp::{names, servers_path, text};
use crate::support::mcp_server::{McpServer, Speaks, tool};

on_both!(a_server_of_the_older_transport_is_listed_and_called, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Legacy).await;
    server.change(|script| {
        script.is_sse = true;
        script.wants = Some("Bearer s3cret".into());
        script.tools.push(tool("ask", "Asks."));
    });
    let auth = json!({"transport": "sse", "auth": {"type": "headers", "headers": {"Authorization": "Bearer s3cret"}}});
    let made = app.mcp_server(&ada, "s", &server, auth).await;
    assert_eq!(made["transport"], "sse");
    let list = app.modern("/mcp", "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
    assert_eq!(names(&list), ["s__ask", "s__echo", "s__fail"]);
    let arguments = json!({"name": "s__echo", "arguments": {"a": 1}});
    for call in
        [app.modern("/mcp", "tools/call", arguments.clone()), app.legacy("/mcp", "tools/call", arguments)]
    {
        let call = call.key(&ada.api_key).send().await;
        assert_eq!(text(&call.expect(200)), r#"{"a":1}"#);
    }
    // Nobody answers questions in such a session. The server is told so where it listens.
    let asked = app.legacy("/mcp/s", "tools/call", json!({"name": "ask"})).key(&ada.api_key).send().await;
    assert_eq!(text(&asked.expect(200)), "answer: -32601");
    let posted: Vec<_> = server.all_received().into_iter().filter(|got| got.method == "POST").collect();
    assert!(posted.iter().all(|got| got.path.starts_with("/messages?session=")), "{posted:?}");
    let read = app.legacy("/mcp/s", "resources/read", json!({"uri": "file:///notes.txt"})).key(&ada.api_key);
    assert_eq!(read.send().await.expect(200)["result"]["contents"][0]["text"], "the notes");
    let path = format!("{}/s", servers_path(&ada));
    for (transport, is_found) in [("auto", true), ("http", false)] {
        app.put(&path, json!({"transport": transport})).bearer(&ada.token).send().await.expect(200);
        let test = app.post(&format!("{path}/test"), json!({})).bearer(&ada.token).send().await.expect(200);
        assert_eq!(test["ok"], is_found, "{transport}: {test}");
    }
});

on_both!(the_older_transport_is_found_by_itself, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Legacy).await;
    server.change(|script| script.is_sse = true);
    app.mcp_server(&ada, "s", &server, json!({})).await;
    let list = app.modern("/mcp", "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
    assert_eq!(names(&list), ["s__echo", "s__fail"]);
    let arguments = json!({"name": "s__echo", "arguments": {"a": 1}});
    let call = app.legacy("/mcp", "tools/call", arguments).key(&ada.api_key).send().await;
    assert_eq!(text(&call.expect(200)), r#"{"a":1}"#);
    let posted = |path: &str| {
        let received = server.all_received().into_iter();
        received.filter(|got| got.method == "POST" && got.path.starts_with(path)).count()
    };
    let refused = posted("/mcp");
    let refresh = format!("{}/s/refresh", servers_path(&ada));
    app.post(&refresh, json!({})).bearer(&ada.token).send().await.expect(200);
    assert!(posted("/messages?session=") > 0, "the call went where the server listens");
    assert!(refused > 0, "the newer transport was tried first");
});

/// The memory of a result is that of its text, however many numbers it has.
const SMALL: [(&str, &str); 1] = [("GATEWAY_MEMORY_BYTES", "134217728")];

on_both!(a_result_with_many_numbers_fits, SMALL, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    server.change(|script| script.tools = vec![tool("numbers", "Counts.")]);
    app.mcp_server(&ada, "s", &server, json!({})).await;
    let call = app.modern("/mcp", "tools/call", json!({"name": "s__numbers"})).key(&ada.api_key).send().await;
    let values = call.expect(200)["result"]["structuredContent"]["values"].as_array().unwrap().len();
    assert_eq!(values, 2 << 20);
});

on_both!(initialize_begins_no_session_with_a_server_that_is_down, |app| async move {
    let ada = app.signup("acme").await;
    let (up, down) =
        (McpServer::with_sessions(Speaks::Legacy).await, McpServer::with_sessions(Speaks::Legacy).await);
    app.mcp_server(&ada, "up", &up, json!({})).await;
    app.mcp_server(&ada, "down", &down, json!({})).await;
    let hello =
        || app.legacy("/mcp", "initialize", json!({"protocolVersion": "2025-11-25"})).key(&ada.api_key);
    assert!(hello().send().await.header("mcp-session-id").is_some());
    down.change(|script| script.fails_with = Some(503));
    let refresh = format!("{}/down/refresh", servers_path(&ada));
    let refreshed = app.post(&refresh, json!({})).bearer(&ada.token).send().await.expect(200);
    assert_eq!(refreshed["status"]["state"], "down");
    let (asked, asked_up) = (down.received("initialize").len(), up.received("initialize").len());
    assert!(hello().send().await.header("mcp-session-id").is_some());
    assert_eq!(up.received("initialize").len(), asked_up + 1);
    assert_eq!(
        down.received("initialize").len(),
        asked,
        "it has its last lists, but is not asked for a session"
    );
});
