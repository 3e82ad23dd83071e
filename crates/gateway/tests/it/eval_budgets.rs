//! Runs of evals and what they may use: the budgets of the organization, and its memory.

use std::time::Duration;

use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::{Account, Backend, ProxyFixture, TestApp};
use crate::upstream::Reply;

const MIB: usize = 1 << 20;
/// An organization alone may hold half of it.
const SMALL_BUDGET: (&str, &str) = ("GATEWAY_MEMORY_BYTES", "16777216");

async fn answered(app: &TestApp, by: &Account, texts: &[String]) {
    let now = app.app.services.clock.now();
    let body = |text: &str| json!({"choices": [{"message": {"role": "assistant", "content": text}}]});
    let rows =
        texts.iter().map(|text| with(row(by, now), |row| row.response = body(text).to_string().into()));
    app.write(&rows.collect::<Vec<_>>()).await;
}

async fn start(app: &TestApp, by: &Account, eval: &Value) -> Value {
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    app.post(&path, json!({"limit": 40})).bearer(&by.token).send().await.expect(202)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_stops_calling_its_judge_at_the_budget_of_the_organization() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        let texts: Vec<String> = (0..40).map(|number| format!("text {number}")).collect();
        answered(app, ada, &texts).await;
        // 0.0125 USD for each call.
        let verdict = json!({
            "model": "gpt-4o",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": r#"{"score": 1}"#}}],
            "usage": {"prompt_tokens": 1_000, "completion_tokens": 1_000, "total_tokens": 2_000},
        });
        proxy.upstream.set_default_reply(Reply::json(200, &verdict.to_string()));
        let budget = json!({"scope": "org", "period": "daily", "hard_limit_usd": 0.2});
        let budgets = format!("/api/v1/orgs/{}/budgets", ada.org_id);
        let budget = app.post(&budgets, budget).bearer(&ada.token).send().await.expect(201);
        let config = json!({"provider": "openai", "model": "gpt-4o", "criteria": "any"});
        let eval = app.eval(ada, "llm", "judge", config).await;
        let run = start(app, ada, &eval).await;
        let run = app.wait_for_run(ada, &run).await;
        let (passed, errors) = (run["passed"].as_i64().unwrap(), run["errors"].as_i64().unwrap());
        assert_eq!((passed + errors, &run["failed"]), (40, &json!(0)), "{run}");
        // At most one call beyond the limit.
        assert!((1..=17).contains(&passed), "{run}");
        assert_eq!(
            proxy.upstream.requests().len(),
            usize::try_from(passed).unwrap(),
            "nothing else was sent"
        );
        let results = app.run_results(ada, &run).await;
        let refused = results["errors"].as_array().unwrap();
        assert!(!refused.is_empty());
        for error in refused {
            assert!(error["error"].as_str().unwrap().starts_with("budget_exceeded: "), "{error}");
        }
        let path = format!("{budgets}/{}", budget["id"].as_str().unwrap());
        let budget = app.get(&path).bearer(&ada.token).send().await.expect(200);
        assert!(budget["spent_usd"].as_f64().unwrap() < 0.2125 + 1e-9, "{budget}");
    }
}

on_both!(a_run_waits_for_the_memory_of_its_organization, [SMALL_BUDGET], |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("initech").await);
    let texts: Vec<String> = (0..4).map(|_| "x".repeat(200_000)).collect();
    let memory = &app.app.services.memory;
    let mut runs = Vec::new();
    for account in [&ada, &bob] {
        answered(&app, account, &texts).await;
        runs.push(app.eval(account, "static", "contains", json!({"value": "xx"})).await);
    }
    // As its other requests would. A row takes more than what is left.
    let held = memory.account(ada.org_id.parse().unwrap()).reserve(8 * MIB - MIB / 8).unwrap();
    let refusals = memory.refusals();
    let run = start(&app, &ada, &runs[0]).await;
    for _ in 0..1_000 {
        if memory.refusals() > refusals {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(memory.refusals() > refusals, "the run asked for memory");
    let path = format!("/api/v1/evals/runs/{}", run["id"]);
    let waiting = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&waiting["completed"], &waiting["finished_at"]), (&json!(0), &Value::Null), "{waiting}");
    // Another organization has a share of its own.
    let other = start(&app, &bob, &runs[1]).await;
    let other = app.wait_for_run(&bob, &other).await;
    assert_eq!((&other["status"], &other["passed"]), (&json!("completed"), &json!(4)), "{other}");
    drop(held);
    let run = app.wait_for_run(&ada, &run).await;
    assert_eq!((&run["status"], &run["passed"], &run["errors"]), (&json!("completed"), &json!(4), &json!(0)));
});

on_both!(a_run_with_little_memory_judges_fewer_rows_at_a_time, [SMALL_BUDGET], |app| async move {
    let ada = app.signup("acme").await;
    let texts: Vec<String> = (0..4).map(|_| "x".repeat(200_000)).collect();
    answered(&app, &ada, &texts).await;
    let eval = app.eval(&ada, "static", "contains", json!({"value": "xx"})).await;
    // One row fits, all of them do not.
    let memory = &app.app.services.memory;
    let _held = memory.account(ada.org_id.parse().unwrap()).reserve(7 * MIB).unwrap();
    let before = memory.refusals();
    let run = app.wait_for_run(&ada, &start(&app, &ada, &eval).await).await;
    assert_eq!((&run["status"], &run["passed"]), (&json!("completed"), &json!(4)), "{run}");
    assert!(memory.refusals() > before, "the run wanted all rows at once");
});
