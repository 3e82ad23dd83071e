//! The audit log: entries are appended in the transaction of the change, one chain per organization. The head of a chain
//! is locked last and only until the commit, so that organizations do not wait for each other.

mod checkpoints;
mod partitions;
mod read;

pub use checkpoints::{
    ChainState, Kind, StoredKey, checkpoints_after, contradicted, insert as insert_checkpoint, insert_key,
    keys, latest, removable, remove, start, states,
};
pub use partitions::ensure_partitions;
pub use read::{Entries, Filter, Stored, find, first_since, last_seq, list, position, since, verify_page};

use std::sync::atomic::{AtomicU64, Ordering};

use gateway_core::audit::chain::{entry_hash, genesis};
use gateway_core::audit::{Actor, ActorType, Chain, Draft};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::row::{Arg, Row, args};
use crate::{Db, StoreError, Tx};

impl From<Chain> for Arg {
    fn from(chain: Chain) -> Self {
        chain.to_string().into()
    }
}

/// The last entry of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub seq: i64,
    pub hash: String,
    pub at: Timestamp,
}

impl Head {
    fn from_row(row: &Row) -> Result<Self, StoreError> {
        Ok(Self { seq: row.get("seq")?, hash: row.get("hash")?, at: row.get("at")? })
    }
}

/// Entries that this process has written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

pub fn written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

pub(crate) fn count_written(entries: u64) {
    WRITTEN.fetch_add(entries, Ordering::Relaxed);
}

/// Appends the recorded entries of a transaction, and returns the new heads. Nothing else may be locked after it.
pub async fn append(tx: &mut Tx) -> Result<Vec<(Chain, Head)>, StoreError> {
    let mut drafts = tx.take_entries();
    // In one order everywhere, so that transactions with entries in several chains do not wait for each other.
    drafts.sort_by_key(|draft| draft.chain);
    let mut heads: Vec<(Chain, Head)> = Vec::new();
    for mut draft in drafts {
        let chain = draft.chain;
        if heads.last().is_none_or(|(of, _)| *of != chain) {
            heads.push((chain, lock_head(tx, chain, draft.at, &mut draft.actor).await?));
        } else {
            name_actor(tx, &mut draft).await?;
        }
        let Some((_, head)) = heads.last_mut() else { continue };
        insert(tx, draft, head).await?;
    }
    for (chain, head) in &heads {
        tx.exec(
            "UPDATE audit_heads SET seq = $2, hash = $3, at = $4 WHERE org_id = $1",
            args![*chain, head.seq, &head.hash, head.at],
        )
        .await?;
    }
    Ok(heads)
}

/// Entries keep the name of their actor, who may be renamed or deleted later.
async fn name_actor(tx: &mut Tx, draft: &mut Draft) -> Result<(), StoreError> {
    let actor = &mut draft.actor;
    let (Some(id), Some(name)) = (&actor.id, name_of(actor)) else { return Ok(()) };
    let row = tx.opt(AssertSqlSafe(format!("SELECT ({name}) AS name")), args![id]).await?;
    actor.name = row.map(|row| row.get("name")).transpose()?.flatten();
    Ok(())
}

/// The query for the name of an actor with the id `$1`, if it is not known.
fn name_of(actor: &Actor) -> Option<&'static str> {
    match actor {
        Actor { name: Some(_), .. } | Actor { id: None, .. } => None,
        Actor { kind: ActorType::User, .. } => Some("SELECT email FROM users WHERE id = $1"),
        Actor { kind: ActorType::Key, .. } => Some("SELECT name FROM api_keys WHERE id = $1"),
        Actor { .. } => None,
    }
}

/// Locks the head until the transaction ends, and creates it before the first entry. Names the actor in the same
/// statement, because each statement adds to the time of a change. The lock writes the time of the head and not its key,
/// because SQLite would write the index again.
async fn lock_head(tx: &mut Tx, chain: Chain, now: Timestamp, actor: &mut Actor) -> Result<Head, StoreError> {
    let name = name_of(actor);
    let sql = format!(
        "INSERT INTO audit_heads (org_id, seq, hash, at) VALUES ($2, 0, $3, $4) \
         ON CONFLICT (org_id) DO UPDATE SET at = audit_heads.at \
         RETURNING seq, hash, at, ({}) AS name",
        name.unwrap_or("SELECT CAST($1 AS TEXT)")
    );
    let row = tx.opt(AssertSqlSafe(sql), args![actor.id.as_deref(), chain, genesis(&chain), now]).await?;
    let row = row.ok_or_else(|| StoreError::Other("the head of the audit log is missing".into()))?;
    if name.is_some() {
        actor.name = row.get("name")?;
    }
    Head::from_row(&row)
}

async fn insert(tx: &mut Tx, draft: Draft, head: &mut Head) -> Result<(), StoreError> {
    let chain = draft.chain;
    let entry = draft.at(head.seq + 1, head.hash.clone());
    let body = entry.canonical();
    let hash = entry_hash(&entry.prev_hash, &body)
        .ok_or_else(|| StoreError::Other("the head of the audit log has no valid hash".into()))?;
    tx.exec(
        "INSERT INTO audit_entries \
         (org_id, seq, id, at, actor_id, action, target_type, target_id, outcome, body, hash) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        args![
            chain,
            entry.seq,
            entry.id.to_string(),
            entry.at,
            entry.actor.id,
            entry.action,
            entry.target.kind,
            entry.target.id,
            entry.outcome.as_str(),
            body,
            &hash
        ],
    )
    .await?;
    *head = Head { seq: entry.seq, hash, at: entry.at };
    Ok(())
}

/// Writes entries that belong to no other change.
pub async fn write(db: &Db, entries: Vec<Draft>) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    for entry in entries {
        tx.record(entry);
    }
    tx.commit().await
}

/// Writes entries that belong to no other change, except those of organizations that were deleted in the meantime.
pub async fn write_if_exists(db: &Db, entries: &[Draft]) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    for entry in entries {
        let exists = match entry.chain {
            Chain::System => true,
            Chain::Org(org) => tx.opt("SELECT 1 AS one FROM orgs WHERE id = $1", args![org]).await?.is_some(),
        };
        if exists {
            tx.record(entry.clone());
        }
    }
    tx.commit().await
}

/// The last entry of a chain; `None` if it has none.
pub async fn head(db: &Db, chain: Chain) -> Result<Option<Head>, StoreError> {
    let row = db.opt("SELECT seq, hash, at FROM audit_heads WHERE org_id = $1", args![chain]).await?;
    row.as_ref().map(Head::from_row).transpose()
}

/// Entries that one statement deletes.
const PURGE_ROWS: i64 = 1_000;

/// Deletes a batch of the entries of a deleted organization; returns whether there may be more.
pub async fn purge(db: &Db, chain: Chain) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    let deleted = tx
        .exec(
            "DELETE FROM audit_entries WHERE org_id = $1 AND seq IN \
             (SELECT seq FROM audit_entries WHERE org_id = $1 ORDER BY seq LIMIT $2)",
            args![chain, PURGE_ROWS],
        )
        .await?;
    if deleted == 0 {
        tx.exec("DELETE FROM audit_checkpoints WHERE org_id = $1", args![chain]).await?;
        tx.exec("DELETE FROM audit_heads WHERE org_id = $1", args![chain]).await?;
    }
    tx.commit().await?;
    Ok(deleted > 0)
}
