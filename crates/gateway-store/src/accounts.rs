//! Users, and their role in an organization.

use gateway_core::access::Role;
use gateway_core::ids::{OrgId, TeamId, UserId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct User in "users" {
        pub id: UserId [key],
        pub email: String,
        pub display_name: String,
        pub password_hash: String,
        pub created_at: Timestamp [once],
    }
}

pub async fn insert_user(tx: &mut Tx, user: &User) -> Result<(), StoreError> {
    table::insert(tx, user, vec![]).await
}

/// Whether anyone has an account.
pub async fn has_users(db: &Db) -> Result<bool, StoreError> {
    Ok(db.opt("SELECT 1 AS one FROM users LIMIT 1", args![]).await?.is_some())
}

pub async fn find_by_email(db: &Db, email: &str) -> Result<Option<User>, StoreError> {
    let row = db.opt(User::select("email = $1"), args![email]).await?;
    table::read_opt(row.as_ref())
}

pub async fn find(db: &Db, id: UserId) -> Result<Option<User>, StoreError> {
    let row = db.opt(User::select("id = $1"), args![id]).await?;
    table::read_opt(row.as_ref())
}

/// A membership as far as requests of the member are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    pub role: Role,
    /// The team whose budgets the member's calls count against.
    pub team_id: Option<TeamId>,
}

/// The team of the member `m.user_id` of the organization `m.org_id` whose budgets their calls count against: the oldest
/// of their teams with a budget, else the oldest.
pub(crate) const TEAM_OF_MEMBER: &str = "SELECT t.id FROM teams t JOIN team_members tm ON tm.team_id = t.id \
    LEFT JOIN budgets b ON b.team_id = t.id WHERE t.org_id = m.org_id AND tm.user_id = m.user_id \
    ORDER BY CASE WHEN b.id IS NULL THEN 1 ELSE 0 END, t.id LIMIT 1";

pub async fn find_membership(db: &Db, org: OrgId, user: UserId) -> Result<Option<Membership>, StoreError> {
    let sql = format!(
        "SELECT m.role, ({TEAM_OF_MEMBER}) AS team_id FROM memberships m WHERE m.org_id = $1 AND m.user_id = $2"
    );
    let row = db.opt(AssertSqlSafe(sql), args![org, user]).await?;
    row.map(|row| Ok(Membership { role: row.get("role")?, team_id: row.get("team_id")? })).transpose()
}

/// The role of a user in an organization; none for a user that is not a member.
pub async fn role_of(db: &Db, org: OrgId, user: UserId) -> Result<Option<Role>, StoreError> {
    let row =
        db.opt("SELECT role FROM memberships WHERE org_id = $1 AND user_id = $2", args![org, user]).await?;
    row.map(|row| row.get("role")).transpose()
}

/// Locks the user until the transaction ends. False if the user has another password by now.
pub async fn lock_with_password(tx: &mut Tx, user: UserId, password_hash: &str) -> Result<bool, StoreError> {
    let sql = "UPDATE users SET created_at = created_at WHERE id = $1 AND password_hash = $2";
    Ok(tx.exec(sql, args![user, password_hash]).await? == 1)
}

/// Locks the user until the transaction ends.
pub async fn lock(tx: &mut Tx, user: UserId) -> Result<(), StoreError> {
    tx.exec("UPDATE users SET created_at = created_at WHERE id = $1", args![user]).await.map(|_| ())
}

pub async fn set_password(tx: &mut Tx, user: UserId, password_hash: &str) -> Result<(), StoreError> {
    tx.exec("UPDATE users SET password_hash = $2 WHERE id = $1", args![user, password_hash]).await.map(|_| ())
}
