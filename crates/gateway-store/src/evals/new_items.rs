//! The items of a new run: log rows, or copies of the cases of a dataset. Few cases are copied in the transaction that
//! makes the run, many in several, so that the changes of others do not wait for all of them. Until the last of these
//! the run is incomplete: it is in no list and does not start, as if it did not exist. One whose deletion has begun never
//! becomes complete.

use std::sync::LazyLock;

use gateway_core::ids::{CaseId, DatasetId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::datasets::Edition;
use crate::logs::bulk::Bulk;
use crate::row::args;
use crate::slices::{MAX_ROWS, Slice};
use crate::{Db, StoreError, Tx};

/// The total of an incomplete run. Others have 0 or more.
const INCOMPLETE: i64 = -1;

static LOG_ITEMS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO eval_run_items (run_id, position, log_id, state, attempts)",
        "(?,?,?,'pending',0)",
        "",
    )
});

/// Adds log rows to a new run.
pub async fn add_log_items(tx: &mut Tx, run: i64, log_ids: &[i64]) -> Result<(), StoreError> {
    let rows: Vec<_> = (0_i64..).zip(log_ids).map(|(position, log)| args![run, position, *log]).collect();
    LOG_ITEMS.run(tx, rows.into_iter()).await?;
    set_total(tx, run, i64::try_from(log_ids.len()).unwrap_or(i64::MAX)).await
}

/// The cases of a dataset on their way into a new run. They are copied, because the working copy may change during the
/// run.
#[derive(Debug)]
pub struct CaseCopy {
    run: i64,
    dataset: DatasetId,
    of: Edition,
    /// The last case that was copied.
    after: Option<CaseId>,
    copied: i64,
}

impl CaseCopy {
    pub fn new(run: i64, dataset: DatasetId, of: Edition) -> Self {
        Self { run, dataset, of, after: None, copied: 0 }
    }

    /// How many cases are copied.
    pub fn copied(&self) -> i64 {
        self.copied
    }

    /// Copies as many of the next cases as one transaction should. Returns true when there are no more.
    pub async fn copy_some(&mut self, tx: &mut Tx) -> Result<bool, StoreError> {
        let after = self.after.map(|id| id.to_string()).unwrap_or_default();
        let cases = format!(
            "FROM datasets d JOIN dataset_cases c ON c.dataset_id = d.id WHERE d.id = $1 AND c.id > $2 AND {}",
            self.of.condition()
        );
        let sql = format!(
            "SELECT c.id, CAST(OCTET_LENGTH(c.input) + OCTET_LENGTH(c.expected) + OCTET_LENGTH(c.metadata) AS BIGINT) \
             AS size {cases} ORDER BY c.id LIMIT {}",
            MAX_ROWS + 1
        );
        let sizes = tx.all(AssertSqlSafe(sql), args![self.dataset, after.as_str()]).await?;
        let slice = Slice::of(&sizes)?;
        let Some(last) = slice.rows.checked_sub(1).and_then(|index| sizes.get(index)) else {
            return Ok(true);
        };
        let last: CaseId = last.get("id")?;
        let sql = format!(
            "INSERT INTO eval_run_items (run_id, position, case_id, input, expected, metadata, state, attempts) \
             SELECT $3, $4 + ROW_NUMBER() OVER (ORDER BY c.id) - 1, c.id, c.input, c.expected, c.metadata, 'pending', 0 \
             {cases} AND c.id <= $5"
        );
        let values = args![self.dataset, after.as_str(), self.run, self.copied, last];
        let copied = tx.exec(AssertSqlSafe(sql), values).await?;
        self.copied = self.copied.saturating_add_unsigned(copied);
        self.after = Some(last);
        Ok(slice.rows == sizes.len())
    }

    /// Makes the run incomplete, in the transaction that makes the run. More cases follow in others.
    pub async fn suspend(&self, tx: &mut Tx) -> Result<(), StoreError> {
        set_total(tx, self.run, INCOMPLETE).await
    }

    /// Makes the run complete after the last case. False when its deletion has begun, or it does not exist any more.
    pub async fn finish(self, tx: &mut Tx) -> Result<bool, StoreError> {
        let sql = "UPDATE eval_runs SET total = $2 WHERE id = $1 AND started_at IS NULL";
        Ok(tx.exec(sql, args![self.run, self.copied]).await? == 1)
    }
}

async fn set_total(tx: &mut Tx, run: i64, total: i64) -> Result<(), StoreError> {
    tx.exec("UPDATE eval_runs SET total = $2 WHERE id = $1", args![run, total]).await.map(|_| ())
}

/// Begins the deletion of an incomplete run: from now on its copy cannot make it complete, however often the deletion is
/// interrupted. False when there is no such run, or it is complete.
pub async fn doom_incomplete(db: &Db, org: OrgId, run: i64, now: Timestamp) -> Result<bool, StoreError> {
    // No incomplete run is ever started otherwise.
    let sql = "UPDATE eval_runs SET started_at = $3 WHERE org_id = $1 AND id = $2 AND total < 0";
    Ok(db.exec(sql, args![org, run, now]).await? == 1)
}

/// Deletes an incomplete run together with its last items.
pub async fn delete_incomplete(db: &Db, org: OrgId, run: i64) -> Result<(), StoreError> {
    let sql = "DELETE FROM eval_runs WHERE org_id = $1 AND id = $2 AND total < 0";
    db.exec(sql, args![org, run]).await.map(|_| ())
}
