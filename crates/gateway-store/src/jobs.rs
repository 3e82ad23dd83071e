//! Background jobs with leases. A worker claims a job, renews its lease while it works, and deletes the job at the end.
//! A job whose worker died becomes due again when the lease expires.

use gateway_core::ids::{JobId, OrgId};
use gateway_core::time::Timestamp;

use crate::db::Dialect;
use crate::leases::{Claim, Lease, LeaseTable, Release};
use crate::row::args;
use crate::table::{Table as _, table};
use crate::{Db, StoreError, Tx};

/// The key of the advisory lock for claims on PostgreSQL. Nodes claim one at a time, because each must see the claims of
/// the others for the same organization.
const CLAIM_LOCK: i64 = 0x6761_7465_7761_7905;
/// Hashed with the organization's id to the key of the advisory lock for additions to a bounded queue.
const BOUND_LOCK: i64 = 0x6761_7465_7761_7906;
/// A job is due when its lease ends, so both are one column.
const LEASES: LeaseTable = LeaseTable { table: "jobs", owner: "holder", until: "due_at" };

#[derive(Debug, Clone)]
pub struct NewJob<'a> {
    pub id: JobId,
    pub org: OrgId,
    pub name: &'a str,
    /// The job is not added while another job with the same name and key exists.
    pub dedup_key: Option<&'a str>,
    pub payload: &'a str,
    pub due_at: Timestamp,
    pub now: Timestamp,
}

table! {
    /// A job whose lease the caller holds.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClaimedJob in "jobs" {
        pub id: JobId [key],
        pub org: OrgId = "org_id" [once],
        pub payload: String,
        /// Including the current one.
        pub attempts: i64,
        pub last_error: Option<String>,
    }
}

/// Adds a job in the caller's transaction. False when a job with the same deduplication key exists.
pub async fn enqueue(tx: &mut Tx, job: &NewJob<'_>) -> Result<bool, StoreError> {
    let added = tx
        .exec(
            "INSERT INTO jobs (id, org_id, name, only_one, payload, attempts, due_at, created_at) \
             VALUES ($1, $2, $3, $4, $5, 0, $6, $7) ON CONFLICT DO NOTHING",
            args![job.id, job.org, job.name, job.dedup_key, job.payload, job.due_at, job.now],
        )
        .await?;
    Ok(added == 1)
}

/// Like `enqueue`, but returns none when `bound` jobs of that name and organization already exist.
pub async fn enqueue_bounded(tx: &mut Tx, job: &NewJob<'_>, bound: i64) -> Result<Option<bool>, StoreError> {
    if room(tx, job.org, job.name, bound).await? == 0 {
        return Ok(None);
    }
    enqueue(tx, job).await.map(Some)
}

/// How many jobs of that name an organization can add to a queue of `bound`. Nobody else adds any until the commit, so
/// that concurrent callers cannot exceed the bound together.
pub async fn room(tx: &mut Tx, org: OrgId, name: &str, bound: i64) -> Result<i64, StoreError> {
    if tx.dialect() == Dialect::Postgres {
        // Held until the commit. It cannot deadlock: callers lock what they change before it. After it they lock only new
        // rows, the pauses of a deleted model and the audit log, and no transaction with one of these waits for it.
        let key = args![org.to_string(), BOUND_LOCK];
        tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", key).await?;
    }
    let sql = "SELECT COUNT(*) AS found FROM jobs WHERE name = $1 AND org_id = $2";
    let row = tx.opt(sql, args![name, org]).await?;
    let found: i64 = row.map_or(Ok(0), |row| row.get("found"))?;
    Ok(bound.saturating_sub(found).max(0))
}

/// When the next job of that name becomes due.
pub async fn next_due(db: &Db, name: &str) -> Result<Option<Timestamp>, StoreError> {
    let row = db.opt("SELECT MIN(due_at) AS due_at FROM jobs WHERE name = $1", args![name]).await?;
    row.map_or(Ok(None), |row| row.get("due_at"))
}

/// Which job to claim.
#[derive(Debug, Clone, Copy)]
pub struct NextJob<'a> {
    pub name: &'a str,
    /// Organizations with this many claimed jobs are passed over.
    pub per_org: i64,
    /// The organization that was served last. The next one is served now: however many jobs an organization has, the
    /// others have their turns.
    pub after: Option<OrgId>,
}

/// Claims the job that has been due longest of the organization whose turn it is.
pub async fn claim(db: &Db, next: NextJob<'_>, lease: &Lease<'_>) -> Result<Option<ClaimedJob>, StoreError> {
    let mut tx = db.begin().await?;
    if tx.dialect() == Dialect::Postgres {
        tx.exec("SELECT pg_advisory_xact_lock($1)", args![CLAIM_LOCK]).await?;
    }
    let after = next.after.map(|org| org.to_string()).unwrap_or_default();
    let mut claimed = claim_after(&mut tx, next, &after, lease).await?;
    if claimed.is_none() && !after.is_empty() {
        // The last organization was served; the turn goes to the first one again.
        claimed = claim_after(&mut tx, next, "", lease).await?;
    }
    tx.commit().await?;
    Ok(claimed)
}

/// The organizations with jobs are read one by one from the index, in the order of their ids, so that the number of
/// their jobs does not matter.
async fn claim_after(
    tx: &mut Tx,
    NextJob { name, per_org, .. }: NextJob<'_>,
    after: &str,
    lease: &Lease<'_>,
) -> Result<Option<ClaimedJob>, StoreError> {
    // Checked again on the row itself: its previous holder may have renewed its lease meanwhile.
    let condition = "due_at <= $3 AND id = (WITH RECURSIVE turns (org_id) AS \
         (SELECT MIN(f.org_id) FROM jobs f WHERE f.name = $4 AND f.org_id > $6 \
          UNION ALL SELECT (SELECT MIN(n.org_id) FROM jobs n WHERE n.name = $4 AND n.org_id > turns.org_id) \
          FROM turns WHERE turns.org_id IS NOT NULL) \
         SELECT (SELECT j.id FROM jobs j WHERE j.name = $4 AND j.org_id = turns.org_id AND j.due_at <= $3 \
                 ORDER BY j.due_at, j.id LIMIT 1) \
         FROM turns WHERE turns.org_id IS NOT NULL \
         AND EXISTS (SELECT 1 FROM jobs due WHERE due.name = $4 AND due.org_id = turns.org_id AND due.due_at <= $3) \
         AND (SELECT COUNT(*) FROM jobs leased WHERE leased.org_id = turns.org_id AND leased.name = $4 \
              AND leased.holder IS NOT NULL AND leased.due_at > $3) < $5 LIMIT 1)";
    let returning = ClaimedJob::columns("");
    let claim = Claim { condition, also_set: ", attempts = attempts + 1", returning: &returning };
    let rows = LEASES.claim(tx, lease, claim, args![name, per_org, after]).await?;
    rows.first().map(ClaimedJob::from_row).transpose()
}

/// Extends the lease. False when the caller does not hold it any more.
pub async fn renew(db: &Db, id: JobId, owner: &str, until: Timestamp) -> Result<bool, StoreError> {
    LEASES.renew(db, id, owner, until).await
}

/// Deletes a job that is done or given up.
pub async fn finish(db: &Db, id: JobId, owner: &str) -> Result<(), StoreError> {
    db.exec("DELETE FROM jobs WHERE id = $1 AND holder = $2", args![id, owner]).await.map(|_| ())
}

/// Reschedules the job. Without an error, the attempt is not counted.
pub async fn release(
    db: &Db,
    id: JobId,
    owner: &str,
    due_at: Timestamp,
    error: Option<&str>,
) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    let release = Release {
        free_at: Some(due_at),
        also_set: ", last_error = COALESCE($4, last_error), attempts = attempts - $5",
        values: args![error, i64::from(error.is_none())],
    };
    LEASES.release(&mut tx, id, owner, release).await?;
    tx.commit().await
}

/// Ends the job and leaves another one with this payload in its place, in one statement: a crash neither loses nor
/// doubles what is left of it. Attempts are counted anew.
pub async fn continue_with(
    db: &Db,
    id: JobId,
    owner: &str,
    payload: &str,
    due_at: Timestamp,
) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    let release = Release {
        free_at: Some(due_at),
        also_set: ", payload = $4, attempts = 0, last_error = NULL",
        values: args![payload],
    };
    LEASES.release(&mut tx, id, owner, release).await?;
    tx.commit().await
}

/// Changes when a job that waits becomes due. False when it was claimed before, or does not exist.
pub async fn set_due(tx: &mut Tx, id: JobId, due_at: Timestamp) -> Result<bool, StoreError> {
    let sql = "UPDATE jobs SET due_at = $2 WHERE id = $1 AND holder IS NULL";
    Ok(tx.exec(sql, args![id, due_at]).await? == 1)
}

/// Ends every lease at start-up, when no other process works on the database.
pub async fn release_all(db: &Db, now: Timestamp) -> Result<(), StoreError> {
    LEASES.release_all(db, Some(now)).await
}

/// The number of an organization's jobs of that name, waiting and running.
pub async fn count(db: &Db, org: OrgId, name: &str) -> Result<i64, StoreError> {
    let sql = "SELECT COUNT(*) AS found FROM jobs WHERE name = $1 AND org_id = $2";
    let row = db.opt(sql, args![name, org]).await?;
    row.map_or(Ok(0), |row| row.get("found"))
}
