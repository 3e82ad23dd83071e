//! Tests of two nodes that share a Redis.

use std::sync::Mutex;

use gateway_store::cache_purges::{CachePurges, Generation};
use gateway_store::redis::RedisClient;

use super::*;
use crate::vault::DailyVault;

/// Stands in for the database that the nodes share. Each test has organizations of its own.
#[derive(Default)]
struct SharedPurges(Mutex<HashMap<OrgId, CachePurges>>);

impl PurgeSource for SharedPurges {
    fn generation(&self, org: OrgId, namespace: &str, key: CacheKey) -> Option<Generation> {
        Some(self.0.lock().unwrap().entry(org).or_default().generation(namespace, key))
    }
}

struct Node {
    cache: Arc<Cache>,
    redis: Arc<RedisClient>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test reads its environment and starts its tasks directly")]
fn node(url: &str, purges: &Arc<SharedPurges>, master_key: &str) -> Node {
    let redis = Arc::new(RedisClient::new(url).unwrap());
    let vault = DailyVault::new(&master_key.repeat(32).into(), "cache").unwrap();
    let purges: Arc<dyn PurgeSource> = purges.clone();
    let redis_tier = RedisTier::new(Arc::clone(&redis), vault, purges);
    let cache = Arc::new(Cache::new(64 << 20, Clock::default(), Some(redis_tier)));
    let (running, connection) = (Arc::clone(&cache), Arc::clone(&redis));
    let task = tokio::spawn(async move {
        tokio::select! {
            () = running.run() => {}
            () = connection.run(|_| {}) => {}
        }
    });
    Node { cache, redis, task }
}

#[expect(clippy::disallowed_methods, reason = "a test reads its environment directly")]
fn redis_url() -> String {
    std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `make test`")
}

async fn until(mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the condition was never met");
}

async fn connected(purges: &Arc<SharedPurges>, master_key: &str) -> Node {
    let node = node(&redis_url(), purges, master_key);
    until(async || node.redis.is_up()).await;
    node
}

/// Purges as the management API does: recorded for all nodes, then removed from the memory of this one.
fn purge(purges: &SharedPurges, node: &Node, org: OrgId, scope: &PurgeScope) -> u64 {
    purges.0.lock().unwrap().entry(org).or_default().add(scope, &Uuid::new_v4().to_string());
    node.cache.purge(org, scope)
}

/// A request in an organization that no other test uses.
fn unique_request() -> CacheRequest<'static> {
    CacheRequest { org: OrgId(Uuid::new_v4()), ..request(0, 1) }
}

async fn find(node: &Node, request: CacheRequest<'_>) -> Option<CacheHit> {
    match node.cache.lookup(request).await {
        Lookup::Hit(hit) => Some(hit),
        Lookup::Miss(fill) => {
            fill.fail();
            None
        }
    }
}

#[tokio::test]
async fn an_answer_of_one_node_is_a_hit_on_the_other() {
    let purges = Arc::default();
    let (one, two) = (connected(&purges, "ab").await, connected(&purges, "ab").await);
    let request = unique_request();
    store(&one.cache, request, "from one").await;
    until(async || find(&two, request).await.is_some()).await;
    // The first hit came from Redis; since then the entry is in memory.
    let stats = two.cache.stats(request.org);
    assert_eq!((stats.shared_hits, stats.entries, stats.hits), (1, 1, 1));
    let hit = find(&two, request).await.unwrap();
    assert_eq!((hit.text(), hit.kind), ("from one", HitKind::Exact));
    assert_eq!(hit.entry.headers.len(), 1);
    // Other organizations do not see it.
    assert!(find(&two, CacheRequest { org: OrgId(Uuid::new_v4()), ..request }).await.is_none());
}

#[tokio::test]
async fn what_one_node_purged_comes_to_no_node_through_redis() {
    let purges = Arc::default();
    let one = connected(&purges, "ab").await;
    for scope in [PurgeScope::All, PurgeScope::Namespace("n".into()), PurgeScope::Entry(key(1))] {
        let request = CacheRequest { namespace: "n", ..unique_request() };
        store(&one.cache, request, "x").await;
        let two = connected(&purges, "ab").await;
        until(async || find(&two, request).await.is_some()).await;
        purge(&purges, &one, request.org, &scope);
        // Neither from Redis to the node that purged, nor to one that has nothing in memory.
        let three = connected(&purges, "ab").await;
        assert!(find(&one, request).await.is_none(), "{scope:?}");
        assert!(find(&three, request).await.is_none(), "{scope:?}");
        // What is stored after the purge is shared again.
        store(&one.cache, request, "y").await;
        until(async || find(&three, request).await.is_some()).await;
        assert_eq!(find(&three, request).await.unwrap().text(), "y");
    }
    // Purging another namespace changes nothing.
    let request = CacheRequest { namespace: "n", ..unique_request() };
    store(&one.cache, request, "x").await;
    let (two, three) = (connected(&purges, "ab").await, connected(&purges, "ab").await);
    until(async || find(&two, request).await.is_some()).await;
    purge(&purges, &one, request.org, &PurgeScope::Namespace("other".into()));
    assert!(find(&three, request).await.is_some());
}

#[tokio::test]
async fn an_answer_requested_before_a_purge_does_not_come_back_through_redis() {
    let purges = Arc::default();
    let (one, two) = (connected(&purges, "ab").await, connected(&purges, "ab").await);
    let (request, other) = (unique_request(), unique_request());
    let fill = one.cache.lookup(request).await.miss();
    // The other node purges, and the first has not been notified yet.
    purge(&purges, &two, request.org, &PurgeScope::All);
    fill.complete(response("old"), None);
    // Writes are ordered: once this entry is there, the previous one was written.
    store(&one.cache, other, "mark").await;
    until(async || find(&two, other).await.is_some()).await;
    assert!(find(&two, request).await.is_none());
}

#[tokio::test]
async fn an_entry_of_a_node_with_another_master_key_is_ignored() {
    let purges = Arc::default();
    let (one, two) = (connected(&purges, "ab").await, connected(&purges, "cd").await);
    let three = connected(&purges, "ab").await;
    let request = unique_request();
    store(&one.cache, request, "sealed").await;
    until(async || find(&three, request).await.is_some()).await;
    assert!(find(&two, request).await.is_none());
}

#[tokio::test]
async fn without_redis_the_memory_tier_works_and_no_request_waits() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let node = node(&format!("redis://127.0.0.1:{port}"), &Arc::default(), "ab");
    let request = unique_request();
    let begun = std::time::Instant::now();
    store(&node.cache, request, "mine").await;
    assert_eq!(find(&node, request).await.unwrap().text(), "mine");
    assert_eq!(node.cache.purge(request.org, &PurgeScope::All), 1);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(!node.redis.is_up() && !node.redis.ping(Duration::from_secs(1)).await);
}

#[tokio::test]
async fn an_unresponsive_redis_costs_one_request_a_few_milliseconds() {
    // Accepts, completes the handshake, and then stops responding.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "a test starts its tasks directly")]
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            // The handshake may have several commands in one packet; each gets one reply.
            let read = stream.read(&mut buffer).await.unwrap_or(0);
            let commands = memchr::memchr_iter(b'*', &buffer[..read]).count();
            let _ = stream.write_all("+OK\r\n".repeat(commands).as_bytes()).await;
            let read = stream.read(&mut buffer).await.unwrap_or(0);
            if read > 0 {
                let _ = stream.write_all(b"+PONG\r\n").await;
            }
            silent.push(stream);
        }
    });
    let node = node(&url, &Arc::default(), "ab");
    until(async || node.redis.is_up()).await;
    let begun = std::time::Instant::now();
    for number in 0..20 {
        drop(node.cache.lookup(CacheRequest { key: key(number), ..unique_request() }).await.miss());
    }
    assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
    server.abort();
}
