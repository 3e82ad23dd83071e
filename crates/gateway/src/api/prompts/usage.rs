//! Usage and eval verdicts of a prompt by version: what a change of the prompt did.

use std::collections::BTreeMap;

use axum::extract::State;
use gateway_core::logs::LogSource;
use gateway_core::prompts::VersionSelector;
use gateway_core::query::{Field, Pattern, Query, Test};
use gateway_core::time::{DAY, Timestamp};
use gateway_core::totals::Totals;
use gateway_store::evals::{self, PromptScore};
use gateway_store::logs::{self, GroupField, LogSearch, UsageFilter};
use gateway_store::prompts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PromptPath;
use crate::api::caller::{AppState, Caller, Viewer};
use crate::api::extract::QueryParams;
use crate::api::response::Json;
use crate::api::usage::{Coverage, DEFAULT_DAYS, Sums, range, sums_of};
use crate::problem::{ApiResult, Problem};

/// Pairs of a version and an eval in one response.
const MAX_SCORES: i64 = 1_000;

#[derive(Deserialize, JsonSchema)]
pub(super) struct UsageParams {
    /// Start of the time range, inclusive. Default: the start of the day 29 days before `to`.
    from: Option<Timestamp>,
    /// End of the time range, exclusive. Default: now.
    to: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PromptUsage")]
pub(super) struct UsageView {
    /// Versions with proxied requests in the range, or with eval runs, newest first.
    versions: Vec<VersionUsage>,
    from: Timestamp,
    to: Timestamp,
    #[serde(flatten)]
    coverage: Coverage,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PromptVersionUsage")]
struct VersionUsage {
    version: i64,
    /// The labels that point to this version.
    labels: Vec<String>,
    #[serde(flatten)]
    sums: Sums,
    /// The verdicts of all runs whose target used this version, by eval; not limited to the range.
    evals: Vec<VersionScore>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PromptVersionScore")]
struct VersionScore {
    eval_id: i64,
    eval_name: String,
    runs: i64,
    passed: i64,
    failed: i64,
    /// The share of judged cases that passed; null if none was judged.
    pass_rate: Option<f64>,
}

impl From<PromptScore> for VersionScore {
    fn from(score: PromptScore) -> Self {
        let PromptScore { version: _, eval_id, eval_name, runs, passed, failed } = score;
        let judged = passed + failed;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let pass_rate = (judged > 0).then(|| passed as f64 / judged as f64);
        Self { eval_id, eval_name, runs, passed, failed, pass_rate }
    }
}

pub(super) async fn usage(
    State(app): AppState,
    caller: Caller<Viewer>,
    path: PromptPath,
    QueryParams(params): QueryParams<UsageParams>,
) -> ApiResult<Json<UsageView>> {
    let org = caller.org.id;
    let range = range(&app, params.from, params.to, DEFAULT_DAYS * DAY)?;
    let prompt = prompts::find(&app.services.db, org, path.name(), &VersionSelector::Latest).await?;
    let prompt = prompt.ok_or_else(Problem::not_found)?;
    let name = format!("{}/{}", path.namespace, path.slug);
    let filter = UsageFilter { key_id: caller.row_access().restrict(None), ..UsageFilter::default() };
    let mut search = LogSearch::with_usage_filter(Query::default(), &filter);
    for (field, value) in [(Field::Prompt, name.as_str()), (Field::Source, LogSource::Proxy.as_str())] {
        search.query.require(field, vec![Test::Text(Pattern::literal(value))]);
    }
    let group = GroupField { field: Field::PromptVersion, key: None };
    let stored = app.query_logs(org).await?;
    let found = logs::usage_matching(&stored, org, &search, (range.read, None, Some(group))).await?;
    let coverage = Coverage::new(found.scanned_to);

    let mut versions: BTreeMap<i64, (Totals, Vec<VersionScore>)> = BTreeMap::new();
    for usage in found.usage {
        let Some(version) = usage.group.as_deref().and_then(|version| version.parse().ok()) else { continue };
        versions.entry(version).or_default().0.add(&usage.totals);
    }
    for score in evals::prompt_scores(&app.services.db, org, &name, MAX_SCORES).await? {
        versions.entry(score.version).or_default().1.push(score.into());
    }
    let view = |(version, (totals, evals)): (i64, (Totals, Vec<VersionScore>))| {
        let labels = prompt.labels.iter().filter(|(_, of)| **of == version).map(|(label, _)| label.clone());
        let sums = sums_of(&totals, Some(&coverage));
        VersionUsage { version, labels: labels.collect(), sums, evals }
    };
    let versions = versions.into_iter().rev().map(view).collect();
    Ok(Json(UsageView { versions, from: range.requested.from, to: range.requested.to, coverage }))
}
