//! Budget leases: how much of a budget each node may have outstanding beyond the spending in the log's roll-ups. Leases
//! grow only under a lock, so that all nodes together never exceed the budget.

use gateway_core::budget::ledger::{BudgetLease, LeasedAmounts};
use gateway_core::ids::OrgId;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::SERVER_NOW;
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

/// Hashed with the organization's id to the key of its advisory lock.
const SEED: i64 = 0x6761_7465_7761_790a;

/// The amounts that other nodes leased of an organization's budgets. Locks the leases of the organization until the
/// transaction ends.
///
/// Read the roll-ups after this call: a node stores its spending before it lowers its lease, so that this order misses
/// nothing.
pub async fn leased_by_others(tx: &mut Tx, org: OrgId, node: &str) -> Result<LeasedAmounts, StoreError> {
    tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", args![org.to_string(), SEED]).await?;
    let sql = format!(
        "SELECT l.budget_id, l.starts_at, CAST(SUM(l.amount) AS TEXT) AS amount FROM budget_leases l \
         JOIN budgets b ON b.id = l.budget_id JOIN nodes n ON n.holder = l.node AND n.kept_until > {SERVER_NOW} \
         WHERE b.org_id = $1 AND l.node <> $2 GROUP BY l.budget_id, l.starts_at"
    );
    let rows = tx.all(AssertSqlSafe(sql), args![org, node]).await?;
    // The sum of several nodes may exceed 64 bits.
    let amount = |row: &Row| -> Result<i128, StoreError> {
        let sum: String = row.get("amount")?;
        sum.parse().map_err(|_| StoreError::Other(format!("{sum:?} is not an amount")))
    };
    rows.iter().map(|row| Ok(((row.get("budget_id")?, row.get("starts_at")?), amount(row)?))).collect()
}

/// Writes the leases of this node. Leases of deleted budgets are skipped.
pub async fn upsert(tx: &mut Tx, node: &str, leases: &[BudgetLease]) -> Result<(), StoreError> {
    let to_json = |lease: &BudgetLease| {
        let BudgetLease { budget, starts_at, amount } = lease;
        let amount = i64::try_from(*amount).unwrap_or(i64::MAX);
        json!({"budget": budget, "starts_at": starts_at.0, "amount": amount})
    };
    let leases: Value = leases.iter().map(to_json).collect();
    tx.exec(
        "INSERT INTO budget_leases (budget_id, starts_at, node, amount) SELECT b.id, l.starts_at, $2, l.amount \
         FROM json_to_recordset(CAST($1 AS json)) AS l(budget text, starts_at bigint, amount bigint) \
         JOIN budgets b ON b.id = l.budget \
         ON CONFLICT (budget_id, starts_at, node) DO UPDATE SET amount = excluded.amount",
        args![leases.to_string(), node],
    )
    .await
    .map(|_| ())
}

/// Deletes leases of nodes that left, and leases of 0.
pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    let sql = format!(
        "DELETE FROM budget_leases WHERE amount = 0 \
         OR node NOT IN (SELECT holder FROM nodes WHERE kept_until > {SERVER_NOW})"
    );
    db.exec(AssertSqlSafe(sql), Vec::new()).await.map(|_| ())
}
