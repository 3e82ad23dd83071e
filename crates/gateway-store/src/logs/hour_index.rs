//! Finds the hours that contain rows of a provider, model, key or status, from the roll-ups. A search for rare rows
//! then reads only those hours instead of every row of the organization.

use std::fmt::Write as _;

use gateway_core::ids::OrgId;
use gateway_core::logs::{first_log_id, log_id_time};
use gateway_core::time::{HOUR, Interval, Timestamp};
use sqlx::AssertSqlSafe;

use super::fold::OTHER;
use super::read::LogFilter;
use super::rollup::Cube;
use crate::row::{Arg, args};
use crate::{Db, StoreError};

/// Hours read by one query.
const PAGE_HOURS: i64 = 64;

/// Iterates over the hours that may contain rows of a filter, newest first.
pub(super) struct HourIndex {
    sql: String,
    values: Vec<Arg>,
    /// The next page has hours before this one.
    before: Timestamp,
}

impl HourIndex {
    /// None when the roll-ups do not have the filtered columns, or another index is more selective.
    pub(super) async fn new(
        logs: &Db,
        org: OrgId,
        filter: &LogFilter,
        before: Option<i64>,
    ) -> Result<Option<Self>, StoreError> {
        let LogFilter { provider, model, status, key_id, .. } = filter;
        let models = provider.is_some() || model.is_some();
        let keys = key_id.is_some();
        let has_better_index = filter.session_id.is_some()
            || filter.user.is_some()
            || !filter.words.is_empty()
            || filter.own.is_some();
        let cube = match (models, keys) {
            _ if has_better_index => return Ok(None),
            (false, false) => return Ok(None),
            (true, false) => Cube::Models,
            (false, true) => Cube::Keys,
            (true, true) => Cube::Whole,
        };
        let oldest = logs.opt("SELECT MIN(id) AS id FROM log_rows WHERE org_id = $1", args![org]).await?;
        let oldest: Option<i64> = oldest.map(|row| row.get("id")).transpose()?.flatten();
        let bounds = [oldest, filter.from.map(first_log_id), filter.after_id];
        let first = Interval::Hour.start_of(log_id_time(bounds.into_iter().flatten().max().unwrap_or(0)));
        let ends = [before, filter.to.map(first_log_id)];
        let end = ends.into_iter().flatten().min().map_or(Timestamp(i64::MAX), log_id_time);
        let mut values = args![org, first];
        let mut sql = format!(
            "SELECT DISTINCT u.at FROM usage_dims d JOIN usage_hours u ON u.dim_id = d.id AND u.at >= $2 \
             WHERE d.org_id = $1 AND d.cube = {}",
            cube.number()
        );
        let mut narrow = |condition: &str, value: Option<Arg>| {
            if let Some(value) = value {
                values.push(value);
                let _ = write!(sql, " AND {}", condition.replace('?', &format!("${}", values.len())));
            }
        };
        // What was folded may be in the hours of what is counted together.
        narrow(&format!("d.provider IN (?, '{OTHER}')"), provider.clone().map(Arg::from));
        narrow(&format!("d.model IN (?, '{OTHER}')"), model.clone().map(Arg::from));
        narrow("d.key_id = ?", key_id.map(Arg::from));
        narrow("d.status >= ?", status.map(|(low, _)| i64::from(low).into()));
        narrow("d.status <= ?", status.map(|(_, high)| i64::from(high).into()));
        Ok(Some(Self { sql, values, before: end }))
    }

    /// The hours of lines of a cube that match, with rows from the first id to before the end.
    pub(super) fn of_lines(
        org: OrgId,
        cube: Cube,
        (first, end): (i64, i64),
        conditions: impl FnOnce(&mut Vec<Arg>) -> String,
    ) -> Self {
        let mut values = args![org, Interval::Hour.start_of(log_id_time(first))];
        let conditions = conditions(&mut values);
        let sql = format!(
            "SELECT DISTINCT u.at FROM usage_dims d JOIN usage_hours u ON u.dim_id = d.id AND u.at >= $2 \
             WHERE d.org_id = $1 AND d.cube = {}{conditions}",
            cube.number()
        );
        Self {
            sql,
            values,
            before: if end == i64::MAX { Timestamp(i64::MAX) } else { log_id_time(end).plus(1) },
        }
    }

    /// The next ranges of ids, newest first, each with an exclusive end. Empty after the last one.
    pub(super) async fn next(&mut self, logs: &Db) -> Result<Vec<(i64, i64)>, StoreError> {
        let mut values = self.values.clone();
        values.extend(args![self.before, PAGE_HOURS]);
        let count = values.len();
        let sql = format!("{} AND u.at < ${} ORDER BY u.at DESC LIMIT ${count}", self.sql, count - 1);
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for row in logs.all(AssertSqlSafe(sql), values).await? {
            let at: Timestamp = row.get("at")?;
            self.before = at;
            let (first, end) = (first_log_id(at), first_log_id(at.plus(HOUR)));
            match ranges.last_mut() {
                Some((start, _)) if *start == end => *start = first,
                _ => ranges.push((first, end)),
            }
        }
        Ok(ranges)
    }
}
