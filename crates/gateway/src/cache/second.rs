//! The cache that nodes share, seen from a request: asked in a few milliseconds, written behind its back, and passed over
//! while it is away. Entries are sealed with the master key and bound to their organization and name, so that nobody
//! who reads Redis reads answers, and none can be put in another's place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_core::cache::CacheKey;
use gateway_core::ids::OrgId;
use gateway_store::redis::RedisClient;
use gateway_store::redis::cache::{self, CacheLookup, Generation, Purge};
use tokio::sync::{Mutex, mpsc};

use super::entry::Entry;
use crate::vault::Vault;

/// Entries that may wait to be written; beyond that they are not shared.
const QUEUE: usize = 256;
const PURGES_EVERY: Duration = Duration::from_secs(1);

pub struct Second {
    shared: Arc<RedisClient>,
    vault: Vault,
    /// Who this process is, and the generations that it begins, told apart by a count.
    node: String,
    count: AtomicU64,
    queue: mpsc::Sender<Write>,
    waiting: Mutex<mpsc::Receiver<Write>>,
}

struct Write {
    org: OrgId,
    key: CacheKey,
    generation: Generation,
    sealed: Vec<u8>,
    life: Duration,
}

impl Second {
    /// `node` is a name that no other process has or had.
    pub fn new(shared: Arc<RedisClient>, vault: Vault, node: String) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        Self { shared, vault, node, count: AtomicU64::new(0), queue, waiting: Mutex::new(waiting) }
    }

    /// The generation in force and the entry, when the shared cache can be asked.
    pub async fn find(
        &self,
        org: OrgId,
        namespace: &str,
        key: CacheKey,
    ) -> Option<(Generation, Option<Entry>)> {
        let found = cache::get(&self.shared, org, namespace, key, &self.fresh()).await;
        let CacheLookup { generation, entry } = found.ok()?;
        let entry = entry.and_then(|sealed| {
            let opened = self.vault.open_bytes(&place(org, key), sealed).ok()?;
            Entry::decode(&opened)
        });
        Some((generation, entry))
    }

    /// Shares an entry, in the background. One that finds no place in the queue stays on this node.
    pub fn put(&self, org: OrgId, key: CacheKey, generation: Generation, entry: &Entry, life: Duration) {
        if !self.shared.is_up() {
            return;
        }
        let Ok(room) = self.queue.try_reserve() else { return };
        let sealed = entry.encode().and_then(|bytes| self.vault.seal_bytes(&place(org, key), bytes).ok());
        if let Some(sealed) = sealed {
            room.send(Write { org, key, generation, sealed, life });
        }
    }

    pub async fn purge(&self, purge: &Purge) {
        if let Err(error) = cache::purge(&self.shared, &self.node, purge, &self.fresh()).await {
            tracing::warn!(%error, org = %purge.org, "the shared cache could not be emptied");
        }
    }

    /// Writes what waits, and learns what other nodes emptied.
    pub async fn run(&self, emptied: impl Fn(&Purge)) {
        let mut waiting = self.waiting.lock().await;
        let mut last = "0".to_owned();
        let mut clock = tokio::time::interval(PURGES_EVERY);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                write = waiting.recv() => {
                    let Some(Write { org, key, generation, sealed, life }) = write else { return };
                    // Nothing is lost but a hit on another node.
                    let _ = cache::put(&self.shared, org, key, &generation, &sealed, life).await;
                }
                _ = clock.tick() => {
                    let purges = cache::purges_since(&self.shared, &self.node, &mut last).await;
                    purges.iter().flatten().for_each(&emptied);
                }
            }
        }
    }

    fn fresh(&self) -> String {
        format!("{}.{}", self.node, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

fn place(org: OrgId, key: CacheKey) -> String {
    format!("cache/{org}/{key}")
}
