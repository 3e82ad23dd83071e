//! Skills of an organization: create, read, update and delete.

use axum::extract::State;
use gateway_core::ids::SkillId;
use gateway_core::quotas::Quota;
use gateway_core::skills::files::FileList;
use gateway_core::skills::{SkillChange, SkillSource};
use gateway_store::skills::{self, NewSkill, SkillFilter};
use gateway_store::versioned::Versioned;
use gateway_store::{StoreError, Tx};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::view::{KnownEtags, SkillFile, SkillView, VersionView};
use super::{Reader, Writer, coded, duplicate_name};
use crate::api::audited::Audited;
use crate::api::caller::AppState;
use crate::api::extract::{Body, PagedQuery, PathParam, QueryParams, ResponseRoom, double_option};
use crate::api::large_deletions::VersionedDeletion;
use crate::api::page::{self, PageParams};
use crate::api::response::{Created, Deleted, Json};
use crate::app::App;
use crate::auth::Identity;
use crate::jobs::judge_skill;
use crate::problem::{ApiResult, Problem};
use crate::quotas;

#[derive(Deserialize, JsonSchema)]
pub struct ListParams {
    /// `private` or `public`. Default: both.
    visibility: Option<VisibilityParam>,
    /// Text that the name contains.
    name_like: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum VisibilityParam {
    Private,
    Public,
}

#[derive(Serialize, JsonSchema)]
pub struct SkillList {
    pub skills: Vec<SkillView>,
    pub next_cursor: Option<String>,
}

pub async fn list(
    State(app): AppState,
    caller: Reader,
    room: ResponseRoom,
    PagedQuery { page, filter: params }: PagedQuery<ListParams>,
) -> ApiResult<Json<SkillList>> {
    let public = params.visibility.map(|visibility| visibility == VisibilityParam::Public);
    let filter = SkillFilter { public, name: params.name_like };
    let (db, page) = (&app.services.db, page.page()?);
    let found = skills::list(db, caller.org.id, &filter, &page, |bytes| room.reserve(bytes)).await?;
    let (skills, next_cursor) = page::into_views(found);
    Ok(Json(SkillList { skills, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
pub struct SkillInput {
    /// A whole SKILL.md: YAML frontmatter with name and description, then the body. Overrides the other fields.
    raw_source: Option<String>,
    /// Lowercase words joined by hyphens, up to 64 characters.
    name: Option<String>,
    #[serde(default, deserialize_with = "double_option")]
    headline: Option<Option<String>>,
    /// Up to 1024 characters.
    description: Option<String>,
    #[serde(default, deserialize_with = "double_option")]
    body: Option<Option<String>>,
}

impl SkillInput {
    /// An empty text counts as absent.
    fn raw(&self) -> Option<&str> {
        self.raw_source.as_deref().filter(|raw| !raw.is_empty())
    }
}

pub async fn create(
    app: Audited,
    caller: Writer,
    Body(input): Body<SkillInput>,
) -> ApiResult<Created<SkillView>> {
    let source = new_source(input)?;
    let id = app.services.ids.new_id();
    let by = caller.actor();
    let files = FileList::default();
    let now = app.services.clock.now();
    let new = NewSkill { id, source: &source, files: &files, adopted: None, by: &by, now };
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Skills).await?;
    if !skills::insert(&mut tx, caller.org.id, &new).await? {
        return Err(duplicate_name(&source.name));
    }
    tx.record(app.entry().target(id, &source.name).created(&state(&source, 1)));
    commit_and_judge(&app, tx, &caller, id, 1).await?;
    stored(&app, &caller, id).await.map(Created)
}

fn new_source(input: SkillInput) -> ApiResult<SkillSource> {
    if let Some(raw) = input.raw() {
        return Ok(SkillSource::from_raw(raw)?);
    }
    let given = |field: Option<String>| field.filter(|text| !text.trim().is_empty());
    let (Some(name), Some(description)) = (given(input.name), given(input.description)) else {
        let why = "provide raw_source, or both name and description";
        return Err(coded(StatusCode::BAD_REQUEST, "missing_required", why));
    };
    let [headline, body] = [input.headline, input.body].map(|field| field.flatten().unwrap_or_default());
    Ok(SkillSource::from_fields(&name, &headline, &description, &body)?)
}

pub async fn get(
    State(app): AppState,
    caller: Reader,
    PathParam(id): PathParam<SkillId>,
) -> ApiResult<Json<SkillView>> {
    stored(&app, &caller, id).await.map(Json)
}

pub async fn update(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
    Body(input): Body<SkillInput>,
) -> ApiResult<Json<SkillView>> {
    // An invalid change is reported before a missing skill.
    let parsed = input.raw().map(SkillSource::from_raw).transpose()?;
    let change = SkillChange {
        name: input.name,
        headline: input.headline.map(Option::unwrap_or_default),
        description: input.description,
        body: input.body.map(Option::unwrap_or_default),
    };
    if parsed.is_none() {
        change.check()?;
    }
    let mut tx = app.services.db.begin().await?;
    let skill = skills::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let source = match parsed {
        Some(source) => source,
        None => skill.source.changed(&change)?,
    };
    if source == skill.source {
        return Ok(Json(skill.into()));
    }
    quotas::check_version("skill", skill.version + 1)?;
    let content = (&source, &skill.files);
    let updated = skills::update(&mut tx, &skill, content, &caller.actor(), app.services.clock.now()).await;
    // A concurrent request may have taken the name after the check.
    match updated {
        Ok(true) => {}
        Ok(false) | Err(StoreError::Duplicate) => return Err(duplicate_name(&source.name)),
        Err(error) => return Err(error.into()),
    }
    let (before, after) = (state(&skill.source, skill.version), state(&source, skill.version + 1));
    tx.record(app.entry().named(&source.name).changed(&before, &after));
    commit_and_judge(&app, tx, &caller, id, skill.version + 1).await?;
    stored(&app, &caller, id).await.map(Json)
}

pub async fn delete(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
) -> ApiResult<Json<Deleted>> {
    let mut deletion = VersionedDeletion::new(&app, caller.org.id, Versioned::Skill(id)).await?;
    let mut tx = app.services.db.begin().await?;
    let skill = skills::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    deletion.delete(&app, &mut tx).await?;
    tx.record(app.entry().named(&skill.source.name).deleted(&state(&skill.source, skill.version)));
    tx.commit().await?;
    deletion.finish(&app);
    Ok(Deleted::yes())
}

pub async fn file(
    State(app): AppState,
    caller: Reader,
    PathParam(id): PathParam<SkillId>,
    known: KnownEtags,
) -> ApiResult<SkillFile> {
    let skill = skills::find(&app.services.db, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    SkillFile::new(&skill.source, &known)
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SkillVersionList")]
pub struct VersionList {
    versions: Vec<VersionView>,
    next_cursor: Option<String>,
}

pub async fn versions(
    State(app): AppState,
    caller: Reader,
    PathParam(id): PathParam<SkillId>,
    room: ResponseRoom,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<VersionList>> {
    let page = params.page()?;
    must_exist(&app, &caller, id).await?;
    let (db, org) = (&app.services.db, caller.org.id);
    let found = skills::list_versions(db, org, id, &page, |bytes| room.reserve(bytes)).await?;
    let (versions, next_cursor) = page::into_views(found);
    Ok(Json(VersionList { versions, next_cursor }))
}

/// What the audit log shows of a skill.
pub fn state(source: &SkillSource, version: i64) -> Value {
    json!({"name": source.name, "description": source.description, "version": version})
}

/// Commits a new version together with the job that judges it.
pub async fn commit_and_judge(
    app: &App,
    mut tx: Tx,
    caller: &Identity,
    id: SkillId,
    version: i64,
) -> ApiResult<()> {
    let queued = judge_skill::dispatch(&app.jobs, &mut tx, caller.org.id, id, version).await?;
    tx.commit().await?;
    if let Some(queued) = queued {
        queued.notify(&app.jobs);
    }
    Ok(())
}

pub async fn stored(app: &App, caller: &Identity, id: SkillId) -> ApiResult<SkillView> {
    let found = skills::find(&app.services.db, caller.org.id, id).await?;
    found.map(Into::into).ok_or_else(Problem::not_found)
}

pub async fn must_exist(app: &App, caller: &Identity, id: SkillId) -> ApiResult<()> {
    skills::find(&app.services.db, caller.org.id, id).await?.map(|_| ()).ok_or_else(Problem::not_found)
}
