//! By how much several nodes exceed a limit together: of tokens, of shares that are kept for classes, and with a node whose
//! clock is behind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use crate::support::limits::{
    MANY_CALLS, admitted, answer, ask, chat_body, passed, redis, wait_for_limit, wait_for_redis,
};
use crate::support::{Account, Backend, Cluster, TestApp, TestRequest, migrated_config, wait_for_response};
use crate::upstream::{Reply, Upstream};

/// What is given back after a second is in the shared bucket.
const GIVEN_BACK: Duration = Duration::from_secs(3);

async fn three_nodes(settings: &[(&str, &str)]) -> Cluster {
    let settings: Vec<(&str, &str)> = settings.iter().copied().chain([MANY_CALLS]).collect();
    let cluster = Cluster::start(3, &settings).await;
    if settings.len() > 1 {
        wait_for_redis(&cluster, "ok").await;
    }
    cluster
}

/// Returns when all nodes know the limits that were made before.
async fn wait_for_limits(cluster: &Cluster) {
    cluster.limit(json!({"name": "warm", "models": ["warm"], "requests": 1000, "window": "day"})).await;
    wait_for_limit(cluster, "warm").await;
}

/// Each call uses 30 tokens, which is less than it reserves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_on_postgres_exceed_a_limit_of_tokens_by_a_tenth_and_a_call_at_most() {
    let cluster = three_nodes(&[]).await;
    let usage = r#"{"usage":{"prompt_tokens":20,"completion_tokens":10}}"#;
    cluster.upstream.set_default_reply(Reply::json(200, usage));
    cluster.limit(json!({"name": "t", "models": ["t"], "tokens": 3000, "window": "day"})).await;
    wait_for_limits(&cluster).await;
    let burst = admitted(&cluster, "t", 60).await;
    assert!((60..=111).contains(&burst), "{burst}");
    tokio::time::sleep(GIVEN_BACK).await;
    let rest = admitted(&cluster, "t", 20).await;
    assert!((85..=111).contains(&(burst + rest)), "{burst} + {rest}");
}

/// A call that used more than it reserved leaves the bucket of all nodes below zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_call_used_beyond_its_reservation_is_missing_on_every_node() {
    const USED: u64 = 300;
    let cluster = three_nodes(&[]).await;
    let usage = r#"{"usage":{"prompt_tokens":290,"completion_tokens":10}}"#;
    cluster.upstream.set_default_reply(Reply::json(200, usage));
    let definition = json!({"name": "t", "models": ["t"], "tokens": 1000, "window": "day"});
    let path = cluster.in_org("/limits");
    let made = cluster.manage(0, Method::POST, &path).json(definition).send().await.expect(201);
    let path = format!("{path}/{}/usage", made["id"].as_str().unwrap());
    wait_for_limits(&cluster).await;
    let mut used = 0;
    for node in (0..3).cycle() {
        if !passed(&ask(&cluster, node, "t").send().await) {
            break;
        }
        used += USED;
        assert!(used <= 1000 + USED, "{used}");
        // The node takes what the call used beyond its reservation out of the shared bucket.
        wait_for_response(
            Duration::from_secs(20),
            || cluster.manage(0, Method::GET, &path),
            |answer| answer.json()["buckets"][0]["used"].as_u64() >= Some(used),
        )
        .await;
    }
    assert!(used >= 900, "{used}");
    for node in 0..3 {
        ask(&cluster, node, "t").send().await.expect_error(429, "rate_limited");
    }
}

/// A key of the class `prod`, for whose calls 70 of 100 are kept.
async fn keep_a_share(cluster: &Cluster) -> String {
    let key = json!({"name": "prod", "class": "prod"});
    let made = cluster.manage(0, Method::POST, "/api/v1/keys").json(key).send().await.expect(201);
    let limit = json!({"name": "l", "models": ["gpt-4o"], "requests": 100, "window": "day", "reserve": {"prod": 0.7}});
    cluster.limit(limit).await;
    wait_for_limits(cluster).await;
    made["raw_key"].as_str().unwrap().to_owned()
}

/// Sends calls of a key to all nodes at the same time and returns how many passed.
async fn admitted_of(cluster: &Cluster, key: &str, each: usize) -> usize {
    let nodes = 0..cluster.nodes.len();
    let calls = nodes.flat_map(|node| (0..each).map(move |_| cluster.chat(node, key).send()));
    join_all(calls).await.iter().filter(|answer| passed(answer)).count()
}

/// More calls of others than there are, while the class calls at these nodes. Returns how many of the class and of others
/// passed.
async fn admitted_beside(cluster: &Cluster, prod: &str, nodes_of_class: &[usize]) -> (usize, usize) {
    let (mut of_class, mut of_others) = (0, 0);
    for _ in 0..3 {
        // A class without a call for ten seconds is idle.
        for node in nodes_of_class {
            cluster.chat(*node, prod).send().await.expect(200);
            of_class += 1;
        }
        of_others += admitted_of(cluster, &cluster.key, 15).await;
    }
    (of_class, of_others)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_of_a_class_is_kept_by_three_nodes_on_postgres() {
    let cluster = three_nodes(&[]).await;
    let prod = keep_a_share(&cluster).await;
    let (early, of_others) = admitted_beside(&cluster, &prod, &[0, 1, 2]).await;
    assert_eq!(early, 9);
    // Of the 30 that are not kept, the class used three before; and all nodes exceed them by a tenth and a call.
    assert!((15..=30 - 3 + 11).contains(&of_others), "{of_others}");
    let burst = admitted_of(&cluster, &prod, 40).await;
    tokio::time::sleep(GIVEN_BACK).await;
    let of_class = early + burst + admitted_of(&cluster, &prod, 20).await;
    assert!(of_class >= 70 - 11, "the class has its share: {of_class}");
    assert!((95..=111).contains(&(of_class + of_others)), "{of_class} + {of_others}");
}

/// Redis knows of the calls of the class at another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_of_a_class_is_kept_exactly_by_three_nodes_with_redis() {
    let url = redis();
    let cluster = three_nodes(&[("GATEWAY_REDIS_URL", &url)]).await;
    let prod = keep_a_share(&cluster).await;
    let (early, of_others) = admitted_beside(&cluster, &prod, &[0]).await;
    assert_eq!((early, of_others), (3, 29), "one of the 30 was used by the class before");
    assert_eq!(admitted_of(&cluster, &prod, 40).await, 100 - 29 - 3);
}

/// Nodes in this process, each with a clock of its own.
struct ClockedNodes {
    nodes: Vec<TestApp>,
    ada: Account,
    _upstream: Upstream,
}

impl ClockedNodes {
    async fn start() -> Self {
        let upstream = Upstream::start().await;
        upstream.set_default_reply(answer());
        let url = upstream.url();
        let data = Arc::new(tempfile::tempdir().unwrap());
        let settings = [("GATEWAY_PROVIDER_OPENAI_BASE_URL", url.as_str()), MANY_CALLS];
        let config = migrated_config(Backend::Postgres, &data, &settings).await;
        let mut nodes = vec![TestApp::start(config.clone(), data).await];
        for _ in 0..2 {
            let (data, mut config) = (Arc::new(tempfile::tempdir().unwrap()), config.clone());
            config.data_dir = data.path().to_owned();
            nodes.push(TestApp::start(config, data).await);
        }
        let ada = nodes[0].signup("acme").await;
        Self { nodes, ada, _upstream: upstream }
    }

    async fn limit(&self, model: &str) {
        let path = format!("/api/v1/orgs/{}/limits", self.ada.org_id);
        let body = json!({"name": model, "models": [model], "requests": 100, "window": "day"});
        self.nodes[0].post(&path, body).bearer(&self.ada.token).send().await.expect(201);
    }

    fn ask(&self, node: usize, model: &str) -> TestRequest {
        let call = self.nodes[node].post("/v1/chat/completions", chat_body(model)).key(&self.ada.api_key);
        call.header("x-gateway-provider", "openai")
    }

    async fn admitted(&self, model: &str, each: usize) -> usize {
        let nodes = 0..self.nodes.len();
        let calls = nodes.flat_map(|node| (0..each).map(move |_| self.ask(node, model).send()));
        join_all(calls).await.iter().filter(|answer| passed(answer)).count()
    }
}

/// The clock of the database decides what a bucket has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_steps_back_lets_nothing_more_pass() {
    let cluster = ClockedNodes::start().await;
    cluster.limit("m").await;
    cluster.limit("warm").await;
    for node in 0..3 {
        wait_for_response(
            Duration::from_secs(10),
            || cluster.ask(node, "warm"),
            |answer| answer.header("ratelimit-policy").is_some(),
        )
        .await;
    }
    let before = cluster.admitted("m", 15).await;
    cluster.nodes[2].app.services.clock.advance(-2_000);
    let after = cluster.admitted("m", 50).await;
    assert!((80..=111).contains(&(before + after)), "{before} + {after}");
    // The node that is behind gives back what it does not use, and has its part of the rest.
    tokio::time::sleep(GIVEN_BACK).await;
    let rest = cluster.admitted("m", 20).await;
    assert!((95..=111).contains(&(before + after + rest)), "{before} + {after} + {rest}");
    cluster.ask(2, "warm").send().await.expect(200);
}
