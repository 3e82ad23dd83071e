//! Fixtures for evals and datasets.

use std::time::Duration;

use gateway_core::datasets::CaseContent;
use gateway_core::ids::{CaseId, DatasetId};
use gateway_store::datasets::{self, Dataset};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Account, TestApp};

impl TestApp {
    /// Creates an eval and returns it.
    pub async fn eval(&self, by: &Account, kind: &str, evaluator: &str, config: Value) -> Value {
        let body = json!({"name": evaluator, "type": kind, "evaluator": evaluator, "config": config});
        self.post("/api/v1/evals", body).bearer(&by.token).send().await.expect(201)
    }

    /// Starts a run, waits until it finishes and returns it.
    pub async fn eval_run(&self, by: &Account, eval: &Value, body: Value) -> Value {
        let path = format!("/api/v1/evals/{}/run", eval["id"]);
        let run = self.post(&path, body).bearer(&by.token).send().await.expect(202);
        self.wait_for_run(by, &run).await
    }

    /// Waits until the run has finished and returns it.
    pub async fn wait_for_run(&self, by: &Account, run: &Value) -> Value {
        let path = format!("/api/v1/evals/runs/{}", run["id"]);
        // Judging has a low priority, so a busy machine delays it; and requests per minute are limited.
        for attempt in 0..600 {
            let run = self.get(&path).bearer(&by.token).send().await.expect(200);
            if run["finished_at"].is_string() {
                return run;
            }
            let pause = if attempt < 50 { 20 } else { 250 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        panic!("the run did not end within 130 s");
    }

    /// Starts a replay, waits until it finishes and returns it.
    pub async fn replay(&self, by: &Account, body: Value) -> Value {
        let replay = self.post("/api/v1/replays", body).bearer(&by.token).send().await.expect(202);
        self.wait_for_replay(by, &replay).await
    }

    /// Waits until the replay has finished and returns it.
    pub async fn wait_for_replay(&self, by: &Account, replay: &Value) -> Value {
        let path = format!("/api/v1/replays/{}", replay["id"]);
        for _ in 0..6_000 {
            let replay = self.get(&path).bearer(&by.token).send().await.expect(200);
            if replay["finished_at"].is_string() {
                return replay;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the replay did not end within 120 s");
    }

    pub async fn run_results(&self, by: &Account, run: &Value) -> Value {
        let path = format!("/api/v1/evals/runs/{}/results?limit=200", run["id"]);
        self.get(&path).bearer(&by.token).send().await.expect(200)
    }

    /// Inserts a dataset with these cases directly into the store.
    pub async fn dataset(&self, of: &Account, cases: &[Value]) -> String {
        let (org, now) = (of.org_id.parse().unwrap(), self.app.services.clock.now());
        let dataset = Dataset {
            id: self.app.services.ids.new_id::<DatasetId>(),
            name: "capitals".into(),
            description: String::new(),
            current_version: 0,
            case_count: i64::try_from(cases.len()).unwrap(),
            created_at: now,
            updated_at: now,
        };
        let cases = cases
            .iter()
            .map(|case| (self.app.services.ids.new_id::<CaseId>(), CaseContent::from_value(case).unwrap()));
        let mut tx = self.app.services.db.begin().await.unwrap();
        datasets::insert(&mut tx, org, &dataset).await.unwrap();
        datasets::add_cases(&mut tx, &dataset, cases.collect(), now).await.unwrap();
        tx.commit().await.unwrap();
        dataset.id.to_string()
    }

    /// Freezes the working copy into a new version.
    pub async fn freeze(&self, of: &Account, dataset: &str) {
        let org = of.org_id.parse().unwrap();
        let id = DatasetId(dataset.parse::<Uuid>().unwrap());
        let mut tx = self.app.services.db.begin().await.unwrap();
        let held = datasets::find_for_update(&mut tx, org, id).await.unwrap().unwrap();
        datasets::freeze(&mut tx, &held, None, "test", self.app.services.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
    }
}
