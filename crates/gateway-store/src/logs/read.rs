//! Reads log rows: one by its id, or many by a filter, newest first.

mod decode;
mod search;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

use gateway_core::ids::{KeyId, OrgId};
use gateway_core::log_view::{LogDetail, LogView};
use gateway_core::logs::{LogLevel, LogRow, LogSource, first_log_id};
use gateway_core::search_terms::body_terms;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use self::decode::read;
pub(super) use self::decode::read as read_entry;
use super::bulk::{id_list, in_ids};
use super::columns::{COLUMNS, level_name};
use super::hour_index::HourIndex;
use super::own::OwnRows;
use super::{bodies, fulltext};
use crate::db::Dialect;
use crate::page::{Page, Paged};
use crate::row::{Arg, args};
use crate::{Db, StoreError};

/// A stored row. Lists leave its bodies empty.
#[derive(Debug, Clone)]
pub struct LogEntry {
    pub row: LogRow,
    pub preview: Option<String>,
}

impl From<LogEntry> for LogView {
    fn from(entry: LogEntry) -> Self {
        Self::new(&entry.row, entry.preview)
    }
}

impl From<LogEntry> for LogDetail {
    fn from(entry: LogEntry) -> Self {
        Self::new(&entry.row, entry.preview)
    }
}

/// Restricts a list of rows; all given conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    pub provider: Option<String>,
    pub model: Option<String>,
    pub level: Option<LogLevel>,
    /// Lowest and highest status.
    pub status: Option<(u16, u16)>,
    pub source: Option<LogSource>,
    pub key_id: Option<KeyId>,
    pub session_id: Option<String>,
    pub user: Option<String>,
    pub from: Option<Timestamp>,
    /// Exclusive.
    pub to: Option<Timestamp>,
    /// Search words that the bodies must contain.
    pub words: Vec<String>,
    /// Only rows with a greater id.
    pub after_id: Option<i64>,
    pub own: Option<OwnRows>,
}

impl LogFilter {
    /// Whether a row that is not stored yet matches. Its automatic session is not known yet.
    pub fn matches(&self, row: &LogRow) -> bool {
        let Self {
            provider,
            model,
            level,
            status,
            source,
            key_id,
            session_id,
            user,
            from,
            to,
            words,
            after_id,
            own,
        } = self;
        let equals = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == found)
        };
        equals(provider, Some(&row.provider))
            && equals(model, row.model.as_deref())
            && level.is_none_or(|level| level == row.level)
            && status.is_none_or(|(low, high)| (low..=high).contains(&row.status))
            && source.is_none_or(|source| source == row.source)
            && key_id.is_none_or(|key| Some(key) == row.key_id)
            && equals(session_id, row.session_id.as_deref())
            && equals(user, row.user.as_deref())
            && from.is_none_or(|from| row.id >= first_log_id(from))
            && to.is_none_or(|to| row.id < first_log_id(to))
            && after_id.is_none_or(|after| row.id > after)
            && own.as_ref().is_none_or(|own| own.includes(row))
            && (words.is_empty() || {
                let found = body_terms(&row.request, &row.response, row.response_is_stream);
                words.iter().all(|word| found.split(' ').any(|found| found == word))
            })
    }
}

/// Newest first.
pub async fn list(
    logs: &Db,
    org: OrgId,
    filter: &LogFilter,
    page: &Page,
) -> Result<Paged<LogEntry>, StoreError> {
    let before = page.before.as_deref().and_then(|id| id.parse::<i64>().ok());
    let entries = match HourIndex::new(logs, org, filter, before).await? {
        None => {
            let query = RowQuery { filter, before, ids: None, order: "DESC", limit: page.fetch() };
            fetch(logs, org, &query).await?
        }
        Some(hours) => {
            let query = RowQuery { filter, before, ids: None, order: "DESC", limit: page.fetch() };
            fetch_by_hours(logs, org, &query, hours).await?
        }
    };
    Ok(page.cut(entries, |entry| entry.row.id.to_string()))
}

/// The rows after the filter's `after_id`, oldest first, for live tails.
pub async fn list_after(
    logs: &Db,
    org: OrgId,
    filter: &LogFilter,
    limit: i64,
) -> Result<Vec<LogEntry>, StoreError> {
    fetch(logs, org, &RowQuery { filter, before: None, ids: None, order: "ASC", limit }).await
}

/// The rows with these ids that match, oldest first.
pub async fn list_these(
    logs: &Db,
    org: OrgId,
    filter: &LogFilter,
    ids: &[i64],
) -> Result<Vec<LogEntry>, StoreError> {
    let list = id_list(ids.iter().copied());
    let limit = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    fetch(logs, org, &RowQuery { filter, before: None, ids: Some(&list), order: "ASC", limit }).await
}

/// One row with its bodies.
pub async fn find(logs: &Db, org: OrgId, id: i64) -> Result<Option<LogEntry>, StoreError> {
    let columns = SELECT_LIST.as_str();
    let sql = format!("SELECT {columns} FROM log_rows r WHERE r.id = $2 AND r.org_id = $1");
    let Some(row) = logs.opt(AssertSqlSafe(sql), args![org, id]).await? else { return Ok(None) };
    let mut entry = read(&row)?;
    bodies::add_to(logs, std::slice::from_mut(&mut entry.row), std::slice::from_ref(&row)).await?;
    Ok(Some(entry))
}

/// The rows with these ids that still exist, ordered by id.
pub async fn find_many(
    logs: &Db,
    org: OrgId,
    ids: &[i64],
    with_bodies: bool,
) -> Result<Vec<LogRow>, StoreError> {
    let list = id_list(ids.iter().copied());
    let columns = SELECT_LIST.as_str();
    let these = in_ids(logs.dialect(), "r.id", 2);
    let sql = format!("SELECT {columns} FROM log_rows r WHERE r.org_id = $1 AND {these} ORDER BY r.id");
    let found = logs.all(AssertSqlSafe(sql), args![org, list.as_str()]).await?;
    let mut rows = found.iter().map(|row| read(row).map(|entry| entry.row)).collect::<Result<Vec<_>, _>>()?;
    if with_bodies {
        bodies::add_to(logs, &mut rows, &found).await?;
    }
    Ok(rows)
}

/// The sizes of the stored bodies of these rows in bytes, by id. Rows without bodies are left out.
pub async fn body_sizes(logs: &Db, ids: &[i64]) -> Result<HashMap<i64, i64>, StoreError> {
    let sql = format!(
        "SELECT r.id, {} AS size FROM log_rows r WHERE {}",
        bodies::SIZE,
        in_ids(logs.dialect(), "r.id", 1)
    );
    let rows = logs.all(AssertSqlSafe(sql), args![id_list(ids.iter().copied())]).await?;
    let mut sizes = HashMap::new();
    for row in rows {
        if let Some(size) = row.get("size")? {
            sizes.insert(row.get("id")?, size);
        }
    }
    Ok(sizes)
}

/// The ids among these that exist.
pub async fn existing_ids(
    logs: &Db,
    org: OrgId,
    made_by: Option<KeyId>,
    ids: &[i64],
) -> Result<HashSet<i64>, StoreError> {
    let sql = format!(
        "SELECT r.id FROM log_rows r WHERE r.org_id = $1 AND ($3 IS NULL OR r.key_id = $3) AND {}",
        in_ids(logs.dialect(), "r.id", 2)
    );
    let rows = logs.all(AssertSqlSafe(sql), args![org, id_list(ids.iter().copied()), made_by]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

pub(super) static SELECT_LIST: LazyLock<String> =
    LazyLock::new(|| COLUMNS.map(|column| format!("r.{column}")).join(", "));

/// The next rows of a filter.
#[derive(Clone, Copy)]
struct RowQuery<'a> {
    filter: &'a LogFilter,
    /// Only rows with a smaller id.
    before: Option<i64>,
    /// Only these rows, as a list made by `id_list`.
    ids: Option<&'a str>,
    /// `ASC` or `DESC`, by id.
    order: &'static str,
    limit: i64,
}

impl RowQuery<'_> {
    fn is_ascending(&self) -> bool {
        self.order == "ASC"
    }
}

async fn fetch_by_hours(
    logs: &Db,
    org: OrgId,
    query: &RowQuery<'_>,
    mut hours: HourIndex,
) -> Result<Vec<LogEntry>, StoreError> {
    let RowQuery { filter, before, ids, order, limit } = *query;
    let mut entries = Vec::new();
    loop {
        let ranges = hours.next(logs).await?;
        if ranges.is_empty() {
            return Ok(entries);
        }
        for (first, end) in ranges {
            let left = limit - i64::try_from(entries.len()).unwrap_or(limit);
            if left <= 0 {
                return Ok(entries);
            }
            let after = filter.after_id.map_or(first - 1, |after| after.max(first - 1));
            let within = LogFilter { after_id: Some(after), ..filter.clone() };
            let end = before.map_or(end, |before| before.min(end));
            let part = RowQuery { filter: &within, before: Some(end), ids, order, limit: left };
            entries.extend(fetch(logs, org, &part).await?);
        }
    }
}

async fn fetch(logs: &Db, org: OrgId, query: &RowQuery<'_>) -> Result<Vec<LogEntry>, StoreError> {
    if query.filter.words.is_empty() {
        select_rows(logs, org, query).await
    } else {
        search::fetch(logs, org, query).await
    }
}

/// The rows of a filter. With words, those that an earlier version has indexed.
async fn select_rows(logs: &Db, org: OrgId, query: &RowQuery<'_>) -> Result<Vec<LogEntry>, StoreError> {
    let RowQuery { filter, before, ids, order, limit } = *query;
    let LogFilter {
        provider,
        model,
        level,
        status,
        source,
        key_id,
        session_id,
        user,
        from,
        to,
        words: wanted,
        after_id,
        own,
    } = filter;
    let searching = !wanted.is_empty();
    let (mut sql, mut values) = select(logs.dialect(), org, wanted);
    // On SQLite the full-text index drives the search, so the bounds on the id apply to it.
    let id = if searching && logs.dialect() == Dialect::Sqlite { "log_words.rowid" } else { "r.id" };
    if let Some(ids) = ids {
        values.push(ids.into());
        let _ = write!(sql, " AND {}", in_ids(logs.dialect(), id, values.len()));
    }
    if let Some(own) = own {
        sql.push_str(&own.condition(logs.dialect(), "r", &mut values));
    }
    let mut narrow = |condition: &str, value: Arg| {
        values.push(value);
        sql.push_str(&condition.replace('?', &format!("${}", values.len())));
    };
    let mut bound = |operator: &str, value: Option<i64>| {
        if let Some(value) = value {
            narrow(&format!(" AND {id} {operator} ?"), value.into());
        }
    };
    bound("<", before);
    bound("<", to.map(first_log_id));
    bound(">=", from.map(first_log_id));
    bound(">", *after_id);
    for (column, value) in [
        ("r.provider", provider.clone().map(Arg::from)),
        ("r.model", model.clone().map(Arg::from)),
        ("r.level", level.map(|level| level_name(level).into())),
        ("r.source", source.map(|source| source.as_str().into())),
        ("r.key_id", key_id.map(Arg::from)),
        ("r.session_id", session_id.clone().map(Arg::from)),
        ("r.user_id", user.clone().map(Arg::from)),
    ] {
        if let Some(value) = value {
            narrow(&format!(" AND {column} = ?"), value);
        }
    }
    if let Some((low, high)) = status {
        narrow(" AND r.status >= ?", i64::from(*low).into());
        narrow(" AND r.status <= ?", i64::from(*high).into());
    }
    let is_failure =
        level.is_some_and(|level| level != LogLevel::Info) || status.is_some_and(|(low, _)| low >= 400);
    let hint = if is_failure { " AND (r.level <> 'info' OR r.status >= 400)" } else { "" };
    narrow(&format!("{hint} ORDER BY {id} {order} LIMIT ?"), limit.into());
    logs.all(AssertSqlSafe(sql), values).await?.iter().map(read).collect()
}

/// The statement up to the conditions on organization and words.
fn select(dialect: Dialect, org: OrgId, wanted: &[String]) -> (String, Vec<Arg>) {
    let columns = SELECT_LIST.as_str();
    if wanted.is_empty() {
        return (format!("SELECT {columns} FROM log_rows r WHERE r.org_id = $1"), args![org]);
    }
    let join = match dialect {
        // The index returns rows in order of id, so only the rows of the page are read.
        Dialect::Sqlite => {
            "log_words CROSS JOIN log_rows r ON r.id = log_words.rowid WHERE log_words MATCH $2"
        }
        Dialect::Postgres => {
            "log_rows r JOIN log_words w ON w.id = r.id WHERE w.words @@ CAST($2 AS TSQUERY)"
        }
    };
    let sql = format!("SELECT {columns} FROM {join} AND r.org_id = $1");
    (sql, args![org, fulltext::search(dialect, org, wanted)])
}
