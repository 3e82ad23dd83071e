//! What nodes have to forget. A change is noted in the transaction that makes it and rings a bell at its commit; who
//! hears the bell, or looks by itself from time to time, reads the notes.

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
/// Notes read at once; who is that far behind forgets everything.
const MAX_ROWS: i64 = 10_000;

/// Something that was changed and may be in the memory of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalidation {
    #[serde(with = "hash_text")]
    Key(KeyHash),
    /// What the keys of an organization belong to.
    #[serde(rename = "keys_of")]
    OrgKeys(OrgId),
    /// The organization itself: plan, settings, providers, budgets.
    Org(OrgId),
    /// All that is known of an organization.
    #[serde(rename = "all_of")]
    OrgAll(OrgId),
    Member(OrgId, UserId),
    Token(TokenId),
    /// A prompt has a new version.
    #[serde(rename = "new_version")]
    PromptVersion {
        org: OrgId,
        namespace: String,
        slug: String,
    },
    /// A prompt is gone.
    Prompt {
        org: OrgId,
        namespace: String,
        slug: String,
    },
    LiveEvals,
    /// Somebody needs money of this organization's budgets: what is leased and not needed is given back.
    #[serde(rename = "leases")]
    BudgetLeases(OrgId),
    /// Exports: deliveries under way look whether theirs is still the same.
    Exports,
    /// A node has come or gone.
    Nodes,
    /// Cached answers: of the organization, of one namespace, or one entry.
    #[serde(rename = "cached")]
    CacheEntries {
        org: OrgId,
        namespace: Option<String>,
        entry: Option<String>,
    },
}

/// Notes a change in the transaction that makes it. SQLite has nobody to tell.
pub async fn record(tx: &mut Tx, change: &Invalidation) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Sqlite {
        return Ok(());
    }
    let what = serde_json::to_string(change).map_err(|error| StoreError::Other(error.to_string()))?;
    tx.exec("INSERT INTO changes (what) VALUES ($1)", args![what]).await?;
    // Told when this is committed, and not at all when it is not.
    tx.exec("SELECT pg_notify($1, '')", args![CHANNEL]).await.map(|_| ())
}

/// How far a reader has come.
#[derive(Debug, Clone, Default)]
pub struct PollPosition {
    /// Every transaction before this one was over at the last look.
    floor: i64,
    /// Notes of later transactions that were read already.
    read: BTreeSet<i64>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Polled {
    Invalidations(Vec<Invalidation>),
    /// Too many, or one of a later version: all that is known may be wrong.
    Everything,
}

/// Where a reader begins that knows nothing yet.
pub async fn start_position(db: &Db) -> Result<PollPosition, StoreError> {
    Ok(PollPosition { floor: floor(db).await?, read: BTreeSet::new() })
}

/// What was committed since the last look, which `place` remembers.
pub async fn poll(db: &Db, place: &mut PollPosition) -> Result<Polled, StoreError> {
    // Read first: what the notes do not show yet belongs to a transaction at or behind this floor.
    let next = floor(db).await?;
    let rows = db
        .all(
            "SELECT id, what FROM changes WHERE made_by >= $1 ORDER BY id LIMIT $2",
            args![place.floor, MAX_ROWS],
        )
        .await?;
    let mut read = BTreeSet::new();
    let mut news = Vec::new();
    let mut understood = i64::try_from(rows.len()).is_ok_and(|count| count < MAX_ROWS);
    for row in &rows {
        let id: i64 = row.get("id")?;
        read.insert(id);
        if !place.read.contains(&id) {
            match row.json("what") {
                Ok(change) => news.push(change),
                Err(_) => understood = false,
            }
        }
    }
    *place = PollPosition { floor: next, read };
    Ok(if understood { Polled::Invalidations(news) } else { Polled::Everything })
}

async fn floor(db: &Db) -> Result<i64, StoreError> {
    let sql = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS floor";
    db.opt(sql, Vec::new()).await?.map_or(Ok(0), |row| row.get("floor"))
}

/// Removes notes that everybody has read or is too late for.
pub async fn sweep(db: &Db) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM changes WHERE made_at < {SERVER_NOW} - $1");
    db.exec(AssertSqlSafe(sql), args![millis(RETENTION)]).await.map(|_| ())
}

/// Hears the bell of every commit with a note in it, until the connection is lost.
pub async fn listen(db: &Db, heard: impl Fn()) -> Result<(), StoreError> {
    let Some(pool) = db.postgres() else { return Ok(()) };
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // What was told before this line was missed.
    heard();
    while listener.try_recv().await?.is_some() {
        heard();
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
        KeyHash::from_hex(&text).ok_or_else(|| D::Error::custom("no hash of a key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_as_what_was_noted() {
        for change in [
            Invalidation::Key(KeyHash([7; 32])),
            Invalidation::LiveEvals,
            Invalidation::Member(org(), user()),
            Invalidation::CacheEntries { org: org(), namespace: Some("a".into()), entry: None },
        ] {
            let text = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<Invalidation>(&text).unwrap(), change, "{text}");
        }
    }

    fn org() -> OrgId {
        "01890000-0000-7000-8000-000000000001".parse().unwrap()
    }

    fn user() -> UserId {
        "01890000-0000-7000-8000-000000000002".parse().unwrap()
    }
}
