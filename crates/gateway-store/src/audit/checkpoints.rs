//! Signed checkpoints, the anchors that retention leaves, and the keys that sign them.

use gateway_core::audit::chain::Position;
use gateway_core::audit::checkpoint::{Checkpoint, SignedCheckpoint};
use gateway_core::audit::{Actor, Chain};
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;

use super::{Head, lock_head};
use crate::row::{Row, args};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

/// What a signed statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Checkpoint,
    /// Entries up to this one were removed by retention.
    Anchor,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Anchor => "anchor",
        }
    }
}

table! {
    /// A key that signs checkpoints.
    #[derive(Debug, Clone)]
    pub struct StoredKey in "audit_keys" {
        pub id: String [key],
        /// Base64 of the 32 bytes.
        pub public_key: String,
        pub sealed: String,
        pub created_at: Timestamp [once],
    }
}

/// Oldest first.
pub async fn keys(db: &Db) -> Result<Vec<StoredKey>, StoreError> {
    table::read_all(&db.all(StoredKey::select("1 = 1 ORDER BY created_at, id"), Vec::new()).await?)
}

/// Adds a key if there are still this many; returns whether it did.
pub async fn insert_key(db: &Db, key: &StoredKey, known: usize) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    // Callers wait for each other.
    lock_head(&mut tx, Chain::System, key.created_at, &mut Actor::SYSTEM.clone()).await?;
    let count = tx.all("SELECT id FROM audit_keys", Vec::new()).await?.len();
    if count != known {
        return Ok(false);
    }
    table::insert(&mut tx, key, vec![]).await?;
    tx.commit().await?;
    Ok(true)
}

/// Stores a signed statement; returns whether it is new.
pub async fn insert(tx: &mut Tx, kind: Kind, signed: &SignedCheckpoint) -> Result<bool, StoreError> {
    let Checkpoint { org_id, seq, hash, at } = &signed.checkpoint;
    let inserted = tx
        .exec(
            "INSERT INTO audit_checkpoints (org_id, kind, seq, hash, at, signature, key_id) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
            args![org_id, kind.as_str(), *seq, hash, *at, &signed.signature, &signed.key_id],
        )
        .await?;
    Ok(inserted == 1)
}

fn read(row: &Row) -> Result<SignedCheckpoint, StoreError> {
    let checkpoint = Checkpoint {
        org_id: row.get("org_id")?,
        seq: row.get("seq")?,
        hash: row.get("hash")?,
        at: row.get("at")?,
    };
    Ok(SignedCheckpoint { checkpoint, signature: row.get("signature")?, key_id: row.get("key_id")? })
}

/// The latest statement of a kind.
pub async fn latest(db: &Db, chain: Chain, kind: Kind) -> Result<Option<SignedCheckpoint>, StoreError> {
    let sql = "SELECT org_id, seq, hash, at, signature, key_id FROM audit_checkpoints \
               WHERE org_id = $1 AND kind = $2 ORDER BY seq DESC LIMIT 1";
    db.opt(sql, args![chain, kind.as_str()]).await?.as_ref().map(read).transpose()
}

/// Checkpoints after a number, oldest first.
pub async fn checkpoints_after(
    db: &Db,
    chain: Chain,
    after: i64,
    limit: i64,
) -> Result<Vec<SignedCheckpoint>, StoreError> {
    let sql = "SELECT org_id, seq, hash, at, signature, key_id FROM audit_checkpoints \
               WHERE org_id = $1 AND kind = 'checkpoint' AND seq > $2 ORDER BY seq LIMIT $3";
    db.all(sql, args![chain, after, limit]).await?.iter().map(read).collect()
}

/// The first checkpoint after a number whose entry is missing or has another hash.
pub async fn contradicted(db: &Db, chain: Chain, after: i64) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT c.seq FROM audit_checkpoints c \
               LEFT JOIN audit_entries e ON e.org_id = c.org_id AND e.seq = c.seq \
               WHERE c.org_id = $1 AND c.kind = 'checkpoint' AND c.seq > $2 \
               AND (e.hash IS NULL OR e.hash <> c.hash) ORDER BY c.seq LIMIT 1";
    db.opt(sql, args![chain, after]).await?.map(|row| row.get("seq")).transpose()
}

/// Where the chain begins: before its first entry, or after the last one that retention removed.
pub async fn start(db: &Db, chain: Chain) -> Result<Position, StoreError> {
    let anchor = latest(db, chain, Kind::Anchor).await?;
    Ok(anchor.map_or_else(
        || Position::start(&chain),
        |SignedCheckpoint { checkpoint, .. }| Position { seq: checkpoint.seq, hash: checkpoint.hash },
    ))
}

/// A chain with its head and its last checkpoint.
#[derive(Debug)]
pub struct ChainState {
    pub chain: Chain,
    pub head: Head,
    pub last: Option<(i64, Timestamp)>,
}

/// The chains after this one in the order of their names.
pub async fn states(db: &Db, after: &str, limit: i64) -> Result<Vec<ChainState>, StoreError> {
    let sql = "SELECT h.org_id, h.seq, h.hash, h.at, c.seq AS last_seq, c.at AS last_at FROM audit_heads h \
               LEFT JOIN audit_checkpoints c ON c.org_id = h.org_id AND c.kind = 'checkpoint' AND c.seq = \
               (SELECT MAX(seq) FROM audit_checkpoints m WHERE m.org_id = h.org_id AND m.kind = 'checkpoint') \
               WHERE h.org_id > $1 ORDER BY h.org_id LIMIT $2";
    let state = |row: &Row| {
        let name: String = row.get("org_id")?;
        let (seq, at): (Option<i64>, Option<Timestamp>) = (row.get("last_seq")?, row.get("last_at")?);
        Ok(ChainState {
            chain: name.parse::<OrgId>().map_or(Chain::System, Chain::Org),
            head: Head::from_row(row)?,
            last: seq.zip(at),
        })
    };
    db.all(sql, args![after, limit]).await?.iter().map(state).collect()
}

/// The last of the oldest entries that are all older than a time, but at most `limit` behind the anchor.
pub async fn removable(
    db: &Db,
    chain: Chain,
    (before, start): (Timestamp, i64),
    limit: i64,
) -> Result<Option<Position>, StoreError> {
    let sql = "SELECT seq FROM audit_entries WHERE org_id = $1 AND at >= $2 ORDER BY seq LIMIT 1";
    let kept: Option<i64> = db.opt(sql, args![chain, before]).await?.map(|row| row.get("seq")).transpose()?;
    let last = match kept {
        Some(kept) => kept - 1,
        None => match super::last_seq(db, chain).await? {
            // The entry about the last removal is the only one. Its removal would only leave another one.
            last if start > 0 && last == start + 1 => start,
            last => last,
        },
    };
    let upto = last.min(start + limit);
    if upto <= start { Ok(None) } else { super::position(db, chain, upto).await }
}

/// Removes the entries up to an anchor, and the checkpoints about them.
pub async fn remove(tx: &mut Tx, chain: Chain, upto: i64) -> Result<u64, StoreError> {
    for sql in [
        "DELETE FROM audit_checkpoints WHERE org_id = $1 AND kind = 'checkpoint' AND seq <= $2",
        "DELETE FROM audit_checkpoints WHERE org_id = $1 AND kind = 'anchor' AND seq < $2",
    ] {
        tx.exec(sql, args![chain, upto]).await?;
    }
    tx.exec("DELETE FROM audit_entries WHERE org_id = $1 AND seq <= $2", args![chain, upto]).await
}
