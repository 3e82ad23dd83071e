//! Attacks through the management API: expensive reads, many followers, many events and many objects.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::victim::api_request;
use super::Attacker;

const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn reads(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let paths = [
        "/logs?q=aba%20abb%20question&limit=200",
        "/usage/timeseries?interval=hour&group_by=user",
        "/usage/breakdown?by=user",
        "/sessions?limit=200",
        "/logs?limit=200&q=zzzz",
        "/usage/timeseries?interval=hour&group_by=model",
    ];
    loop {
        for path in paths.iter().cycle().skip(task).take(paths.len()) {
            attacker.api("reads", &mut client, ("GET", path), &Value::Null).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Followers of the log that never end.
pub(super) async fn log_streams(attacker: Arc<Attacker>, _: usize) {
    attacker.follow("log-streams", &api_request("GET", "/logs/stream", &attacker.key, "")).await;
}

/// Events and rows for receivers that never respond.
pub(super) async fn events(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let url = format!("http://{}", attacker.servers.silent);
    for number in 0..25 {
        let hook = json!({"url": url, "events": []});
        attacker.api("events", &mut client, ("POST", "/webhooks"), &hook).await;
        let export =
            json!({"name": format!("e{task}-{number}"), "kind": "webhook", "endpoint": url, "secret": "abc"});
        attacker.api("events", &mut client, ("POST", "/exports"), &export).await;
    }
    for number in 0_u64.. {
        let body = json!({"name": format!("event {task} {number}")});
        if let Some(key) = attacker.api("events", &mut client, ("POST", "/keys"), &body).await {
            let path = format!("/keys/{}", key["key"]["id"].as_str().unwrap_or_default());
            attacker.api("events", &mut client, ("DELETE", &path), &Value::Null).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// As many objects as possible.
pub(super) async fn objects(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let providers = format!("/orgs/{}/providers", attacker.org);
    for number in 0_u64.. {
        let name = format!("p{task}-{number}");
        let provider = json!({"name": name, "kind": "openai", "base_url": "http://127.0.0.1:9"});
        attacker.api("objects", &mut client, ("POST", &providers), &provider).await;
        let prompt = json!({"namespace": "hostile", "slug": name, "content": "x".repeat(10_000)});
        attacker.api("objects", &mut client, ("POST", "/prompts"), &prompt).await;
        let dataset = json!({"name": name});
        attacker.api("objects", &mut client, ("POST", "/datasets"), &dataset).await;
        tokio::time::sleep(PAUSE).await;
    }
}
