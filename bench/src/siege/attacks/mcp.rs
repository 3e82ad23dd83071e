//! Attacks through the MCP gateway: servers of the attacker that never respond or respond with very much, calls and lists
//! of both, and followers of their lists.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Attacker;
use crate::http::parse_head;

/// Just below what the gateway takes of a list.
const TOOLS: usize = 900;
const DESCRIPTION_BYTES: usize = 4_000;
const RESULT_BYTES: usize = 6 << 20;
const MAX_REQUEST_BYTES: usize = 8 << 20;
const PAUSE: Duration = Duration::from_millis(20);

/// The huge server's answers, made once.
static LIST: OnceLock<String> = OnceLock::new();
static RESULT: OnceLock<String> = OnceLock::new();

/// Lists and calls of a server with many tools and long results.
pub(super) async fn huge_servers(attacker: Arc<Attacker>, task: usize) {
    let name = format!("huge{task}");
    create(&attacker, "mcp-huge", &name, attacker.servers.huge_mcp.to_string()).await;
    let mut client = attacker.client();
    let text = "[".repeat(64 << 10);
    loop {
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                "params": {"name": "tool_1", "arguments": {"text": text}}}),
            json!({"jsonrpc": "2.0", "id": 3, "method": "resources/list"}),
        ] {
            let request = attacker.mcp(&name, &message.to_string());
            attacker.send("mcp-huge", &mut client, &request).await;
        }
        let path = format!("/orgs/{}/mcp-servers/{name}/refresh", attacker.org);
        attacker.api("mcp-huge", &mut client, ("POST", &path), &json!({})).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Calls of a server that never responds.
pub(super) async fn silent_servers(attacker: Arc<Attacker>, task: usize) {
    let name = format!("silent{task}");
    create(&attacker, "mcp-silent", &name, attacker.servers.silent.to_string()).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "wait", "arguments": {}}});
    let request = attacker.mcp(&name, &call.to_string());
    loop {
        let mut client = attacker.client();
        attacker.send("mcp-silent", &mut client, &request).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Followers of changes, each of which is told of what all the others cause.
pub(super) async fn followers(attacker: Arc<Attacker>, task: usize) {
    let request = format!(
        "GET /mcp/huge{} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Gateway-Key: {}\r\nAccept: text/event-stream\r\n\r\n",
        task % 2,
        attacker.key
    );
    attacker.follow("mcp-followers", request.as_bytes()).await;
}

async fn create(attacker: &Attacker, attack: &'static str, name: &str, server: String) {
    let mut client = attacker.client();
    let path = format!("/orgs/{}/mcp-servers", attacker.org);
    let server = json!({"name": name, "url": format!("http://{server}/mcp"), "pin": true});
    attacker.api(attack, &mut client, ("POST", &path), &server).await;
}

/// The server with many tools and long results. It speaks the revision that it is asked for, without sessions.
pub(super) async fn answer_with_much(mut stream: TcpStream) {
    let mut input = Vec::new();
    while let Some(body) = read_body(&mut stream, &mut input).await {
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let answered = match answer(&message) {
            Some(answer) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    answer.len()
                );
                stream.write_all(&[head.as_bytes(), answer.as_bytes()].concat()).await
            }
            None => stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await,
        };
        if answered.is_err() {
            return;
        }
    }
}

/// The answer to a message; a notification has none.
fn answer(message: &Value) -> Option<String> {
    let id = message.get("id")?;
    let result = match message.get("method").and_then(Value::as_str).unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": message.pointer("/params/protocolVersion"),
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "huge", "version": "1"},
        })
        .to_string(),
        "tools/list" => LIST.get_or_init(list).clone(),
        "tools/call" => RESULT.get_or_init(result).clone(),
        _ => {
            let error = json!({"code": -32601, "message": "Method not found"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
        }
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn list() -> String {
    let description = "d".repeat(DESCRIPTION_BYTES);
    let tools: Vec<Value> = (0..TOOLS)
        .map(|number| {
            json!({"name": format!("tool_{number}"), "description": description,
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}})
        })
        .collect();
    json!({"tools": tools}).to_string()
}

/// A result with many small parts, which take more memory as a tree than as text.
fn result() -> String {
    let part = r#"{"type":"text","text":""}"#;
    let parts = vec![part; RESULT_BYTES / (part.len() + 1)].join(",");
    format!(r#"{{"content":[{parts}]}}"#)
}

/// The body of the next request. None: the connection has ended, or its client does not keep to the framing.
async fn read_body(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut head = loop {
        if let Some(head) = parse_head(input) {
            break head;
        }
        if input.len() > MAX_REQUEST_BYTES || stream.read_buf(input).await.ok()? == 0 {
            return None;
        }
    };
    let mut rest = input.split_off(head.length);
    let mut body = Vec::new();
    while !matches!(head.body, crate::http::Body::Unframed) {
        let taken = head.body.feed(&rest, &mut |bytes| body.extend_from_slice(bytes)).ok()?;
        rest.drain(..taken);
        if head.body.is_done() {
            break;
        }
        if body.len() > MAX_REQUEST_BYTES || stream.read_buf(&mut rest).await.ok()? == 0 {
            return None;
        }
    }
    *input = rest;
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_huge_server_answers_requests_and_no_notifications() {
        let ask = |method: &str| {
            let message = json!({"id": 7, "method": method, "params": {"protocolVersion": "2025-06-18"}});
            serde_json::from_str::<Value>(&answer(&message).unwrap()).unwrap()
        };
        assert_eq!(ask("initialize")["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(ask("tools/list")["result"]["tools"].as_array().unwrap().len(), TOOLS);
        assert!(ask("tools/call")["result"]["content"].as_array().unwrap().len() > 100_000);
        assert_eq!((&ask("other")["id"], &ask("other")["error"]["code"]), (&json!(7), &json!(-32_601)));
        assert_eq!(answer(&json!({"method": "notifications/initialized"})), None);
    }
}
