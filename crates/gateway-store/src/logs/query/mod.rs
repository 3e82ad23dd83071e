//! Queries of the query language (`gateway_core::query`) on stored rows: pages in several orders, counts of values, usage
//! and sessions. Their answers are what `Query::matches` says about all rows.
//!
//! A query is planned as a source of windows of ids (`windows`): of an index that its terms allow (words, user, session,
//! failures, the hours of the roll-ups), or of all rows of the organization. Work is bounded by the rows that are looked
//! at. When a query needs more, its answer is partial and says how far it got.

mod conditions;
mod facets;
mod list;
mod sessions;
mod texts;
mod usage;
mod values;
mod windows;

use std::fmt::Write as _;

use gateway_core::ids::OrgId;
use gateway_core::logs::{first_log_id, log_id_time};
use gateway_core::query::{Comparison, Field, Pattern, Query, Test};
use gateway_core::time::Timestamp;

pub use facets::{Facet, FacetValue, Facets, GroupField, facets};
pub use list::{SearchPage, Sort, SortKey, list_matching, retain_matching};
pub use sessions::list_sessions_matching;
pub use usage::{MatchingUsage, usage_matching};
pub use values::{ValueQuery, field_values};

use self::conditions::{Conditions, Subject};
use self::windows::Window;
use super::bulk::in_ids;
use super::own::OwnRows;
use super::read::LogFilter;
use super::usage::UsageFilter;
use crate::db::{Dialect, STATEMENT_TIMEOUT};
use crate::row::{Arg, args};
use crate::{Db, StoreError};

/// Rows that a page of a list looks at, and rows that sums and counts look at.
const MAX_LIST_ROWS: usize = 100_000;
const MAX_SUM_ROWS: usize = 200_000;

/// Make SQLite use the index of sessions or of users.
const BY_SESSION: &str = " INDEXED BY log_rows_by_session";
const BY_USER: &str = " INDEXED BY log_rows_by_user";

/// The rows that are searched for. All conditions hold.
#[derive(Debug, Clone, Default)]
pub struct LogSearch {
    /// With names resolved to ids.
    pub query: Query,
    pub from: Option<Timestamp>,
    /// Exclusive.
    pub to: Option<Timestamp>,
    /// Only rows with a greater id.
    pub after_id: Option<i64>,
    pub own: Option<OwnRows>,
    /// Looks at no more rows than this, instead of the default.
    pub max_rows: Option<usize>,
}

impl LogSearch {
    /// A query, and the filters of a list beside it.
    pub fn with_filter(query: Query, filter: &LogFilter) -> Self {
        let mut search = Self {
            query,
            from: filter.from,
            to: filter.to,
            after_id: filter.after_id,
            own: filter.own.clone(),
            max_rows: None,
        };
        let LogFilter { provider, model, level, status, source, key_id, session_id, user, words, .. } =
            filter;
        let literals = [
            (Field::Provider, provider.clone()),
            (Field::Model, model.clone()),
            (Field::Level, level.map(|level| super::columns::level_name(level).to_owned())),
            (Field::Source, source.map(|source| source.as_str().to_owned())),
            (Field::Key, key_id.map(|id| id.to_string())),
            (Field::Session, session_id.clone()),
            (Field::User, user.clone()),
        ];
        search.require_each(literals);
        if let Some((low, high)) = status {
            search.query.require(Field::Status, vec![Test::Between((*low).into(), (*high).into())]);
        }
        if !words.is_empty() {
            search.query.require_words(&words.join(" "));
        }
        search
    }

    /// A query, and the filters of usage beside it.
    pub fn with_usage_filter(query: Query, filter: &UsageFilter) -> Self {
        let mut search = Self { query, ..Self::default() };
        let UsageFilter { provider, model, key_id, app_id, team_id, user, .. } = filter;
        search.require_each([
            (Field::Provider, provider.clone()),
            (Field::Model, model.clone()),
            (Field::Key, key_id.map(|id| id.to_string())),
            (Field::App, app_id.map(|id| id.to_string())),
            (Field::Team, team_id.map(|id| id.to_string())),
            (Field::User, user.clone()),
        ]);
        search
    }

    fn require_each(&mut self, literals: impl IntoIterator<Item = (Field, Option<String>)>) {
        for (field, value) in literals {
            if let Some(value) = value {
                self.query.require(field, vec![Test::Text(Pattern::literal(&value))]);
            }
        }
    }

    /// The ids of the rows: the first, and the end, which is excluded. Terms on time and id narrow them.
    fn ids(&self) -> (i64, i64) {
        let mut first =
            self.from.map_or(0, first_log_id).max(self.after_id.map_or(0, |id| id.saturating_add(1)));
        let mut end = self.to.map_or(i64::MAX, first_log_id);
        for (is_negated, condition) in self.query.fields() {
            let ([test], false) = (condition.tests.as_slice(), is_negated) else { continue };
            let at = |time: i64| match condition.field {
                Field::Time => Some(first_log_id(Timestamp(time))),
                Field::Id => Some(time),
                _ => None,
            };
            let (from, to) = match test {
                Test::Number(Comparison::Greater | Comparison::GreaterOrEqual, value) => (Some(*value), None),
                Test::Number(Comparison::Less, value) => (None, Some(*value)),
                Test::Number(Comparison::LessOrEqual, value) => (None, value.checked_add(1)),
                Test::Number(Comparison::Equal, value) => (Some(*value), value.checked_add(1)),
                Test::Between(from, to) => (Some(*from), to.checked_add(1)),
                Test::Text(_) | Test::Failed(_) => (None, None),
            };
            first = first.max(from.and_then(at).unwrap_or(first));
            end = end.min(to.and_then(at).unwrap_or(end));
        }
        (first, end)
    }
}

/// Where rows are searched.
#[derive(Clone, Copy)]
struct Scope<'a> {
    logs: &'a Db,
    org: OrgId,
    search: &'a LogSearch,
}

impl Scope<'_> {
    /// The start of a statement on the rows of a window that match: `WITH`, columns and conditions.
    fn select(&self, columns: &str, window: &Window, values: Vec<Arg>) -> (String, Vec<Arg>) {
        let index = match window.only {
            Some(_) => "",
            None => self.index(),
        };
        self.select_by(index, columns, window, values)
    }

    /// The same with a hint for the index that SQLite uses.
    fn select_by(&self, index: &str, columns: &str, window: &Window, values: Vec<Arg>) -> (String, Vec<Arg>) {
        let (mut values, dialect) = (values, self.logs.dialect());
        let bind = |values: &mut Vec<Arg>, value: Arg| {
            values.push(value);
            values.len()
        };
        let org = bind(&mut values, self.org.into());
        let first = bind(&mut values, window.first.into());
        let end = bind(&mut values, window.end.into());
        let mut sql = format!(
            "SELECT {columns} FROM log_rows r{index} WHERE r.org_id = ${org} AND r.id >= ${first} AND r.id < ${end}"
        );
        if windows::is_failure(&self.search.query) {
            sql.push_str(windows::FAILURES);
        }
        if let Some(own) = &self.search.own {
            sql.push_str(&own.condition(dialect, "r", &mut values));
        }
        let mut conditions = Conditions { dialect, subject: Subject::Rows, values: &mut values };
        sql.push_str(&conditions.all(&self.search.query));
        if let Some(ids) = &window.only {
            let ids = bind(&mut values, ids.as_str().into());
            let _ = write!(sql, " AND {}", in_ids(dialect, "r.id", ids));
        }
        if let Some(ids) = &window.without {
            let ids = bind(&mut values, ids.as_str().into());
            let _ = write!(sql, " AND NOT ({})", in_ids(dialect, "r.id", ids));
        }
        (sql, values)
    }

    /// The index of sessions or users if the query names some. SQLite has no statistics, and for a range of ids takes the
    /// index of the organization: it would read all rows of it.
    fn index(&self) -> &'static str {
        match (self.logs.dialect(), windows::indexed_field(&self.search.query)) {
            (Dialect::Sqlite, Some(Field::Session)) => BY_SESSION,
            (Dialect::Sqlite, Some(Field::User)) => BY_USER,
            _ => "",
        }
    }

    fn max_rows(&self, default: usize) -> usize {
        self.search.max_rows.unwrap_or(default)
    }
}

/// A query has many statements. Together they have the time of one.
async fn within_time<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let done = tokio::time::timeout(STATEMENT_TIMEOUT, work).await;
    done.map_err(|_| StoreError::Unavailable("the query takes too long: narrow its time range".into()))?
}

/// The expression of a field in `SELECT` or `GROUP BY`, with its parameters before all others.
fn expression(dialect: Dialect, field: &GroupField, values: &mut Vec<Arg>) -> String {
    let mut conditions = Conditions { dialect, subject: Subject::Rows, values };
    conditions.expression(field.field, field.key.as_deref())
}

/// The time up to which rows were looked at, newest first.
fn scanned_to(stopped_at: Option<i64>) -> Option<Timestamp> {
    stopped_at.map(log_id_time)
}

/// The oldest row of the organization.
async fn oldest_id(logs: &Db, org: OrgId) -> Result<Option<i64>, StoreError> {
    let row = logs.opt("SELECT MIN(id) AS id FROM log_rows WHERE org_id = $1", args![org]).await?;
    Ok(row.map(|row| row.get("id")).transpose()?.flatten())
}

#[cfg(test)]
mod tests {
    use gateway_core::query;
    use sqlx::AssertSqlSafe;

    use super::*;
    use crate::Part;

    async fn empty() -> (Db, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("gateway.db").display());
        let logs = Db::open(&url).await.unwrap().open_logs().await.unwrap();
        logs.migrate(Part::Logs, Timestamp(0)).await.unwrap();
        (logs, directory)
    }

    /// How SQLite reads the rows of a query.
    async fn plan(logs: &Db, text: &str) -> String {
        let search = LogSearch { query: query::parse(text).unwrap(), ..LogSearch::default() };
        let scope = Scope { logs, org: OrgId(uuid::Uuid::nil()), search: &search };
        let window = Window { first: 0, end: i64::MAX, only: None, without: None };
        let (sql, values) = scope.select("r.id, r.model", &window, Vec::new());
        let sql = format!("EXPLAIN QUERY PLAN {sql} ORDER BY r.id DESC LIMIT 51");
        let rows = logs.all(AssertSqlSafe(sql), values).await.unwrap();
        rows.iter().map(|row| row.get::<String>("detail").unwrap()).collect::<Vec<_>>().join("; ")
    }

    #[tokio::test]
    async fn rows_of_a_session_or_user_are_read_by_their_index() {
        let (logs, _directory) = empty().await;
        for (text, index) in [
            ("session:chat-1", "log_rows_by_session (org_id=? AND session_id=?"),
            ("session:chat-1,chat-2 status:error", "log_rows_by_session (org_id=? AND session_id=?"),
            ("user:maria -source:api", "log_rows_by_user (org_id=? AND user_id=?"),
            ("user:maria,ada", "log_rows_by_user (org_id=? AND user_id=?"),
            ("status:error", "log_rows_in_trouble (org_id=?"),
            ("-user:maria", "log_rows_by_org (org_id=?"),
            ("user:m*", "log_rows_by_org (org_id=?"),
        ] {
            let plan = plan(&logs, text).await;
            assert!(plan.contains(index), "{text}: {plan}");
        }
    }
}
