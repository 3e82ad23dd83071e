//! Applications, which API keys may belong to.

use gateway_core::ids::{AppId, OrgId, TeamId};
use gateway_core::time::Timestamp;
use serde_json::Value;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct App in "apps" {
        pub id: AppId [key],
        pub org_id: OrgId [key],
        pub name: String,
        pub description: String,
        pub team_id: Option<TeamId>,
        pub config: Value [json],
        pub created_at: Timestamp [once],
    }
}

pub async fn insert(tx: &mut Tx, app: &App) -> Result<(), StoreError> {
    table::insert(tx, app, vec![]).await
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<App>, StoreError> {
    let sql = App::select("org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3");
    let rows = db.all(sql, args![org, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<App>(&rows)?, |app| app.id.to_string()))
}

pub async fn find(tx: &mut Tx, org: OrgId, id: AppId) -> Result<Option<App>, StoreError> {
    let row = tx.opt(App::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Locks the application until the transaction ends, so that concurrent changes do not overwrite each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: AppId) -> Result<Option<App>, StoreError> {
    let row = tx.opt(App::select_for_update("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

pub async fn update(tx: &mut Tx, app: &App) -> Result<(), StoreError> {
    table::update(tx, app, vec![], "").await.map(|_| ())
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: AppId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM apps WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}
