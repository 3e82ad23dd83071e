//! Replays and estimates in responses.

use std::collections::HashMap;

use gateway_core::evaluators::EvaluatorKind;
use gateway_core::replays::{ReplayTarget, SideTotals};
use gateway_core::statuses::RunStatus;
use gateway_core::time::Timestamp;
use gateway_core::totals::usd;
use gateway_store::replays::{EvalScores, Replay};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::selection::Selection;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayEstimate")]
pub(super) struct EstimateView {
    /// Rows that would be replayed.
    rows: i64,
    /// Their ids, newest first. Start the replay with them to get exactly these.
    log_ids: Vec<i64>,
    /// Rows that match but cannot be replayed: no chats, or requests that were not stored whole.
    skipped: i64,
    /// Too many rows had to be looked at: only those since `scanned_to` were.
    partial: bool,
    scanned_to: Option<Timestamp>,
    /// Tokens of the rows, which the estimate assumes again.
    input_tokens: i64,
    output_tokens: i64,
    /// What the rows cost before.
    cost_before_usd: f64,
    /// What they are expected to cost, without judges; null if no row has a price.
    cost_usd: Option<f64>,
    /// Rows without a price, whose cost is not included.
    unpriced: i64,
    /// Calls to models by the evals, at least; their cost is not included.
    judge_calls: i64,
}

impl EstimateView {
    pub(super) fn new(selection: &Selection) -> Self {
        let estimate = &selection.estimate;
        let judges = selection.evals.iter().filter(|eval| eval.kind == EvaluatorKind::Llm.as_str()).count();
        let judges = i64::try_from(judges).unwrap_or(i64::MAX);
        Self {
            rows: estimate.rows,
            log_ids: selection.rows.iter().map(|row| row.id).collect(),
            skipped: i64::try_from(selection.skipped).unwrap_or(i64::MAX),
            partial: selection.scanned_to.is_some(),
            scanned_to: selection.scanned_to,
            input_tokens: estimate.input_tokens,
            output_tokens: estimate.output_tokens,
            cost_before_usd: usd(estimate.cost_before),
            cost_usd: known_cost(estimate.cost, estimate.unpriced, estimate.rows),
            unpriced: estimate.unpriced,
            judge_calls: judges.saturating_mul(2).saturating_mul(estimate.rows),
        }
    }
}

/// Null if the cost of no call is known.
fn known_cost(cost: i64, unpriced: i64, calls: i64) -> Option<f64> {
    (unpriced < calls || calls == 0).then(|| usd(cost))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Replay")]
pub(super) struct ReplayView {
    id: i64,
    name: Option<String>,
    status: RunStatus,
    /// What was changed.
    target: Value,
    evals: Vec<EvalName>,
    /// Rows in all, rows that were replayed, and rows that could not be.
    total: i64,
    done: i64,
    errors: i64,
    /// What the calls cost so far.
    spent_usd: f64,
    /// What they were expected to cost; null if no row has a price.
    estimated_usd: Option<f64>,
    max_cost_usd: Option<f64>,
    /// Why the replay failed or stopped.
    error: Option<String>,
    /// The id of the user or key that started it.
    created_by: Option<String>,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayEvalName")]
struct EvalName {
    id: i64,
    name: String,
}

impl From<Replay> for ReplayView {
    fn from(replay: Replay) -> Self {
        let evals = eval_names(&replay.evals);
        let Replay {
            id,
            org_id: _,
            name,
            status,
            target,
            evals: _,
            total,
            done,
            errors,
            spent,
            estimated,
            unpriced,
            max_cost,
            error,
            created_by,
            created_at,
            started_at,
            finished_at,
        } = replay;
        Self {
            id,
            name,
            status,
            target,
            evals,
            total,
            done,
            errors,
            spent_usd: usd(spent),
            estimated_usd: known_cost(estimated, unpriced, total),
            max_cost_usd: max_cost.map(usd),
            error,
            created_by,
            created_at,
            started_at,
            finished_at,
        }
    }
}

fn eval_names(evals: &Value) -> Vec<EvalName> {
    let name = |eval: &Value| {
        Some(EvalName { id: eval.get("id")?.as_i64()?, name: eval.get("name")?.as_str()?.to_owned() })
    };
    evals.as_array().into_iter().flatten().filter_map(name).collect()
}

/// The target for the audit log: values of variables can be anything.
pub(super) fn without_variables(target: &ReplayTarget) -> ReplayTarget {
    ReplayTarget { variables: HashMap::new(), ..target.clone() }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ReplayDetail {
    #[serde(flatten)]
    replay: ReplayView,
    /// Both sides have the same rows: those that were replayed.
    before: SideView,
    after: SideView,
    scores: Vec<ScoresView>,
}

/// Sums over the calls of one side.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplaySide")]
struct SideView {
    calls: i64,
    /// Calls with a status of 400 or more.
    errors: i64,
    /// Null if no call has a price.
    cost_usd: Option<f64>,
    /// Calls without a price, whose cost is not included.
    unpriced: i64,
    input_tokens: i64,
    output_tokens: i64,
    p50_ms: Option<i64>,
    p95_ms: Option<i64>,
}

impl From<SideTotals> for SideView {
    fn from(totals: SideTotals) -> Self {
        let SideTotals { calls, errors, cost, unpriced, input_tokens, output_tokens, p50_ms, p95_ms } =
            totals;
        let cost_usd = known_cost(cost, unpriced, calls);
        Self { calls, errors, cost_usd, unpriced, input_tokens, output_tokens, p50_ms, p95_ms }
    }
}

/// The verdicts of an eval on both sides, over the rows with a verdict on both.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayScores")]
struct ScoresView {
    eval_id: i64,
    eval_name: String,
    judged: i64,
    before: EvalSide,
    after: EvalSide,
    /// Rows that failed before and pass now.
    gained: i64,
    /// Rows that passed before and fail now.
    lost: i64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayEvalSide")]
struct EvalSide {
    passed: i64,
    /// Null if no row was judged.
    pass_rate: Option<f64>,
    average_score: Option<f64>,
}

impl EvalSide {
    fn new(passed: i64, judged: i64, average_score: Option<f64>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let pass_rate = (judged > 0).then(|| passed as f64 / judged as f64);
        Self { passed, pass_rate, average_score }
    }
}

impl ReplayDetail {
    pub(super) fn new(
        replay: Replay,
        (before, after): (SideTotals, SideTotals),
        scores: &[EvalScores],
    ) -> Self {
        // An eval without a verdict yet is listed, too.
        let view = |EvalName { id, name }: EvalName| {
            let found = scores.iter().find(|scores| scores.eval_id == id);
            let side = |passed: fn(&EvalScores) -> i64, score: fn(&EvalScores) -> Option<f64>| {
                found.map_or(EvalSide::new(0, 0, None), |scores| {
                    EvalSide::new(passed(scores), scores.judged, score(scores))
                })
            };
            ScoresView {
                eval_id: id,
                eval_name: name,
                judged: found.map_or(0, |scores| scores.judged),
                before: side(|scores| scores.before_passed, |scores| scores.before_score),
                after: side(|scores| scores.after_passed, |scores| scores.after_score),
                gained: found.map_or(0, |scores| scores.gained),
                lost: found.map_or(0, |scores| scores.lost),
            }
        };
        let scores = eval_names(&replay.evals).into_iter().map(view).collect();
        Self { replay: replay.into(), before: before.into(), after: after.into(), scores }
    }
}
