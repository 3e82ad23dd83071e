//! A small HTTP client with assertions on its responses.

use std::error::Error;
use std::net::SocketAddr;
use std::ops::Index;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A request builder.
pub struct TestRequest {
    address: SocketAddr,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl TestRequest {
    pub fn new(address: SocketAddr, method: Method, path: &str) -> Self {
        Self { address, method, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub fn key(self, key: &str) -> Self {
        self.header("x-gateway-key", key)
    }

    #[expect(clippy::needless_pass_by_value, reason = "bodies are written in place, as json!({…})")]
    pub fn json(self, body: Value) -> Self {
        self.header("content-type", "application/json").raw(body.to_string())
    }

    pub fn raw(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub async fn send(self) -> TestResponse {
        // The live log stream never ends, so its first frame is the body.
        let endless = self.path.contains("/logs/stream");
        let (head, mut body) = self.start().await.unwrap().into_parts();
        let body = if endless && head.status.is_success() {
            body.frame().await.unwrap().unwrap().into_data().unwrap()
        } else {
            body.collect().await.unwrap().to_bytes()
        };
        TestResponse { status: head.status, headers: head.headers, body }
    }

    /// Sends the request to a gateway that may die. Returns nothing unless the response is complete.
    pub async fn try_send(self) -> Option<TestResponse> {
        let (head, body) = self.start().await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(TestResponse { status: head.status, headers: head.headers, body })
    }

    /// Sends the request and returns the open event stream.
    pub async fn open(self) -> Events {
        let response = self.start().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events { body: response.into_body(), text: String::new() }
    }

    async fn start(self) -> Result<http::Response<Incoming>, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request =
            Request::builder().method(self.method).uri(&self.path).header("host", "gateway.test");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        Ok(sender.send_request(request.body(Full::new(self.body))?).await?)
    }
}

/// A stream of server-sent events. Comments are skipped.
pub struct Events {
    body: Incoming,
    text: String,
}

#[derive(Debug, Default)]
pub struct Event {
    pub name: String,
    pub id: String,
    pub data: String,
}

impl Events {
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = event(block);
                self.text = String::from(rest);
                if event.is_some() {
                    return event;
                }
                continue;
            }
            let frame = self.body.frame().await?.ok()?;
            self.text.push_str(std::str::from_utf8(frame.data_ref()?).unwrap());
        }
    }
}

fn event(block: &str) -> Option<Event> {
    let mut event = Event::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("event", name)) => event.name = name.into(),
            Some(("id", id)) => event.id = id.into(),
            Some(("data", data)) => event.data = data.into(),
            _ => {}
        }
    }
    (!event.data.is_empty()).then_some(event)
}

#[derive(Debug)]
pub struct TestResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl TestResponse {
    /// Asserts the status and returns the JSON body.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self.json()
    }

    /// Asserts status and error code, for both formats of error bodies.
    #[track_caller]
    pub fn expect_error(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        let found = body.get("code").or_else(|| body.get("error_code"));
        assert_eq!(found.and_then(Value::as_str), Some(code), "{body}");
        let message = body.get("message").or_else(|| body.get("error"));
        assert!(message.is_some_and(Value::is_string), "an error carries a message: {body}");
        body
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Index<&str> for TestResponse {
    type Output = http::HeaderValue;

    fn index(&self, name: &str) -> &Self::Output {
        &self.headers[name]
    }
}
