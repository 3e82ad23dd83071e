//! Teams: groups of members of an organization.

use axum::extract::State;
use gateway_core::access::Role;
use gateway_core::accounts::check_name;
use gateway_core::ids::{OrgId, TeamId, UserId};
use gateway_core::quotas::Quota;
use gateway_core::time::Timestamp;
use gateway_store::teams::{Team, TeamMember};
use gateway_store::{Tx, orgs, teams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PathParam, QueryParams};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::quotas;

const MAX_MEMBERS: usize = 1_000;

pub fn area() -> Area {
    Area::new("teams", "Groups of members of an organization.")
        .get("/orgs/{orgId}/teams", list, "List the organization's teams with their members")
        .post("/orgs/{orgId}/teams", create, "Create a team")
        .put("/orgs/{orgId}/teams/{teamId}", update, "Rename a team or replace its members")
        .delete("/orgs/{orgId}/teams/{teamId}", delete, "Delete a team; its applications are kept")
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Team")]
struct TeamView {
    id: TeamId,
    org_id: OrgId,
    name: String,
    members: Vec<TeamMemberView>,
    created_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TeamMember")]
struct TeamMemberView {
    user_id: UserId,
    email: String,
    role: Role,
}

impl From<Team> for TeamView {
    fn from(team: Team) -> Self {
        let Team { id, org_id, name, members, created_at } = team;
        let members = members
            .into_iter()
            .map(|TeamMember { user_id, email, role }| TeamMemberView { user_id, email, role })
            .collect();
        Self { id, org_id, name, members, created_at }
    }
}

#[derive(Serialize, JsonSchema)]
struct TeamList {
    teams: Vec<TeamView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<TeamList>> {
    let found = teams::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let (teams, next_cursor) = page::into_views(found);
    Ok(Json(TeamList { teams, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct NewTeam {
    name: String,
    member_ids: Option<Vec<UserId>>,
}

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    Body(request): Body<NewTeam>,
) -> ApiResult<Created<TeamView>> {
    check_name(&request.name).map_err(|why| Problem::field("name", why))?;
    let (org, id) = (caller.org.id, app.services.ids.new_id());
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Teams).await?;
    teams::insert(&mut tx, org, id, &request.name, app.services.clock.now()).await?;
    set_members(&mut tx, org, id, request.member_ids.as_deref()).await?;
    let created = json!({"name": request.name, "member_ids": request.member_ids});
    tx.record(app.entry().target(id, &request.name).created(&created));
    let pending = invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    stored(&app, org, id).await.map(Created)
}

#[derive(Deserialize, JsonSchema)]
struct TeamChange {
    name: Option<String>,
    /// Replaces the whole list of members.
    member_ids: Option<Vec<UserId>>,
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<TeamId>,
    Body(change): Body<TeamChange>,
) -> ApiResult<Json<TeamView>> {
    if let Some(name) = &change.name {
        check_name(name).map_err(|why| Problem::field("name", why))?;
    }
    let org = caller.org.id;
    let before = stored(&app, org, id).await?;
    let mut tx = app.services.db.begin().await?;
    if !teams::rename(&mut tx, org, id, change.name.as_deref()).await? {
        return Err(Problem::not_found());
    }
    set_members(&mut tx, org, id, change.member_ids.as_deref()).await?;
    let name = change.name.as_deref().unwrap_or(&before.name);
    let members: Vec<UserId> = before.members.iter().map(|member| member.user_id).collect();
    tx.record(app.entry().named(name).changed(
        &json!({"name": before.name, "member_ids": members}),
        &json!({"name": name, "member_ids": change.member_ids.as_ref().unwrap_or(&members)}),
    ));
    let pending = invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    stored(&app, org, id).await.map(Json)
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<TeamId>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let before = stored(&app, org, id).await?;
    let mut tx = app.services.db.begin().await?;
    if !teams::delete(&mut tx, org, id).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().named(&before.name).deleted(&before));
    // Cached keys and memberships contain their team.
    let pending = invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

async fn set_members(tx: &mut Tx, org: OrgId, id: TeamId, users: Option<&[UserId]>) -> ApiResult<()> {
    let Some(users) = users else { return Ok(()) };
    // The lock prevents adding a member who is being removed at the same time.
    orgs::lock_for_update(tx, org).await?;
    if users.len() > MAX_MEMBERS {
        return Err(Problem::field("member_ids", format!("must have at most {MAX_MEMBERS} members")));
    }
    match teams::set_members(tx, org, id, users).await? {
        None => Ok(()),
        Some(user) => {
            Err(Problem::field("member_ids", format!("user {user} is not a member of this organization")))
        }
    }
}

async fn stored(app: &App, org: OrgId, id: TeamId) -> ApiResult<TeamView> {
    teams::find(&app.services.db, org, id).await?.map(Into::into).ok_or_else(Problem::not_found)
}
