//! Rows that contain words: found by the search index, and among rows of earlier versions by theirs.

use gateway_core::ids::OrgId;
use gateway_core::logs::first_log_id;

use super::{LogEntry, LogFilter, RowQuery, select_rows};
use crate::db::STATEMENT_TIMEOUT;
use crate::logs::bulk::id_list;
use crate::logs::fulltext;
use crate::logs::words::{IdRange, WordSearch};
use crate::{Db, StoreError};

pub(super) async fn fetch(logs: &Db, org: OrgId, query: &RowQuery<'_>) -> Result<Vec<LogEntry>, StoreError> {
    let limit = usize::try_from(query.limit).unwrap_or(0);
    // A search has many statements. Together they have the time of one, so that a search for something frequent with a
    // filter that matches nothing ends as well.
    let indexed = tokio::time::timeout(STATEMENT_TIMEOUT, fetch_indexed(logs, org, query)).await;
    let mut entries = indexed
        .map_err(|_| StoreError::Unavailable("the search takes too long: narrow its time range".into()))??;
    if fulltext::is_used(logs).await? {
        entries.extend(select_rows(logs, org, query).await?);
        entries.sort_by_key(|entry| entry.row.id);
        if !query.is_ascending() {
            entries.reverse();
        }
        entries.truncate(limit);
    }
    Ok(entries)
}

async fn fetch_indexed(logs: &Db, org: OrgId, query: &RowQuery<'_>) -> Result<Vec<LogEntry>, StoreError> {
    let RowQuery { filter, before, ids: given, order, limit } = *query;
    let given: Option<Vec<i64>> =
        given.map(|list| list.split(',').filter_map(|id| id.parse().ok()).collect());
    let range = range_of(filter, before, given.as_deref());
    // The index has found the words, and the range applies to its ids.
    let rest = LogFilter { words: Vec::new(), ..filter.clone() };
    let mut search = WordSearch::new(logs, org, &filter.words, range, query.is_ascending()).await?;
    let mut entries: Vec<LogEntry> = Vec::new();
    loop {
        let mut found = search.next(logs).await?;
        if found.is_empty() {
            return Ok(entries);
        }
        if let Some(given) = &given {
            found.retain(|id| given.contains(id));
        }
        let left = limit - i64::try_from(entries.len()).unwrap_or(limit);
        let list = id_list(found);
        let part = RowQuery { filter: &rest, before: None, ids: Some(&list), order, limit: left };
        entries.extend(select_rows(logs, org, &part).await?);
        if i64::try_from(entries.len()).is_ok_and(|count| count >= limit) {
            return Ok(entries);
        }
    }
}

fn range_of(filter: &LogFilter, before: Option<i64>, given: Option<&[i64]>) -> IdRange {
    let given = given.unwrap_or_default();
    let lower = [
        filter.after_id,
        filter.from.map(|from| first_log_id(from) - 1),
        given.iter().min().map(|first| first - 1),
    ];
    let upper = [before, filter.to.map(first_log_id), given.iter().max().map(|last| last + 1)];
    IdRange {
        after: lower.into_iter().flatten().max().unwrap_or(i64::MIN),
        before: upper.into_iter().flatten().min().unwrap_or(i64::MAX),
    }
}
