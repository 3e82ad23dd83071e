//! Sessions: requests with the same session id, or requests of the same caller that follow each other closely.

use std::collections::HashMap;
use std::sync::LazyLock;

use gateway_core::ids::{KeyId, OrgId};
use gateway_core::logs::{LogRow, first_log_id, log_id_time};
use gateway_core::time::{MINUTE, Timestamp};
use gateway_core::totals::{bounded_tokens, cost_units, digest, is_error, known_cost};
use rustc_hash::FxBuildHasher;
use serde_json::json;
use sqlx::AssertSqlSafe;

use super::bulk::{Bulk, id_list, in_ids};
use super::columns::{clean, cleaned};
use crate::db::Dialect;
use crate::page::{Page, Paged};
use crate::row::{Arg, List, args, json as json_arg};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

/// Requests of one caller at least this far apart belong to different sessions.
const GAP: i64 = 30 * MINUTE;
/// Distinct providers or models that a session lists.
const MAX_NAMES: usize = 50;

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Session in "log_sessions" {
        pub org_id: OrgId [key],
        pub id: String [key],
        pub first_id: i64,
        owner: Option<i64> [once],
        pub user: Option<String> = "user_id",
        pub started_at: Timestamp,
        pub last_seen_at: Timestamp,
        pub requests: i64,
        pub tokens: i64,
        cost: i64,
        priced: i64,
        unpriced: i64,
        pub errors: i64,
        pub providers: Vec<String> [json],
        pub models: Vec<String> [json],
    }
}

impl Session {
    fn begin(row: &LogRow, id: String, owner: Option<i64>) -> Self {
        let at = log_id_time(row.id);
        Self {
            org_id: row.org_id,
            id,
            first_id: row.id,
            owner,
            user: row.user.as_deref().map(clean),
            started_at: at,
            last_seen_at: at,
            requests: 0,
            tokens: 0,
            cost: 0,
            priced: 0,
            unpriced: 0,
            errors: 0,
            providers: Vec::new(),
            models: Vec::new(),
        }
    }

    fn add(&mut self, row: &LogRow) {
        let at = log_id_time(row.id);
        let tokens = row.tokens.unwrap_or_default();
        let cost = row.cost_usd.map(cost_units);
        self.first_id = self.first_id.min(row.id);
        self.started_at = self.started_at.min(at);
        self.last_seen_at = self.last_seen_at.max(at);
        self.requests += 1;
        for count in [tokens.prompt, tokens.completion] {
            self.tokens = self.tokens.saturating_add(bounded_tokens(count));
        }
        self.cost = self.cost.saturating_add(cost.unwrap_or(0));
        self.priced += i64::from(cost.is_some());
        self.unpriced += i64::from(row.unpriced);
        self.errors += i64::from(is_error(row));
        add_name(&mut self.providers, &row.provider);
        if let Some(model) = &row.model {
            add_name(&mut self.models, model);
        }
        if self.user.is_none() {
            self.user = row.user.as_deref().map(clean);
        }
    }

    pub fn cost_usd(&self) -> Option<f64> {
        known_cost(self.cost, self.priced, self.unpriced)
    }

    fn is_near(&self, at: Timestamp) -> bool {
        self.started_at.0 - GAP < at.0 && at.0 < self.last_seen_at.0 + GAP
    }
}

fn add_name(names: &mut Vec<String>, name: &str) {
    if names.len() < MAX_NAMES && !names.iter().any(|known| known == name) {
        names.push(clean(name));
    }
}

/// Finds or creates the session of each row and adds the row to it. The rows are ordered by id. Sessions are looked up
/// in the database, so that a restart between two requests changes nothing.
pub(super) async fn join(tx: &mut Tx, rows: &[&LogRow]) -> Result<Vec<String>, StoreError> {
    let mut cache = SessionCache::default();
    cache.fetch_named(tx, rows).await?;
    cache.fetch_automatic(tx, rows).await?;
    let ids = cache.add(rows);
    let touched = cache.sessions.iter().zip(&cache.touched).filter(|(_, touched)| **touched);
    let touched: Vec<&Session> = touched.map(|(session, _)| session).collect();
    UPSERT.run(tx, touched.into_iter().map(Session::values)).await?;
    Ok(ids)
}

/// The session that each row would join now. Another writer may change that until the caller holds the lock of usage.
/// The rows are ordered by id.
pub(super) async fn guess(tx: &mut Tx, rows: &[&LogRow]) -> Result<Vec<String>, StoreError> {
    let mut cache = SessionCache::default();
    cache.fetch_automatic(tx, rows).await?;
    // The id of a named session does not depend on what is stored.
    Ok(cache.add(rows))
}

/// Changes the session of rows that were stored with a wrong guess. PostgreSQL only.
pub(super) async fn correct(
    tx: &mut Tx,
    rows: &[&LogRow],
    (guessed, joined): (&[String], &[String]),
) -> Result<(), StoreError> {
    let wrong =
        rows.iter().zip(guessed.iter().zip(joined)).filter(|(_, (guessed, joined))| guessed != joined);
    let (ids, sessions): (Vec<_>, Vec<_>) =
        wrong.map(|(row, (_, joined))| (Some(row.id), Some(joined.clone()))).unzip();
    if ids.is_empty() {
        return Ok(());
    }
    // The second condition selects the partitions.
    let sql = "UPDATE log_rows r SET session_id = given.session \
               FROM UNNEST(CAST($1 AS BIGINT[]), CAST($2 AS TEXT[])) AS given(id, session) \
               WHERE r.id = given.id AND r.id = ANY(CAST($1 AS BIGINT[]))";
    tx.exec_lists(sql, vec![List::Int(ids), List::Text(sessions)]).await
}

/// The sessions that a batch may change.
#[derive(Default)]
struct SessionCache {
    sessions: Vec<Session>,
    touched: Vec<bool>,
    by_id: HashMap<OrgId, HashMap<String, usize>, FxBuildHasher>,
    by_owner: HashMap<i64, Vec<usize>>,
    owners: Owners,
}

/// The owners of a batch's rows, each hashed once.
#[derive(Default)]
struct Owners(HashMap<(OrgId, Option<KeyId>, Option<String>), i64, FxBuildHasher>);

impl Owners {
    /// The owner of an automatic session: a key, or without key a user. Each end user of a key is a separate owner.
    fn of(&mut self, row: &LogRow) -> i64 {
        *self.0.entry((row.org_id, row.key_id, row.user.clone())).or_insert_with(|| {
            let (org, key) = (row.org_id.to_string(), row.key_id.map(|key| key.to_string()));
            digest(&[Some(&org), key.as_deref(), row.user.as_deref()])
        })
    }
}

impl SessionCache {
    fn insert(&mut self, session: Session) -> usize {
        let at = self.sessions.len();
        if let Some(there) = self.named_at(session.org_id, &session.id) {
            return there;
        }
        self.by_id.entry(session.org_id).or_default().insert(session.id.clone(), at);
        if let Some(owner) = session.owner {
            self.by_owner.entry(owner).or_default().push(at);
        }
        self.sessions.push(session);
        self.touched.push(false);
        at
    }

    /// Adds each row to its session. Returns the ids of the sessions.
    fn add(&mut self, rows: &[&LogRow]) -> Vec<String> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            let at = match &row.session_id {
                Some(id) => self.named(row, &cleaned(id)),
                None => self.automatic(row),
            };
            self.sessions[at].add(row);
            self.touched[at] = true;
            ids.push(self.sessions[at].id.clone());
        }
        ids
    }

    fn named_at(&self, org: OrgId, id: &str) -> Option<usize> {
        self.by_id.get(&org)?.get(id).copied()
    }

    fn named(&mut self, row: &LogRow, id: &str) -> usize {
        match self.named_at(row.org_id, id) {
            Some(at) => at,
            None => self.insert(Session::begin(row, id.to_owned(), None)),
        }
    }

    /// The latest session of the same owner within the gap, or a new one with the id of its first row.
    fn automatic(&mut self, row: &LogRow) -> usize {
        let owner = self.owners.of(row);
        let at = log_id_time(row.id);
        let near = self.by_owner.get(&owner).into_iter().flatten().filter(|s| self.sessions[**s].is_near(at));
        match near.max_by_key(|s| self.sessions[**s].first_id) {
            Some(at) => *at,
            None => self.insert(Session::begin(row, format!("auto-{}", row.id), Some(owner))),
        }
    }

    async fn fetch_named(&mut self, tx: &mut Tx, rows: &[&LogRow]) -> Result<(), StoreError> {
        let mut pairs: Vec<(OrgId, &str)> =
            rows.iter().filter_map(|row| Some((row.org_id, row.session_id.as_deref()?))).collect();
        pairs.sort_unstable();
        pairs.dedup();
        if pairs.is_empty() {
            return Ok(());
        }
        let wanted = json!(pairs.iter().map(|(org, id)| [org.to_string(), clean(id)]).collect::<Vec<_>>());
        let list = match tx.dialect() {
            Dialect::Sqlite => "json_each($1) w",
            Dialect::Postgres => "json_array_elements(CAST($1 AS JSON)) AS w(value)",
        };
        let sql = format!(
            "SELECT {} FROM {list} JOIN log_sessions s ON s.org_id = w.value ->> 0 AND s.id = w.value ->> 1",
            Session::columns("s.")
        );
        for row in tx.all(AssertSqlSafe(sql), args![wanted.to_string()]).await? {
            self.insert(Session::from_row(&row)?);
        }
        Ok(())
    }

    async fn fetch_automatic(&mut self, tx: &mut Tx, rows: &[&LogRow]) -> Result<(), StoreError> {
        let automatic = || rows.iter().filter(|row| row.session_id.is_none());
        let mut owners: Vec<i64> = automatic().map(|row| self.owners.of(row)).collect();
        owners.sort_unstable();
        owners.dedup();
        let (Some(first), Some(last)) = (automatic().next(), automatic().next_back()) else { return Ok(()) };
        let (from, to) = (log_id_time(first.id).plus(-GAP), log_id_time(last.id).plus(GAP));
        let sql = format!(
            "SELECT {} FROM log_sessions s WHERE {} AND s.owner IS NOT NULL AND s.last_seen_at > $2 \
             AND s.started_at < $3",
            Session::columns("s."),
            in_ids(tx.dialect(), "s.owner", 1)
        );
        for row in tx.all(AssertSqlSafe(sql), args![id_list(owners), from, to]).await? {
            self.insert(Session::from_row(&row)?);
        }
        Ok(())
    }
}

static UPSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        &format!("INSERT INTO log_sessions ({})", Session::columns("")),
        "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        "ON CONFLICT (org_id, id) DO UPDATE SET first_id = excluded.first_id, user_id = excluded.user_id, \
         started_at = excluded.started_at, last_seen_at = excluded.last_seen_at, requests = excluded.requests, \
         tokens = excluded.tokens, cost = excluded.cost, priced = excluded.priced, unpriced = excluded.unpriced, \
         errors = excluded.errors, providers = excluded.providers, models = excluded.models",
    )
});

/// Restricts a list of sessions. A session is in a range of time when it overlaps it.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    pub user: Option<String>,
    pub provider: Option<String>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Only sessions whose rows were all made by this key.
    pub made_by: Option<KeyId>,
}

/// The condition that all rows of a session were made by a key. A session without rows may be anybody's.
const MADE_BY: &str = "EXISTS (SELECT 1 FROM log_rows r WHERE r.org_id = s.org_id AND r.session_id = s.id) \
    AND NOT EXISTS (SELECT 1 FROM log_rows r WHERE r.org_id = s.org_id AND r.session_id = s.id \
    AND (r.key_id IS NULL OR r.key_id <> ?))";

/// Ordered by first request, newest first.
pub async fn list(
    logs: &Db,
    org: OrgId,
    filter: &SessionFilter,
    page: &Page,
) -> Result<Paged<Session>, StoreError> {
    let before = page.before.as_deref().and_then(|id| id.parse::<i64>().ok());
    let position = match logs.dialect() {
        Dialect::Sqlite => "instr",
        Dialect::Postgres => "strpos",
    };
    let mut sql = format!("SELECT {} FROM log_sessions s WHERE s.org_id = $1", Session::columns("s."));
    let mut values = args![org];
    let mut narrow = |condition: String, value: Arg| {
        values.push(value);
        sql.push_str(&condition.replace('?', &format!("${}", values.len())));
    };
    if let Some(user) = &filter.user {
        narrow(" AND s.user_id = ?".into(), user.into());
    }
    if let Some(provider) = &filter.provider {
        narrow(format!(" AND {position}(s.providers, ?) > 0"), json_arg(provider));
    }
    if let Some(from) = filter.from {
        narrow(" AND s.last_seen_at >= ?".into(), from.into());
    }
    if let Some(to) = filter.to {
        narrow(" AND s.first_id < ?".into(), first_log_id(to).into());
    }
    if let Some(key) = filter.made_by {
        narrow(format!(" AND {MADE_BY}"), key.into());
    }
    if let Some(before) = before {
        narrow(" AND s.first_id < ?".into(), before.into());
    }
    narrow(" ORDER BY s.first_id DESC LIMIT ?".into(), page.fetch().into());
    let rows = logs.all(AssertSqlSafe(sql), values).await?;
    let sessions = table::read_all::<Session>(&rows)?;
    Ok(page.cut(sessions, |session| session.first_id.to_string()))
}

/// With `made_by`, only a session whose rows were all made by this key.
pub async fn find(
    logs: &Db,
    org: OrgId,
    id: &str,
    made_by: Option<KeyId>,
) -> Result<Option<Session>, StoreError> {
    let sql = format!(
        "SELECT {} FROM log_sessions s WHERE s.org_id = $1 AND s.id = $2 AND ($3 IS NULL OR ({}))",
        Session::columns("s."),
        MADE_BY.replace('?', "$3")
    );
    let row = logs.opt(AssertSqlSafe(sql), args![org, id, made_by]).await?;
    table::read_opt(row.as_ref())
}
