//! Limits over several nodes: exact with Redis, exceeded by at most a tenth and a call without it, and permits of a node
//! that was killed are free again.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::support::limits::{MANY_CALLS, admitted, answer, ask, redis, wait_for_limit, wait_for_redis};
use crate::support::{Cluster, TcpForwarder, migrated_postgres, wait_for_response};
use crate::upstream::{Reply, Signal};

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

/// What another node used is seen at each.
async fn see_usage_of_other_nodes(settings: &[(&str, &str)]) {
    let cluster = Cluster::start(2, settings).await;
    if !settings.is_empty() {
        wait_for_redis(&cluster, "ok").await;
    }
    let definition = json!({"name": "l", "models": ["m"], "requests": 100, "concurrent": 5, "window": "day"});
    let path = cluster.in_org("/limits");
    let made = cluster.manage(0, Method::POST, &path).json(definition).send().await.expect(201);
    let path = format!("{path}/{}/usage", made["id"].as_str().unwrap());
    wait_for_limit(&cluster, "m").await;
    let signal = Signal::new();
    let before = cluster.upstream.requests().len();
    cluster.upstream.push(answer().wait_before_head(&signal));
    let call = tokio::spawn(ask(&cluster, 0, "m").send());
    cluster.upstream.wait_for_requests(before + 1, Duration::from_secs(20)).await;
    // What nodes hold in advance goes back when they do not use it.
    for node in 0..2 {
        wait_for_response(
            Duration::from_secs(20),
            || cluster.manage(node, Method::GET, &path),
            |usage| {
                let usage = usage.json();
                let used = |unit: &str| {
                    let buckets = usage["buckets"].as_array().unwrap();
                    let of_unit = buckets.iter().find(|bucket| bucket["unit"] == unit);
                    of_unit.map(|bucket| (bucket["used"].clone(), bucket["limit"].clone()))
                };
                usage["scope"] == "all"
                    && used("concurrent") == Some((json!(1), json!(5)))
                    && used("requests").is_some_and(|(used, _)| used.as_u64() >= Some(3))
            },
        )
        .await;
    }
    signal.notify();
    call.await.unwrap().expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_usage_of_a_limit_is_that_of_all_nodes_on_postgres() {
    see_usage_of_other_nodes(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_usage_of_a_limit_is_that_of_all_nodes_with_redis() {
    see_usage_of_other_nodes(&[("GATEWAY_REDIS_URL", &redis())]).await;
}

/// Redis has no list of buckets: each node shows those that it has seen, with what all nodes used of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_buckets_that_a_node_has_seen_show_what_all_nodes_used() {
    let url = redis();
    let cluster = Cluster::start(2, &[("GATEWAY_REDIS_URL", &url)]).await;
    wait_for_redis(&cluster, "ok").await;
    let definition =
        json!({"name": "each", "models": ["m"], "per": "user", "requests": 100, "window": "day"});
    let path = cluster.in_org("/limits");
    let made = cluster.manage(0, Method::POST, &path).json(definition).send().await.expect(201);
    let path = format!("{path}/{}/usage", made["id"].as_str().unwrap());
    wait_for_limit(&cluster, "m").await;
    for (node, user) in [(0, "ann"), (0, "ann"), (0, "ann"), (1, "ann"), (1, "bob")] {
        ask(&cluster, node, "m").header("x-gateway-user", user).send().await.expect(200);
    }
    let used = async |node: usize| {
        let usage = cluster.manage(node, Method::GET, &path).send().await.expect(200);
        assert_eq!(usage["scope"], "node");
        let buckets = usage["buckets"].as_array().unwrap();
        ["ann", "bob"].map(|user| {
            let of_user = buckets.iter().find(|bucket| bucket["bucket"] == user);
            of_user.and_then(|bucket| bucket["used"].as_u64())
        })
    };
    assert_eq!(used(0).await, [Some(4), None]);
    assert_eq!(used(1).await, [Some(4), Some(1)]);
}

/// Occupies all permits at the first of three nodes, kills it, and waits until another node gets one.
async fn kill_with_permits(settings: &[(&str, &str)]) {
    let settings_of_all: Vec<(&str, &str)> = settings.iter().copied().chain([MANY_CALLS]).collect();
    let mut cluster = Cluster::start(3, &settings_of_all).await;
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
    for node in 1..3 {
        ask(&cluster, node, "m").send().await.expect_error(429, "rate_limited");
    }
    cluster.kill(0);
    let killed = Instant::now();
    for call in calls {
        assert!(call.await.unwrap().is_none());
    }
    // A lease lasts for 30 s after its last renewal.
    let freed = async {
        while ask(&cluster, 1, "m").send().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), freed).await.expect("the permits are free again");
    let after = killed.elapsed();
    assert!(after <= Duration::from_secs(33), "30 s, and some for the call that finds out: {after:?}");
    ask(&cluster, 2, "m").send().await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permits_of_a_killed_node_are_free_again_on_postgres() {
    kill_with_permits(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permits_of_a_killed_node_are_free_again_with_redis() {
    kill_with_permits(&[("GATEWAY_REDIS_URL", &redis())]).await;
}

/// A call waits at one node for the permit that a call of another node holds.
async fn wait_for_a_permit_of_another_node(settings: &[(&str, &str)]) {
    let settings_of_all: Vec<(&str, &str)> = settings.iter().copied().chain([MANY_CALLS]).collect();
    let cluster = Cluster::start(2, &settings_of_all).await;
    if !settings.is_empty() {
        wait_for_redis(&cluster, "ok").await;
    }
    cluster.limit(json!({"name": "one", "models": ["m"], "concurrent": 1})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    let signal = Signal::new();
    let before = cluster.upstream.arrivals().len();
    cluster.upstream.push(answer().wait_before_head(&signal));
    let first = tokio::spawn(ask(&cluster, 0, "m").send());
    cluster.upstream.wait_for_requests(before + 1, Duration::from_secs(20)).await;
    let refused = ask(&cluster, 1, "m").header("x-gateway-wait", "300").send().await;
    refused.expect_error(429, "rate_limited");
    let waiting = tokio::spawn(ask(&cluster, 1, "m").header("x-gateway-wait", "30000").send());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "it waits while the other node's call runs");
    assert_eq!(cluster.upstream.arrivals().len(), before + 1);
    signal.notify();
    first.await.unwrap().expect(200);
    let ended = Instant::now();
    waiting.await.unwrap().expect(200);
    // A node gives back what it did not use for a second, and who waits looks every quarter of one.
    assert!(ended.elapsed() < Duration::from_secs(10), "{:?}", ended.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_permit_of_another_node_on_postgres() {
    wait_for_a_permit_of_another_node(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_permit_of_another_node_with_redis() {
    wait_for_a_permit_of_another_node(&[("GATEWAY_REDIS_URL", &redis())]).await;
}

/// The node that calls run on forgets the buckets of a limit that is disabled, but not the permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permits_of_a_disabled_limit_are_given_back() {
    let cluster = Cluster::start(2, &[MANY_CALLS]).await;
    let definition =
        |enabled: bool| json!({"name": "c", "models": ["m"], "concurrent": 2, "enabled": enabled});
    let path = cluster.in_org("/limits");
    let made = cluster.manage(0, Method::POST, &path).json(definition(true)).send().await.expect(201);
    let path = format!("{path}/{}", made["id"].as_str().unwrap());
    let enable = async |enabled: bool| -> Value {
        cluster.manage(0, Method::PUT, &path).json(definition(enabled)).send().await.expect(200)
    };
    // With another limit, the node keeps a state of which the buckets of the disabled one leave.
    cluster
        .limit(json!({"name": "rest", "models": ["m", "warm"], "requests": 100_000, "window": "day"}))
        .await;
    wait_for_limit(&cluster, "warm").await;
    let signal = Signal::new();
    let before = cluster.upstream.arrivals().len();
    for _ in 0..2 {
        cluster.upstream.push(answer().wait_before_head(&signal));
    }
    let calls: Vec<_> = (0..2).map(|_| tokio::spawn(ask(&cluster, 0, "m").send())).collect();
    cluster.upstream.wait_for_requests(before + 2, Duration::from_secs(20)).await;
    ask(&cluster, 1, "m").send().await.expect_error(429, "rate_limited");
    enable(false).await;
    // The first node knows it when a third call passes there.
    let at_first = || ask(&cluster, 0, "m");
    wait_for_response(Duration::from_secs(10), at_first, |answer| answer.status == 200).await;
    signal.notify();
    for call in calls {
        call.await.unwrap().expect(200);
    }
    enable(true).await;
    wait_for_response(
        Duration::from_secs(20),
        || ask(&cluster, 1, "m"),
        |answer| {
            let policy = answer.header("ratelimit-policy").unwrap_or_default();
            answer.status == 200 && policy.contains("\"c\"")
        },
    )
    .await;
}

/// The first calls find out, and the others do not wait for the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_do_not_wait_while_the_database_is_gone() {
    let database = migrated_postgres().await;
    let (forwarder, through) = TcpForwarder::to_database(&database).await;
    let node = vec![("GATEWAY_DATABASE_URL", through.as_str()), MANY_CALLS];
    let cluster = Cluster::start_each(database, &[node]).await;
    // A tenth of them is less than one, so that every call needs the database.
    cluster.limit(json!({"name": "l", "models": ["m"], "requests": 9, "window": "day"})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    ask(&cluster, 0, "m").send().await.expect(200);
    forwarder.cut();
    for _ in 0..2 {
        ask(&cluster, 0, "m").send().await.expect(200);
    }
    let began = Instant::now();
    for _ in 0..6 {
        ask(&cluster, 0, "m").send().await.expect(200);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "half a second each at most, and not two: {took:?}");
    ask(&cluster, 0, "m").send().await.expect_error(429, "rate_limited");
    forwarder.open();
    // When it is back, it counts for all again: its bucket knows one call.
    wait_for_response(Duration::from_secs(20), || ask(&cluster, 0, "m"), |answer| answer.status == 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_without_the_database_have_a_part_each() {
    let database = migrated_postgres().await;
    let (forwarder, through) = TcpForwarder::to_database(&database).await;
    let node = vec![("GATEWAY_DATABASE_URL", through.as_str()), MANY_CALLS];
    let cluster = Cluster::start_each(database, &[node.clone(), node]).await;
    cluster.limit(json!({"name": "one", "models": ["one"], "requests": 1, "window": "day"})).await;
    cluster.limit(json!({"name": "c", "models": ["c"], "concurrent": 2})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    forwarder.cut();
    // A part is at least one call, which is never larger than the limit.
    for node in 0..2 {
        ask(&cluster, node, "one").send().await.expect(200);
        ask(&cluster, node, "one").send().await.expect_error(429, "rate_limited");
    }
    for _ in 0..2 {
        cluster.upstream.push(Reply::no_response());
    }
    let before = cluster.upstream.arrivals().len();
    let held = [0, 1].map(|node| tokio::spawn(ask(&cluster, node, "c").try_send()));
    cluster.upstream.wait_for_requests(before + 2, Duration::from_secs(20)).await;
    for node in 0..2 {
        ask(&cluster, node, "c").send().await.expect_error(429, "rate_limited");
    }
    for call in held {
        call.abort();
    }
}

/// A node that last saw the permits of another one does not take them for its own.
async fn end_calls_of_another_node(cluster: &Cluster) {
    let signal = Signal::new();
    for _ in 0..2 {
        cluster.upstream.push(Reply::json(200, "{}").wait_before_head(&signal));
    }
    let before = cluster.upstream.arrivals().len();
    let held = [0, 0].map(|node| tokio::spawn(ask(cluster, node, "c").send()));
    cluster.upstream.wait_for_requests(before + 2, Duration::from_secs(20)).await;
    ask(cluster, 1, "c").send().await.expect_error(429, "rate_limited");
    signal.notify();
    for call in held {
        call.await.unwrap().expect(200);
    }
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
    cluster.limit(json!({"name": "c", "models": ["c"], "concurrent": 2})).await;
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(&cluster, "warm").await;
    assert_eq!(admitted(&cluster, "m", 10).await, 20);
    end_calls_of_another_node(&cluster).await;
    assert_eq!(cluster.exactness().await, "exact");
    forwarder.cut();
    wait_for_redis(&cluster, "down").await;
    assert_eq!(cluster.exactness().await, "slices");
    ask(&cluster, 1, "c").send().await.expect(200);
    let without = admitted(&cluster, "m", 40).await;
    assert!((20..=45).contains(&without), "the database has a bucket of its own: {without}");
    forwarder.open();
    wait_for_redis(&cluster, "ok").await;
    let rest = admitted(&cluster, "m", 20).await;
    assert_eq!(rest, 20, "Redis knows what it had counted");
}
