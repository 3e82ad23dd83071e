//! Publishing, unpublishing and evaluations. Publishing locks the skill and the rubric in one transaction, so that no
//! update, verdict or change of the rubric can happen in between.

use axum::extract::State;
use gateway_core::ids::{OrgId, SkillId};
use gateway_core::skills::gate::{self, PublishContext, PublishDecision};
use gateway_core::skills::judge::safety::{self, FindingKind, ScanRecord};
use gateway_core::skills::judge::{compare, embedded_text};
use gateway_core::time::Timestamp;
use gateway_core::verdicts::INTERNAL_SOURCE;
use gateway_store::skills;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::manage::must_exist;
use super::view::EvaluationView;
use super::{Reader, Writer, coded};
use crate::api::audited::Audited;
use crate::api::caller::AppState;
use crate::api::extract::{PathParam, QueryParams};
use crate::api::page::{self, PageParams};
use crate::api::response::{Accepted, Json};
use crate::app::App;
use crate::compute::{Cancellation, WaitLimits};
use crate::jobs::judge_skill;
use crate::problem::{ApiResult, Problem};

/// The published version.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PublishedSkill")]
pub struct Published {
    published_at: Timestamp,
    published_version: i64,
}

/// How often the text may change between its scan and the lock.
const MAX_SCANS: usize = 5;

/// A short text is scanned in less time than it would wait for a thread.
const MAX_INLINE_BYTES: usize = 8 << 10;

pub async fn publish(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
) -> ApiResult<Json<Published>> {
    let org = caller.org.id;
    for _ in 0..MAX_SCANS {
        let (version, scanned, is_copy) = scan(&app, org, id).await?;
        let mut tx = app.services.db.begin().await?;
        let skill = skills::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
        if skill.version != version {
            continue;
        }
        let rubric = judge_skill::lock_rubric(&app.jobs, &mut tx, org).await?.rubric;
        let finding = scanned.first(rubric.allow_files);
        let mut votes = skills::list_votes(&mut tx, id, skill.version).await?;
        // The internal judge does not compare a copy with its origin.
        votes.retain(|vote| !is_copy || vote.source != INTERNAL_SOURCE);
        let decision = gate::decide(PublishContext {
            version: skill.version,
            published: skill.published_version,
            votes: &votes,
            allowed_sources: &rubric.allowed_verdict_sources,
            is_unsafe: finding.is_some(),
        });
        let live = skill.published_version.zip(skill.published_at);
        return match (decision, live) {
            (PublishDecision::Publish, _) => {
                let published_at = app.services.clock.now();
                skills::set_published(&mut tx, id, Some((skill.version, published_at))).await?;
                let entry = app.entry().named(&skill.source.name);
                tx.record(entry.created(&json!({"published_version": skill.version})));
                tx.commit().await?;
                Ok(Json(Published { published_at, published_version: skill.version }))
            }
            (PublishDecision::Keep, Some((published_version, published_at))) => {
                Ok(Json(Published { published_at, published_version }))
            }
            (PublishDecision::Keep | PublishDecision::Refuse, _) => {
                Err(not_publishable(id, version, (finding, is_copy)))
            }
        };
    }
    Err(Problem::conflict("the skill is being changed; try again"))
}

/// The current version, what the internal judge finds unsafe in it and in its files, and whether it is a copy of the
/// skill that it was adopted from. Before the transaction, because it takes time in proportion to the text.
async fn scan(app: &App, org: OrgId, id: SkillId) -> ApiResult<(i64, ScanRecord, bool)> {
    let skill = skills::find(&app.services.db, org, id).await?.ok_or_else(Problem::not_found)?;
    let is_copy = is_copy_of_origin(app, org, &skill).await?;
    let text = skill.source.raw_source;
    if text.len() <= MAX_INLINE_BYTES && skill.files.entries().is_empty() {
        return Ok((skill.version, ScanRecord::new(&safety::scan(&text)), is_copy));
    }
    let record = judge_skill::scan_version(&app.services, org, id, (text, &skill.files)).await?;
    Ok((skill.version, record, is_copy))
}

/// Whether an adopted skill still has the text of its origin, if that is on the shelf.
async fn is_copy_of_origin(app: &App, org: OrgId, skill: &skills::Skill) -> ApiResult<bool> {
    let Some(from) = skill.adopted else { return Ok(false) };
    let Some(origin) = skills::find_on_shelf(&app.services.db, from.skill).await? else { return Ok(false) };
    let source = skill.source.clone();
    let comparing = move |_: &Cancellation| {
        let (text, other) = (embedded_text(&source), embedded_text(&origin.source));
        compare(&origin.source.name, 0.0, "", &text, &other).is_copied()
    };
    Ok(app.services.compute.run(org, WaitLimits::REQUEST, comparing).await?)
}

fn not_publishable(id: SkillId, version: i64, (finding, is_copy): (Option<FindingKind>, bool)) -> Problem {
    let why = match finding {
        Some(kind) => {
            format!("version {version} is unsafe: the gateway's own judge found {}", kind.describe())
        }
        None if is_copy => {
            format!("version {version} is a copy of the skill that it was adopted from; change it first")
        }
        None => format!("version {version} has no passing evaluation from a source that the rubric allows"),
    };
    let mut problem = coded(StatusCode::CONFLICT, "not_publishable", why);
    problem.extra.insert("skill_id".into(), id.to_string().into());
    problem.extra.insert("version".into(), version.into());
    problem
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UnpublishedSkill")]
pub struct Unpublished {
    unpublished: bool,
}

pub async fn unpublish(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
) -> ApiResult<Json<Unpublished>> {
    let mut tx = app.services.db.begin().await?;
    let skill = skills::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    skills::set_published(&mut tx, id, None).await?;
    let entry = app.entry().named(&skill.source.name);
    tx.record(entry.deleted(&json!({"published_version": skill.published_version})));
    tx.commit().await?;
    Ok(Json(Unpublished { unpublished: true }))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EvaluationDispatch")]
pub struct Dispatched {
    dispatched: bool,
    /// False if the queue was full and the request was dropped. Try again later.
    queued: bool,
}

pub async fn evaluate(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
) -> ApiResult<Accepted<Dispatched>> {
    let mut tx = app.services.db.begin().await?;
    let skill = skills::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let queued =
        judge_skill::dispatch_on_request(&app.jobs, &mut tx, caller.org.id, id, skill.version).await?;
    let Some(queued) = queued else { return Ok(Accepted(Dispatched { dispatched: true, queued: false })) };
    tx.record(app.entry().named(&skill.source.name).created(&json!({"version": skill.version})));
    tx.commit().await?;
    queued.notify(&app.jobs);
    Ok(Accepted(Dispatched { dispatched: true, queued: true }))
}

#[derive(Serialize, JsonSchema)]
pub struct EvaluationList {
    evaluations: Vec<EvaluationView>,
    next_cursor: Option<String>,
}

pub async fn evaluations(
    State(app): AppState,
    caller: Reader,
    PathParam(id): PathParam<SkillId>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<EvaluationList>> {
    let page = params.page()?;
    must_exist(&app, &caller, id).await?;
    let found = skills::list_evaluations(&app.services.db, caller.org.id, id, &page).await?;
    let (evaluations, next_cursor) = page::into_views(found);
    Ok(Json(EvaluationList { evaluations, next_cursor }))
}
