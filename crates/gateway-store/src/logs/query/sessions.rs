//! Sessions with at least one row that matches a query, newest first.

use std::collections::HashSet;

use gateway_core::ids::OrgId;
use gateway_core::query::{Field, Pattern, Test};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::windows::{Window, Windows};
use super::{BY_SESSION, LogSearch, MAX_LIST_ROWS, Scope, within_time};
use crate::db::Dialect;
use crate::logs::sessions::{Session, SessionFilter, list};
use crate::page::{Page, Paged};
use crate::row::args;
use crate::{Db, StoreError};

/// Sessions that are looked at together, and for one page.
const SESSIONS: i64 = 200;
const MAX_SESSIONS: i64 = 4_000;

/// The sessions of a filter that have a row that matches. The second value is set if not all sessions were looked at:
/// only those that began since this time. The next page goes on there.
pub async fn list_sessions_matching(
    logs: &Db,
    org: OrgId,
    search: &LogSearch,
    filter: &SessionFilter,
    page: &Page,
) -> Result<(Paged<Session>, Option<Timestamp>), StoreError> {
    within_time(async {
        let mut found: Vec<Session> = Vec::new();
        let mut before = page.before.clone();
        let most = search.max_rows.map_or(MAX_SESSIONS, |rows| i64::try_from(rows).unwrap_or(MAX_SESSIONS));
        let mut looked_at = 0;
        loop {
            let part = Page { limit: SESSIONS.min(most), before: before.clone() };
            let sessions = list(logs, org, filter, &part).await?;
            looked_at += part.limit;
            let ids: Vec<&str> = sessions.rows.iter().map(|session| session.id.as_str()).collect();
            let matching = matching(Scope { logs, org, search }, &ids).await?;
            let last = sessions.rows.last().map(|session| session.started_at);
            found.extend(sessions.rows.into_iter().filter(|session| matching.contains(&session.id)));
            let paged = page.cut(std::mem::take(&mut found), |session| session.first_id.to_string());
            if paged.next.is_some() {
                return Ok((paged, None));
            }
            found = paged.rows;
            before = sessions.next;
            if before.is_none() {
                return Ok((Paged { rows: found, next: None }, None));
            }
            if looked_at >= most {
                return Ok((Paged { rows: found, next: before }, last));
            }
        }
    })
    .await
}

/// Those of the sessions that have a row that matches.
async fn matching(scope: Scope<'_>, sessions: &[&str]) -> Result<HashSet<String>, StoreError> {
    let (logs, dialect) = (scope.logs, scope.logs.dialect());
    let mut matching = HashSet::new();
    if sessions.is_empty() {
        return Ok(matching);
    }
    if scope.search.query.has_text() {
        let mut search = LogSearch { max_rows: None, ..scope.search.clone() };
        let any = sessions.iter().map(|id| Test::Text(Pattern::literal(id))).collect();
        search.query.require(Field::Session, any);
        let scope = Scope { search: &search, ..scope };
        let mut windows = Windows::new(scope, search.ids(), false, MAX_LIST_ROWS).await?;
        while let Some(window) = windows.next().await? {
            let (sql, values) = scope.select("DISTINCT r.session_id", &window, Vec::new());
            for row in logs.all(AssertSqlSafe(sql), values).await? {
                matching.insert(row.get("session_id")?);
            }
        }
        return Ok(matching);
    }
    let (first, end) = scope.search.ids();
    let list = serde_json::to_string(sessions).unwrap_or_default();
    let window = Window { first, end, only: None, without: None };
    let index = match dialect {
        Dialect::Sqlite => BY_SESSION,
        Dialect::Postgres => "",
    };
    let (row, values) = scope.select_by(index, "1", &window, args![list]);
    let these = dialect.in_texts("s.id", 1);
    // The rows of a session are found by their index, and the first one that matches is enough. With an offset PostgreSQL
    // does not make a join of it, which would begin with all rows that match.
    let sql = format!(
        "SELECT s.id FROM log_sessions s WHERE s.org_id = $2 AND {these} AND EXISTS \
         ({row} AND r.session_id = s.id LIMIT 1 OFFSET 0)"
    );
    for row in logs.all(AssertSqlSafe(sql), values).await? {
        matching.insert(row.get("id")?);
    }
    Ok(matching)
}
