//! Verdicts on log rows that callers report. The rows are in the logs part of the store, which may be another database.

use gateway_core::ids::{OrgId, VerdictId};
use gateway_core::logs::first_log_id;
use gateway_core::time::{DAY, Timestamp};
use serde_json::{Map, Value};
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

/// Rows that a sweep deletes in one transaction.
const SWEEP_ROWS: i64 = 1_000;
/// Transactions per table in one sweep.
const MAX_SWEEP_TRANSACTIONS: u32 = 100;

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct LogVerdict in "log_verdicts" {
        pub id: VerdictId [key],
        pub org_id: OrgId [key],
        pub log_id: i64,
        pub source: String,
        pub score: f64,
        pub passed: bool,
        pub details: Map<String, Value> [json],
        /// Empty when there is none.
        pub external_ref: String,
        pub created_at: Timestamp [once],
    }
}

pub async fn insert(tx: &mut Tx, verdict: &LogVerdict) -> Result<(), StoreError> {
    table::insert(tx, verdict, vec![]).await
}

pub async fn find(db: &Db, org: OrgId, id: VerdictId) -> Result<Option<LogVerdict>, StoreError> {
    let row = db.opt(LogVerdict::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// The verdicts on one row, newest first.
pub async fn list(db: &Db, org: OrgId, log_id: i64, page: &Page) -> Result<Paged<LogVerdict>, StoreError> {
    let sql = LogVerdict::select(
        "org_id = $1 AND log_id = $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4",
    );
    let rows = db.all(sql, args![org, log_id, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<LogVerdict>(&rows)?, |verdict| verdict.id.to_string()))
}

/// Deletes reported verdicts and eval results on rows past their retention; returns how many. `overrides` are
/// organizations with their own retention. The work of one call is bounded: call it again soon when it returns more
/// than 0.
pub async fn sweep(
    db: &Db,
    now: Timestamp,
    days: u32,
    overrides: &[(OrgId, u32)],
) -> Result<u64, StoreError> {
    let own: Vec<String> = overrides.iter().map(|(org, _)| org.to_string()).collect();
    let default_orgs = format!("NOT ({})", db.dialect().in_texts("org_id", 1));
    let by_default = (default_orgs, serde_json::to_string(&own).unwrap_or_default(), days);
    let by_override = overrides.iter().map(|(org, days)| ("org_id = $1".to_owned(), org.to_string(), *days));
    let mut removed = 0;
    for (in_org, org_parameter, days) in [by_default].into_iter().chain(by_override) {
        let before = now.plus(-i64::from(days) * DAY);
        let oldest = first_log_id(before);
        let verdicts = format!(
            "DELETE FROM log_verdicts WHERE id IN (SELECT id FROM log_verdicts WHERE {in_org} AND log_id < $2 LIMIT $3)"
        );
        // A running run still counts its results; its items record what could not be judged.
        let results = format!(
            "DELETE FROM eval_results WHERE id IN (SELECT id FROM eval_results WHERE {in_org} AND log_id < $2 \
             AND log_id IS NOT NULL AND case_id IS NULL AND NOT EXISTS (SELECT 1 FROM eval_runs u \
             WHERE u.id = eval_results.run_id AND u.finished_at IS NULL) LIMIT $3)"
        );
        let items = format!(
            "DELETE FROM eval_run_items WHERE (run_id, position) IN (SELECT i.run_id, i.position FROM eval_runs u \
             JOIN eval_run_items i ON i.run_id = u.id WHERE {} AND u.dataset_id IS NULL AND u.finished_at < $2 LIMIT $3)",
            in_org.replace("org_id", "u.org_id")
        );
        for (sql, bound) in [(verdicts, oldest), (results, oldest), (items, before.0)] {
            removed += delete_in_slices(db, &sql, &org_parameter, bound).await?;
        }
    }
    Ok(removed)
}

/// Deletes in short transactions, so that other writers do not wait long.
async fn delete_in_slices(db: &Db, sql: &str, org_parameter: &str, bound: i64) -> Result<u64, StoreError> {
    let mut removed = 0;
    for _ in 0..MAX_SWEEP_TRANSACTIONS {
        let deleted = db.exec(AssertSqlSafe(sql.to_owned()), args![org_parameter, bound, SWEEP_ROWS]).await?;
        removed += deleted;
        if deleted < SWEEP_ROWS.cast_unsigned() {
            break;
        }
    }
    Ok(removed)
}
