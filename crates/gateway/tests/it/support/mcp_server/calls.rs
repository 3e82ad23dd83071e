//! The tools of the scripted MCP server.

use std::sync::{Arc, Mutex};

use http::Response;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{Body, State, stream, whole};

pub(super) fn call(state: &Arc<Mutex<State>>, body: &Value, is_modern: bool) -> Response<Body> {
    let (id, params) = (body["id"].clone(), body["params"].clone());
    let reply = move |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
    match params["name"].as_str().unwrap_or_default() {
        "fail" => {
            whole(200, &reply(json!({"content": [{"type": "text", "text": "it failed"}], "isError": true})))
        }
        "numbers" => {
            let values = vec![1; 2 << 20];
            whole(200, &reply(json!({"content": [], "structuredContent": {"values": values}})))
        }
        "big" => whole(200, &reply(text("x".repeat(9 << 20)))),
        "image" => {
            let content = json!([{"type": "image", "mimeType": "image/png", "data": "QUJD".repeat(100)}]);
            whole(200, &reply(json!({"content": content})))
        }
        "hang" => {
            let (sender, receiver) = mpsc::channel(1);
            // The answer never ends as long as somebody reads it.
            tokio::spawn(async move { sender.closed().await });
            stream(receiver)
        }
        "steps" => {
            let (sender, receiver) = mpsc::channel(4);
            let token = params["_meta"]["progressToken"].clone();
            tokio::spawn(async move {
                for step in 1..=2 {
                    let progress = json!({"progressToken": token, "progress": step, "total": 2});
                    let message =
                        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress});
                    let _ = sender.send(message).await;
                }
                let _ = sender.send(reply(text("two steps".into()))).await;
            });
            stream(receiver)
        }
        "ask" => {
            let (sender, receiver) = mpsc::channel(4);
            let (answered, answer) = oneshot::channel();
            state.lock().unwrap().questions.insert("77".into(), answered);
            tokio::spawn(async move {
                let question = json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create",
                    "params": {"message": "Your name?", "requestedSchema": {"type": "object"}}});
                let _ = sender.send(question).await;
                let answer = answer.await.unwrap_or_default();
                let said = answer.pointer("/result/content/name").or_else(|| answer.pointer("/error/code"));
                let _ =
                    sender.send(reply(text(format!("answer: {}", said.cloned().unwrap_or_default())))).await;
            });
            stream(receiver)
        }
        "input" if is_modern => match params["requestState"].as_str() {
            None => {
                let asked = json!({"resultType": "input_required", "requestState": "secret-state", "inputRequests": {}});
                whole(200, &reply(asked))
            }
            Some(given) => whole(200, &reply(text(format!("state: {given}")))),
        },
        _ => whole(200, &reply(text(params["arguments"].to_string()))),
    }
}
