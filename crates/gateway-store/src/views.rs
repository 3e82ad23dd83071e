//! Saved views of organizations.

use gateway_core::ids::{OrgId, ViewId};
use gateway_core::time::Timestamp;
use gateway_core::views::{Definition, ViewPage};

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct StoredView in "views" {
        pub id: ViewId [key],
        pub org_id: OrgId [key],
        /// The id of the user or key that made it.
        pub owner: String [once],
        pub name: String,
        pub page: ViewPage [once],
        pub definition: Definition [json],
        pub shared: bool,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

/// Inserts a view. `Duplicate` when its owner has one with the same name.
pub async fn insert(tx: &mut Tx, view: &StoredView) -> Result<(), StoreError> {
    table::insert(tx, view, vec![]).await
}

/// `Duplicate` when its owner has another one with the same name.
pub async fn update(tx: &mut Tx, view: &StoredView) -> Result<(), StoreError> {
    table::update(tx, view, vec![], "").await.map(|_| ())
}

pub async fn delete(tx: &mut Tx, org: OrgId, id: ViewId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM views WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

/// Deletes what a user or a key made.
pub async fn delete_of_owner(tx: &mut Tx, org: OrgId, owner: &str) -> Result<u64, StoreError> {
    tx.exec("DELETE FROM views WHERE org_id = $1 AND owner = $2", args![org, owner]).await
}

/// The number of views of the organization, and of private ones of the owner.
pub async fn count(tx: &mut Tx, org: OrgId, owner: &str) -> Result<(i64, i64), StoreError> {
    let sql = "SELECT COUNT(*) AS views, COUNT(CASE WHEN owner = $2 AND shared = 0 THEN 1 END) AS own_private \
               FROM views WHERE org_id = $1";
    let row = tx.opt(sql, args![org, owner]).await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.get("views")?, row.get("own_private")?)))
}

/// A view that the reader made or that is shared.
pub async fn find(db: &Db, org: OrgId, id: ViewId, reader: &str) -> Result<Option<StoredView>, StoreError> {
    let sql = StoredView::select("org_id = $1 AND id = $2 AND (owner = $3 OR shared = 1)");
    table::read_opt(db.opt(sql, args![org, id, reader]).await?.as_ref())
}

/// The same, locked until the transaction ends.
pub async fn find_for_update(
    tx: &mut Tx,
    org: OrgId,
    id: ViewId,
    reader: &str,
) -> Result<Option<StoredView>, StoreError> {
    let sql = StoredView::select_for_update("org_id = $1 AND id = $2 AND (owner = $3 OR shared = 1)");
    table::read_opt(tx.opt(sql, args![org, id, reader]).await?.as_ref())
}

/// The views that the reader made or that are shared, of one page or of all, newest first.
pub async fn list(
    db: &Db,
    (org, reader): (OrgId, &str),
    of_page: Option<ViewPage>,
    page: &Page,
) -> Result<Paged<StoredView>, StoreError> {
    let sql = StoredView::select(
        "org_id = $1 AND (owner = $2 OR shared = 1) AND ($3 IS NULL OR page = $3) AND ($4 IS NULL OR id < $4) \
         ORDER BY id DESC LIMIT $5",
    );
    let of_page = of_page.map(|page| page.as_str().to_owned());
    let rows = db.all(sql, args![org, reader, of_page, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<StoredView>(&rows)?, |view| view.id.to_string()))
}
