//! The full-text index of bodies. Indexing a row costs more than storing it, so under load it is deferred: rows are
//! stored at once and indexed later. Every entry also contains a word for its organization, so that a search never
//! reads the entries of others.

use std::sync::LazyLock;

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::search_terms::body_terms;
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, id_list, in_ids};
use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError, Tx};

static SQLITE: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO log_words (rowid, words)", "(?, ?)", ""));
static POSTGRES: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO log_words (id, words)",
        "(?, array_to_tsvector(string_to_array(?, ' ')))",
        "ON CONFLICT DO NOTHING",
    )
});
static DEFERRED: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::new("INSERT INTO log_unindexed (id)", "(?)", "ON CONFLICT DO NOTHING"));

/// Deferred rows that are looked through, and rows that are indexed, before a search.
const MAX_SCANNED: i64 = 10_000;
const MAX_BEFORE_SEARCH: i64 = 1_000;

/// Indexes up to `limit` deferred rows, newest first; returns how many. Call it until it returns less than `limit`.
pub async fn index_pending(logs: &Db, limit: i64) -> Result<usize, StoreError> {
    // Mostly there are none. Other writers must not wait for a low-priority thread to find that out.
    if logs.opt("SELECT 1 AS one FROM log_unindexed LIMIT 1", Vec::new()).await?.is_none() {
        return Ok(0);
    }
    let mut tx = logs.begin().await?;
    let lock = if tx.dialect() == Dialect::Postgres { " FOR UPDATE SKIP LOCKED" } else { "" };
    let sql = format!("SELECT id FROM log_unindexed ORDER BY id DESC LIMIT $1{lock}");
    let found = tx.all(AssertSqlSafe(sql), args![limit]).await?;
    if found.is_empty() {
        return Ok(0);
    }
    let ids = found.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?;
    index_rows(&mut tx, &ids).await?;
    tx.commit().await?;
    Ok(ids.len())
}

/// Indexes the newest deferred rows of an organization, so that a search finds the rows that a list has. Its work is
/// bounded: behind a large backlog the search finds the rows of `index_pending` later.
pub async fn index_pending_of(logs: &Db, org: OrgId) -> Result<usize, StoreError> {
    let newest = "SELECT u.id FROM log_unindexed u JOIN log_rows r ON r.id = u.id WHERE r.org_id = $1 \
                  AND u.id >= COALESCE((SELECT id FROM log_unindexed ORDER BY id DESC LIMIT 1 OFFSET $2), 0) \
                  ORDER BY u.id DESC LIMIT $3";
    let values = || args![org, MAX_SCANNED, MAX_BEFORE_SEARCH];
    if logs.all(newest, values()).await?.is_empty() {
        return Ok(0);
    }
    let mut tx = logs.begin().await?;
    // On PostgreSQL this waits for rows that are being indexed.
    let lock = if tx.dialect() == Dialect::Postgres { " FOR UPDATE OF u" } else { "" };
    let found = tx.all(AssertSqlSafe(format!("{newest}{lock}")), values()).await?;
    let ids = found.iter().map(|row| row.get("id")).collect::<Result<Vec<i64>, _>>()?;
    index_rows(&mut tx, &ids).await?;
    tx.commit().await?;
    Ok(ids.len())
}

async fn index_rows(tx: &mut Tx, ids: &[i64]) -> Result<(), StoreError> {
    let list = id_list(ids.iter().copied());
    let sql = format!(
        "SELECT b.id, r.org_id, r.response_is_stream, b.request, b.response FROM log_bodies b \
         JOIN log_rows r ON r.id = b.id WHERE {}",
        in_ids(tx.dialect(), "b.id", 1)
    );
    let mut entries = Vec::new();
    for row in tx.all(AssertSqlSafe(sql), args![list.as_str()]).await? {
        let (request, response): (Vec<u8>, Vec<u8>) = (row.get("request")?, row.get("response")?);
        let text = entry(row.get("org_id")?, &request, &response, row.get("response_is_stream")?);
        entries.push(args![row.get::<i64>("id")?, text]);
    }
    index(tx.dialect()).run(tx, entries.into_iter()).await?;
    let sql = format!("DELETE FROM log_unindexed WHERE {}", in_ids(tx.dialect(), "id", 1));
    tx.exec(AssertSqlSafe(sql), args![list]).await?;
    Ok(())
}

/// Inserts entries made by `entry_of`, each with the id of its row.
pub(super) async fn insert(tx: &mut Tx, entries: Vec<(i64, String)>) -> Result<(), StoreError> {
    index(tx.dialect()).run(tx, entries.into_iter().map(|(id, terms)| args![id, terms])).await
}

/// The index entry of a row.
pub(super) fn entry_of(row: &LogRow) -> String {
    entry(row.org_id, &row.request, &row.response, row.response_is_stream)
}

pub(super) async fn defer(tx: &mut Tx, ids: impl ExactSizeIterator<Item = i64>) -> Result<(), StoreError> {
    DEFERRED.run(tx, ids.map(|id| args![id])).await
}

/// The search expression for rows of the organization that contain all words. Words are letters and digits only, so
/// they cannot contain operators.
pub(super) fn search(dialect: Dialect, org: OrgId, words: &[String]) -> String {
    let all = words.iter().cloned().chain([org_word(org)]);
    match dialect {
        Dialect::Sqlite => all.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" AND "),
        Dialect::Postgres => all.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" & "),
    }
}

fn index(dialect: Dialect) -> &'static Bulk {
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

fn entry(org: OrgId, request: &[u8], response: &[u8], response_is_stream: bool) -> String {
    let mut words = body_terms(request, response, response_is_stream);
    // A leading space would be an empty word, which PostgreSQL rejects.
    if !words.is_empty() {
        words.push(' ');
    }
    words.push_str(&org_word(org));
    words
}

/// A search cannot contain this word: it is longer than the maximum length of a search word.
fn org_word(org: OrgId) -> String {
    format!("organization{0}{0}", org.0.simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_no_empty_words() {
        let org = "01900000-0000-7000-8000-000000000001".parse().unwrap();
        assert_eq!(entry(org, b"", b"{}", false), org_word(org));
        assert_eq!(entry(org, br#"{"a":"Hi you"}"#, b"{}", false), format!("hi you {}", org_word(org)));
    }
}
