//! The addresses from which users signed in, and one-time tokens that replace a forgotten password.

use gateway_core::ids::UserId;
use gateway_core::time::Timestamp;

use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Addresses kept of a user.
const MAX_ADDRESSES: i64 = 100;

/// Records that the user signed in from an address.
pub async fn record(tx: &mut Tx, user: UserId, address: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO sign_in_addresses (user_id, address, last_at) VALUES ($1, $2, $3) \
         ON CONFLICT (user_id, address) DO UPDATE SET last_at = excluded.last_at",
        args![user, address, now],
    )
    .await?;
    tx.exec(
        "DELETE FROM sign_in_addresses WHERE user_id = $1 AND last_at < \
         (SELECT last_at FROM sign_in_addresses WHERE user_id = $1 ORDER BY last_at DESC LIMIT 1 OFFSET $2)",
        args![user, MAX_ADDRESSES],
    )
    .await
    .map(|_| ())
}

/// Whether the account of an email signed in from an address since a time. The statement is the same for an unknown
/// email.
pub async fn is_known(db: &Db, email: &str, address: &str, since: Timestamp) -> Result<bool, StoreError> {
    let row = db
        .opt(
            "SELECT 1 AS one FROM sign_in_addresses s JOIN users u ON u.id = s.user_id \
             WHERE u.email = $1 AND s.address = $2 AND s.last_at >= $3",
            args![email, address, since],
        )
        .await?;
    Ok(row.is_some())
}

/// Stores the token of a password reset. It replaces an earlier one of the user.
pub async fn insert_reset(
    tx: &mut Tx,
    user: UserId,
    token_hash: &str,
    expires_at: Timestamp,
) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO password_resets (user_id, token_hash, expires_at) VALUES ($1, $2, $3) \
         ON CONFLICT (user_id) DO UPDATE SET token_hash = excluded.token_hash, expires_at = excluded.expires_at",
        args![user, token_hash, expires_at],
    )
    .await
    .map(|_| ())
}

pub async fn reset_exists(db: &Db, token_hash: &str, now: Timestamp) -> Result<bool, StoreError> {
    let row = db
        .opt(
            "SELECT 1 AS one FROM password_resets WHERE token_hash = $1 AND expires_at > $2",
            args![token_hash, now],
        )
        .await?;
    Ok(row.is_some())
}

/// Deletes a reset that has not expired and returns its user, so that it works once.
pub async fn consume_reset(
    tx: &mut Tx,
    token_hash: &str,
    now: Timestamp,
) -> Result<Option<UserId>, StoreError> {
    let row = tx
        .opt(
            "DELETE FROM password_resets WHERE token_hash = $1 AND expires_at > $2 RETURNING user_id",
            args![token_hash, now],
        )
        .await?;
    row.map(|row| row.get("user_id")).transpose()
}

pub async fn delete_reset(tx: &mut Tx, user: UserId) -> Result<(), StoreError> {
    tx.exec("DELETE FROM password_resets WHERE user_id = $1", args![user]).await.map(|_| ())
}

/// Deletes addresses without a sign-in since `oldest`, and expired resets.
pub async fn sweep(db: &Db, oldest: Timestamp, now: Timestamp) -> Result<(), StoreError> {
    db.exec("DELETE FROM sign_in_addresses WHERE last_at < $1", args![oldest]).await?;
    db.exec("DELETE FROM password_resets WHERE expires_at <= $1", args![now]).await.map(|_| ())
}
