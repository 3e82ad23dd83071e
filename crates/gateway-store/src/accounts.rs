//! Users, their sessions' revocations, and what an access check reads.

use gateway_core::access::Role;
use gateway_core::ids::{OrgId, TokenId, UserId};
use gateway_core::time::Timestamp;

use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub email: String,
    pub display_name: String,
    pub password_hash: String,
    pub created_at: Timestamp,
}

pub async fn insert_user(tx: &mut Tx, user: &User) -> Result<(), StoreError> {
    let User { id, email, display_name, password_hash, created_at } = user;
    tx.exec(
        "INSERT INTO users (id, email, display_name, password_hash, created_at) VALUES ($1, $2, $3, $4, $5)",
        args![*id, email, display_name, password_hash, *created_at],
    )
    .await
    .map(|_| ())
}

pub async fn find_by_email(db: &Db, email: &str) -> Result<Option<User>, StoreError> {
    let row = db
        .opt(
            "SELECT id, email, display_name, password_hash, created_at FROM users WHERE email = $1",
            args![email],
        )
        .await?;
    row.as_ref().map(read).transpose()
}

/// The role of a user in an organization; None when they are no member (any more).
pub async fn role_of(db: &Db, org: OrgId, user: UserId) -> Result<Option<Role>, StoreError> {
    let row =
        db.opt("SELECT role FROM memberships WHERE org_id = $1 AND user_id = $2", args![org, user]).await?;
    row.map(|row| row.get("role")).transpose()
}

pub async fn revoke_token(tx: &mut Tx, token: TokenId, expires_at: Timestamp) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO revoked_tokens (id, expires_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
        args![token, expires_at],
    )
    .await
    .map(|_| ())
}

pub async fn token_is_revoked(db: &Db, token: TokenId) -> Result<bool, StoreError> {
    Ok(db.opt("SELECT 1 AS one FROM revoked_tokens WHERE id = $1", args![token]).await?.is_some())
}

/// Forgets revocations of tokens that have expired by themselves.
pub async fn sweep_tokens(db: &Db, now: Timestamp) -> Result<u64, StoreError> {
    db.exec("DELETE FROM revoked_tokens WHERE expires_at < $1", args![now]).await
}

fn read(row: &Row) -> Result<User, StoreError> {
    Ok(User {
        id: row.get("id")?,
        email: row.get("email")?,
        display_name: row.get("display_name")?,
        password_hash: row.get("password_hash")?,
        created_at: row.get("created_at")?,
    })
}
