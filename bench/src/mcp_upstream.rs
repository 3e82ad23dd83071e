//! The MCP server behind every target: the part of the upstream that answers JSON-RPC messages of 2026-07-28.

use serde_json::{Value, json};

/// Repeats nothing of its arguments, so that every answer has the same length.
pub(crate) const TOOL: &str = "note";
/// Never answers.
pub(crate) const HANGING_TOOL: &str = "hang";
const TOOLS: usize = 5;
const TEXT: &str = "The note was stored. It can be read again under its number until the end of the session.";

/// The answer to a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Body(String),
    /// The message needs no answer.
    Accepted,
    /// Nothing is sent until the client disconnects.
    Never,
}

/// `None` if the body is no message of the protocol.
pub(crate) fn answer(body: &[u8]) -> Option<Answer> {
    if !body.starts_with(br#"{"jsonrpc""#) {
        return None;
    }
    let message: Value = serde_json::from_slice(body).ok()?;
    let Some(id) = message.get("id") else { return Some(Answer::Accepted) };
    let result = match message["method"].as_str()? {
        "tools/call" if message["params"]["name"] == HANGING_TOOL => return Some(Answer::Never),
        "tools/call" => return Some(Answer::Body(call_answer(&id.to_string()))),
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bench", "version": "1"},
            "resultType": "complete",
        }),
        "tools/list" => {
            let names = (2..TOOLS).map(|number| format!("tool_{number}"));
            let names = [TOOL, HANGING_TOOL].map(str::to_owned).into_iter().chain(names);
            json!({"tools": names.map(|name| tool(&name)).collect::<Vec<_>>(), "ttlMs": 600_000, "resultType": "complete"})
        }
        method => {
            let error = json!({"code": -32_601, "message": format!("Method not found: {method}")});
            return Some(Answer::Body(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()));
        }
    };
    Some(Answer::Body(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()))
}

fn tool(name: &str) -> Value {
    let text = json!({"type": "string", "description": "The text of the note."});
    let schema = json!({"type": "object", "properties": {"text": text}, "required": ["text"]});
    json!({"name": name, "description": "Stores a note and answers with its number.", "inputSchema": schema})
}

/// The answer to a call, with its members in the order in which the gateway writes them.
pub(crate) fn call_answer(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{TEXT}"}}],"resultType":"complete"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, params: &Value) -> Option<Answer> {
        answer(format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{params}}}"#).as_bytes())
    }

    #[test]
    fn calls_lists_and_other_requests_have_answers() {
        let call = asked("tools/call", &json!({"name": TOOL}));
        assert_eq!(call, Some(Answer::Body(call_answer("\"a\""))));
        assert!(serde_json::from_str::<Value>(&call_answer("1")).is_ok());
        assert_eq!(asked("tools/call", &json!({"name": HANGING_TOOL})), Some(Answer::Never));
        let Some(Answer::Body(list)) = asked("tools/list", &json!({})) else { panic!() };
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), TOOLS);
        assert!(
            matches!(asked("initialize", &json!({})), Some(Answer::Body(text)) if text.contains("-32601"))
        );
    }

    #[test]
    fn notifications_are_accepted_and_other_bodies_are_not_of_the_protocol() {
        let notification = br#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
        assert_eq!(answer(notification), Some(Answer::Accepted));
        assert_eq!(answer(br#"{"messages":[]}"#), None);
    }
}
