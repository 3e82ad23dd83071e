//! The full-text index of earlier versions, which is only read: its rows go when their retention ends. Rows whose words
//! an earlier version has put off are indexed in `words`.

use gateway_core::ids::OrgId;
use gateway_core::search_terms::TermHasher;
use gateway_core::word_runs::Run;
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use super::words;
use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError, Tx};

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
    let (mut rows, mut hasher) = (Vec::<(i64, OrgId, Vec<u64>)>::new(), TermHasher::default());
    for row in tx.all(AssertSqlSafe(sql), args![list.as_str()]).await? {
        let (request, response): (Vec<u8>, Vec<u8>) = (row.get("request")?, row.get("response")?);
        let terms = hasher.hashes(&request, &response, row.get("response_is_stream")?);
        rows.push((row.get("id")?, row.get("org_id")?, terms));
    }
    if let Some(run) = Run::of(rows.iter().map(|(id, org, terms)| (*id, *org, terms.as_slice()))) {
        words::add(tx, run).await?;
    }
    let sql = format!("DELETE FROM log_unindexed WHERE {}", in_ids(tx.dialect(), "id", 1));
    tx.exec(AssertSqlSafe(sql), args![list]).await?;
    Ok(())
}

/// Whether there are rows in the index.
pub(super) async fn is_used(logs: &Db) -> Result<bool, StoreError> {
    let sql = match logs.dialect() {
        Dialect::Sqlite => "SELECT rowid AS id FROM log_words LIMIT 1",
        Dialect::Postgres => "SELECT id FROM log_words LIMIT 1",
    };
    Ok(logs.opt(sql, Vec::new()).await?.is_some())
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

/// A search cannot contain this word: it is longer than the maximum length of a search word.
fn org_word(org: OrgId) -> String {
    format!("organization{0}{0}", org.0.simple())
}
