//! Users, revoked session tokens, and the role of a user in an organization.

use gateway_core::access::Role;
use gateway_core::ids::{OrgId, TokenId, UserId};
use gateway_core::time::Timestamp;

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

pub async fn find_by_email(db: &Db, email: &str) -> Result<Option<User>, StoreError> {
    let row = db.opt(User::select("email = $1"), args![email]).await?;
    table::read_opt(row.as_ref())
}

/// The role of a user in an organization; none for a user that is not a member.
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

/// Deletes the revocations of expired tokens.
pub async fn sweep_tokens(db: &Db, now: Timestamp) -> Result<u64, StoreError> {
    db.exec("DELETE FROM revoked_tokens WHERE expires_at < $1", args![now]).await
}
