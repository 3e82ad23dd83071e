//! Cache invalidation across nodes. An invalidation is recorded in the transaction of the change and announced by
//! NOTIFY at its commit. Nodes poll the recorded invalidations after a notification and at regular intervals.

use std::collections::BTreeSet;
use std::time::Duration;

use gateway_core::accounts::KeyHash;
use gateway_core::ids::{OrgId, TokenId, UserId};
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgListener;

use super::{SERVER_NOW, millis};
use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError, Tx};

const CHANNEL: &str = "gateway_changes";
/// How long a recorded invalidation is kept.
const RETENTION: Duration = Duration::from_secs(10 * 60);
/// A node that has not polled for this long may have missed invalidations and must drop all cached state.
pub const MAX_POLL_GAP: Duration = Duration::from_secs(5 * 60);
/// Rows read by one poll. A node that is further behind must drop all cached state.
const MAX_ROWS: i64 = 10_000;

/// Cached state that a change made stale. The serialized names are stored in the database and must not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalidation {
    #[serde(with = "hash_text")]
    Key(KeyHash),
    /// All keys and memberships of an organization: applications or teams changed.
    #[serde(rename = "keys_of")]
    OrgKeys(OrgId),
    /// An organization's plan, settings, providers or budgets.
    Org(OrgId),
    /// Everything that is cached of an organization.
    #[serde(rename = "all_of")]
    OrgAll(OrgId),
    Member(OrgId, UserId),
    Token(TokenId),
    /// All session tokens of a user.
    User(UserId),
    /// The latest version of a prompt.
    #[serde(rename = "new_version")]
    PromptVersion {
        org: OrgId,
        namespace: String,
        slug: String,
    },
    /// A label of a prompt that was set, moved or removed.
    PromptLabel {
        org: OrgId,
        namespace: String,
        slug: String,
        label: String,
    },
    /// All versions of a deleted prompt.
    Prompt {
        org: OrgId,
        namespace: String,
        slug: String,
    },
    LiveEvals,
    /// Another node needs budget of this organization: nodes give back what they leased and do not need.
    #[serde(rename = "leases")]
    BudgetLeases(OrgId),
    /// The same for the budgets of one of its users.
    #[serde(rename = "user_leases")]
    UserBudgetLeases {
        org: OrgId,
        user: String,
    },
    /// Exports changed: running deliveries check whether theirs is still current.
    Exports,
    /// A node joined or left.
    Nodes,
    /// Cached responses of an organization, of one namespace, or one entry.
    #[serde(rename = "cached")]
    CacheEntries {
        org: OrgId,
        namespace: Option<String>,
        entry: Option<String>,
    },
}

/// Records an invalidation in the transaction of the change. Does nothing on SQLite, which has one node.
pub async fn record(tx: &mut Tx, invalidation: &Invalidation) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Sqlite {
        return Ok(());
    }
    let what = serde_json::to_string(invalidation).map_err(|error| StoreError::Other(error.to_string()))?;
    tx.exec("INSERT INTO changes (what) VALUES ($1)", args![what]).await?;
    // PostgreSQL sends the notification at the commit, and never after a rollback.
    tx.exec("SELECT pg_notify($1, '')", args![CHANNEL]).await.map(|_| ())
}

/// The position of a reader.
#[derive(Debug, Clone, Default)]
pub struct PollPosition {
    /// All transactions before this one were finished at the last poll.
    floor: i64,
    /// Rows of later transactions that were already read.
    read: BTreeSet<i64>,
}

/// The result of a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Polled {
    Invalidations(Vec<Invalidation>),
    /// Too many rows, or one written by a newer version: the node must drop all cached state.
    Everything,
}

/// The position of a reader that has nothing cached yet.
pub async fn start_position(db: &Db) -> Result<PollPosition, StoreError> {
    Ok(PollPosition { floor: floor(db).await?, read: BTreeSet::new() })
}

/// Returns the invalidations that were committed since the last poll, and moves the position on.
pub async fn poll(db: &Db, position: &mut PollPosition) -> Result<Polled, StoreError> {
    // Read before the rows: a row that is not visible yet belongs to a transaction at or after this floor.
    let next = floor(db).await?;
    let rows = db
        .all(
            "SELECT id, what FROM changes WHERE made_by >= $1 ORDER BY id LIMIT $2",
            args![position.floor, MAX_ROWS],
        )
        .await?;
    let mut read = BTreeSet::new();
    let mut invalidations = Vec::new();
    let mut complete = i64::try_from(rows.len()).is_ok_and(|count| count < MAX_ROWS);
    for row in &rows {
        let id: i64 = row.get("id")?;
        read.insert(id);
        if !position.read.contains(&id) {
            match row.json("what") {
                Ok(invalidation) => invalidations.push(invalidation),
                Err(_) => complete = false,
            }
        }
    }
    *position = PollPosition { floor: next, read };
    Ok(if complete { Polled::Invalidations(invalidations) } else { Polled::Everything })
}

async fn floor(db: &Db) -> Result<i64, StoreError> {
    let sql = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS floor";
    db.opt(sql, Vec::new()).await?.map_or(Ok(0), |row| row.get("floor"))
}

/// Deletes invalidations past their retention.
pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM changes WHERE made_at < {SERVER_NOW} - $1");
    db.exec(AssertSqlSafe(sql), args![millis(RETENTION)]).await.map(|_| ())
}

/// Calls `on_notify` for every commit with an invalidation, until the connection is lost.
pub async fn listen(db: &Db, on_notify: impl Fn()) -> Result<(), StoreError> {
    let Some(pool) = db.postgres() else { return Ok(()) };
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // Notifications from before LISTEN were missed.
    on_notify();
    while listener.try_recv().await?.is_some() {
        on_notify();
    }
    Ok(())
}

mod hash_text {
    use super::KeyHash;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(hash: &KeyHash, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hash.to_hex())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<KeyHash, D::Error> {
        let text = String::deserialize(from)?;
        KeyHash::from_hex(&text).ok_or_else(|| D::Error::custom("not the hash of a key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidation_is_deserialized_as_it_was_serialized() {
        for invalidation in [
            Invalidation::Key(KeyHash([7; 32])),
            Invalidation::LiveEvals,
            Invalidation::Member(org(), user()),
            Invalidation::CacheEntries { org: org(), namespace: Some("a".into()), entry: None },
        ] {
            let text = serde_json::to_string(&invalidation).unwrap();
            assert_eq!(serde_json::from_str::<Invalidation>(&text).unwrap(), invalidation, "{text}");
        }
    }

    #[test]
    fn the_stored_names_are_stable() {
        for (invalidation, stored) in [
            (Invalidation::OrgKeys(org()), "keys_of"),
            (Invalidation::OrgAll(org()), "all_of"),
            (Invalidation::BudgetLeases(org()), "leases"),
        ] {
            let text = serde_json::to_string(&invalidation).unwrap();
            assert_eq!(text, format!("{{\"{stored}\":\"{}\"}}", org()));
        }
    }

    fn org() -> OrgId {
        "01890000-0000-7000-8000-000000000001".parse().unwrap()
    }

    fn user() -> UserId {
        "01890000-0000-7000-8000-000000000002".parse().unwrap()
    }
}
