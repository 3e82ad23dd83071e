//! Labels of a prompt: names such as `production` that point to a version and are moved.

use axum::extract::State;
use gateway_core::time::Timestamp;
use gateway_store::prompts::{self, PromptLabel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Label, PromptPath};
use crate::api::audited::Audited;
use crate::api::caller::{AppState, Caller, Member, Viewer};
use crate::api::extract::{Body, PathParam};
use crate::api::response::{Deleted, Json};
use crate::problem::{ApiResult, Problem};
use crate::prompts::{Change, LabelMove};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PromptLabel")]
pub(super) struct LabelView {
    label: String,
    version: i64,
    /// The version that the label pointed to before it was moved; null if it was never moved. Move the label there to
    /// roll back.
    previous_version: Option<i64>,
    /// The id of the user or key that set or moved it.
    updated_by: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<PromptLabel> for LabelView {
    fn from(label: PromptLabel) -> Self {
        let PromptLabel { prompt_id: _, name, version, previous_version, updated_by, created_at, updated_at } =
            label;
        Self { label: name, version, previous_version, updated_by, created_at, updated_at }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PromptLabelList")]
pub(super) struct LabelList {
    labels: Vec<LabelView>,
}

pub(super) async fn list_labels(
    State(app): AppState,
    caller: Caller<Viewer>,
    path: PromptPath,
) -> ApiResult<Json<LabelList>> {
    let found = prompts::list_labels(&app.services.db, caller.org.id, path.name()).await?;
    let labels = found.ok_or_else(Problem::not_found)?.into_iter().map(Into::into).collect();
    Ok(Json(LabelList { labels }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PromptLabelRequest")]
pub(super) struct LabelRequest {
    /// The version that the label points to from now on.
    #[schemars(range(min = 1))]
    version: i64,
    /// The version that the label points to now. The request fails with 409 if it is another one.
    #[schemars(range(min = 1))]
    expected_version: Option<i64>,
}

pub(super) async fn set_label(
    app: Audited,
    caller: Caller<Member>,
    path: PromptPath,
    PathParam(Label(label)): PathParam<Label>,
    Body(request): Body<LabelRequest>,
) -> ApiResult<Json<LabelView>> {
    let by = Change { author: &caller, entry: app.entry() };
    let to = LabelMove { version: request.version, expected: request.expected_version };
    let moved = app.proxy.prompts.move_label(by, path.name(), &label, to).await?;
    moved.ok_or_else(Problem::not_found).map(|label| Json(label.into()))
}

pub(super) async fn delete_label(
    app: Audited,
    caller: Caller<Member>,
    path: PromptPath,
    PathParam(Label(label)): PathParam<Label>,
) -> ApiResult<Json<Deleted>> {
    let by = Change { author: &caller, entry: app.entry() };
    if app.proxy.prompts.remove_label(by, path.name(), &label).await? {
        Ok(Deleted::yes())
    } else {
        Err(Problem::not_found())
    }
}
