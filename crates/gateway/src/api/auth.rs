//! The caller: entitlements, organizations and switching between them, sessions, password.

pub(super) mod passwords;
pub(super) mod sessions;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use axum::extract::State;
use gateway_core::access::{Entitlement, Plan, Role};
use gateway_core::ids::OrgId;
use gateway_core::quotas::Quota;
use gateway_core::time::Timestamp;
use gateway_store::{members, orgs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::Audited;
use super::caller::{AppState, Caller, SessionUser, Viewer};
use super::extract::Body;
use super::invites;
use super::openapi::Area;
use super::response::Json;
use crate::app::App;
use crate::auth::{Identity, Principal};
use crate::problem::{ApiResult, Problem};
use sessions::{SessionOrigin, start_session};

pub fn area() -> Area {
    Area::new("auth", "The caller's session.")
        .get(
            "/auth/entitlements",
            entitlements,
            "Get the entitlements and limits of the current organization",
        )
        .get("/auth/orgs", list_orgs, "List the organizations that the caller belongs to")
        .post("/auth/switch-org", switch_org, "Issue a token for another organization of the user")
        .post(
            "/auth/accept-invite",
            invites::accept,
            "Join the organization of an invitation to the user's address",
        )
        .post("/auth/logout", sessions::logout, "Revoke the session token of this request")
        .post(
            "/auth/logout-all",
            sessions::logout_all,
            "End all sessions of the user, also that of this request",
        )
        .get("/auth/sessions", sessions::list_sessions, "List the sessions of the user")
        .delete("/auth/sessions/{userSessionId}", sessions::end_session, "End one session of the user")
        .post(
            "/auth/password",
            passwords::change_password,
            "Change the password; ends all other sessions of the user",
        )
        .post(
            "/auth/reset",
            passwords::reset_password,
            "Set a new password with a one-time token of the operator",
        )
}

/// An organization and the caller's role in it.
#[derive(Clone, Serialize, JsonSchema)]
pub(super) struct OrgWithRole {
    pub id: OrgId,
    pub slug: String,
    pub name: String,
    pub plan: Plan,
    pub role: Role,
}

impl From<(orgs::Org, Role)> for OrgWithRole {
    fn from((org, role): (orgs::Org, Role)) -> Self {
        let orgs::Org { id, slug, name, plan, settings: _, created_at: _ } = org;
        Self { id, slug, name, plan, role }
    }
}

#[derive(Serialize, JsonSchema)]
struct EntitlementsResponse {
    org_id: OrgId,
    plan: Plan,
    role: Role,
    entitlements: Vec<Entitlement>,
    rate_limit: RateLimit,
    /// How much of each quota the organization uses: `keys`, `providers`, `models`, `prompts`, `datasets`, `evals`,
    /// `eval_runs`, `skills`, `webhooks`, `exports`, `teams`, `apps`, `members`, and of today (UTC) `rows_per_day` and
    /// `body_bytes_per_day`. Null while the database is unavailable.
    quotas: Option<BTreeMap<&'static str, QuotaView>>,
    /// How many organizations the caller's account owns. Null for API keys, and while the database is unavailable.
    owned_orgs: Option<QuotaView>,
}

#[derive(Serialize, JsonSchema)]
struct QuotaView {
    /// Null means unlimited.
    limit: Option<u64>,
    used: u64,
}

#[derive(Serialize, JsonSchema)]
struct RateLimit {
    /// 0 means unlimited.
    requests_per_minute: u64,
}

async fn entitlements(State(app): AppState, caller: Caller<Viewer>) -> Json<EntitlementsResponse> {
    let plan = caller.org.plan;
    let view = |(quota, used): &(Quota, u64)| {
        (quota.as_str(), QuotaView { limit: app.services.config.quotas.limit(plan, *quota), used: *used })
    };
    let quotas = app.quotas.of(caller.org.id).await.ok().map(|used| used.iter().map(view).collect());
    let owned = match &caller.principal {
        Principal::User { id, .. } => members::owned_by(&app.services.db, *id).await.ok(),
        Principal::Key(_) | Principal::Org => None,
    };
    let limit = app.services.config.orgs_per_user.map(NonZeroU64::get);
    Json(EntitlementsResponse {
        quotas,
        owned_orgs: owned.map(|owned| QuotaView { limit, used: owned.unsigned_abs() }),
        org_id: caller.org.id,
        plan,
        role: caller.role,
        entitlements: plan.entitlements().to_vec(),
        rate_limit: RateLimit { requests_per_minute: app.services.config.rate_limits.of(plan) },
    })
}

#[derive(Serialize, JsonSchema)]
struct AuthOrgsResponse {
    orgs: Vec<OrgWithRole>,
}

async fn list_orgs(State(app): AppState, caller: Caller<Viewer>) -> ApiResult<Json<AuthOrgsResponse>> {
    let orgs = visible_orgs(&app, &caller).await?.into_iter().map(Into::into).collect();
    Ok(Json(AuthOrgsResponse { orgs }))
}

/// All organizations of a user, or the one that a key belongs to.
pub(super) async fn visible_orgs(app: &App, identity: &Identity) -> ApiResult<Vec<(orgs::Org, Role)>> {
    match &identity.principal {
        Principal::User { id, .. } => Ok(orgs::list_by_user(&app.services.db, *id).await?),
        Principal::Key(_) | Principal::Org => {
            let org = orgs::find(&app.services.db, identity.org.id).await?;
            Ok(org.map(|org| (org, identity.role)).into_iter().collect())
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct SwitchOrgRequest {
    org_id: OrgId,
}

#[derive(Serialize, JsonSchema)]
struct SwitchOrgResponse {
    token: String,
    expires_at: Timestamp,
    org: OrgWithRole,
}

async fn switch_org(
    app: Audited,
    person: SessionUser,
    origin: SessionOrigin,
    Body(request): Body<SwitchOrgRequest>,
) -> ApiResult<Json<SwitchOrgResponse>> {
    let mut tx = app.services.db.begin().await?;
    sessions::lock_session(&mut tx, &person).await?;
    let orgs = orgs::list_by_user_in_tx(&mut tx, person.id).await?;
    let found = orgs.into_iter().find(|(org, _)| org.id == request.org_id);
    let org: OrgWithRole =
        found.ok_or_else(|| Problem::forbidden("you are not a member of that organization"))?.into();
    let (token, expires_at) = start_session(&app, &mut tx, &origin, person.id, (org.id, org.role)).await?;
    tx.record(app.entry().within(org.id).target(org.id, &org.name));
    tx.commit().await?;
    Ok(Json(SwitchOrgResponse { token, expires_at, org }))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct LogoutResponse {
    revoked: bool,
}
