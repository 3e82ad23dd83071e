//! The process is killed during a replay and restarted: the replay completes, with every row replayed and few calls
//! repeated.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::support::{Backend, GatewayProcess, PASSWORD, command, fresh_settings};
use crate::upstream::{Reply, Upstream};

const ROWS: usize = 120;

async fn survives_being_killed(backend: Backend) {
    let provider = Upstream::start().await;
    let body = json!({"choices": [{"message": {"role": "assistant", "content": "new"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}});
    provider.set_default_reply(Reply::json(200, &body.to_string()).delay(Duration::from_millis(40)));
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    settings.push(("GATEWAY_RATE_LIMIT_FREE".to_owned(), "0".to_owned()));
    settings.push(("GATEWAY_PROVIDER_OPENAI_BASE_URL".to_owned(), provider.url()));
    let start = || GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned()));

    let process = start();
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
    let key = process.post("/api/v1/signup", &body).send().await.expect(201)["api_key"]
        .as_str()
        .unwrap()
        .to_owned();
    for number in 0..ROWS {
        let chat = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": format!("row {number}")}]});
        let call = process.call(Method::POST, "/v1/chat/completions").key(&key).json(chat);
        call.header("x-gateway-provider", "sandbox").send().await.expect(200);
    }
    let body = json!({"limit": ROWS, "target": {"provider": "openai", "model": "gpt-4o"}});
    let replay = process.post("/api/v1/replays", &body).key(&key).send().await.expect(202);
    assert_eq!(replay["total"], ROWS);
    let path = format!("/api/v1/replays/{}", replay["id"]);
    let seen = until(&process, &key, &path, |replay| replay["done"].as_u64().unwrap() >= 24).await;
    assert_eq!(seen["status"], "running", "it is killed before its end");
    // Dropping it sends SIGKILL, so the process cannot prepare.
    drop(process);
    let process = start();
    let replay = until(&process, &key, &path, |replay| replay["finished_at"].is_string()).await;
    assert_eq!(
        (&replay["status"], &replay["done"], &replay["errors"]),
        (&json!("completed"), &json!(ROWS), &json!(0)),
        "{replay}"
    );
    assert_eq!((&replay["before"]["calls"], &replay["after"]["calls"]), (&json!(ROWS), &json!(ROWS)));
    // Besides the replayed rows, only those of the interrupted batch were sent twice.
    let sent = provider.arrivals().len();
    assert!((ROWS..=ROWS + 8).contains(&sent), "{sent}");
}

/// Waits until the replay matches. The lease of the killed process has to expire first.
async fn until(process: &GatewayProcess, key: &str, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let replay = process.get(path).key(key).send().await.expect(200);
        if wanted(&replay) {
            return replay;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "it did not come to that: {replay}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_survives_being_killed_on_sqlite() {
    survives_being_killed(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_survives_being_killed_on_postgres() {
    survives_being_killed(Backend::Postgres).await;
}
