//! What the scripted MCP server says outside of calls, and its older transport.

use std::sync::{Arc, Mutex};

use http::{Method, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Body, Received, Script, State, answer, empty, stream};

/// The older transport: GET opens a connection, and answers to what is posted come with it.
pub(super) fn by_sse(state: &Arc<Mutex<State>>, script: &Script, received: &Received) -> Response<Body> {
    if received.method == Method::GET {
        let (sender, receiver) = mpsc::channel(16);
        let mut state = state.lock().unwrap();
        let path = format!("/messages?session={}", state.connections.len());
        sender.try_send(Value::String(path.clone())).unwrap();
        state.connections.insert(path, sender);
        return stream(receiver);
    }
    let Some(connection) = state.lock().unwrap().connections.get(&received.path).cloned() else {
        return empty(404);
    };
    let mut body = answer(state, script, received).into_body();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
            if let Ok(message) = serde_json::from_str(data) {
                let _ = connection.send(message).await;
            }
        }
    });
    empty(202)
}

/// A stream for what the server says outside of calls.
pub(super) fn open_stream(state: &Arc<Mutex<State>>, first: Option<Value>) -> Response<Body> {
    let (sender, receiver) = mpsc::channel(16);
    if let Some(first) = first {
        sender.try_send(first).unwrap();
    }
    state.lock().unwrap().streams.push(sender);
    stream(receiver)
}
