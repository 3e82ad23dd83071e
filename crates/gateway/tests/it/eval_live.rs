//! Evals of live traffic: a sampled share of the rows is judged as they arrive, each once.

use std::time::Duration;

use gateway::jobs::live_evals::{Trace, sample};
use gateway_core::evaluators::is_sampled;
use gateway_core::ids::OrgId;
use gateway_core::time::DAY;
use gateway_store::Lease;
use gateway_store::jobs::{self, NewJob, NextJob};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::row;
use crate::support::{Account, Backend, ProxyFixture, TestApp};
use crate::upstream::Reply;

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
    app.app.current_logs(ada.org_id.parse().unwrap()).await;
    let eval = sampled(&app, &ada, 1.0).await;
    let (good, bad) = (chat(&app, &ada, "good").await, chat(&app, &ada, "bad").await);
    chat(&app, &eve, "good").await;
    let found = wait_for(&app, &ada, &eval, 2).await;
    let mut verdicts: Vec<(i64, bool)> =
        found.iter().map(|r| (r["log_id"].as_i64().unwrap(), r["passed"].as_bool().unwrap())).collect();
    verdicts.sort_unstable();
    assert_eq!(verdicts, [(good, true), (bad, false)], "not {before}, which came earlier");
    assert!(found.iter().all(|r| r["run_id"].is_null()));

    // The same rows arrive again, as after a crash.
    let rows = gateway_store::logs::find_many(
        &app.app.services.logs,
        ada.org_id.parse().unwrap(),
        &[good, bad],
        true,
    )
    .await
    .unwrap();
    let traces: Vec<_> = rows.iter().filter_map(Trace::of).collect();
    sample(&app.app.jobs, &traces).await.unwrap();
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

/// Adds jobs of live evals that are due at some time and judge nothing.
async fn add_jobs(app: &TestApp, org: OrgId, count: usize, due_in: i64) {
    let (services, now) = (&app.app.services, app.app.services.clock.now());
    let mut tx = services.db.begin().await.unwrap();
    for _ in 0..count {
        let job = NewJob {
            id: services.ids.new_id(),
            org,
            name: "judge_live",
            dedup_key: None,
            payload: "[]",
            due_at: now.plus(due_in),
            now,
        };
        jobs::enqueue(&mut tx, &job).await.unwrap();
    }
    tx.commit().await.unwrap();
}

on_both!(batches_that_are_sampled_at_the_same_time_do_not_exceed_the_queue_together, |app| async move {
    let ada = app.signup("acme").await;
    let org: OrgId = ada.org_id.parse().unwrap();
    let services = &app.app.services;
    // The organization has as many jobs in progress as it may, so that none of the others is begun.
    let next = NextJob { name: "judge_live", per_org: 2, after: None };
    let mut held = 0;
    while held < 2 {
        add_jobs(&app, org, 1, 0).await;
        let now = services.clock.now();
        let lease = Lease { owner: "the test", now, until: now.plus(DAY) };
        held += usize::from(jobs::claim(&services.db, next, &lease).await.unwrap().is_some());
    }
    add_jobs(&app, org, 993, DAY).await;
    for _ in 0..10 {
        sampled(&app, &ada, 1.0).await;
    }
    let traces = [Trace::of(&row(&ada, services.clock.now())).unwrap()];
    let batches = (0..8).map(|_| sample(&app.app.jobs, &traces));
    for done in futures_util::future::join_all(batches).await {
        done.unwrap();
    }
    assert_eq!(jobs::count(&services.db, org, "judge_live").await.unwrap(), 1_000, "full, and no more");
});

on_both!(internal_requests_of_the_gateway_are_not_judged, |app| async move {
    let ada = app.signup("acme").await;
    let judge = json!({"name": "j", "type": "llm", "evaluator": "judge", "sample_rate": 1.0,
        "config": {"provider": "sandbox", "model": "sandbox-small", "criteria": "any"}});
    let judge = app.post("/api/v1/evals", judge).bearer(&ada.token).send().await.expect(201);
    let rows = sampled(&app, &ada, 1.0).await;
    let id = chat(&app, &ada, "good").await;
    let found = wait_for(&app, &ada, &judge, 1).await;
    assert_eq!(found[0]["log_id"], id);
    // The judge's own request has a log row by now, which must not be judged.
    app.app.current_logs(ada.org_id.parse().unwrap()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((results(&app, &ada, &judge).await.len(), results(&app, &ada, &rows).await.len()), (1, 1));
    let own = app.get("/api/v1/logs?source=api").bearer(&ada.token).send().await.expect(200);
    assert_eq!(own["logs"].as_array().unwrap().len(), 1);
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_whose_judge_fails_are_judged_later_and_the_others_only_once() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&gateway.app, &gateway.ada);
        let verdict = json!({"choices": [{"message": {"content": r#"{"score": 1}"#}}]}).to_string();
        gateway.upstream.set_default_reply(Reply::json(200, &verdict));
        gateway.upstream.push(Reply::json(500, "{}"));
        let judge = json!({"name": "live", "type": "llm", "evaluator": "judge", "sample_rate": 1.0,
            "config": {"provider": "openai", "model": "gpt-4o", "criteria": "any"}});
        let judge = app.post("/api/v1/evals", judge).bearer(&ada.token).send().await.expect(201);
        let mut ids =
            vec![chat(app, ada, "one").await, chat(app, ada, "two").await, chat(app, ada, "three").await];
        let found = wait_for(app, ada, &judge, 3).await;
        let mut judged: Vec<i64> = found.iter().map(|result| result["log_id"].as_i64().unwrap()).collect();
        ids.sort_unstable();
        judged.sort_unstable();
        assert_eq!(judged, ids);
        assert_eq!(gateway.upstream.requests().len(), 4, "one judgement was made again");
        let org: OrgId = ada.org_id.parse().unwrap();
        for _ in 0..200 {
            if jobs::count(&app.app.services.db, org, "judge_live").await.unwrap() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(jobs::count(&app.app.services.db, org, "judge_live").await.unwrap(), 0);
    }
}

on_both!(verdicts_go_with_the_rows_that_they_are_on, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let now = app.app.services.clock.now();
    let (old, recent) = (row(&ada, now.plus(-20 * DAY)), row(&ada, now));
    let kept = row(&eve, now.plus(-20 * DAY));
    app.write(&[old.clone(), recent.clone(), kept.clone()]).await;
    let mut runs = Vec::new();
    for (by, ids) in [(&ada, vec![old.id, recent.id]), (&eve, vec![kept.id])] {
        let eval = app.eval(by, "static", "is_json", json!({})).await;
        let run = app.eval_run(by, &eval, json!({"log_ids": ids})).await;
        for id in &ids {
            // External verdicts need another plan, so they are written directly.
            let verdict = gateway_store::verdicts::LogVerdict {
                id: app.app.services.ids.new_id(),
                org_id: by.org_id.parse().unwrap(),
                log_id: *id,
                source: "ragas".into(),
                score: 1.0,
                passed: true,
                details: serde_json::Map::new(),
                external_ref: String::new(),
                created_at: now,
            };
            let mut tx = app.app.services.db.begin().await.unwrap();
            gateway_store::verdicts::insert(&mut tx, &verdict).await.unwrap();
            tx.commit().await.unwrap();
        }
        runs.push((by, run));
    }
    let case = app.dataset(&ada, &[json!({"input": "{}", "expected": "{}"})]).await;
    let eval = app.eval(&ada, "static", "is_json", json!({})).await;
    let body = json!({"eval_id": eval["id"]});
    let of_cases =
        app.post(&format!("/api/v1/datasets/{case}/eval"), body).bearer(&ada.token).send().await.expect(202);
    let of_cases = app.wait_for_run(&ada, &of_cases).await;

    let overrides = [(eve.org_id.parse().unwrap(), 100)];
    let sweep =
        async |at| gateway_store::verdicts::sweep(&app.app.services.db, at, 30, &overrides).await.unwrap();
    assert_eq!(sweep(now.plus(15 * DAY)).await, 2, "one verdict of each kind");
    assert_eq!(sweep(now.plus(15 * DAY)).await, 0);
    let judged = async |by: &Account, run: &Value| {
        let results = app.run_results(by, run).await["results"].as_array().unwrap().clone();
        results.iter().map(|result| result["log_id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(judged(runs[0].0, &runs[0].1).await, [json!(recent.id)]);
    assert_eq!(
        judged(runs[1].0, &runs[1].1).await,
        [json!(kept.id)],
        "who keeps rows for longer keeps verdicts too"
    );
    let run = app
        .get(&format!("/api/v1/evals/runs/{}", runs[0].1["id"]))
        .bearer(&ada.token)
        .send()
        .await
        .expect(200);
    assert_eq!(run["completed"], 2, "what a run came to stays");
    // The result of the recent row, its two items, and the verdict on that row.
    assert_eq!(sweep(now.plus(45 * DAY)).await, 4);
    assert!(judged(runs[0].0, &runs[0].1).await.is_empty());
    assert_eq!(
        app.run_results(&ada, &of_cases).await["results"].as_array().unwrap().len(),
        1,
        "cases are no rows"
    );
});
