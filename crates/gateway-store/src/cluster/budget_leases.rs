//! Budget leases: how much of a budget each node may have outstanding beyond the spending in the log. Leases grow only
//! under a lock, so that all nodes together never exceed the budget. The budgets of each end user have leases of their
//! own.

use gateway_core::budget::ledger::{BudgetLease, LeasedAmounts};
use gateway_core::ids::OrgId;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::SERVER_NOW;
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

/// Hashed with the organization's id to the key of its advisory lock.
const SEED: i64 = 0x6761_7465_7761_790a;

/// Whose budgets are leased: those of an organization, or those of one of its users.
#[derive(Clone, Copy, Debug)]
pub struct LeaseOwner<'a> {
    pub org: OrgId,
    pub user: Option<&'a str>,
}

/// The amounts that other nodes leased of the owner's budgets. Locks the leases of the owner until the transaction ends.
///
/// Read the spending after this call: a node stores its spending before it lowers its lease, so that this order misses
/// nothing.
pub async fn leased_by_others(
    tx: &mut Tx,
    owner: LeaseOwner<'_>,
    node: &str,
) -> Result<LeasedAmounts, StoreError> {
    let LeaseOwner { org, user } = owner;
    let lock = user.map_or_else(|| org.to_string(), |user| format!("{org} {user}"));
    tx.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", args![lock, SEED]).await?;
    let (leases, budgets, condition) = match user {
        None => ("budget_leases", "budgets", "CAST($3 AS TEXT) IS NULL"),
        Some(_) => ("user_budget_leases", "user_budgets", "l.user_name = $3"),
    };
    let sql = format!(
        "SELECT l.budget_id, l.starts_at, CAST(SUM(l.amount) AS TEXT) AS amount FROM {leases} l \
         JOIN {budgets} b ON b.id = l.budget_id JOIN nodes n ON n.holder = l.node AND n.kept_until > {SERVER_NOW} \
         WHERE b.org_id = $1 AND l.node <> $2 AND {condition} GROUP BY l.budget_id, l.starts_at"
    );
    let rows = tx.all(AssertSqlSafe(sql), args![org, node, user]).await?;
    // The sum of several nodes may exceed 64 bits.
    let amount = |row: &Row| -> Result<i128, StoreError> {
        let sum: String = row.get("amount")?;
        sum.parse().map_err(|_| StoreError::Other(format!("{sum:?} is not an amount")))
    };
    rows.iter().map(|row| Ok(((row.get("budget_id")?, row.get("starts_at")?), amount(row)?))).collect()
}

/// Writes leases of this node. Leases of deleted budgets are skipped.
pub async fn upsert(
    tx: &mut Tx,
    node: &str,
    leases: &[(LeaseOwner<'_>, BudgetLease)],
) -> Result<(), StoreError> {
    let is_of_user = |(owner, _): &&(LeaseOwner<'_>, BudgetLease)| owner.user.is_some();
    let to_json = |(owner, lease): &(LeaseOwner<'_>, BudgetLease)| {
        let BudgetLease { budget, starts_at, amount } = lease;
        let amount = i64::try_from(*amount).unwrap_or(i64::MAX);
        json!({"budget": budget, "user_name": owner.user, "starts_at": starts_at.0, "amount": amount})
    };
    let of_orgs: Vec<Value> = leases.iter().filter(|lease| !is_of_user(lease)).map(to_json).collect();
    let of_users: Vec<Value> = leases.iter().filter(is_of_user).map(to_json).collect();
    if !of_orgs.is_empty() {
        let sql = "INSERT INTO budget_leases (budget_id, starts_at, node, amount) \
             SELECT b.id, l.starts_at, $2, l.amount \
             FROM json_to_recordset(CAST($1 AS json)) AS l(budget text, starts_at bigint, amount bigint) \
             JOIN budgets b ON b.id = l.budget \
             ON CONFLICT (budget_id, starts_at, node) DO UPDATE SET amount = excluded.amount";
        tx.exec(sql, args![Value::from(of_orgs).to_string(), node]).await?;
    }
    if !of_users.is_empty() {
        let sql = "INSERT INTO user_budget_leases (budget_id, user_name, starts_at, node, amount) \
             SELECT b.id, l.user_name, l.starts_at, $2, l.amount FROM json_to_recordset(CAST($1 AS json)) \
             AS l(budget text, user_name text, starts_at bigint, amount bigint) \
             JOIN user_budgets b ON b.id = l.budget ORDER BY b.id, l.user_name \
             ON CONFLICT (budget_id, user_name, starts_at, node) DO UPDATE SET amount = excluded.amount";
        tx.exec(sql, args![Value::from(of_users).to_string(), node]).await?;
    }
    Ok(())
}

/// Deletes leases of nodes that left, and leases of 0.
pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    for table in ["budget_leases", "user_budget_leases"] {
        let sql = format!(
            "DELETE FROM {table} WHERE amount = 0 \
             OR node NOT IN (SELECT holder FROM nodes WHERE kept_until > {SERVER_NOW})"
        );
        db.exec(AssertSqlSafe(sql), Vec::new()).await?;
    }
    Ok(())
}
