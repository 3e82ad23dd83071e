//! Statistics of the cache per organization since this node started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct CacheCounters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub semantic_hits: AtomicU64,
    pub shared_hits: AtomicU64,
    pub coalesced: AtomicU64,
    pub evictions: AtomicU64,
}

/// A snapshot of one organization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheStats {
    pub entries: u64,
    pub bytes: u64,
    /// Requests answered from the cache, of every kind.
    pub hits: u64,
    pub misses: u64,
    pub semantic_hits: u64,
    /// Hits that another node had stored.
    pub shared_hits: u64,
    /// Hits that waited for an identical request in progress.
    pub coalesced: u64,
    pub evictions: u64,
    pub namespaces: Vec<NamespaceStats>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceStats {
    pub name: Arc<str>,
    pub entries: u64,
    pub bytes: u64,
    pub hits: u64,
    pub misses: u64,
}

impl NamespaceStats {
    pub fn new(name: Arc<str>) -> Self {
        Self { name, entries: 0, bytes: 0, hits: 0, misses: 0 }
    }
}

impl CacheCounters {
    pub fn stats(&self, entries: u64, bytes: u64, namespaces: Vec<NamespaceStats>) -> CacheStats {
        let Self { hits, misses, semantic_hits, shared_hits, coalesced, evictions } = self;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheStats {
            entries,
            bytes,
            hits: read(hits),
            misses: read(misses),
            semantic_hits: read(semantic_hits),
            shared_hits: read(shared_hits),
            coalesced: read(coalesced),
            evictions: read(evictions),
            namespaces,
        }
    }
}
