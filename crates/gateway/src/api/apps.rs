//! Applications, which group keys and costs.

use axum::extract::State;
use gateway_core::accounts::check_name;
use gateway_core::events::{AppEventData, Event};
use gateway_core::ids::{AppId, OrgId, TeamId};
use gateway_core::quotas::Quota;
use gateway_core::time::Timestamp;
use gateway_store::apps::App;
use gateway_store::{Tx, apps, events, teams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PathParam, QueryParams, double_option};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::quotas;

const MAX_DESCRIPTION: usize = 4_000;
const MAX_CONFIG_BYTES: usize = 64 << 10;

pub fn area() -> Area {
    Area::new("apps", "Applications, which group keys and costs.")
        .get("/orgs/{orgId}/apps", list, "List the organization's applications")
        .post("/orgs/{orgId}/apps", create, "Create an application")
        .put("/orgs/{orgId}/apps/{appId}", update, "Update an application")
        .delete("/orgs/{orgId}/apps/{appId}", delete, "Delete an application; its keys stay valid")
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Application")]
struct AppView {
    id: AppId,
    org_id: OrgId,
    name: String,
    description: String,
    team_id: Option<TeamId>,
    /// A JSON object of any content, at most 64 KiB.
    config: Value,
    created_at: Timestamp,
}

impl From<App> for AppView {
    fn from(app: App) -> Self {
        let App { id, org_id, name, description, team_id, config, created_at } = app;
        Self { id, org_id, name, description, team_id, config, created_at }
    }
}

#[derive(Serialize, JsonSchema)]
struct AppList {
    apps: Vec<AppView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<AppList>> {
    let found = apps::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let (apps, next_cursor) = page::into_views(found);
    Ok(Json(AppList { apps, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct NewApp {
    name: String,
    description: Option<String>,
    team_id: Option<TeamId>,
    /// At most 64 KiB as JSON.
    config: Option<Map<String, Value>>,
}

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    Body(request): Body<NewApp>,
) -> ApiResult<Created<AppView>> {
    check_texts(Some(&request.name), request.description.as_deref())?;
    check_config(request.config.as_ref())?;
    let new = App {
        id: app.services.ids.new_id(),
        org_id: caller.org.id,
        name: request.name,
        description: request.description.unwrap_or_default(),
        team_id: request.team_id,
        config: Value::Object(request.config.unwrap_or_default()),
        created_at: app.services.clock.now(),
    };
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Apps).await?;
    check_team(&mut tx, new.org_id, new.team_id).await?;
    apps::insert(&mut tx, &new).await?;
    tx.record(app.entry().target(new.id, &new.name).created(&AppView::from(new.clone())));
    let event = Event::AppCreate(facts(&new, caller.actor()));
    events::record(&mut tx, new.org_id, app.services.ids.new_id(), &event, app.services.clock.now()).await?;
    tx.commit().await?;
    Ok(Created(new.into()))
}

#[derive(Deserialize, JsonSchema)]
struct AppChange {
    name: Option<String>,
    description: Option<String>,
    /// Null removes the application from its team.
    #[serde(default, deserialize_with = "double_option")]
    team_id: Option<Option<TeamId>>,
    /// Replaces the whole config. At most 64 KiB as JSON.
    config: Option<Map<String, Value>>,
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<AppId>,
    Body(change): Body<AppChange>,
) -> ApiResult<Json<AppView>> {
    let org = caller.org.id;
    check_texts(change.name.as_deref(), change.description.as_deref())?;
    check_config(change.config.as_ref())?;
    let mut tx = app.services.db.begin().await?;
    check_team(&mut tx, org, change.team_id.flatten()).await?;
    let mut changed = apps::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    let before = AppView::from(changed.clone());
    changed.name = change.name.unwrap_or(changed.name);
    changed.description = change.description.unwrap_or(changed.description);
    changed.team_id = change.team_id.unwrap_or(changed.team_id);
    changed.config = change.config.map_or(changed.config, Value::Object);
    apps::update(&mut tx, &changed).await?;
    tx.record(app.entry().named(&changed.name).changed(&before, &AppView::from(changed.clone())));
    let pending = invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(changed.into()))
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<AppId>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let deleted = apps::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    if !apps::delete(&mut tx, org, id).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().named(&deleted.name).deleted(&AppView::from(deleted.clone())));
    let event = Event::AppDelete(facts(&deleted, caller.actor()));
    events::record(&mut tx, org, app.services.ids.new_id(), &event, app.services.clock.now()).await?;
    let pending = invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

fn check_texts(name: Option<&str>, description: Option<&str>) -> ApiResult<()> {
    if let Some(name) = name {
        check_name(name).map_err(|why| Problem::field("name", why))?;
    }
    if description.is_some_and(|text| text.chars().count() > MAX_DESCRIPTION) {
        return Err(Problem::field(
            "description",
            format!("must be at most {MAX_DESCRIPTION} characters long"),
        ));
    }
    Ok(())
}

fn check_config(config: Option<&Map<String, Value>>) -> ApiResult<()> {
    let size =
        |config: &Map<String, Value>| serde_json::to_string(config).map_or(usize::MAX, |text| text.len());
    if config.is_some_and(|config| size(config) > MAX_CONFIG_BYTES) {
        return Err(Problem::field("config", format!("must have at most {MAX_CONFIG_BYTES} bytes as JSON")));
    }
    Ok(())
}

async fn check_team(tx: &mut Tx, org: OrgId, team: Option<TeamId>) -> ApiResult<()> {
    match team {
        Some(team) if !teams::exists(tx, org, team).await? => {
            Err(Problem::field("team_id", "no such team in this organization"))
        }
        _ => Ok(()),
    }
}

fn facts(app: &App, actor: String) -> AppEventData {
    AppEventData { app_id: app.id, name: app.name.clone(), actor }
}
