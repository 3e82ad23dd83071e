//! Verdicts of others on log rows. The rows themselves lie in the log, which may be another database.

use gateway_core::ids::{OrgId, VerdictId};
use gateway_core::logs::first_log_id;
use gateway_core::time::{DAY, Timestamp};
use serde_json::{Map, Value};
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

/// Verdicts that are removed in one transaction, and transactions in one call.
const SLICE: i64 = 1_000;
const MOST_SLICES: u32 = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct LogVerdict {
    pub id: VerdictId,
    pub org_id: OrgId,
    pub log_id: i64,
    pub source: String,
    pub score: f64,
    pub passed: bool,
    pub details: Map<String, Value>,
    /// Empty when there is none.
    pub external_ref: String,
    pub created_at: Timestamp,
}

pub async fn insert(tx: &mut Tx, verdict: &LogVerdict) -> Result<(), StoreError> {
    let LogVerdict { id, org_id, log_id, source, score, passed, details, external_ref, created_at } = verdict;
    tx.exec(
        "INSERT INTO log_verdicts (id, org_id, log_id, source, score, passed, details, external_ref, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        args![*id, *org_id, *log_id, source, *score, *passed, json(details), external_ref, *created_at],
    )
    .await
    .map(|_| ())
}

const COLUMNS: &str = "id, org_id, log_id, source, score, passed, details, external_ref, created_at";

pub async fn find(db: &Db, org: OrgId, id: VerdictId) -> Result<Option<LogVerdict>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM log_verdicts WHERE org_id = $1 AND id = $2");
    db.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

/// The verdicts on one row, newest first.
pub async fn list(db: &Db, org: OrgId, log_id: i64, page: &Page) -> Result<Paged<LogVerdict>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM log_verdicts \
         WHERE org_id = $1 AND log_id = $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, log_id, page.before.clone(), page.fetch()]).await?;
    let verdicts = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(verdicts, |verdict| verdict.id.to_string()))
}

/// Removes the verdicts of others and of evals on rows that are past their retention; answers how many. `overrides` are
/// organizations with days of their own. A call ends after a bounded amount of work: it is to be called again soon when it
/// answers more than nothing.
pub async fn sweep(
    db: &Db,
    now: Timestamp,
    days: u32,
    overrides: &[(OrgId, u32)],
) -> Result<u64, StoreError> {
    let own: Vec<String> = overrides.iter().map(|(org, _)| org.to_string()).collect();
    let (all, one) = (format!("NOT ({})", db.dialect().in_texts("org_id", 1)), "org_id = $1".to_owned());
    let everybody = (all, serde_json::to_string(&own).unwrap_or_default(), days);
    let each = overrides.iter().map(|(org, days)| (one.clone(), org.to_string(), *days));
    let mut removed = 0;
    for (whose, organizations, days) in [everybody].into_iter().chain(each) {
        let before = now.plus(-i64::from(days) * DAY);
        let oldest = first_log_id(before);
        let verdicts = format!(
            "DELETE FROM log_verdicts WHERE id IN (SELECT id FROM log_verdicts WHERE {whose} AND log_id < $2 LIMIT $3)"
        );
        // A run that goes on counts what it has; items are kept for what could not be judged.
        let results = format!(
            "DELETE FROM eval_results WHERE id IN (SELECT id FROM eval_results WHERE {whose} AND log_id < $2 \
             AND log_id IS NOT NULL AND case_id IS NULL AND NOT EXISTS (SELECT 1 FROM eval_runs u \
             WHERE u.id = eval_results.run_id AND u.finished_at IS NULL) LIMIT $3)"
        );
        let items = format!(
            "DELETE FROM eval_run_items WHERE (run_id, position) IN (SELECT i.run_id, i.position FROM eval_runs u \
             JOIN eval_run_items i ON i.run_id = u.id WHERE {} AND u.dataset_id IS NULL AND u.finished_at < $2 LIMIT $3)",
            whose.replace("org_id", "u.org_id")
        );
        for (sql, bound) in [(verdicts, oldest), (results, oldest), (items, before.0)] {
            removed += slices(db, &sql, &organizations, bound).await?;
        }
    }
    Ok(removed)
}

/// In short transactions, so that nobody waits long behind one.
async fn slices(db: &Db, sql: &str, organizations: &str, bound: i64) -> Result<u64, StoreError> {
    let mut removed = 0;
    for _ in 0..MOST_SLICES {
        let gone = db.exec(AssertSqlSafe(sql.to_owned()), args![organizations, bound, SLICE]).await?;
        removed += gone;
        if gone < SLICE.cast_unsigned() {
            break;
        }
    }
    Ok(removed)
}

fn read(row: &Row) -> Result<LogVerdict, StoreError> {
    Ok(LogVerdict {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        log_id: row.get("log_id")?,
        source: row.get("source")?,
        score: row.get("score")?,
        passed: row.get("passed")?,
        details: row.json("details")?,
        external_ref: row.get("external_ref")?,
        created_at: row.get("created_at")?,
    })
}
