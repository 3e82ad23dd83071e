//! MCP clients of both eras for tests.

use serde_json::{Value, json};

use super::mcp_server::{MODERN, McpServer};
use super::{Account, TestApp, TestRequest, TestResponse};

pub fn servers_path(of: &Account) -> String {
    format!("/api/v1/orgs/{}/mcp-servers", of.org_id)
}

impl TestApp {
    /// Creates an MCP server with more fields.
    pub async fn mcp_server(&self, of: &Account, name: &str, server: &McpServer, more: Value) -> Value {
        let mut body = json!({"name": name, "url": server.url()});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post(&servers_path(of), body).bearer(&of.token).send().await.expect(201)
    }

    /// A key of the account with these scopes.
    pub async fn scoped_key(&self, of: &Account, scopes: &[&str]) -> String {
        let body = json!({"name": "scoped", "scopes": scopes});
        let made = self.post("/api/v1/keys", body).bearer(&of.token).send().await.expect(201);
        made["raw_key"].as_str().unwrap().to_owned()
    }

    /// A request of 2026-07-28.
    pub fn modern(&self, path: &str, method: &str, params: Value) -> TestRequest {
        modern(self.post(path, Value::Null), method, params)
    }

    /// A request of a revision with `initialize`.
    pub fn legacy(&self, path: &str, method: &str, params: Value) -> TestRequest {
        let mut body = json!({"jsonrpc": "2.0", "id": 7, "method": method});
        body["params"] = params;
        self.post(path, body).header("mcp-protocol-version", "2025-11-25")
    }
}

/// Fills a request in with a message of 2026-07-28.
pub fn modern(request: TestRequest, method: &str, params: Value) -> TestRequest {
    let mut params = params;
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let name = params.get("name").or_else(|| params.get("uri")).and_then(Value::as_str).map(str::to_owned);
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let request =
        request.raw(body.to_string()).header("mcp-protocol-version", MODERN).header("mcp-method", method);
    match name {
        Some(name) => request.header("mcp-name", &name),
        None => request,
    }
}

/// The names in a list of tools.
pub fn names(answer: &Value) -> Vec<String> {
    let list = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no tools: {answer}"));
    list.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The text of a tool's result.
pub fn text(answer: &Value) -> String {
    let text = &answer["result"]["content"][0]["text"];
    text.as_str().unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
}

/// The messages of a stream of events.
pub fn messages(response: &TestResponse) -> Vec<Value> {
    assert_eq!(response.header("content-type"), Some("text/event-stream"), "{}", response.text());
    let text = response.text();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}
