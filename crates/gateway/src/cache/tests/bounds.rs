//! Tests of time, room and the borders between organizations.

use super::*;

#[tokio::test]
async fn an_entry_is_over_when_its_time_is() {
    let clock = Clock::default();
    let cache = Arc::new(Cache::new(64 << 20, clock.clone(), None));
    store(&cache, ask(1, 1), "x").await;
    clock.advance(59_000);
    let hit = cache.look(ask(1, 1)).await.hit();
    assert!((58..=60).contains(&hit.entry.age_seconds(clock.now())));
    clock.advance(2_000);
    drop(cache.look(ask(1, 1)).await.led());
    assert_eq!((cache.stats(org(1)).entries, cache.bytes()), (0, 0));
}

#[tokio::test]
async fn sweeping_frees_what_nobody_asks_for_again() {
    let clock = Clock::default();
    let cache = Arc::new(Cache::new(64 << 20, clock.clone(), None));
    for number in 0..10 {
        store(&cache, ask(1, number), "x").await;
    }
    cache.sweep(clock.now());
    assert_eq!(cache.stats(org(1)).entries, 10);
    clock.advance(61_000);
    cache.sweep(clock.now());
    assert_eq!((cache.stats(org(1)).entries, cache.bytes()), (0, 0));
    assert_eq!(cache.stats(org(1)).misses, 10);
    clock.advance(2 * DAY);
    cache.sweep(clock.now());
    assert!(cache.known(org(1)).is_none());
}

#[tokio::test]
async fn memory_stays_within_the_bound_and_what_is_used_stays() {
    let limit = 1 << 20;
    let cache = Arc::new(Cache::new(limit, Clock::default(), None));
    let text = "x".repeat(4_000);
    for number in 0..2_000 {
        store(&cache, ask(1, number), &text).await;
        assert!(cache.bytes() <= limit);
        // Number 0 is asked for all the time.
        cache.look(ask(1, 0)).await.hit();
    }
    let stats = cache.stats(org(1));
    assert_eq!(stats.bytes, cache.bytes());
    assert!(stats.entries > 100 && stats.evictions == 2_000 - stats.entries, "{stats:?}");
    cache.look(ask(1, 1_999)).await.hit();
    drop(cache.look(ask(1, 1)).await.led());
}

#[tokio::test]
async fn one_organization_cannot_push_the_others_out() {
    let limit = 1 << 20;
    let cache = Arc::new(Cache::new(limit, Clock::default(), None));
    let text = "x".repeat(4_000);
    for number in 0..20 {
        store(&cache, ask(1, number), &text).await;
        store(&cache, ask(2, number), &text).await;
    }
    for number in 0..5_000 {
        store(&cache, ask(3, number), &text).await;
    }
    assert_eq!((cache.stats(org(1)).entries, cache.stats(org(2)).entries), (20, 20));
    assert!(cache.bytes() <= limit && cache.stats(org(3)).evictions > 4_000);
    // And who comes later gets a share as well.
    for number in 0..60 {
        store(&cache, ask(4, number), &text).await;
    }
    assert_eq!(cache.stats(org(4)).entries, 60);
}

#[tokio::test]
async fn what_is_too_large_is_handed_on_but_not_kept() {
    let cache = Arc::new(Cache::new(1 << 20, Clock::default(), None));
    let lead = cache.look(ask(1, 1)).await.led();
    let (entry, followed) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            lead.complete(answer(&"x".repeat(200_000)), None)
        },
        cache.look(ask(1, 1))
    );
    assert_eq!(entry.body.len(), 200_000);
    assert_eq!(followed.hit().text().len(), 200_000);
    drop(cache.look(ask(1, 1)).await.led());
    assert_eq!(cache.bytes(), 0);
}

#[tokio::test]
async fn a_purge_takes_what_it_names_and_what_was_under_way() {
    let cache = cache();
    let named = |namespace, number| Ask { namespace, ..ask(1, number) };
    store(&cache, named("a", 1), "x").await;
    store(&cache, named("a", 2), "x").await;
    store(&cache, named("b", 3), "x").await;
    store(&cache, named("", 4), "x").await;
    let under_way = cache.look(named("a", 5)).await.led();
    assert_eq!(cache.purge(org(1), PurgeScope::Namespace("a".into())).await, 2);
    under_way.complete(answer("before the purge"), None);
    drop(cache.look(named("a", 5)).await.led());
    drop(cache.look(named("a", 1)).await.led());
    cache.look(named("b", 3)).await.hit();
    assert_eq!(cache.purge(org(1), PurgeScope::Entry(key(3))).await, 1);
    assert_eq!(cache.purge(org(1), PurgeScope::Entry(key(3))).await, 0);
    assert_eq!(cache.purge(org(1), PurgeScope::Namespace(String::new())).await, 1);
    assert_eq!(cache.purge(org(2), PurgeScope::All).await, 0);
    assert_eq!(cache.bytes(), 0);
}

#[tokio::test]
async fn counts_are_kept_by_namespace_and_never_without_bound() {
    let cache = cache();
    store(&cache, Ask { namespace: "kept", ..ask(1, 0) }, "x").await;
    cache.look(Ask { namespace: "kept", ..ask(1, 0) }).await.hit();
    for number in 1..3_000 {
        let namespace = format!("n{number}");
        cache.look(Ask { namespace: &namespace, ..ask(1, number) }).await.led().failed();
    }
    let stats = cache.stats(org(1));
    assert!(stats.namespaces.len() <= 1_001, "{}", stats.namespaces.len());
    let kept = stats.namespaces.iter().find(|namespace| &*namespace.name == "kept").unwrap();
    assert_eq!((kept.entries, kept.hits, kept.misses), (1, 1, 1));
    assert_eq!(kept.bytes, stats.bytes);
    assert_eq!((stats.hits, stats.misses), (1, 3_000));
}
