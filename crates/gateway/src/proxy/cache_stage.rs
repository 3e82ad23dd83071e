//! The cache as a stage of the proxy: what a request asks of it, the answer that is given from it, and the copy that is
//! kept of one that passes. Entries are whole bodies in the caller's format; streams are folded on the way in and
//! replayed on the way out.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use gateway_core::cache::{
    CacheKey, CacheTarget, KeyParts, affects_response, is_cacheable, is_storable, key, semantic_key, split,
};
use gateway_core::embed;
use gateway_core::llm::BodyFraming;
use gateway_core::llm::aggregate::{self, StreamAggregator};
use gateway_core::llm::paths::Operation;
use gateway_core::llm::usage::Usage;
use http::header::{AGE, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::ask::{self, About, Question};
use super::call::Call;
use super::headers;
use super::record::Record;
use super::response_body::{MeteredBody, Source};
use super::response_format::Collected;
use super::upstream::UpstreamResponse;
use crate::app::App;
use crate::auth::Identity;
use crate::cache::{
    CacheEntry, CacheFill, CacheHit, CacheMode, CacheRequest, CacheableResponse, Lookup, SemanticQuery,
};
use crate::problem::ApiResult;

pub const CACHE: HeaderName = HeaderName::from_static("x-gateway-cache");
/// An answer larger than this is not kept.
const LARGEST: usize = 4 << 20;
/// For the vector of a question, when a provider makes it.
const EMBED_TIME: Duration = Duration::from_secs(5);
const BUILTIN: &str = "builtin";

/// What the caller asks of the cache.
pub struct Caching {
    pub mode: CacheMode,
    pub ttl: Duration,
    pub namespace: String,
    pub threshold: f32,
}

/// What the cache had.
pub enum Found {
    Hit(CacheHit),
    /// The answer is to be kept, and perhaps others wait for it.
    Lead(Box<FillGuard>),
    /// Such a request is answered by the provider each time.
    Nothing,
}

/// The right to fill an entry.
pub struct FillGuard {
    lead: CacheFill,
    probe: Option<SemanticQuery>,
}

impl FillGuard {
    /// The name of the entry.
    pub fn key(&self) -> CacheKey {
        self.lead.key()
    }
}

/// Looks the request up. Waits for the same request of somebody else, if there is one under way.
pub async fn lookup(
    app: &Arc<App>,
    identity: &Identity,
    call: &Call,
    head: &Parts,
    body: &[u8],
    ends_at: Instant,
) -> Found {
    let Some(caching) = &call.caching else { return Found::Nothing };
    if !is_cacheable(head.method.as_str(), call.operation) {
        return Found::Nothing;
    }
    let bases: Vec<Option<String>> =
        call.targets.iter().map(|hop| hop.target.base.as_ref().map(ToString::to_string)).collect();
    let targets: Vec<CacheTarget<'_>> = call
        .targets
        .iter()
        .zip(&bases)
        .map(|(hop, base)| CacheTarget {
            provider: &hop.target.name,
            base: base.as_deref().filter(|_| hop.target.guarded),
            model: hop.model.as_deref(),
        })
        .collect();
    let named = head.headers.iter().filter(|(name, _)| affects_response(name.as_str()));
    let named: Vec<(&str, &[u8])> = named.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let parts = KeyParts {
        org: identity.org.id,
        namespace: &caching.namespace,
        targets: &targets,
        format: call.format_is_set.then(|| call.caller.as_str()),
        path: head.uri.path(),
        query: head.uri.query(),
        content_type: head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()),
        headers: &named,
    };
    let Ok(key) = key(&parts, body) else { return Found::Nothing };
    let request = CacheRequest {
        org: identity.org.id,
        namespace: &caching.namespace,
        key,
        mode: caching.mode,
        ttl: caching.ttl,
        wait_timeout: ends_at.saturating_duration_since(Instant::now()),
    };
    let lead = match app.proxy.cache.lookup(request).await {
        Lookup::Hit(hit) => return Found::Hit(hit),
        Lookup::Miss(lead) => lead,
    };
    if caching.mode != CacheMode::Semantic {
        return Found::Lead(Box::new(FillGuard { lead, probe: None }));
    }
    let Some(split) = split(call.operation, body) else {
        return Found::Lead(Box::new(FillGuard { lead, probe: None }));
    };
    let Some((model, vector)) = embedding(app, identity, &split.text).await else {
        return Found::Lead(Box::new(FillGuard { lead, probe: None }));
    };
    let probe = SemanticQuery { rest: semantic_key(&parts, &split), model, vector, text: split.text };
    match lead.find_similar(&probe, caching.threshold) {
        Lookup::Hit(hit) => Found::Hit(hit),
        Lookup::Miss(lead) => Found::Lead(Box::new(FillGuard { lead, probe: Some(probe) })),
    }
}

/// The vector of a text, by the configured model. None when its provider cannot be had: then only equal requests hit.
async fn embedding(app: &Arc<App>, identity: &Identity, text: &str) -> Option<(String, Vec<f32>)> {
    let config = &app.services.config.judge;
    let (provider, model) = (&config.embed_provider, &config.embed_model);
    if provider == BUILTIN {
        let dims = usize::try_from(config.embed_dims).unwrap_or(256);
        return Some((model.clone(), embed::hash_v1(text, dims)));
    }
    let body = json!({"model": model, "input": text});
    let question = Question {
        provider: provider.clone(),
        about: About::Embeddings,
        body: body.as_object().cloned().unwrap_or_default(),
        metadata: serde_json::Map::new(),
        timeout: Some(EMBED_TIME),
        is_counted: true,
    };
    // Calls of the gateway's own are made by the main runtime.
    let answer = app
        .services
        .tasks
        .runtime
        .spawn(asked(Arc::clone(app), identity.clone(), question))
        .await
        .ok()?
        .ok()?;
    let answer: Value = serde_json::from_slice(answer.status.is_success().then_some(&answer.body)?).ok()?;
    let vector: Vec<f32> = serde_json::from_value(answer["data"][0]["embedding"].clone()).ok()?;
    (!vector.is_empty()).then(|| (format!("{provider}/{model}"), vector))
}

/// The question goes the way that this request is on itself, so its future must have a type of its own.
fn asked(
    app: Arc<App>,
    identity: Identity,
    question: Question,
) -> Pin<Box<dyn Future<Output = ApiResult<ask::Answer>> + Send>> {
    Box::pin(async move { ask::ask(&app, &identity, question).await })
}

/// The entry in the form that the caller wants. None for a body that cannot be made into a stream: then it is the
/// provider's turn.
pub fn pieces(call: &Call, entry: &CacheEntry) -> Option<VecDeque<Bytes>> {
    let Some(format) = call.caller_format().filter(|_| call.wants_stream) else {
        return Some(VecDeque::from([entry.body.clone()]));
    };
    let events = aggregate::synthesize_stream(format, &entry.body, call.wants_usage).ok()?;
    Some(events.into_iter().map(Bytes::from).collect())
}

/// Answers from the cache.
pub fn respond_from_cache(
    app: &App,
    call: &Call,
    identity: &Identity,
    mut record: Record,
    hit: &CacheHit,
    pieces: VecDeque<Bytes>,
) -> Response {
    let entry = &hit.entry;
    let mut headers: HeaderMap = entry.headers.iter().cloned().collect();
    if call.wants_stream && call.caller_format().is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    }
    headers.remove(CONTENT_LENGTH);
    record.named_entry(hit.key);
    headers.insert(AGE, entry.age_seconds(app.services.clock.now()).into());
    record.found(entry.status, &entry.provider, entry.model.as_deref(), entry.usage.as_ref());
    headers::complete_found(&mut headers, identity, &record);
    let answered = UpstreamResponse {
        framing: BodyFraming::Opaque,
        collected: Some(Collected { raw: entry.body.clone(), body: entry.body.clone() }),
        ..UpstreamResponse::new(http::Response::new(()).into_parts().0, Source::Pieces(pieces))
    };
    let mut response = Response::new(Body::new(MeteredBody::new(answered, &headers, record, call, None)));
    *response.status_mut() = entry.status;
    *response.headers_mut() = headers;
    response
}

/// What is kept of an answer while it passes.
pub struct CacheRecorder {
    keeping: Box<FillGuard>,
    status: StatusCode,
    headers: HeaderMap,
    operation: Operation,
    provider: String,
    model: Option<String>,
    copy: Copy,
}

enum Copy {
    Ready(Bytes),
    Plain(Vec<u8>),
    Stream(Box<StreamAggregator>),
    /// Too large, or not understood.
    Lost,
}

impl CacheRecorder {
    /// None, with all who wait let go, when the answer is none to be kept.
    pub fn new(keeping: Box<FillGuard>, call: &Call, answered: &UpstreamResponse) -> Option<Self> {
        let status = answered.head.status;
        let copy = match (&answered.collected, answered.framing) {
            _ if status != StatusCode::OK => None,
            (Some(collected), _) => Some(Copy::Ready(collected.body.clone())),
            (None, BodyFraming::Json) => Some(Copy::Plain(Vec::new())),
            (None, BodyFraming::Sse | BodyFraming::EventStream) => call.format().map(|format| {
                let framing = if answered.translator.is_some() { BodyFraming::Sse } else { answered.framing };
                Copy::Stream(Box::new(StreamAggregator::new(format, framing, LARGEST)))
            }),
            (None, BodyFraming::Opaque) => None,
        };
        let Some(copy) = copy else {
            keeping.lead.fail();
            return None;
        };
        let mut headers = answered.head.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Some(Self {
            keeping,
            status,
            headers,
            operation: call.operation,
            provider: call.target().name.clone(),
            model: call.model().map(ToOwned::to_owned),
            copy,
        })
    }

    /// A piece in the caller's format passes.
    pub fn saw(&mut self, data: &[u8]) {
        let fits = match &mut self.copy {
            Copy::Plain(body) => {
                body.extend_from_slice(data);
                body.len() <= LARGEST
            }
            Copy::Stream(folder) => folder.feed(data).is_ok(),
            Copy::Ready(_) | Copy::Lost => true,
        };
        if !fits {
            self.copy = Copy::Lost;
        }
    }

    /// The answer is complete.
    pub fn complete(self, usage: Option<Usage>) {
        let body = match self.copy {
            Copy::Ready(body) => Some(body),
            Copy::Plain(body) => Some(body.into()),
            Copy::Stream(folder) => folder.finish().ok().map(Bytes::from),
            Copy::Lost => None,
        };
        let FillGuard { lead, probe } = *self.keeping;
        match body.filter(|body| is_storable(self.operation, self.status.as_u16(), body)) {
            None => lead.fail(),
            Some(body) => {
                let answer = CacheableResponse {
                    status: self.status,
                    headers: self.headers,
                    body,
                    provider: self.provider,
                    model: self.model,
                    usage,
                };
                lead.complete(answer, probe.as_ref());
            }
        }
    }

    /// The answer broke off.
    pub fn broke(self) {
        self.keeping.lead.fail();
    }
}

/// The call came to nothing: nobody waits for it any longer.
pub fn failed(keeping: Option<Box<FillGuard>>) {
    if let Some(keeping) = keeping {
        keeping.lead.fail();
    }
}
