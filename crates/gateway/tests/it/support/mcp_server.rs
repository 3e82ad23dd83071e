//! A scripted MCP server on loopback: of either era, with or without sessions, slow, dead, or with changing tools.

mod calls;
mod streams;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use calls::call;
use streams::{by_sse, open_stream};

pub const MODERN: &str = "2026-07-28";

/// Which revisions the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Modern,
    Legacy,
    Both,
}

#[derive(Clone, Debug)]
pub struct Script {
    pub speaks: Speaks,
    /// Assigns sessions to clients of the older era, and knows no others.
    pub has_sessions: bool,
    pub tools: Vec<Value>,
    /// Answers nothing.
    pub hangs: bool,
    /// Answers everything with this status.
    pub fails_with: Option<u16>,
    /// The value that `Authorization` must have.
    pub wants: Option<String>,
    /// Has streams for what it says outside of calls: `subscriptions/listen`, and GET of the older era.
    pub has_streams: bool,
    /// Has the transport before Streamable HTTP.
    pub is_sse: bool,
}

/// What the server received.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

struct State {
    script: Script,
    received: Vec<Received>,
    sessions: Vec<String>,
    next_session: usize,
    /// Questions to clients that wait for an answer.
    questions: HashMap<String, oneshot::Sender<Value>>,
    /// Streams that clients have opened.
    streams: Vec<mpsc::Sender<Value>>,
    /// Connections of the older transport, by the path for their messages.
    connections: HashMap<String, mpsc::Sender<Value>>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub struct McpServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

pub fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

impl McpServer {
    pub async fn start(speaks: Speaks) -> Self {
        let tools = vec![tool("echo", "Repeats its arguments."), tool("fail", "Fails.")];
        Self::scripted(Script {
            speaks,
            has_sessions: false,
            tools,
            hangs: false,
            fails_with: None,
            wants: None,
            has_streams: false,
            is_sse: false,
        })
        .await
    }

    /// A server that says things outside of calls.
    pub async fn with_streams(speaks: Speaks) -> Self {
        let server = Self::start(speaks).await;
        server.change(|script| script.has_streams = true);
        server
    }

    pub async fn with_sessions(speaks: Speaks) -> Self {
        let server = Self::start(speaks).await;
        server.change(|script| script.has_sessions = true);
        server
    }

    pub async fn scripted(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            script,
            received: Vec::new(),
            sessions: Vec::new(),
            next_session: 1,
            questions: HashMap::new(),
            streams: Vec::new(),
            connections: HashMap::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| serve(Arc::clone(&state), request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, state, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.state.lock().unwrap().script);
    }

    /// Forgets all sessions, as after a restart.
    pub fn forget_sessions(&self) {
        self.state.lock().unwrap().sessions.clear();
    }

    /// How many clients read its streams.
    pub fn streams(&self) -> usize {
        let mut state = self.state.lock().unwrap();
        state.streams.retain(|stream| !stream.is_closed());
        state.streams.len()
    }

    /// Waits until so many clients read its streams.
    pub async fn wait_for_streams(&self, count: usize) {
        for _ in 0..400 {
            if self.streams() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{} streams are open, not {count}: {:?}", self.streams(), self.all_received());
    }

    /// Says something on all streams.
    pub fn say(&self, message: &Value) {
        for stream in &self.state.lock().unwrap().streams {
            let _ = stream.try_send(message.clone());
        }
    }

    /// Closes all streams.
    pub fn close_streams(&self) {
        self.state.lock().unwrap().streams.clear();
    }

    /// What it received of a method of the protocol.
    pub fn received(&self, method: &str) -> Vec<Received> {
        let state = self.state.lock().unwrap();
        state.received.iter().filter(|received| received.body["method"] == method).cloned().collect()
    }

    pub fn all_received(&self) -> Vec<Received> {
        self.state.lock().unwrap().received.clone()
    }

    /// Waits until it has received a message of the method.
    pub async fn wait_for(&self, method: &str) -> Received {
        for _ in 0..400 {
            if let Some(received) = self.received(method).first() {
                return received.clone();
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("no {method} arrived: {:?}", self.all_received());
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn whole(status: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn empty(status: u16) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn stream(receiver: mpsc::Receiver<Value>) -> Response<Body> {
    let events = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let event = match receiver.recv().await? {
            Value::String(endpoint) => format!("event: endpoint\ndata: {endpoint}\n\n"),
            message => format!("event: message\ndata: {message}\n\n"),
        };
        Some((Bytes::from(event), receiver))
    });
    let body = StreamBody::new(events.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes))));
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}

async fn serve(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let path = head.uri.to_string();
    let received = Received { method: head.method, path, headers: head.headers, body };
    let script = {
        let mut state = state.lock().unwrap();
        state.received.push(received.clone());
        state.script.clone()
    };
    if script.hangs {
        std::future::pending::<()>().await;
    }
    if let Some(status) = script.fails_with {
        return Ok(empty(status));
    }
    if script.wants.is_some() && received.header("authorization") != script.wants.as_deref() {
        return Ok(empty(401));
    }
    if script.is_sse {
        return Ok(by_sse(&state, &script, &received));
    }
    Ok(answer(&state, &script, &received))
}

fn answer(state: &Arc<Mutex<State>>, script: &Script, received: &Received) -> Response<Body> {
    let body = &received.body;
    if received.method == Method::DELETE {
        let session = received.header("mcp-session-id").unwrap_or_default();
        state.lock().unwrap().sessions.retain(|known| known != session);
        return empty(204);
    }
    if received.method == Method::GET {
        return if script.has_streams { open_stream(state, None) } else { empty(405) };
    }
    let method = body["method"].as_str().unwrap_or_default();
    let is_modern = body
        .pointer("/params/_meta")
        .is_some_and(|meta| meta.get("io.modelcontextprotocol/protocolVersion").is_some());
    let refused = |code: i64, message: &str| json!({"jsonrpc": "2.0", "id": body["id"], "error": {"code": code, "message": message}});
    if is_modern && script.speaks == Speaks::Legacy {
        return whole(400, &refused(-32_601, "Method not found"));
    }
    if !is_modern && script.speaks == Speaks::Modern {
        return whole(400, &refused(-32_022, "Unsupported protocol version"));
    }
    if is_modern && received.header("mcp-method") != Some(method) {
        return whole(400, &refused(-32_020, "Header mismatch"));
    }
    let is_first = method == "initialize";
    if script.has_sessions && !is_modern && !is_first {
        let session = received.header("mcp-session-id").unwrap_or_default();
        if !state.lock().unwrap().sessions.iter().any(|known| known == session) {
            return whole(404, &json!({"error": "no such session"}));
        }
    }
    if body.get("method").is_none() {
        let waiting = state.lock().unwrap().questions.remove(&body["id"].to_string());
        if let Some(waiting) = waiting {
            let _ = waiting.send(body.clone());
        }
        return empty(202);
    }
    if body.get("id").is_none() {
        return empty(202);
    }
    let result = |result: Value| whole(200, &json!({"jsonrpc": "2.0", "id": body["id"], "result": result}));
    let about = json!({"serverInfo": {"name": "mock", "version": "1"}, "instructions": "Be kind.",
        "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "resources": {"subscribe": true}, "completions": {}, "logging": {}}});
    match method {
        "server/discover" => {
            let mut about = about;
            let versions: &[&str] =
                if script.speaks == Speaks::Both { &[MODERN, "2025-11-25"] } else { &[MODERN] };
            about["supportedVersions"] = json!(versions);
            result(about)
        }
        "initialize" => {
            let mut about = about;
            about["protocolVersion"] = body["params"]["protocolVersion"].clone();
            let mut response = result(about);
            if script.has_sessions {
                let mut state = state.lock().unwrap();
                let session = format!("session-{}", state.next_session);
                state.next_session += 1;
                response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
                state.sessions.push(session);
            }
            response
        }
        "tools/list" => result(json!({"tools": script.tools, "resultType": "complete", "ttlMs": 300_000})),
        "prompts/list" => {
            result(json!({"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": true}]}]}))
        }
        "resources/list" => result(json!({"resources": [{"uri": "file:///notes.txt", "name": "notes"}]})),
        "resources/templates/list" => {
            result(json!({"resourceTemplates": [{"uriTemplate": "file:///{name}", "name": "files"}]}))
        }
        "prompts/get" => {
            let text = format!("Hello {}", body["params"]["arguments"]["who"].as_str().unwrap_or("nobody"));
            result(json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}))
        }
        "resources/read" => {
            result(json!({"contents": [{"uri": body["params"]["uri"], "text": "the notes"}]}))
        }
        "completion/complete" => result(json!({"completion": {"values": ["a"]}})),
        "logging/setLevel" => result(json!({})),
        "resources/subscribe" | "resources/unsubscribe" if !is_modern => result(json!({})),
        "subscriptions/listen" if is_modern && script.has_streams => {
            let params = json!({
                "notifications": body["params"]["notifications"],
                "_meta": {"io.modelcontextprotocol/subscriptionId": body["id"]},
            });
            let method = "notifications/subscriptions/acknowledged";
            open_stream(state, Some(json!({"jsonrpc": "2.0", "method": method, "params": params})))
        }
        "tools/call" => call(state, body, is_modern),
        _ => whole(if is_modern { 404 } else { 200 }, &refused(-32_601, "Method not found")),
    }
}
