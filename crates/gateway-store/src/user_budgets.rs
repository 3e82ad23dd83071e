//! Budgets of end users, and notices of limits that users have reached. What users spent is read from the log part
//! (`logs::SpendSnapshot::of_users`).

use gateway_core::budget::{Budget, Scope, limit_columns};
use gateway_core::ids::{BudgetId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::budgets::{LimitNotice, flat_column, opening_column, read};
use crate::row::args;
use crate::{Db, StoreError, Tx};

/// The columns of a budget. Those of other scopes are null.
pub(crate) const COLUMNS: &str = "id, 'user' AS scope, CAST(NULL AS TEXT) AS team_id, CAST(NULL AS TEXT) AS app_id, \
     CAST(NULL AS TEXT) AS key_id, user_name, period, soft_limit, hard_limit, soft_limit_coarse, hard_limit_coarse, \
     unpriced, unpriced_flat, opening_nanos, created_at";

/// Notices of one budget, limit and period. Further users who reach it are not reported.
const MAX_NOTICES: i64 = 1_000;

/// Inserts the budget, or replaces all that may change of it.
pub async fn upsert(tx: &mut Tx, org: OrgId, budget: &Budget) -> Result<(), StoreError> {
    let Scope::User(user) = &budget.scope else {
        return Err(StoreError::Other(format!(
            "a budget of scope {} is not one of a user",
            budget.scope.name()
        )));
    };
    let (soft, hard) = (limit_columns(budget.soft_limit), limit_columns(budget.hard_limit));
    tx.exec(
        "INSERT INTO user_budgets (id, org_id, user_name, period, soft_limit, hard_limit, soft_limit_coarse, \
         hard_limit_coarse, unpriced, unpriced_flat, opening_nanos, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
         ON CONFLICT (id) DO UPDATE SET user_name = excluded.user_name, period = excluded.period, \
         soft_limit = excluded.soft_limit, hard_limit = excluded.hard_limit, \
         soft_limit_coarse = excluded.soft_limit_coarse, hard_limit_coarse = excluded.hard_limit_coarse, \
         unpriced = excluded.unpriced, unpriced_flat = excluded.unpriced_flat",
        args![
            budget.id,
            org,
            &**user,
            budget.period.as_str(),
            soft.0,
            hard.0,
            soft.1,
            hard.1,
            budget.unpriced.name(),
            flat_column(budget.unpriced),
            opening_column(budget.opening),
            budget.created_at
        ],
    )
    .await
    .map(|_| ())
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: BudgetId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM user_budgets WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn count(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS count FROM user_budgets WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("count"))
}

/// Locks the budget until the transaction ends.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: BudgetId) -> Result<Option<Budget>, StoreError> {
    tx.exec("UPDATE user_budgets SET created_at = created_at WHERE org_id = $1 AND id = $2", args![org, id])
        .await?;
    let sql = format!("SELECT {COLUMNS} FROM user_budgets WHERE org_id = $1 AND id = $2");
    tx.opt(AssertSqlSafe(sql), args![org, id]).await?.map(|row| read(&row, org)).transpose()
}

/// The same as `list_all`, for a transaction that changes many.
pub async fn list_in_tx(tx: &mut Tx, org: OrgId) -> Result<Vec<Budget>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM user_budgets WHERE org_id = $1 ORDER BY id");
    let rows = tx.all(AssertSqlSafe(sql), args![org]).await?;
    rows.iter().map(|row| read(row, org)).collect()
}

/// All budgets of an organization's users, oldest first.
pub async fn list_all(db: &Db, org: OrgId) -> Result<Vec<Budget>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM user_budgets WHERE org_id = $1 ORDER BY id");
    let rows = db.all(AssertSqlSafe(sql), args![org]).await?;
    rows.iter().map(|row| read(row, org)).collect()
}

/// Records that a user has reached a limit. False when it was recorded before, the budget does not exist, or too many
/// users have reached it.
pub async fn record_notice(
    tx: &mut Tx,
    org: OrgId,
    notice: &LimitNotice,
    (period, user): (&str, &str),
) -> Result<bool, StoreError> {
    let LimitNotice { budget, starts_at, kind } = notice;
    let added = tx
        .exec(
            "INSERT INTO user_budget_notices (budget_id, period, starts_at, kind, user_name) \
             SELECT id, $3, $4, $5, $6 FROM user_budgets WHERE org_id = $1 AND id = $2 AND (SELECT COUNT(*) \
             FROM user_budget_notices n WHERE n.budget_id = $2 AND n.period = $3 AND n.starts_at = $4 \
             AND n.kind = $5) < $7 ON CONFLICT DO NOTHING",
            args![org, *budget, period, *starts_at, kind.as_str(), user, MAX_NOTICES],
        )
        .await?;
    Ok(added == 1)
}

/// Deletes notices of periods that began before this time.
pub async fn sweep_notices(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    let found = "SELECT 1 AS found FROM user_budget_notices WHERE starts_at < $1 LIMIT 1";
    if db.opt(found, args![before]).await?.is_none() {
        return Ok(0);
    }
    db.exec("DELETE FROM user_budget_notices WHERE starts_at < $1", args![before]).await
}
