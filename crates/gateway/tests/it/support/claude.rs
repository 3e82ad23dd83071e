//! A provider with a prompt cache that works like Anthropic's: a prefix is read from the cache if it was written before,
//! and written up to the last mark of the request.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How many blocks before a mark are searched for an entry.
const LOOKBACK: usize = 20;

/// Closes its listener when dropped.
pub struct Claude {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Claude {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let entries = Arc::new(Mutex::new(HashSet::new()));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&entries)));
            }
        });
        Self { address, accepting }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Claude {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The prefixes that were written.
type Entries = Arc<Mutex<HashSet<u64>>>;

async fn serve(stream: TcpStream, entries: Entries) {
    let respond = service_fn(move |request: Request<Incoming>| {
        let entries = Arc::clone(&entries);
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            let usage = usage(&mut entries.lock().unwrap(), &body);
            let body = json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
                "stop_reason": "end_turn", "content": [{"type": "text", "text": "ok"}], "usage": usage,
            });
            let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
            response.headers_mut().insert("content-type", "application/json".parse().unwrap());
            Ok::<_, hyper::Error>(response)
        }
    });
    // An error means that the client has closed the connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), respond).await;
}

/// The usage of a request. Four bytes are a token; the output is free.
fn usage(entries: &mut HashSet<u64>, body: &[u8]) -> Value {
    let blocks = blocks(&serde_json::from_slice(body).unwrap());
    let (mut hasher, mut length) = (DefaultHasher::new(), 0);
    let mut prefixes = vec![(0, 0)];
    for (text, _) in &blocks {
        hasher.write(text.as_bytes());
        length += text.len();
        prefixes.push((hasher.finish(), length / 4));
    }
    let marks: Vec<usize> = (1..=blocks.len()).filter(|end| blocks[end - 1].1).collect();
    assert!(marks.len() <= 4, "more than four marks");
    let searched = marks.iter().flat_map(|end| end.saturating_sub(LOOKBACK)..=*end);
    let read = searched.filter(|end| entries.contains(&prefixes[*end].0)).max().unwrap_or(0);
    let written = marks.last().copied().unwrap_or(0).max(read);
    entries.extend(marks.iter().map(|end| prefixes[*end].0));
    let tokens = |end: usize| prefixes[end].1;
    json!({
        "input_tokens": tokens(blocks.len()) - tokens(written), "output_tokens": 0,
        "cache_read_input_tokens": tokens(read), "cache_creation_input_tokens": tokens(written) - tokens(read),
    })
}

/// The blocks of a request in the order in which the provider reads them, and whether they are marked.
fn blocks(body: &Value) -> Vec<(String, bool)> {
    let list = |value: &Value| match value {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(items) => items.clone(),
        _ => Vec::new(),
    };
    let messages = body["messages"].as_array().unwrap().iter();
    let contents = messages.flat_map(|message| list(&message["content"]));
    let all = list(&body["tools"]).into_iter().chain(list(&body["system"])).chain(contents);
    let block = |mut block: Value| {
        let mark = block.as_object_mut().unwrap().remove("cache_control");
        (block.to_string(), mark.is_some())
    };
    all.map(block).collect()
}
