//! The second cache tier, in Redis and shared by all nodes. Reads take a few milliseconds, writes happen in the
//! background, and the tier is skipped while Redis is unreachable. Entries are encrypted with the master key and bound
//! to their organization and key, so that Redis never contains plaintext responses and no entry can stand in for
//! another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;
use gateway_store::redis::RedisClient;
use gateway_store::redis::cache::{self, CacheLookup, Generation, Purge};
use tokio::sync::{Mutex, mpsc};

use super::entry::CacheEntry;
use crate::vault::Vault;

/// Entries that may wait to be written; more are not shared.
const MAX_QUEUED_WRITES: usize = 256;
const PURGE_POLL_INTERVAL: Duration = Duration::from_secs(1);

pub struct RedisTier {
    redis: Arc<RedisClient>,
    vault: Vault,
    /// The unique name of this process, and a count of the generations that it started.
    node: String,
    generations: AtomicU64,
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
    /// `node` is a name that no other process uses or has used.
    pub fn new(redis: Arc<RedisClient>, vault: Vault, node: String) -> Self {
        let (queue, queued) = mpsc::channel(MAX_QUEUED_WRITES);
        Self { redis, vault, node, generations: AtomicU64::new(0), queue, queued: Mutex::new(queued) }
    }

    /// Returns the current generation and the entry, or `None` if Redis is unreachable.
    pub async fn get(
        &self,
        org: OrgId,
        namespace: &str,
        key: CacheKey,
    ) -> Option<(Generation, Option<CacheEntry>)> {
        let found = cache::get(&self.redis, org, namespace, key, &self.new_generation()).await;
        let CacheLookup { generation, entry } = found.ok()?;
        let entry = entry.and_then(|sealed| {
            let opened = self.vault.open_bytes(&encryption_context(org, key), sealed).ok()?;
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
        let sealed =
            entry.encode().and_then(|bytes| self.vault.seal_bytes(&encryption_context(org, key), bytes).ok());
        if let Some(sealed) = sealed {
            slot.send(QueuedWrite { org, key, generation, sealed, ttl: entry.ttl() });
        }
    }

    pub async fn purge(&self, purge: &Purge) {
        if let Err(error) = cache::purge(&self.redis, &self.node, purge, &self.new_generation()).await {
            tracing::warn!(%error, org = %purge.org, "cannot purge the shared cache");
        }
    }

    /// Writes queued entries and reports the purges of other nodes.
    pub async fn run(&self, on_purge: impl Fn(&Purge)) {
        let mut queued = self.queued.lock().await;
        let mut last = "0".to_owned();
        let mut interval = tokio::time::interval(PURGE_POLL_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                write = queued.recv() => {
                    let Some(QueuedWrite { org, key, generation, sealed, ttl }) = write else { return };
                    let entry = cache::CacheEntry { key, generation: &generation, sealed: &sealed, ttl };
                    // A failed write only costs a hit on another node.
                    let _ = cache::put(&self.redis, org, &entry).await;
                }
                _ = interval.tick() => {
                    let purges = cache::purges_since(&self.redis, &self.node, &mut last).await;
                    purges.iter().flatten().for_each(&on_purge);
                }
            }
        }
    }

    fn new_generation(&self) -> String {
        format!("{}.{}", self.node, self.generations.fetch_add(1, Ordering::Relaxed))
    }
}

fn encryption_context(org: OrgId, key: CacheKey) -> String {
    format!("cache/{org}/{key}")
}
