//! The rubric by which the skills of an organization are judged.

use std::collections::BTreeMap;

use axum::extract::State;
use gateway_core::ids::{OrgId, RubricId};
use gateway_core::skills::rubric::{AllowFiles, BUILTIN, Rubric, RubricChange};
use gateway_core::time::Timestamp;
use gateway_store::rubrics::{self, StoredRubric};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Reader, Writer, coded};
use crate::api::audited::Audited;
use crate::api::caller::AppState;
use crate::api::extract::{Body, PathParam};
use crate::api::response::Json;
use crate::auth::{Identity, Principal};
use crate::jobs::judge_skill;
use crate::problem::{ApiResult, Problem};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RubricConfig")]
pub struct RubricView {
    id: RubricId,
    org_id: OrgId,
    judge_provider: String,
    judge_model: String,
    embed_provider: String,
    embed_model: String,
    embed_dims: i64,
    weights: BTreeMap<String, f64>,
    pass_threshold: f64,
    allowed_verdict_sources: Vec<String>,
    /// Which files beside SKILL.md are no finding.
    allow_files: AllowFiles,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<StoredRubric> for RubricView {
    fn from(stored: StoredRubric) -> Self {
        let StoredRubric { id, org_id, rubric, revision: _, created_at, updated_at } = stored;
        let Rubric {
            judge_provider,
            judge_model,
            embed_provider,
            embed_model,
            embed_dims,
            weights,
            pass_threshold,
            allowed_verdict_sources,
            allow_files,
        } = rubric;
        Self {
            id,
            org_id,
            judge_provider,
            judge_model,
            embed_provider,
            embed_model,
            embed_dims,
            weights,
            pass_threshold,
            allowed_verdict_sources,
            allow_files,
            created_at,
            updated_at,
        }
    }
}

pub async fn get_rubric(State(app): AppState, caller: Reader) -> ApiResult<Json<RubricView>> {
    if let Some(stored) = rubrics::find(&app.services.db, caller.org.id).await? {
        return Ok(Json(stored.into()));
    }
    let mut tx = app.services.db.begin().await?;
    let stored = judge_skill::lock_rubric(&app.jobs, &mut tx, caller.org.id).await?;
    tx.commit().await?;
    Ok(Json(stored.into()))
}

pub async fn update_rubric(
    app: Audited,
    caller: Writer,
    PathParam(id): PathParam<RubricId>,
    Body(change): Body<RubricChange>,
) -> ApiResult<Json<RubricView>> {
    let mut tx = app.services.db.begin().await?;
    // An invalid change is reported before a missing rubric.
    judge_skill::default_rubric(&app.services)
        .changed(change.clone())
        .map_err(|(field, why)| invalid(field, &why))?;
    let stored =
        rubrics::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let rubric = stored.rubric.clone().changed(change).map_err(|(field, why)| invalid(field, &why))?;
    check_scopes(&caller, &stored.rubric, &rubric)?;
    if rubric != stored.rubric {
        rubrics::update(&mut tx, id, &rubric, app.services.clock.now()).await?;
        let after = StoredRubric { rubric, ..stored.clone() };
        tx.record(app.entry().changed(&RubricView::from(stored), &RubricView::from(after)));
        tx.commit().await?;
    }
    let stored = rubrics::find(&app.services.db, caller.org.id).await?.ok_or_else(Problem::not_found)?;
    Ok(Json(stored.into()))
}

fn invalid(field: &str, why: &str) -> Problem {
    coded(StatusCode::BAD_REQUEST, "invalid_body", format!("{field}: {why}"))
}

/// The judge calls models on behalf of the organization, so a key cannot choose a model outside its scopes.
fn check_scopes(caller: &Identity, before: &Rubric, after: &Rubric) -> ApiResult<()> {
    let Principal::Key(key) = &caller.principal else { return Ok(()) };
    let chosen = |rubric: &Rubric| {
        [
            (rubric.judge_provider.clone(), rubric.judge_model.clone()),
            (rubric.embed_provider.clone(), rubric.embed_model.clone()),
        ]
    };
    for (new, old) in chosen(after).into_iter().zip(chosen(before)) {
        if new != old && new.0 != BUILTIN && !key.scopes.allow(&new.0, Some(&new.1)) {
            let why = format!("the scopes of the key do not allow model '{}' of provider '{}'", new.1, new.0);
            return Err(coded(StatusCode::FORBIDDEN, "scope_denied", why));
        }
    }
    Ok(())
}
