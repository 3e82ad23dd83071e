//! Links from which agents install skills, and who fetched from them. Only the hash of a link's token is stored.

use gateway_core::ids::{InstallLinkId, OrgId, SkillId};
use gateway_core::skills::install::Selection;
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::{Arg, Row, args};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

/// Clients of a link that are remembered.
const MAX_FETCHES: i64 = 20;

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct InstallLink in "install_links" {
        pub id: InstallLinkId [key],
        pub org_id: OrgId [key],
        pub name: String,
        pub skills: Selection [via selection],
        pub created_by: String [once],
        pub created_at: Timestamp [once],
        pub expires_at: Option<Timestamp>,
    }
}

/// How a selection is stored: its name, or a JSON list of ids.
mod selection {
    use super::{Arg, Row, Selection, SkillId, StoreError};

    pub fn to_arg(skills: &Selection) -> Arg {
        match skills {
            Selection::Passed => "passed".into(),
            Selection::Shelf => "shelf".into(),
            Selection::Skills(ids) => crate::row::json(ids),
        }
    }

    pub fn from_row(row: &Row, column: &'static str) -> Result<Selection, StoreError> {
        let text: String = row.get(column)?;
        match text.as_str() {
            "passed" => Ok(Selection::Passed),
            "shelf" => Ok(Selection::Shelf),
            list => serde_json::from_str::<Vec<SkillId>>(list)
                .map(Selection::Skills)
                .map_err(|error| StoreError::Other(format!("the skills of an install link: {error}"))),
        }
    }
}

/// What a client fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallFetch {
    pub kind: String,
    pub client: String,
    pub fetches: i64,
    pub last_at: Timestamp,
}

pub async fn insert(tx: &mut Tx, link: &InstallLink, token_hash: &str) -> Result<(), StoreError> {
    table::insert(tx, link, vec![("token_hash", token_hash.into())]).await
}

pub async fn count(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS links FROM install_links WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("links"))
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<InstallLink>, StoreError> {
    let sql = InstallLink::select("org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3");
    let rows = db.all(sql, args![org, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<InstallLink>(&rows)?, |link| link.id.to_string()))
}

/// The link with this token, unless it has expired.
pub async fn find_by_token(
    db: &Db,
    token_hash: &str,
    now: Timestamp,
) -> Result<Option<InstallLink>, StoreError> {
    let sql = InstallLink::select("token_hash = $1 AND (expires_at IS NULL OR expires_at > $2)");
    table::read_opt(db.opt(sql, args![token_hash, now]).await?.as_ref())
}

/// Deletes and returns a link, together with what only it needed.
pub async fn delete(tx: &mut Tx, org: OrgId, id: InstallLinkId) -> Result<Option<InstallLink>, StoreError> {
    let sql = format!(
        "DELETE FROM install_links WHERE org_id = $1 AND id = $2 RETURNING {}",
        InstallLink::columns("")
    );
    let link = table::read_opt(tx.opt(sqlx::AssertSqlSafe(sql), args![org, id]).await?.as_ref())?;
    tx.exec("DELETE FROM install_fetches WHERE org_id = $1 AND link_id = $2", args![org, id]).await?;
    tx.exec("DELETE FROM install_trees WHERE org_id = $1 AND selection = $2", args![org, id]).await?;
    Ok(link)
}

/// Counts a fetch. `link` is none for a fetch with a key.
pub async fn record_fetch(
    db: &Db,
    org: OrgId,
    link: Option<InstallLinkId>,
    (kind, client): (&str, &str),
    now: Timestamp,
) -> Result<(), StoreError> {
    let link = link.map(|link| link.to_string()).unwrap_or_default();
    let mut tx = db.begin().await?;
    // INSERT from SELECT, because the organization may have been deleted since.
    tx.exec(
        "INSERT INTO install_fetches (org_id, link_id, kind, client, fetches, last_at) \
         SELECT o.id, $2, $3, $4, 1, $5 FROM orgs o WHERE o.id = $1 \
         ON CONFLICT (org_id, link_id, kind, client) DO UPDATE SET \
         fetches = install_fetches.fetches + 1, last_at = excluded.last_at",
        args![org, &link, kind, client, now],
    )
    .await?;
    tx.exec(
        "DELETE FROM install_fetches WHERE org_id = $1 AND link_id = $2 AND last_at < (SELECT MIN(n.last_at) FROM \
         (SELECT f.last_at FROM install_fetches f WHERE f.org_id = $1 AND f.link_id = $2 \
         ORDER BY f.last_at DESC LIMIT $3) n)",
        args![org, &link, MAX_FETCHES],
    )
    .await?;
    tx.commit().await
}

/// The newest fetches of a link, or of keys.
pub async fn list_fetches(
    db: &Db,
    org: OrgId,
    link: Option<InstallLinkId>,
) -> Result<Vec<InstallFetch>, StoreError> {
    let link = link.map(|link| link.to_string()).unwrap_or_default();
    let rows = db
        .all(
            "SELECT kind, client, fetches, last_at FROM install_fetches WHERE org_id = $1 AND link_id = $2 \
             ORDER BY last_at DESC, kind, client LIMIT $3",
            args![org, &link, MAX_FETCHES],
        )
        .await?;
    let read = |row: &Row| {
        Ok(InstallFetch {
            kind: row.get("kind")?,
            client: row.get("client")?,
            fetches: row.get("fetches")?,
            last_at: row.get("last_at")?,
        })
    };
    rows.iter().map(read).collect()
}
