//! Saved views of the Logs, Usage and Sessions pages: private to who made them, or shared with the organization.

use axum::extract::State;
use gateway_core::access::Role;
use gateway_core::ids::ViewId;
use gateway_core::query;
use gateway_core::time::Timestamp;
use gateway_core::views::{Definition, MAX_PRIVATE_VIEWS, MAX_VIEWS, ViewPage, check_name};
use gateway_store::views::{self as store, StoredView};
use gateway_store::{Tx, members, orgs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::audited::Audited;
use super::caller::{AppState, InOrg, Viewer, require_role};
use super::extract::{Body, PagedQuery, PathParam, double_option};
use super::openapi::Area;
use super::page;
use super::query::query_problem;
use super::response::{Created, Deleted, Json};
use crate::auth::{Identity, Principal};
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("views", "Saved queries of the pages Logs, Usage and Sessions, private or shared.")
        .get("/orgs/{orgId}/views", list, "List the caller's views and the shared ones, newest first")
        .post("/orgs/{orgId}/views", create, "Save a view; a shared one requires the role member")
        .get("/orgs/{orgId}/views/{viewId}", get, "Get a view of the caller or a shared one")
        .patch(
            "/orgs/{orgId}/views/{viewId}",
            update,
            "Change a view; a shared one is changed by its creator and admins. Omitted fields stay unchanged",
        )
        .delete(
            "/orgs/{orgId}/views/{viewId}",
            delete,
            "Delete a view; a shared one is deleted by its creator and admins",
        )
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "View")]
struct ViewView {
    id: ViewId,
    name: String,
    page: ViewPage,
    query: String,
    columns: Option<Vec<String>>,
    sort: Option<String>,
    by: Option<String>,
    range: Option<String>,
    shared: bool,
    /// The id of the user or key that made it.
    created_by: String,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<StoredView> for ViewView {
    fn from(view: StoredView) -> Self {
        let StoredView { id, org_id: _, owner, name, page, definition, shared, created_at, updated_at } =
            view;
        let Definition { query, columns, sort, by, range } = definition;
        Self {
            id,
            name,
            page,
            query,
            columns,
            sort,
            by,
            range,
            shared,
            created_by: owner,
            created_at,
            updated_at,
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct ViewList {
    views: Vec<ViewView>,
    next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct ViewFilter {
    /// Only the views of this page.
    page: Option<ViewPage>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PagedQuery { page, filter }: PagedQuery<ViewFilter>,
) -> ApiResult<Json<ViewList>> {
    let (org, reader) = (caller.org.id, caller.actor());
    let found = store::list(&app.services.db, (org, &reader), filter.page, &page.page()?).await?;
    let (views, next_cursor) = page::into_views(found);
    Ok(Json(ViewList { views, next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<ViewId>,
) -> ApiResult<Json<ViewView>> {
    let found = store::find(&app.services.db, caller.org.id, id, &caller.actor()).await?;
    found.map(|view| Json(view.into())).ok_or_else(Problem::not_found)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewView {
    /// 1 to 80 characters; unique among the views of its creator.
    name: String,
    page: ViewPage,
    /// In the query language of `GET /logs`. Default: all rows.
    #[serde(default)]
    query: String,
    /// The names of the columns that are shown, in their order; up to 40. Null: those of the reader.
    columns: Option<Vec<String>>,
    /// For `logs`: `time`, `latency`, `cost` or `tokens`; for `usage`: `cost`, `requests`, `errors`, `in`, `out` or
    /// `p95`. With `:asc` the lowest first.
    sort: Option<String>,
    /// For `usage`: what the requests are grouped by, as in `GET /usage/breakdown`. Null: that of the reader.
    by: Option<String>,
    /// A span such as `24h` or `7d`, one of `today`, `yesterday`, `this-month` and `last-month`, or two times with `..`
    /// between them. Null: the range of the reader.
    range: Option<String>,
    /// Whether the organization sees it. Default: false.
    #[serde(default)]
    shared: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ViewChange {
    name: Option<String>,
    query: Option<String>,
    /// Null removes them.
    #[serde(default, deserialize_with = "double_option")]
    columns: Option<Option<Vec<String>>>,
    /// Null removes it.
    #[serde(default, deserialize_with = "double_option")]
    sort: Option<Option<String>>,
    /// Null removes it.
    #[serde(default, deserialize_with = "double_option")]
    by: Option<Option<String>>,
    /// Null removes it.
    #[serde(default, deserialize_with = "double_option")]
    range: Option<Option<String>>,
    /// Only its creator makes a shared view private.
    shared: Option<bool>,
}

const DUPLICATE: &str =
    "you already have a view with this name; change it with PATCH, or choose another name";

async fn create(
    app: Audited,
    caller: InOrg<Viewer>,
    Body(new): Body<NewView>,
) -> ApiResult<Created<ViewView>> {
    let NewView { name, page, query, columns, sort, by, range, shared } = new;
    let (now, org) = (app.services.clock.now(), caller.org.id);
    let view = StoredView {
        id: app.services.ids.new_id(),
        org_id: org,
        owner: caller.actor(),
        name,
        page,
        definition: Definition { query, columns, sort, by, range },
        shared,
        created_at: now,
        updated_at: now,
    };
    check(&view)?;
    check_visibility(&caller, shared)?;
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    // A removal meanwhile has deleted the member's views, and none may be added after it.
    if let Principal::User { id, .. } = caller.principal
        && members::find(&mut tx, org, id).await?.is_none()
    {
        return Err(Problem::not_found());
    }
    check_count(&mut tx, &view, true).await?;
    store::insert(&mut tx, &view).await.map_err(Problem::on_duplicate(DUPLICATE))?;
    tx.record(app.entry().target(view.id, shown_name(&view)).created(&state(&view)));
    tx.commit().await?;
    Ok(Created(view.into()))
}

async fn update(
    app: Audited,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<ViewId>,
    Body(change): Body<ViewChange>,
) -> ApiResult<Json<ViewView>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    let before = changeable(&mut tx, &caller, id).await?;
    let mut view = StoredView { updated_at: app.services.clock.now(), ..before.clone() };
    let ViewChange { name, query, columns, sort, by, range, shared } = change;
    view.name = name.unwrap_or(view.name);
    view.shared = shared.unwrap_or(view.shared);
    let definition = &mut view.definition;
    definition.query = query.unwrap_or_else(|| std::mem::take(&mut definition.query));
    definition.columns = columns.unwrap_or_else(|| definition.columns.take());
    definition.sort = sort.unwrap_or_else(|| definition.sort.take());
    definition.by = by.unwrap_or_else(|| definition.by.take());
    definition.range = range.unwrap_or_else(|| definition.range.take());
    check(&view)?;
    check_visibility(&caller, view.shared)?;
    if before.shared && !view.shared {
        if before.owner != caller.actor() {
            let why = "only its creator can make a shared view private; delete it instead";
            return Err(Problem::forbidden(why));
        }
        check_count(&mut tx, &view, false).await?;
    }
    store::update(&mut tx, &view).await.map_err(Problem::on_duplicate(DUPLICATE))?;
    tx.record(app.entry().named(shown_name(&view)).changed(&state(&before), &state(&view)));
    tx.commit().await?;
    Ok(Json(view.into()))
}

async fn delete(
    app: Audited,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<ViewId>,
) -> ApiResult<Json<Deleted>> {
    let mut tx = app.services.db.begin().await?;
    let view = changeable(&mut tx, &caller, id).await?;
    store::delete(&mut tx, caller.org.id, id).await?;
    tx.record(app.entry().named(shown_name(&view)).deleted(&state(&view)));
    tx.commit().await?;
    Ok(Deleted::yes())
}

/// A view that the caller made, or for admins a shared one. Others' private views look missing.
async fn changeable(tx: &mut Tx, caller: &Identity, id: ViewId) -> ApiResult<StoredView> {
    let actor = caller.actor();
    let view = store::find_for_update(tx, caller.org.id, id, &actor).await?.ok_or_else(Problem::not_found)?;
    if view.owner != actor && caller.role < Role::Admin {
        let why = "a shared view is changed by its creator and by admins; save a view of your own instead";
        return Err(Problem::forbidden(why));
    }
    Ok(view)
}

fn check(view: &StoredView) -> ApiResult<()> {
    check_name(&view.name).map_err(|why| Problem::field("name", why))?;
    view.definition.check(view.page).map_err(|(field, why)| Problem::field(field, why))?;
    query::parse(&view.definition.query).map(|_| ()).map_err(query_problem)
}

/// Viewers have private views only. A key has none, because nobody could see them after it was revoked.
fn check_visibility(caller: &Identity, shared: bool) -> ApiResult<()> {
    if shared {
        return require_role(Role::Member, caller);
    }
    match caller.principal {
        Principal::User { .. } => Ok(()),
        Principal::Key(_) | Principal::Org => {
            let why = "must be true: a private view belongs to a person; use a session token for one";
            Err(Problem::field("shared", why))
        }
    }
}

/// Requires the lock of the organization.
async fn check_count(tx: &mut Tx, view: &StoredView, is_new: bool) -> ApiResult<()> {
    let (views, own_private) = store::count(tx, view.org_id, &view.owner).await?;
    let reaches = |count: i64, max: usize| usize::try_from(count).unwrap_or(usize::MAX) >= max;
    let why = if is_new && reaches(views, MAX_VIEWS) {
        format!("the organization already has the maximum of {MAX_VIEWS} views; delete one first")
    } else if !view.shared && reaches(own_private, MAX_PRIVATE_VIEWS) {
        format!(
            "you already have the maximum of {MAX_PRIVATE_VIEWS} private views; delete or share one first"
        )
    } else {
        return Ok(());
    };
    Err(Problem::conflict(why))
}

/// Admins read the audit log, so it has nothing of what is private.
fn state(view: &StoredView) -> Value {
    let StoredView { name, page, definition, shared, .. } = view;
    if !shared {
        return json!({"page": page, "shared": false});
    }
    let Definition { query, columns, sort, by, range } = definition;
    json!({
        "name": name, "page": page, "query": query, "columns": columns, "sort": sort, "by": by, "range": range,
        "shared": true,
    })
}

fn shown_name(view: &StoredView) -> &str {
    if view.shared { &view.name } else { "private view" }
}
