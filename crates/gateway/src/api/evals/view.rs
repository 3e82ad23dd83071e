//! Evals, runs and verdicts in responses.

use gateway_core::evaluators::EvaluatorKind;
use gateway_core::ids::DatasetId;
use gateway_core::time::Timestamp;
use gateway_store::evals::{Eval, EvalResult, Run, RunItemError, RunStatus};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Eval")]
pub struct EvalView {
    id: i64,
    name: String,
    #[serde(rename = "type")]
    kind: EvaluatorKind,
    evaluator: String,
    config: Value,
    enabled: bool,
    sample_rate: f64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<Eval> for EvalView {
    fn from(eval: Eval) -> Self {
        let Eval {
            id,
            org_id: _,
            name,
            kind,
            evaluator,
            config,
            enabled,
            sample_rate,
            created_at,
            updated_at,
        } = eval;
        Self { id, name, kind, evaluator, config, enabled, sample_rate, created_at, updated_at }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvalRun")]
pub struct RunView {
    id: i64,
    eval_id: i64,
    dataset_id: Option<DatasetId>,
    /// Null for the working copy at the start of the run.
    dataset_version: Option<i64>,
    /// `manual` or `dataset`.
    trigger: String,
    status: RunStatus,
    total: i64,
    /// Items that were judged or failed.
    completed: i64,
    passed: i64,
    failed: i64,
    /// Items that could not be judged after several attempts.
    errors: i64,
    /// Why the run failed.
    error: Option<String>,
    /// The model that is called first.
    target: Option<Value>,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        let Run {
            id,
            org_id: _,
            eval_id,
            dataset_id,
            dataset_version,
            begun_by,
            status,
            total,
            passed,
            failed,
            errors,
            error,
            definition: _,
            target,
            created_at,
            started_at,
            finished_at,
        } = run;
        Self {
            id,
            eval_id,
            dataset_id,
            dataset_version,
            trigger: begun_by,
            status,
            total,
            completed: passed + failed + errors,
            passed,
            failed,
            errors,
            error,
            target: target.map(without_content),
            created_at,
            started_at,
            finished_at,
        }
    }
}

/// Removes the stored text of the prompt; its name and version identify it.
fn without_content(mut target: Value) -> Value {
    if let Some(prompt) = target.get_mut("prompt").and_then(Value::as_object_mut) {
        prompt.remove("content");
    }
    target
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvalResult")]
pub struct ResultView {
    id: i64,
    eval_id: i64,
    /// Null for a live evaluation.
    run_id: Option<i64>,
    /// The judged row; for a case, the row of the call to the target.
    log_id: Option<i64>,
    case_id: Option<String>,
    score: f64,
    passed: bool,
    details: String,
    created_at: Timestamp,
}

impl From<EvalResult> for ResultView {
    fn from(result: EvalResult) -> Self {
        let EvalResult { id, eval_id, run_id, log_id, case_id, score, passed, details, created_at } = result;
        Self { id, eval_id, run_id, log_id, case_id, score, passed, details, created_at }
    }
}

/// An item that could not be judged.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvalItemError")]
pub struct ItemErrorView {
    log_id: Option<i64>,
    case_id: Option<String>,
    error: String,
}

impl From<RunItemError> for ItemErrorView {
    fn from(item: RunItemError) -> Self {
        let RunItemError { position: _, log_id, case_id, error } = item;
        Self { log_id, case_id, error }
    }
}
