//! What is known of keys, members and organizations, held in memory so that the request path does not wait for the
//! database. An entry stays until it is forgotten; forgetting takes effect on the very next look-up, even when a
//! load of the old value is under way. Many who miss the same entry at once load it once.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

const SHARDS: usize = 64;
/// Beyond this an entry is dropped for each new one; a dropped entry is only loaded again.
const ENTRIES_PER_SHARD: usize = 4096;

pub struct Snapshot<K, V> {
    shards: Vec<RwLock<Shard<K, V>>>,
    entries_per_shard: usize,
    hasher: RandomState,
}

struct Shard<K, V> {
    /// Counts what was forgotten: a load that began before cannot put its value back.
    generation: u64,
    entries: HashMap<K, Arc<V>>,
    /// What is being loaded, with a channel that closes when that is over.
    loading: HashMap<K, watch::Receiver<()>>,
}

/// The one who loads an entry, for all who want it.
struct Leading<'a, K: Hash + Eq + Clone, V> {
    snapshot: &'a Snapshot<K, V>,
    key: K,
    _until_over: watch::Sender<()>,
}

impl<K: Hash + Eq + Clone, V> Drop for Leading<'_, K, V> {
    fn drop(&mut self) {
        let mut shard = self.snapshot.shard(&self.key).write().unwrap_or_else(PoisonError::into_inner);
        shard.loading.remove(&self.key);
    }
}

impl<K: Hash + Eq + Clone, V> Default for Snapshot<K, V> {
    fn default() -> Self {
        Self::with_room(ENTRIES_PER_SHARD)
    }
}

impl<K: Hash + Eq + Clone, V> Snapshot<K, V> {
    /// For 64 times as many entries.
    pub fn with_room(entries_per_shard: usize) -> Self {
        let empty = || RwLock::new(Shard { generation: 0, entries: HashMap::new(), loading: HashMap::new() });
        Self { shards: (0..SHARDS).map(|_| empty()).collect(), entries_per_shard, hasher: RandomState::new() }
    }

    pub fn known(&self, key: &K) -> Option<Arc<V>> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner).entries.get(key).cloned()
    }

    /// The known value, or the one that `load` finds. What does not exist is not remembered.
    pub async fn get<E, F>(&self, key: &K, load: impl Fn() -> F) -> Result<Option<Arc<V>>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        if let Some(value) = self.known(key) {
            return Ok(Some(value));
        }
        let _leading = match self.lead_or_follow(key) {
            Ok(leading) => Some(leading),
            Err(mut over) => {
                // An error is how it ends. Who finds nothing then was out of luck, and asks alone.
                let _ = over.changed().await;
                None
            }
        };
        loop {
            let before = {
                let shard = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
                if let Some(value) = shard.entries.get(key) {
                    return Ok(Some(Arc::clone(value)));
                }
                shard.generation
            };
            let loaded = load().await?.map(Arc::new);
            let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
            if shard.generation != before {
                continue;
            }
            if let Some(value) = &loaded {
                shard.make_room(self.entries_per_shard);
                shard.entries.insert(key.clone(), Arc::clone(value));
            }
            return Ok(loaded);
        }
    }

    fn lead_or_follow(&self, key: &K) -> Result<Leading<'_, K, V>, watch::Receiver<()>> {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(over) = shard.loading.get(key) {
            return Err(over.clone());
        }
        let (until_over, over) = watch::channel(());
        shard.loading.insert(key.clone(), over);
        Ok(Leading { snapshot: self, key: key.clone(), _until_over: until_over })
    }

    /// Looks at every known entry.
    pub fn visit(&self, mut see: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.entries.iter().for_each(|(key, value)| see(key, value));
        }
    }

    pub fn forget(&self, key: &K) {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        shard.generation += 1;
        shard.entries.remove(key);
    }

    pub fn forget_if(&self, gone: impl Fn(&K, &V) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.generation += 1;
            shard.entries.retain(|key, value| !gone(key, value));
        }
    }

    fn shard(&self, key: &K) -> &RwLock<Shard<K, V>> {
        let index = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
    }
}

impl<K: Hash + Eq + Clone, V> Shard<K, V> {
    fn make_room(&mut self, most: usize) {
        if self.entries.len() >= most
            && let Some(victim) = self.entries.keys().next().cloned()
        {
            self.entries.remove(&victim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_known_value_is_not_loaded_again_until_it_is_forgotten() {
        let snapshot = Snapshot::<u32, u32>::default();
        let loads = AtomicU32::new(0);
        let load = || async { Ok::<_, Infallible>(Some(loads.fetch_add(1, Ordering::SeqCst))) };
        assert_eq!(*snapshot.get(&1, load).await.unwrap().unwrap(), 0);
        assert_eq!(*snapshot.get(&1, load).await.unwrap().unwrap(), 0);
        snapshot.forget(&1);
        assert_eq!(*snapshot.get(&1, load).await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn a_value_forgotten_while_it_is_loaded_is_loaded_again() {
        let snapshot = Snapshot::<u32, u32>::default();
        let loads = AtomicU32::new(0);
        let load = || async {
            let round = loads.fetch_add(1, Ordering::SeqCst);
            if round == 0 {
                snapshot.forget(&1);
            }
            Ok::<_, Infallible>(Some(round))
        };
        assert_eq!(*snapshot.get(&1, load).await.unwrap().unwrap(), 1);
        assert_eq!(snapshot.known(&1).as_deref(), Some(&1));
    }

    #[tokio::test]
    async fn many_who_miss_at_once_load_once_unless_the_first_is_out_of_luck() {
        let snapshot = Snapshot::<u32, u32>::default();
        let loads = AtomicU32::new(0);
        let load = || async {
            tokio::task::yield_now().await;
            let round = loads.fetch_add(1, Ordering::SeqCst);
            if round == 0 { Err("away") } else { Ok(Some(round)) }
        };
        let all = futures_util::future::join_all((0..20).map(|_| snapshot.get(&1, load))).await;
        assert_eq!(all.iter().filter(|found| found.is_err()).count(), 1);
        assert_eq!(snapshot.get(&1, load).await.unwrap().as_deref(), snapshot.known(&1).as_deref());
        snapshot.forget(&1);
        loads.store(7, Ordering::SeqCst);
        let all = futures_util::future::join_all((0..20).map(|_| snapshot.get(&1, load))).await;
        assert!(all.iter().all(|found| matches!(found, Ok(Some(value)) if **value == 7)), "{all:?}");
        assert_eq!(loads.load(Ordering::SeqCst), 8);
    }

    #[tokio::test]
    async fn what_does_not_exist_is_asked_for_each_time() {
        let snapshot = Snapshot::<u32, u32>::default();
        let none = || async { Ok::<_, Infallible>(None) };
        assert!(snapshot.get(&1, none).await.unwrap().is_none());
        assert!(snapshot.known(&1).is_none());
    }
}
