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
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;

    type Cache = LoadingCache<u32, u32>;

    #[tokio::test]
    async fn a_cached_value_is_not_loaded_again_until_it_is_invalidated() {
        let cache = Cache::default();
        let loads = AtomicU32::new(0);
        let load = || async { Ok::<_, Infallible>(Some(loads.fetch_add(1, Ordering::SeqCst))) };
        assert_eq!(*cache.get(&1, load).await.unwrap().unwrap(), 0);
        assert_eq!(*cache.get(&1, load).await.unwrap().unwrap(), 0);
        cache.invalidate(&1);
        assert_eq!(*cache.get(&1, load).await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn the_heaviest_owner_makes_room_for_others() {
        let org = |number: u128| OrgId(uuid::Uuid::from_u128(number));
        let limit = WeightLimit {
            owner: |key: &(OrgId, u32)| key.0,
            weight: |weight: &usize| *weight,
            max_per_shard: 100,
        };
        let cache = LoadingCache::with_weights(1_000, limit);
        let add = async |key, weight| {
            let loaded = cache.get(&key, || async { Ok::<_, Infallible>(Some(weight)) }).await.unwrap();
            assert_eq!(loaded.as_deref(), Some(&weight));
        };
        add((org(2), 0), 30).await;
        for number in 0..10_000 {
            add((org(1), number), 20).await;
        }
        let weight_of = |owner: OrgId| {
            let mut sum = 0;
            cache.for_each(|key, weight| sum += if key.0 == owner { *weight } else { 0 });
            sum
        };
        assert_eq!(weight_of(org(2)), 30, "a small organization keeps what it has");
        assert_eq!(weight_of(org(1)), 63 * 100 + 60, "every shard is full, and not more");
        add((org(3), 0), 101).await;
        assert_eq!(weight_of(org(3)), 0, "heavier than a shard");
    }

    #[tokio::test]
    async fn a_value_invalidated_while_it_is_loaded_is_loaded_again() {
        let cache = Cache::default();
        let loads = AtomicU32::new(0);
        let load = || async {
            let round = loads.fetch_add(1, Ordering::SeqCst);
            if round == 0 {
                cache.invalidate(&1);
            }
            Ok::<_, Infallible>(Some(round))
        };
        assert_eq!(*cache.get(&1, load).await.unwrap().unwrap(), 1);
        assert_eq!(cache.peek(&1).as_deref(), Some(&1));
    }

    #[tokio::test]
    async fn a_load_does_not_start_over_for_changes_of_others() {
        let cache = Cache::default();
        let loads = AtomicU32::new(0);
        let load = || async {
            for other in 0..2_000 {
                if other != 1 {
                    cache.invalidate(&other);
                }
            }
            cache.invalidate_if(|key, value| *key == 2 || *value == 7);
            Ok::<_, Infallible>(Some(loads.fetch_add(1, Ordering::SeqCst)))
        };
        assert_eq!(*cache.get(&1, load).await.unwrap().unwrap(), 0);
        assert_eq!((loads.load(Ordering::SeqCst), cache.peek(&1).as_deref()), (1, Some(&0)));
    }

    #[tokio::test]
    async fn a_load_starts_over_if_a_condition_is_true_of_what_it_returned() {
        let cache = Cache::default();
        for is_all in [false, true] {
            let loads = AtomicU32::new(0);
            let load = || async {
                let round = loads.fetch_add(1, Ordering::SeqCst);
                if round == 0 && is_all {
                    cache.invalidate_all();
                } else if round == 0 {
                    cache.invalidate_if(|_, value| *value == 0);
                }
                Ok::<_, Infallible>(Some(round))
            };
            cache.invalidate(&1);
            assert_eq!(*cache.get(&1, load).await.unwrap().unwrap(), 1);
        }
        // More conditions than are kept count as true.
        let loads = AtomicU32::new(0);
        let load = || async {
            let round = loads.fetch_add(1, Ordering::SeqCst);
            for _ in 0..=(if round == 0 { MAX_CONDITIONS } else { 0 }) {
                cache.invalidate_if(|_, _| false);
            }
            Ok::<_, Infallible>(Some(round))
        };
        assert_eq!(*cache.get(&2, load).await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn a_cancelled_load_leaves_nothing_behind() {
        let cache = Cache::default();
        let load = || async {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Some(1))
        };
        assert!(cache.get(&1, load).now_or_never().is_none());
        assert!(cache.shards.iter().all(|shard| shard.read().unwrap().loads.is_empty()));
        cache.get(&1, load).await.unwrap();
        assert!(cache.shards.iter().all(|shard| shard.read().unwrap().loads.is_empty()));
    }

    #[tokio::test]
    async fn concurrent_misses_load_once_unless_the_load_fails() {
        let cache = Cache::default();
        let loads = AtomicU32::new(0);
        let load = || async {
            tokio::task::yield_now().await;
            let round = loads.fetch_add(1, Ordering::SeqCst);
            if round == 0 { Err("unavailable") } else { Ok(Some(round)) }
        };
        let all = join_all((0..20).map(|_| cache.get(&1, load))).await;
        assert_eq!(all.iter().filter(|found| found.is_err()).count(), 1);
        assert_eq!(cache.get(&1, load).await.unwrap().as_deref(), cache.peek(&1).as_deref());
        cache.invalidate(&1);
        loads.store(7, Ordering::SeqCst);
        let all = join_all((0..20).map(|_| cache.get(&1, load))).await;
        assert!(all.iter().all(|found| matches!(found, Ok(Some(value)) if **value == 7)), "{all:?}");
        assert_eq!(loads.load(Ordering::SeqCst), 8);
    }

    #[tokio::test]
    async fn when_a_load_is_cancelled_one_waiter_loads_for_all() {
        let cache = Cache::default();
        let loads = AtomicU32::new(0);
        let load = || async {
            let round = loads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Some(round))
        };
        let mut cancelled = Box::pin(cache.get(&1, load));
        assert!(cancelled.as_mut().now_or_never().is_none());
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(cache.get(&1, load))).collect();
        assert!(waiting.iter_mut().all(|get| get.now_or_never().is_none()));
        drop(cancelled);
        let all = join_all(waiting).await;
        assert!(all.iter().all(|found| matches!(found, Ok(Some(value)) if **value == 1)), "{all:?}");
        assert_eq!(loads.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_waiter_does_not_take_a_value_that_was_invalidated_before_it_runs() {
        let cache = Cache::default();
        let loads = AtomicU32::new(0);
        let load = || async {
            let round = loads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Some(round))
        };
        let mut first = Box::pin(cache.get(&1, load));
        let mut second = Box::pin(cache.get(&1, load));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert_eq!(first.await.unwrap().as_deref(), Some(&0));
        cache.invalidate(&1);
        assert_eq!(second.await.unwrap().as_deref(), Some(&1));
    }

    #[tokio::test]
    async fn a_missing_value_is_loaded_each_time() {
        let cache = Cache::default();
        let loads = AtomicU32::new(0);
        let none = || async {
            loads.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(None)
        };
        for _ in 0..2 {
            assert!(cache.get(&1, none).await.unwrap().is_none());
        }
        assert_eq!(loads.load(Ordering::SeqCst), 2);
        assert!(cache.peek(&1).is_none());
    }

    #[tokio::test]
    async fn a_full_shard_drops_an_entry_for_each_new_one() {
        let cache = Cache::with_capacity(1);
        for key in 0..1_000 {
            cache.get(&key, || async { Ok::<_, Infallible>(Some(key)) }).await.unwrap();
        }
        let mut entries = 0;
        cache.for_each(|_, _| entries += 1);
        assert!(entries <= SHARDS);
    }
}
