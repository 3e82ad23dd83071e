//! What the cache had for a request.

use gateway_core::cache::CacheKey;

use super::Record;
use crate::cache::CacheEntry;

/// What came of the cache lookup.
#[derive(Default)]
pub(super) struct RecordedCache {
    pub status: Option<CacheStatus>,
    pub key: Option<CacheKey>,
    /// The provider that made the entry.
    pub provider: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    Hit,
    Miss,
    Refresh,
}

impl CacheStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Refresh => "refresh",
        }
    }
}

impl Record {
    pub fn cache_status(&self) -> Option<CacheStatus> {
        self.cache.status
    }

    pub fn cache_key(&self) -> Option<CacheKey> {
        self.cache.key
    }

    pub fn set_cache_miss(&mut self, is_refresh: bool) {
        self.cache.status = Some(if is_refresh { CacheStatus::Refresh } else { CacheStatus::Miss });
    }

    /// The response comes from the cache: it costs nothing, and is attributed to the provider that made it.
    pub fn set_cache_hit(&mut self, entry: &CacheEntry) {
        self.response.status = entry.status;
        self.cache.status = Some(CacheStatus::Hit);
        self.cache.provider = Some(entry.provider.clone());
        self.attempts.set_model(entry.model.as_deref());
        self.response.usage.clone_from(&entry.usage);
    }

    /// The key of the entry that the response comes from, or is stored in.
    pub fn set_cache_key(&mut self, key: CacheKey) {
        self.cache.key = Some(key);
    }
}
