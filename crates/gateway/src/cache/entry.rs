//! A cached response and its serialized form for the shared cache.

use std::time::Duration;

use bytes::Bytes;
use gateway_core::llm::usage::Usage;
use gateway_core::time::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

/// Memory for map, queue and allocations in addition to the counted bytes.
const ENTRY_OVERHEAD: usize = 512;

/// A complete, successful response with one body. Streams are aggregated first.
#[derive(Debug, Clone)]
pub struct CacheableResponse {
    pub status: StatusCode,
    /// The provider's headers. Only headers that describe the body are stored.
    pub headers: HeaderMap,
    pub body: Bytes,
    pub provider: String,
    pub model: Option<String>,
    pub usage: Option<Usage>,
}

/// A cached response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
    pub provider: String,
    pub model: Option<String>,
    /// The usage of the original call; a hit costs nothing.
    pub usage: Option<Usage>,
    pub stored_at: Timestamp,
    pub expires_at: Timestamp,
    /// The memory that the entry takes.
    pub bytes: usize,
}

impl CacheEntry {
    pub fn new(response: CacheableResponse, stored_at: Timestamp, expires_at: Timestamp) -> Self {
        let CacheableResponse { status, headers, body, provider, model, usage } = response;
        let headers = headers.into_iter().scan(None, |name, (next, value)| {
            // `HeaderMap` yields the name of a repeated header only once.
            *name = next.or(name.take());
            Some((name.clone(), value))
        });
        let headers = headers.filter_map(|(name, value)| Some((name?, value)));
        let headers = headers.filter(|(name, _)| describes_body(name)).collect();
        let mut entry =
            Self { status, headers, body, provider, model, usage, stored_at, expires_at, bytes: 0 };
        entry.bytes = entry.memory_bytes();
        entry
    }

    /// The value of the `Age` header.
    pub fn age_seconds(&self, now: Timestamp) -> u64 {
        u64::try_from((now.0 - self.stored_at.0) / 1_000).unwrap_or(0)
    }

    pub fn ttl(&self) -> Duration {
        let ttl = self.expires_at.0.saturating_sub(self.stored_at.0);
        Duration::from_millis(u64::try_from(ttl).unwrap_or(0))
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }

    /// Serializes the entry as one line of JSON followed by the body.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let head = EntryHead {
            status: self.status.as_u16(),
            headers: self
                .headers
                .iter()
                .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
                .collect(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            usage: self.usage.clone(),
            stored_at: self.stored_at.0,
            expires_at: self.expires_at.0,
        };
        let mut bytes = serde_json::to_vec(&head).ok()?;
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        Some(bytes)
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let end = memchr::memchr(b'\n', bytes)?;
        let head: EntryHead = serde_json::from_slice(&bytes[..end]).ok()?;
        let header = |(name, value): (String, String)| Some((name.parse().ok()?, value.parse().ok()?));
        let mut entry = Self {
            status: StatusCode::from_u16(head.status).ok()?,
            headers: head.headers.into_iter().map(header).collect::<Option<_>>()?,
            body: Bytes::copy_from_slice(&bytes[end + 1..]),
            provider: head.provider,
            model: head.model,
            usage: head.usage,
            stored_at: Timestamp(head.stored_at),
            expires_at: Timestamp(head.expires_at),
            bytes: 0,
        };
        entry.bytes = entry.memory_bytes();
        Some(entry)
    }

    fn memory_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        ENTRY_OVERHEAD
            + self.body.len()
            + headers
            + self.provider.len()
            + self.model.as_ref().map_or(0, String::len)
    }
}

/// True for headers that describe the body. All others belong to the original call.
fn describes_body(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "content-type" | "openai-model" | "openai-version" | "x-ms-deployment-name" | "x-model-id"
    )
}

#[derive(Serialize, Deserialize)]
struct EntryHead {
    status: u16,
    headers: Vec<(String, String)>,
    provider: String,
    model: Option<String>,
    usage: Option<Usage>,
    stored_at: i64,
    expires_at: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_decodes_to_itself_and_stores_only_headers_that_describe_the_body() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "application/json"),
            ("openai-version", "2020-10-01"),
            ("set-cookie", "a=b"),
            ("set-cookie", "c=d"),
            ("x-request-id", "req_1"),
            ("content-length", "5"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let response = CacheableResponse {
            status: StatusCode::OK,
            headers,
            body: Bytes::from_static(b"{\"a\":\n1}"),
            provider: "openai".into(),
            model: Some("gpt-4o".into()),
            usage: Some(Usage { input: 3, output: 4, raw: Some("{}".into()), ..Usage::default() }),
        };
        let entry = CacheEntry::new(response, Timestamp(1_000), Timestamp(61_000));
        let mut kept: Vec<_> = entry.headers.iter().map(|(name, _)| name.as_str()).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["content-type", "openai-version"]);
        assert_eq!(CacheEntry::decode(&entry.encode().unwrap()), Some(entry.clone()));
        assert_eq!((entry.age_seconds(Timestamp(3_999)), entry.age_seconds(Timestamp(0))), (2, 0));
        assert!(entry.is_expired(Timestamp(61_000)) && !entry.is_expired(Timestamp(60_999)));
        for damaged in [&b""[..], b"{}\n", b"no line", b"{\"status\":200}\n{}"] {
            assert_eq!(CacheEntry::decode(damaged), None);
        }
    }
}
