//! Runs over many cases: copied in several transactions, counted batch by batch, and deleted if the copy is interrupted.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use gateway::jobs::postponed::Postponed;
use gateway::jobs::run_eval::RunEval;
use gateway_core::ids::DatasetId;
use gateway_core::time::Timestamp;
use gateway_store::Db;
use gateway_store::datasets::{self, Edition};
use gateway_store::evals::{self, CaseCopy, ItemOutcome, NewEvalResult, NewRun, RunEnd, RunStatus};
use gateway_store::testing::count;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::datasets::DatasetFixture;
use crate::support::{Account, TestApp};

/// More than one transaction copies, and several batches judge.
const CASES: usize = 1_500;

/// Makes a run without items, as a request does.
fn new_run<'a>(
    app: &TestApp,
    by: &Account,
    eval: &Value,
    dataset: Option<DatasetId>,
    definition: &'a Value,
) -> NewRun<'a> {
    NewRun {
        id: app.app.services.ids.next_row_id(),
        org: by.org_id.parse().unwrap(),
        eval_id: eval["id"].as_i64().unwrap(),
        dataset: dataset.map(|dataset| (dataset, None)),
        begun_by: "test",
        definition,
        target: None,
        prompt: None,
        created_by: "test",
        now: app.app.services.clock.now(),
    }
}

async fn counted(db: &Db, run: &Value, rows: &str) -> i64 {
    count(db, &format!("{rows} WHERE run_id = {}", run["id"])).await.unwrap()
}

async fn wait_until_gone(db: &Db, rows: &[&str]) {
    let began = Instant::now();
    for rows in rows {
        while count(db, rows).await.unwrap() > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "left: {rows}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

on_both!(many_cases_are_copied_and_counted_exactly, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let data = DatasetFixture::create(&app, &ada).await;
    let mut csv = String::from("input,expected\n");
    for number in 0..CASES {
        writeln!(csv, "question {number},answer {number}").unwrap();
    }
    data.import("text/csv", csv).await.expect(200);
    data.freeze().await;
    let other = DatasetFixture::create(&app, &ada).await;
    let eval = app.eval(&ada, "static", "contains", json!({"value": "7"})).await;
    let expected = (0..CASES).filter(|number| number.to_string().contains('7')).count();
    for version in [json!(null), json!(1)] {
        let start = data.post("/eval", json!({"eval_id": eval["id"], "version": version}));
        // Others write while the cases are copied.
        let (started, _) = tokio::join!(start, other.add(&["one", "two"]));
        let started = started.expect(202);
        assert_eq!((&started["status"], &started["total"]), (&json!("queued"), &json!(CASES)));
        let run = app.wait_for_run(&ada, &started).await;
        assert_eq!((&run["status"], &run["completed"]), (&json!("completed"), &json!(CASES)), "{run}");
        assert_eq!(
            (&run["passed"], &run["failed"], &run["errors"]),
            (&json!(expected), &json!(CASES - expected), &json!(0))
        );
        assert_eq!(counted(db, &run, "eval_results").await, i64::try_from(CASES).unwrap());
        let passed = format!("eval_results WHERE passed = 1 AND run_id = {}", run["id"]);
        assert_eq!(count(db, &passed).await.unwrap(), i64::try_from(expected).unwrap());
        let copied = format!(
            "(SELECT DISTINCT case_id FROM eval_run_items WHERE run_id = {} AND position < {CASES}) copied",
            run["id"]
        );
        assert_eq!(count(db, &copied).await.unwrap(), i64::try_from(CASES).unwrap());
    }
    wait_until_gone(db, &["jobs WHERE name = 'run_eval'"]).await;
});

on_both!(a_run_whose_copy_was_interrupted_is_never_seen_and_deleted, |app| async move {
    let (ada, services) = (app.signup("acme").await, &app.app.services);
    let (db, org) = (&services.db, ada.org_id.parse().unwrap());
    let cases: Vec<Value> = (0..CASES).map(|number| json!({"input": number})).collect();
    let dataset: DatasetId = app.dataset(&ada, &cases).await.parse().unwrap();
    let eval = app.eval(&ada, "static", "contains", json!({"value": "1"})).await;
    // The first transaction of the request. Then the process is killed.
    let definition = json!({});
    let run = new_run(&app, &ada, &eval, Some(dataset), &definition);
    let mut copy = CaseCopy::new(run.id, dataset, Edition::Working);
    let mut tx = db.begin().await.unwrap();
    evals::insert_run(&mut tx, &run).await.unwrap();
    assert!(!copy.copy_some(&mut tx).await.unwrap());
    copy.suspend(&mut tx).await.unwrap();
    let job = Postponed::enqueue(&app.app.jobs, &mut tx, org, &RunEval { run: run.id }).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(count(db, "eval_run_items").await.unwrap(), 1_000);
    let path = format!("/api/v1/evals/runs/{}", run.id);
    app.get(&path).bearer(&ada.token).send().await.expect_error(404, "not_found");
    let list = app.get("/api/v1/evals/runs").bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["runs"], json!([]));
    assert!(evals::start_run(db, org, run.id, run.now).await.unwrap().is_none());
    let mut tx = db.begin().await.unwrap();
    assert!(job.postpone(&app.app.jobs, &mut tx).await.unwrap(), "the copy could go on");
    tx.commit().await.unwrap();

    services.clock.advance(60_000);
    wait_until_gone(db, &["eval_runs", "eval_run_items", "jobs WHERE name = 'run_eval'"]).await;
    let mut tx = db.begin().await.unwrap();
    assert!(!job.postpone(&app.app.jobs, &mut tx).await.unwrap());
    assert!(job.start(&app.app.jobs, &mut tx).await.unwrap().is_none());
});

on_both!(a_copy_never_completes_a_run_whose_deletion_has_begun, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let dataset: DatasetId = app.dataset(&ada, &[json!({"input": 1})]).await.parse().unwrap();
    let eval = app.eval(&ada, "static", "contains", json!({"value": "1"})).await;
    let definition = json!({});
    let run = new_run(&app, &ada, &eval, Some(dataset), &definition);
    let mut copy = CaseCopy::new(run.id, dataset, Edition::Working);
    let mut tx = db.begin().await.unwrap();
    evals::insert_run(&mut tx, &run).await.unwrap();
    copy.suspend(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    // An incomplete run is neither finished nor cancelled, only deleted.
    let end = RunEnd { status: RunStatus::Failed, error: None, at: run.now };
    evals::finish_run(db, run.org, run.id, end).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    assert!(!evals::cancel_run(&mut tx, run.org, run.id, run.now).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(count(db, "eval_runs WHERE finished_at IS NULL").await.unwrap(), 1);

    // The deletion is interrupted at once, and the copy goes on.
    for _ in 0..2 {
        assert!(evals::doom_incomplete(db, run.org, run.id, run.now).await.unwrap());
    }
    let mut tx = db.begin().await.unwrap();
    assert!(copy.copy_some(&mut tx).await.unwrap());
    assert_eq!(copy.copied(), 1);
    assert!(!copy.finish(&mut tx).await.unwrap());
    tx.commit().await.unwrap();
    assert!(evals::find_run(db, run.org, run.id).await.unwrap().is_none());
    assert!(evals::start_run(db, run.org, run.id, run.now).await.unwrap().is_none());
    evals::delete_incomplete(db, run.org, run.id).await.unwrap();
    assert_eq!(count(db, "eval_runs").await.unwrap(), 0);
    assert!(!evals::doom_incomplete(db, run.org, run.id, run.now).await.unwrap());
});

on_both!(large_cases_are_copied_by_their_bytes, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let cases: Vec<Value> = (0..50).map(|_| json!({"input": "x".repeat(200 << 10)})).collect();
    let dataset: DatasetId = app.dataset(&ada, &cases).await.parse().unwrap();
    let eval = app.eval(&ada, "static", "contains", json!({"value": "1"})).await;
    let definition = json!({});
    let run = new_run(&app, &ada, &eval, Some(dataset), &definition);
    let mut copy = CaseCopy::new(run.id, dataset, Edition::Working);
    let mut tx = db.begin().await.unwrap();
    evals::insert_run(&mut tx, &run).await.unwrap();
    tx.commit().await.unwrap();
    for (copied, is_last) in [(20, false), (40, false), (50, true)] {
        let mut tx = db.begin().await.unwrap();
        assert_eq!(copy.copy_some(&mut tx).await.unwrap(), is_last);
        tx.commit().await.unwrap();
        assert_eq!(count(db, "eval_run_items").await.unwrap(), copied);
    }
    let mut tx = db.begin().await.unwrap();
    assert!(copy.finish(&mut tx).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(evals::find_run(db, run.org, run.id).await.unwrap().unwrap().total, 50);
});

on_both!(an_outcome_counts_once, |app| async move {
    let (ada, services) = (app.signup("acme").await, &app.app.services);
    let db = &services.db;
    let eval = app.eval(&ada, "static", "contains", json!({"value": "1"})).await;
    let definition = json!({});
    let new = new_run(&app, &ada, &eval, None, &definition);
    let mut tx = db.begin().await.unwrap();
    evals::insert_run(&mut tx, &new).await.unwrap();
    evals::add_log_items(&mut tx, new.id, &[11, 12, 13, 14]).await.unwrap();
    tx.commit().await.unwrap();
    let run = evals::start_run(db, new.org, new.id, new.now).await.unwrap().unwrap();
    assert_eq!(run.total, 4);
    let judged = |position: i64, passed: bool| {
        ItemOutcome::Judged(NewEvalResult {
            id: services.ids.next_row_id(),
            position,
            log_id: Some(11 + position),
            case_id: None,
            score: 1.0,
            passed,
            details: String::new(),
        })
    };
    let failed = |position: i64| ItemOutcome::Error { position, error: "no".into() };
    let retried = |position: i64| ItemOutcome::Retry { position, error: "later".into() };
    // What a node that lost its lease records as well is not counted again.
    for (outcomes, counts) in [
        (vec![judged(0, true), failed(1), retried(2)], (1, 0, 1)),
        (vec![judged(0, true), failed(1), retried(2)], (1, 0, 1)),
        (vec![judged(0, false), judged(1, true), failed(0)], (1, 0, 1)),
        (vec![judged(2, false), judged(2, false), judged(3, true)], (2, 1, 1)),
    ] {
        let mut tx = db.begin().await.unwrap();
        assert!(evals::record_outcomes(&mut tx, &run, outcomes, new.now).await.unwrap());
        tx.commit().await.unwrap();
        let found = evals::find_run(db, new.org, new.id).await.unwrap().unwrap();
        assert_eq!((found.passed, found.failed, found.errors), counts);
        let stored = (counts.0 + counts.1, counts.2);
        assert_eq!(count(db, "eval_results").await.unwrap(), stored.0);
        assert_eq!(count(db, "eval_run_items WHERE state = 'error'").await.unwrap(), stored.1);
    }
});

on_both!(every_change_of_a_dataset_is_noticed, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let org = ada.org_id.parse().unwrap();
    let id: DatasetId = app.dataset(&ada, &[json!({"input": 1})]).await.parse().unwrap();
    let mut before = datasets::find(db, org, id).await.unwrap().unwrap();
    assert!(before.is_unchanged_since(&before));
    // The clocks of nodes differ, and two changes can be made within a millisecond.
    for time in [before.updated_at, before.updated_at, Timestamp(before.updated_at.0 - 1_000)] {
        let mut tx = db.begin().await.unwrap();
        let locked = datasets::find_for_update(&mut tx, org, id).await.unwrap().unwrap();
        datasets::update_case_count(&mut tx, &locked, 0, time).await.unwrap();
        tx.commit().await.unwrap();
        let after = datasets::find(db, org, id).await.unwrap().unwrap();
        assert!(!after.is_unchanged_since(&before));
        assert!(after.updated_at > before.updated_at);
        before = after;
    }
});
