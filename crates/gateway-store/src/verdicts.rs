//! Verdicts of others on log rows. The rows themselves lie in the log, which may be another database.

use gateway_core::ids::{OrgId, VerdictId};
use gateway_core::logs::first_log_id;
use gateway_core::time::{DAY, Timestamp};
use serde_json::{Map, Value};

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError};

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

pub async fn insert(db: &Db, verdict: &LogVerdict) -> Result<(), StoreError> {
    let LogVerdict { id, org_id, log_id, source, score, passed, details, external_ref, created_at } = verdict;
    db.exec(
        "INSERT INTO log_verdicts (id, org_id, log_id, source, score, passed, details, external_ref, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        args![*id, *org_id, *log_id, source, *score, *passed, json(details), external_ref, *created_at],
    )
    .await
    .map(|_| ())
}

/// The verdicts on one row, newest first.
pub async fn list(db: &Db, org: OrgId, log_id: i64, page: &Page) -> Result<Paged<LogVerdict>, StoreError> {
    let rows = db
        .all(
            "SELECT id, org_id, log_id, source, score, passed, details, external_ref, created_at FROM log_verdicts \
             WHERE org_id = $1 AND log_id = $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4",
            args![org, log_id, page.before.clone(), page.fetch()],
        )
        .await?;
    let verdicts = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(verdicts, |verdict| verdict.id.to_string()))
}

/// Removes the verdicts on rows that are past their retention. `overrides` are organizations with days of their own.
pub async fn sweep(
    db: &Db,
    now: Timestamp,
    days: u32,
    overrides: &[(OrgId, u32)],
) -> Result<u64, StoreError> {
    let oldest = |days: u32| first_log_id(now.plus(-i64::from(days) * DAY));
    let mut removed = 0;
    for (org, days) in overrides {
        let sql = "DELETE FROM log_verdicts WHERE org_id = $1 AND log_id < $2";
        removed += db.exec(sql, args![*org, oldest(*days)]).await?;
    }
    let own: Vec<String> = overrides.iter().map(|(org, _)| org.to_string()).collect();
    let sql = "DELETE FROM log_verdicts WHERE log_id < $1 AND NOT ($2 LIKE '%' || org_id || '%')";
    removed += db.exec(sql, args![oldest(days), own.join(",")]).await?;
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
