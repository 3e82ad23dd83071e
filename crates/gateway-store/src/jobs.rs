//! Jobs with leases. Who claims a job holds it until the lease ends and renews the lease while it works; a job whose
//! holder is gone is due again by itself. What a job does is none of the store's business.

use gateway_core::ids::{JobId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::db::Dialect;
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

/// A key of our own for PostgreSQL's advisory locks. Nodes claim one after the other, because each must see what the
/// others have just claimed for the same organization.
const LOCK: i64 = 0x6761_7465_7761_7905;

/// And one for those who add to a queue that has a bound.
const BOUND_LOCK: i64 = 0x6761_7465_7761_7906;

#[derive(Debug, Clone)]
pub struct NewJob<'a> {
    pub id: JobId,
    pub org: OrgId,
    pub name: &'a str,
    /// With it, nothing is added while another job of the same name and key is there.
    pub dedup_key: Option<&'a str>,
    pub payload: &'a str,
    pub due_at: Timestamp,
    pub now: Timestamp,
}

/// A job that the caller now holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedJob {
    pub id: JobId,
    pub org: OrgId,
    pub payload: String,
    /// This time included.
    pub attempts: i64,
    pub last_error: Option<String>,
}

/// Adds a job in the caller's transaction. False when its like is there already.
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

/// The same while fewer than `bound` jobs of that name wait or run; none when there are as many.
pub async fn enqueue_bounded(tx: &mut Tx, job: &NewJob<'_>, bound: i64) -> Result<Option<bool>, StoreError> {
    if tx.dialect() == Dialect::Postgres {
        // Nobody else counts until this is committed. It is taken last in every transaction, so none waits in a circle.
        tx.exec("SELECT pg_advisory_xact_lock($1)", args![BOUND_LOCK]).await?;
    }
    let row = tx.opt("SELECT COUNT(*) AS found FROM jobs WHERE name = $1", args![job.name]).await?;
    let found = row.map_or(Ok(0), |row| row.get("found"))?;
    if found >= bound { Ok(None) } else { enqueue(tx, job).await.map(Some) }
}

/// When the next job of that name may be begun, or begun again.
pub async fn next_due(db: &Db, name: &str) -> Result<Option<Timestamp>, StoreError> {
    let row = db.opt("SELECT MIN(due_at) AS due_at FROM jobs WHERE name = $1", args![name]).await?;
    row.map_or(Ok(None), |row| row.get("due_at"))
}

/// Takes the job of that name that has been due for longest, of an organization of which fewer than `per_org` are held.
pub async fn claim(
    db: &Db,
    name: &str,
    per_org: i64,
    holder: &str,
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<Option<ClaimedJob>, StoreError> {
    let mut tx = db.begin().await?;
    let skip = match tx.dialect() {
        Dialect::Sqlite => "",
        Dialect::Postgres => {
            tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
            " FOR UPDATE OF j SKIP LOCKED"
        }
    };
    let sql = format!(
        "UPDATE jobs SET holder = $1, due_at = $2, attempts = attempts + 1 WHERE id IN \
         (SELECT j.id FROM jobs j WHERE j.name = $3 AND j.due_at <= $4 \
          AND (SELECT COUNT(*) FROM jobs held WHERE held.org_id = j.org_id AND held.name = j.name \
               AND held.holder IS NOT NULL AND held.due_at > $4) < $5 \
          ORDER BY j.due_at, j.id LIMIT 1{skip}) \
         RETURNING id, org_id, payload, attempts, last_error"
    );
    let row = tx.opt(AssertSqlSafe(sql), args![holder, lease_until, name, now, per_org]).await?;
    tx.commit().await?;
    row.as_ref().map(read).transpose()
}

/// Keeps the job for longer. False when it is no longer the holder's.
pub async fn renew(db: &Db, id: JobId, holder: &str, until: Timestamp) -> Result<bool, StoreError> {
    let sql = "UPDATE jobs SET due_at = $3 WHERE id = $1 AND holder = $2";
    Ok(db.exec(sql, args![id, holder, until]).await? == 1)
}

/// The job is done, or given up.
pub async fn finish(db: &Db, id: JobId, holder: &str) -> Result<(), StoreError> {
    db.exec("DELETE FROM jobs WHERE id = $1 AND holder = $2", args![id, holder]).await.map(|_| ())
}

/// Gives the job back until later. What was no failure does not count as an attempt.
pub async fn release(
    db: &Db,
    id: JobId,
    holder: &str,
    due_at: Timestamp,
    error: Option<&str>,
) -> Result<(), StoreError> {
    db.exec(
        "UPDATE jobs SET holder = NULL, due_at = $3, last_error = COALESCE($4, last_error), \
         attempts = attempts - $5 WHERE id = $1 AND holder = $2",
        args![id, holder, due_at, error, i64::from(error.is_none())],
    )
    .await
    .map(|_| ())
}

/// Frees every job that is held, for when nobody can be at work on one.
pub async fn release_all(db: &Db, now: Timestamp) -> Result<(), StoreError> {
    let sql = "UPDATE jobs SET holder = NULL, due_at = $1 WHERE holder IS NOT NULL";
    db.exec(sql, args![now]).await.map(|_| ())
}

/// How many jobs of that name wait or run.
pub async fn count(db: &Db, name: &str) -> Result<i64, StoreError> {
    let row = db.opt("SELECT COUNT(*) AS found FROM jobs WHERE name = $1", args![name]).await?;
    row.map_or(Ok(0), |row| row.get("found"))
}

fn read(row: &Row) -> Result<ClaimedJob, StoreError> {
    Ok(ClaimedJob {
        id: row.get("id")?,
        org: row.get("org_id")?,
        payload: row.get("payload")?,
        attempts: row.get("attempts")?,
        last_error: row.get("last_error")?,
    })
}
