//! Pages of rows that match a query, by time, latency, cost or tokens.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use gateway_core::ids::OrgId;
use gateway_core::query::Query;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::texts::BODIES;
use super::windows::Windows;
use super::{LogSearch, MAX_LIST_ROWS, Scope, scanned_to, within_time};
use crate::logs::read::{LogEntry, LogFilter, SELECT_LIST, find_many, list_these, read_entry};
use crate::{Db, StoreError};

/// What a list is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortKey {
    #[default]
    Time,
    Latency,
    Cost,
    Tokens,
}

/// The order of a list. Rows of the same value are ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sort {
    pub key: SortKey,
    pub is_ascending: bool,
}

impl Sort {
    /// A row without the value comes after all others, or before them in ascending order.
    fn expression(self) -> &'static str {
        match self.key {
            SortKey::Time => "r.id",
            SortKey::Latency => "r.latency_ms",
            SortKey::Cost => "COALESCE(r.cost, -1)",
            SortKey::Tokens => "COALESCE(r.prompt_tokens + r.completion_tokens, -1)",
        }
    }

    fn direction(self) -> &'static str {
        if self.is_ascending { "ASC" } else { "DESC" }
    }
}

/// A page of rows that match.
#[derive(Debug)]
pub struct SearchPage {
    pub entries: Vec<LogEntry>,
    /// Where the next page begins.
    pub next: Option<String>,
    /// Set if not all rows were looked at: only those since this time (until it, in ascending order of time). By time,
    /// the next page goes on there.
    pub scanned_to: Option<Timestamp>,
}

/// The rows that match, `limit` of them, behind the cursor.
pub async fn list_matching(
    logs: &Db,
    org: OrgId,
    search: &LogSearch,
    sort: Sort,
    (limit, cursor): (i64, Option<&str>),
) -> Result<SearchPage, StoreError> {
    let scope = Scope { logs, org, search };
    let cursor = cursor.and_then(Cursor::parse);
    within_time(async {
        match sort.key {
            SortKey::Time => by_time(scope, sort, limit, cursor).await,
            _ => by_value(scope, sort, limit, cursor).await,
        }
    })
    .await
}

/// Where a page begins: behind the row with this value and id. Ordered by a value, the pages of a list are all of rows
/// with at least the id `first`.
#[derive(Clone, Copy)]
struct Cursor {
    value: i64,
    id: i64,
    first: i64,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse::<i64>);
        let mut next = || numbers.next()?.ok();
        let value = next()?;
        Some(Self { value, id: next().unwrap_or(value), first: next().unwrap_or(0) })
    }

    fn encode(self) -> String {
        format!("{}.{}.{}", self.value, self.id, self.first)
    }
}

async fn by_time(
    scope: Scope<'_>,
    sort: Sort,
    limit: i64,
    cursor: Option<Cursor>,
) -> Result<SearchPage, StoreError> {
    let (mut first, mut end) = scope.search.ids();
    match cursor {
        Some(cursor) if sort.is_ascending => first = first.max(cursor.id.saturating_add(1)),
        Some(cursor) => end = end.min(cursor.id),
        None => {}
    }
    let rows = scope.max_rows(MAX_LIST_ROWS);
    let mut windows = Windows::new(scope, (first, end), sort.is_ascending, rows).await?;
    let mut entries: Vec<LogEntry> = Vec::new();
    let wanted = usize::try_from(limit).unwrap_or(0);
    while entries.len() <= wanted
        && let Some(window) = windows.next().await?
    {
        let left = limit + 1 - i64::try_from(entries.len()).unwrap_or(0);
        let (sql, mut values) = scope.select(&SELECT_LIST, &window, Vec::new());
        values.push(left.into());
        let sql = format!("{sql} ORDER BY r.id {} LIMIT ${}", sort.direction(), values.len());
        for row in scope.logs.all(AssertSqlSafe(sql), values).await? {
            entries.push(read_entry(&row)?);
        }
    }
    if entries.len() > wanted {
        entries.truncate(wanted);
        let next = entries.last().map(|entry| entry.row.id.to_string());
        return Ok(SearchPage { entries, next, scanned_to: None });
    }
    // The next page begins with the id that was not looked at.
    let stopped = windows.stopped_at;
    let next = stopped.map(|id| if sort.is_ascending { id - 1 } else { id }.to_string());
    Ok(SearchPage { entries, next, scanned_to: scanned_to(stopped) })
}

async fn by_value(
    scope: Scope<'_>,
    sort: Sort,
    limit: i64,
    cursor: Option<Cursor>,
) -> Result<SearchPage, StoreError> {
    let (first, end) = scope.search.ids();
    let first = first.max(cursor.map_or(0, |cursor| cursor.first));
    // The pages after the first one look at the same rows, however many there are by now.
    let rows = if cursor.is_some_and(|cursor| cursor.first > 0) {
        2 * scope.max_rows(MAX_LIST_ROWS)
    } else {
        scope.max_rows(MAX_LIST_ROWS)
    };
    let mut windows = Windows::new(scope, (first, end), false, rows).await?;
    // Values and ids. Only the rows of the page are read as a whole.
    let mut found: Vec<(i64, i64)> = Vec::new();
    let wanted = usize::try_from(limit).unwrap_or(0);
    let (expression, direction) = (sort.expression(), sort.direction());
    let columns = format!("r.id, {expression} AS value");
    while let Some(window) = windows.next().await? {
        let (mut sql, mut values) = scope.select(&columns, &window, Vec::new());
        if let Some(Cursor { value, id, .. }) = cursor {
            values.extend([value.into(), id.into()]);
            let (value, id) = (values.len() - 1, values.len());
            let operator = if sort.is_ascending { ">" } else { "<" };
            let _ = write!(
                sql,
                " AND ({expression} {operator} ${value} OR ({expression} = ${value} AND r.id {operator} ${id}))"
            );
        }
        values.push((limit + 1).into());
        let sql =
            format!("{sql} ORDER BY {expression} {direction}, r.id {direction} LIMIT ${}", values.len());
        for row in scope.logs.all(AssertSqlSafe(sql), values).await? {
            found.push((row.get("value")?, row.get("id")?));
        }
        found.sort_unstable();
        if !sort.is_ascending {
            found.reverse();
        }
        found.truncate(wanted + 1);
    }
    let has_more = found.len() > wanted;
    found.truncate(wanted);
    let stopped = windows.stopped_at;
    let first = stopped.unwrap_or(cursor.map_or(0, |cursor| cursor.first));
    let last = found.last().filter(|_| has_more);
    let next = last.map(|(value, id)| Cursor { value: *value, id: *id, first }.encode());
    let scanned_to = scanned_to(stopped.or(Some(first).filter(|first| *first > 0)));
    let ids: Vec<i64> = found.into_iter().map(|(_, id)| id).collect();
    Ok(SearchPage { entries: in_order(scope, &ids).await?, next, scanned_to })
}

/// The rows with these ids, in the order of the ids.
async fn in_order(scope: Scope<'_>, ids: &[i64]) -> Result<Vec<LogEntry>, StoreError> {
    let found = list_these(scope.logs, scope.org, &LogFilter::default(), ids).await?;
    let mut by_id: HashMap<i64, LogEntry> = found.into_iter().map(|entry| (entry.row.id, entry)).collect();
    Ok(ids.iter().filter_map(|id| by_id.remove(id)).collect())
}

/// Those of the rows that match, for live tails. Reads their bodies if the query has words.
pub async fn retain_matching(
    logs: &Db,
    org: OrgId,
    query: &Query,
    mut entries: Vec<LogEntry>,
) -> Result<Vec<LogEntry>, StoreError> {
    if query.has_text() {
        let ids: Vec<i64> = entries.iter().map(|entry| entry.row.id).collect();
        let mut matching = HashSet::new();
        for part in ids.chunks(BODIES) {
            let rows = find_many(logs, org, part, true).await?;
            matching.extend(rows.iter().filter(|row| query.matches(row)).map(|row| row.id));
        }
        entries.retain(|entry| matching.contains(&entry.row.id));
    } else {
        entries.retain(|entry| query.matches(&entry.row));
    }
    Ok(entries)
}
