//! Limits over several nodes: exact with Redis, exceeded by at most a tenth and a call without it, and permits of a node
//! that was killed are free again.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Cluster, TcpForwarder, TestRequest, wait_for_response};
use crate::upstream::Reply;

fn redis() -> String {
    std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `make test`")
}

async fn wait_for_redis(cluster: &Cluster, wanted: &str) {
    for node in &cluster.nodes {
        wait_for_response(
            Duration::from_secs(20),
            || node.get("/healthz"),
            |answer| answer.json()["components"]["redis"]["status"] == wanted,
        )
        .await;
    }
}

/// Waits until every node applies the limit, by a header that only it causes.
async fn wait_for_limit(cluster: &Cluster, model: &str) {
    for node in 0..cluster.nodes.len() {
        wait_for_response(
            Duration::from_secs(10),
            || ask(cluster, node, model),
            |answer| answer.header("ratelimit-policy").is_some(),
        )
        .await;
    }
}

fn ask(cluster: &Cluster, node: usize, model: &str) -> TestRequest {
    let body = json!({"model": model, "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]});
    let call = cluster.nodes[node].call(http::Method::POST, "/v1/chat/completions").key(&cluster.key);
    call.header("x-gateway-provider", "openai").json(body)
}

/// Sends calls to all nodes at the same time and returns how many passed.
async fn admitted(cluster: &Cluster, model: &str, each: usize) -> usize {
    let nodes = 0..cluster.nodes.len();
    let calls = nodes.flat_map(|node| (0..each).map(move |_| ask(cluster, node, model).send()));
    let answers = join_all(calls).await;
    answers.iter().filter(|answer| crate::support::limits::passed(answer)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_on_postgres_exceed_a_limit_by_a_tenth_and_a_call_at_most() {
    let cluster = Cluster::start(3, &[]).await;
    cluster.limit(json!({"name": "l", "models": ["m"], "requests": 100, "window": "day"})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    let passed = admitted(&cluster, "m", 60).await;
    assert!((80..=111).contains(&passed), "{passed}");
    // What one node did not use is there for the others.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let rest = admitted(&cluster, "m", 20).await;
    assert!((95..=111).contains(&(passed + rest)), "{passed} + {rest}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_with_redis_let_exactly_the_limit_pass() {
    let url = redis();
    let cluster = Cluster::start(3, &[("GATEWAY_REDIS_URL", &url)]).await;
    wait_for_redis(&cluster, "ok").await;
    cluster.limit(json!({"name": "l", "models": ["m"], "requests": 100, "window": "day"})).await;
    cluster.limit(json!({"name": "t", "models": ["t"], "tokens": 1000, "window": "day"})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    assert_eq!(admitted(&cluster, "m", 50).await, 100);
    // Each call uses 5 tokens, and reserves more.
    let passed = admitted(&cluster, "t", 60).await;
    assert!(passed * 5 <= 1000, "{passed}");
}

/// Occupies all permits by streams at the first node, kills it, and waits until another node gets one.
async fn kill_with_permits(settings: &[(&str, &str)]) {
    let mut cluster = Cluster::start(2, settings).await;
    if !settings.is_empty() {
        wait_for_redis(&cluster, "ok").await;
    }
    cluster.limit(json!({"name": "c", "models": ["m"], "concurrent": 20})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    for _ in 0..20 {
        cluster.upstream.push(Reply::no_response());
    }
    let before = cluster.upstream.arrivals().len();
    let calls: Vec<_> = (0..20).map(|_| tokio::spawn(ask(&cluster, 0, "m").try_send())).collect();
    cluster.upstream.wait_for_requests(before + 20, Duration::from_secs(20)).await;
    ask(&cluster, 1, "m").send().await.expect_error(429, "rate_limited");
    cluster.kill(0);
    for call in calls {
        assert!(call.await.unwrap().is_none());
    }
    // A lease lasts for 30 s. Each request counts for the plan's requests per minute, so few are sent.
    let freed = async {
        while ask(&cluster, 1, "m").send().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), freed).await.expect("the permits are free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permits_of_a_killed_node_are_free_again_on_postgres() {
    kill_with_permits(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permits_of_a_killed_node_are_free_again_with_redis() {
    kill_with_permits(&[("GATEWAY_REDIS_URL", &redis())]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_while_redis_is_gone_and_when_it_is_back() {
    let mut url = url::Url::parse(&redis()).unwrap();
    let to = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(6379));
    let forwarder = TcpForwarder::start(to).await;
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(forwarder.port())).unwrap();
    let through = url.to_string();
    let cluster = Cluster::start(2, &[("GATEWAY_REDIS_URL", &through)]).await;
    wait_for_redis(&cluster, "ok").await;
    cluster.limit(json!({"name": "l", "models": ["m"], "requests": 40, "window": "day"})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    assert_eq!(admitted(&cluster, "m", 10).await, 20);
    forwarder.cut();
    wait_for_redis(&cluster, "down").await;
    let without = admitted(&cluster, "m", 40).await;
    assert!((20..=45).contains(&without), "the database has a bucket of its own: {without}");
    forwarder.open();
    wait_for_redis(&cluster, "ok").await;
    let rest = admitted(&cluster, "m", 20).await;
    assert_eq!(rest, 20, "Redis knows what it had counted");
}
