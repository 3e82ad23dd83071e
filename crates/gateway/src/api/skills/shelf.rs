//! The shelf of all organizations: published skills, in their published version.

use axum::extract::State;
use gateway_core::ids::SkillId;
use gateway_core::quotas::Quota;
use gateway_core::skills::{SkillChange, adoption};
use gateway_store::skills::{self, NewSkill, ShelfFilter, ShelfSort};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::files::{FileContent, FilePath, check_room};
use super::manage::{SkillList, commit_and_judge, stored};
use super::view::{KnownEtags, SkillFile, SkillView};
use super::{Reader, Writer, coded};
use crate::api::audited::Audited;
use crate::api::caller::AppState;
use crate::api::extract::{PagedQuery, PathParam, ResponseRoom};
use crate::api::page;
use crate::api::response::{Created, Json};
use crate::problem::{ApiResult, Problem};
use crate::quotas;

#[derive(Deserialize, JsonSchema)]
pub struct ShelfParams {
    /// Text that the name contains.
    name_like: Option<String>,
    /// Text that the description contains.
    description_like: Option<String>,
    /// Default: newest first. `score` sorts by the score of the gateway's own judge.
    sort: Option<SortParam>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum SortParam {
    Recent,
    Adoptions,
    Score,
}

pub async fn list_public(
    State(app): AppState,
    _caller: Reader,
    room: ResponseRoom,
    PagedQuery { page, filter: params }: PagedQuery<ShelfParams>,
) -> ApiResult<Json<SkillList>> {
    let filter = ShelfFilter { name: params.name_like, description: params.description_like };
    let sort = match params.sort {
        None | Some(SortParam::Recent) => ShelfSort::Recent,
        Some(SortParam::Adoptions) => ShelfSort::Adoptions,
        Some(SortParam::Score) => ShelfSort::Score,
    };
    let (db, page) = (&app.services.db, page.page()?);
    let found = skills::list_shelf(db, &filter, sort, &page, |bytes| room.reserve(bytes)).await?;
    let (skills, next_cursor) = page::into_views(found);
    Ok(Json(SkillList { skills, next_cursor }))
}

pub async fn get_public(
    State(app): AppState,
    _caller: Reader,
    PathParam(id): PathParam<SkillId>,
) -> ApiResult<Json<SkillView>> {
    let found = skills::find_on_shelf(&app.services.db, id).await?;
    found.map(|skill| Json(skill.into())).ok_or_else(Problem::not_found)
}

pub async fn public_file(
    State(app): AppState,
    _caller: Reader,
    PathParam(id): PathParam<SkillId>,
    known: KnownEtags,
) -> ApiResult<SkillFile> {
    let skill = skills::find_on_shelf(&app.services.db, id).await?.ok_or_else(Problem::not_found)?;
    SkillFile::new(&skill.source, &known)
}

pub async fn public_extra_file(
    State(app): AppState,
    _caller: Reader,
    PathParam(id): PathParam<SkillId>,
    PathParam(path): PathParam<FilePath>,
) -> ApiResult<FileContent> {
    let skill = skills::find_on_shelf(&app.services.db, id).await?.ok_or_else(Problem::not_found)?;
    FileContent::load(&app, id, &skill.files, &path).await
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AdoptedSkill")]
pub struct AdoptedView {
    skill: SkillView,
    /// True if the name was already taken and a suffix was added.
    renamed: bool,
    name: String,
}

/// Copies the published version. The insert decides which name is free, so that concurrent adoptions are safe.
pub async fn adopt(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<SkillId>,
) -> ApiResult<Created<AdoptedView>> {
    let org = caller.org.id;
    let (new_id, now, by) = (app.services.ids.new_id(), app.services.clock.now(), caller.actor());
    let mut tx = app.services.db.begin().await?;
    let origin = skills::record_adoption(&mut tx, id).await?.ok_or_else(Problem::not_found)?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Skills).await?;
    let base = &origin.source.name;
    for name in adoption::candidate_names(base) {
        let source = if name == *base {
            origin.source.clone()
        } else {
            origin.source.changed(&SkillChange { name: Some(name.clone()), ..SkillChange::default() })?
        };
        let adopted = Some((origin.id, origin.version));
        let new = NewSkill { id: new_id, source: &source, files: &origin.files, adopted, by: &by, now };
        if skills::insert(&mut tx, org, &new).await? {
            check_room(&mut tx, org, origin.files.total_bytes()).await?;
            skills::copy_blobs(&mut tx, origin.id, new_id, &origin.files).await?;
            let created = json!({"name": name, "adopted_from": origin.id, "version": origin.version});
            tx.record(app.entry().target(new_id, &name).created(&created));
            commit_and_judge(&app, tx, &caller, new_id, 1).await?;
            let skill = stored(&app, &caller, new_id).await?;
            return Ok(Created(AdoptedView { skill, renamed: name != *base, name }));
        }
    }
    let why = format!("the organization already has a skill named '{base}' and a hundred copies of it");
    Err(coded(StatusCode::CONFLICT, "duplicate_name", why))
}
