//! Tests of expiry, memory bounds and the separation of organizations.

use super::*;

#[tokio::test]
async fn an_entry_expires_after_its_ttl() {
    let clock = Clock::default();
    let cache = Arc::new(Cache::new(64 << 20, clock.clone(), None));
    store(&cache, request(1, 1), "x").await;
    clock.advance(59_000);
    let hit = cache.lookup(request(1, 1)).await.hit();
    assert!((58..=60).contains(&hit.entry.age_seconds(clock.now())));
    clock.advance(2_000);
    drop(cache.lookup(request(1, 1)).await.miss());
    assert_eq!((cache.stats(org(1)).entries, cache.bytes()), (0, 0));
}

#[tokio::test]
async fn a_sweep_removes_expired_entries() {
    let clock = Clock::default();
    let cache = Arc::new(Cache::new(64 << 20, clock.clone(), None));
    for number in 0..10 {
        store(&cache, request(1, number), "x").await;
    }
    cache.sweep(clock.now());
    assert_eq!(cache.stats(org(1)).entries, 10);
    clock.advance(61_000);
    cache.sweep(clock.now());
    assert_eq!((cache.stats(org(1)).entries, cache.bytes()), (0, 0));
    assert_eq!(cache.stats(org(1)).misses, 10);
    clock.advance(2 * DAY);
    cache.sweep(clock.now());
    assert!(cache.existing_tenant(org(1)).is_none());
}

#[tokio::test]
async fn memory_stays_bounded_and_used_entries_stay() {
    let limit = 1 << 20;
    let cache = Arc::new(Cache::new(limit, Clock::default(), None));
    let text = "x".repeat(4_000);
    for number in 0..2_000 {
        store(&cache, request(1, number), &text).await;
        assert!(cache.bytes() <= limit);
        // Number 0 is requested all the time.
        cache.lookup(request(1, 0)).await.hit();
    }
    let stats = cache.stats(org(1));
    assert_eq!(stats.bytes, cache.bytes());
    assert!(stats.entries > 100 && stats.evictions == 2_000 - stats.entries, "{stats:?}");
    cache.lookup(request(1, 1_999)).await.hit();
    drop(cache.lookup(request(1, 1)).await.miss());
}

#[tokio::test]
async fn one_organization_cannot_evict_the_entries_of_others() {
    let limit = 1 << 20;
    let cache = Arc::new(Cache::new(limit, Clock::default(), None));
    let text = "x".repeat(4_000);
    for number in 0..20 {
        store(&cache, request(1, number), &text).await;
        store(&cache, request(2, number), &text).await;
    }
    for number in 0..5_000 {
        store(&cache, request(3, number), &text).await;
    }
    assert_eq!((cache.stats(org(1)).entries, cache.stats(org(2)).entries), (20, 20));
    assert!(cache.bytes() <= limit && cache.stats(org(3)).evictions > 4_000);
    // A later organization gets a share as well.
    for number in 0..60 {
        store(&cache, request(4, number), &text).await;
    }
    assert_eq!(cache.stats(org(4)).entries, 60);
}

#[tokio::test]
async fn a_response_that_is_too_large_is_forwarded_but_not_stored() {
    let cache = Arc::new(Cache::new(1 << 20, Clock::default(), None));
    let fill = cache.lookup(request(1, 1)).await.miss();
    let (entry, waited) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            fill.complete(response(&"x".repeat(200_000)), None)
        },
        cache.lookup(request(1, 1))
    );
    assert_eq!(entry.body.len(), 200_000);
    assert_eq!(waited.hit().text().len(), 200_000);
    drop(cache.lookup(request(1, 1)).await.miss());
    assert_eq!(cache.bytes(), 0);
}

#[tokio::test]
async fn a_purge_removes_its_scope_and_requests_in_progress() {
    let cache = cache();
    let named = |namespace, number| CacheRequest { namespace, ..request(1, number) };
    store(&cache, named("a", 1), "x").await;
    store(&cache, named("a", 2), "x").await;
    store(&cache, named("b", 3), "x").await;
    store(&cache, named("", 4), "x").await;
    let in_progress = cache.lookup(named("a", 5)).await.miss();
    assert_eq!(cache.purge(org(1), &PurgeScope::Namespace("a".into())), 2);
    in_progress.complete(response("before the purge"), None);
    drop(cache.lookup(named("a", 5)).await.miss());
    drop(cache.lookup(named("a", 1)).await.miss());
    cache.lookup(named("b", 3)).await.hit();
    assert_eq!(cache.purge(org(1), &PurgeScope::Entry(key(3))), 1);
    assert_eq!(cache.purge(org(1), &PurgeScope::Entry(key(3))), 0);
    assert_eq!(cache.purge(org(1), &PurgeScope::Namespace(String::new())), 1);
    assert_eq!(cache.purge(org(2), &PurgeScope::All), 0);
    assert_eq!(cache.bytes(), 0);
}

#[tokio::test]
async fn statistics_are_kept_by_namespace_and_bounded() {
    let cache = cache();
    store(&cache, CacheRequest { namespace: "kept", ..request(1, 0) }, "x").await;
    cache.lookup(CacheRequest { namespace: "kept", ..request(1, 0) }).await.hit();
    for number in 1..3_000 {
        let namespace = format!("n{number}");
        cache.lookup(CacheRequest { namespace: &namespace, ..request(1, number) }).await.miss().fail();
    }
    let stats = cache.stats(org(1));
    assert!(stats.namespaces.len() <= 1_001, "{}", stats.namespaces.len());
    let kept = stats.namespaces.iter().find(|namespace| &*namespace.name == "kept").unwrap();
    assert_eq!((kept.entries, kept.hits, kept.misses), (1, 1, 1));
    assert_eq!(kept.bytes, stats.bytes);
    assert_eq!((stats.hits, stats.misses), (1, 3_000));
}
