//! Budgets, the keys whose spending they count, and notices of limits that were reached. The spending itself is read
//! from the log's roll-ups (`logs::SpendSnapshot`). Budgets of end users are in `user_budgets`.

use std::collections::HashMap;

use gateway_core::budget::{AlertKind, Amount, Budget, Scope, Unpriced, limit_columns, limit_from_columns};
use gateway_core::ids::{AppId, BudgetId, KeyId, OrgId, TeamId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Arg, Row, args};
use crate::{Db, StoreError, Tx, user_budgets};

const COLUMNS: &str = "id, scope, team_id, app_id, key_id, period, soft_limit, hard_limit, soft_limit_coarse, \
     hard_limit_coarse, unpriced, unpriced_flat, opening_nanos, created_at";

/// Amounts have units of 1e-12 USD.
const UNITS_PER_NANO: Amount = 1_000;

/// A limit that was reached in the period that began at `starts_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitNotice {
    pub budget: BudgetId,
    pub starts_at: Timestamp,
    pub kind: AlertKind,
}

pub async fn insert(tx: &mut Tx, org: OrgId, budget: &Budget) -> Result<(), StoreError> {
    let (team, app, key) = columns(&budget.scope)?;
    let (soft, hard) = (limit_columns(budget.soft_limit), limit_columns(budget.hard_limit));
    tx.exec(
        "INSERT INTO budgets (id, org_id, scope, team_id, app_id, key_id, period, soft_limit, hard_limit, \
         soft_limit_coarse, hard_limit_coarse, unpriced, unpriced_flat, opening_nanos, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        args![
            budget.id,
            org,
            budget.scope.name(),
            team,
            app,
            key,
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
    .await?;
    set_keys(tx, budget).await
}

/// Updates everything but the keys: see `set_keys`.
pub async fn update(tx: &mut Tx, org: OrgId, budget: &Budget) -> Result<(), StoreError> {
    let (team, app, key) = columns(&budget.scope)?;
    let (soft, hard) = (limit_columns(budget.soft_limit), limit_columns(budget.hard_limit));
    tx.exec(
        "UPDATE budgets SET scope = $3, team_id = $4, app_id = $5, key_id = $6, period = $7, soft_limit = $8, \
         hard_limit = $9, soft_limit_coarse = $10, hard_limit_coarse = $11, unpriced = $12, unpriced_flat = $13 \
         WHERE org_id = $1 AND id = $2",
        args![
            org,
            budget.id,
            budget.scope.name(),
            team,
            app,
            key,
            budget.period.as_str(),
            soft.0,
            hard.0,
            soft.1,
            hard.1,
            budget.unpriced.name(),
            flat_column(budget.unpriced)
        ],
    )
    .await
    .map(|_| ())
}

/// Replaces the keys whose spending the budget counts.
pub async fn set_keys(tx: &mut Tx, budget: &Budget) -> Result<(), StoreError> {
    tx.exec("DELETE FROM budget_keys WHERE budget_id = $1", args![budget.id]).await?;
    for key in &budget.keys {
        tx.exec("INSERT INTO budget_keys (budget_id, key_id) VALUES ($1, $2)", args![budget.id, *key])
            .await?;
    }
    Ok(())
}

/// Adds a rotated key to the budgets that count its predecessor. True when there are any.
pub async fn add_rotated_key(tx: &mut Tx, old: KeyId, new: KeyId) -> Result<bool, StoreError> {
    let sql =
        "INSERT INTO budget_keys (budget_id, key_id) SELECT budget_id, $2 FROM budget_keys WHERE key_id = $1";
    Ok(tx.exec(sql, args![old, new]).await? > 0)
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: BudgetId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM budgets WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn count(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS count FROM budgets WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("count"))
}

/// Locks the budget until the transaction ends.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: BudgetId) -> Result<Option<Budget>, StoreError> {
    tx.exec("UPDATE budgets SET created_at = created_at WHERE org_id = $1 AND id = $2", args![org, id])
        .await?;
    let row = tx
        .opt(
            AssertSqlSafe(format!("SELECT {COLUMNS} FROM budgets WHERE org_id = $1 AND id = $2")),
            args![org, id],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut budget = read(&row, org)?;
    for row in tx.all("SELECT key_id FROM budget_keys WHERE budget_id = $1", args![id]).await? {
        budget.keys.push(row.get("key_id")?);
    }
    Ok(Some(budget))
}

/// Also one of users.
pub async fn find(db: &Db, org: OrgId, id: BudgetId) -> Result<Option<Budget>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, CAST(NULL AS TEXT) AS user_name FROM budgets WHERE org_id = $1 AND id = $2 \
         UNION ALL SELECT {COLUMNS}, user_name FROM (SELECT {}, org_id FROM user_budgets) u WHERE org_id = $1 AND id = $2",
        user_budgets::COLUMNS
    );
    let row = db.opt(AssertSqlSafe(sql), args![org, id]).await?;
    row.map(|row| read(&row, org)).transpose()
}

/// Those of users too, newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Budget>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, CAST(NULL AS TEXT) AS user_name FROM budgets WHERE org_id = $1 AND ($2 IS NULL OR id < $2) \
         UNION ALL SELECT {COLUMNS}, user_name FROM (SELECT {}, org_id FROM user_budgets) u \
         WHERE org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3",
        user_budgets::COLUMNS
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, page.before.clone(), page.fetch()]).await?;
    let budgets = with_keys(db, org, &rows).await?;
    Ok(page.cut(budgets, |budget| budget.id.to_string()))
}

/// All budgets of an organization but those of users, newest first.
pub async fn list_all(db: &Db, org: OrgId) -> Result<Vec<Budget>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM budgets WHERE org_id = $1 ORDER BY id DESC");
    let rows = db.all(AssertSqlSafe(sql), args![org]).await?;
    with_keys(db, org, &rows).await
}

/// Whether an application, or the team that it belongs to, has a budget.
pub async fn limit_app(tx: &mut Tx, org: OrgId, app: AppId) -> Result<bool, StoreError> {
    let row = tx
        .opt(
            "SELECT 1 AS one FROM budgets b JOIN apps a ON b.app_id = a.id OR b.team_id = a.team_id \
             WHERE b.org_id = $1 AND a.id = $2 LIMIT 1",
            args![org, app],
        )
        .await?;
    Ok(row.is_some())
}

/// Whether the organization has any budget, also one of users.
pub async fn exist(db: &Db, org: OrgId) -> Result<bool, StoreError> {
    let sql = "SELECT 1 AS one WHERE EXISTS (SELECT 1 FROM budgets WHERE org_id = $1) \
               OR EXISTS (SELECT 1 FROM user_budgets WHERE org_id = $1)";
    Ok(db.opt(sql, args![org]).await?.is_some())
}

/// The organizations with at least one budget other than those of users.
pub async fn list_orgs(db: &Db) -> Result<Vec<OrgId>, StoreError> {
    let rows = db.all("SELECT DISTINCT org_id FROM budgets ORDER BY org_id", Vec::new()).await?;
    rows.iter().map(|row| row.get("org_id")).collect()
}

async fn with_keys(db: &Db, org: OrgId, rows: &[Row]) -> Result<Vec<Budget>, StoreError> {
    let mut keys: HashMap<BudgetId, Vec<KeyId>> = HashMap::new();
    let counted = db
        .all(
            "SELECT k.budget_id, k.key_id FROM budget_keys k JOIN budgets b ON b.id = k.budget_id WHERE b.org_id = $1",
            args![org],
        )
        .await?;
    for row in &counted {
        keys.entry(row.get("budget_id")?).or_default().push(row.get("key_id")?);
    }
    rows.iter()
        .map(|row| {
            let mut budget = read(row, org)?;
            budget.keys = keys.remove(&budget.id).unwrap_or_default();
            Ok(budget)
        })
        .collect()
}

/// The notices of periods that began at `since` or later, each with the name of its period.
pub async fn list_notices(
    db: &Db,
    org: OrgId,
    since: Timestamp,
) -> Result<Vec<(LimitNotice, String)>, StoreError> {
    let rows = db
        .all(
            "SELECT n.budget_id, n.period, n.starts_at, n.kind FROM budget_notices n \
             JOIN budgets b ON b.id = n.budget_id WHERE b.org_id = $1 AND n.starts_at >= $2",
            args![org, since],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let kind: String = row.get("kind")?;
            let kind =
                if kind == AlertKind::Warning.as_str() { AlertKind::Warning } else { AlertKind::Exceeded };
            let notice =
                LimitNotice { budget: row.get("budget_id")?, starts_at: row.get("starts_at")?, kind };
            Ok((notice, row.get("period")?))
        })
        .collect()
}

/// Records that a limit was reached. False when it was recorded before or the budget does not exist.
pub async fn record_notice(
    tx: &mut Tx,
    org: OrgId,
    notice: &LimitNotice,
    period: &str,
) -> Result<bool, StoreError> {
    let LimitNotice { budget, starts_at, kind } = notice;
    let added = tx
        .exec(
            "INSERT INTO budget_notices (budget_id, period, starts_at, kind) \
             SELECT id, $3, $4, $5 FROM budgets WHERE org_id = $1 AND id = $2 ON CONFLICT DO NOTHING",
            args![org, *budget, period, *starts_at, kind.as_str()],
        )
        .await?;
    Ok(added == 1)
}

pub(crate) fn flat_column(unpriced: Unpriced) -> Option<i64> {
    match unpriced {
        Unpriced::Allow | Unpriced::Refuse => None,
        Unpriced::Flat(flat) => Some(i64::try_from(flat).unwrap_or(i64::MAX)),
    }
}

/// In units of 1e-9 USD, so that the highest amounts fit.
pub(crate) fn opening_column(opening: Amount) -> Option<i64> {
    (opening > 0).then(|| i64::try_from(opening / UNITS_PER_NANO).unwrap_or(i64::MAX))
}

fn columns(scope: &Scope) -> Result<(Arg, Arg, Arg), StoreError> {
    let (mut team, mut app, mut key) = (None, None, None);
    match scope {
        Scope::Org(_) => {}
        Scope::Team(id) => team = Some(*id),
        Scope::App(id) => app = Some(*id),
        Scope::Key(id) => key = Some(*id),
        Scope::User(_) => return Err(StoreError::Other("budgets of users have a table of their own".into())),
    }
    Ok((team.into(), app.into(), key.into()))
}

pub(crate) fn read(row: &Row, org: OrgId) -> Result<Budget, StoreError> {
    let scope: String = row.get("scope")?;
    let missing = || StoreError::Other(format!("a budget of scope {scope:?} has no id of that scope"));
    let scope = match scope.as_str() {
        "team" => Scope::Team(row.get::<Option<TeamId>>("team_id")?.ok_or_else(&missing)?),
        "app" => Scope::App(row.get::<Option<AppId>>("app_id")?.ok_or_else(&missing)?),
        "key" => Scope::Key(row.get::<Option<KeyId>>("key_id")?.ok_or_else(&missing)?),
        "user" => Scope::User(row.get::<String>("user_name")?.into()),
        _ => Scope::Org(org),
    };
    Ok(Budget {
        id: row.get("id")?,
        scope,
        keys: Vec::new(),
        period: row.get::<String>("period")?.parse().map_err(|why: &str| StoreError::Other(why.into()))?,
        soft_limit: limit_from_columns(row.get("soft_limit")?, row.get("soft_limit_coarse")?),
        hard_limit: limit_from_columns(row.get("hard_limit")?, row.get("hard_limit_coarse")?),
        unpriced: match row.get::<String>("unpriced")?.as_str() {
            "refuse" => Unpriced::Refuse,
            "flat" => Unpriced::Flat(row.get::<Option<i64>>("unpriced_flat")?.map_or(0, Amount::from)),
            _ => Unpriced::Allow,
        },
        opening: row
            .get::<Option<i64>>("opening_nanos")?
            .map_or(0, |nanos| Amount::from(nanos) * UNITS_PER_NANO),
        created_at: row.get("created_at")?,
    })
}
