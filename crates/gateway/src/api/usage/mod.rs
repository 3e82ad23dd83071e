//! Usage and cost: totals of a time range, time series, and breakdowns.

mod matching;
mod pauses;
mod prices;

use std::collections::HashMap;

use axum::extract::State;
use gateway_core::ids::OrgId;
use gateway_core::time::{DAY, HOUR, Interval, Timestamp};
use gateway_core::totals::{Totals, usd};
use gateway_store::logs::{self, TimeRange, UsageFilter, UsageGroup};
use gateway_store::names::{NamedResource, names_by_id};
use gateway_store::prompt_cache_pauses::{self, Pause};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::{AppState, RowReader};
use super::extract::QueryParams;
use super::logs::parse_id;
use super::openapi::Area;
use super::response::Json;
use crate::app::App;
use crate::auth::RowAccess;
use crate::problem::{ApiResult, Problem};
pub(super) use matching::{Coverage, sums_of};
use matching::{Found, Group, Split, find};
pub(super) use pauses::PauseView;

pub(super) const DEFAULT_DAYS: i64 = 30;
/// The longest range (in milliseconds) with buckets of a minute.
const MAX_MINUTE_RANGE: i64 = 6 * HOUR;
const MAX_BUCKETS: i64 = 10_000;
const MAX_BREAKDOWN_ROWS: usize = 1_000;

pub fn area() -> Area {
    Area::new("usage", "Usage and cost analytics. Times are UTC; the default range is the last 30 days.")
        .get("/usage/summary", summary, "Get requests, tokens, cost and latency of a time range")
        .get("/usage/timeseries", timeseries, "Get usage as a time series, including empty buckets")
        .get(
            "/usage/breakdown",
            breakdown,
            "Get usage by provider, model, key, team, application, user, prompt or error",
        )
        .get("/usage/prices", prices::prices, "List the prices that costs are calculated with")
}

/// Declares the parameters of a usage query. Query parameters are flat, so the common ones are repeated.
macro_rules! usage_params {
    ($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        #[derive(Deserialize, JsonSchema)]
        struct $name {
            provider: Option<String>,
            model: Option<String>,
            key_id: Option<String>,
            app_id: Option<String>,
            team_id: Option<String>,
            /// Start of the time range, inclusive. Default: the start of the day 29 days before `to`.
            from: Option<Timestamp>,
            /// End of the time range, exclusive. Default: now.
            to: Option<Timestamp>,
            /// A query such as `status:error model:gpt-4o* -source:api`, as in `GET /logs`; it must hold besides the other
            /// parameters.
            query: Option<String>,
            $($(#[$attribute])* $field: $type,)*
        }

        impl $name {
            fn filter(&self, access: RowAccess) -> ApiResult<UsageFilter> {
                Ok(UsageFilter {
                    provider: self.provider.clone(),
                    model: self.model.clone(),
                    key_id: access
                        .restrict(self.key_id.as_deref().map(|id| parse_id("key_id", id)).transpose()?),
                    app_id: self.app_id.as_deref().map(|id| parse_id("app_id", id)).transpose()?,
                    team_id: self.team_id.as_deref().map(|id| parse_id("team_id", id)).transpose()?,
                    user: None,
                    own: None,
                })
            }
        }
    };
}

usage_params!(SummaryParams {});
usage_params!(SeriesParams {
    /// Default: `day`. `minute` is allowed for ranges of up to 6 hours.
    interval: Option<IntervalName>,
    /// Adds `groups` to each bucket.
    by: Option<SeriesGroup>,
});
usage_params!(BreakdownParams {
    /// Default: `provider`.
    by: Option<BreakdownGroup>,
});

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum IntervalName {
    Minute,
    #[serde(alias = "hourly")]
    Hour,
    #[serde(alias = "daily")]
    Day,
    #[serde(alias = "weekly")]
    Week,
}

impl From<IntervalName> for Interval {
    fn from(name: IntervalName) -> Self {
        match name {
            IntervalName::Minute => Self::Minute,
            IntervalName::Hour => Self::Hour,
            IntervalName::Day => Self::Day,
            IntervalName::Week => Self::Week,
        }
    }
}

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum SeriesGroup {
    Provider,
    Model,
    Status,
}

#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum BreakdownGroup {
    Provider,
    Model,
    Key,
    Team,
    App,
    User,
    /// Requests with a prompt, by `namespace/slug`.
    Prompt,
    /// The error code.
    Error,
    /// Calls through MCP, by tool.
    Tool,
}

/// Sums over rows.
#[derive(Serialize, JsonSchema)]
pub(super) struct Sums {
    requests: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    total_tokens: i64,
    /// Cost of the requests with a price. Null if there are requests without a price and none with one.
    cost_usd: Option<f64>,
    errors: i64,
    cache_hits: i64,
    /// Input that providers read from their prompt caches.
    cached_tokens: i64,
    /// Input that providers wrote to their prompt caches.
    cache_write_tokens: i64,
    /// What the prompt caches saved: the reads at the difference between input and read price, less the writes at the
    /// difference between write and input price. Negative if more was written than read.
    cache_saved_usd: f64,
    /// Requests without a price: of a model that has none, or of an operation without a usage report, such as images,
    /// audio and batches. Their cost is not included.
    unpriced: i64,
    /// Accurate to 10 %; null without requests.
    p50_ms: Option<i64>,
    p95_ms: Option<i64>,
    /// Present with `query`.
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ms: Option<i64>,
}

impl Sums {
    /// The sums of a query have a third percentile.
    fn of_query(totals: &Totals) -> Self {
        Self { p99_ms: totals.latencies.percentile(0.99), ..totals.into() }
    }
}

impl From<&Totals> for Sums {
    fn from(totals: &Totals) -> Self {
        Self {
            requests: totals.requests,
            prompt_tokens: totals.prompt_tokens,
            completion_tokens: totals.completion_tokens,
            total_tokens: totals.total_tokens(),
            cost_usd: totals.cost_usd(),
            errors: totals.errors,
            cache_hits: totals.cache_hits,
            cached_tokens: totals.cached_tokens,
            cache_write_tokens: totals.cache_write_tokens,
            cache_saved_usd: usd(totals.cache_saved),
            unpriced: totals.unpriced,
            p50_ms: totals.latencies.percentile(0.5),
            p95_ms: totals.latencies.percentile(0.95),
            p99_ms: None,
        }
    }
}

/// The requested range, and the range that is read. Without an explicit end, the latter extends to the end of the day,
/// so that no partial hour has to be read row by row.
pub(super) struct Range {
    pub(super) requested: TimeRange,
    pub(super) read: TimeRange,
}

pub(super) fn range(
    app: &App,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    default_length: i64,
) -> ApiResult<Range> {
    let end = to.unwrap_or_else(|| app.services.clock.now());
    let from = from.unwrap_or_else(|| Interval::Day.start_of(end.plus(-(default_length - DAY))));
    if from >= end {
        return Err(Problem::field("from", "must be before to"));
    }
    let read_to = if to.is_some() { end } else { Interval::Day.start_of(end.plus(DAY)) };
    Ok(Range { requested: TimeRange { from, to: end }, read: TimeRange { from, to: read_to } })
}

#[derive(Serialize, JsonSchema)]
struct Summary {
    #[serde(flatten)]
    sums: Sums,
    from: Timestamp,
    to: Timestamp,
    /// Where prompt caching is paused because it lost money.
    prompt_cache_pauses: Vec<PauseView>,
    #[serde(flatten)]
    coverage: Option<Coverage>,
}

async fn summary(
    State(app): AppState,
    caller: RowReader,
    QueryParams(params): QueryParams<SummaryParams>,
) -> ApiResult<Json<Summary>> {
    let filter = params.filter(caller.row_access())?;
    let range = range(&app, params.from, params.to, DEFAULT_DAYS * DAY)?;
    let split = Split { range: range.read, interval: None, group: None };
    let Found { usage, coverage } =
        find(&app, caller.org.id, params.query.as_deref(), &filter, split).await?;
    let totals = usage.first().map(|usage| usage.totals.clone()).unwrap_or_default();
    let pauses = prompt_cache_pauses::list(&app.services.db, caller.org.id).await?.into_iter();
    let is_readable = |pause: &Pause| caller.row_access().includes(pause.key_id);
    Ok(Json(Summary {
        sums: sums_of(&totals, coverage.as_ref()),
        from: range.requested.from,
        to: range.requested.to,
        prompt_cache_pauses: pauses.filter(is_readable).map(Into::into).collect(),
        coverage,
    }))
}

#[derive(Serialize, JsonSchema)]
struct Series {
    interval: IntervalName,
    buckets: Vec<Bucket>,
    #[serde(flatten)]
    coverage: Option<Coverage>,
}

#[derive(Serialize, JsonSchema)]
struct Bucket {
    start: Timestamp,
    #[serde(flatten)]
    sums: Sums,
    /// Present if `by` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupSums>>,
}

#[derive(Serialize, JsonSchema)]
struct GroupSums {
    key: Option<String>,
    #[serde(flatten)]
    sums: Sums,
}

async fn timeseries(
    State(app): AppState,
    caller: RowReader,
    QueryParams(params): QueryParams<SeriesParams>,
) -> ApiResult<Json<Series>> {
    let filter = params.filter(caller.row_access())?;
    let name = params.interval.unwrap_or(IntervalName::Day);
    let interval = Interval::from(name);
    let default_length = match interval {
        Interval::Minute => HOUR,
        Interval::Hour => 2 * DAY,
        Interval::Day => DEFAULT_DAYS * DAY,
        Interval::Week => 12 * 7 * DAY,
    };
    let from = match (interval, params.from) {
        // The default range of an hour does not start at midnight.
        (Interval::Minute, None) => {
            Some(params.to.unwrap_or_else(|| app.services.clock.now()).plus(-default_length))
        }
        (_, from) => from,
    };
    let range = range(&app, from, params.to, default_length)?;
    check_interval(interval, range.requested)?;
    let read = if interval == Interval::Minute { range.requested } else { range.read };
    let group = params.by.map(|by| match by {
        SeriesGroup::Provider => Group::Rollup(UsageGroup::Provider),
        SeriesGroup::Model => Group::Rollup(UsageGroup::Model),
        SeriesGroup::Status => Group::Rollup(UsageGroup::Status),
    });
    let split = Split { range: read, interval: Some(interval), group };
    let Found { usage: found, coverage } =
        find(&app, caller.org.id, params.query.as_deref(), &filter, split).await?;
    let mut by_start: HashMap<Timestamp, Vec<logs::Usage>> = HashMap::new();
    for usage in found {
        by_start.entry(usage.start).or_default().push(usage);
    }
    Ok(Json(Series {
        interval: name,
        buckets: buckets(by_start, interval, range.requested, group.is_some()),
        coverage,
    }))
}

fn check_interval(interval: Interval, range: TimeRange) -> ApiResult<()> {
    let length = range.to.0 - range.from.0;
    if interval == Interval::Minute && length > MAX_MINUTE_RANGE {
        return Err(Problem::field("interval", "minute is allowed for ranges of up to 6 hours"));
    }
    if length / interval.length() > MAX_BUCKETS {
        return Err(Problem::field(
            "interval",
            format!("the range has more than {MAX_BUCKETS} intervals; choose a longer interval"),
        ));
    }
    Ok(())
}

/// All buckets of the range, including empty ones.
fn buckets(
    mut by_start: HashMap<Timestamp, Vec<logs::Usage>>,
    interval: Interval,
    range: TimeRange,
    with_groups: bool,
) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut start = interval.start_of(range.from);
    while start < range.to {
        let parts = by_start.remove(&start).unwrap_or_default();
        let mut totals = Totals::default();
        for part in &parts {
            totals.add(&part.totals);
        }
        let groups = || {
            parts
                .iter()
                .map(|part| GroupSums { key: part.group.clone(), sums: (&part.totals).into() })
                .collect()
        };
        buckets.push(Bucket { start, sums: (&totals).into(), groups: with_groups.then(groups) });
        start = start.plus(interval.length());
    }
    buckets
}

#[derive(Serialize, JsonSchema)]
struct Breakdown {
    by: BreakdownGroup,
    /// At most 1000 rows, the most expensive first.
    rows: Vec<BreakdownRow>,
    from: Timestamp,
    to: Timestamp,
    #[serde(flatten)]
    coverage: Option<Coverage>,
}

#[derive(Serialize, JsonSchema)]
struct BreakdownRow {
    /// Null for requests without one.
    key: Option<String>,
    name: String,
    #[serde(flatten)]
    sums: Sums,
}

async fn breakdown(
    State(app): AppState,
    caller: RowReader,
    QueryParams(params): QueryParams<BreakdownParams>,
) -> ApiResult<Json<Breakdown>> {
    let filter = params.filter(caller.row_access())?;
    let by = params.by.unwrap_or(BreakdownGroup::Provider);
    let range = range(&app, params.from, params.to, DEFAULT_DAYS * DAY)?;
    let org = caller.org.id;
    let (group, named) = match by {
        BreakdownGroup::Provider => (Group::Rollup(UsageGroup::Provider), None),
        BreakdownGroup::Model => (Group::Rollup(UsageGroup::Model), None),
        BreakdownGroup::Key => (Group::Rollup(UsageGroup::Key), Some(NamedResource::Keys)),
        BreakdownGroup::Team => (Group::Rollup(UsageGroup::Team), Some(NamedResource::Teams)),
        BreakdownGroup::App => (Group::Rollup(UsageGroup::App), Some(NamedResource::Apps)),
        BreakdownGroup::User => (Group::Rollup(UsageGroup::User), Some(NamedResource::Members)),
        BreakdownGroup::Prompt => (Group::Rollup(UsageGroup::Prompt), None),
        BreakdownGroup::Error => (Group::Error, None),
        BreakdownGroup::Tool => (Group::Tool, None),
    };
    let split = Split { range: range.read, interval: None, group: Some(group) };
    let Found { usage: mut found, coverage } =
        find(&app, org, params.query.as_deref(), &filter, split).await?;
    if group == Group::Tool {
        found.retain(|usage| usage.group.is_some());
    }
    found.sort_by(|a, b| {
        let weight = |usage: &logs::Usage| (usage.totals.cost, usage.totals.requests);
        weight(b).cmp(&weight(a)).then_with(|| a.group.cmp(&b.group))
    });
    found.truncate(MAX_BREAKDOWN_ROWS);
    let known = known_names(&app, org, named).await?;
    let rows = found.into_iter().map(|usage| row(usage, &known, coverage.as_ref())).collect();
    Ok(Json(Breakdown { by, rows, from: range.requested.from, to: range.requested.to, coverage }))
}

async fn known_names(
    app: &App,
    org: OrgId,
    named: Option<NamedResource>,
) -> ApiResult<HashMap<String, String>> {
    match named {
        None => Ok(HashMap::new()),
        Some(named) => Ok(names_by_id(&app.services.db, org, named).await?),
    }
}

/// A group without a name, such as a deleted key, is named by its id.
fn row(usage: logs::Usage, known: &HashMap<String, String>, coverage: Option<&Coverage>) -> BreakdownRow {
    let name = match &usage.group {
        None => "(none)".to_owned(),
        Some(key) => known.get(key).unwrap_or(key).clone(),
    };
    BreakdownRow { name, sums: sums_of(&usage.totals, coverage), key: usage.group }
}
