//! Background work of several nodes: done by one node, finished by another when that one dies, and never done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gateway::clock::Clock;
use gateway_core::time::DAY;
use gateway_store::{Db, StoreError, logs};
use http::Method;
use serde_json::{Value, json};

use crate::support::log_rows::row_in_org;
use crate::support::{Cluster, log_id, skills};
use crate::upstream::{Reply, Request, Signal, Upstream};

const ENTERPRISE: [(&str, &str); 2] =
    [("GATEWAY_DEFAULT_PLAN", "enterprise"), ("GATEWAY_RATE_LIMIT_ENTERPRISE", "0")];
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

impl Cluster {
    async fn create_webhook(&self, receiver: &Upstream) -> String {
        let body = json!({"url": receiver.url(), "events": ["key.create"]});
        let made = self.manage(0, Method::POST, "/api/v1/webhooks").json(body).send().await.expect(201);
        format!("/api/v1/webhooks/{}/deliveries?limit=200", made["id"].as_str().unwrap())
    }

    async fn export(&self, receiver: &Upstream) {
        let body = json!({"name": "e", "kind": "webhook", "endpoint": receiver.url(), "secret": "abc"});
        self.manage(0, Method::POST, "/api/v1/exports").json(body).send().await.expect(201);
    }

    /// Emits `count` events, spread over the nodes.
    async fn emit_events(&self, count: usize) {
        for number in 0..count {
            let body = json!({"name": format!("k{number}")});
            let node = number % self.nodes.len();
            self.manage(node, Method::POST, "/api/v1/keys").json(body).send().await.expect(201);
        }
    }

    /// Waits until all deliveries that the node lists are delivered.
    async fn delivered(&self, node: usize, path: &str) -> Vec<Value> {
        let began = Instant::now();
        loop {
            let list = self.nodes[node].get(path).key(&self.key).send().await.expect(200);
            let deliveries = list["deliveries"].as_array().unwrap().clone();
            if deliveries.iter().all(|delivery| delivery["status"] == "delivered") {
                return deliveries;
            }
            assert!(began.elapsed() < WAIT_TIMEOUT, "not all are delivered: {deliveries:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Number of occurrences of each id.
fn counts<T: Ord>(ids: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    ids.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
    counts
}

fn event_ids(requests: &[Request]) -> BTreeMap<String, usize> {
    counts(requests.iter().map(|request| request.header("webhook-id").unwrap().to_owned()))
}

fn exported(requests: &[Request]) -> BTreeMap<i64, usize> {
    let rows = |request: &Request| request.json()["data"]["traces"].as_array().unwrap().clone();
    counts(requests.iter().flat_map(rows).map(|row| row["id"].as_i64().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_deliver_each_event_and_each_row_once() {
    const EVENTS: usize = 30;
    let cluster = Cluster::start(3, &ENTERPRISE).await;
    let (hook, collector) = (Upstream::start().await, Upstream::start().await);
    // Slow enough for the work of the nodes to overlap.
    hook.set_default_reply(Reply::new(200).delay_head(Duration::from_millis(30)));
    collector.set_default_reply(Reply::new(200).delay_head(Duration::from_millis(30)));
    let path = cluster.create_webhook(&hook).await;
    cluster.export(&collector).await;
    cluster.emit_events(EVENTS).await;
    let mut made = BTreeSet::new();
    for number in 0..60 {
        made.insert(log_id(&cluster.chat(number % 3, &cluster.key).send().await));
    }
    let deliveries = cluster.delivered(1, &path).await;
    assert_eq!(deliveries.len(), EVENTS);
    let began = Instant::now();
    while exported(&collector.requests()).len() < made.len() {
        assert!(began.elapsed() < WAIT_TIMEOUT, "{} rows arrived", exported(&collector.requests()).len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Leaves time for a duplicate delivery.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let known = deliveries.iter().map(|delivery| delivery["event_id"].as_str().unwrap().to_owned());
    assert_eq!(event_ids(&hook.requests()), counts(known));
    assert_eq!(exported(&collector.requests()), counts(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_and_exports_of_a_killed_node_are_made_by_another() {
    const EVENTS: usize = 8;
    let mut cluster = Cluster::start(1, &ENTERPRISE).await;
    let (hook, collector, signal) = (Upstream::start().await, Upstream::start().await, Signal::new());
    hook.set_default_reply(Reply::new(200).wait_before_head(&signal));
    collector.set_default_reply(Reply::new(200).wait_before_head(&signal));
    let path = cluster.create_webhook(&hook).await;
    cluster.export(&collector).await;
    cluster.emit_events(EVENTS).await;
    let made: BTreeSet<i64> = BTreeSet::from([log_id(&cluster.chat(0, &cluster.key).send().await)]);
    // The concurrency limit of a node for one receiver.
    let begun = event_ids(&hook.wait_for_requests(4, WAIT_TIMEOUT).await);
    let sent = collector.wait_for_requests(1, WAIT_TIMEOUT).await.len();
    cluster.add();
    cluster.add();
    cluster.kill(0);
    signal.notify();
    hook.set_default_reply(Reply::new(200));
    collector.set_default_reply(Reply::new(200));
    let deliveries = cluster.delivered(1, &path).await;
    assert_eq!(deliveries.len(), EVENTS);
    // Deliveries in flight when the node died are repeated once; all others happen once.
    for (id, times) in event_ids(&hook.requests()) {
        assert_eq!(times, 1 + begun.get(&id).copied().unwrap_or(0), "{id}");
    }
    collector.wait_for_requests(sent + 1, WAIT_TIMEOUT).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(exported(&collector.requests()[sent..]), counts(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_judge_each_version_of_a_skill_once() {
    const SKILLS: usize = 12;
    let cluster = Cluster::start(3, &ENTERPRISE).await;
    let mut paths = Vec::new();
    for number in 0..SKILLS {
        let body = skills::fields(&format!("skill-{number}"));
        let made =
            cluster.manage(number % 3, Method::POST, "/api/v1/skills").json(body).send().await.expect(201);
        paths.push(format!("{}/evaluations", skills::path(&made)));
    }
    let judged = async |path: &str| {
        let list = cluster.manage(1, Method::GET, path).send().await.expect(200);
        list["evaluations"].as_array().unwrap().len()
    };
    for path in &paths {
        let began = Instant::now();
        while judged(path).await == 0 {
            assert!(began.elapsed() < WAIT_TIMEOUT, "{path}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    // The schedulers of three nodes poll every two seconds for unjudged skills.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for path in &paths {
        assert_eq!(judged(path).await, 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_remove_what_is_past_its_retention_and_nothing_else() {
    let mut cluster = Cluster::start(1, &[("GATEWAY_LOG_RETENTION_DAYS", "7")]).await;
    let db = Db::open(&cluster.database).await.unwrap();
    let logs = db.open_logs().await.unwrap();
    let now = Clock::default().now();
    let days = [1_i64, 3, 20, 21, 22];
    let rows: Vec<_> = days.iter().map(|days| row_in_org(&cluster.org_id, now.plus(-days * DAY))).collect();
    // The running node may remove an old day between its creation and the insert. The log writer retries as well.
    let written = loop {
        match logs::write_batch(&logs, &rows).await {
            Err(StoreError::Unavailable(_)) => {}
            written => break written.unwrap(),
        }
    };
    assert_eq!(written.len(), rows.len());
    // A node also checks at startup.
    cluster.add();
    cluster.add();
    let began = Instant::now();
    let stored = async || {
        let list = cluster.nodes[2].get("/api/v1/logs").key(&cluster.key).send().await.expect(200);
        let ids = list["logs"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap());
        ids.collect::<BTreeSet<i64>>()
    };
    let kept: BTreeSet<i64> = rows[..2].iter().map(|row| row.id).collect();
    while stored().await != kept {
        assert!(began.elapsed() < WAIT_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for node in 0..3 {
        cluster.chat(node, &cluster.key).send().await.expect(200);
        cluster.nodes[node].get("/healthz").send().await.expect(200);
    }
    logs.close().await;
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_a_killed_node_is_finished_by_another_and_nothing_is_done_twice() {
    const ITEMS: usize = 120;
    let mut cluster = Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    let verdict = json!({"choices": [{"message": {"content": r#"{"score": 1, "reason": "ok"}"#}}]});
    cluster.upstream.set_default_reply(Reply::json(200, &verdict.to_string()));
    for _ in 0..ITEMS {
        cluster.chat(1, &cluster.key).send().await.expect(200);
    }
    cluster
        .upstream
        .set_default_reply(Reply::json(200, &verdict.to_string()).delay(Duration::from_millis(100)));
    let eval = json!({"name": "j", "type": "llm", "evaluator": "judge",
        "config": {"provider": "openai", "model": "gpt-4o", "criteria": "any"}});
    let eval = cluster.nodes[0].post("/api/v1/evals", &eval).key(&cluster.key).send().await.expect(201);
    let begun = Instant::now();
    let run = loop {
        let path = format!("/api/v1/evals/{}/run", eval["id"]);
        let started = cluster.nodes[0].post(&path, &json!({"limit": ITEMS})).key(&cluster.key).send().await;
        let run = started.expect(202);
        if run["total"] == ITEMS {
            break run;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{run}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let path = format!("/api/v1/evals/runs/{}", run["id"]);
    wait_for_run_counts(&cluster, 1, &path, |run| run["completed"].as_u64().unwrap() >= 10).await;
    // The node that accepted the request was notified first and has the job.
    cluster.kill(0);
    let run = wait_for_run_counts(&cluster, 1, &path, |run| run["finished_at"].is_string()).await;
    assert_eq!((&run["status"], &run["passed"]), (&json!("completed"), &json!(ITEMS)), "{run}");
    let results =
        cluster.nodes[1].get(&format!("{path}/results?limit=200")).key(&cluster.key).send().await.expect(200);
    let rows: BTreeSet<i64> =
        results["results"].as_array().unwrap().iter().map(|row| row["log_id"].as_i64().unwrap()).collect();
    assert_eq!((results["results"].as_array().unwrap().len(), rows.len()), (ITEMS, ITEMS));
}

/// Waits until the run matches on this node. The lease of a killed node has to expire first.
async fn wait_for_run_counts(
    cluster: &Cluster,
    node: usize,
    path: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let begun = Instant::now();
    loop {
        let run = cluster.nodes[node].get(path).key(&cluster.key).send().await.expect(200);
        if wanted(&run) {
            return run;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it did not come to that: {run}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
