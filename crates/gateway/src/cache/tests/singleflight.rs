//! Tests of identical concurrent requests.

use std::sync::atomic::AtomicUsize;
use std::sync::{Barrier, mpsc};
use std::thread;

use super::*;

/// Runs a caller on its own thread and runtime, like a worker.
fn on_own_thread<T: Send + 'static>(work: impl AsyncFnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(work())
    })
}

fn wait_for_waiters(waiters: usize, fill: &CacheFill) {
    for _ in 0..1_000 {
        if fill.waiters() == waiters {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{} of {waiters} requests wait", fill.waiters());
}

#[test]
fn sixty_four_concurrent_requests_have_one_leader_and_the_same_answer() {
    let cache = cache();
    let (calls, start) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(8)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (cache, calls, start) = (Arc::clone(&cache), Arc::clone(&calls), Arc::clone(&start));
            on_own_thread(async move || {
                start.wait();
                let one = async || match cache.lookup(request(1, 1)).await {
                    Lookup::Hit(hit) => hit.text().to_owned(),
                    Lookup::Miss(fill) => {
                        let call = calls.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        let entry = fill.complete(response(&format!("answer {call}")), None);
                        String::from_utf8(entry.body.to_vec()).unwrap()
                    }
                };
                futures_util::future::join_all((0..8).map(|_| one())).await
            })
        })
        .collect();
    let responses: Vec<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(responses.len(), 64);
    assert!(responses.iter().all(|answer| answer == "answer 0"), "{responses:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let stats = cache.stats(org(1));
    assert_eq!((stats.misses, stats.hits, stats.entries), (1, 63, 1));
    assert!(stats.coalesced > 0);
}

#[test]
fn when_the_leader_disconnects_exactly_one_waiter_is_promoted_and_the_rest_wait_for_it() {
    let cache = cache();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime.block_on(cache.lookup(request(1, 1))).miss();
    let (sender, fills) = mpsc::channel();
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (cache, sender) = (Arc::clone(&cache), sender.clone());
            on_own_thread(async move || match cache.lookup(request(1, 1)).await {
                Lookup::Hit(hit) => hit.text().to_owned(),
                Lookup::Miss(fill) => {
                    sender.send(()).unwrap();
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    fill.complete(response("second"), None);
                    "led".to_owned()
                }
            })
        })
        .collect();
    wait_for_waiters(16, &first);
    drop(first);
    let mut responses: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    responses.sort();
    assert_eq!(fills.try_iter().count(), 1);
    assert_eq!(responses[0], "led");
    assert!(responses[1..].iter().all(|answer| answer == "second"), "{responses:?}");
}

#[test]
fn after_a_failure_every_waiter_makes_its_own_call() {
    let cache = cache();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime.block_on(cache.lookup(request(1, 1))).miss();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let cache = Arc::clone(&cache);
            on_own_thread(async move || cache.lookup(request(1, 1)).await.miss())
        })
        .collect();
    wait_for_waiters(8, &first);
    let failed_at = std::time::Instant::now();
    first.fail();
    // All of them have a fill at the same time, and none waits for another.
    let mut fills: Vec<CacheFill> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(fills.len(), 8);
    assert!(failed_at.elapsed() < WAIT_TIMEOUT / 2);
    // A fill that succeeds later still stores its entry.
    fills.pop().unwrap().complete(response("mine"), None);
    fills.into_iter().for_each(CacheFill::fail);
    assert_eq!(runtime.block_on(cache.lookup(request(1, 1))).hit().text(), "mine");
}

#[tokio::test]
async fn a_waiter_waits_no_longer_than_its_timeout() {
    let cache = cache();
    let first = cache.lookup(request(1, 1)).await.miss();
    let impatient = CacheRequest { wait_timeout: Duration::from_millis(30), ..request(1, 1) };
    cache.lookup(impatient).await.miss().complete(response("own"), None);
    assert_eq!(cache.lookup(request(1, 1)).await.hit().text(), "own");
    first.complete(response("late"), None);
    assert_eq!(cache.lookup(request(1, 1)).await.hit().text(), "late");
}

#[tokio::test]
async fn a_waiter_that_disconnects_does_not_affect_the_others() {
    let cache = cache();
    let first = cache.lookup(request(1, 1)).await.miss();
    for _ in 0..3 {
        let waiting = tokio::time::timeout(Duration::from_millis(10), cache.lookup(request(1, 1))).await;
        assert!(waiting.is_err());
    }
    drop(first);
    cache.lookup(request(1, 1)).await.miss().complete(response("ok"), None);
    assert_eq!(cache.lookup(request(1, 1)).await.hit().text(), "ok");
}

#[tokio::test]
async fn a_flight_without_members_is_removed() {
    let cache = cache();
    drop(cache.lookup(request(1, 1)).await.miss());
    let tenant = cache.existing_tenant(org(1)).unwrap();
    assert!(tenant.is_idle_since(Timestamp(i64::MAX)));
    cache.lookup(request(1, 1)).await.miss().fail();
    assert!(tenant.is_idle_since(Timestamp(i64::MAX)));
}

#[tokio::test]
async fn refresh_always_leads_and_replaces() {
    let cache = cache();
    store(&cache, request(1, 1), "old").await;
    let refresh = CacheRequest { mode: CacheMode::Refresh, ..request(1, 1) };
    let fill = cache.lookup(refresh).await.miss();
    // While the refresh is in progress, the old entry is still served and a second refresh also makes a call.
    assert_eq!(cache.lookup(request(1, 1)).await.hit().text(), "old");
    let other = cache.lookup(refresh).await.miss();
    fill.complete(response("new"), None);
    assert_eq!(cache.lookup(request(1, 1)).await.hit().text(), "new");
    other.fail();
    assert_eq!(cache.lookup(request(1, 1)).await.hit().text(), "new");
    let stats = cache.stats(org(1));
    assert_eq!((stats.entries, stats.misses), (1, 1));
}

#[tokio::test]
async fn organizations_share_neither_entries_nor_flights() {
    let cache = cache();
    // Deliberately the same key: organizations stay separate even if two keys collide.
    let first = cache.lookup(request(1, 7)).await.miss();
    let second = cache.lookup(request(2, 7)).await.miss();
    first.complete(response("first"), None);
    assert_eq!(cache.lookup(request(1, 7)).await.hit().text(), "first");
    second.complete(response("second"), None);
    assert_eq!(cache.lookup(request(2, 7)).await.hit().text(), "second");
    assert_eq!(cache.lookup(request(1, 7)).await.hit().text(), "first");
    cache.lookup(request(3, 7)).await.miss().fail();
    assert_eq!(cache.purge(org(1), &PurgeScope::All), 1);
    assert_eq!(cache.lookup(request(2, 7)).await.hit().text(), "second");
}
