//! Requests to addresses that tenants chose: bounded in time, redirects not followed, the answer kept in part. What is
//! delivered when is the business of `jobs`.

pub mod batch;

use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::signing;
use gateway_core::webhooks::{DELIVERY_TIMEOUT, retry_after};
use http::header::{RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::app::App;
use crate::proxy::exchange::{read_prefix, send_guarded};

/// Of a destination's answer, this much is read.
pub const ANSWER_BYTES: usize = 16 << 10;

/// What came of it.
pub struct Sent {
    /// None: no answer came.
    pub status: Option<u16>,
    pub latency_ms: i64,
    pub error: Option<String>,
    /// The beginning of the answer.
    pub body: Bytes,
    pub retry_after: Option<Duration>,
}

impl Sent {
    pub fn failed(why: impl Into<String>) -> Self {
        Self { status: None, latency_ms: 0, error: Some(why.into()), body: Bytes::new(), retry_after: None }
    }

    pub fn is_success(&self) -> bool {
        matches!(self.status, Some(200..=299))
    }

    /// A destination may repeat what it was sent. Whoever reads its answer is not to see what authenticates us there.
    pub fn hide(&mut self, secrets: &[String]) {
        for secret in secrets {
            if memchr::memmem::find(&self.body, secret.as_bytes()).is_some() {
                self.body = String::from_utf8_lossy(&self.body).replace(secret, "…").into();
            }
        }
    }
}

/// Posts a body. Of the answer, about `keep` bytes are read.
pub async fn post(app: &App, url: &str, mut headers: HeaderMap, body: Bytes, keep: usize) -> Sent {
    let parsed = url::Url::parse(url).ok().and_then(|url| url.as_str().parse::<Uri>().ok());
    let Some(uri) = parsed else { return Sent::failed("the address cannot be used") };
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("gateway/", env!("CARGO_PKG_VERSION"))));
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    let timeout = DELIVERY_TIMEOUT;
    let began = Instant::now();
    let answered = send_guarded(&app.services, &app.proxy.worker.clients, request, timeout).await;
    let mut sent = match answered {
        Err(failed) => Sent::failed(failed.message),
        Ok(response) => {
            let (head, mut body) = response.into_parts();
            let waits = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let left = timeout.saturating_sub(began.elapsed());
            // An answer whose end does not come is an answer all the same.
            let said = read_prefix(&mut body, keep, left).await;
            let status = head.status.as_u16();
            let error = match status {
                200..=299 => None,
                300..=399 => Some(format!("it answered {status}; redirects are not followed")),
                _ => Some(format!("it answered {status}")),
            };
            let retry_after = waits.and_then(|value| retry_after(value, app.services.clock.now()));
            Sent { status: Some(status), latency_ms: 0, error, body: said, retry_after }
        }
    };
    sent.latency_ms = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
    sent
}

/// The headers of a signed delivery. The time is that of the attempt, the id that of what is delivered.
pub fn signed_headers(app: &App, keys: &[Vec<u8>], id: &str, body: &[u8]) -> HeaderMap {
    let timestamp = app.services.clock.now().unix_seconds();
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("content-type", "application/json".into());
    set("webhook-id", id.into());
    set("webhook-timestamp", timestamp.to_string());
    if !keys.is_empty() {
        let keys = keys.iter().map(Vec::as_slice);
        set("webhook-signature", signing::sign_all(keys, id, timestamp, body));
    }
    headers
}

/// A few random bits, to spread what would otherwise happen at once.
pub fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without random numbers nothing is spread, which is no reason to stop.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
