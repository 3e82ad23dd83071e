//! Memberships and invitations.

use gateway_core::access::Role;
use gateway_core::ids::{InviteId, OrgId, UserId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub user_id: UserId,
    pub email: String,
    pub display_name: String,
    pub role: Role,
    pub created_at: Timestamp,
}

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Invite in "invites" {
        pub id: InviteId [key],
        pub org_id: OrgId [key],
        pub email: String,
        pub role: Role,
        pub created_at: Timestamp [once],
        pub expires_at: Timestamp,
    }
}

const SELECT_MEMBER: &str = "SELECT m.user_id, u.email, u.display_name, m.role, m.created_at \
    FROM memberships m JOIN users u ON u.id = m.user_id";
/// Invitations returned by one call.
const MAX_INVITES: i64 = 200;

pub async fn insert(
    tx: &mut Tx,
    org: OrgId,
    user: UserId,
    role: Role,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO memberships (org_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)",
        args![org, user, role, now],
    )
    .await
    .map(|_| ())
}

/// Newest membership first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Member>, StoreError> {
    let (time, user) = page.time_cursor();
    let sql = format!(
        "{SELECT_MEMBER} WHERE m.org_id = $1 \
         AND ($2 IS NULL OR m.created_at < $2 OR (m.created_at = $2 AND m.user_id < $3)) \
         ORDER BY m.created_at DESC, m.user_id DESC LIMIT $4"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, time, user, page.fetch()]).await?;
    let members = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(members, |member| Page::encode_time_cursor(member.created_at, member.user_id)))
}

pub async fn find(tx: &mut Tx, org: OrgId, user: UserId) -> Result<Option<Member>, StoreError> {
    let sql = format!("{SELECT_MEMBER} WHERE m.org_id = $1 AND m.user_id = $2");
    let row = tx.opt(AssertSqlSafe(sql), args![org, user]).await?;
    row.as_ref().map(read).transpose()
}

pub async fn count_owners(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx
        .opt(
            "SELECT COUNT(*) AS owners FROM memberships WHERE org_id = $1 AND role = $2",
            args![org, Role::Owner],
        )
        .await?;
    row.map_or(Ok(0), |row| row.get("owners"))
}

pub async fn set_role(tx: &mut Tx, org: OrgId, user: UserId, role: Role) -> Result<(), StoreError> {
    tx.exec("UPDATE memberships SET role = $3 WHERE org_id = $1 AND user_id = $2", args![org, user, role])
        .await
        .map(|_| ())
}

/// Removes the user from the organization and its teams.
pub async fn remove(tx: &mut Tx, org: OrgId, user: UserId) -> Result<(), StoreError> {
    tx.exec(
        "DELETE FROM team_members WHERE user_id = $2 AND team_id IN (SELECT id FROM teams WHERE org_id = $1)",
        args![org, user],
    )
    .await?;
    tx.exec("DELETE FROM memberships WHERE org_id = $1 AND user_id = $2", args![org, user]).await.map(|_| ())
}

/// Invites an address without an account. Replaces an earlier invitation of the same address.
pub async fn insert_invite(tx: &mut Tx, invite: &Invite, token_hash: &str) -> Result<(), StoreError> {
    delete_invite(tx, invite.org_id, &invite.email).await?;
    table::insert(tx, invite, vec![("token_hash", token_hash.into())]).await
}

/// Deletes an invitation, for example when the user became a member in another way.
pub async fn delete_invite(tx: &mut Tx, org: OrgId, email: &str) -> Result<(), StoreError> {
    tx.exec("DELETE FROM invites WHERE org_id = $1 AND email = $2", args![org, email]).await.map(|_| ())
}

/// Deletes and returns an invitation, so that it admits one person only.
pub async fn consume_invite(tx: &mut Tx, token_hash: &str) -> Result<Option<Invite>, StoreError> {
    let sql = format!("DELETE FROM invites WHERE token_hash = $1 RETURNING {}", Invite::columns(""));
    let row = tx.opt(AssertSqlSafe(sql), args![token_hash]).await?;
    table::read_opt(row.as_ref())
}

/// Open invitations of an organization, newest first.
pub async fn list_invites(db: &Db, org: OrgId, now: Timestamp) -> Result<Vec<Invite>, StoreError> {
    let sql = Invite::select("org_id = $1 AND expires_at > $2 ORDER BY id DESC LIMIT $3");
    table::read_all(&db.all(sql, args![org, now, MAX_INVITES]).await?)
}

fn read(row: &Row) -> Result<Member, StoreError> {
    Ok(Member {
        user_id: row.get("user_id")?,
        email: row.get("email")?,
        display_name: row.get("display_name")?,
        role: row.get("role")?,
        created_at: row.get("created_at")?,
    })
}
