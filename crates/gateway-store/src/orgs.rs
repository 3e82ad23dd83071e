//! Organizations and the users that belong to them.

use gateway_core::access::{Plan, Role};
use gateway_core::accounts::OrgSettings;
use gateway_core::ids::{OrgId, UserId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Org in "orgs" {
        pub id: OrgId [key],
        pub slug: String,
        pub name: String,
        pub plan: Plan,
        pub settings: OrgSettings [json],
        pub created_at: Timestamp [once],
    }
}

pub async fn insert(tx: &mut Tx, org: &Org) -> Result<(), StoreError> {
    table::insert(tx, org, vec![("changed_at", org.created_at.into())]).await
}

const COUNT: &str = "SELECT COUNT(*) AS n FROM (SELECT 1 FROM orgs LIMIT 2) found";

/// The number of organizations, counted up to 2.
pub async fn count(db: &Db) -> Result<u64, StoreError> {
    read_count(db.opt(COUNT, args![]).await?.as_ref())
}

/// The same inside a transaction, with what it has inserted.
pub async fn count_in_tx(tx: &mut Tx) -> Result<u64, StoreError> {
    read_count(tx.opt(COUNT, args![]).await?.as_ref())
}

fn read_count(row: Option<&Row>) -> Result<u64, StoreError> {
    let count: i64 = row.map_or(Ok(0), |row| row.get("n"))?;
    Ok(count.unsigned_abs())
}

pub async fn find(db: &Db, org: OrgId) -> Result<Option<Org>, StoreError> {
    let row = db.opt(Org::select("id = $1"), args![org]).await?;
    table::read_opt(row.as_ref())
}

/// The organization with this slug, for the operator.
pub async fn find_by_slug(db: &Db, slug: &str) -> Result<Option<Org>, StoreError> {
    let row = db.opt(Org::select("slug = $1"), args![slug]).await?;
    table::read_opt(row.as_ref())
}

/// Reads the organization inside a transaction. `lock_for_update` locks it.
pub async fn find_in_tx(tx: &mut Tx, org: OrgId) -> Result<Option<Org>, StoreError> {
    let row = tx.opt(Org::select("id = $1"), args![org]).await?;
    table::read_opt(row.as_ref())
}

/// The organizations of a user with the user's role, oldest membership first.
pub async fn list_by_user(db: &Db, user: UserId) -> Result<Vec<(Org, Role)>, StoreError> {
    let sql = select_memberships("m.user_id = $1 ORDER BY m.created_at, o.id");
    db.all(sql, args![user]).await?.iter().map(read_membership).collect()
}

/// The same inside a transaction.
pub async fn list_by_user_in_tx(tx: &mut Tx, user: UserId) -> Result<Vec<(Org, Role)>, StoreError> {
    let sql = select_memberships("m.user_id = $1 ORDER BY m.created_at, o.id");
    tx.all(sql, args![user]).await?.iter().map(read_membership).collect()
}

/// The organizations of a user with the user's role, newest organization first.
pub async fn page_by_user(db: &Db, user: UserId, page: &Page) -> Result<Paged<(Org, Role)>, StoreError> {
    let sql = select_memberships("m.user_id = $1 AND ($2 IS NULL OR o.id < $2) ORDER BY o.id DESC LIMIT $3");
    let rows = db.all(sql, args![user, page.before.clone(), page.fetch()]).await?;
    let orgs = rows.iter().map(read_membership).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(orgs, |(org, _)| org.id.to_string()))
}

/// The list for an API key, which belongs to exactly one organization.
pub async fn page_of_single_org(
    db: &Db,
    org: OrgId,
    role: Role,
    page: &Page,
) -> Result<Paged<(Org, Role)>, StoreError> {
    let found = find(db, org).await?;
    let before = |org: &Org| page.before.as_ref().is_none_or(|end| org.id.to_string() < *end);
    let rows = found.into_iter().filter(before).map(|org| (org, role)).collect();
    Ok(Paged { rows, next: None })
}

/// Locks the organization until the transaction ends, so that checks over several rows, such as the last owner, do not
/// interleave. False when the organization does not exist.
pub async fn lock_for_update(tx: &mut Tx, org: OrgId) -> Result<bool, StoreError> {
    Ok(tx.exec("UPDATE orgs SET created_at = created_at WHERE id = $1", args![org]).await? == 1)
}

pub async fn update(
    tx: &mut Tx,
    org: OrgId,
    name: Option<&str>,
    plan: Option<Plan>,
    settings: Option<&OrgSettings>,
) -> Result<(), StoreError> {
    let settings = settings.map(|settings| serde_json::to_string(settings).unwrap_or_default());
    tx.exec(
        "UPDATE orgs SET name = COALESCE($2, name), plan = COALESCE($3, plan), \
         settings = COALESCE($4, settings) WHERE id = $1",
        args![org, name, plan, settings],
    )
    .await
    .map(|_| ())
}

/// Deletes the organization and, by foreign keys, everything that belongs to it in this database.
pub async fn delete(tx: &mut Tx, org: OrgId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM orgs WHERE id = $1", args![org]).await? == 1)
}

/// Sets the plan of the organization with this slug, as an operator does; returns its id.
pub async fn set_plan(
    tx: &mut Tx,
    slug: &str,
    plan: Plan,
    now: Timestamp,
) -> Result<Option<OrgId>, StoreError> {
    let row = tx
        .opt(
            "UPDATE orgs SET plan = $2, changed_at = $3 WHERE slug = $1 RETURNING id",
            args![slug, plan, now],
        )
        .await?;
    row.map(|row| row.get("id")).transpose()
}

/// The organizations with their own log retention, in days.
pub async fn log_retentions(db: &Db) -> Result<Vec<(OrgId, u32)>, StoreError> {
    let rows = db
        .all(
            "SELECT id, settings FROM orgs WHERE settings NOT LIKE '%\"log_retention_days\":null%'",
            Vec::new(),
        )
        .await?;
    let mut found = Vec::new();
    for row in &rows {
        let settings: OrgSettings = row.json("settings")?;
        if let Some(days) = settings.log_retention_days {
            found.push((row.get("id")?, days));
        }
    }
    Ok(found)
}

/// Organizations that another process changed after `since`, each with the time of its last change.
pub async fn changed_since(db: &Db, since: Timestamp) -> Result<Vec<(OrgId, Timestamp)>, StoreError> {
    let rows = db.all("SELECT id, changed_at FROM orgs WHERE changed_at > $1", args![since]).await?;
    rows.iter().map(|row| Ok((row.get("id")?, row.get("changed_at")?))).collect()
}

fn select_memberships(condition: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "SELECT {}, m.role FROM memberships m JOIN orgs o ON o.id = m.org_id WHERE {condition}",
        Org::columns("o.")
    ))
}

fn read_membership(row: &Row) -> Result<(Org, Role), StoreError> {
    Ok((Org::from_row(row)?, row.get("role")?))
}
