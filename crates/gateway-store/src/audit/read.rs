//! Lists of entries, by their number.

use std::fmt::Write as _;

use gateway_core::audit::chain::{BadEntry, Flaw, Position, StoredEntry};
use gateway_core::audit::{Chain, Entry};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Arg, Row, args};
use crate::{Db, StoreError};

const COLUMNS: &str = "seq, id, at, actor_id, action, target_type, target_id, outcome, body, hash";

/// An entry with its hash.
#[derive(Clone, Debug)]
pub struct Stored {
    pub entry: Entry,
    pub hash: String,
}

impl Stored {
    fn from_row(row: &Row) -> Result<Self, StoreError> {
        Ok(Self { entry: row.json("body")?, hash: row.get("hash")? })
    }
}

/// The texts that one query reads, unless a single one is larger.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// Which entries a list contains.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub actor: Option<String>,
    /// A trailing `*` matches every action that begins so.
    pub action: Option<String>,
    pub target_type: Option<String>,
    pub target_id: Option<String>,
    pub outcome: Option<String>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Text that occurs anywhere in the entry.
    pub q: Option<String>,
    pub after_seq: Option<i64>,
}

impl Filter {
    /// Appends the conditions to a statement with its first arguments.
    fn apply(&self, sql: &mut String, args: &mut Vec<Arg>) {
        let mut add = |condition: &str, arg: Arg| {
            args.push(arg);
            sql.push_str(" AND ");
            sql.push_str(&condition.replace('?', &format!("${}", args.len())));
        };
        if let Some(action) = &self.action {
            match action.strip_suffix('*') {
                Some(prefix) => add("action LIKE ? ESCAPE '\\'", format!("{}%", escaped(prefix)).into()),
                None => add("action = ?", action.into()),
            }
        }
        for (condition, value) in [
            ("actor_id = ?", &self.actor),
            ("target_type = ?", &self.target_type),
            ("target_id = ?", &self.target_id),
            ("outcome = ?", &self.outcome),
        ] {
            if let Some(value) = value {
                add(condition, value.into());
            }
        }
        if let Some(from) = self.from {
            add("at >= ?", from.into());
        }
        if let Some(to) = self.to {
            add("at < ?", to.into());
        }
        if let Some(q) = &self.q {
            add("LOWER(body) LIKE ? ESCAPE '\\'", format!("%{}%", escaped(&q.to_lowercase())).into());
        }
        if let Some(after) = self.after_seq {
            add("seq > ?", after.into());
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

/// Newest first.
pub async fn list(db: &Db, chain: Chain, filter: &Filter, page: &Page) -> Result<Paged<Stored>, StoreError> {
    let mut sql = format!("SELECT {COLUMNS} FROM audit_entries WHERE org_id = $1");
    let mut args = args![chain];
    filter.apply(&mut sql, &mut args);
    if let Some(before) = page.number_cursor() {
        args.push(before.into());
        let _ = write!(sql, " AND seq < ${}", args.len());
    }
    args.push(page.fetch().into());
    let _ = write!(sql, " ORDER BY seq DESC LIMIT ${}", args.len());
    let rows = db.all(AssertSqlSafe(sql), args).await?;
    let rows = rows.iter().map(Stored::from_row).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(rows, |stored| stored.entry.seq.to_string()))
}

/// Entries in the order of the chain.
#[derive(Debug, Default)]
pub struct Entries {
    pub found: Vec<Stored>,
    /// The size of their texts.
    pub bytes: usize,
    /// There may be more in the requested range.
    pub has_more: bool,
}

/// Oldest first, after a number and up to another one. At most `limit`, and fewer if they are large.
pub async fn since(
    db: &Db,
    chain: Chain,
    filter: &Filter,
    (after, upto): (i64, i64),
    limit: i64,
) -> Result<Entries, StoreError> {
    let Some(end) = page_end(db, chain, filter, (after, upto), limit).await? else {
        return Ok(Entries::default());
    };
    let mut sql = format!("SELECT {COLUMNS} FROM audit_entries WHERE org_id = $1 AND seq > $2 AND seq <= $3");
    let mut args = args![chain, after, end.seq];
    filter.apply(&mut sql, &mut args);
    sql.push_str(" ORDER BY seq");
    let rows = db.all(AssertSqlSafe(sql), args).await?;
    let found = rows.iter().map(Stored::from_row).collect::<Result<_, _>>()?;
    Ok(Entries { found, bytes: end.bytes, has_more: end.has_more })
}

struct PageEnd {
    seq: i64,
    bytes: usize,
    has_more: bool,
}

/// Where a page ends that has at most `limit` entries and `MAX_PAGE_BYTES`, but at least one entry. `None` if there is no
/// entry. Only the sizes are read.
async fn page_end(
    db: &Db,
    chain: Chain,
    filter: &Filter,
    (after, upto): (i64, i64),
    limit: i64,
) -> Result<Option<PageEnd>, StoreError> {
    let mut sql = String::from(
        "SELECT seq, CAST(OCTET_LENGTH(body) AS BIGINT) AS size FROM audit_entries \
         WHERE org_id = $1 AND seq > $2 AND seq <= $3",
    );
    let mut args = args![chain, after, upto];
    filter.apply(&mut sql, &mut args);
    args.push(limit.into());
    let _ = write!(sql, " ORDER BY seq LIMIT ${}", args.len());
    let rows = db.all(AssertSqlSafe(sql), args).await?;
    let mut end: Option<PageEnd> = None;
    for row in &rows {
        let size = usize::try_from(row.get::<i64>("size")?).unwrap_or(usize::MAX);
        let bytes = end.as_ref().map_or(0, |end| end.bytes).saturating_add(size);
        if let Some(end) = end.as_mut().filter(|_| bytes > MAX_PAGE_BYTES) {
            end.has_more = true;
            break;
        }
        end = Some(PageEnd { seq: row.get("seq")?, bytes, has_more: false });
    }
    if let Some(end) = &mut end {
        end.has_more |= i64::try_from(rows.len()).is_ok_and(|count| count >= limit);
    }
    Ok(end)
}

pub async fn find(db: &Db, chain: Chain, id: &str) -> Result<Option<Stored>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM audit_entries WHERE org_id = $1 AND id = $2");
    let row = db.opt(AssertSqlSafe(sql), args![chain, id]).await?;
    row.as_ref().map(Stored::from_row).transpose()
}

/// The greatest number of an entry; 0 if there is none.
pub async fn last_seq(db: &Db, chain: Chain) -> Result<i64, StoreError> {
    let sql = "SELECT seq FROM audit_entries WHERE org_id = $1 ORDER BY seq DESC LIMIT 1";
    db.opt(sql, args![chain]).await?.map_or(Ok(0), |row| row.get("seq"))
}

/// The number of the first entry that was written at a time or later.
pub async fn first_since(db: &Db, chain: Chain, at: Timestamp) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT seq FROM audit_entries WHERE org_id = $1 AND at >= $2 ORDER BY seq LIMIT 1";
    db.opt(sql, args![chain, at]).await?.map(|row| row.get("seq")).transpose()
}

/// The position after an entry; `None` if the entry is missing.
pub async fn position(db: &Db, chain: Chain, seq: i64) -> Result<Option<Position>, StoreError> {
    let sql = "SELECT hash FROM audit_entries WHERE org_id = $1 AND seq = $2";
    let row = db.opt(sql, args![chain, seq]).await?;
    row.map(|row| Ok(Position { seq, hash: row.get("hash")? })).transpose()
}

/// Checks the entries after a position, at most `limit` and up to `upto`, and moves the position. Returns how many there
/// were, or the first bad one.
pub async fn verify_page(
    db: &Db,
    chain: Chain,
    position: &mut Position,
    upto: i64,
    limit: i64,
) -> Result<Result<i64, BadEntry>, StoreError> {
    let end = page_end(db, chain, &Filter::default(), (position.seq, upto), limit).await?;
    let Some(PageEnd { seq: upto, .. }) = end else { return Ok(Ok(0)) };
    let sql = format!(
        "SELECT {COLUMNS} FROM audit_entries WHERE org_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq"
    );
    let rows = db.all(AssertSqlSafe(sql), args![chain, position.seq, upto]).await?;
    let mut moved = position.clone();
    // Parsing and hashing a page takes milliseconds.
    let checking =
        tokio::task::spawn_blocking(move || check_rows(&rows, &mut moved).map(|found| (found, moved)));
    let (found, moved) = checking.await.unwrap_or_else(|error| Err(StoreError::Other(error.to_string())))?;
    *position = moved;
    Ok(found)
}

fn check_rows(rows: &[Row], position: &mut Position) -> Result<Result<i64, BadEntry>, StoreError> {
    for row in rows {
        let (seq, body, hash): (i64, String, String) = (row.get("seq")?, row.get("body")?, row.get("hash")?);
        let Ok(entry) = serde_json::from_str::<Entry>(&body) else {
            return Ok(Err(BadEntry { seq, why: Flaw::Hash }));
        };
        let stored =
            StoredEntry { seq, body: &body, body_seq: entry.seq, prev_hash: &entry.prev_hash, hash: &hash };
        if let Err(bad) = position.advance(stored) {
            return Ok(Err(bad));
        }
        if !repeats(row, &entry)? {
            return Ok(Err(BadEntry { seq, why: Flaw::Hash }));
        }
    }
    Ok(Ok(i64::try_from(rows.len()).unwrap_or(i64::MAX)))
}

/// Whether the columns say the same as the entry: lists are filtered by them.
fn repeats(row: &Row, entry: &Entry) -> Result<bool, StoreError> {
    Ok(row.get::<String>("id")? == entry.id.to_string()
        && row.get::<Timestamp>("at")? == entry.at
        && row.get::<Option<String>>("actor_id")? == entry.actor.id
        && row.get::<String>("action")? == entry.action
        && row.get::<String>("target_type")? == entry.target.kind
        && row.get::<Option<String>>("target_id")? == entry.target.id
        && row.get::<String>("outcome")? == entry.outcome.as_str())
}
