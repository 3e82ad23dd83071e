//! Sessions of users: the tokens that were issued to them, and which of these have ended.
//!
//! A token is valid while it is in `user_sessions`. A token that is not, such as one of an earlier version, is valid too
//! unless it was revoked or issued before all sessions of its user were ended.

use gateway_core::ids::{OrgId, TokenId, UserId};
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UserSession in "user_sessions" {
        pub id: TokenId [key],
        pub user_id: UserId [once],
        pub org_id: OrgId [once],
        pub address: String [once],
        pub user_agent: String [once],
        pub created_at: Timestamp [once],
        pub expires_at: Timestamp [once],
    }
}

/// The facts of a token that decide whether it has ended.
#[derive(Debug, Clone, Copy)]
pub struct IssuedToken {
    pub id: TokenId,
    pub user: UserId,
    pub issued_at: Timestamp,
}

/// Sessions that are listed for a user. Older tokens stay valid.
const MAX_LISTED: i64 = 1_000;

const IS_ENDED: &str = "SELECT 1 AS one FROM revoked_tokens WHERE id = $1 \
    UNION ALL SELECT 1 AS one FROM users WHERE id = $2 AND tokens_ended_at >= $3 \
    AND NOT EXISTS (SELECT 1 FROM user_sessions WHERE id = $1) LIMIT 1";

/// Adds a session, and removes the oldest of the user from the list if there are too many.
pub async fn insert(tx: &mut Tx, session: &UserSession) -> Result<(), StoreError> {
    table::insert_with(tx, session, vec![], "ON CONFLICT (id) DO NOTHING").await?;
    tx.exec(
        "DELETE FROM user_sessions WHERE user_id = $1 AND id <= \
         (SELECT id FROM user_sessions WHERE user_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)",
        args![session.user_id, MAX_LISTED],
    )
    .await
    .map(|_| ())
}

/// Newest first.
pub async fn list(
    db: &Db,
    user: UserId,
    now: Timestamp,
    page: &Page,
) -> Result<Paged<UserSession>, StoreError> {
    let sql = UserSession::select(
        "user_id = $1 AND expires_at > $2 AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4",
    );
    let rows = db.all(sql, args![user, now, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<UserSession>(&rows)?, |session| session.id.to_string()))
}

pub async fn is_ended(db: &Db, token: IssuedToken) -> Result<bool, StoreError> {
    Ok(db.opt(IS_ENDED, args![token.id, token.user, token.issued_at]).await?.is_some())
}

pub async fn is_ended_in_tx(tx: &mut Tx, token: IssuedToken) -> Result<bool, StoreError> {
    Ok(tx.opt(IS_ENDED, args![token.id, token.user, token.issued_at]).await?.is_some())
}

/// Ends one session. `None` if the user has no such session.
pub async fn end(tx: &mut Tx, user: UserId, token: TokenId) -> Result<Option<Timestamp>, StoreError> {
    let row = tx
        .opt(
            "DELETE FROM user_sessions WHERE user_id = $1 AND id = $2 RETURNING expires_at",
            args![user, token],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let expires_at: Timestamp = row.get("expires_at")?;
    revoke(tx, token, expires_at).await?;
    Ok(Some(expires_at))
}

/// Makes a token invalid, whether or not it is in the list.
pub async fn revoke(tx: &mut Tx, token: TokenId, expires_at: Timestamp) -> Result<(), StoreError> {
    tx.exec("DELETE FROM user_sessions WHERE id = $1", args![token]).await?;
    tx.exec(
        "INSERT INTO revoked_tokens (id, expires_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
        args![token, expires_at],
    )
    .await
    .map(|_| ())
}

/// Ends all sessions of a user but `kept`, which must be in the list.
pub async fn end_all(
    tx: &mut Tx,
    user: UserId,
    kept: Option<TokenId>,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.exec("UPDATE users SET tokens_ended_at = $2 WHERE id = $1", args![user, now]).await?;
    tx.exec("DELETE FROM user_sessions WHERE user_id = $1 AND ($2 IS NULL OR id <> $2)", args![user, kept])
        .await
        .map(|_| ())
}

/// Deletes sessions and revocations of expired tokens.
pub async fn sweep(db: &Db, now: Timestamp) -> Result<(), StoreError> {
    db.exec("DELETE FROM user_sessions WHERE expires_at < $1", args![now]).await?;
    db.exec("DELETE FROM revoked_tokens WHERE expires_at < $1", args![now]).await.map(|_| ())
}
