//! Evals of live traffic: a share of the rows is judged as they come, each once.

use std::time::Duration;

use gateway_core::evaluators::is_sampled;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, TestApp};

async fn chat(app: &TestApp, by: &Account, text: &str) -> i64 {
    let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": text}]});
    let call =
        app.post("/v1/chat/completions", body).key(&by.api_key).header("x-gateway-provider", "sandbox");
    let answer = call.send().await;
    answer.expect(200);
    answer.header("x-gateway-log-id").unwrap().parse().unwrap()
}

async fn sampled(app: &TestApp, by: &Account, rate: f64) -> Value {
    let body = json!({"name": "live", "type": "static", "evaluator": "contains", "config": {"value": "good"}, "sample_rate": rate});
    app.post("/api/v1/evals", body).bearer(&by.token).send().await.expect(201)
}

async fn results(app: &TestApp, by: &Account, eval: &Value) -> Vec<Value> {
    let path = format!("/api/v1/evals/{}/results?limit=200", eval["id"]);
    app.get(&path).bearer(&by.token).send().await.expect(200).as_array().unwrap().clone()
}

async fn wait_for(app: &TestApp, by: &Account, eval: &Value, count: usize) -> Vec<Value> {
    for _ in 0..500 {
        let found = results(app, by, eval).await;
        if found.len() >= count {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not {count} results within 10 s");
}

on_both!(new_rows_are_judged_as_they_come_each_once, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let before = chat(&app, &ada, "good old").await;
    gateway::log::settle(&app.app).await;
    let eval = sampled(&app, &ada, 1.0).await;
    let (good, bad) = (chat(&app, &ada, "good").await, chat(&app, &ada, "bad").await);
    chat(&app, &eve, "good").await;
    let found = wait_for(&app, &ada, &eval, 2).await;
    let mut verdicts: Vec<(i64, bool)> =
        found.iter().map(|r| (r["log_id"].as_i64().unwrap(), r["passed"].as_bool().unwrap())).collect();
    verdicts.sort_unstable();
    assert_eq!(verdicts, [(good, true), (bad, false)], "not {before}, which came earlier");
    assert!(found.iter().all(|r| r["run_id"].is_null()));

    // The same rows come again, as after a crash.
    let rows = gateway_store::logs::of_ids(&app.app.logs, ada.org_id.parse().unwrap(), &[good, bad], true)
        .await
        .unwrap();
    gateway::evals::live::sample(&app.app, &rows).await.unwrap();
    let last = chat(&app, &ada, "good again").await;
    let found = wait_for(&app, &ada, &eval, 3).await;
    assert_eq!(found.len(), 3);
    assert_eq!(found[0]["log_id"], last);
});

on_both!(a_share_of_the_rows_is_judged_and_none_when_it_is_switched_off, |app| async move {
    let ada = app.signup("acme").await;
    let (half, off) = (sampled(&app, &ada, 0.5).await, sampled(&app, &ada, 1.0).await);
    let path = format!("/api/v1/evals/{}", off["id"]);
    app.put(&path, json!({"enabled": false})).bearer(&ada.token).send().await.expect(200);
    let mut ids = Vec::new();
    for _ in 0..24 {
        ids.push(chat(&app, &ada, "good").await);
    }
    let eval = half["id"].as_i64().unwrap();
    let mut expected: Vec<i64> = ids.into_iter().filter(|id| is_sampled(eval, *id, 0.5)).collect();
    let mut found: Vec<i64> = wait_for(&app, &ada, &half, expected.len())
        .await
        .iter()
        .map(|r| r["log_id"].as_i64().unwrap())
        .collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(results(&app, &ada, &off).await.is_empty());
});

on_both!(what_the_gateway_asked_itself_is_not_judged, |app| async move {
    let ada = app.signup("acme").await;
    let judge = json!({"name": "j", "type": "llm", "evaluator": "judge", "sample_rate": 1.0,
        "config": {"provider": "sandbox", "model": "sandbox-small", "criteria": "any"}});
    let judge = app.post("/api/v1/evals", judge).bearer(&ada.token).send().await.expect(201);
    let rows = sampled(&app, &ada, 1.0).await;
    let id = chat(&app, &ada, "good").await;
    let found = wait_for(&app, &ada, &judge, 1).await;
    assert_eq!(found[0]["log_id"], id);
    // The judge's own call has left a row by now; nobody looks at it.
    gateway::log::settle(&app.app).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((results(&app, &ada, &judge).await.len(), results(&app, &ada, &rows).await.len()), (1, 1));
    let own = app.get("/api/v1/logs?source=api").bearer(&ada.token).send().await.expect(200);
    assert_eq!(own["logs"].as_array().unwrap().len(), 1);
});
