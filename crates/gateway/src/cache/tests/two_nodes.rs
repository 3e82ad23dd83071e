//! Two nodes that share a Redis.

use gateway_store::redis::RedisClient;

use super::*;
use crate::vault::Vault;

struct Node {
    cache: Arc<Cache>,
    shared: Arc<RedisClient>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test reads its environment and starts its tasks directly")]
fn node(url: &str, name: &str, master_key: &str) -> Node {
    let shared = Arc::new(RedisClient::new(url).unwrap());
    let vault = Vault::derived(&master_key.repeat(32).into(), "cache").unwrap();
    let second = Second::new(Arc::clone(&shared), vault, format!("{name}-{}", Uuid::new_v4()));
    let cache = Arc::new(Cache::new(64 << 20, Clock::default(), Some(second)));
    let (running, connection) = (Arc::clone(&cache), Arc::clone(&shared));
    let task = tokio::spawn(async move {
        tokio::select! {
            () = running.run() => {}
            () = connection.run(|_| {}) => {}
        }
    });
    Node { cache, shared, task }
}

#[expect(clippy::disallowed_methods, reason = "a test reads its environment directly")]
fn redis() -> String {
    std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `make test`")
}

async fn until(mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen");
}

async fn connected(name: &str, master_key: &str) -> Node {
    let node = node(&redis(), name, master_key);
    until(async || node.shared.is_up()).await;
    node
}

/// An organization that no other test uses.
fn asked() -> Ask<'static> {
    Ask { org: OrgId(Uuid::new_v4()), ..ask(0, 1) }
}

/// Does this node find the entry?
async fn finds(node: &Node, ask: Ask<'_>) -> Option<Hit> {
    match node.cache.look(ask).await {
        Lookup::Hit(hit) => Some(hit),
        Lookup::Lead(lead) => {
            lead.failed();
            None
        }
    }
}

#[tokio::test]
async fn an_answer_of_one_node_is_a_hit_on_the_other() {
    let (one, two) = (connected("one", "ab").await, connected("two", "ab").await);
    let ask = asked();
    store(&one.cache, ask, "from one").await;
    until(async || finds(&two, ask).await.is_some()).await;
    // The first time it came from Redis, from then on it is in memory.
    let stats = two.cache.stats(ask.org);
    assert_eq!((stats.shared_hits, stats.entries, stats.hits), (1, 1, 1));
    let hit = finds(&two, ask).await.unwrap();
    assert_eq!((hit.text(), hit.how), ("from one", How::Exact));
    assert_eq!(hit.entry.headers.len(), 1);
    // Nobody else's.
    assert!(finds(&two, Ask { org: OrgId(Uuid::new_v4()), ..ask }).await.is_none());
}

#[tokio::test]
async fn what_one_node_empties_is_empty_on_the_other() {
    let (one, two) = (connected("one", "ab").await, connected("two", "ab").await);
    for scope in [PurgeScope::All, PurgeScope::Namespace("n".into()), PurgeScope::Entry(key(1))] {
        let ask = Ask { namespace: "n", ..asked() };
        store(&one.cache, ask, "x").await;
        until(async || finds(&two, ask).await.is_some()).await;
        one.cache.purge(ask.org, scope.clone()).await;
        assert!(finds(&one, ask).await.is_none(), "{scope:?}");
        until(async || finds(&two, ask).await.is_none()).await;
    }
    // Emptying another namespace changes nothing.
    let ask = Ask { namespace: "n", ..asked() };
    store(&one.cache, ask, "x").await;
    until(async || finds(&two, ask).await.is_some()).await;
    let three = connected("three", "ab").await;
    one.cache.purge(ask.org, PurgeScope::Namespace("other".into())).await;
    assert!(finds(&three, ask).await.is_some());
}

#[tokio::test]
async fn an_answer_asked_for_before_a_purge_does_not_come_back_through_redis() {
    let (one, two) = (connected("one", "ab").await, connected("two", "ab").await);
    let (ask, other) = (asked(), asked());
    let lead = one.cache.look(ask).await.led();
    // The other node empties, and the first has not heard of it yet.
    two.cache.purge(ask.org, PurgeScope::All).await;
    lead.complete(answer("old"), None);
    // Writes go in order: when this one is there, the one before it was written.
    store(&one.cache, other, "mark").await;
    until(async || finds(&two, other).await.is_some()).await;
    assert!(finds(&two, ask).await.is_none());
}

#[tokio::test]
async fn an_entry_of_a_node_with_another_master_key_is_no_entry() {
    let (one, two) = (connected("one", "ab").await, connected("two", "cd").await);
    let three = connected("three", "ab").await;
    let ask = asked();
    store(&one.cache, ask, "sealed").await;
    until(async || finds(&three, ask).await.is_some()).await;
    assert!(finds(&two, ask).await.is_none());
}

#[tokio::test]
async fn without_redis_memory_goes_on_and_nobody_waits() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let node = node(&format!("redis://127.0.0.1:{port}"), "alone", "ab");
    let ask = asked();
    let begun = std::time::Instant::now();
    store(&node.cache, ask, "mine").await;
    assert_eq!(finds(&node, ask).await.unwrap().text(), "mine");
    assert_eq!(node.cache.purge(ask.org, PurgeScope::All).await, 1);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(!node.shared.is_up() && !node.shared.ping(Duration::from_secs(1)).await);
}

#[tokio::test]
async fn a_redis_that_does_not_answer_costs_one_request_a_few_milliseconds() {
    // It accepts, says hello to the first commands, and then nothing any more.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "a test starts its tasks directly")]
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            // The handshake of the client may have several commands in one packet; one answer for each.
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
    let node = node(&url, "patient", "ab");
    until(async || node.shared.is_up()).await;
    let begun = std::time::Instant::now();
    for number in 0..20 {
        drop(node.cache.look(Ask { key: key(number), ..asked() }).await.led());
    }
    assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
    server.abort();
}
