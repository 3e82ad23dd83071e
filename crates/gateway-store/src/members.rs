//! Memberships and invitations.

use gateway_core::access::Role;
use gateway_core::ids::{InviteId, OrgId, UserId};
use gateway_core::time::Timestamp;

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invite {
    pub id: InviteId,
    pub org_id: OrgId,
    pub email: String,
    pub role: Role,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

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

/// A member with the user's own facts beside the role.
macro_rules! select_member {
    ($tail:literal) => {
        concat!(
            "SELECT m.user_id, u.email, u.display_name, m.role, m.created_at \
             FROM memberships m JOIN users u ON u.id = m.user_id ",
            $tail
        )
    };
}

/// The newest membership first, however old the account is.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Member>, StoreError> {
    let (time, user) = page.before_in_time();
    let rows = db
        .all(
            select_member!(
                "WHERE m.org_id = $1 AND ($2 IS NULL OR m.created_at < $2 OR (m.created_at = $2 AND m.user_id < $3)) \
                 ORDER BY m.created_at DESC, m.user_id DESC LIMIT $4"
            ),
            args![org, time, user, page.fetch()],
        )
        .await?;
    let members = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(members, |member| Page::in_time(member.created_at, member.user_id)))
}

pub async fn find(tx: &mut Tx, org: OrgId, user: UserId) -> Result<Option<Member>, StoreError> {
    let row = tx.opt(select_member!("WHERE m.org_id = $1 AND m.user_id = $2"), args![org, user]).await?;
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

/// Takes the user out of the organization and out of its teams.
pub async fn remove(tx: &mut Tx, org: OrgId, user: UserId) -> Result<(), StoreError> {
    tx.exec(
        "DELETE FROM team_members WHERE user_id = $2 AND team_id IN (SELECT id FROM teams WHERE org_id = $1)",
        args![org, user],
    )
    .await?;
    tx.exec("DELETE FROM memberships WHERE org_id = $1 AND user_id = $2", args![org, user]).await.map(|_| ())
}

/// An invitation of an address that has no account yet. A second one to the same address replaces the first.
pub async fn insert_invite(tx: &mut Tx, invite: &Invite, token_hash: &str) -> Result<(), StoreError> {
    let Invite { id, org_id, email, role, created_at, expires_at } = invite;
    delete_invite(tx, *org_id, email).await?;
    tx.exec(
        "INSERT INTO invites (id, org_id, email, role, token_hash, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        args![*id, *org_id, email, *role, token_hash, *created_at, *expires_at],
    )
    .await
    .map(|_| ())
}

/// Whoever is a member needs no invitation any more.
pub async fn delete_invite(tx: &mut Tx, org: OrgId, email: &str) -> Result<(), StoreError> {
    tx.exec("DELETE FROM invites WHERE org_id = $1 AND email = $2", args![org, email]).await.map(|_| ())
}

/// Uses an invitation up: it is gone afterwards, so that it admits one person only.
pub async fn consume_invite(tx: &mut Tx, token_hash: &str) -> Result<Option<Invite>, StoreError> {
    let row = tx
        .opt(
            "DELETE FROM invites WHERE token_hash = $1 \
             RETURNING id, org_id, email, role, created_at, expires_at",
            args![token_hash],
        )
        .await?;
    row.as_ref().map(read_invite).transpose()
}

/// Open invitations of an organization, newest first.
pub async fn list_invites(db: &Db, org: OrgId, now: Timestamp) -> Result<Vec<Invite>, StoreError> {
    let rows = db
        .all(
            "SELECT id, org_id, email, role, created_at, expires_at FROM invites \
             WHERE org_id = $1 AND expires_at > $2 ORDER BY id DESC LIMIT 200",
            args![org, now],
        )
        .await?;
    rows.iter().map(read_invite).collect()
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

fn read_invite(row: &Row) -> Result<Invite, StoreError> {
    Ok(Invite {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        email: row.get("email")?,
        role: row.get("role")?,
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
    })
}
