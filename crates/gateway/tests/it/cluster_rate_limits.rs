//! Rate limits over several nodes: exact with Redis, exceeded by at most one slice without it, and available when
//! either store is down.

use std::time::{Duration, SystemTime};

use http::Method;
use serde_json::json;

use crate::support::{Cluster, PASSWORD, TcpForwarder, migrated_postgres, wait_for_response};

const LIMIT: usize = 100;
/// A tenth of the limit.
const SLICE: usize = 10;
const MINUTE_MS: u64 = 60_000;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// Runs `work` within one rate limit window, with an unused key. Windows are clock minutes: waits when the current
/// one is about to end, and repeats the work when it ended meanwhile.
async fn in_one_window<T>(cluster: &mut Cluster, work: impl AsyncFn(&Cluster) -> T) -> T {
    for number in 0..3 {
        let body = json!({"name": format!("window {number}")});
        let made = cluster.manage(0, Method::POST, "/api/v1/keys").json(body).send().await.expect(201);
        made["raw_key"].as_str().unwrap().clone_into(&mut cluster.key);
        let gone = now_ms() % MINUTE_MS;
        if gone > 45_000 {
            tokio::time::sleep(Duration::from_millis(MINUTE_MS + 100 - gone)).await;
        }
        let window = now_ms() / MINUTE_MS;
        let done = work(cluster).await;
        if now_ms() / MINUTE_MS == window {
            return done;
        }
    }
    panic!("three windows were too short");
}

/// Sends requests to all nodes concurrently and returns how many were admitted.
async fn try_request(cluster: &Cluster, times: usize) -> usize {
    let at = |node: usize| async move {
        let mut passed = 0;
        for _ in 0..times / cluster.nodes.len() / 3 {
            // Three at a time, so that requests overlap with a running synchronization.
            let (a, b, c) =
                tokio::join!(cluster.try_request(node), cluster.try_request(node), cluster.try_request(node));
            passed += [a, b, c].into_iter().filter(|passed| *passed).count();
        }
        passed
    };
    let (a, b, c) = tokio::join!(at(0), at(1), at(2));
    a + b + c
}

fn redis() -> String {
    std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `make test`")
}

async fn through_a_forwarder(address: &str) -> (TcpForwarder, String) {
    let mut url = url::Url::parse(address).unwrap();
    let to = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(6379));
    let forwarder = TcpForwarder::start(to).await;
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(forwarder.port())).unwrap();
    (forwarder, url.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_three_nodes_let_the_limit_pass_and_at_most_a_slice() {
    let mut cluster = Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "100")]).await;
    let (passed, later) = in_one_window(&mut cluster, async |cluster| {
        let passed = try_request(cluster, 360).await;
        (passed, [cluster.try_request(0).await, cluster.try_request(1).await, cluster.try_request(2).await])
    })
    .await;
    assert!((LIMIT..=LIMIT + SLICE).contains(&passed), "{passed}");
    assert_eq!(later, [false; 3], "each node knows that the limit is used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_a_burst_at_one_node_has_the_whole_limit() {
    let mut cluster = Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "100")]).await;
    let burst = async |cluster: &Cluster| {
        futures_util::future::join_all((0..130).map(|_| cluster.try_request(2))).await
    };
    let burst = in_one_window(&mut cluster, burst).await;
    assert_eq!(burst.into_iter().filter(|passed| *passed).count(), LIMIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_redis_three_nodes_let_exactly_the_limit_pass() {
    let url = redis();
    let mut cluster =
        Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "100"), ("GATEWAY_REDIS_URL", &url)]).await;
    for node in &cluster.nodes {
        let up =
            |answer: &crate::support::TestResponse| answer.json()["components"]["redis"]["status"] == "ok";
        wait_for_response(Duration::from_secs(5), || node.get("/healthz"), up).await;
    }
    for _ in 0..5 {
        assert_eq!(in_one_window(&mut cluster, async |cluster| try_request(cluster, 360).await).await, LIMIT);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_a_redis_outage_limits_hold_by_the_database_and_redis_is_used_again_after_it() {
    let (forwarder, url) = through_a_forwarder(&redis()).await;
    let mut cluster =
        Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "100"), ("GATEWAY_REDIS_URL", &url)]).await;
    let redis_is = async |cluster: &Cluster, wanted: &str| {
        for node in &cluster.nodes {
            let is = |answer: &crate::support::TestResponse| {
                let health = answer.json();
                health["components"]["redis"]["status"] == wanted && health["status"] == "ok"
            };
            wait_for_response(Duration::from_secs(5), || node.get("/healthz"), is).await;
        }
    };
    redis_is(&cluster, "ok").await;
    let (before, meanwhile) = in_one_window(&mut cluster, async |cluster| {
        forwarder.open();
        redis_is(cluster, "ok").await;
        let before = try_request(cluster, 63).await;
        forwarder.cut();
        (before, try_request(cluster, 180).await)
    })
    .await;
    assert_eq!(before, 63);
    // A request that Redis counted right before the outage is counted again by the database.
    assert!((LIMIT - SLICE..=LIMIT + SLICE).contains(&(before + meanwhile)), "{meanwhile}");
    redis_is(&cluster, "down").await;
    forwarder.open();
    redis_is(&cluster, "ok").await;
    // In the minute of the recovery Redis may have incomplete counts, so both stores count. A request that only one
    // of them admits is still counted by the other.
    let passed = in_one_window(&mut cluster, async |cluster| try_request(cluster, 360).await).await;
    assert!((LIMIT - SLICE..=LIMIT + SLICE).contains(&passed), "{passed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_to_log_in_are_counted_over_all_nodes() {
    let database = migrated_postgres().await;
    let few = vec![("GATEWAY_AUTH_ATTEMPTS", "4")];
    let cluster = Cluster::start_each(database, &[few.clone(), few]).await;
    let login = json!({"email": "ada@example.com", "password": "wrong password"});
    let mut answers = Vec::new();
    for attempt in 0..6 {
        let answer = cluster.nodes[attempt % 2].post("/api/v1/login", &login).send().await;
        answers.push(answer.status.as_u16());
    }
    assert_eq!(answers, [401, 401, 401, 401, 429, 429]);
    let right = json!({"email": "ada@example.com", "password": PASSWORD});
    cluster.nodes[1].post("/api/v1/login", &right).send().await.expect_error(429, "rate_limited");
}
