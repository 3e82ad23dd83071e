//! How often the values of fields occur among the rows that match a query.

use std::collections::HashMap;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::logs::log_id_time;
use gateway_core::query::Field;
use gateway_core::time::{DAY, Timestamp};
use sqlx::AssertSqlSafe;

use super::usage::{MatchingUsage, rollup_cube, usage_matching};
use super::windows::Windows;
use super::{LogSearch, MAX_SUM_ROWS, Scope, expression, oldest_id, scanned_to, within_time};
use crate::logs::usage::TimeRange;
use crate::row::Row;
use crate::{Db, StoreError};

const ROLLUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A field by which rows are counted or grouped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupField {
    pub field: Field,
    /// The key of metadata.
    pub key: Option<String>,
}

/// The values of a field, the most frequent first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facet {
    pub field: GroupField,
    pub values: Vec<FacetValue>,
    /// Values that are not listed, and the rows that have them.
    pub other_values: i64,
    pub other_rows: i64,
    /// Rows without a value.
    pub missing: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FacetValue {
    pub value: String,
    pub rows: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facets {
    /// How many rows match.
    pub rows: i64,
    pub facets: Vec<Facet>,
    /// Set if only the rows since this time were counted.
    pub scanned_to: Option<Timestamp>,
}

/// Rows by value; `None` are rows without one.
type Counts = HashMap<Option<String>, i64>;

/// Counts the values of fields, at most `limit` of each. Where the rows are too many to count, roll-ups are read if they
/// have all columns; they include rows beyond a quota, which are not stored.
pub async fn facets(
    logs: &Db,
    org: OrgId,
    search: &LogSearch,
    fields: &[GroupField],
    limit: usize,
) -> Result<Facets, StoreError> {
    let scope = Scope { logs, org, search };
    within_time(async {
        let (counts, rows, stopped) = count(scope, fields).await?;
        let has_rollups =
            || fields.iter().all(|field| rollup_cube(&search.query, Some(field.field)).is_some());
        if stopped.is_some() && has_rollups() && !search.query.uses(Field::Prompt) {
            // Where a part of an hour or a day has too many rows, what was counted is the answer.
            let found = tokio::time::timeout(ROLLUP_TIMEOUT, from_rollups(scope, fields, limit)).await;
            if let Ok(found) = found {
                return found;
            }
        }
        let facets = fields.iter().zip(counts).map(|(field, counts)| facet(field, counts, limit)).collect();
        Ok(Facets { rows, facets, scanned_to: scanned_to(stopped) })
    })
    .await
}

async fn count(
    scope: Scope<'_>,
    fields: &[GroupField],
) -> Result<(Vec<Counts>, i64, Option<i64>), StoreError> {
    let mut counts: Vec<Counts> = vec![Counts::default(); fields.len()];
    let mut rows = 0;
    let mut windows = Windows::new(scope, scope.search.ids(), false, scope.max_rows(MAX_SUM_ROWS)).await?;
    while let Some(window) = windows.next().await? {
        let mut values = Vec::new();
        let columns: Vec<String> = fields
            .iter()
            .enumerate()
            .map(|(at, field)| {
                let expression = expression(scope.logs.dialect(), field, &mut values);
                format!("CAST({expression} AS TEXT) AS c{at}")
            })
            .chain(["r.id".to_owned()])
            .collect();
        let (matching, values) = scope.select(&columns.join(", "), &window, values);
        let counted = (0..fields.len()).map(|at| {
            format!("SELECT CAST({at} AS BIGINT) AS facet, m.c{at} AS value, COUNT(*) AS count FROM m GROUP BY m.c{at}")
        });
        let all = "SELECT CAST(-1 AS BIGINT) AS facet, CAST(NULL AS TEXT) AS value, COUNT(*) AS count FROM m"
            .to_owned();
        let counted: Vec<String> = [all].into_iter().chain(counted).collect();
        let sql = format!("WITH m AS MATERIALIZED ({matching}) {}", counted.join(" UNION ALL "));
        for row in scope.logs.all(AssertSqlSafe(sql), values).await? {
            let count: i64 = row.get("count")?;
            match facet_number(&row)? {
                None => rows += count,
                Some(facet) => {
                    if let Some(counts) = counts.get_mut(facet) {
                        *counts.entry(row.get("value")?).or_default() += count;
                    }
                }
            }
        }
    }
    Ok((counts, rows, windows.stopped_at))
}

/// `None` is the number of all rows.
fn facet_number(row: &Row) -> Result<Option<usize>, StoreError> {
    Ok(usize::try_from(row.get::<i64>("facet")?).ok())
}

fn facet(field: &GroupField, mut counts: Counts, limit: usize) -> Facet {
    let missing = counts.remove(&None).unwrap_or(0);
    let mut values: Vec<FacetValue> =
        counts.into_iter().filter_map(|(value, rows)| Some(FacetValue { value: value?, rows })).collect();
    values.sort_unstable_by(|a, b| b.rows.cmp(&a.rows).then_with(|| a.value.cmp(&b.value)));
    let others = values.split_off(limit.min(values.len()));
    Facet {
        field: field.clone(),
        values,
        other_values: i64::try_from(others.len()).unwrap_or(i64::MAX),
        other_rows: others.iter().map(|value| value.rows).sum(),
        missing,
    }
}

async fn from_rollups(scope: Scope<'_>, fields: &[GroupField], limit: usize) -> Result<Facets, StoreError> {
    let Scope { logs, org, search } = scope;
    // Roll-ups are kept for longer than rows.
    let oldest = oldest_id(logs, org).await?.unwrap_or(0);
    let (first, end) = search.ids();
    // The whole day of the oldest row: no other rows of it are stored.
    let start_of_day = |at: Timestamp| Timestamp(at.0 - at.0.rem_euclid(DAY));
    let first = if first > oldest { log_id_time(first) } else { start_of_day(log_id_time(oldest)) };
    let to = if end == i64::MAX { TimeRange::all_time().to } else { log_id_time(end) };
    let range = TimeRange { from: first, to };
    let (mut facets, mut rows) = (Vec::new(), 0);
    for field in fields {
        let MatchingUsage { usage, .. } =
            usage_matching(logs, org, search, (range, None, Some(field.clone()))).await?;
        let counts: Counts = usage.into_iter().map(|usage| (usage.group, usage.totals.requests)).collect();
        rows = counts.values().sum();
        facets.push(facet(field, counts, limit));
    }
    Ok(Facets { rows, facets, scanned_to: None })
}
