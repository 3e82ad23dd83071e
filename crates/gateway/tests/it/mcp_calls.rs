//! Calls through MCP: progress, questions, cancellation, time-outs, sizes, states of questions, and sessions that every
//! node serves.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::mcp::{messages, names, text};
use crate::support::mcp_server::{McpServer, Speaks, tool};
use crate::support::{Account, Cluster, TestApp, wait_for_response};

/// A server with these tools.
async fn with_tools(app: &TestApp, of: &Account, server: &McpServer, tools: &[&str]) {
    let tools: Vec<Value> = tools.iter().map(|name| tool(name, "A tool.")).collect();
    server.change(|script| script.tools = tools);
    app.mcp_server(of, "s", server, json!({"timeout_ms": 5_000})).await;
}

fn begin() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "c", "version": "1"}})
}

on_both!(progress_is_passed_on_before_the_result, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Legacy).await;
    with_tools(&app, &ada, &server, &["steps"]).await;
    let call = json!({"name": "s__steps", "_meta": {"progressToken": "t"}});
    for request in [app.modern("/mcp", "tools/call", call.clone()), app.legacy("/mcp", "tools/call", call)] {
        let all = messages(&request.key(&ada.api_key).send().await);
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!(all[0]["params"], json!({"progressToken": "t", "progress": 1, "total": 2}));
        assert_eq!((text(&all[2]).as_str(), &all[2]["id"]), ("two steps", &json!(7)));
    }
});

on_both!(a_question_reaches_a_client_with_a_session_and_its_answer_the_server, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::with_sessions(Speaks::Legacy).await;
    with_tools(&app, &ada, &server, &["ask"]).await;
    let first = app.legacy("/mcp", "initialize", begin()).key(&ada.api_key).send().await;
    let session = first.header("mcp-session-id").unwrap().to_owned();
    let call = app.legacy("/mcp", "tools/call", json!({"name": "s__ask"})).header("mcp-session-id", &session);
    let mut events = call.key(&ada.api_key).open().await;
    let question: Value = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
    assert_eq!((&question["method"], &question["id"]), (&json!("elicitation/create"), &json!("gw:s:77")));
    let answer = json!({"jsonrpc": "2.0", "id": "gw:s:77", "result": {"action": "accept", "content": {"name": "Ada"}}});
    let answer = app.post("/mcp", answer).header("mcp-session-id", &session).key(&ada.api_key).send().await;
    assert_eq!(answer.status, 202);
    let result: Value = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
    assert_eq!(text(&result), r#"answer: "Ada""#);
    // Who cannot be asked is not asked: the server learns that at once.
    let modern = app.modern("/mcp", "tools/call", json!({"name": "s__ask"})).key(&ada.api_key).send().await;
    assert_eq!(text(&modern.expect(200)), "answer: -32601");
});

on_both!(time_outs_and_sizes_are_bounded_and_calls_are_not_repeated, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    with_tools(&app, &ada, &server, &["hang", "big", "echo"]).await;
    let call = async |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        app.modern("/mcp", "tools/call", params).key(&ada.api_key).send().await
    };
    assert_eq!(call("s__hang", json!({})).await.expect(504)["error"]["code"], -32_603);
    assert_eq!(server.received("tools/call").len(), 1, "no retry");
    assert_eq!(call("s__big", json!({})).await.expect(502)["error"]["code"], -32_603);
    let large = json!({"x": "x".repeat(1 << 20)});
    assert_eq!(call("s__echo", large).await.expect(200)["error"]["code"], -32_602);
    call("s__echo", json!({"x": "x".repeat(2 << 20)})).await.expect_error(413, "payload_too_large");
    assert_eq!(call("s__echo", json!({"x": "x".repeat(1 << 19)})).await.status, 200);
});

on_both!(large_messages_are_read_by_the_threads_for_computation, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    with_tools(&app, &ada, &server, &["echo"]).await;
    let started = || app.app.services.compute.stats().granted;
    // The request is parsed; the answer is measured and parsed, and its result measured and converted.
    for (length, pieces_of_work) in [(100, 0), (200 << 10, 5)] {
        let params = json!({"name": "s__echo", "arguments": {"x": "x".repeat(length)}});
        let before = started();
        let answer = app.modern("/mcp", "tools/call", params).key(&ada.api_key).send().await.expect(200);
        assert!(text(&answer).contains(&"x".repeat(length)));
        assert_eq!(started() - before, pieces_of_work, "{length} bytes");
    }
    let rows = app.get("/api/v1/logs?source=mcp").bearer(&ada.token).send().await.expect(200);
    let ids: Vec<i64> =
        rows["logs"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    let row = app.get(&format!("/api/v1/logs/{}", ids[0])).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&row["status"], &row["response_stored"]), (&json!(200), &json!("full")));
    assert!(row["response"].to_string().len() > 200 << 10);
});

on_both!(a_cancelled_call_is_cancelled_at_the_server, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::with_sessions(Speaks::Legacy).await;
    with_tools(&app, &ada, &server, &["hang"]).await;
    // A modern client cancels by closing its connection.
    let call = app.modern("/mcp", "tools/call", json!({"name": "s__hang"})).key(&ada.api_key);
    let hanging = tokio::spawn(call.send());
    let sent = server.wait_for("tools/call").await;
    hanging.abort();
    let cancelled = server.wait_for("notifications/cancelled").await;
    assert_eq!(cancelled.body["params"]["requestId"], sent.body["id"]);
    // An older one sends a message.
    let call = app.legacy("/mcp", "tools/call", json!({"name": "s__hang"})).key(&ada.api_key);
    let hanging = tokio::spawn(call.send());
    while server.received("tools/call").len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(app.post("/mcp", cancel).key(&ada.api_key).send().await.status, 202);
    assert_eq!(hanging.await.unwrap().status, 202, "a cancelled request has no answer");
    while server.received("notifications/cancelled").len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
});

on_both!(the_state_of_a_question_is_bound_to_its_caller_and_request, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    with_tools(&app, &ada, &server, &["input", "echo"]).await;
    let call = async |key: &str, params: Value| {
        app.modern("/mcp", "tools/call", params).key(key).send().await.expect(200)
    };
    let asked = call(&ada.api_key, json!({"name": "s__input"})).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    assert!(!state.contains("secret-state"));
    let next = |name: &str| json!({"name": name, "requestState": state, "inputResponses": {}});
    assert_eq!(text(&call(&ada.api_key, next("s__input")).await), "state: secret-state");
    let other = app.scoped_key(&ada, &["*"]).await;
    for (key, name) in [(other.as_str(), "s__input"), (ada.api_key.as_str(), "s__echo")] {
        assert_eq!(call(key, next(name)).await["error"]["code"], -32_602, "{name}");
    }
    // Older revisions cannot carry the question.
    let legacy = app.legacy("/mcp", "tools/call", json!({"name": "s__input"})).key(&ada.api_key).send().await;
    assert_eq!(legacy.expect(200)["result"]["isError"], true);
});

on_both!(arguments_that_a_schema_marks_are_repeated_in_headers, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    let mut marked = tool("echo", "A tool.");
    marked["inputSchema"]["properties"] = json!({"region": {"type": "string", "x-mcp-header": "Region"}});
    server.change(|script| script.tools = vec![marked]);
    app.mcp_server(&ada, "s", &server, json!({})).await;
    let call = json!({"name": "s__echo", "arguments": {"region": "zürich"}});
    app.modern("/mcp", "tools/call", call).key(&ada.api_key).send().await.expect(200);
    let sent = &server.received("tools/call")[0];
    assert_eq!(sent.header("mcp-param-region"), Some("=?base64?esO8cmljaA==?="));
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_serves_a_session_also_when_the_node_that_began_it_is_gone() {
    let mut cluster = Cluster::start(2, &[]).await;
    let server = McpServer::with_sessions(Speaks::Legacy).await;
    let body = json!({"name": "s", "url": server.url()});
    let path = cluster.in_org("/mcp-servers");
    cluster.manage(0, Method::POST, &path).json(body).send().await.expect(201);
    let rpc =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let wait = Duration::from_secs(10);
    for node in &cluster.nodes {
        let list = || node.call(Method::POST, "/mcp").key(&cluster.key).json(rpc("tools/list", json!({})));
        wait_for_response(wait, list, |answer| !names(&answer.json()).is_empty()).await;
    }
    let first =
        cluster.nodes[0].call(Method::POST, "/mcp").key(&cluster.key).json(rpc("initialize", begin()));
    let session = first.send().await.header("mcp-session-id").unwrap().to_owned();
    cluster.kill(0);
    let call = rpc("tools/call", json!({"name": "s__echo", "arguments": {"n": 1}}));
    let call = cluster.nodes[1].call(Method::POST, "/mcp").key(&cluster.key).json(call);
    let answer =
        call.header("mcp-session-id", &session).header("mcp-protocol-version", "2025-11-25").send().await;
    assert_eq!(text(&answer.expect(200)), r#"{"n":1}"#);
    let used = server.received("tools/call")[0].header("mcp-session-id").map(ToOwned::to_owned);
    assert!(used.is_some_and(|used| used.starts_with("session-")));
}
