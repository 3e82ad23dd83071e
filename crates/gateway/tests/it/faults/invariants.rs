//! What must hold whenever the faults are over and nothing is pending: every answered request has one row, sums are the
//! sums of rows, every event and row arrived, answered changes are in force.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gateway_core::otlp::proto::{Any, Event};
use serde_json::{Value, json};

use super::seeds::trace;
use super::world::{COST, KeyState, LIVE_EVAL, World};
use crate::support::receiver::{attribute, is_signed_by, span_log_id, spans, traces};

/// How long the gateway may take to finish its work. Its writer has low priority, so a busy machine delays it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
const LEASE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl World {
    /// Waits until nothing is pending. `tick` moves the time forward, so that leases expire and retries are due.
    pub async fn settle(&self, tick: impl Fn()) {
        let began = Instant::now();
        let mut polled = Instant::now();
        while let Some(pending) = self.pending().await {
            trace(|| format!("pending: {pending}"));
            assert!(began.elapsed() < SETTLE_TIMEOUT, "still pending: {pending}");
            tick();
            // On a machine so busy that a poll takes long, work takes long too: its leases must not expire each time.
            tokio::time::sleep(POLL_INTERVAL.max(polled.elapsed())).await;
            polled = Instant::now();
        }
    }

    /// Work that is not finished.
    async fn pending(&self) -> Option<String> {
        let rows: BTreeSet<i64> = ids(&self.list("/api/v1/logs", "logs").await).into_iter().collect();
        let missing: Vec<&i64> = self.told.rows.difference(&rows).collect();
        if !missing.is_empty() {
            return Some(format!("the rows {missing:?}"));
        }
        for export in [&self.export, &self.span_export] {
            let status = self.export_status(export).await;
            if status["lag"] != 0 {
                return Some(format!("the export: {status}"));
            }
        }
        let is_pending = |delivery: &&Value| delivery["status"] == "pending";
        if let Some(delivery) = self.deliveries().await.iter().find(is_pending) {
            return Some(format!("a delivery: {delivery}"));
        }
        let runs = self.list("/api/v1/evals/runs", "runs").await;
        if let Some(run) = runs.iter().find(|run| run["finished_at"].is_null()) {
            return Some(format!("a run: {run}"));
        }
        let judged = self.live_results().await;
        if judged.len() < rows.len() {
            return Some(format!("{} of {} verdicts on live traffic", rows.len() - judged.len(), rows.len()));
        }
        let sent = self.exported_verdicts();
        if sent.len() < rows.len() {
            return Some(format!("{} of {} exported verdicts", rows.len() - sent.len(), rows.len()));
        }
        for skill in self.list("/api/v1/skills", "skills").await {
            if self.skill_evaluations(&skill).await == 0 {
                return Some(format!("a skill: {skill}"));
            }
        }
        let (warned, reached) = self.warnings().await;
        (warned.len() < reached.len()).then(|| format!("budget alerts: {warned:?} of {reached:?}"))
    }

    /// Checks everything. Call it when nothing is pending.
    pub async fn check(&self) {
        let rows = self.list("/api/v1/logs", "logs").await;
        self.check_rows(&rows).await;
        self.check_money(&rows).await;
        self.check_events().await;
        self.check_export(&rows).await;
        self.check_evals(&rows).await;
        self.check_skills().await;
        self.check_keys().await;
    }

    async fn check_rows(&self, rows: &[Value]) {
        let distinct: BTreeSet<i64> = ids(rows).into_iter().collect();
        assert_eq!(distinct.len(), rows.len(), "a row is listed twice");
        let missing: Vec<&i64> = self.told.rows.difference(&distinct).collect();
        assert!(missing.is_empty(), "answered requests without a row: {missing:?}");
        let usage = self.read("/api/v1/usage/summary").await;
        let sum = |field: &str| rows.iter().filter_map(|row| row[field].as_i64()).sum::<i64>();
        let sums = json!({"requests": rows.len(), "total_tokens": sum("total_tokens"),
            "prompt_tokens": sum("prompt_tokens"), "completion_tokens": sum("completion_tokens")});
        for (field, sum) in sums.as_object().unwrap() {
            assert_eq!(&usage[field], sum, "{field} of the roll-ups: {usage}");
        }
        let errors = rows.iter().filter(|row| row["status"].as_i64() >= Some(400)).count();
        assert_eq!(usage["errors"], errors, "errors of the roll-ups: {usage}");
        assert_equal_usd(&usage["cost_usd"], cost(rows), "the cost of the roll-ups");
    }

    async fn check_money(&self, rows: &[Value]) {
        let budgets = self.list(&format!("/api/v1/orgs/{}/budgets", self.org), "budgets").await;
        for budget in &budgets {
            assert_equal_usd(&budget["spent_usd"], cost(rows), "spent");
        }
        let (warned, reached) = self.warnings().await;
        assert_eq!(warned, reached, "each limit that was reached is announced once");
    }

    /// The budgets with a warning, once per event, and the budgets whose soft limit is reached.
    async fn warnings(&self) -> (Vec<String>, Vec<String>) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let events = self.deliveries().await;
        let is_warning = |delivery: &&Value| delivery["event_type"] == "budget.warning";
        let warned = events.iter().filter(is_warning);
        let mut warned: Vec<String> =
            warned.map(|event| text(&event["payload"]["data"]["budget_id"])).collect();
        warned.sort_unstable();
        let budgets = self.list(&format!("/api/v1/orgs/{}/budgets", self.org), "budgets").await;
        let is_reached = |budget: &&Value| {
            budget["soft_limit_usd"]
                .as_f64()
                .is_some_and(|limit| budget["spent_usd"].as_f64().unwrap() + 1e-9 >= limit)
        };
        let mut reached: Vec<String> =
            budgets.iter().filter(is_reached).map(|budget| text(&budget["id"])).collect();
        reached.sort_unstable();
        (warned, reached)
    }

    async fn check_events(&self) {
        let deliveries = self.deliveries().await;
        let keys = self.list("/api/v1/keys", "keys").await;
        let key_events = |kind: &str| {
            let of_kind = deliveries.iter().filter(|delivery| delivery["event_type"] == kind);
            let mut ids: Vec<&str> =
                of_kind.map(|delivery| delivery["payload"]["data"]["key_id"].as_str().unwrap()).collect();
            ids.sort_unstable();
            ids
        };
        let key_ids = |is_wanted: &dyn Fn(&Value) -> bool| {
            let mut ids: Vec<&str> =
                keys.iter().filter(|key| is_wanted(key)).map(|key| key["id"].as_str().unwrap()).collect();
            ids.sort_unstable();
            ids
        };
        // The first key is older than the webhook.
        let is_own = |key: &Value| key["name"].as_str().is_some_and(|name| name.starts_with('k'));
        assert_eq!(key_events("key.create"), key_ids(&is_own), "one event for each new key");
        let is_revoked = |key: &Value| !key["revoked_at"].is_null();
        assert_eq!(key_events("key.revoke"), key_ids(&is_revoked), "one event for each revoked key");

        let mut bodies: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for request in self.peers.events.requests() {
            assert!(is_signed_by(&request, &self.hook_secret), "an event without a valid signature");
            let id = request.header("webhook-id").unwrap().to_owned();
            let first = bodies.entry(id).or_insert_with(|| request.body.clone());
            assert_eq!(first[..], request.body[..], "each attempt sends the same bytes");
        }
        let arrived: BTreeSet<&str> = bodies.keys().map(String::as_str).collect();
        let recorded: BTreeSet<&str> =
            deliveries.iter().map(|delivery| delivery["event_id"].as_str().unwrap()).collect();
        assert_eq!(recorded.len(), deliveries.len(), "one delivery for each event");
        assert_eq!(arrived, recorded, "every event arrived, and nothing else");
        assert!(deliveries.iter().all(|delivery| delivery["status"] == "delivered"), "{deliveries:?}");
    }

    async fn check_export(&self, rows: &[Value]) {
        let arrived: BTreeSet<i64> = traces(&self.peers.rows.requests()).into_iter().collect();
        let stored: BTreeSet<i64> = ids(rows).into_iter().collect();
        assert_eq!(arrived, stored, "every row was exported, and nothing else");
        let sent: BTreeSet<i64> = self
            .peers
            .spans
            .requests()
            .iter()
            .flat_map(spans)
            .filter_map(|span| span_log_id(&span))
            .collect();
        assert_eq!(sent, stored, "every row was exported as a span, and nothing else");
        assert_eq!(self.exported_verdicts(), stored, "every verdict on live traffic was exported");
        let status = self.export_status(&self.export).await;
        assert_eq!((&status["delivered"], &status["dropped"]), (&json!(rows.len()), &json!(0)), "{status}");
    }

    async fn check_evals(&self, rows: &[Value]) {
        let stored: BTreeSet<i64> = ids(rows).into_iter().collect();
        let judged = self.live_results().await;
        let distinct: BTreeSet<i64> = judged.iter().copied().collect();
        assert_eq!((distinct.len(), &distinct), (judged.len(), &stored), "each row is judged once");
        let runs = self.list("/api/v1/evals/runs", "runs").await;
        let known: BTreeSet<i64> = ids(&runs).into_iter().collect();
        assert!(self.told.runs.is_subset(&known), "a run that was accepted does not exist");
        for run in &runs {
            let path = format!("/api/v1/evals/runs/{}/results", run["id"]);
            let results = self.list(&path, "results").await;
            let items: BTreeSet<i64> =
                results.iter().map(|result| result["log_id"].as_i64().unwrap()).collect();
            let total = usize::try_from(run["total"].as_i64().unwrap()).unwrap();
            assert_eq!((results.len(), items.len()), (total, total), "each item has one result: {run}");
            assert_eq!((&run["completed"], &run["errors"]), (&json!(total), &json!(0)), "{run}");
            let status = if total == 0 { "failed" } else { "completed" };
            assert_eq!(run["status"], status, "{run}");
        }
    }

    async fn check_skills(&self) {
        let skills = self.list("/api/v1/skills", "skills").await;
        let known: BTreeSet<&str> = skills.iter().map(|skill| skill["id"].as_str().unwrap()).collect();
        for told in &self.told.skills {
            assert!(known.contains(told.as_str()), "a skill that was answered does not exist: {told}");
        }
        for skill in &skills {
            assert_eq!(self.skill_evaluations(skill).await, 1, "each version is judged once: {skill}");
        }
    }

    async fn skill_evaluations(&self, skill: &Value) -> usize {
        let path = format!("/api/v1/skills/{}/evaluations", skill["id"].as_str().unwrap());
        self.list(&path, "evaluations").await.len()
    }

    async fn check_keys(&self) {
        let keys = self.list("/api/v1/keys", "keys").await;
        let is_revoked: BTreeMap<&str, bool> =
            keys.iter().map(|key| (key["id"].as_str().unwrap(), !key["revoked_at"].is_null())).collect();
        for key in &self.told.keys {
            let is_revoked = *is_revoked.get(key.id.as_str()).expect("a key that was answered exists");
            match key.state {
                KeyState::Valid => assert!(!is_revoked, "nobody revoked {}", key.id),
                KeyState::Revoked => assert!(is_revoked, "an answered revocation of {} is undone", key.id),
                KeyState::Unknown => {}
            }
            let expected = if is_revoked { 401 } else { 200 };
            let status = self.use_key(&key.raw).await;
            assert_eq!(status, Some(expected), "the cache knows what the store says of {}", key.id);
        }
    }

    /// Checks that no reservation is left: a budget with room for one call admits one.
    pub async fn check_reservations(&mut self) {
        let path = format!("/api/v1/orgs/{}/budgets/{}", self.org, self.budget);
        let spent = self.read(&path).await["spent_usd"].as_f64().unwrap();
        let limit = json!({"hard_limit_usd": spent + COST});
        self.call(http::Method::PUT, &path).json(limit).send().await.expect(200);
        // On PostgreSQL a node that could not give its leases back keeps them until they expire.
        let began = Instant::now();
        while self.chat().await != Some(200) {
            assert!(began.elapsed() < LEASE_TIMEOUT, "a reservation is left over");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        assert_eq!(self.chat().await, Some(403), "the limit was exceeded");
    }

    async fn export_status(&self, export: &str) -> Value {
        self.read(&format!("/api/v1/exports/{export}")).await["status"].clone()
    }

    /// The rows whose verdict of the live eval arrived at the receiver of spans.
    fn exported_verdicts(&self) -> BTreeSet<i64> {
        let requests = self.peers.spans.requests();
        let events = requests.iter().flat_map(spans).flat_map(|span| span.events);
        let is_live = |event: &Event| {
            attribute(&event.attributes, "gen_ai.evaluation.name") == Some(Any::String(LIVE_EVAL.into()))
        };
        events
            .filter(is_live)
            .map(|event| match attribute(&event.attributes, "gateway.log_id") {
                Some(Any::Int(id)) => id,
                other => panic!("a verdict without a row: {other:?}"),
            })
            .collect()
    }

    async fn deliveries(&self) -> Vec<Value> {
        self.list(&format!("/api/v1/webhooks/{}/deliveries", self.hook), "deliveries").await
    }

    /// The rows with a verdict of the live eval, once per verdict.
    async fn live_results(&self) -> Vec<i64> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/api/v1/evals/{}/results?limit=200{cursor}", self.live_eval);
            let page = self.response(&path).await;
            found.extend(
                page.expect(200).as_array().unwrap().iter().map(|result| result["log_id"].as_i64().unwrap()),
            );
            let Some(next) = page.header("x-next-cursor") else { return found };
            cursor = format!("&cursor={next}");
        }
    }
}

fn ids(items: &[Value]) -> Vec<i64> {
    items.iter().map(|item| item["id"].as_i64().unwrap()).collect()
}

fn cost(rows: &[Value]) -> f64 {
    rows.iter().filter_map(|row| row["cost_usd"].as_f64()).sum()
}

#[track_caller]
fn assert_equal_usd(found: &Value, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or(0.0);
    assert!((found - expected).abs() < 1e-9, "{what}: {found} USD, but the rows cost {expected} USD");
}
