//! Applications: what a key may belong to.

use gateway_core::ids::{AppId, OrgId, TeamId};
use gateway_core::time::Timestamp;
use serde_json::Value;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct App {
    pub id: AppId,
    pub org_id: OrgId,
    pub name: String,
    pub description: String,
    pub team_id: Option<TeamId>,
    pub config: Value,
    pub created_at: Timestamp,
}

pub async fn insert(tx: &mut Tx, app: &App) -> Result<(), StoreError> {
    let App { id, org_id, name, description, team_id, config, created_at } = app;
    tx.exec(
        "INSERT INTO apps (id, org_id, name, description, team_id, config, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        args![*id, *org_id, name, description, *team_id, json(config), *created_at],
    )
    .await
    .map(|_| ())
}

pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<App>, StoreError> {
    let rows = db
        .all(
            "SELECT id, org_id, name, description, team_id, config, created_at FROM apps \
             WHERE org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3",
            args![org, page.before.clone(), page.fetch()],
        )
        .await?;
    let apps = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(apps, |app| app.id.to_string()))
}

pub async fn find(tx: &mut Tx, org: OrgId, id: AppId) -> Result<Option<App>, StoreError> {
    let row = tx
        .opt(
            "SELECT id, org_id, name, description, team_id, config, created_at FROM apps \
             WHERE org_id = $1 AND id = $2",
            args![org, id],
        )
        .await?;
    row.as_ref().map(read).transpose()
}

/// The application, held until the transaction ends, so that two changes at once do not undo each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: AppId) -> Result<Option<App>, StoreError> {
    tx.exec("UPDATE apps SET id = id WHERE org_id = $1 AND id = $2", args![org, id]).await?;
    find(tx, org, id).await
}

pub async fn update(tx: &mut Tx, org: OrgId, app: &App) -> Result<(), StoreError> {
    let App { id, name, description, team_id, config, org_id: _, created_at: _ } = app;
    tx.exec(
        "UPDATE apps SET name = $3, description = $4, team_id = $5, config = $6 WHERE org_id = $1 AND id = $2",
        args![org, *id, name, description, *team_id, json(config)],
    )
    .await
    .map(|_| ())
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: AppId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM apps WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

fn read(row: &Row) -> Result<App, StoreError> {
    Ok(App {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        name: row.get("name")?,
        description: row.get("description")?,
        team_id: row.get("team_id")?,
        config: row.json("config")?,
        created_at: row.get("created_at")?,
    })
}
