//! The process is killed during an eval run and restarted: the run completes, with every item judged exactly once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::support::{Backend, GatewayProcess, PASSWORD, command, fresh_settings};
use crate::upstream::{Reply, Upstream};

const ITEMS: usize = 500;

async fn survives_being_killed(backend: Backend) {
    let judge = Upstream::start().await;
    let body = json!({"choices": [{"message": {"content": r#"{"score": 1, "reason": "ok"}"#}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}});
    judge.set_default_reply(Reply::json(200, &body.to_string()).delay(Duration::from_millis(8)));
    let data = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(backend, &data).await;
    settings.push(("GATEWAY_RATE_LIMIT_FREE".to_owned(), "0".to_owned()));
    settings.push(("GATEWAY_PROVIDER_OPENAI_BASE_URL".to_owned(), judge.url()));
    let start = || GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned()));

    let mut process = start();
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
    let key = process.post("/api/v1/signup", &body).send().await.expect(201)["api_key"]
        .as_str()
        .unwrap()
        .to_owned();
    for number in 0..ITEMS {
        let chat = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": format!("item {number}")}]});
        let call = process.call(Method::POST, "/v1/chat/completions").key(&key).json(chat);
        call.header("x-gateway-provider", "sandbox").send().await.expect(200);
    }
    let eval = json!({"name": "j", "type": "llm", "evaluator": "judge",
        "config": {"provider": "openai", "model": "gpt-4o", "criteria": "any"}});
    let eval = process.post("/api/v1/evals", &eval).key(&key).send().await.expect(201);
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    let run = process.post(&path, &json!({"limit": ITEMS})).key(&key).send().await.expect(202);
    assert_eq!(run["total"], ITEMS);
    let path = format!("/api/v1/evals/runs/{}", run["id"]);
    for part in [100, 250] {
        let seen = until(&process, &key, &path, |run| run["completed"].as_u64().unwrap() >= part).await;
        assert_eq!(seen["status"], "running", "it is killed before its end");
        // Dropping it sends SIGKILL, so the process cannot prepare.
        drop(process);
        process = start();
    }
    let run = until(&process, &key, &path, |run| run["finished_at"].is_string()).await;
    assert_eq!(
        (&run["status"], &run["passed"], &run["errors"]),
        (&json!("completed"), &json!(ITEMS), &json!(0)),
        "{run}"
    );
    assert!(judge.arrivals().len() <= ITEMS + 2 * 16, "little was asked twice: {}", judge.arrivals().len());

    let (mut rows, mut results, mut cursor) = (BTreeSet::new(), 0, String::new());
    loop {
        let page =
            process.get(&format!("{path}/results?limit=200{cursor}")).key(&key).send().await.expect(200);
        let found = page["results"].as_array().unwrap();
        results += found.len();
        rows.extend(found.iter().map(|result| result["log_id"].as_i64().unwrap()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((results, rows.len()), (ITEMS, ITEMS), "each item exactly once");
}

/// Waits until the run matches. The lease of the killed process has to expire first.
async fn until(process: &GatewayProcess, key: &str, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let run = process.get(path).key(key).send().await.expect(200);
        if wanted(&run) {
            return run;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "it did not come to that: {run}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_500_items_survives_being_killed_on_sqlite() {
    survives_being_killed(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_500_items_survives_being_killed_on_postgres() {
    survives_being_killed(Backend::Postgres).await;
}
