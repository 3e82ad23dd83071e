//! The organization's response cache: statistics and purging.

use axum::extract::State;
use gateway_core::cache::CacheKey;
use gateway_store::cache_purges::{self, PurgeScope};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::audited::Audited;
use super::caller::{Admin, AppState, Caller, Viewer};
use super::extract::QueryParams;
use super::openapi::Area;
use super::response::Json;
use crate::cache::{CacheStats, NamespaceStats};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("cache", "The organization's response cache.")
        .delete("/cache", purge, "Purge the cache: all entries, one namespace, or one entry")
        .get(
            "/cache/stats",
            stats,
            "Get size and hit counts of the cache of the node that serves this request, since its start",
        )
}

#[derive(Deserialize, JsonSchema)]
struct PurgeParams {
    /// Only entries of this namespace. Empty: only entries that were stored without a namespace.
    #[serde(default, deserialize_with = "present_or_empty")]
    namespace: Option<String>,
    /// Only the entry with this key, which is the value of `X-Gateway-Cache-Key`.
    key: Option<String>,
}

/// Other query parameters count as absent when they are empty; here that would purge the whole cache.
fn present_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CachePurged")]
struct Purged {
    deleted: bool,
    /// Entries removed from the memory of the node that served the request.
    entries: u64,
}

async fn purge(
    app: Audited,
    caller: Caller<Admin>,
    QueryParams(params): QueryParams<PurgeParams>,
) -> ApiResult<Json<Purged>> {
    let scope = match (params.namespace, params.key) {
        (Some(_), Some(_)) => {
            return Err(Problem::field("key", "cannot be combined with namespace"));
        }
        (None, Some(key)) => {
            let key = CacheKey::parse(&key);
            PurgeScope::Entry(key.ok_or_else(|| Problem::field("key", "must be 64 hex digits"))?)
        }
        (Some(namespace), None) => PurgeScope::Namespace(namespace),
        (None, None) => PurgeScope::All,
    };
    let org = caller.org.id;
    let change = match &scope {
        PurgeScope::All => Invalidation::CacheEntries { org, namespace: None, entry: None },
        PurgeScope::Namespace(namespace) => {
            Invalidation::CacheEntries { org, namespace: Some(namespace.clone()), entry: None }
        }
        PurgeScope::Entry(key) => {
            Invalidation::CacheEntries { org, namespace: None, entry: Some(key.to_string()) }
        }
    };
    let services = &app.services;
    let mut tx = services.db.begin().await?;
    let mark = services.ids.new_id::<uuid::Uuid>().to_string();
    cache_purges::record(&mut tx, org, &scope, &mark, services.clock.now()).await?;
    let purged = match &scope {
        PurgeScope::All => json!({"all": true}),
        PurgeScope::Namespace(namespace) => json!({"namespace": namespace}),
        PurgeScope::Entry(key) => json!({"key": key.to_string()}),
    };
    tx.record(app.entry().target(org, &caller.org.name).deleted(&purged));
    let pending = invalidation::record(&mut tx, change).await?;
    // Counted before the commit, because its announcement can purge the entries before this task goes on.
    let before_commit = app.proxy.cache.purge(org, &scope);
    let committed = tx.commit().await;
    // Before the memory is purged, into which a request could otherwise load a purged entry again.
    app.proxy.access.invalidate_org(org);
    let entries = before_commit + app.proxy.cache.purge(org, &scope);
    pending.apply(&app.cluster);
    committed?;
    Ok(Json(Purged { deleted: true, entries }))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CacheStats")]
struct StatsView {
    entries: u64,
    bytes: u64,
    /// The limit for all organizations together.
    limit_bytes: u64,
    /// All responses served without a call to a provider.
    hits: u64,
    misses: u64,
    semantic_hits: u64,
    /// Hits on entries that another node stored.
    shared_hits: u64,
    /// Hits that waited for an identical request in progress.
    coalesced: u64,
    evictions: u64,
    namespaces: Vec<NamespaceView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CacheNamespace")]
struct NamespaceView {
    namespace: String,
    entries: u64,
    bytes: u64,
    hits: u64,
    misses: u64,
}

async fn stats(State(app): AppState, caller: Caller<Viewer>) -> ApiResult<Json<StatsView>> {
    let CacheStats {
        entries,
        bytes,
        hits,
        misses,
        semantic_hits,
        shared_hits,
        coalesced,
        evictions,
        namespaces,
    } = app.proxy.cache.stats(caller.org.id);
    let limit_bytes = app.proxy.cache.max_bytes();
    let namespaces = namespaces
        .into_iter()
        .map(|NamespaceStats { name, entries, bytes, hits, misses }| NamespaceView {
            namespace: name.as_ref().to_owned(),
            entries,
            bytes,
            hits,
            misses,
        })
        .collect();
    Ok(Json(StatsView {
        entries,
        bytes,
        limit_bytes,
        hits,
        misses,
        semantic_hits,
        shared_hits,
        coalesced,
        evictions,
        namespaces,
    }))
}
