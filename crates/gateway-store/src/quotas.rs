//! What an organization has of everything that a quota limits. A transaction that adds something locks the organization
//! first (`orgs::lock_for_update`), so that a count stays true until the transaction ends.

use gateway_core::ids::OrgId;
use gateway_core::quotas::Quota;
use gateway_core::time::{DAY, Timestamp};
use sqlx::AssertSqlSafe;

use crate::row::args;
use crate::{Db, StoreError, Tx};

const IN_STATE: [Quota; 12] = [
    Quota::Keys,
    Quota::Providers,
    Quota::Prompts,
    Quota::Datasets,
    Quota::Webhooks,
    Quota::Models,
    Quota::Teams,
    Quota::Apps,
    Quota::Members,
    Quota::Evals,
    Quota::EvalRuns,
    Quota::Skills,
];

/// Counts what organization `$1` has, of keys what is valid at the time `$2`. None for what the log database has.
fn count_sql(quota: Quota) -> Option<&'static str> {
    Some(match quota {
        Quota::Keys => {
            "SELECT COUNT(*) AS n FROM api_keys WHERE org_id = $1 AND revoked_at IS NULL \
             AND (expires_at IS NULL OR expires_at > $2)"
        }
        Quota::Providers => "SELECT COUNT(*) AS n FROM provider_credentials WHERE org_id = $1",
        // Those of version 0 are being deleted.
        Quota::Prompts => "SELECT COUNT(*) AS n FROM prompts WHERE org_id = $1 AND version > 0",
        Quota::Datasets => "SELECT COUNT(*) AS n FROM datasets WHERE org_id = $1",
        Quota::Webhooks => "SELECT COUNT(*) AS n FROM webhooks WHERE org_id = $1",
        Quota::Models => "SELECT COUNT(*) AS n FROM models WHERE org_id = $1 AND version > 0",
        Quota::Teams => "SELECT COUNT(*) AS n FROM teams WHERE org_id = $1",
        Quota::Apps => "SELECT COUNT(*) AS n FROM apps WHERE org_id = $1",
        Quota::Members => "SELECT COUNT(*) AS n FROM memberships WHERE org_id = $1",
        Quota::Evals => "SELECT COUNT(*) AS n FROM evals WHERE org_id = $1",
        Quota::EvalRuns => "SELECT COUNT(*) AS n FROM eval_runs WHERE org_id = $1",
        Quota::Skills => "SELECT COUNT(*) AS n FROM skills WHERE org_id = $1 AND version > 0",
        Quota::Exports | Quota::RowsPerDay | Quota::BodyBytesPerDay => return None,
    })
}

/// How many there are in the state database.
pub async fn count(tx: &mut Tx, org: OrgId, quota: Quota, now: Timestamp) -> Result<u64, StoreError> {
    let Some(sql) = count_sql(quota) else { return Ok(0) };
    let args = if quota == Quota::Keys { args![org, now] } else { args![org] };
    let row = tx.opt(sql, args).await?;
    Ok(row.map_or(Ok(0), |row| row.get("n"))?.try_into().unwrap_or(0))
}

/// What the organization uses of every quota.
pub async fn usage(db: &Db, logs: &Db, org: OrgId, now: Timestamp) -> Result<Vec<(Quota, u64)>, StoreError> {
    let mut usage: Vec<(Quota, i64)> = Vec::new();
    let counts: Vec<String> = IN_STATE
        .iter()
        .filter_map(|quota| Some(format!("({}) AS {}", count_sql(*quota)?, quota.as_str())))
        .collect();
    let sql = format!("SELECT {}", counts.join(", "));
    if let Some(row) = db.opt(AssertSqlSafe(sql), args![org, now]).await? {
        for quota in IN_STATE {
            usage.push((quota, row.get(quota.as_str())?));
        }
    }
    let row = logs.opt("SELECT COUNT(*) AS n FROM exports WHERE org_id = $1", args![org]).await?;
    usage.push((Quota::Exports, row.map_or(Ok(0), |row| row.get("n"))?));
    let day = now.0.div_euclid(DAY) * DAY;
    let stored = logs
        .opt("SELECT stored_rows, body_bytes FROM log_days WHERE org_id = $1 AND day = $2", args![org, day])
        .await?;
    let (rows, bytes) = match stored {
        Some(row) => (row.get("stored_rows")?, row.get("body_bytes")?),
        None => (0, 0),
    };
    usage.extend([(Quota::RowsPerDay, rows), (Quota::BodyBytesPerDay, bytes)]);
    Ok(usage.into_iter().map(|(quota, used)| (quota, used.try_into().unwrap_or(0))).collect())
}
