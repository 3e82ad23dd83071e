//! Cases of the working copy: add, update and remove single cases.

use axum::extract::State;
use gateway_core::datasets::{Case, CaseContent, check_capacity};
use gateway_core::ids::{CaseId, DatasetId, OrgId};
use gateway_store::Tx;
use gateway_store::datasets::{self, Dataset, DatasetRef};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::edition;
use crate::api::audited::Audited;
use crate::api::caller::{AppState, Caller, Member, Viewer};
use crate::api::extract::{Body, PagedQuery, PathParam, ResponseRoom, double_option};
use crate::api::page;
use crate::api::response::{Created, Deleted, Json};
use crate::problem::{ApiResult, Problem};

/// Cases in one request. Larger sets are imported.
const MAX_ADDED: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
pub(super) struct CaseParams {
    /// A frozen version. Default: the working copy.
    #[schemars(range(min = 1))]
    version: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct CaseList {
    cases: Vec<Case>,
    next_cursor: Option<String>,
}

pub(super) async fn list_cases(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(id): PathParam<DatasetId>,
    room: ResponseRoom,
    PagedQuery { page, filter: params }: PagedQuery<CaseParams>,
) -> ApiResult<Json<CaseList>> {
    let page = page.page()?;
    let edition = edition(&app, caller.org.id, id, params.version).await?;
    let dataset = DatasetRef { org: caller.org.id, id, edition };
    let found = datasets::list_cases(&app.services.db, dataset, &page, |bytes| room.reserve(bytes)).await?;
    let (cases, next_cursor) = page::into_views(found);
    Ok(Json(CaseList { cases, next_cursor }))
}

/// One case, or several as `cases`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct NewCases {
    /// Any JSON except null.
    input: Option<Value>,
    expected: Option<Value>,
    metadata: Option<Value>,
    /// Up to 1000 cases, instead of the fields of a single case.
    cases: Option<Vec<NewCase>>,
}

#[derive(Deserialize, JsonSchema)]
struct NewCase {
    input: Option<Value>,
    expected: Option<Value>,
    metadata: Option<Value>,
}

/// The case, or `cases`, as in the request.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "AddedCases")]
pub(super) enum Added {
    One(Box<Case>),
    Many { cases: Vec<Case> },
}

pub(super) async fn add_cases(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    Body(request): Body<NewCases>,
) -> ApiResult<Created<Added>> {
    let NewCases { input, expected, metadata, cases } = request;
    let Some(cases) = cases else {
        let one = content(&NewCase { input, expected, metadata }).map_err(Problem::bad_request)?;
        let mut added = add_all(&app, caller.org.id, id, vec![one]).await?;
        let one = added.pop().ok_or_else(|| Problem::internal("the added case is missing"))?;
        return Ok(Created(Added::One(Box::new(one))));
    };
    if input.is_some() {
        return Err(Problem::field(
            "cases",
            "cannot be combined with input; send one case or a list of cases",
        ));
    }
    if !(1..=MAX_ADDED).contains(&cases.len()) {
        return Err(Problem::field("cases", format!("must have 1 to {MAX_ADDED} cases; import larger sets")));
    }
    let checked = cases.iter().enumerate().map(|(index, case)| {
        content(case).map_err(|why| Problem::bad_request(format!("cases[{index}].{why}")))
    });
    let checked = checked.collect::<ApiResult<Vec<_>>>()?;
    let cases = add_all(&app, caller.org.id, id, checked).await?;
    Ok(Created(Added::Many { cases }))
}

fn content(case: &NewCase) -> Result<CaseContent, String> {
    let NewCase { input, expected, metadata } = case;
    let value = |value: &Option<Value>| value.clone().unwrap_or_default();
    CaseContent::new(&value(input), &value(expected), &value(metadata))
}

pub(super) async fn add_all(
    app: &Audited,
    org: OrgId,
    id: DatasetId,
    contents: Vec<CaseContent>,
) -> ApiResult<Vec<Case>> {
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let dataset = lock_with_room(&mut tx, org, id, contents.len()).await?;
    let new: Vec<(CaseId, CaseContent)> =
        contents.into_iter().map(|content| (app.services.ids.new_id(), content)).collect();
    datasets::add_cases(&mut tx, &dataset, new.clone(), now).await?;
    datasets::update_case_count(&mut tx, &dataset, count(new.len()), now).await?;
    tx.record(app.entry().named(&dataset.name).created(&json!({"cases": new.len()})));
    tx.commit().await?;
    new.into_iter()
        .map(|(id, CaseContent { input, expected, metadata })| {
            let (input, expected, metadata) = (raw(input)?, raw(expected)?, raw(metadata)?);
            Ok(Case { id, input, expected, metadata, created_at: now, updated_at: now })
        })
        .collect()
}

/// Locks the dataset and checks that it can take `more` cases.
pub(super) async fn lock_with_room(
    tx: &mut Tx,
    org: OrgId,
    id: DatasetId,
    more: usize,
) -> ApiResult<Dataset> {
    let dataset = datasets::find_for_update(tx, org, id).await?.ok_or_else(Problem::not_found)?;
    check_capacity(dataset.case_count, count(more))
        .map_err(|why| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", why))?;
    Ok(dataset)
}

pub(super) fn count(cases: usize) -> i64 {
    i64::try_from(cases).unwrap_or(i64::MAX)
}

fn raw(json: String) -> ApiResult<Box<RawValue>> {
    RawValue::from_string(json).map_err(Problem::internal)
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct CaseChange {
    input: Option<Value>,
    /// Null removes the expectation.
    #[serde(default, deserialize_with = "double_option")]
    #[schemars(with = "Option<Value>")]
    expected: Option<Option<Value>>,
    #[serde(default, deserialize_with = "double_option")]
    #[schemars(with = "Option<Value>")]
    metadata: Option<Option<Value>>,
}

pub(super) async fn update_case(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    PathParam(case_id): PathParam<CaseId>,
    Body(CaseChange { input, expected, metadata }): Body<CaseChange>,
) -> ApiResult<Json<Case>> {
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let dataset =
        datasets::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let case = datasets::find_case(&mut tx, &dataset, case_id).await?.ok_or_else(Problem::not_found)?;
    let new = CaseContent::new(
        &input.map_or_else(|| stored(&case.input), Ok)?,
        &expected.map_or_else(|| stored(&case.expected), |value| Ok(value.unwrap_or_default()))?,
        &metadata.map_or_else(|| stored(&case.metadata), |value| Ok(value.unwrap_or_default()))?,
    )
    .map_err(Problem::bad_request)?;
    datasets::update_case(&mut tx, &dataset, &case, &new, now).await?;
    datasets::update_case_count(&mut tx, &dataset, 0, now).await?;
    tx.record(app.entry().named(&dataset.name).created(&json!({"case_id": case_id})));
    tx.commit().await?;
    let CaseContent { input, expected, metadata } = new;
    let (input, expected, metadata) = (raw(input)?, raw(expected)?, raw(metadata)?);
    Ok(Json(Case { input, expected, metadata, updated_at: now, ..case }))
}

fn stored(value: &RawValue) -> ApiResult<Value> {
    serde_json::from_str(value.get()).map_err(Problem::internal)
}

pub(super) async fn remove_case(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    PathParam(case_id): PathParam<CaseId>,
) -> ApiResult<Json<Deleted>> {
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let dataset =
        datasets::find_for_update(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    if !datasets::remove_case(&mut tx, &dataset, case_id).await? {
        return Err(Problem::not_found());
    }
    datasets::update_case_count(&mut tx, &dataset, -1, now).await?;
    tx.record(app.entry().named(&dataset.name).deleted(&json!({"case_id": case_id})));
    tx.commit().await?;
    Ok(Deleted::yes())
}
