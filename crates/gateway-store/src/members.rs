//! Memberships.

use gateway_core::access::Role;
use gateway_core::ids::{OrgId, UserId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub user_id: UserId,
    pub email: String,
    pub display_name: String,
    pub role: Role,
    pub created_at: Timestamp,
}

const COUNT_OWNED: &str = "SELECT COUNT(*) AS n FROM memberships WHERE user_id = $1 AND role = 'owner'";

const SELECT_MEMBER: &str = "SELECT m.user_id, u.email, u.display_name, m.role, m.created_at \
    FROM memberships m JOIN users u ON u.id = m.user_id";

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

/// How many organizations the user owns.
pub async fn count_owned(tx: &mut Tx, user: UserId) -> Result<i64, StoreError> {
    let row = tx.opt(COUNT_OWNED, args![user]).await?;
    row.map_or(Ok(0), |row| row.get("n"))
}

/// The same, as it is shown.
pub async fn owned_by(db: &Db, user: UserId) -> Result<i64, StoreError> {
    let row = db.opt(COUNT_OWNED, args![user]).await?;
    row.map_or(Ok(0), |row| row.get("n"))
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

/// Whether a member of the organization has this address.
pub async fn has_email(tx: &mut Tx, org: OrgId, email: &str) -> Result<bool, StoreError> {
    let row = tx
        .opt(
            "SELECT 1 AS one FROM memberships m JOIN users u ON u.id = m.user_id \
             WHERE m.org_id = $1 AND u.email = $2",
            args![org, email],
        )
        .await?;
    Ok(row.is_some())
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
