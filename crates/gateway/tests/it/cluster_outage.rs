//! Several nodes under load during a PostgreSQL outage, a rolling restart and a schema migration by a newer version:
//! no request with a known key fails, and every row is logged once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_store::Db;
use gateway_store::testing::{FutureMigration, apply_future_migration, schema_version};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{
    Cluster, LoadBalancer, TcpForwarder, chat_request, log_id, migrated_postgres, wait_for_response,
};

const PAUSE: Duration = Duration::from_millis(20);

/// Continuous requests until `end` is called.
struct Load {
    is_over: Arc<AtomicBool>,
    callers: JoinSet<BTreeSet<i64>>,
}

impl Load {
    fn new() -> Self {
        Self { is_over: Arc::default(), callers: JoinSet::new() }
    }

    /// Sends requests in a loop, each on a new connection.
    fn call(&mut self, address: SocketAddr, key: &str) {
        let (is_over, key) = (Arc::clone(&self.is_over), key.to_owned());
        self.callers.spawn(async move {
            let mut ids = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                let answer = chat_request(address, &key).send().await;
                assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
                ids.insert(log_id(&answer));
                tokio::time::sleep(PAUSE).await;
            }
            ids
        });
    }

    /// Sends requests in a loop on one connection, and reconnects when the gateway closes it.
    fn call_on_one_connection(&mut self, address: SocketAddr, key: &str) {
        let (is_over, key) = (Arc::clone(&self.is_over), key.to_owned());
        self.callers.spawn(async move {
            let mut ids = BTreeSet::new();
            let mut kept: Option<SendRequest<Full<Bytes>>> = None;
            while !is_over.load(Ordering::Relaxed) {
                let mut sender = match kept.take() {
                    Some(sender) if !sender.is_closed() => sender,
                    _ => connect(address).await,
                };
                let (id, stays) = chat_on(&mut sender, &key).await;
                ids.insert(id);
                kept = stays.then_some(sender);
                tokio::time::sleep(PAUSE).await;
            }
            ids
        });
    }

    /// Stops the load and returns the log ids of all requests.
    async fn end(mut self) -> BTreeSet<i64> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut ids = BTreeSet::new();
        while let Some(made) = self.callers.join_next().await {
            ids.extend(made.unwrap());
        }
        ids
    }
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Sends one request. Returns its log id and whether the connection can be reused.
async fn chat_on(sender: &mut SendRequest<Full<Bytes>>, key: &str) -> (i64, bool) {
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let request = Request::post("/v1/chat/completions")
        .header("host", "gateway.test")
        .header("x-gateway-key", key)
        .header("x-gateway-provider", "openai")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let headers = response.headers().clone();
    response.into_body().collect().await.unwrap();
    let id = headers["x-gateway-log-id"].to_str().unwrap().parse().unwrap();
    (id, headers.get("connection").is_none_or(|value| value != "close"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_outage_of_twenty_seconds_fails_no_request_and_loses_no_row() {
    let database = migrated_postgres().await;
    let (forwarder, through) = TcpForwarder::to_database(&database).await;
    // A rate limit and a budget that are active but never reached.
    let node = vec![("GATEWAY_DATABASE_URL", through.as_str()), ("GATEWAY_RATE_LIMIT_FREE", "100000")];
    let cluster = Cluster::start_each(database, &[node.clone(), node.clone(), node]).await;
    let budget = json!({"scope": "org", "period": "monthly", "hard_limit_usd": 1000});
    cluster.manage(0, Method::POST, &cluster.in_org("/budgets")).json(budget).send().await.expect(201);
    let mut load = Load::new();
    let mut known = BTreeSet::new();
    for (node, address) in cluster.addresses().into_iter().enumerate() {
        known.insert(log_id(&cluster.chat(node, &cluster.key).send().await));
        load.call(address, &cluster.key);
        load.call_on_one_connection(address, &cluster.key);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    forwarder.cut();
    let (began, stranger) = (Instant::now(), format!("sk-gateway-{}", "a".repeat(64)));
    while began.elapsed() < Duration::from_secs(20) {
        for node in &cluster.nodes {
            // The gateway is unavailable; the caller's credential is not the problem.
            for call in [node.get("/api/v1/keys").key(&cluster.key), node.get("/api/v1/keys").key(&stranger)]
            {
                call.send().await.expect_error(503, "unavailable");
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    forwarder.open();
    tokio::time::sleep(Duration::from_millis(500)).await;
    known.extend(load.end().await);
    for node in &cluster.nodes {
        wait_for_response(Duration::from_secs(10), || node.get("/healthz"), |answer| answer.status == 200)
            .await;
        node.get("/api/v1/keys").key(&stranger).send().await.expect_error(401, "unauthorized");
    }
    cluster.wait_for_exact_rows(&known, Duration::from_secs(30)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_restarted_one_by_one_fail_no_request_and_lose_no_row() {
    let mut cluster = Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    let balancer = LoadBalancer::start(cluster.addresses()).await;
    let mut load = Load::new();
    for _ in 0..3 {
        load.call(balancer.address, &cluster.key);
        load.call_on_one_connection(balancer.address, &cluster.key);
    }
    for node in 0..3 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.stop(node);
        cluster.restart(node);
        balancer.set_nodes(cluster.addresses());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let ids = load.end().await;
    cluster.wait_for_exact_rows(&ids, Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_leaves_no_row_behind_in_its_spool() {
    let mut cluster = Cluster::start(2, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    let mut load = Load::new();
    let slow = crate::upstream::Reply::json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#);
    cluster.upstream.set_default_reply(slow.delay_head(Duration::from_millis(700)));
    let call = tokio::spawn(cluster.chat(1, &cluster.key).send());
    load.call(cluster.nodes[0].address, &cluster.key);
    cluster.upstream.wait_for_requests(2, Duration::from_secs(10)).await;
    // The node is stopped during a request and never restarted.
    cluster.stop(1);
    let mut ids = load.end().await;
    ids.insert(log_id(&call.await.unwrap()));
    cluster.wait_for_exact_rows(&ids, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_keep_serving_and_restart_while_a_newer_version_extends_the_schema() {
    let mut cluster = Cluster::start(2, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    let balancer = LoadBalancer::start(cluster.addresses()).await;
    let mut load = Load::new();
    for _ in 0..3 {
        load.call(balancer.address, &cluster.key);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let db = Db::open(&cluster.database).await.unwrap();
    let newer = apply_future_migration(&db, FutureMigration::Additive).await.unwrap();
    for node in 0..2 {
        let body = json!({"name": format!("key {node}")});
        cluster.manage(node, Method::POST, "/api/v1/keys").json(body).send().await.expect(201);
    }
    // A node of the old version restarts in the middle of an upgrade.
    cluster.stop(0);
    cluster.restart(0);
    balancer.set_nodes(cluster.addresses());
    cluster.manage(0, Method::POST, "/api/v1/keys").json(json!({"name": "later"})).send().await.expect(201);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let ids = load.end().await;
    cluster.wait_for_exact_rows(&ids, Duration::from_secs(20)).await;
    assert_eq!(schema_version(&db).await.unwrap(), newer);
    db.close().await;
}
