//! Usage queries over the roll-ups. Whole days are read from daily roll-ups, whole hours from hourly ones. Only partial
//! hours at the ends of the range are read from log rows, so only they depend on the retention of rows.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use gateway_core::ids::{AppId, KeyId, OrgId, TeamId};
use gateway_core::logs::{LOG_EPOCH, LOG_ID_LOW_BITS, first_log_id, log_id_time};
use gateway_core::time::{DAY, Interval, Timestamp};
use gateway_core::totals::{Latencies, Totals};
use sqlx::AssertSqlSafe;

use super::closed_days::sum_packed;
use super::own::OwnRows;
use super::rollup::{Cube, Grain};
use super::usage_plan::{UsageSource, smallest_cube, split_range};
use crate::db::Dialect;
use crate::row::{Arg, Row, args};
use crate::{Db, StoreError};

/// Restricts usage; all given conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct UsageFilter {
    pub provider: Option<String>,
    pub model: Option<String>,
    pub key_id: Option<KeyId>,
    pub app_id: Option<AppId>,
    pub team_id: Option<TeamId>,
    pub user: Option<String>,
    pub own: Option<OwnRows>,
}

/// The column that usage is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGroup {
    Provider,
    Model,
    Key,
    App,
    Team,
    User,
    Status,
    /// Includes only requests with a prompt.
    Prompt,
}

impl UsageGroup {
    fn column(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Model => "model",
            Self::Key => "key_id",
            Self::App => "app_id",
            Self::Team => "team_id",
            Self::User => "user_id",
            Self::Status => "status",
            Self::Prompt => "prompt",
        }
    }
}

/// From `from`, inclusive, to `to`, exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl TimeRange {
    /// A range that contains every log row.
    pub fn all_time() -> Self {
        Self { from: Timestamp(LOG_EPOCH.div_euclid(DAY) * DAY), to: Timestamp(LOG_EPOCH + 30_000 * DAY) }
    }
}

/// The usage of one bucket and one group. Without an interval there is one bucket, which starts with the range.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    pub start: Timestamp,
    /// None: rows without a value in the group's column.
    pub group: Option<String>,
    pub totals: Totals,
}

/// What to add up and how to split it.
#[derive(Debug, Clone, Copy)]
pub struct UsageQuery<'a> {
    pub filter: &'a UsageFilter,
    pub range: TimeRange,
    pub interval: Option<Interval>,
    pub group: Option<UsageGroup>,
}

/// Usage ordered by time and group. Buckets without rows are left out.
pub async fn usage(logs: &Db, org: OrgId, query: &UsageQuery<'_>) -> Result<Vec<Usage>, StoreError> {
    let UsageQuery { filter, range, interval, group } = *query;
    let cube = smallest_cube(filter, group);
    let bucket = |at: i64| interval.map_or(range.from.0, |interval| interval.start_of(Timestamp(at)).0);
    let mut sums: HashMap<Option<String>, BTreeMap<i64, Totals>> = HashMap::new();
    for (source, part) in split_range(range, interval, cube.hours()) {
        let part = UsageQuery { range: part, ..*query };
        let UsageSource::Rollup(grain) = source else {
            let (sql, values) = rows_statement(logs.dialect(), org, &part);
            for row in logs.all(AssertSqlSafe(sql), values).await? {
                let group = sums.entry(row.get("grp")?).or_default();
                group.entry(bucket(row.get("at")?)).or_default().add(&row_totals(&row)?);
            }
            continue;
        };
        let (sql, values) = rollup_statement(logs.dialect(), org, &part, (cube, grain));
        for row in logs.all(AssertSqlSafe(sql), values).await? {
            let Some(packed) = row.get::<Option<String>>("packed")? else { continue };
            let group = sums.entry(row.get("grp")?).or_default();
            match interval {
                None => {
                    let totals = group.entry(range.from.0).or_default();
                    for one in packed.split(';') {
                        totals.add_packed(one);
                    }
                }
                Some(_) => {
                    for one in packed.split(';') {
                        let start = bucket(Totals::packed_at(one).unwrap_or_default());
                        group.entry(start).or_default().add_packed(one);
                    }
                }
            }
        }
    }
    let mut usage: Vec<Usage> = sums
        .into_iter()
        .flat_map(|(group, buckets)| {
            buckets.into_iter().map(move |(start, totals)| Usage {
                start: Timestamp(start),
                group: group.clone(),
                totals,
            })
        })
        .collect();
    usage.sort_unstable_by(|a, b| (a.start, &a.group).cmp(&(b.start, &b.group)));
    Ok(usage)
}

/// All-time usage by provider, model and status, for metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelUsage {
    pub provider: String,
    pub model: Option<String>,
    pub status: i64,
    pub totals: Totals,
}

/// Reads the sum of closed days and the days behind it, not the whole history.
pub async fn usage_by_model_and_status(logs: &Db, org: OrgId) -> Result<Vec<ModelUsage>, StoreError> {
    let sql = format!(
        "SELECT d.provider, d.model, d.status, c.totals AS closed, \
         (SELECT string_agg(u.totals, ';') FROM usage_days u WHERE u.dim_id = d.id \
         AND u.at >= COALESCE(c.until, 0)) AS packed \
         FROM usage_dims d LEFT JOIN usage_closed c ON c.dim_id = d.id WHERE d.org_id = $1 AND d.cube = {} \
         ORDER BY d.provider, d.model, d.status",
        Cube::Models.number()
    );
    let mut all: Vec<ModelUsage> = Vec::new();
    for row in logs.all(AssertSqlSafe(sql), args![org]).await? {
        let totals = sum_packed(&[row.get("closed")?, row.get("packed")?]);
        let next = ModelUsage {
            provider: row.get("provider")?,
            model: row.get("model")?,
            status: row.get("status")?,
            totals,
        };
        match all.last_mut() {
            // The gateway's own calls have a line of their own.
            Some(last)
                if (&last.provider, &last.model, last.status)
                    == (&next.provider, &next.model, next.status) =>
            {
                last.totals.add(&next.totals);
            }
            _ => all.push(next),
        }
    }
    Ok(all)
}

/// When a user was first and last seen. Without log rows of that time, the first day is known but not the time of day.
pub async fn user_seen(
    logs: &Db,
    org: OrgId,
    user: &str,
) -> Result<Option<(Timestamp, Timestamp)>, StoreError> {
    let sql = format!(
        "SELECT MIN(u.at) AS first, MAX(u.at) AS last FROM usage_dims d JOIN usage_days u ON u.dim_id = d.id \
         WHERE d.org_id = $1 AND d.cube = {} AND d.user_id = $2",
        Cube::Users.number()
    );
    let days = logs.opt(AssertSqlSafe(sql), args![org, user]).await?;
    let rows = logs
        .opt(
            "SELECT MIN(id) AS first, MAX(id) AS last FROM log_rows WHERE org_id = $1 AND user_id = $2",
            args![org, user],
        )
        .await?;
    let bounds = |row: Option<Row>| -> Result<Option<(i64, i64)>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        Ok(row.get::<Option<i64>>("first")?.zip(row.get::<Option<i64>>("last")?))
    };
    let Some((first_day, last_day)) = bounds(days)? else { return Ok(None) };
    let Some((first, last)) = bounds(rows)? else {
        return Ok(Some((Timestamp(first_day), Timestamp(last_day))));
    };
    let first = log_id_time(first);
    let first = if first.0.div_euclid(DAY) * DAY > first_day { Timestamp(first_day) } else { first };
    Ok(Some((first, log_id_time(last))))
}

/// Sums over log rows; latencies are returned one by one. The conditions must equal those of `Totals::of`.
pub(super) const FROM_ROWS: &str = "COUNT(*) AS requests, CAST(SUM(COALESCE(u.prompt_tokens, 0)) AS BIGINT) AS prompt_tokens, \
    CAST(SUM(COALESCE(u.completion_tokens, 0)) AS BIGINT) AS completion_tokens, \
    CAST(SUM(COALESCE(u.cost, 0)) AS BIGINT) AS cost, COUNT(u.cost) AS priced, \
    CAST(SUM(u.unpriced) AS BIGINT) AS unpriced, \
    COUNT(CASE WHEN u.status >= 400 OR u.error_code IS NOT NULL THEN 1 END) AS errors, \
    COUNT(CASE WHEN lower(u.cache) = 'hit' THEN 1 END) AS cache_hits, \
    CAST(SUM(COALESCE(u.cached_tokens, 0)) AS BIGINT) AS cached_tokens, \
    CAST(SUM(COALESCE(u.cache_write_tokens, 0)) AS BIGINT) AS cache_write_tokens, \
    CAST(SUM(COALESCE(u.cache_saved, 0)) AS BIGINT) AS cache_saved, \
    string_agg(CAST(u.latency_ms AS TEXT), ',') AS latencies";

pub(super) fn row_totals(row: &Row) -> Result<Totals, StoreError> {
    let text: String = row.get("latencies")?;
    let mut latencies = Latencies::default();
    text.split(',').filter_map(|value| value.parse().ok()).for_each(|value| latencies.add(value));
    Ok(Totals {
        requests: row.get("requests")?,
        prompt_tokens: row.get("prompt_tokens")?,
        completion_tokens: row.get("completion_tokens")?,
        cost: row.get("cost")?,
        priced: row.get("priced")?,
        unpriced: row.get("unpriced")?,
        errors: row.get("errors")?,
        cache_hits: row.get("cache_hits")?,
        cached_tokens: row.get("cached_tokens")?,
        cache_write_tokens: row.get("cache_write_tokens")?,
        cache_saved: row.get("cache_saved")?,
        latencies,
    })
}

/// Returns one row for each combination of dimensions, with all its totals packed into one text.
fn rollup_statement(
    dialect: Dialect,
    org: OrgId,
    query: &UsageQuery<'_>,
    (cube, grain): (Cube, Grain),
) -> (String, Vec<Arg>) {
    let UsageQuery { filter, range, group, .. } = *query;
    let group = grouping("d", group);
    let mut values = args![org, range.from, range.to];
    let conditions = conditions(dialect, "d", filter, &mut values);
    let sql = format!(
        "SELECT {group} AS grp, (SELECT string_agg(u.totals, ';') FROM {} u \
         WHERE u.dim_id = d.id AND u.at >= $2 AND u.at < $3) AS packed \
         FROM usage_dims d WHERE d.org_id = $1 AND d.cube = {}{conditions}",
        grain.table(),
        cube.number(),
    );
    (sql, values)
}

fn rows_statement(dialect: Dialect, org: OrgId, query: &UsageQuery<'_>) -> (String, Vec<Arg>) {
    let UsageQuery { filter, range, interval, group } = *query;
    let at = match interval {
        None => format!("CAST({} AS BIGINT)", range.from.0),
        Some(interval) => {
            let (length, origin) = (interval.length(), interval.origin());
            let time = format!("(u.id >> {LOG_ID_LOW_BITS}) + {LOG_EPOCH}");
            format!("({time} - {origin}) / {length} * {length} + {origin}")
        }
    };
    let grouping = grouping("u", group);
    let mut values = args![org, first_log_id(range.from), first_log_id(range.to)];
    let mut conditions = conditions(dialect, "u", filter, &mut values);
    if group == Some(UsageGroup::Prompt) {
        conditions.push_str(" AND u.prompt IS NOT NULL");
    }
    let sql = format!(
        "SELECT {at} AS at, {grouping} AS grp, {FROM_ROWS} FROM log_rows u \
         WHERE u.org_id = $1 AND u.id >= $2 AND u.id < $3{conditions} GROUP BY 1, 2"
    );
    (sql, values)
}

fn grouping(table: &str, group: Option<UsageGroup>) -> String {
    group.map_or("CAST(NULL AS TEXT)".into(), |group| format!("CAST({table}.{} AS TEXT)", group.column()))
}

fn conditions(dialect: Dialect, table: &str, filter: &UsageFilter, values: &mut Vec<Arg>) -> String {
    let UsageFilter { provider, model, key_id, app_id, team_id, user, own } = filter;
    let mut sql = own.as_ref().map(|own| own.condition(dialect, table, values)).unwrap_or_default();
    for (column, value) in [
        ("provider", provider.clone().map(Arg::from)),
        ("model", model.clone().map(Arg::from)),
        ("key_id", key_id.map(Arg::from)),
        ("app_id", app_id.map(Arg::from)),
        ("team_id", team_id.map(Arg::from)),
        ("user_id", user.clone().map(Arg::from)),
    ] {
        if let Some(value) = value {
            values.push(value);
            let _ = write!(sql, " AND {table}.{column} = ${}", values.len());
        }
    }
    sql
}
