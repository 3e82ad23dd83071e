//! Runs of evals: start over log rows, poll, cancel and compare.

use axum::extract::State;
use gateway_core::ids::DatasetId;
use gateway_core::logs::{LogRow, LogSource};
use gateway_core::time::Timestamp;
use gateway_store::evals::{self, Eval, Run, RunFilter, RunStatus, VerdictFlip};
use gateway_store::logs::{self, LogFilter};
use gateway_store::partial_deletion::RowsToDelete;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::start::{NewItems, RunInput, start_run};
use super::view::{ItemErrorView, ResultView, RunView};
use super::{EvalId, check_definition};
use crate::api::audited::Audited;
use crate::api::caller::{AppState, Caller, Member, Viewer};
use crate::api::extract::{OptionalBody, PagedQuery, PathParam, QueryParams, integer_path_param};
use crate::api::large_deletions::delete_large_parts;
use crate::api::page::{self, PageParams};
use crate::api::response::{Accepted, Deleted, Json};
use crate::api::row_selection::{
    MatchingRows, Wanted, check_one_way, checked_ids, checked_limit, missing_row,
};
use crate::app::App;
use crate::auth::Identity;
use crate::evals::EvalDefinition;
use crate::jobs::live_evals::is_trace;
use crate::problem::{ApiResult, Problem};

/// Flips or errors in one response.
const MAX_LISTED: i64 = 1_000;

integer_path_param!(
    /// The id of a run.
    RunId = "runId"
);

#[derive(Deserialize, JsonSchema, Default)]
#[schemars(rename = "EvalRunRequest")]
pub(super) struct RunRequest {
    /// Number of latest rows. Values above 1000 are reduced to 1000.
    #[schemars(range(min = 1), extend("default" = 100))]
    limit: Option<i64>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    provider: Option<String>,
    model: Option<String>,
    /// Only rows that match this query, as in `GET /logs`. The run does not start if there are none.
    query: Option<String>,
    /// Exactly these rows, at most 1000, instead of the latest ones.
    log_ids: Option<Vec<i64>>,
}

pub(super) async fn run(
    app: Audited,
    caller: Caller<Member>,
    PathParam(EvalId(id)): PathParam<EvalId>,
    OptionalBody(request): OptionalBody<RunRequest>,
) -> ApiResult<Accepted<StartedRun>> {
    let org = caller.org.id;
    let limit = checked_limit(request.limit)?;
    check_one_way(request.log_ids.as_deref(), request.query.as_deref())?;
    let ids = request.log_ids.as_deref().map(checked_ids).transpose()?;
    let eval = evals::find(&app.services.db, org, id).await?.ok_or_else(Problem::not_found)?;
    check_may_run(&app, &caller, &eval).await?;
    let (rows, skipped) = match ids {
        Some(ids) => (existing_rows(&app, &caller, ids).await?, None),
        None => latest_rows(&app, &caller, &request, limit).await?,
    };
    let run = start_run(&app, &caller, &eval, RunInput::default(), NewItems::LogRows(rows)).await?;
    Ok(Accepted(StartedRun { run: run.into(), skipped }))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StartedEvalRun")]
pub(super) struct StartedRun {
    #[serde(flatten)]
    run: RunView,
    /// Only with `query`: rows that match but have nothing to judge, such as lists of models.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<usize>,
}

/// Checks that the caller may start a run. The run calls models on behalf of the organization.
pub(in crate::api) async fn check_may_run(app: &App, caller: &Identity, eval: &Eval) -> ApiResult<()> {
    let definition = EvalDefinition {
        kind: eval.kind.as_str().to_owned(),
        evaluator: eval.evaluator.clone(),
        config: eval.config.clone(),
    };
    check_definition(app, caller, &eval.name, definition).await.map(|_| ())
}

async fn existing_rows(app: &App, caller: &Identity, ids: Vec<i64>) -> ApiResult<Vec<i64>> {
    let made_by = caller.row_access().restrict(None);
    let stored = app.query_logs(caller.org.id).await?;
    let known = logs::existing_ids(&stored, caller.org.id, made_by, &ids).await?;
    match ids.iter().find(|id| !known.contains(id)) {
        None => Ok(ids),
        Some(id) => Err(missing_row(*id)),
    }
}

/// The latest rows of model calls, except calls of the gateway itself, and with a query the number of rows that were skipped.
async fn latest_rows(
    app: &App,
    caller: &Identity,
    request: &RunRequest,
    limit: i64,
) -> ApiResult<(Vec<i64>, Option<usize>)> {
    let filter = LogFilter {
        provider: request.provider.clone(),
        model: request.model.clone(),
        from: request.from,
        to: request.to,
        ..LogFilter::default()
    };
    let wanted = Wanted {
        query: request.query.as_deref(),
        filter,
        sources: &[LogSource::Proxy, LogSource::Otel],
        limit: Some(limit),
    };
    let check = |row: &LogRow| if is_trace(row) { Ok(()) } else { Err("it has nothing to judge") };
    let found = MatchingRows::new(app, caller, wanted).await?.first_that(check).await?;
    if request.query.is_some() {
        found.check_not_empty("query", "judged")?;
    }
    let skipped = request.query.is_some().then_some(found.skipped);
    Ok((found.rows.into_iter().map(|row| row.id).collect(), skipped))
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct RunParams {
    eval_id: Option<i64>,
    dataset_id: Option<DatasetId>,
    status: Option<RunStatus>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct RunList {
    runs: Vec<RunView>,
    next_cursor: Option<String>,
}

pub(super) async fn list_runs(
    State(app): AppState,
    caller: Caller<Viewer>,
    PagedQuery { page, filter: params }: PagedQuery<RunParams>,
) -> ApiResult<Json<RunList>> {
    let page = page.numeric_page()?;
    let filter = RunFilter { eval_id: params.eval_id, dataset_id: params.dataset_id, status: params.status };
    let found = evals::list_runs(&app.services.db, caller.org.id, &filter, &page).await?;
    let (runs, next_cursor) = page::into_views(found);
    Ok(Json(RunList { runs, next_cursor }))
}

pub(super) async fn get_run(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(RunId(id)): PathParam<RunId>,
) -> ApiResult<Json<RunView>> {
    stored(&app, &caller, id).await.map(|run| Json(run.into()))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct RunResults {
    results: Vec<ResultView>,
    /// Only on the first page: items that could not be judged.
    errors: Vec<ItemErrorView>,
    next_cursor: Option<String>,
}

pub(super) async fn run_results(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(RunId(id)): PathParam<RunId>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<RunResults>> {
    let (org, page) = (caller.org.id, params.numeric_page()?);
    stored(&app, &caller, id).await?;
    let found = evals::list_run_results(&app.services.db, org, id, &page).await?;
    let errors = if page.before.is_none() {
        evals::item_errors(&app.services.db, org, id, MAX_LISTED).await?
    } else {
        Vec::new()
    };
    Ok(Json(RunResults {
        results: found.rows.into_iter().map(Into::into).collect(),
        errors: errors.into_iter().map(Into::into).collect(),
        next_cursor: page::encode_cursor(found.next.as_deref()),
    }))
}

pub(super) async fn cancel_run(
    app: Audited,
    caller: Caller<Member>,
    PathParam(RunId(id)): PathParam<RunId>,
) -> ApiResult<Json<RunView>> {
    let run = stored(&app, &caller, id).await?;
    let mut tx = app.services.db.begin().await?;
    if !evals::cancel_run(&mut tx, caller.org.id, id, app.services.clock.now()).await? {
        return Err(Problem::conflict(format!("the run is already {}", run.status.as_str())));
    }
    tx.record(app.entry().created(&json!({"eval_id": run.eval_id})));
    tx.commit().await?;
    stored(&app, &caller, id).await.map(|run| Json(run.into()))
}

/// A run in progress is cancelled first: its results are gone only when nobody writes any more.
pub(super) async fn delete_run(
    app: Audited,
    caller: Caller<Member>,
    PathParam(RunId(id)): PathParam<RunId>,
) -> ApiResult<Json<Deleted>> {
    let run = stored(&app, &caller, id).await?;
    if run.finished_at.is_none() {
        let status = run.status.as_str();
        return Err(Problem::conflict(format!(
            "the run is still {status}; cancel it with POST /evals/runs/:runId/cancel, then delete it"
        )));
    }
    delete_large_parts(&app, caller.org.id, RowsToDelete::EvalRun(id)).await?;
    let mut tx = app.services.db.begin().await?;
    if !evals::delete_run(&mut tx, caller.org.id, id).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().deleted(&RunView::from(run)));
    tx.commit().await?;
    Ok(Deleted::yes())
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct CompareParams {
    /// The other run, of the same eval.
    to: i64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvalRunComparison")]
pub(super) struct Comparison {
    eval_id: i64,
    run: ComparedRun,
    to: ComparedRun,
    /// Number of items that both runs judged.
    compared: i64,
    /// Failed in this run, passed in the other.
    gained: Vec<FlipView>,
    /// Passed in this run, failed in the other.
    lost: Vec<FlipView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvalRunSide")]
struct ComparedRun {
    id: i64,
    status: RunStatus,
    total: i64,
    passed: i64,
    failed: i64,
    errors: i64,
    /// The share of judged items that passed; null if no item was judged.
    pass_rate: Option<f64>,
}

impl From<&Run> for ComparedRun {
    fn from(run: &Run) -> Self {
        let judged = run.passed + run.failed;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let pass_rate = (judged > 0).then(|| run.passed as f64 / judged as f64);
        Self {
            id: run.id,
            status: run.status,
            total: run.total,
            passed: run.passed,
            failed: run.failed,
            errors: run.errors,
            pass_rate,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvalFlip")]
struct FlipView {
    log_id: Option<i64>,
    case_id: Option<String>,
    score: f64,
    to_score: f64,
}

pub(super) async fn compare_runs(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(RunId(id)): PathParam<RunId>,
    QueryParams(params): QueryParams<CompareParams>,
) -> ApiResult<Json<Comparison>> {
    let org = caller.org.id;
    let run = stored(&app, &caller, id).await?;
    let to = evals::find_run(&app.services.db, org, params.to).await?;
    let to = to.ok_or_else(|| Problem::field("to", "no such run in this organization"))?;
    if to.eval_id != run.eval_id {
        return Err(Problem::field("to", "must be a run of the same eval"));
    }
    let (compared, flips) = evals::compare_runs(&app.services.db, org, run.id, to.id, MAX_LISTED).await?;
    let (lost, gained): (Vec<VerdictFlip>, Vec<VerdictFlip>) =
        flips.into_iter().partition(|flip| flip.passed);
    let view = |flip: VerdictFlip| {
        let VerdictFlip { log_id, case_id, passed: _, score, other_score } = flip;
        FlipView { log_id, case_id, score, to_score: other_score }
    };
    Ok(Json(Comparison {
        eval_id: run.eval_id,
        run: ComparedRun::from(&run),
        to: ComparedRun::from(&to),
        compared,
        gained: gained.into_iter().map(view).collect(),
        lost: lost.into_iter().map(view).collect(),
    }))
}

pub(super) async fn stored(app: &App, caller: &Identity, id: i64) -> ApiResult<Run> {
    evals::find_run(&app.services.db, caller.org.id, id).await?.ok_or_else(Problem::not_found)
}
