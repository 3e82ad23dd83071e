//! What enters the queue of exports: rows in the transaction that stores them, verdicts and checkpoints by a job.

use std::collections::HashMap;
use std::sync::LazyLock;

use gateway_core::audit::checkpoint::SignedCheckpoint;
use gateway_core::exports::{ActivePeriods, ExportSource};
use gateway_core::ids::{ExportId, OrgId};
use gateway_core::logs::{LogRow, LogSource, first_log_id};
use gateway_core::otlp::encode::EvaluationResult;
use sqlx::AssertSqlSafe;

use super::sources;
use crate::logs::bulk::Bulk;
use crate::row::{args, json};
use crate::{Db, StoreError, Tx};

/// The name of the job that copies verdicts and checkpoints into the queues.
pub const COPY_JOB: &str = "export_verdicts";

/// What the key of a checkpoint in the queue begins with. The key of a verdict is its id.
pub(super) const CHECKPOINT: &str = "checkpoint/";

static QUEUE: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO export_queue (export_id, log_id)", "(?,?)", ""));

/// Queues new rows for every export that covers them.
pub(crate) async fn enqueue(tx: &mut Tx, rows: &[&LogRow]) -> Result<(), StoreError> {
    let mut orgs: Vec<String> = rows.iter().map(|row| row.org_id.to_string()).collect();
    orgs.sort_unstable();
    orgs.dedup();
    let sql = format!(
        "SELECT id, org_id, sources, periods FROM exports WHERE {}",
        tx.dialect().in_texts("org_id", 1)
    );
    let found = tx.all(AssertSqlSafe(sql), args![json(&orgs)]).await?;
    if found.is_empty() {
        return Ok(());
    }
    let mut exports: HashMap<OrgId, Vec<(ExportId, Vec<ExportSource>, ActivePeriods)>> = HashMap::new();
    for row in &found {
        let export = (row.get("id")?, sources::from_row(row, "sources")?, row.json("periods")?);
        exports.entry(row.get("org_id")?).or_default().push(export);
    }
    let mut items = Vec::new();
    for row in rows {
        for (export, sources, periods) in exports.get(&row.org_id).into_iter().flatten() {
            if sources.contains(&row.source.into()) && periods.covers(row) {
                items.push(args![*export, row.id]);
            }
        }
    }
    QUEUE.run(tx, items.into_iter()).await
}

static WITH_CONTENT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO export_queue (export_id, log_id, verdict, content)",
        "(?,?,?,?)",
        "ON CONFLICT DO NOTHING",
    )
});

/// Whether the organization has an enabled export that receives verdicts.
pub async fn has_verdict_export(logs: &Db, org: OrgId) -> Result<bool, StoreError> {
    let sql = "SELECT 1 AS one FROM exports WHERE org_id = $1 AND kind = 'otlp' AND enabled = 1 LIMIT 1";
    Ok(logs.opt(sql, args![org]).await?.is_some())
}

/// Queues verdicts for every export that covers them. Each comes with the id and the source of its row. Verdicts that
/// are already queued are skipped.
pub async fn enqueue_verdicts(
    logs: &Db,
    org: OrgId,
    verdicts: &[(i64, LogSource, EvaluationResult)],
) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    let sql = "SELECT id, sources, periods FROM exports WHERE org_id = $1 AND kind = 'otlp'";
    let mut items = Vec::new();
    for row in &tx.all(sql, args![org]).await? {
        let (export, sources): (ExportId, _) = (row.get("id")?, sources::from_row(row, "sources")?);
        let periods: ActivePeriods = row.json("periods")?;
        for (log_id, source, verdict) in verdicts {
            if sources.contains(&(*source).into()) && periods.covers_time(verdict.at) {
                items.push(args![export, *log_id, &verdict.id, json(verdict)]);
            }
        }
    }
    WITH_CONTENT.run(&mut tx, items.into_iter()).await?;
    tx.commit().await
}

/// Whether the organization has an enabled export that receives checkpoints.
pub async fn has_checkpoint_export(logs: &Db, org: OrgId) -> Result<bool, StoreError> {
    let sql = "SELECT sources FROM exports WHERE org_id = $1 AND enabled = 1";
    for row in &logs.all(sql, args![org]).await? {
        if sources::from_row(row, "sources")?.contains(&ExportSource::Audit) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Queues checkpoints of the audit log for every export that covers them. Those that are already queued are skipped.
pub async fn enqueue_checkpoints(
    logs: &Db,
    org: OrgId,
    checkpoints: &[SignedCheckpoint],
) -> Result<(), StoreError> {
    let mut tx = logs.begin().await?;
    let sql = "SELECT id, sources, periods FROM exports WHERE org_id = $1";
    let mut items = Vec::new();
    for row in &tx.all(sql, args![org]).await? {
        let (export, sources): (ExportId, _) = (row.get("id")?, sources::from_row(row, "sources")?);
        let periods: ActivePeriods = row.json("periods")?;
        for signed in checkpoints {
            let at = signed.checkpoint.at;
            if sources.contains(&ExportSource::Audit) && periods.covers_time(at) {
                let key = format!("{CHECKPOINT}{}", signed.checkpoint.seq);
                items.push(args![export, first_log_id(at), key, json(signed)]);
            }
        }
    }
    WITH_CONTENT.run(&mut tx, items.into_iter()).await?;
    tx.commit().await
}
