//! Requests to URLs that tenants chose: guarded, with a timeout, without redirects, and with a bounded response. The
//! delivery jobs decide which requests are sent, and when.

pub mod batch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::signing;
use gateway_core::webhooks::{DELIVERY_TIMEOUT, retry_after};
use http::header::{RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::outbound::clients::Clients;
use crate::outbound::exchange::{read_prefix, send_guarded};
use crate::services::Services;

/// Responses are read up to this size.
pub const MAX_RESPONSE_BYTES: usize = 16 << 10;

/// What a delivery uses. Each runtime that delivers has a client of its own, because a connection belongs to the runtime
/// that opened it.
#[derive(Clone)]
pub struct DeliveryClient {
    pub services: Arc<Services>,
    pub clients: Arc<Clients>,
}

impl DeliveryClient {
    pub fn new(services: Arc<Services>) -> Self {
        Self { services, clients: Arc::default() }
    }
}

pub struct DeliveryResult {
    /// `None` if there was no response.
    pub status: Option<u16>,
    pub latency_ms: i64,
    pub error: Option<String>,
    /// The start of the response body.
    pub body: Bytes,
    pub retry_after: Option<Duration>,
}

impl DeliveryResult {
    pub fn failed(why: impl Into<String>) -> Self {
        Self { status: None, latency_ms: 0, error: Some(why.into()), body: Bytes::new(), retry_after: None }
    }

    pub fn is_success(&self) -> bool {
        matches!(self.status, Some(200..=299))
    }

    /// Removes the secrets of the request from the response, because a destination may echo what it was sent.
    pub fn redact(&mut self, secrets: &[String]) {
        for secret in secrets {
            if memchr::memmem::find(&self.body, secret.as_bytes()).is_some() {
                self.body = String::from_utf8_lossy(&self.body).replace(secret, "…").into();
            }
        }
    }
}

/// Posts a body and reads about `max_response` bytes of the response.
pub async fn post(
    client: &DeliveryClient,
    url: &str,
    mut headers: HeaderMap,
    body: Bytes,
    max_response: usize,
) -> DeliveryResult {
    let parsed = url::Url::parse(url).ok().and_then(|url| url.as_str().parse::<Uri>().ok());
    let Some(uri) = parsed else { return DeliveryResult::failed("the URL is invalid") };
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("gateway/", env!("CARGO_PKG_VERSION"))));
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    let timeout = DELIVERY_TIMEOUT;
    let started = Instant::now();
    let response = send_guarded(&client.services, &client.clients, request, timeout).await;
    let mut result = match response {
        Err(failed) => DeliveryResult::failed(failed.message),
        Ok(response) => {
            let (head, mut body) = response.into_parts();
            let retry_header = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let remaining = timeout.saturating_sub(started.elapsed());
            // A response counts even if its body never ends.
            let prefix = read_prefix(&mut body, max_response, remaining).await;
            let status = head.status.as_u16();
            let error = match status {
                200..=299 => None,
                300..=399 => Some(format!("status {status}; redirects are not followed")),
                _ => Some(format!("status {status}")),
            };
            let retry_after = retry_header.and_then(|value| retry_after(value, client.services.clock.now()));
            DeliveryResult { status: Some(status), latency_ms: 0, error, body: prefix, retry_after }
        }
    };
    result.latency_ms = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
    result
}

/// The headers of a signed delivery. The timestamp is that of the attempt, the id that of the delivered item.
pub fn signed_headers(client: &DeliveryClient, keys: &[Vec<u8>], id: &str, body: &[u8]) -> HeaderMap {
    let timestamp = client.services.clock.now().unix_seconds();
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

/// Random bits for jitter.
pub fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without a random source there is no jitter, which is harmless.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
