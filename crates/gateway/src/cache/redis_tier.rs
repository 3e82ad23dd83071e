//! The second cache tier, in Redis and shared by all nodes. Reads take a few milliseconds, writes happen in the
//! background, and the tier is skipped while Redis is unreachable. Entries are encrypted with the master key and bound
//! to their organization and key, so that Redis never contains plaintext responses and no entry can stand in for
//! another. Which entries are still valid is known to the database, not to Redis (`gateway_store::cache_purges`).

use std::sync::Arc;
use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;
use gateway_store::cache_purges::Generation;
use gateway_store::redis::RedisClient;
use gateway_store::redis::cache;
use tokio::sync::{Mutex, mpsc};

use super::entry::CacheEntry;
use crate::vault::DailyVault;

/// Entries that may wait to be written; more are not shared.
const MAX_QUEUED_WRITES: usize = 256;

/// Knows the purges of each organization.
pub trait PurgeSource: Send + Sync {
    /// The generation in which an entry is valid now. `None` if the purges are not in memory; then the tier is skipped.
    fn generation(&self, org: OrgId, namespace: &str, key: CacheKey) -> Option<Generation>;
}

pub struct RedisTier {
    redis: Arc<RedisClient>,
    vault: DailyVault,
    purges: Arc<dyn PurgeSource>,
    queue: mpsc::Sender<QueuedWrite>,
    queued: Mutex<mpsc::Receiver<QueuedWrite>>,
}

struct QueuedWrite {
    org: OrgId,
    key: CacheKey,
    generation: Generation,
    sealed: Vec<u8>,
    ttl: Duration,
}

impl RedisTier {
    pub fn new(redis: Arc<RedisClient>, vault: DailyVault, purges: Arc<dyn PurgeSource>) -> Self {
        let (queue, queued) = mpsc::channel(MAX_QUEUED_WRITES);
        Self { redis, vault, purges, queue, queued: Mutex::new(queued) }
    }

    /// Returns the current generation and the entry, or `None` if the generation is unknown.
    pub async fn get(
        &self,
        org: OrgId,
        namespace: &str,
        key: CacheKey,
    ) -> Option<(Generation, Option<CacheEntry>)> {
        let generation = self.purges.generation(org, namespace, key)?;
        // A Redis that is slow or unreachable has no entry.
        let found = cache::get(&self.redis, org, key, &generation).await.ok().flatten();
        let entry = found.and_then(|sealed| {
            let opened = self.vault.open(&encryption_context(org, key), sealed).ok()?;
            CacheEntry::decode(&opened)
        });
        Some((generation, entry))
    }

    /// Queues a write. If the queue is full, the entry stays on this node only.
    pub fn put(&self, org: OrgId, key: CacheKey, generation: Generation, entry: &CacheEntry) {
        if !self.redis.is_up() {
            return;
        }
        let Ok(slot) = self.queue.try_reserve() else { return };
        let context = encryption_context(org, key);
        let sealed = entry.encode().and_then(|bytes| self.vault.seal(&context, bytes, entry.stored_at).ok());
        if let Some(sealed) = sealed {
            slot.send(QueuedWrite { org, key, generation, sealed, ttl: entry.ttl() });
        }
    }

    /// Writes queued entries.
    pub async fn run(&self) {
        let mut queued = self.queued.lock().await;
        while let Some(QueuedWrite { org, key, generation, sealed, ttl }) = queued.recv().await {
            let entry = cache::CacheEntry { key, generation: &generation, sealed: &sealed, ttl };
            // A failed write only costs a hit on another node.
            let _ = cache::put(&self.redis, org, &entry).await;
        }
    }
}

fn encryption_context(org: OrgId, key: CacheKey) -> String {
    format!("cache/{org}/{key}")
}
