//! Invitations. Joining an organization takes the consent of the person, so an invitation is the only way in, and its
//! answer does not depend on whether the address has an account.

use axum::extract::State;
use gateway_core::access::Role;
use gateway_core::accounts::normalise_email;
use gateway_core::events::{Event, UserEventData};
use gateway_core::ids::{InviteId, UserId};
use gateway_core::quotas::Quota;
use gateway_core::time::{DAY, Timestamp};
use gateway_store::invites::Invite;
use gateway_store::{Tx, accounts, events, invites, members, orgs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::audited::Audited;
use super::auth::OrgWithRole;
use super::auth::sessions::{SessionOrigin, lock_session, start_session};
use super::caller::{Admin, AppState, InOrg, SessionUser};
use super::extract::{Body, PathParam, QueryParams};
use super::members::check_assignable;
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::quotas;

const INVITE_LIFETIME: i64 = 7 * DAY;
/// Open invitations of an organization.
const MAX_OPEN_INVITES: i64 = 1_000;

pub fn area() -> Area {
    Area::new("invites", "Invitations to an organization.")
        .get("/orgs/{orgId}/invites", list, "List open invitations")
        .delete(
            "/orgs/{orgId}/invites/{inviteId}",
            withdraw,
            "Withdraw an invitation; its token is invalid at once",
        )
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Invitation")]
pub(super) struct InviteView {
    id: InviteId,
    email: String,
    role: Role,
    /// The user or key that invited; null for invitations of earlier versions.
    invited_by: Option<String>,
    created_at: Timestamp,
    expires_at: Timestamp,
}

impl From<Invite> for InviteView {
    fn from(invite: Invite) -> Self {
        let Invite { id, org_id: _, email, role, invited_by, created_at, expires_at } = invite;
        Self { id, email, role, invited_by, created_at, expires_at }
    }
}

#[derive(Serialize, JsonSchema)]
struct InviteList {
    invites: Vec<InviteView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Admin>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<InviteList>> {
    let now = app.services.clock.now();
    let found = invites::list(&app.services.db, caller.org.id, now, &params.page()?).await?;
    let (invites, next_cursor) = page::into_views(found);
    Ok(Json(InviteList { invites, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct NewMember {
    email: String,
    /// Default: `member`.
    role: Option<Role>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Invited {
    #[serde(flatten)]
    invitation: InviteView,
    /// Returned only in this response. A new person passes it to signup, a person with an account to
    /// `POST /auth/accept-invite` or to login.
    invite_token: String,
}

/// Whether the address has an account is not looked up, so neither the answer nor its time depends on it.
pub(super) async fn add(
    app: Audited,
    caller: InOrg<Admin>,
    Body(request): Body<NewMember>,
) -> ApiResult<Created<Invited>> {
    let email = normalise_email(&request.email).map_err(|why| Problem::field("email", why))?;
    let role = request.role.unwrap_or(Role::Member);
    check_assignable(&caller, role)?;
    let org = caller.org.id;
    let now = app.services.clock.now();
    let invite_token = new_invite_token()?;
    let invite = Invite {
        id: app.services.ids.new_id(),
        org_id: org,
        email,
        role,
        invited_by: Some(caller.actor()),
        created_at: now,
        expires_at: now.plus(INVITE_LIFETIME),
    };
    let mut tx = app.services.db.begin().await?;
    // Concurrent invitations of one address, and the limit on their number, take turns.
    orgs::lock_for_update(&mut tx, org).await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Members).await?;
    if members::has_email(&mut tx, org, &invite.email).await? {
        return Err(Problem::conflict("the user is already a member of this organization"));
    }
    if let Some(replaced) = invites::delete_of_email(&mut tx, org, &invite.email).await? {
        check_assignable(&caller, replaced.role)?;
    }
    if invites::count_open(&mut tx, org, now).await? >= MAX_OPEN_INVITES {
        return Err(Problem::conflict(format!(
            "the organization has {MAX_OPEN_INVITES} open invitations; withdraw some with DELETE /orgs/:orgId/invites/:id"
        )));
    }
    invites::insert(&mut tx, &invite, &hash_invite_token(&invite_token)).await?;
    tx.record(app.entry().target(invite.id, &invite.email).created(&json!({"role": role})));
    let facts = UserEventData { user_id: None, email: invite.email.clone(), role, actor: caller.actor() };
    events::record(&mut tx, org, app.services.ids.new_id(), &Event::UserInvite(facts), now).await?;
    tx.commit().await?;
    Ok(Created(Invited { invitation: invite.into(), invite_token }))
}

async fn withdraw(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<InviteId>,
) -> ApiResult<Json<Deleted>> {
    let mut tx = app.services.db.begin().await?;
    let invite = invites::delete(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    check_assignable(&caller, invite.role)?;
    tx.record(app.entry().named(&invite.email).deleted(&json!({"role": invite.role})));
    tx.commit().await?;
    Ok(Deleted::yes())
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct AcceptRequest {
    invite_token: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct AcceptedInvite {
    org: OrgWithRole,
    role: Role,
    /// A session token for the organization that the user joined.
    token: String,
    expires_at: Timestamp,
}

pub(super) async fn accept(
    app: Audited,
    person: SessionUser,
    origin: SessionOrigin,
    Body(request): Body<AcceptRequest>,
) -> ApiResult<Json<AcceptedInvite>> {
    let user = accounts::find(&app.services.db, person.id).await?.ok_or_else(Problem::not_found)?;
    let mut tx = app.services.db.begin().await?;
    lock_session(&mut tx, &person).await?;
    let (org, role) =
        join(&app, &mut tx, &request.invite_token, (user.id, &user.email)).await?.map_err(|refusal| {
            match refusal {
                Refusal::Unknown => Problem::not_found(),
                Refusal::OtherAddress => {
                    Problem::forbidden("the invitation is for another address; sign in with the invited one")
                }
            }
        })?;
    let (token, expires_at) = start_session(&app, &mut tx, &origin, user.id, (org.id, role)).await?;
    let entry = app.entry().within(org.id).target(user.id, &user.email);
    tx.record(entry.created(&json!({"role": role})));
    let pending = invalidation::record(&mut tx, Invalidation::Member(org.id, user.id)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(AcceptedInvite { org: (org, role).into(), role, token, expires_at }))
}

/// Why an invitation does not admit a user.
pub(super) enum Refusal {
    /// The token is unknown, used, withdrawn or expired.
    Unknown,
    OtherAddress,
}

impl Refusal {
    /// The error of a request that has the token beside the account's address.
    pub(super) fn into_field_problem(self) -> Problem {
        match self {
            Self::Unknown => Problem::field(
                "invite_token",
                "is invalid, already used or expired; ask for a new invitation",
            ),
            Self::OtherAddress => {
                Problem::field("email", "must be the address that the invitation was sent to")
            }
        }
    }
}

/// Consumes an invitation and adds the user to its organization. After a refusal the transaction must not be committed.
pub(super) async fn join(
    app: &App,
    tx: &mut Tx,
    token: &str,
    (user, email): (UserId, &str),
) -> ApiResult<Result<(orgs::Org, Role), Refusal>> {
    let now = app.services.clock.now();
    let hash = hash_invite_token(token);
    let invite = invites::find(tx, &hash).await?;
    let Some(invite) = invite.filter(|invite| now < invite.expires_at) else {
        return Ok(Err(Refusal::Unknown));
    };
    if invite.email != email {
        return Ok(Err(Refusal::OtherAddress));
    }
    let Some(org) = orgs::find_in_tx(tx, invite.org_id).await? else { return Ok(Err(Refusal::Unknown)) };
    // Locks the organization before the invitation, as `add` does.
    quotas::check_of(&app.services, tx, (org.id, org.plan), Quota::Members).await?;
    if invites::consume(tx, &hash).await?.is_none() {
        return Ok(Err(Refusal::Unknown));
    }
    members::insert(tx, invite.org_id, user, invite.role, now)
        .await
        .map_err(Problem::on_duplicate("you are already a member of this organization"))?;
    Ok(Ok((org, invite.role)))
}

/// A secret of 32 random bytes, of which only the hash is stored.
fn new_invite_token() -> ApiResult<String> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Problem::internal)?;
    Ok(format!("inv-{}", hex::encode(random)))
}

fn hash_invite_token(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}
