//! Log rows, usage, budgets and spans of calls through MCP.

use gateway_core::otlp::proto::Any;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::mcp_server::{McpServer, Speaks, tool};
use crate::support::receiver::{attribute, otlp, receiver, spans};
use crate::support::{Account, TestApp};
use crate::upstream::Reply;

async fn call(app: &TestApp, of: &Account, name: &str, arguments: Value) -> Value {
    let request = app.modern("/mcp", "tools/call", json!({"name": name, "arguments": arguments}));
    request
        .key(&of.api_key)
        .header("x-gateway-session", "chat-1")
        .header("x-gateway-user", "maria")
        .send()
        .await
        .json()
}

async fn rows(app: &TestApp, of: &Account) -> Vec<Value> {
    let list = app.get("/api/v1/logs?source=mcp").bearer(&of.token).send().await.expect(200);
    list["logs"].as_array().unwrap_or_else(|| panic!("{list}")).clone()
}

on_both!(every_call_has_a_row_and_lists_have_none, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    let tools = ["echo", "fail", "hang", "image"].map(|name| tool(name, "A tool."));
    server.change(|script| script.tools = tools.to_vec());
    app.mcp_server(&ada, "s", &server, json!({"prices": {"echo": 0.25, "hang": 0.5}, "timeout_ms": 1_000}))
        .await;
    app.modern("/mcp", "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
    call(&app, &ada, "s__echo", json!({"word": "zebra"})).await;
    call(&app, &ada, "s__fail", json!({})).await;
    call(&app, &ada, "s__hang", json!({})).await;
    call(&app, &ada, "s__image", json!({})).await;
    let read = json!({"uri": "s+file:///notes.txt"});
    app.modern("/mcp", "resources/read", read).key(&ada.api_key).send().await.expect(200);
    let all = rows(&app, &ada).await;
    let facts: Vec<_> = all
        .iter()
        .rev()
        .map(|row| json!([row["operation"], row["tool"], row["status"], row["error_code"], row["cost_usd"]]))
        .collect();
    assert_eq!(
        facts,
        [
            json!(["tools/call", "echo", 200, null, 0.25]),
            json!(["tools/call", "fail", 422, null, null]),
            // The server has got the request, and may have done its work.
            json!(["tools/call", "hang", 504, "provider_error", 0.5]),
            json!(["tools/call", "image", 200, null, null]),
            json!(["resources/read", "file:///notes.txt", 200, null, null]),
        ]
    );
    let echo = all.last().unwrap();
    assert_eq!(
        (&echo["provider"], &echo["model"], &echo["source"]),
        (&json!("mcp:s"), &Value::Null, &json!("mcp"))
    );
    assert_eq!((&echo["session_id"], &echo["user"]), (&json!("chat-1"), &json!("maria")));
    let detail = app.get(&format!("/api/v1/logs/{}", echo["id"])).bearer(&ada.token).send().await.expect(200);
    let text = detail.to_string();
    assert!(text.contains("zebra"), "{text}");
    let image =
        app.get(&format!("/api/v1/logs/{}", all[1]["id"])).bearer(&ada.token).send().await.expect(200);
    let image = image.to_string();
    assert!(image.contains("400 characters of base64") && !image.contains("QUJDQUJD"), "{image}");
    let usage = app.get("/api/v1/usage/breakdown?by=tool").bearer(&ada.token).send().await.expect(200);
    let shown = usage.to_string();
    assert!(shown.contains("echo") && shown.contains("hang"), "{shown}");
    let found = app.get("/api/v1/logs?query=tool%3Aec*").bearer(&ada.token).send().await.expect(200);
    assert_eq!(found["logs"].as_array().unwrap().len(), 1, "{found}");
    let plain = app.modern("/mcp", "tools/call", json!({"name": "s__echo", "arguments": {"word": "quagga"}}));
    plain.key(&ada.api_key).header("x-gateway-log", "metadata").send().await.expect(200);
    let newest = &rows(&app, &ada).await[0];
    assert_eq!(newest["request_stored"], "off");
});

on_both!(a_call_that_is_refused_has_a_row_too, |app| async move {
    let ada = app.signup("acme").await;
    let (server, down) = (McpServer::start(Speaks::Modern).await, McpServer::start(Speaks::Modern).await);
    down.change(|script| script.fails_with = Some(503));
    app.mcp_server(&ada, "s", &server, json!({"deny": ["fail"]})).await;
    app.mcp_server(&ada, "down", &down, json!({})).await;
    for name in ["s__absent", "s__fail", "nowhere__echo", "down__echo"] {
        assert!(call(&app, &ada, name, json!({"word": "zebra"})).await["error"].is_object(), "{name}");
    }
    let facts: Vec<_> = rows(&app, &ada)
        .await
        .iter()
        .rev()
        .map(|row| json!([row["provider"], row["tool"], row["status"], row["error_code"], row["user"]]))
        .collect();
    assert_eq!(
        facts,
        [
            json!(["mcp:s", "s__absent", 400, "bad_request", "maria"]),
            json!(["mcp:s", "s__fail", 400, "bad_request", "maria"]),
            json!(["mcp", "nowhere__echo", 400, "bad_request", "maria"]),
            json!(["mcp:down", "down__echo", 502, "provider_error", "maria"]),
        ]
    );
    assert!(server.received("tools/call").is_empty());
});

on_both!(prices_of_tools_count_in_budgets, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    app.mcp_server(&ada, "s", &server, json!({"prices": {"echo": 0.4}})).await;
    let budget = json!({"scope": "org", "period": "daily", "hard_limit_usd": 1.0});
    let path = format!("/api/v1/orgs/{}/budgets", ada.org_id);
    app.post(&path, budget).bearer(&ada.token).send().await.expect(201);
    for _ in 0..3 {
        assert!(call(&app, &ada, "s__echo", json!({})).await["result"].is_object());
    }
    let refused = app.modern("/mcp", "tools/call", json!({"name": "s__echo"})).key(&ada.api_key).send().await;
    refused.expect_error(403, "budget_exceeded");
    assert_eq!(server.received("tools/call").len(), 3, "a spent budget calls nothing");
    // A tool without a price still works.
    assert!(call(&app, &ada, "s__fail", json!({})).await["result"].is_object());
});

on_both!(
    exports_of_mcp_rows_are_spans_of_tools,
    [("GATEWAY_DEFAULT_PLAN", "enterprise")],
    |app| async move {
        let ada = app.signup("acme").await;
        let server = McpServer::start(Speaks::Modern).await;
        app.mcp_server(&ada, "s", &server, json!({})).await;
        let collector = receiver(Reply::new(200)).await;
        let mut export = otlp(&collector);
        export["include_sources"] = json!(["mcp"]);
        let id = app.export(&ada, &export).await;
        call(&app, &ada, "s__echo", json!({})).await;
        app.export_status(&ada, &id, "delivered", |status| status["delivered"] == 1).await;
        let spans = spans(&collector.requests()[0]);
        assert_eq!(spans[0].name, "tools/call echo");
        let text = |name: &str| match attribute(&spans[0].attributes, name) {
            Some(Any::String(text)) => text,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(text("gen_ai.operation.name"), "execute_tool");
        assert_eq!((text("gen_ai.tool.name"), text("mcp.method.name")), ("echo".into(), "tools/call".into()));
    }
);
