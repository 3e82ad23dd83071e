//! Reads of budget spending during log writes: neither blocks the other, and every row counts once.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::time::DAY;
use gateway_core::totals::cost_units;
use gateway_store::logs::{self, SpendSnapshot};
use serde_json::json;

use crate::on_both;
use crate::support::log_rows::row;
use crate::support::{Account, TestApp};

/// The cost of a test row, in USD.
const ROW_COST: &str = "0.001";

async fn budget(app: &TestApp, of: &Account) -> String {
    let path = format!("/api/v1/orgs/{}/budgets", of.org_id);
    let body = json!({"scope": "org", "period": "daily", "hard_limit_usd": 1});
    let budget = app.post(&path, body).bearer(&of.token).send().await.expect(201);
    format!("{path}/{}", budget["id"].as_str().unwrap())
}

async fn spent(app: &TestApp, of: &Account, budget: &str) -> f64 {
    app.get(budget).bearer(&of.token).send().await.expect(200)["spent_usd"].as_f64().unwrap()
}

on_both!(a_snapshot_contains_a_row_and_its_cost_or_neither, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let new = row(&ada, now);
    let (logs, org, since) = (&app.app.services.logs, new.org_id, now.plus(-2 * DAY));
    let mut before = SpendSnapshot::open(logs).await.unwrap();
    assert!(before.of_org(org, since).await.unwrap().is_empty());
    assert_eq!(app.write(std::slice::from_ref(&new)).await, 1);
    assert!(before.contained_rows(&[new.id]).await.unwrap().is_empty());
    assert!(before.of_org(org, since).await.unwrap().is_empty());
    let mut after = SpendSnapshot::open(logs).await.unwrap();
    let cost: i64 = after.of_org(org, since).await.unwrap().iter().map(|day| day.cost).sum();
    assert_eq!(cost, cost_units(ROW_COST.parse().unwrap()));
    assert_eq!(after.contained_rows(&[new.id, new.id + 1]).await.unwrap(), [new.id].into());
});

on_both!(reading_spending_does_not_wait_for_a_write_in_progress, |app| async move {
    let ada = app.signup("acme").await;
    let budget = budget(&app, &ada).await;
    let org = ada.org_id.parse().unwrap();
    // The log writer has announced a batch but cannot finish it.
    let rows = Arc::new(vec![row(&ada, app.app.services.clock.now())]);
    app.app.proxy.budgets.write_started(&rows);
    let write = app.app.services.logs.begin().await.unwrap();
    let load = app.app.proxy.budgets.load(org);
    assert!(tokio::time::timeout(Duration::from_secs(2), load).await.unwrap().unwrap().is_some());
    drop(write);
    let stored = logs::write_batch(&app.app.services.logs, &rows).await.unwrap();
    // Read between the commit and the writer's report.
    app.app.proxy.budgets.load(org).await.unwrap();
    assert!((spent(&app, &ada, &budget).await - 0.001).abs() < 1e-9);
    app.app.proxy.budgets.stored(&rows, &stored);
    assert!((spent(&app, &ada, &budget).await - 0.001).abs() < 1e-9);
    app.app.proxy.budgets.load(org).await.unwrap();
    assert!((spent(&app, &ada, &budget).await - 0.001).abs() < 1e-9);
});
