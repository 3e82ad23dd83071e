//! Evals: this file has the definitions; `runs` has their runs, `start` stores new ones, `dataset` has the runs over
//! datasets, and `estimate` what those are expected to cost.

mod dataset;
mod estimate;
mod runs;
mod start;
mod view;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gateway_core::accounts::check_name;
use gateway_core::evaluators::{ConfigError, EvaluatorKind, catalogue};
use gateway_core::quotas::Quota;
use gateway_store::evals::{self, Eval};
use gateway_store::partial_deletion::RowsToDelete;
use http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::audited::Audited;
use super::caller::{AppState, Caller, Member, Viewer};
use super::extract::{Body, PagedQuery, PathParam, QueryParams, integer_path_param};
use super::large_deletions::delete_large_parts;
use super::openapi::{Area, Operation, OperationOutput};
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::auth::Identity;
use crate::cluster::invalidation::{self, Invalidation};
use crate::compute::WaitLimits;
use crate::evals::{self as judging, EvalDefinition};
use crate::problem::{ApiResult, Problem};
use crate::quotas;
pub(super) use runs::check_may_run;
use view::{EvalView, ResultView};

pub fn area() -> Area {
    Area::new("evals", "Evals: definitions, runs over log rows and datasets, and verdicts.")
        .get("/evals/evaluators", evaluators, "List the evaluators, each with the JSON Schema of its config")
        .post("/evals", create, "Create an eval")
        .get("/evals", list, "List the evals, newest first")
        .get("/evals/{evalId}", get, "Get an eval")
        .put("/evals/{evalId}", update, "Update an eval; runs in progress keep the old definition")
        .delete("/evals/{evalId}", delete, "Delete an eval with its runs and results")
        .post(
            "/evals/{evalId}/run",
            runs::run,
            "Start a run over recent or given log rows; poll the run for its state",
        )
        .get(
            "/evals/{evalId}/results",
            results,
            "List the verdicts of an eval, newest first; the X-Next-Cursor header has the next cursor",
        )
        .get("/evals/runs", runs::list_runs, "List all runs, newest first")
        .get("/evals/runs/{runId}", runs::get_run, "Get a run")
        .delete("/evals/runs/{runId}", runs::delete_run, "Delete a run that is over, with its verdicts")
        .get(
            "/evals/runs/{runId}/results",
            runs::run_results,
            "List the verdicts of a run, and the items that could not be judged",
        )
        .post("/evals/runs/{runId}/cancel", runs::cancel_run, "Cancel a run")
        .get(
            "/evals/runs/{runId}/compare",
            runs::compare_runs,
            "Compare a run with another run of the same eval",
        )
        .post(
            "/datasets/{datasetId}/eval",
            dataset::eval_dataset,
            "Start a run over the cases of a dataset; poll the run for its state",
        )
        .post(
            "/datasets/{datasetId}/eval/estimate",
            estimate::estimate,
            "Get what runs of several evals and models over a dataset would cost",
        )
}

integer_path_param!(
    /// The id of an eval.
    EvalId = "evalId"
);

#[derive(Serialize, JsonSchema)]
struct EvaluatorList {
    evaluators: Vec<EvaluatorView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Evaluator")]
struct EvaluatorView {
    #[serde(rename = "type")]
    kind: EvaluatorKind,
    evaluator: &'static str,
    description: &'static str,
    /// A JSON Schema.
    config: Value,
}

async fn evaluators(_caller: Caller<Viewer>) -> ApiResult<Json<EvaluatorList>> {
    let views = catalogue().iter().map(|known| EvaluatorView {
        kind: known.kind,
        evaluator: known.name,
        description: known.about,
        config: known.config.clone(),
    });
    Ok(Json(EvaluatorList { evaluators: views.collect() }))
}

#[derive(Deserialize, JsonSchema)]
struct NewEval {
    name: String,
    /// `static`, `similarity` or `llm`.
    #[serde(rename = "type")]
    kind: String,
    evaluator: String,
    /// The config of the evaluator; see `GET /evals/evaluators`.
    config: Option<Value>,
    /// Default: true.
    enabled: Option<bool>,
    /// The share of new log rows that are judged live while the eval is enabled, 0 to 1. Default: 0.
    sample_rate: Option<f64>,
}

async fn create(
    app: Audited,
    caller: Caller<Member>,
    Body(request): Body<NewEval>,
) -> ApiResult<Created<EvalView>> {
    let NewEval { name, kind, evaluator, config, enabled, sample_rate } = request;
    let config = config.unwrap_or_else(|| Value::Object(Map::new()));
    let definition = EvalDefinition { kind, evaluator: evaluator.clone(), config: config.clone() };
    let kind = check_definition(&app, &caller, &name, definition).await?;
    let now = app.services.clock.now();
    let eval = Eval {
        id: app.services.ids.next_row_id(),
        org_id: caller.org.id,
        kind,
        name,
        evaluator,
        config,
        enabled: enabled.unwrap_or(true),
        sample_rate: checked_sample_rate(sample_rate.unwrap_or(0.0))?,
        created_at: now,
        updated_at: now,
    };
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Evals).await?;
    evals::insert(&mut tx, &eval).await?;
    let created = EvalView::from(eval.clone());
    tx.record(app.entry().target(eval.id, &eval.name).created(&created));
    let pending = invalidation::record(&mut tx, Invalidation::LiveEvals).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Created(eval.into()))
}

/// Checks a definition and returns its kind. It must not be called in a transaction, because it may wait.
async fn check_definition(
    app: &App,
    identity: &Identity,
    name: &str,
    definition: EvalDefinition,
) -> ApiResult<EvaluatorKind> {
    checked_name(name)?;
    check_evaluator(app, identity, definition).await
}

/// The same, without the name.
async fn check_evaluator(
    app: &App,
    identity: &Identity,
    definition: EvalDefinition,
) -> ApiResult<EvaluatorKind> {
    let kind = checked_kind(&definition.kind);
    let compute = &app.services.compute;
    let compiled = judging::compile(compute, identity.org.id, WaitLimits::REQUEST, definition).await?;
    let read = compiled.map_err(|error| match error {
        ConfigError::Field { .. } => Problem::bad_request(error.to_string()),
        ConfigError::Invalid { .. } => Problem::unprocessable(error.to_string()),
    })?;
    judging::check(&app.models, identity, &read)?;
    kind
}

fn checked_name(name: &str) -> ApiResult<()> {
    check_name(name).map_err(|why| Problem::field("name", why))
}

fn checked_kind(kind: &str) -> ApiResult<EvaluatorKind> {
    EvaluatorKind::parse(kind).ok_or_else(|| Problem::field("type", "is not a known type"))
}

fn checked_sample_rate(rate: f64) -> ApiResult<f64> {
    if (0.0..=1.0).contains(&rate) {
        Ok(rate)
    } else {
        Err(Problem::field("sample_rate", "must be between 0 and 1"))
    }
}

#[derive(Deserialize, JsonSchema)]
struct EvalParams {
    #[serde(rename = "type")]
    kind: Option<EvaluatorKind>,
    enabled: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
struct EvalList {
    evals: Vec<EvalView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    PagedQuery { page, filter: params }: PagedQuery<EvalParams>,
) -> ApiResult<Json<EvalList>> {
    let page = page.numeric_page()?;
    let found = evals::list(&app.services.db, caller.org.id, params.kind, params.enabled, &page).await?;
    let (evals, next_cursor) = page::into_views(found);
    Ok(Json(EvalList { evals, next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(EvalId(id)): PathParam<EvalId>,
) -> ApiResult<Json<EvalView>> {
    let eval = evals::find(&app.services.db, caller.org.id, id).await?;
    eval.map(|eval| Json(eval.into())).ok_or_else(Problem::not_found)
}

/// Omitted fields stay unchanged.
#[derive(Deserialize, JsonSchema)]
struct EvalChange {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    evaluator: Option<String>,
    /// Replaces the whole config.
    config: Option<Value>,
    enabled: Option<bool>,
    sample_rate: Option<f64>,
}

async fn update(
    app: Audited,
    caller: Caller<Member>,
    PathParam(EvalId(id)): PathParam<EvalId>,
    Body(change): Body<EvalChange>,
) -> ApiResult<Json<EvalView>> {
    let EvalChange { name, kind, evaluator, config, enabled, sample_rate } = change;
    // An invalid change is reported before a missing eval: each field that says something alone, and a whole definition.
    let sample_rate = sample_rate.map(checked_sample_rate).transpose()?;
    name.as_deref().map(checked_name).transpose()?;
    kind.as_deref().map(checked_kind).transpose()?;
    let read = evals::find(&app.services.db, caller.org.id, id).await?;
    let kind = kind.or_else(|| Some(read.as_ref()?.kind.as_str().to_owned()));
    let evaluator = evaluator.or_else(|| Some(read.as_ref()?.evaluator.clone()));
    let config = config.or_else(|| Some(read.as_ref()?.config.clone()));
    let (Some(kind), Some(evaluator), Some(config)) = (kind, evaluator, config) else {
        return Err(Problem::not_found());
    };
    let definition = EvalDefinition { kind, evaluator: evaluator.clone(), config: config.clone() };
    let kind = check_evaluator(&app, &caller, definition).await?;
    let read = read.ok_or_else(Problem::not_found)?;
    let name = name.unwrap_or_else(|| read.name.clone());
    let mut tx = app.services.db.begin().await?;
    let eval = evals::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    if (&eval.name, eval.kind, &eval.evaluator, &eval.config)
        != (&read.name, read.kind, &read.evaluator, &read.config)
    {
        return Err(Problem::conflict("another request changed the eval at the same time; try again"));
    }
    let before = EvalView::from(eval.clone());
    let eval = Eval {
        kind,
        name,
        evaluator,
        config,
        enabled: enabled.unwrap_or(eval.enabled),
        sample_rate: sample_rate.unwrap_or(eval.sample_rate),
        updated_at: app.services.clock.now(),
        ..eval
    };
    evals::update(&mut tx, &eval).await?;
    tx.record(app.entry().named(&eval.name).changed(&before, &EvalView::from(eval.clone())));
    let pending = invalidation::record(&mut tx, Invalidation::LiveEvals).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(eval.into()))
}

async fn delete(
    app: Audited,
    caller: Caller<Member>,
    PathParam(EvalId(id)): PathParam<EvalId>,
) -> ApiResult<Json<Deleted>> {
    delete_large_parts(&app, caller.org.id, RowsToDelete::Eval(id)).await?;
    let mut tx = app.services.db.begin().await?;
    let eval = evals::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    evals::delete(&mut tx, caller.org.id, id).await?;
    tx.record(app.entry().named(&eval.name).deleted(&EvalView::from(eval.clone())));
    let pending = invalidation::record(&mut tx, Invalidation::LiveEvals).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

async fn results(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(EvalId(id)): PathParam<EvalId>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<ResultArray> {
    let page = params.numeric_page()?;
    let org = caller.org.id;
    evals::find(&app.services.db, org, id).await?.ok_or_else(Problem::not_found)?;
    let found = evals::list_results(&app.services.db, org, id, &page).await?;
    let next = page::encode_cursor(found.next.as_deref());
    Ok(ResultArray { results: found.rows.into_iter().map(Into::into).collect(), next })
}

/// A plain array. The cursor of the next page is in a header.
struct ResultArray {
    results: Vec<ResultView>,
    next: Option<String>,
}

impl IntoResponse for ResultArray {
    fn into_response(self) -> Response {
        let mut response = Json(self.results).into_response();
        if let Some(next) = self.next.and_then(|next| HeaderValue::try_from(next).ok()) {
            response.headers_mut().insert("x-next-cursor", next);
        }
        response
    }
}

impl OperationOutput for ResultArray {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<Vec<ResultView>>(200);
        if let Some((_, response)) = operation.responses.last_mut() {
            response["headers"] = json!({"X-Next-Cursor": {
                "description": "The cursor of the next page, if there is one.", "schema": {"type": "string"},
            }});
        }
    }
}
