//! A cache that loads missing entries from the database, so that the request path does not wait for it. Entries stay
//! until they are invalidated. An invalidation takes effect on the next lookup, even if a load of the old value is in
//! progress. Concurrent misses of one key cause one load. An invalidation repeats only the loads that it concerns, so
//! that a tenant with many changes does not delay the others.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use gateway_core::ids::OrgId;

use crate::singleflight::{Joined, SingleFlight, Waited};

const SHARDS: usize = 64;
/// A full shard drops an arbitrary entry for each new one.
const MAX_ENTRIES_PER_SHARD: usize = 4096;
/// A load that more conditions than this were set for is repeated in any case.
const MAX_CONDITIONS: usize = 1_024;

/// Whether an entry is stale.
type Condition<K, V> = Arc<dyn Fn(&K, &V) -> bool + Send + Sync>;

pub struct LoadingCache<K, V> {
    shards: Vec<RwLock<Shard<K, V>>>,
    max_entries_per_shard: usize,
    weights: Option<WeightLimit<K, V>>,
    hasher: RandomState,
    loads: Arc<SingleFlight<K, ()>>,
}

/// A limit on what the entries weigh together, for values of very different sizes. The organization whose entries weigh
/// the most in a shard loses one first.
pub struct WeightLimit<K, V> {
    pub owner: fn(&K) -> OrgId,
    pub weight: fn(&V) -> usize,
    /// A heavier entry is not cached.
    pub max_per_shard: usize,
}

struct Shard<K, V> {
    entries: HashMap<K, Arc<V>>,
    loads: HashMap<u64, Load<K, V>>,
    next_load: u64,
}

/// A load in progress. What it returns may be older than an invalidation that came after its start.
struct Load<K, V> {
    key: K,
    is_stale: bool,
    conditions: Vec<Condition<K, V>>,
}

impl<K, V> Load<K, V> {
    /// The value that was loaded must not be used.
    fn is_outdated(&self, value: Option<&V>) -> bool {
        self.is_stale
            || value.is_some_and(|value| self.conditions.iter().any(|condition| condition(&self.key, value)))
    }
}

/// Removes a load that has ended or was cancelled.
struct LoadGuard<'a, K, V> {
    shard: &'a RwLock<Shard<K, V>>,
    number: u64,
}

impl<K, V> Drop for LoadGuard<'_, K, V> {
    fn drop(&mut self) {
        self.shard.write().unwrap_or_else(PoisonError::into_inner).loads.remove(&self.number);
    }
}

impl<K: Hash + Eq + Clone, V> Default for LoadingCache<K, V> {
    fn default() -> Self {
        Self::with_capacity(MAX_ENTRIES_PER_SHARD)
    }
}

impl<K: Hash + Eq + Clone, V> LoadingCache<K, V> {
    /// Creates a cache for 64 times as many entries.
    pub fn with_capacity(max_entries_per_shard: usize) -> Self {
        let empty = || RwLock::new(Shard { entries: HashMap::new(), loads: HashMap::new(), next_load: 0 });
        Self {
            shards: (0..SHARDS).map(|_| empty()).collect(),
            max_entries_per_shard,
            weights: None,
            hasher: RandomState::new(),
            loads: Arc::default(),
        }
    }

    pub fn with_weights(max_entries_per_shard: usize, weights: WeightLimit<K, V>) -> Self {
        Self { weights: Some(weights), ..Self::with_capacity(max_entries_per_shard) }
    }

    /// Returns the entry only if it is in memory.
    pub fn peek(&self, key: &K) -> Option<Arc<V>> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner).entries.get(key).cloned()
    }

    /// Returns the cached value, or loads it. The absence of a value is not cached.
    pub async fn get<E, F>(&self, key: &K, load: impl Fn() -> F) -> Result<Option<Arc<V>>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        if let Some(value) = self.peek(key) {
            return Ok(Some(value));
        }
        let leader = match self.loads.join(key) {
            Joined::Leader(leader) => Some(leader),
            Joined::Waiter(waiter) => match waiter.wait().await {
                Waited::Promoted(leader) => Some(leader),
                // The value is looked up below: it may have been invalidated since. If the load failed, each waiter
                // loads by itself.
                Waited::Value(()) | Waited::Failed => None,
            },
        };
        let loaded = self.load(key, load).await;
        if let Some(leader) = leader {
            match &loaded {
                Ok(_) => leader.complete(()),
                Err(_) => leader.fail(),
            }
        }
        loaded
    }

    /// Loads the value, again if it was invalidated in the meantime.
    async fn load<E, F>(&self, key: &K, load: impl Fn() -> F) -> Result<Option<Arc<V>>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        let shard = self.shard(key);
        loop {
            let number = {
                let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(value) = shard.entries.get(key) {
                    return Ok(Some(Arc::clone(value)));
                }
                shard.begin_load(key)
            };
            let guard = LoadGuard { shard, number };
            let loaded = load().await?.map(Arc::new);
            let is_outdated = {
                let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
                let is_outdated =
                    shard.loads.remove(&number).is_none_or(|load| load.is_outdated(loaded.as_deref()));
                if let Some(value) = &loaded
                    && !is_outdated
                {
                    shard.make_room(self.max_entries_per_shard);
                    if self.weights.as_ref().is_none_or(|limit| shard.make_room_for(limit, (key, value))) {
                        shard.entries.insert(key.clone(), Arc::clone(value));
                    }
                }
                is_outdated
            };
            drop(guard);
            if !is_outdated {
                return Ok(loaded);
            }
        }
    }

    /// Calls the function for every cached entry.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.entries.iter().for_each(|(key, value)| visit(key, value));
        }
    }

    pub fn invalidate(&self, key: &K) {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        shard.entries.remove(key);
        for load in shard.loads.values_mut().filter(|load| load.key == *key) {
            load.is_stale = true;
        }
    }

    /// Invalidates the entries that the condition is true of. A value that is being loaded is checked when it is there.
    pub fn invalidate_if(&self, is_stale: impl Fn(&K, &V) -> bool + Send + Sync + 'static) {
        let is_stale: Condition<K, V> = Arc::new(is_stale);
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.entries.retain(|key, value| !is_stale(key, value));
            for load in shard.loads.values_mut() {
                if load.conditions.len() < MAX_CONDITIONS {
                    load.conditions.push(Arc::clone(&is_stale));
                } else {
                    load.is_stale = true;
                }
            }
        }
    }

    pub fn invalidate_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.entries.clear();
            shard.loads.values_mut().for_each(|load| load.is_stale = true);
        }
    }

    fn shard(&self, key: &K) -> &RwLock<Shard<K, V>> {
        let index = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
    }
}

impl<K: Hash + Eq + Clone, V> Shard<K, V> {
    fn begin_load(&mut self, key: &K) -> u64 {
        let number = self.next_load;
        self.next_load += 1;
        self.loads.insert(number, Load { key: key.clone(), is_stale: false, conditions: Vec::new() });
        number
    }

    fn make_room(&mut self, max_entries: usize) {
        if self.entries.len() >= max_entries
            && let Some(victim) = self.entries.keys().next().cloned()
        {
            self.entries.remove(&victim);
        }
    }

    /// Returns false if the entry is heavier than the limit.
    fn make_room_for(&mut self, limit: &WeightLimit<K, V>, (key, value): (&K, &V)) -> bool {
        let (owner, weight) = ((limit.owner)(key), (limit.weight)(value));
        if weight > limit.max_per_shard {
            return false;
        }
        let mut weights = HashMap::from([(owner, weight)]);
        for (key, value) in &self.entries {
            *weights.entry((limit.owner)(key)).or_default() += (limit.weight)(value);
        }
        while weights.values().sum::<usize>() > limit.max_per_shard {
            let victim = self.entries.iter().max_by_key(|(key, _)| weights.get(&(limit.owner)(key)));
            let Some((victim, value)) = victim.map(|(key, value)| (key.clone(), Arc::clone(value))) else {
                break;
            };
            if let Some(sum) = weights.get_mut(&(limit.owner)(&victim)) {
                *sum = sum.saturating_sub((limit.weight)(&value));
            }
            self.entries.remove(&victim);
        }
        true
    }
}

#[cfg(test)]
mod tests;
