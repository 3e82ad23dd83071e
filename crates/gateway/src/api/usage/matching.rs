//! Usage of the rows that match a query, in the same split as usage without one.

use gateway_core::ids::OrgId;
use gateway_core::query::Field;
use gateway_core::time::{Interval, Timestamp};
use gateway_core::totals::Totals;
use gateway_store::logs::{
    self, GroupField, LogSearch, MatchingUsage, TimeRange, Usage, UsageFilter, UsageGroup, UsageQuery,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::Sums;
use crate::api::query;
use crate::app::App;
use crate::problem::ApiResult;

/// How much of the range was added up. Present with `query`, and by error.
#[derive(Serialize, JsonSchema)]
pub(in crate::api) struct Coverage {
    /// There were too many rows to add up: only those since `scanned_to` are.
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scanned_to: Option<Timestamp>,
}

impl Coverage {
    /// Of sums that were read back to `scanned_to`, or over the whole range.
    pub(in crate::api) fn new(scanned_to: Option<Timestamp>) -> Self {
        Self { partial: scanned_to.is_some(), scanned_to }
    }
}

/// What usage is grouped by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Roll-ups have the column.
    Rollup(UsageGroup),
    /// Only rows have it.
    Error,
    /// Only rows have it.
    Tool,
}

impl Group {
    fn rollup(self) -> Option<UsageGroup> {
        match self {
            Self::Rollup(group) => Some(group),
            Self::Error | Self::Tool => None,
        }
    }

    fn field(self) -> GroupField {
        let field = match self {
            Self::Rollup(UsageGroup::Provider) => Field::Provider,
            Self::Rollup(UsageGroup::Model) => Field::Model,
            Self::Rollup(UsageGroup::Key) => Field::Key,
            Self::Rollup(UsageGroup::App) => Field::App,
            Self::Rollup(UsageGroup::Team) => Field::Team,
            Self::Rollup(UsageGroup::User) => Field::User,
            Self::Rollup(UsageGroup::Status) => Field::Status,
            Self::Rollup(UsageGroup::Prompt) => Field::Prompt,
            Self::Error => Field::Error,
            Self::Tool => Field::Tool,
        };
        GroupField { field, key: None }
    }
}

/// How usage is split.
#[derive(Clone, Copy)]
pub(super) struct Split {
    pub range: TimeRange,
    pub interval: Option<Interval>,
    pub group: Option<Group>,
}

pub(super) struct Found {
    pub usage: Vec<Usage>,
    /// `None` if the roll-ups answered a filter without a query.
    pub coverage: Option<Coverage>,
}

pub(super) async fn find(
    app: &App,
    org: OrgId,
    query: Option<&str>,
    filter: &UsageFilter,
    split: Split,
) -> ApiResult<Found> {
    let Split { range, interval, group } = split;
    let query = query::parse(app, org, query).await?;
    let stored = app.query_logs(org).await?;
    if query.is_none() && !matches!(group, Some(Group::Error | Group::Tool)) {
        let group = group.and_then(Group::rollup);
        let query = UsageQuery { filter, range, interval, group };
        return Ok(Found { usage: logs::usage(&stored, org, &query).await?, coverage: None });
    }
    let search = LogSearch::with_usage_filter(query.unwrap_or_default(), filter);
    let split = (range, interval, group.map(Group::field));
    let MatchingUsage { usage, scanned_to } = logs::usage_matching(&stored, org, &search, split).await?;
    Ok(Found { usage, coverage: Some(Coverage::new(scanned_to)) })
}

/// Sums have more percentiles where rows were asked for.
pub(in crate::api) fn sums_of(totals: &Totals, coverage: Option<&Coverage>) -> Sums {
    if coverage.is_some() { Sums::of_query(totals) } else { totals.into() }
}
