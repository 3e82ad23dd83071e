//! Organizations and who belongs to them.

use gateway_core::access::{Plan, Role};
use gateway_core::accounts::OrgSettings;
use gateway_core::ids::{OrgId, UserId};
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    pub id: OrgId,
    pub slug: String,
    pub name: String,
    pub plan: Plan,
    pub settings: OrgSettings,
    pub created_at: Timestamp,
}

pub async fn insert(tx: &mut Tx, org: &Org) -> Result<(), StoreError> {
    let Org { id, slug, name, plan, settings, created_at } = org;
    tx.exec(
        "INSERT INTO orgs (id, slug, name, plan, settings, created_at, changed_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $6)",
        args![*id, slug, name, *plan, json(settings), *created_at],
    )
    .await
    .map(|_| ())
}

pub async fn find(db: &Db, org: OrgId) -> Result<Option<Org>, StoreError> {
    let row = db
        .opt("SELECT id, slug, name, plan, settings, created_at FROM orgs WHERE id = $1", args![org])
        .await?;
    row.as_ref().map(read).transpose()
}

pub async fn find_in_tx(tx: &mut Tx, org: OrgId) -> Result<Option<Org>, StoreError> {
    let row = tx
        .opt("SELECT id, slug, name, plan, settings, created_at FROM orgs WHERE id = $1", args![org])
        .await?;
    row.as_ref().map(read).transpose()
}

/// The organizations that a user belongs to, oldest membership first, each with the user's role.
pub async fn list_by_user(db: &Db, user: UserId) -> Result<Vec<(Org, Role)>, StoreError> {
    let rows = db
        .all(
            "SELECT o.id, o.slug, o.name, o.plan, o.settings, o.created_at, m.role FROM memberships m \
             JOIN orgs o ON o.id = m.org_id WHERE m.user_id = $1 ORDER BY m.created_at, o.id",
            args![user],
        )
        .await?;
    rows.iter().map(|row| Ok((read(row)?, row.get("role")?))).collect()
}

/// The same in pages, newest organization first.
pub async fn page_by_user(db: &Db, user: UserId, page: &Page) -> Result<Paged<(Org, Role)>, StoreError> {
    let rows = db
        .all(
            "SELECT o.id, o.slug, o.name, o.plan, o.settings, o.created_at, m.role FROM memberships m \
             JOIN orgs o ON o.id = m.org_id WHERE m.user_id = $1 AND ($2 IS NULL OR o.id < $2) \
             ORDER BY o.id DESC LIMIT $3",
            args![user, page.before.clone(), page.fetch()],
        )
        .await?;
    let orgs =
        rows.iter().map(|row| Ok((read(row)?, row.get("role")?))).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(orgs, |(org, _)| org.id.to_string()))
}

/// The list of a caller who knows one organization only, as a key does.
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

/// Holds the organization's row until the transaction ends, so that checks that look at several rows (the last
/// owner) cannot interleave. False when the organization is gone.
pub async fn lock_for_update(tx: &mut Tx, org: OrgId) -> Result<bool, StoreError> {
    Ok(tx.exec("UPDATE orgs SET id = id WHERE id = $1", args![org]).await? == 1)
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

/// Everything that belongs to the organization goes with it.
pub async fn delete(tx: &mut Tx, org: OrgId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM orgs WHERE id = $1", args![org]).await? == 1)
}

/// Sets a plan by slug, as the operator does it. Answers the organization that was changed.
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

/// The organizations that keep log rows for a number of days of their own.
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

/// Organizations that another process has changed since then, each with the time of its last change.
pub async fn changed_since(db: &Db, since: Timestamp) -> Result<Vec<(OrgId, Timestamp)>, StoreError> {
    let rows = db.all("SELECT id, changed_at FROM orgs WHERE changed_at > $1", args![since]).await?;
    rows.iter().map(|row| Ok((row.get("id")?, row.get("changed_at")?))).collect()
}

fn read(row: &Row) -> Result<Org, StoreError> {
    Ok(Org {
        id: row.get("id")?,
        slug: row.get("slug")?,
        name: row.get("name")?,
        plan: row.get("plan")?,
        settings: row.json("settings")?,
        created_at: row.get("created_at")?,
    })
}
