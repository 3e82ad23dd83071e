//! Which log rows a replay, a run of an eval or new cases are made of: exactly those with given ids, or the latest that
//! match a query and fit the purpose.

use std::fmt::Display;

use gateway_core::logs::{LogRow, LogSource};
use gateway_core::query::{Field, Pattern, Test};
use gateway_core::time::Timestamp;
use gateway_store::logs::{self, LogFilter, LogSearch, Sort};

use super::logs::wait_until_stored;
use super::query;
use crate::app::{App, LogQueries};
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};

/// Rows that one request can select.
pub(super) const MAX_ROWS: i64 = 1_000;
const DEFAULT_ROWS: i64 = 100;
/// Pages of log rows that are searched for rows that fit.
const MAX_PAGES: usize = 10;
/// Rows of a page at least, because some of them do not fit.
const MIN_PAGE: i64 = 200;

/// The latest rows that match.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    pub query: Option<&'a str>,
    /// Besides the query. The rows that the caller may not read are left out in any case.
    pub filter: LogFilter,
    /// Calls of the gateway itself have sources of their own.
    pub sources: &'a [LogSource],
    pub limit: Option<i64>,
}

/// The number of rows to select.
pub(super) fn checked_limit(limit: Option<i64>) -> ApiResult<i64> {
    match limit {
        None => Ok(DEFAULT_ROWS),
        Some(limit) if limit >= 1 => Ok(limit.min(MAX_ROWS)),
        Some(_) => Err(Problem::field("limit", "must be a whole number of at least 1")),
    }
}

/// Rows are given by their ids or by a query, not by both.
pub(super) fn check_one_way(log_ids: Option<&[i64]>, query: Option<&str>) -> ApiResult<()> {
    if log_ids.is_some() && query.is_some() {
        return Err(Problem::field("log_ids", "cannot be combined with query"));
    }
    Ok(())
}

/// The given ids, newest first and each of them once.
pub(super) fn checked_ids(ids: &[i64]) -> ApiResult<Vec<i64>> {
    if ids.is_empty() || ids.len() as u64 > MAX_ROWS.unsigned_abs() {
        return Err(Problem::field("log_ids", format!("must have 1 to {MAX_ROWS} ids")));
    }
    let mut ids = ids.to_vec();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids.dedup();
    Ok(ids)
}

pub(super) fn missing_row(id: i64) -> Problem {
    Problem::field("log_ids", format!("no log row {id} in this organization"))
}

/// What a selection found.
pub(super) struct Found<T> {
    pub rows: Vec<T>,
    /// Rows that match but do not fit.
    pub skipped: usize,
    first_reason: Option<String>,
    /// Set if rows before this time were not looked at.
    pub scanned_to: Option<Timestamp>,
}

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), skipped: 0, first_reason: None, scanned_to: None }
    }
}

impl<T> Found<T> {
    pub fn add(&mut self, row: Result<T, impl Display>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(reason) => {
                self.skipped += 1;
                self.first_reason.get_or_insert_with(|| reason.to_string());
            }
        }
    }

    /// An error of the field if there are no rows. `can_be` is what cannot be done with those that match.
    pub fn check_not_empty(&self, field: &str, can_be: &str) -> ApiResult<()> {
        if !self.rows.is_empty() {
            return Ok(());
        }
        let why = self.first_reason.as_ref().map_or_else(
            || "no row matches".to_owned(),
            |reason| format!("none of {} rows can be {can_be}: {reason}", self.skipped),
        );
        Err(Problem::field(field, why))
    }
}

/// Pages of the rows that match, newest first.
pub(super) struct MatchingRows<'a> {
    stored: LogQueries<'a>,
    caller: &'a Identity,
    search: LogSearch,
    limit: i64,
    pages_left: usize,
    cursor: Option<String>,
    scanned_to: Option<Timestamp>,
    oldest: Option<Timestamp>,
}

impl<'a> MatchingRows<'a> {
    pub async fn new(app: &'a App, caller: &'a Identity, wanted: Wanted<'_>) -> ApiResult<Self> {
        let (org, limit) = (caller.org.id, checked_limit(wanted.limit)?);
        let query = query::parse(app, org, wanted.query).await?.unwrap_or_default();
        let filter = LogFilter { key_id: caller.row_access().restrict(None), ..wanted.filter };
        let mut search = LogSearch::with_filter(query, &filter);
        let of_source = |source: &LogSource| Test::Text(Pattern::literal(source.as_str()));
        search.query.require(Field::Source, wanted.sources.iter().map(of_source).collect());
        wait_until_stored(app, org, search.query.has_text()).await;
        let stored = app.query_logs(org).await?;
        Ok(Self {
            stored,
            caller,
            search,
            limit,
            pages_left: MAX_PAGES,
            cursor: None,
            scanned_to: None,
            oldest: None,
        })
    }

    /// The number of rows that are wanted.
    pub fn max(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    pub fn stored(&self) -> &LogQueries<'a> {
        &self.stored
    }

    /// The next rows, without bodies. `None` after the last one, or when enough pages were read.
    pub async fn next(&mut self) -> ApiResult<Option<Vec<LogRow>>> {
        let is_first = self.pages_left == MAX_PAGES;
        if self.pages_left == 0 || !(is_first || self.cursor.is_some()) {
            return Ok(None);
        }
        self.pages_left -= 1;
        let page = (self.limit.max(MIN_PAGE), self.cursor.as_deref());
        let org = self.caller.org.id;
        let matching = logs::list_matching(&self.stored, org, &self.search, Sort::default(), page).await?;
        self.oldest = matching.entries.last().map(|entry| entry.row.created_at).or(self.oldest);
        self.scanned_to = matching.scanned_to;
        self.cursor = matching.next;
        Ok(Some(matching.entries.into_iter().map(|entry| entry.row).collect()))
    }

    /// The time before which no rows were looked at, though more were wanted than these.
    pub fn scanned_to(&self, found: usize) -> Option<Timestamp> {
        let is_unfinished = self.cursor.is_some() && found < self.max();
        self.scanned_to.or(self.oldest.filter(|_| is_unfinished))
    }

    /// The latest rows that fit.
    pub async fn first_that<E: Display>(
        mut self,
        check: impl Fn(&LogRow) -> Result<(), E>,
    ) -> ApiResult<Found<LogRow>> {
        let mut found = Found::default();
        while found.rows.len() < self.max()
            && let Some(page) = self.next().await?
        {
            for row in page {
                found.add(check(&row).map(|()| row));
            }
        }
        found.scanned_to = self.scanned_to(found.rows.len());
        found.rows.truncate(self.max());
        Ok(found)
    }
}
