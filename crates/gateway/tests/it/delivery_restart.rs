//! The process is killed during deliveries and restarted: every event arrives with one id and a valid signature, and
//! every row is exported.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::receiver::is_signed_by;
use crate::support::{Backend, GatewayProcess, PASSWORD, command, fresh_settings, log_id};
use crate::upstream::{Reply, Signal, Upstream};

const EVENTS: usize = 12;

async fn events_survive_a_kill(backend: Backend) {
    let receiver = Upstream::start().await;
    let signal = Signal::new();
    // The first attempts hang, so that the process dies during them.
    receiver.set_default_reply(Reply::new(200).wait_before_head(&signal));
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    settings.push(("GATEWAY_DEFAULT_PLAN".to_owned(), "enterprise".to_owned()));
    let start = || GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned()));
    let process = start();
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
    let account = process.post("/api/v1/signup", &body).send().await.expect(201);
    let key = account["api_key"].as_str().unwrap().to_owned();
    let hook = json!({"url": receiver.url(), "events": ["key.create"]});
    let hook = process.post("/api/v1/webhooks", &hook).key(&key).send().await.expect(201);
    for number in 0..EVENTS {
        let body = json!({"name": format!("k{number}")});
        process.post("/api/v1/keys", &body).key(&key).send().await.expect(201);
    }
    receiver.wait_for_requests(2, Duration::from_secs(20)).await;
    drop(process);
    signal.notify();
    receiver.set_default_reply(Reply::new(200));

    let process = start();
    let path = format!("/api/v1/webhooks/{}/deliveries?limit=200", hook["id"].as_str().unwrap());
    let mut waited = 0;
    let deliveries = loop {
        let list = process.get(&path).key(&key).send().await.expect(200);
        let deliveries: Vec<Value> = list["deliveries"].as_array().unwrap().clone();
        assert_eq!(deliveries.len(), EVENTS, "no event is lost");
        if deliveries.iter().all(|delivery| delivery["status"] == "delivered") {
            break deliveries;
        }
        assert!(waited < 400, "not all are delivered: {deliveries:?}");
        waited += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let known: BTreeSet<&str> =
        deliveries.iter().map(|delivery| delivery["event_id"].as_str().unwrap()).collect();
    let requests = receiver.requests();
    let arrived: BTreeSet<&str> =
        requests.iter().filter_map(|request| request.header("webhook-id")).collect();
    assert_eq!(arrived, known);
    let secret = hook["secret"].as_str().unwrap();
    assert!(requests.iter().all(|request| is_signed_by(request, secret)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_lost_by_a_kill_on_sqlite() {
    events_survive_a_kill(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_lost_by_a_kill_on_postgres() {
    events_survive_a_kill(Backend::Postgres).await;
}

async fn rows_survive_a_kill(backend: Backend) {
    let receiver = Upstream::start().await;
    let signal = Signal::new();
    receiver.set_default_reply(Reply::new(200).wait_before_head(&signal));
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    settings.push(("GATEWAY_DEFAULT_PLAN".to_owned(), "enterprise".to_owned()));
    let start = || GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned()));
    let process = start();
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
    let account = process.post("/api/v1/signup", &body).send().await.expect(201);
    let key = account["api_key"].as_str().unwrap().to_owned();
    let export = json!({"name": "e", "kind": "webhook", "endpoint": receiver.url(), "secret": "abc"});
    process.post("/api/v1/exports", &export).key(&key).send().await.expect(201);
    let mut made = BTreeSet::new();
    for number in 0..EVENTS {
        let chat =
            json!({"model": "sandbox-1", "messages": [{"role": "user", "content": format!("{number}")}]});
        let call =
            process.post("/v1/chat/completions", &chat).key(&key).header("x-gateway-provider", "sandbox");
        made.insert(log_id(&call.send().await));
    }
    receiver.wait_for_requests(1, Duration::from_secs(20)).await;
    // Some rows are in delivery, others still in the spool.
    drop(process);
    signal.notify();
    receiver.set_default_reply(Reply::new(200));
    let killed_at = receiver.requests().len();

    let _process = start();
    let mut arrived = BTreeSet::new();
    for _ in 0..600 {
        arrived = receiver.requests()[killed_at..]
            .iter()
            .inspect(|request| assert!(is_signed_by(request, "abc")))
            .flat_map(|request| request.json()["data"]["traces"].as_array().unwrap().clone())
            .map(|row| row["id"].as_i64().unwrap())
            .collect();
        if arrived.len() >= made.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(arrived, made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_that_an_export_is_owed_is_lost_by_a_kill_on_sqlite() {
    rows_survive_a_kill(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_that_an_export_is_owed_is_lost_by_a_kill_on_postgres() {
    rows_survive_a_kill(Backend::Postgres).await;
}
