//! The cache stage: looks up a request, responds from the cache, and records a response for it. An entry is one whole
//! body in the caller's format; streams are aggregated when they are stored and synthesized when they are served.

mod recorder;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use gateway_core::cache::{
    CacheKey, CacheTarget, CanonicalBody, KeyParts, affects_response, is_cacheable, key, semantic_key, split,
};
use gateway_core::embed;
use gateway_core::llm::aggregate;
use gateway_core::logs::LogSource;
use gateway_core::memory::tree_bytes;
use gateway_core::models::BodyEdits;
use http::HeaderMap;
use http::header::{AGE, CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::{Value, json};

use super::Proxy;
use super::attempt::Attempt;
use super::context::RequestContext;
use super::internal_request::{Endpoint, InternalRequest, ModelResponse};
use super::plan::{Adaptation, Plan, RouteTarget};
use super::record::Record;
use super::response_body::MeteredBody;
use super::response_format::{BufferedContent, EVENT_STREAM, ResponseContent};
use super::state::ProxyState;
use super::{cost, headers, limit_headers};
use crate::auth::Identity;
use crate::cache::{CacheEntry, CacheFill, CacheHit, CacheMode, CacheRequest, Lookup, SemanticQuery};
use crate::memory::{MemoryExhausted, hold};
use crate::problem::ApiResult;
use crate::services::Services;
pub use recorder::CacheRecorder;

/// Timeout of the embeddings call of a semantic lookup.
const EMBED_TIMEOUT: Duration = Duration::from_secs(5);
const BUILTIN_PROVIDER: &str = "builtin";

/// What the caller asks of the cache.
pub struct CacheDirectives {
    pub mode: CacheMode,
    pub ttl: Duration,
    pub namespace: String,
    /// Minimum similarity of a semantic hit.
    pub threshold: f32,
}

pub enum CacheLookup {
    Hit(CacheHit),
    /// The response shall be stored; other requests may wait for it.
    Miss(Box<FillGuard>),
    /// The request cannot be cached.
    Bypass,
}

/// The right to fill an entry. Dropping it passes the right to one of the requests that wait for the entry.
pub struct FillGuard {
    fill: CacheFill,
    query: Option<SemanticQuery>,
}

impl FillGuard {
    pub fn key(&self) -> CacheKey {
        self.fill.key()
    }

    /// There is no response to store: requests that wait for it make their own call.
    pub fn abandon(self) {
        self.fill.fail();
    }
}

/// Looks the request up. Waits for an equal request in progress.
pub async fn lookup(
    context: RequestContext<'_>,
    plan: &Plan<'_>,
    body: &Bytes,
    deadline: Instant,
) -> CacheLookup {
    let RequestContext { state, identity, head, services, .. } = context;
    let Some(directives) = &plan.directives.cache else { return CacheLookup::Bypass };
    let (compute, org) = (&services.compute, identity.org.id);
    let time_left = deadline.saturating_duration_since(Instant::now());
    if !is_cacheable(head.method.as_str(), plan.directives.operation) {
        return CacheLookup::Bypass;
    }
    let base_urls: Vec<Option<String>> =
        plan.targets.iter().map(|target| target.provider.base.as_ref().map(ToString::to_string)).collect();
    let targets = cache_targets(plan, &base_urls);
    let relevant = head.headers.iter().filter(|(name, _)| affects_response(name.as_str()));
    let relevant: Vec<(&str, &[u8])> =
        relevant.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let is_translated = |target: &RouteTarget| target.adaptation == Adaptation::Translate;
    let is_format_part_of_key =
        plan.directives.is_format_declared() || plan.targets.iter().any(is_translated);
    let parts = KeyParts {
        org: identity.org.id,
        namespace: &directives.namespace,
        targets: &targets,
        format: is_format_part_of_key.then(|| plan.directives.client_format.as_str()),
        path: head.uri.path(),
        query: head.uri.query(),
        content_type: head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()),
        headers: &relevant,
    };
    let key = {
        // A body with many small values takes a multiple of its length while its key is made.
        let Ok(_memory) = identity.org.memory.reserve(tree_bytes(body)) else { return CacheLookup::Bypass };
        let reading = body.clone();
        let canonical = move || CanonicalBody::of(&reading);
        let canonical = compute.run_for_body(org, body.len(), time_left, canonical).await;
        let Ok(Ok(canonical)) = canonical else { return CacheLookup::Bypass };
        key(&parts, &canonical, body)
    };
    let request = CacheRequest {
        org: identity.org.id,
        namespace: &directives.namespace,
        key,
        mode: directives.mode,
        ttl: directives.ttl,
        wait_timeout: deadline.saturating_duration_since(Instant::now()),
    };
    let fill = match state.cache.lookup(request).await {
        Lookup::Hit(hit) => return CacheLookup::Hit(hit),
        Lookup::Miss(fill) => fill,
    };
    let miss = |fill, query| CacheLookup::Miss(Box::new(FillGuard { fill, query }));
    if directives.mode != CacheMode::Semantic {
        return miss(fill, None);
    }
    let (operation, reading) = (plan.directives.operation, body.clone());
    let splitting = move || split(operation, &reading);
    let split = compute.run_for_body(org, body.len(), time_left, splitting).await;
    let Ok(Some(split)) = split else { return miss(fill, None) };
    let Some((model, vector)) = embedding(context, &split.text).await else { return miss(fill, None) };
    let query = SemanticQuery { rest: semantic_key(&parts, &split), model, vector, text: split.text };
    match fill.find_similar(&query, directives.threshold) {
        Lookup::Hit(hit) => CacheLookup::Hit(hit),
        Lookup::Miss(fill) => miss(fill, Some(query)),
    }
}

fn cache_targets<'a>(plan: &'a Plan<'_>, base_urls: &'a [Option<String>]) -> Vec<CacheTarget<'a>> {
    plan.targets
        .iter()
        .zip(base_urls)
        .map(|(target, base_url)| CacheTarget {
            provider: &target.provider.name,
            base: base_url.as_deref().filter(|_| target.provider.guarded),
            model: target.model.as_deref(),
            edits: target.edits().map_or("", BodyEdits::as_text),
        })
        .collect()
}

/// The embedding of a text by the configured model, and the name of that model. None if the provider fails; then only
/// equal requests hit.
async fn embedding(context: RequestContext<'_>, text: &str) -> Option<(String, Vec<f32>)> {
    let config = &context.services.config.judge;
    let (provider, model) = (&config.embed_provider, &config.embed_model);
    if provider == BUILTIN_PROVIDER {
        let dims = usize::try_from(config.embed_dims).unwrap_or(256);
        return Some((model.clone(), embed::hash_v1(text, dims)));
    }
    let body = json!({"model": model, "input": text});
    let request = InternalRequest {
        provider: provider.clone(),
        endpoint: Endpoint::Embeddings,
        body: body.to_string(),
        source: LogSource::Api,
        prompt: None,
        metadata: serde_json::Map::new(),
        timeout: Some(EMBED_TIMEOUT),
        is_counted: true,
    };
    let RequestContext { services, state, identity, .. } = context;
    // Internal calls run on the main runtime.
    let call = call_model(Arc::clone(services), Arc::clone(state), identity.clone(), request);
    let response = services.tasks.runtime.spawn(call).await.ok()?.ok()?;
    let body: Value = serde_json::from_slice(response.status.is_success().then_some(&response.body)?).ok()?;
    let vector: Vec<f32> = serde_json::from_value(body["data"][0]["embedding"].clone()).ok()?;
    (!vector.is_empty()).then(|| (format!("{provider}/{model}"), vector))
}

/// Boxed, because the call goes through the same stages as this request: its type would contain itself.
fn call_model(
    services: Arc<Services>,
    state: Arc<ProxyState>,
    identity: Identity,
    request: InternalRequest,
) -> Pin<Box<dyn Future<Output = ApiResult<ModelResponse>> + Send>> {
    Box::pin(async move {
        let proxy = Proxy { services: &services, state: &state, worker: &state.worker };
        proxy.call_model(&identity, request, None).await
    })
}

/// The entry in the form that the caller requested. None for a body that cannot be converted to a stream; then the
/// provider is called.
pub fn response_chunks(
    context: RequestContext<'_>,
    plan: &Plan<'_>,
    entry: &CacheEntry,
) -> Result<Option<VecDeque<Bytes>>, MemoryExhausted> {
    // The caller may receive it slowly, and the entry may be replaced meanwhile.
    let mut memory = context.identity.org.memory.reserve(entry.body.len())?;
    let Some(format) = plan.client_wire_format().filter(|_| plan.caller_streams()) else {
        return Ok(Some(VecDeque::from([hold(entry.body.clone(), memory)])));
    };
    let Ok(events) = aggregate::synthesize_stream(format, &entry.body, plan.shows_usage()) else {
        return Ok(None);
    };
    memory.resize(events.iter().map(Vec::len).sum())?;
    let mut chunks: VecDeque<Bytes> = events.into_iter().map(Bytes::from).collect();
    if let Some(last) = chunks.pop_back() {
        chunks.push_back(hold(last, memory));
    }
    Ok(Some(chunks))
}

/// Responds with an entry of the cache.
pub fn respond_from_cache(
    context: RequestContext<'_>,
    plan: &Plan<'_>,
    mut record: Record,
    hit: &CacheHit,
    chunks: VecDeque<Bytes>,
) -> Response {
    let entry = &hit.entry;
    let mut headers: HeaderMap = entry.headers.iter().cloned().collect();
    if plan.caller_streams() && plan.client_wire_format().is_some() {
        headers.insert(CONTENT_TYPE, EVENT_STREAM);
    }
    headers.remove(CONTENT_LENGTH);
    record.set_cache_key(hit.key);
    headers.insert(AGE, entry.age_seconds(context.now()).into());
    record.set_cache_hit(entry);
    headers::add_cached(&mut headers, context.identity, &record);
    limit_headers::add(&mut headers, record.limit_headers(plan.directives));
    if plan.directives.wants_cost {
        cost::insert(&mut headers, record.cost_so_far());
    }
    let (raw, body) = (entry.body.clone(), entry.body.clone());
    let content = BufferedContent { raw, body, chunks, meter: None };
    let content = ResponseContent::Buffered(content);
    let body = MeteredBody::new(&Attempt::new(plan, 0), &headers, content, record, None);
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = entry.status;
    *response.headers_mut() = headers;
    response
}
