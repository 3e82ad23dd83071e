//! The cache on its own, with callers on several threads as the workers are.

mod bounds;
mod flights;
mod semantic;
mod two_nodes;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use uuid::Uuid;

use super::*;

const TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(10);

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

fn ask(number: u128, of: u64) -> Ask<'static> {
    Ask { org: org(number), namespace: "", key: key(of), mode: Mode::Exact, ttl: TTL, patience: PATIENCE }
}

fn answer(text: &str) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    Answer {
        status: StatusCode::OK,
        headers,
        body: Bytes::copy_from_slice(text.as_bytes()),
        provider: "sandbox".into(),
        model: Some("m".into()),
        usage: None,
    }
}

impl Lookup {
    fn hit(self) -> Hit {
        match self {
            Self::Hit(hit) => hit,
            Self::Lead(_) => panic!("a miss where a hit was due"),
        }
    }

    fn led(self) -> Lead {
        match self {
            Self::Lead(lead) => lead,
            Self::Hit(hit) => panic!("a hit where a miss was due: {hit:?}"),
        }
    }
}

impl Hit {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.entry.body).unwrap()
    }
}

async fn store(cache: &Arc<Cache>, ask: Ask<'_>, text: &str) {
    cache.look(ask).await.led().complete(answer(text), None);
}
