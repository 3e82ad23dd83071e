//! Tests of the loading cache: loads beside invalidations and other loads, failures, and full shards.

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
