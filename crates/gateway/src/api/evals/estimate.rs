//! What runs of several evals and models over a dataset are expected to cost, before they are started.

use axum::extract::State;
use gateway_core::evaluators::EvaluatorKind;
use gateway_core::ids::DatasetId;
use gateway_core::llm::estimate::estimate_tokens;
use gateway_core::llm::usage::Usage;
use gateway_core::pricing::cost;
use gateway_core::totals::{cost_units, usd};
use gateway_store::datasets::{self, DatasetRef};
use gateway_store::evals;
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dataset::{TargetRequest, checked_target, edition};
use super::runs::check_may_run;
use crate::api::caller::{AppState, Caller, Member};
use crate::api::extract::{Body, PathParam};
use crate::api::replays::price_of;
use crate::api::response::Json;
use crate::evals::target::Target;
use crate::problem::{ApiResult, Problem};

const MAX_EVALS: usize = 10;
const MAX_TARGETS: usize = 10;
/// Tokens of an answer, unless the request says otherwise.
const DEFAULT_OUTPUT_TOKENS: i64 = 500;
const MAX_OUTPUT_TOKENS: i64 = 1_000_000;
/// Of ordinary text. The cases are measured in the database, so their tokens are not counted one by one.
const CHARS_PER_TOKEN: i64 = 4;

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DatasetEvalEstimateRequest")]
pub(super) struct EstimateRequest {
    /// 1 to 10 evals. Each of them is a run for each target.
    #[schemars(length(min = 1, max = 10))]
    eval_ids: Vec<i64>,
    /// A frozen version. Default: the current working copy.
    #[schemars(range(min = 1))]
    version: Option<i64>,
    /// At most 10 models. Without any, the stored outputs are judged, in one run for each eval.
    #[schemars(length(max = 10))]
    targets: Option<Vec<TargetRequest>>,
    /// Tokens of one answer that the estimate assumes, or `max_tokens` of the target if that is less.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 500))]
    output_tokens: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DatasetEvalEstimate")]
pub(super) struct EstimateView {
    cases: i64,
    runs: i64,
    /// Calls of the targets, over all runs.
    calls: i64,
    /// Calls of evals that ask a model, at least; their cost is not included.
    judge_calls: i64,
    /// Null if no target has a price.
    cost_usd: Option<f64>,
    /// In the order of the request.
    targets: Vec<TargetEstimate>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvalTargetEstimate")]
struct TargetEstimate {
    provider: String,
    model: String,
    calls: i64,
    /// Of all calls; four characters of an input count as one token.
    input_tokens: i64,
    output_tokens: i64,
    /// Null if the model has no price.
    cost_usd: Option<f64>,
}

pub(super) async fn estimate(
    State(app): AppState,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    Body(request): Body<EstimateRequest>,
) -> ApiResult<Json<EstimateView>> {
    let org = caller.org.id;
    let EstimateRequest { mut eval_ids, version, targets, output_tokens } = request;
    eval_ids.sort_unstable();
    eval_ids.dedup();
    if eval_ids.is_empty() || eval_ids.len() > MAX_EVALS {
        return Err(Problem::field("eval_ids", format!("must have 1 to {MAX_EVALS} ids")));
    }
    let requests = targets.unwrap_or_default();
    if requests.len() > MAX_TARGETS {
        return Err(Problem::field("targets", format!("must have at most {MAX_TARGETS} entries")));
    }
    let output = output_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    if !(1..=MAX_OUTPUT_TOKENS).contains(&output) {
        return Err(Problem::field("output_tokens", format!("must be from 1 to {MAX_OUTPUT_TOKENS}")));
    }
    let (edition, cases) = edition(&app, org, id, version).await?;
    let mut judges = 0_i64;
    for eval in &eval_ids {
        let found = evals::find(&app.services.db, org, *eval).await?;
        let why = || Problem::field("eval_ids", format!("no eval {eval} in this organization"));
        let found = found.ok_or_else(why)?;
        check_may_run(&app, &caller, &found).await?;
        judges += i64::from(found.kind == EvaluatorKind::Llm);
    }
    let runs_per_target = i64::try_from(eval_ids.len()).unwrap_or(i64::MAX);
    let characters = if requests.is_empty() {
        0
    } else {
        // Reads every case.
        let _slot = app.shares.query_slot(org).await?;
        datasets::input_chars(&app.services.db, DatasetRef { org, id, edition }).await?
    };
    let calls = cases.saturating_mul(runs_per_target);
    let mut targets = Vec::with_capacity(requests.len());
    let (mut total, mut is_priced) = (0_i64, false);
    for request in requests {
        let target = checked_target(&app, &caller, request).await?;
        let input = tokens_per_call(&target, characters, cases);
        let output = answer_tokens(&target, output);
        let count = |tokens: i64| u64::try_from(tokens).unwrap_or(0);
        let usage = Usage { input: count(input), output: count(output), ..Usage::default() };
        let price = price_of(&app, &caller, &target.provider, &target.model);
        let each = price.and_then(|price| cost(price, &usage));
        let cost = each.map(|each| cost_units(each.saturating_mul(Decimal::from(calls))));
        total = total.saturating_add(cost.unwrap_or(0));
        is_priced |= cost.is_some();
        targets.push(TargetEstimate {
            provider: target.provider,
            model: target.model,
            calls,
            input_tokens: input.saturating_mul(calls),
            output_tokens: output.saturating_mul(calls),
            cost_usd: cost.map(usd),
        });
    }
    let target_count = i64::try_from(targets.len()).unwrap_or(i64::MAX);
    let runs = runs_per_target.saturating_mul(target_count.max(1));
    Ok(Json(EstimateView {
        cases,
        runs,
        calls: calls.saturating_mul(target_count),
        judge_calls: judges.saturating_mul(cases).saturating_mul(target_count.max(1)),
        cost_usd: is_priced.then(|| usd(total)),
        targets,
    }))
}

/// The tokens of an average input and of the prompt, which goes with each.
fn tokens_per_call(target: &Target, characters: i64, cases: i64) -> i64 {
    let prompt = target.prompt.as_ref().map_or(0, |prompt| estimate_tokens(&prompt.content));
    let input = characters.checked_div(cases).unwrap_or(0) / CHARS_PER_TOKEN;
    input.max(i64::from(cases > 0)).saturating_add(i64::try_from(prompt).unwrap_or(i64::MAX))
}

/// A target that limits its answers does not write more.
fn answer_tokens(target: &Target, assumed: i64) -> i64 {
    let limits = ["max_tokens", "max_completion_tokens"];
    let limit = limits.iter().filter_map(|name| target.params.get(*name).and_then(Value::as_i64)).min();
    limit.map_or(assumed, |limit| assumed.min(limit.max(0)))
}
