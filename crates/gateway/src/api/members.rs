//! Members and invitations. The last owner cannot be removed or demoted.

use axum::extract::State;
use gateway_core::access::{Role, may_assign};
use gateway_core::accounts::normalise_email;
use gateway_core::events::{Event, UserEventData};
use gateway_core::ids::{InviteId, OrgId, UserId};
use gateway_core::time::{DAY, Timestamp};
use gateway_store::members::{Invite, Member};
use gateway_store::{Tx, accounts, events, members, orgs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::caller::{self, Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PathParam, QueryParams};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::auth::{Identity, Principal};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};

const INVITE_LIFETIME: i64 = 7 * DAY;

pub fn area() -> Area {
    Area::new("members", "Members of an organization and their roles.")
        .get("/orgs/{orgId}/members", list, "List members and open invitations")
        .post("/orgs/{orgId}/members", add, "Add a member, or invite an address that has no account yet")
        .put("/orgs/{orgId}/members/{userId}", change_role, "Change a member's role")
        .delete("/orgs/{orgId}/members/{userId}", remove, "Remove a member; every member may leave")
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
#[schemars(rename = "Invitation")]
struct InviteView {
    id: InviteId,
    email: String,
    role: Role,
    created_at: Timestamp,
    expires_at: Timestamp,
}

impl From<Invite> for InviteView {
    fn from(invite: Invite) -> Self {
        let Invite { id, org_id: _, email, role, created_at, expires_at } = invite;
        Self { id, email, role, created_at, expires_at }
    }
}

#[derive(Serialize, JsonSchema)]
struct MemberList {
    members: Vec<MemberView>,
    invitations: Vec<InviteView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<MemberList>> {
    let found = members::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let invitations =
        members::list_invites(&app.services.db, caller.org.id, app.services.clock.now()).await?;
    Ok(Json(MemberList {
        next_cursor: page::encode_cursor(found.next.as_deref()),
        members: found.rows.into_iter().map(Into::into).collect(),
        invitations: invitations.into_iter().map(Into::into).collect(),
    }))
}

#[derive(Deserialize, JsonSchema)]
struct NewMember {
    email: String,
    /// Default: `member`.
    role: Option<Role>,
}

/// A membership if the address has an account, otherwise an invitation with its token.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Added {
    Member(MemberView),
    Invited {
        #[serde(flatten)]
        invitation: InviteView,
        /// Returned only in this response; pass it as `invite_token` to signup.
        invite_token: String,
    },
}

async fn add(
    State(app): AppState,
    caller: InOrg<Admin>,
    Body(request): Body<NewMember>,
) -> ApiResult<Created<Added>> {
    let email = normalise_email(&request.email).map_err(|why| Problem::field("email", why))?;
    let role = request.role.unwrap_or(Role::Member);
    check_assignable(&caller, role)?;
    let org = caller.org.id;
    let now = app.services.clock.now();
    let user = accounts::find_by_email(&app.services.db, &email).await?;
    let mut tx = app.services.db.begin().await?;
    let facts = UserEventData {
        user_id: user.as_ref().map(|user| user.id),
        email: email.clone(),
        role,
        actor: caller.actor(),
    };
    events::record(&mut tx, org, app.services.ids.new_id(), &Event::UserInvite(facts), now).await?;
    let added = if let Some(user) = user {
        members::insert(&mut tx, org, user.id, role, now)
            .await
            .map_err(Problem::on_duplicate("the user is already a member of this organization"))?;
        members::delete_invite(&mut tx, org, &email).await?;
        let member = members::find(&mut tx, org, user.id).await?.ok_or_else(Problem::not_found)?;
        Added::Member(member.into())
    } else {
        let invite_token = new_invite_token()?;
        let invite = Invite {
            id: app.services.ids.new_id(),
            org_id: org,
            email,
            role,
            created_at: now,
            expires_at: now.plus(INVITE_LIFETIME),
        };
        members::insert_invite(&mut tx, &invite, &hash_invite_token(&invite_token)).await?;
        Added::Invited { invitation: invite.into(), invite_token }
    };
    let pending = match &added {
        Added::Member(member) => {
            Some(invalidation::record(&mut tx, Invalidation::Member(org, member.user_id)).await?)
        }
        Added::Invited { .. } => None,
    };
    invalidation::commit(tx, pending, &app.cluster).await?;
    Ok(Created(added))
}

#[derive(Deserialize, JsonSchema)]
struct RoleChange {
    role: Role,
}

async fn change_role(
    State(app): AppState,
    caller: InOrg<Admin>,
    PathParam(user): PathParam<UserId>,
    Body(change): Body<RoleChange>,
) -> ApiResult<Json<MemberView>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let mut member = locked_member(&mut tx, org, user).await?;
    check_assignable(&caller, member.role)?;
    check_assignable(&caller, change.role)?;
    if member.role != change.role {
        check_not_last_owner(&mut tx, org, &member).await?;
        members::set_role(&mut tx, org, user, change.role).await?;
        let previous_role = std::mem::replace(&mut member.role, change.role);
        let event = Event::UserRoleChange { user: facts(&member, caller.actor()), previous_role };
        events::record(&mut tx, org, app.services.ids.new_id(), &event, app.services.clock.now()).await?;
    }
    let pending = invalidation::record(&mut tx, Invalidation::Member(org, user)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(member.into()))
}

async fn remove(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(user): PathParam<UserId>,
) -> ApiResult<Json<Deleted>> {
    let is_self = matches!(caller.principal, Principal::User { id, .. } if id == user);
    if !is_self {
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
    let event = Event::UserRemove(facts(&member, caller.actor()));
    events::record(&mut tx, org, app.services.ids.new_id(), &event, app.services.clock.now()).await?;
    let pending = invalidation::record(&mut tx, Invalidation::Member(org, user)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

/// A secret of 32 random bytes, of which only the hash is stored.
fn new_invite_token() -> ApiResult<String> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Problem::internal)?;
    Ok(format!("inv-{}", hex::encode(random)))
}

pub(super) fn hash_invite_token(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
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

fn check_assignable(identity: &Identity, role: Role) -> ApiResult<()> {
    if may_assign(identity.role, role) {
        Ok(())
    } else {
        Err(Problem::forbidden("only an owner can add, change or remove owners"))
    }
}

fn facts(member: &Member, actor: String) -> UserEventData {
    UserEventData { user_id: Some(member.user_id), email: member.email.clone(), role: member.role, actor }
}
