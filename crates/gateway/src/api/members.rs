//! Members. The last owner cannot be removed or demoted.

use axum::extract::State;
use gateway_core::access::{Role, may_assign};
use gateway_core::events::{Event, UserEventData};
use gateway_core::ids::{OrgId, UserId};
use gateway_core::time::Timestamp;
use gateway_store::members::Member;
use gateway_store::page::Page;
use gateway_store::{Tx, events, invites as store_invites, keys, mcp_connections, members, orgs, views};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audited::Audited;
use super::caller::{self, Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PathParam, QueryParams};
use super::invites::{self, InviteView};
use super::keys::key_facts;
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Deleted, Json};
use crate::auth::{Identity, Principal};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::services::Services;

pub fn area() -> Area {
    Area::new("members", "Members of an organization and their roles.")
        .get("/orgs/{orgId}/members", list, "List members and, for admins, open invitations")
        .post("/orgs/{orgId}/members", invites::add, "Invite an address; its owner joins by accepting")
        .put("/orgs/{orgId}/members/{userId}", change_role, "Change a member's role")
        .delete(
            "/orgs/{orgId}/members/{userId}",
            remove,
            "Remove a member and revoke their keys; every member may leave",
        )
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Member")]
struct MemberView {
    user_id: UserId,
    email: String,
    display_name: String,
    role: Role,
    created_at: Timestamp,
}

impl From<Member> for MemberView {
    fn from(member: Member) -> Self {
        let Member { user_id, email, display_name, role, created_at } = member;
        Self { user_id, email, display_name, role, created_at }
    }
}

#[derive(Serialize, JsonSchema)]
struct MemberList {
    members: Vec<MemberView>,
    /// The newest 200 open invitations, for admins; empty for others. `GET /orgs/{orgId}/invites` lists all of them.
    invitations: Vec<InviteView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<MemberList>> {
    let Services { db, clock, .. } = &*app.services;
    let found = members::list(db, caller.org.id, &params.page()?).await?;
    let invitations = if caller.role >= Role::Admin {
        let newest = Page { limit: page::MAX_LIMIT, before: None };
        store_invites::list(db, caller.org.id, clock.now(), &newest).await?.rows
    } else {
        Vec::new()
    };
    Ok(Json(MemberList {
        next_cursor: page::encode_cursor(found.next.as_deref()),
        members: found.rows.into_iter().map(Into::into).collect(),
        invitations: invitations.into_iter().map(Into::into).collect(),
    }))
}

#[derive(Deserialize, JsonSchema)]
struct RoleChange {
    role: Role,
}

async fn change_role(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(user): PathParam<UserId>,
    Body(change): Body<RoleChange>,
) -> ApiResult<Json<MemberView>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let mut member = locked_member(&mut tx, org, user).await?;
    check_assignable(&caller, member.role)?;
    check_assignable(&caller, change.role)?;
    let changes_owners = member.role != change.role && [member.role, change.role].contains(&Role::Owner);
    if member.role != change.role {
        check_not_last_owner(&mut tx, org, &member).await?;
        members::set_role(&mut tx, org, user, change.role).await?;
        let previous_role = std::mem::replace(&mut member.role, change.role);
        let (from, to) = (json!({"role": previous_role}), json!({"role": change.role}));
        tx.record(app.entry().named(&member.email).changed(&from, &to));
        let event = Event::UserRoleChange { user: facts(&member, caller.actor()), previous_role };
        events::record(&mut tx, org, app.services.ids.new_id(), &event, app.services.clock.now()).await?;
    }
    let mut pending = vec![invalidation::record(&mut tx, Invalidation::Member(org, user)).await?];
    if changes_owners {
        // The organization may count against another account now.
        pending.push(invalidation::record(&mut tx, Invalidation::Org(org)).await?);
    }
    // Keys and invitations of the member give nobody more than the member has now.
    if keys::cap_made_by(&mut tx, org, user, change.role).await? > 0 {
        pending.push(invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?);
    }
    keys::withdraw_invites_of(&mut tx, org, user, |role| may_assign(change.role, role)).await?;
    invalidation::commit(tx, pending, &app.cluster).await?;
    Ok(Json(member.into()))
}

#[derive(Deserialize, JsonSchema)]
struct RemoveParams {
    /// What happens to the keys that the member created. `revoke` (the default) revokes them, except those of an
    /// application; `keep` keeps all and requires the role admin.
    keys: Option<KeysOfMember>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum KeysOfMember {
    Revoke,
    Keep,
}

async fn remove(
    app: Audited,
    caller: InOrg<Viewer>,
    PathParam(user): PathParam<UserId>,
    QueryParams(params): QueryParams<RemoveParams>,
) -> ApiResult<Json<Deleted>> {
    let is_self = matches!(caller.principal, Principal::User { id, .. } if id == user);
    let keep_keys = params.keys == Some(KeysOfMember::Keep);
    if !is_self || keep_keys {
        caller::require_role(Role::Admin, &caller)?;
    }
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let member = locked_member(&mut tx, org, user).await?;
    if !is_self {
        check_assignable(&caller, member.role)?;
    }
    check_not_last_owner(&mut tx, org, &member).await?;
    members::remove(&mut tx, org, user).await?;
    mcp_connections::delete_of_user(&mut tx, org, user).await?;
    views::delete_of_owner(&mut tx, org, &user.to_string()).await?;
    let now = app.services.clock.now();
    let event = Event::UserRemove(facts(&member, caller.actor()));
    events::record(&mut tx, org, app.services.ids.new_id(), &event, now).await?;
    let mut pending = vec![invalidation::record(&mut tx, Invalidation::Member(org, user)).await?];
    if member.role == Role::Owner {
        pending.push(invalidation::record(&mut tx, Invalidation::Org(org)).await?);
    }
    keys::withdraw_invites_of(&mut tx, org, user, |_| false).await?;
    let mut entry = app.entry().named(&member.email).deleted(&json!({"role": member.role}));
    if !keep_keys {
        let revoked = keys::revoke_made_by(&mut tx, org, user, now).await?;
        for key in &revoked {
            mcp_connections::delete_of_key(&mut tx, org, key.id).await?;
            let event = Event::KeyRevoke(key_facts(key, caller.actor()));
            events::record(&mut tx, org, app.services.ids.new_id(), &event, now).await?;
        }
        let ids: Vec<_> = revoked.iter().map(|key| key.id).collect();
        entry = entry.created(&json!({"revoked_keys": ids}));
        if !revoked.is_empty() {
            pending.push(invalidation::record(&mut tx, Invalidation::OrgKeys(org)).await?);
        }
    }
    tx.record(entry);
    invalidation::commit(tx, pending, &app.cluster).await?;
    Ok(Deleted::yes())
}

/// Locks the organization, so that concurrent changes cannot remove its last owner.
async fn locked_member(tx: &mut Tx, org: OrgId, user: UserId) -> ApiResult<Member> {
    orgs::lock_for_update(tx, org).await?;
    members::find(tx, org, user).await?.ok_or_else(Problem::not_found)
}

async fn check_not_last_owner(tx: &mut Tx, org: OrgId, member: &Member) -> ApiResult<()> {
    if member.role == Role::Owner && members::count_owners(tx, org).await? <= 1 {
        return Err(Problem::conflict(
            "the last owner cannot be removed or demoted; make another member an owner first",
        ));
    }
    Ok(())
}

pub(super) fn check_assignable(identity: &Identity, role: Role) -> ApiResult<()> {
    if may_assign(identity.role, role) {
        Ok(())
    } else {
        Err(Problem::forbidden("only an owner can add, change or remove owners"))
    }
}

fn facts(member: &Member, actor: String) -> UserEventData {
    UserEventData { user_id: Some(member.user_id), email: member.email.clone(), role: member.role, actor }
}
