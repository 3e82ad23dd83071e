//! Tests of the cache without the proxy, with callers on several threads.

mod bounds;
mod semantic;
mod singleflight;
mod two_nodes;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use uuid::Uuid;

use super::*;

const TTL: Duration = Duration::from_secs(60);
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

fn org(number: u128) -> OrgId {
    OrgId(Uuid::from_u128(number))
}

fn key(number: u64) -> CacheKey {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    CacheKey(bytes)
}

fn cache() -> Arc<Cache> {
    Arc::new(Cache::new(64 << 20, Clock::default(), None))
}

fn request(org_number: u128, key_number: u64) -> CacheRequest<'static> {
    CacheRequest {
        org: org(org_number),
        namespace: "",
        key: key(key_number),
        mode: CacheMode::Exact,
        ttl: TTL,
        wait_timeout: WAIT_TIMEOUT,
    }
}

fn response(text: &str) -> CacheableResponse {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    CacheableResponse {
        status: StatusCode::OK,
        headers,
        body: Bytes::copy_from_slice(text.as_bytes()),
        provider: "sandbox".into(),
        model: Some("m".into()),
        usage: None,
    }
}

impl Lookup {
    fn hit(self) -> CacheHit {
        match self {
            Self::Hit(hit) => hit,
            Self::Miss(_) => panic!("a miss where a hit was expected"),
        }
    }

    fn miss(self) -> CacheFill {
        match self {
            Self::Miss(fill) => fill,
            Self::Hit(hit) => panic!("a hit where a miss was expected: {hit:?}"),
        }
    }
}

impl CacheHit {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.entry.body).unwrap()
    }
}

async fn store(cache: &Arc<Cache>, request: CacheRequest<'_>, text: &str) {
    cache.lookup(request).await.miss().complete(response(text), None);
}
