//! The organization's cache of answers: what it holds and does, and emptying it.

use axum::extract::State;
use gateway_core::cache::CacheKey;
use gateway_store::redis::cache::PurgeScope;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::caller::{Admin, AppState, Caller, Viewer};
use super::extract::QueryParams;
use super::openapi::Area;
use super::response::Json;
use crate::cache::{CacheStats, NamespaceStats};
use crate::nodes::{self, Invalidation};
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("cache", "The organization's cache of answers.")
        .delete("/cache", purge, "Empty the cache: all of it, one namespace, or one entry")
        .get(
            "/cache/stats",
            stats,
            "What the cache holds and did, on the node that answers, since it started",
        )
}

#[derive(Deserialize, JsonSchema)]
struct PurgeParams {
    /// Only the entries of this namespace. Empty: only those that were stored without one.
    #[serde(default, deserialize_with = "given")]
    namespace: Option<String>,
    /// Only this entry: the value of `X-Gateway-Cache-Key`.
    key: Option<String>,
}

/// Elsewhere in a query an empty value counts as absent; here that would empty the whole cache.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CachePurged")]
struct Purged {
    deleted: bool,
    /// How many entries the node that answers held in memory.
    entries: u64,
}

async fn purge(
    State(app): AppState,
    caller: Caller<Admin>,
    QueryParams(params): QueryParams<PurgeParams>,
) -> ApiResult<Json<Purged>> {
    let scope = match (params.namespace, params.key) {
        (Some(_), Some(_)) => {
            return Err(Problem::field("key", "cannot be combined with namespace: it names one entry"));
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
    let entries = app.proxy.cache.purge(org, scope).await;
    // After the shared cache, from which another node could take an entry back.
    nodes::say(&app, change).await?;
    Ok(Json(Purged { deleted: true, entries }))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CacheStats")]
struct StatsView {
    entries: u64,
    bytes: u64,
    /// What all organizations together may take.
    limit_bytes: u64,
    /// All answers that cost no call, of whatever kind.
    hits: u64,
    misses: u64,
    semantic_hits: u64,
    /// Hits that another node had stored.
    shared_hits: u64,
    /// Hits that waited for the same request of somebody else.
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
