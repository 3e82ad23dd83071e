//! Datasets: an editable working copy of test cases, and frozen versions of it. This file has datasets and versions;
//! cases, cases from log rows, import, and bulk reads (samples and exports) have their own files.

mod cases;
mod from_logs;
mod import;
mod read;

use axum::extract::State;
use gateway_core::accounts::check_name;
use gateway_core::datasets::{MAX_DESCRIPTION, MAX_NOTE};
use gateway_core::ids::{DatasetId, OrgId};
use gateway_core::quotas::Quota;
use gateway_core::time::Timestamp;
use gateway_store::datasets::{self, Dataset, DatasetChanges, DatasetVersion, Edition};
use gateway_store::partial_deletion::RowsToDelete;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audited::Audited;
use super::caller::{AppState, Caller, Member, Viewer};
use super::extract::{Body, OptionalBody, PathParam, QueryParams};
use super::large_deletions::delete_large_parts;
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::problem::{ApiResult, Problem};
use crate::quotas;

pub fn area() -> Area {
    Area::new("datasets", "Versioned collections of test cases.")
        .post("/datasets", create, "Create an empty dataset")
        .get("/datasets", list, "List the datasets, newest first")
        .get("/datasets/{datasetId}", get, "Get a dataset")
        .put("/datasets/{datasetId}", update, "Update name or description")
        .delete("/datasets/{datasetId}", delete, "Delete a dataset with all its versions")
        .get("/datasets/{datasetId}/versions", versions, "List the frozen versions, newest first")
        .post("/datasets/{datasetId}/versions", freeze, "Freeze the working copy as the next version")
        .get(
            "/datasets/{datasetId}/cases",
            cases::list_cases,
            "List the cases of the working copy or of a version",
        )
        .post("/datasets/{datasetId}/cases", cases::add_cases, "Add one case, or several as `cases`")
        .put("/datasets/{datasetId}/cases/{caseId}", cases::update_case, "Update a case of the working copy")
        .delete(
            "/datasets/{datasetId}/cases/{caseId}",
            cases::remove_case,
            "Remove a case from the working copy",
        )
        .post(
            "/datasets/{datasetId}/from-logs",
            from_logs::from_logs,
            "Create cases from given log rows, or from the latest that match a query",
        )
        .post(
            "/datasets/{datasetId}/import",
            import::import,
            "Import the rows of a file: all of them or none",
        )
        .post("/datasets/{datasetId}/sample", read::sample, "Draw a random sample, repeatable with a seed")
        .get("/datasets/{datasetId}/export", read::export, "Export all cases as a file")
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Dataset")]
struct DatasetView {
    id: DatasetId,
    name: String,
    description: String,
    /// The latest frozen version; 0 if there is none.
    current_version: i64,
    /// The number of cases in the working copy.
    case_count: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<Dataset> for DatasetView {
    fn from(dataset: Dataset) -> Self {
        let Dataset { id, name, description, current_version, case_count, created_at, updated_at } = dataset;
        Self { id, name, description, current_version, case_count, created_at, updated_at }
    }
}

#[derive(Deserialize, JsonSchema)]
struct NewDataset {
    /// At most 200 characters.
    name: String,
    /// At most 4096 characters.
    description: Option<String>,
}

async fn create(
    app: Audited,
    caller: Caller<Member>,
    Body(request): Body<NewDataset>,
) -> ApiResult<Created<DatasetView>> {
    check_texts(Some(&request.name), request.description.as_deref())?;
    let now = app.services.clock.now();
    let dataset = Dataset {
        id: app.services.ids.new_id(),
        name: request.name,
        description: request.description.unwrap_or_default(),
        current_version: 0,
        case_count: 0,
        created_at: now,
        updated_at: now,
    };
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Datasets).await?;
    datasets::insert(&mut tx, caller.org.id, &dataset).await?;
    let created = DatasetView::from(dataset.clone());
    tx.record(app.entry().target(dataset.id, &dataset.name).created(&created));
    tx.commit().await?;
    Ok(Created(dataset.into()))
}

#[derive(Serialize, JsonSchema)]
struct DatasetList {
    datasets: Vec<DatasetView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<DatasetList>> {
    let found = datasets::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let (datasets, next_cursor) = page::into_views(found);
    Ok(Json(DatasetList { datasets, next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(id): PathParam<DatasetId>,
) -> ApiResult<Json<DatasetView>> {
    let found = datasets::find(&app.services.db, caller.org.id, id).await?;
    found.map(|dataset| Json(dataset.into())).ok_or_else(Problem::not_found)
}

#[derive(Deserialize, JsonSchema)]
struct DatasetChange {
    name: Option<String>,
    description: Option<String>,
}

async fn update(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    Body(DatasetChange { name, description }): Body<DatasetChange>,
) -> ApiResult<Json<DatasetView>> {
    check_texts(name.as_deref(), description.as_deref())?;
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let before = datasets::find_for_update(&mut tx, caller.org.id, id).await?;
    let before = before.ok_or_else(Problem::not_found)?;
    let changes = DatasetChanges { name: name.as_deref(), description: description.as_deref(), now };
    let changed = datasets::update(&mut tx, caller.org.id, id, changes).await?;
    let changed: DatasetView = changed.ok_or_else(Problem::not_found)?.into();
    tx.record(app.entry().named(&changed.name).changed(&DatasetView::from(before), &changed));
    tx.commit().await?;
    Ok(Json(changed))
}

async fn delete(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
) -> ApiResult<Json<Deleted>> {
    delete_large_parts(&app, caller.org.id, RowsToDelete::Dataset(id)).await?;
    let mut tx = app.services.db.begin().await?;
    let before = datasets::find_for_update(&mut tx, caller.org.id, id).await?;
    let before = DatasetView::from(before.ok_or_else(Problem::not_found)?);
    datasets::delete(&mut tx, caller.org.id, id).await?;
    tx.record(app.entry().named(&before.name).deleted(&before));
    tx.commit().await?;
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DatasetVersion")]
struct VersionView {
    version: i64,
    case_count: i64,
    note: Option<String>,
    /// The id of the user or key that created it.
    created_by: Option<String>,
    created_at: Timestamp,
}

impl From<DatasetVersion> for VersionView {
    fn from(version: DatasetVersion) -> Self {
        let DatasetVersion { version, case_count, note, created_by, created_at } = version;
        Self { version, case_count, note, created_by, created_at }
    }
}

#[derive(Serialize, JsonSchema)]
struct DatasetVersionList {
    versions: Vec<VersionView>,
    next_cursor: Option<String>,
}

async fn versions(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(id): PathParam<DatasetId>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<DatasetVersionList>> {
    let page = params.numeric_page()?;
    dataset(&app, caller.org.id, id).await?;
    let found = datasets::list_versions(&app.services.db, caller.org.id, id, &page).await?;
    let (versions, next_cursor) = page::into_views(found);
    Ok(Json(DatasetVersionList { versions, next_cursor }))
}

#[derive(Deserialize, JsonSchema, Default)]
struct Freeze {
    /// At most 1024 characters.
    note: Option<String>,
}

async fn freeze(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    OptionalBody(Freeze { note }): OptionalBody<Freeze>,
) -> ApiResult<Created<VersionView>> {
    check_length("note", note.as_deref(), MAX_NOTE)?;
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let dataset =
        datasets::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    quotas::check_version("dataset", dataset.current_version + 1)?;
    let version = datasets::freeze(&mut tx, &dataset, note.as_deref(), &caller.actor(), now).await?;
    let (from, to) = (json!({"version": dataset.current_version}), json!({"version": version.version}));
    tx.record(app.entry().named(&dataset.name).changed(&from, &to));
    tx.commit().await?;
    Ok(Created(version.into()))
}

async fn dataset(app: &App, org: OrgId, id: DatasetId) -> ApiResult<Dataset> {
    datasets::find(&app.services.db, org, id).await?.ok_or_else(Problem::not_found)
}

/// The working copy or a version of a dataset, after checking that it exists.
async fn edition(app: &App, org: OrgId, id: DatasetId, version: Option<i64>) -> ApiResult<Edition> {
    let Some(number) = version else {
        dataset(app, org, id).await?;
        return Ok(Edition::Working);
    };
    if number < 1 {
        return Err(Problem::field("version", "must be a whole number of at least 1"));
    }
    datasets::find_version(&app.services.db, org, id, number).await?.ok_or_else(Problem::not_found)?;
    Ok(Edition::Frozen(number))
}

fn check_texts(name: Option<&str>, description: Option<&str>) -> ApiResult<()> {
    name.map_or(Ok(()), check_name).map_err(|why| Problem::field("name", why))?;
    check_length("description", description, MAX_DESCRIPTION)
}

fn check_length(field: &str, text: Option<&str>, max: usize) -> ApiResult<()> {
    match text {
        Some(text) if text.chars().count() > max => {
            Err(Problem::field(field, format!("must be at most {max} characters long")))
        }
        _ => Ok(()),
    }
}
