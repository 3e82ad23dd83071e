//! Usage of the rows that match a query: from roll-ups if they have all columns, else from the rows.

use std::collections::{BTreeMap, HashMap};

use gateway_core::ids::OrgId;
use gateway_core::logs::{LOG_EPOCH, LOG_ID_LOW_BITS, first_log_id};
use gateway_core::query::{Field, Query};
use gateway_core::time::{Interval, Timestamp};
use gateway_core::totals::Totals;
use sqlx::AssertSqlSafe;

use super::conditions::{Conditions, Subject, dim_column, excludes_own_calls, is_in_dims};
use super::facets::GroupField;
use super::windows::Windows;
use super::{LogSearch, MAX_SUM_ROWS, Scope, expression, scanned_to, within_time};
use crate::logs::rollup::{Cube, Grain};
use crate::logs::usage::{FROM_ROWS, TimeRange, Usage, row_totals};
use crate::logs::usage_plan::{UsageSource, split_range};
use crate::row::args;
use crate::{Db, StoreError};

/// Usage ordered by time and group.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchingUsage {
    pub usage: Vec<Usage>,
    /// Set if only the rows since this time were added up.
    pub scanned_to: Option<Timestamp>,
}

type Sums = HashMap<Option<String>, BTreeMap<i64, Totals>>;

/// Adds up the rows of a range that match, by interval and by group. Groups by prompt have only rows with one.
pub async fn usage_matching(
    logs: &Db,
    org: OrgId,
    search: &LogSearch,
    (range, interval, group): (TimeRange, Option<Interval>, Option<GroupField>),
) -> Result<MatchingUsage, StoreError> {
    let split = Split { range, interval, group };
    within_time(async {
        let mut sums = Sums::default();
        let stopped = match rollup_cube(&search.query, split.group.as_ref().map(|group| group.field)) {
            None => add_rows(Scope { logs, org, search }, &split, range, &mut sums).await?,
            Some(cube) => {
                let mut stopped = None;
                for (source, part) in split_range(range, interval, cube.hours()) {
                    match source {
                        UsageSource::LogRows => {
                            let scope = Scope { logs, org, search };
                            stopped = add_rows(scope, &split, part, &mut sums).await?.or(stopped);
                        }
                        UsageSource::Rollup(grain) => {
                            let scope = Scope { logs, org, search };
                            add_rollups(scope, &split, (part, cube, grain), &mut sums).await?;
                        }
                    }
                }
                stopped
            }
        };
        Ok(MatchingUsage { usage: ordered(sums), scanned_to: scanned_to(stopped) })
    })
    .await
}

/// How usage is split.
struct Split {
    range: TimeRange,
    interval: Option<Interval>,
    group: Option<GroupField>,
}

impl Split {
    fn bucket(&self, at: i64) -> i64 {
        self.interval.map_or(self.range.from.0, |interval| interval.start_of(Timestamp(at)).0)
    }
}

/// The cube that has all columns of the query and the group. `None` if there is none.
pub(super) fn rollup_cube(query: &Query, group: Option<Field>) -> Option<Cube> {
    let mut terms = query.fields();
    let in_dims =
        |(is_negated, condition)| is_in_dims(condition) || excludes_own_calls(is_negated, condition);
    if query.has_text() || !terms.all(in_dims) {
        return None;
    }
    if group.is_some_and(|group| dim_column(group).is_none()) {
        return None;
    }
    let has = |fields: &[Field]| fields.iter().any(|field| group == Some(*field) || query.uses(*field));
    let (models, keys) = (has(&[Field::Provider, Field::Model]), has(&[Field::Key, Field::App, Field::Team]));
    let (users, statuses, prompts) = (has(&[Field::User]), has(&[Field::Status]), has(&[Field::Prompt]));
    // Rows without a prompt are in no line of that cube.
    let only_prompts = group == Some(Field::Prompt)
        || query.fields().any(|(is_negated, condition)| !is_negated && condition.field == Field::Prompt);
    match (prompts, users, models, keys) {
        (true, false, _, _) if !statuses && only_prompts => Some(Cube::Prompts),
        (true, _, _, _) => None,
        (_, true, _, _) if statuses => None,
        (_, true, false, false) => Some(Cube::Users),
        (_, true, _, _) => Some(Cube::UsersWhole),
        (_, false, false, false) => Some(Cube::All),
        (_, false, true, false) => Some(Cube::Models),
        (_, false, false, true) => Some(Cube::Keys),
        (_, false, true, true) => Some(Cube::Whole),
    }
}

async fn add_rollups(
    scope: Scope<'_>,
    split: &Split,
    (part, cube, grain): (TimeRange, Cube, Grain),
    sums: &mut Sums,
) -> Result<(), StoreError> {
    let group = split.group.as_ref().and_then(|group| dim_column(group.field));
    let group = group.map_or("CAST(NULL AS TEXT)".into(), |column| format!("CAST(d.{column} AS TEXT)"));
    let mut values = args![scope.org, part.from, part.to];
    let mut conditions =
        Conditions { dialect: scope.logs.dialect(), subject: Subject::Dims, values: &mut values };
    let conditions = conditions.all(&scope.search.query);
    let sql = format!(
        "SELECT {group} AS grp, (SELECT string_agg(u.totals, ';') FROM {} u \
         WHERE u.dim_id = d.id AND u.at >= $2 AND u.at < $3) AS packed \
         FROM usage_dims d WHERE d.org_id = $1 AND d.cube = {}{conditions}",
        grain.table(),
        cube.number(),
    );
    for row in scope.logs.all(AssertSqlSafe(sql), values).await? {
        let Some(packed) = row.get::<Option<String>>("packed")? else { continue };
        let group = sums.entry(row.get("grp")?).or_default();
        for one in packed.split(';') {
            let start = split.bucket(Totals::packed_at(one).unwrap_or_default());
            group.entry(start).or_default().add_packed(one);
        }
    }
    Ok(())
}

/// Returns where it stopped, if the rows were too many.
async fn add_rows(
    scope: Scope<'_>,
    split: &Split,
    part: TimeRange,
    sums: &mut Sums,
) -> Result<Option<i64>, StoreError> {
    let at = match split.interval {
        None => format!("CAST({} AS BIGINT)", split.range.from.0),
        Some(interval) => {
            let (length, origin) = (interval.length(), interval.origin());
            let time = format!("(r.id >> {LOG_ID_LOW_BITS}) + {LOG_EPOCH}");
            format!("({time} - {origin}) / {length} * {length} + {origin}")
        }
    };
    let sums_of_rows = FROM_ROWS.replace("u.", "r.");
    let (first, end) = scope.search.ids();
    let ids = (first.max(first_log_id(part.from)), end.min(first_log_id(part.to)));
    let mut windows = Windows::new(scope, ids, false, scope.max_rows(MAX_SUM_ROWS)).await?;
    while let Some(window) = windows.next().await? {
        let mut values = Vec::new();
        let group = match &split.group {
            None => "CAST(NULL AS TEXT)".into(),
            Some(group) => {
                format!("CAST({} AS TEXT)", expression(scope.logs.dialect(), group, &mut values))
            }
        };
        let columns = format!("{at} AS at, {group} AS grp, {sums_of_rows}");
        let (mut sql, values) = scope.select(&columns, &window, values);
        if split.group.as_ref().is_some_and(|group| group.field == Field::Prompt) {
            sql.push_str(" AND r.prompt IS NOT NULL");
        }
        sql.push_str(" GROUP BY 1, 2");
        for row in scope.logs.all(AssertSqlSafe(sql), values).await? {
            let group = sums.entry(row.get("grp")?).or_default();
            group.entry(split.bucket(row.get("at")?)).or_default().add(&row_totals(&row)?);
        }
    }
    Ok(windows.stopped_at)
}

fn ordered(sums: Sums) -> Vec<Usage> {
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
    usage
}
