//! Deletes everything of a deleted organization, in short transactions. First the organization is marked as deleted:
//! a batch that is written later drops its rows, so that nothing reappears.

use std::collections::HashSet;

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use super::sweep::{self, SWEEP_ROWS};
use super::write;
use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Dimensions whose usage is deleted together.
const DIMS: i64 = 100;

/// Marks the organization as deleted. Batches that are written from now on drop its rows.
pub async fn mark_deleted(logs: &Db, org: OrgId) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    // A batch that did not see the mark is committed first. Every batch looks for it under this lock.
    write::lock_usage(&mut tx).await?;
    tx.exec("INSERT INTO log_deleted_orgs (id) VALUES ($1) ON CONFLICT DO NOTHING", args![org]).await?;
    tx.commit().await
}

/// The organizations of these rows that were deleted.
pub(super) async fn deleted_orgs(tx: &mut Tx, rows: &[LogRow]) -> Result<HashSet<OrgId>, StoreError> {
    let orgs: HashSet<OrgId> = rows.iter().map(|row| row.org_id).collect();
    let names: Vec<String> = orgs.iter().map(OrgId::to_string).collect();
    let list = serde_json::to_string(&names).unwrap_or_default();
    let sql = format!("SELECT id FROM log_deleted_orgs WHERE {}", tx.dialect().in_texts("id", 1));
    let found = tx.all(AssertSqlSafe(sql), args![list]).await?;
    found.iter().map(|row| row.get("id")).collect()
}

/// Deletes some of what a deleted organization has. Call it until it returns 0.
pub async fn purge_slice(logs: &Db, org: OrgId) -> Result<u64, StoreError> {
    let mut deleted = sweep::delete_rows(logs, org, i64::MAX).await?;
    for sql in [
        "DELETE FROM log_sessions WHERE org_id = $1 AND id IN \
         (SELECT id FROM log_sessions WHERE org_id = $1 LIMIT $2)",
        "DELETE FROM log_batches WHERE org_id = $1 AND seq IN \
         (SELECT seq FROM log_batches WHERE org_id = $1 LIMIT $2)",
        "DELETE FROM log_days WHERE org_id = $1 AND day IN (SELECT day FROM log_days WHERE org_id = $1 LIMIT $2)",
        "DELETE FROM user_spend WHERE (id, day) IN (SELECT id, day FROM user_spend WHERE org_id = $1 LIMIT $2)",
        "DELETE FROM export_queue WHERE (export_id, log_id, verdict) IN (SELECT q.export_id, q.log_id, q.verdict \
         FROM exports e JOIN export_queue q ON q.export_id = e.id WHERE e.org_id = $1 LIMIT $2)",
    ] {
        if deleted == 0 {
            deleted = logs.exec(sql, args![org, SWEEP_ROWS]).await?;
        }
    }
    if deleted == 0 {
        deleted = logs.exec("DELETE FROM exports WHERE org_id = $1", args![org]).await?;
    }
    if deleted == 0 {
        deleted = purge_usage(logs, org).await?;
    }
    Ok(deleted)
}

/// Deletes usage, and dimensions whose usage is gone.
async fn purge_usage(logs: &Db, org: OrgId) -> Result<u64, StoreError> {
    let dims = logs.all("SELECT id FROM usage_dims WHERE org_id = $1 LIMIT $2", args![org, DIMS]).await?;
    if dims.is_empty() {
        return Ok(0);
    }
    let list = id_list(dims.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?);
    for table in ["usage_hours", "usage_user_hours", "usage_days"] {
        let these = in_ids(logs.dialect(), "dim_id", 1);
        let sql = format!(
            "DELETE FROM {table} WHERE (dim_id, at) IN (SELECT dim_id, at FROM {table} WHERE {these} LIMIT $2)"
        );
        let deleted = logs.exec(AssertSqlSafe(sql), args![list.as_str(), SWEEP_ROWS]).await?;
        if deleted > 0 {
            return Ok(deleted);
        }
    }
    let mut deleted = 0;
    for (table, column) in [("usage_closed", "dim_id"), ("usage_dims", "id")] {
        let sql = format!("DELETE FROM {table} WHERE {}", in_ids(logs.dialect(), column, 1));
        deleted += logs.exec(AssertSqlSafe(sql), args![list.as_str()]).await?;
    }
    Ok(deleted)
}
