//! Verdicts of external evaluators, on log rows and on the current version of a skill. The latter can allow a skill to
//! be published on the shelf.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gateway_core::ids::{OrgId, SkillId, VerdictId};
use gateway_core::logs::log_id_time;
use gateway_core::skills::rubric::{Axes, Axis};
use gateway_core::time::{SECOND, Timestamp};
use gateway_core::verdicts::{LOG_THRESHOLD, VerdictError, check_source, resolve_score, single_axis};
use gateway_store::logs;
use gateway_store::skills::{self, Evaluation};
use gateway_store::verdicts::{self, LogVerdict};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::audited::Audited;
use super::caller::{AppState, Caller, Integrations, Member, Viewer};
use super::extract::{Body, PagedQuery};
use super::openapi::{Area, Operation, OperationOutput};
use super::page;
use super::response::{Created, Json};
use super::skills::EvaluationView;
use crate::app::App;
use crate::jobs::export_verdicts::{self, ExportVerdicts};
use crate::jobs::judge_skill;
use crate::problem::{ApiResult, Problem};

const MAX_AXES: usize = 50;
const MAX_AXIS_NAME: usize = 64;
const MAX_RATIONALE: usize = 4_000;
const MAX_EXTERNAL_REF: usize = 2_048;
const MAX_DETAILS_BYTES: usize = 64 << 10;
/// A row is stored shortly after its response ended. A verdict may be submitted before that.
const ROW_WAIT_TIMEOUT: Duration = Duration::from_secs(2);
const ROW_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Only rows of this age (in milliseconds) are waited for.
const RECENT_ROW_AGE: i64 = 60 * SECOND;

pub fn area() -> Area {
    Area::new("eval-results", "Verdicts of external evaluators on skills and log rows.")
        .post("/eval-results", submit, "Submit a verdict on the current version of a skill or on a log row")
        .get("/eval-results", list, "List the verdicts on a log row, newest first")
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "EvalResultInput")]
struct EvalSubmission {
    /// `skill` or `log`.
    #[schemars(with = "String")]
    #[serde(default)]
    subject_type: Value,
    /// A UUID for a skill, a number for a log row.
    #[schemars(schema_with = "subject_schema")]
    #[serde(default)]
    subject_id: Value,
    /// The name of the evaluator: 1 to 32 lowercase letters, digits, `_` or `-`, but not `internal`.
    #[schemars(with = "String")]
    #[serde(default)]
    source: Value,
    /// From 0 to 1. At least one of `score` and `passed` is required.
    #[schemars(range(min = 0, max = 1))]
    score: Option<f64>,
    passed: Option<bool>,
    /// Skills only.
    axes: Option<BTreeMap<String, AxisInput>>,
    external_ref: Option<String>,
    /// Log rows only.
    details: Option<Map<String, Value>>,
    /// Skills only: the evaluated version. The verdict is rejected with 409 if it is no longer the current one.
    skill_version: Option<i64>,
    /// Skills only: the content hash of the evaluated version, with the same check.
    content_hash: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct AxisInput {
    #[schemars(range(min = 0, max = 1))]
    score: f64,
    #[serde(default)]
    rationale: String,
}

fn subject_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "integer"]})
}

enum Subject {
    Skill(SkillId),
    Log(i64),
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LogEvalResult")]
struct LogVerdictView {
    id: VerdictId,
    org_id: OrgId,
    log_id: i64,
    source: String,
    score: f64,
    passed: bool,
    details: Map<String, Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    external_ref: String,
    created_at: Timestamp,
}

impl From<LogVerdict> for LogVerdictView {
    fn from(verdict: LogVerdict) -> Self {
        let LogVerdict { id, org_id, log_id, source, score, passed, details, external_ref, created_at } =
            verdict;
        Self { id, org_id, log_id, source, score, passed, details, external_ref, created_at }
    }
}

/// The stored verdict, whose type depends on its subject.
enum StoredVerdict {
    Skill(Created<EvaluationView>),
    Log(Created<LogVerdictView>),
}

impl IntoResponse for StoredVerdict {
    fn into_response(self) -> Response {
        match self {
            Self::Skill(view) => view.into_response(),
            Self::Log(view) => view.into_response(),
        }
    }
}

impl OperationOutput for StoredVerdict {
    fn describe(operation: &mut Operation<'_>) {
        let output = &mut operation.schemas.output;
        let either = [output.subschema_for::<EvaluationView>(), output.subschema_for::<LogVerdictView>()];
        let schema = serde_json::json!({"anyOf": either});
        operation.responses.push((
            201,
            serde_json::json!({"description": "Success", "content": {"application/json": {"schema": schema}}}),
        ));
    }
}

async fn submit(
    app: Audited,
    caller: Caller<Member, Integrations>,
    Body(input): Body<EvalSubmission>,
) -> ApiResult<StoredVerdict> {
    let source = input.source.as_str().unwrap_or_default().to_owned();
    check_source(&source)?;
    check_scores(&input)?;
    let subject = subject(&input)?;
    check_sizes(&input)?;
    let org = caller.org.id;
    match subject {
        Subject::Skill(id) => {
            store_on_skill(&app, org, id, source, input).await.map(|view| StoredVerdict::Skill(Created(view)))
        }
        Subject::Log(id) => {
            store_on_log(&app, org, id, source, input).await.map(|view| StoredVerdict::Log(Created(view)))
        }
    }
}

async fn store_on_skill(
    app: &Audited,
    org: OrgId,
    id: SkillId,
    source: String,
    input: EvalSubmission,
) -> ApiResult<EvaluationView> {
    let mut tx = app.services.db.begin().await?;
    // The lock guarantees that the version is still the current one at the commit.
    let skill = skills::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    let outdated = input.skill_version.is_some_and(|version| version != skill.version)
        || input.content_hash.is_some_and(|hash| !hash.eq_ignore_ascii_case(&skill.content_hash));
    if outdated {
        let why =
            format!("the verdict is not about the current version of the skill, which is {}", skill.version);
        return Err(Problem::conflict(why));
    }
    let rubric = judge_skill::lock_rubric(&app.jobs, &mut tx, org).await?.rubric;
    let (score, passed) = resolve_score(input.score, input.passed, rubric.pass_threshold)?;
    let external_ref = input.external_ref.unwrap_or_default();
    let evaluation = Evaluation {
        id: app.services.ids.new_id(),
        org_id: org,
        skill_id: id,
        skill_version: skill.version,
        content_hash: skill.content_hash,
        rubric_config_id: None,
        axes: input.axes.map_or_else(|| single_axis(score, &external_ref), as_axes),
        overall_score: score,
        passed,
        judge_provider: source.clone(),
        judge_model: "external".to_owned(),
        latency_ms: 0,
        prompt_tokens: 0,
        completion_tokens: 0,
        source,
        external_ref,
        created_at: app.services.clock.now(),
    };
    skills::insert_evaluation(&mut tx, &evaluation, &evaluation.id.to_string()).await?;
    let verdict = json!({"skill_id": id, "version": skill.version, "score": score, "passed": passed});
    tx.record(app.entry().target(evaluation.id, &evaluation.source).created(&verdict));
    tx.commit().await?;
    Ok(evaluation.into())
}

fn as_axes(given: BTreeMap<String, AxisInput>) -> Axes {
    let axis = |AxisInput { score, rationale }| Axis { score, rationale };
    given.into_iter().map(|(name, given)| (name, axis(given))).collect()
}

async fn store_on_log(
    app: &Audited,
    org: OrgId,
    log_id: i64,
    source: String,
    input: EvalSubmission,
) -> ApiResult<LogVerdictView> {
    let (score, passed) = resolve_score(input.score, input.passed, LOG_THRESHOLD)?;
    if !wait_for_row(app, org, log_id).await? {
        return Err(Problem::not_found());
    }
    let verdict = LogVerdict {
        id: app.services.ids.new_id(),
        org_id: org,
        log_id,
        source,
        score,
        passed,
        details: input.details.unwrap_or_default(),
        external_ref: input.external_ref.unwrap_or_default(),
        created_at: app.services.clock.now(),
    };
    let export_job = ExportVerdicts { verdicts: vec![verdict.id], ..Default::default() };
    let export_job = export_job.if_needed(&app.jobs, org).await?;
    if export_job.is_some() && export_verdicts::is_behind(&app.jobs, org).await? {
        return Err(Problem::overloaded("too many verdicts wait for their export; try again shortly"));
    }
    let mut tx = app.services.db.begin().await?;
    verdicts::insert(&mut tx, &verdict).await?;
    let facts = json!({"log_id": log_id, "score": score, "passed": passed});
    tx.record(app.entry().target(verdict.id, &verdict.source).created(&facts));
    let queued = export_verdicts::enqueue(&app.jobs, &mut tx, org, export_job.as_ref()).await?;
    tx.commit().await?;
    if let Some(queued) = queued {
        queued.notify(&app.jobs);
    }
    Ok(verdict.into())
}

async fn wait_for_row(app: &App, org: OrgId, id: i64) -> ApiResult<bool> {
    let age = app.services.clock.now().0 - log_id_time(id).0;
    let mut remaining =
        if (-SECOND..RECENT_ROW_AGE).contains(&age) { ROW_WAIT_TIMEOUT } else { Duration::ZERO };
    let stored = app.current_logs(org).await;
    // Other nodes may have rows that are not stored yet.
    loop {
        if logs::find(stored, org, id).await?.is_some() {
            return Ok(true);
        }
        if remaining.is_zero() {
            return Ok(false);
        }
        remaining = remaining.saturating_sub(ROW_POLL_INTERVAL);
        tokio::time::sleep(ROW_POLL_INTERVAL).await;
    }
}

fn subject(input: &EvalSubmission) -> ApiResult<Subject> {
    let found = match input.subject_type.as_str() {
        Some("skill") => {
            let id = input.subject_id.as_str().and_then(|id| id.parse().ok());
            id.map(Subject::Skill).ok_or("subject_id: must be the UUID of a skill")
        }
        Some("log") => {
            input.subject_id.as_i64().map(Subject::Log).ok_or("subject_id: must be the id of a log row")
        }
        _ => Err("subject_type: must be one of skill, log"),
    };
    found.map_err(|why| Problem::new(StatusCode::BAD_REQUEST, "invalid_subject", why))
}

/// Checks the scores. The threshold does not matter for that.
fn check_scores(input: &EvalSubmission) -> ApiResult<()> {
    resolve_score(input.score, input.passed, 0.0)?;
    let axes = input.axes.iter().flatten();
    match axes.map(|(name, axis)| (name, axis.score)).find(|(_, score)| !(0.0..=1.0).contains(score)) {
        None => Ok(()),
        Some((name, _)) => {
            let name: String = name.chars().take(MAX_AXIS_NAME).collect();
            let why = format!("axes.{name}.score: must be a number from 0 to 1");
            Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_score", why))
        }
    }
}

fn check_sizes(input: &EvalSubmission) -> ApiResult<()> {
    let axes = input.axes.iter().flatten();
    let large_axis = |(name, axis): (&String, &AxisInput)| {
        name.is_empty()
            || name.chars().count() > MAX_AXIS_NAME
            || axis.rationale.chars().count() > MAX_RATIONALE
    };
    let invalid = if input.axes.as_ref().is_some_and(|axes| axes.len() > MAX_AXES) {
        Some(format!("axes: must have at most {MAX_AXES} axes"))
    } else if axes.into_iter().any(large_axis) {
        Some(format!(
            "axes: names must be 1 to {MAX_AXIS_NAME} characters long, rationales at most {MAX_RATIONALE}"
        ))
    } else if input.external_ref.as_ref().is_some_and(|text| text.chars().count() > MAX_EXTERNAL_REF) {
        Some(format!("external_ref: must be at most {MAX_EXTERNAL_REF} characters long"))
    } else {
        let bytes = input.details.as_ref().and_then(|details| serde_json::to_vec(details).ok());
        let large = bytes.is_some_and(|bytes| bytes.len() > MAX_DETAILS_BYTES);
        large.then(|| format!("details: must be at most {MAX_DETAILS_BYTES} bytes of JSON"))
    };
    invalid.map_or(Ok(()), |why| Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_request", why)))
}

impl From<VerdictError> for Problem {
    fn from(error: VerdictError) -> Self {
        let code = match error {
            VerdictError::Source | VerdictError::Reserved => "invalid_source",
            VerdictError::Score => "invalid_score",
            VerdictError::Nothing => "invalid_request",
        };
        Self::new(StatusCode::BAD_REQUEST, code, error.to_string())
    }
}

#[derive(Deserialize, JsonSchema)]
struct ListParams {
    #[schemars(with = "i64", required)]
    log_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LogEvalResultList")]
struct VerdictList {
    results: Vec<LogVerdictView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer, Integrations>,
    PagedQuery { page, filter: params }: PagedQuery<ListParams>,
) -> ApiResult<Json<VerdictList>> {
    let missing = || Problem::new(StatusCode::BAD_REQUEST, "missing_log_id", "log_id: is required");
    let invalid =
        || Problem::new(StatusCode::BAD_REQUEST, "invalid_log_id", "log_id: must be a whole number");
    let log_id = params.log_id.ok_or_else(missing)?.parse().map_err(|_| invalid())?;
    let found = verdicts::list(&app.services.db, caller.org.id, log_id, &page.page()?).await?;
    let (results, next_cursor) = page::into_views(found);
    Ok(Json(VerdictList { results, next_cursor }))
}
