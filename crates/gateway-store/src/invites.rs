//! Invitations to organizations. Only the hash of an invitation's token is stored.

use gateway_core::access::Role;
use gateway_core::ids::{InviteId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Invite in "invites" {
        pub id: InviteId [key],
        pub org_id: OrgId [key],
        pub email: String,
        pub role: Role,
        /// The user or key that invited.
        pub invited_by: Option<String> [once],
        pub created_at: Timestamp [once],
        pub expires_at: Timestamp,
    }
}

pub async fn insert(tx: &mut Tx, invite: &Invite, token_hash: &str) -> Result<(), StoreError> {
    table::insert(tx, invite, vec![("token_hash", token_hash.into())]).await
}

/// Open invitations, newest first.
pub async fn list(db: &Db, org: OrgId, now: Timestamp, page: &Page) -> Result<Paged<Invite>, StoreError> {
    let sql = Invite::select(
        "org_id = $1 AND expires_at > $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4",
    );
    let rows = db.all(sql, args![org, now, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<Invite>(&rows)?, |invite| invite.id.to_string()))
}

pub async fn count_open(tx: &mut Tx, org: OrgId, now: Timestamp) -> Result<i64, StoreError> {
    let row = tx
        .opt("SELECT COUNT(*) AS open FROM invites WHERE org_id = $1 AND expires_at > $2", args![org, now])
        .await?;
    row.map_or(Ok(0), |row| row.get("open"))
}

/// Deletes and returns the invitation of an address.
pub async fn delete_of_email(tx: &mut Tx, org: OrgId, email: &str) -> Result<Option<Invite>, StoreError> {
    let row = tx.opt(delete_sql("org_id = $1 AND email = $2"), args![org, email]).await?;
    table::read_opt(row.as_ref())
}

/// Deletes and returns an invitation.
pub async fn delete(tx: &mut Tx, org: OrgId, id: InviteId) -> Result<Option<Invite>, StoreError> {
    let row = tx.opt(delete_sql("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// The invitation with this token, which is not locked.
pub async fn find(tx: &mut Tx, token_hash: &str) -> Result<Option<Invite>, StoreError> {
    let row = tx.opt(Invite::select("token_hash = $1"), args![token_hash]).await?;
    table::read_opt(row.as_ref())
}

/// Deletes and returns the invitation with this token, so that it admits one person only.
pub async fn consume(tx: &mut Tx, token_hash: &str) -> Result<Option<Invite>, StoreError> {
    let row = tx.opt(delete_sql("token_hash = $1"), args![token_hash]).await?;
    table::read_opt(row.as_ref())
}

/// Deletes invitations that have expired.
pub async fn sweep(db: &Db, now: Timestamp) -> Result<u64, StoreError> {
    db.exec("DELETE FROM invites WHERE expires_at <= $1", args![now]).await
}

fn delete_sql(condition: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("DELETE FROM invites WHERE {condition} RETURNING {}", Invite::columns("")))
}
