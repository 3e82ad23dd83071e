//! Sessions of a user: issued with every token, listed, and ended one by one or all at once.

use axum::extract::{FromRequestParts, State};
use gateway_core::access::Role;
use gateway_core::ids::{OrgId, TokenId, UserId};
use gateway_core::time::Timestamp;
use gateway_store::user_sessions::{self, UserSession};
use gateway_store::{Tx, accounts, sign_ins};
use http::header::USER_AGENT;
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::audited::Audited;
use super::super::caller::{AppState, SessionUser};
use super::super::extract::{ClientIp, PathParam, QueryParams};
use super::super::openapi::{Operation, OperationInput};
use super::super::page::{self, PageParams};
use super::super::response::{Deleted, Json};
use super::LogoutResponse;
use crate::app::App;
use crate::attempts::network;
use crate::auth::tokens::{Claims, LIFETIME};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};

/// Characters of a user agent that are stored.
const MAX_USER_AGENT: usize = 200;

/// Where a session is started from, as the list of sessions shows it.
pub(in crate::api) struct SessionOrigin {
    pub address: std::net::IpAddr,
    user_agent: String,
}

impl<S: Send + Sync> FromRequestParts<S> for SessionOrigin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let ClientIp(address) = ClientIp::from_request_parts(parts, state).await?;
        let text = parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok(Self { address, user_agent: text.chars().take(MAX_USER_AGENT).collect() })
    }
}

impl OperationInput for SessionOrigin {
    fn describe(_: &mut Operation<'_>) {}
}

/// Issues a session token for a member in the transaction that admits them, and returns it with its expiry.
pub(in crate::api) async fn start_session(
    app: &App,
    tx: &mut Tx,
    origin: &SessionOrigin,
    user: UserId,
    (org, role): (OrgId, Role),
) -> ApiResult<(String, Timestamp)> {
    let now = app.services.clock.now();
    let claims = Claims {
        sub: user,
        org,
        role,
        iat: now.unix_seconds(),
        exp: now.plus(LIFETIME).unix_seconds(),
        jti: app.services.ids.new_id(),
    };
    let token =
        app.proxy.tokens.issue(&claims).ok_or_else(|| Problem::internal("cannot sign a session token"))?;
    let session = UserSession {
        id: claims.jti,
        user_id: user,
        org_id: org,
        address: origin.address.to_string(),
        user_agent: origin.user_agent.clone(),
        created_at: now,
        expires_at: claims.expires_at(),
    };
    user_sessions::insert(tx, &session).await?;
    Ok((token, claims.expires_at()))
}

/// Remembers the address of a user who proved to know the password, so that attempts of others cannot lock it out.
pub(in crate::api) async fn record_sign_in(
    app: &App,
    tx: &mut Tx,
    user: UserId,
    origin: &SessionOrigin,
) -> ApiResult<()> {
    let address = network(origin.address).to_string();
    Ok(sign_ins::record(tx, user, &address, app.services.clock.now()).await?)
}

/// Locks the user and checks that the session of the request was not ended meanwhile, so that it cannot start another.
pub(in crate::api) async fn lock_session(tx: &mut Tx, person: &SessionUser) -> ApiResult<()> {
    accounts::lock(tx, person.id).await?;
    if user_sessions::is_ended_in_tx(tx, person.token).await? {
        return Err(Problem::unauthorized("the session has ended; sign in again"));
    }
    Ok(())
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UserSession")]
struct SessionView {
    id: TokenId,
    /// The organization that the session's token is valid for.
    org_id: OrgId,
    /// The address that the session was started from.
    address: String,
    user_agent: String,
    created_at: Timestamp,
    expires_at: Timestamp,
    /// The session of this request.
    current: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct UserSessionList {
    sessions: Vec<SessionView>,
    next_cursor: Option<String>,
}

pub(super) async fn list_sessions(
    State(app): AppState,
    person: SessionUser,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<UserSessionList>> {
    let now = app.services.clock.now();
    let found = user_sessions::list(&app.services.db, person.id, now, &params.page()?).await?;
    let next_cursor = page::encode_cursor(found.next.as_deref());
    let view = |session: UserSession| {
        let UserSession { id, user_id: _, org_id, address, user_agent, created_at, expires_at } = session;
        let current = id == person.token.id;
        SessionView { id, org_id, address, user_agent, created_at, expires_at, current }
    };
    Ok(Json(UserSessionList { sessions: found.rows.into_iter().map(view).collect(), next_cursor }))
}

pub(super) async fn end_session(
    app: Audited,
    person: SessionUser,
    PathParam(id): PathParam<TokenId>,
) -> ApiResult<Json<Deleted>> {
    let mut tx = app.services.db.begin().await?;
    user_sessions::end(&mut tx, person.id, id).await?.ok_or_else(Problem::not_found)?;
    tx.record(app.entry());
    let pending = invalidation::record(&mut tx, Invalidation::Token(id)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

pub(super) async fn logout(app: Audited, person: SessionUser) -> ApiResult<Json<LogoutResponse>> {
    let mut tx = app.services.db.begin().await?;
    user_sessions::revoke(&mut tx, person.token.id, person.expires_at).await?;
    tx.record(app.entry().on_actor());
    let pending = invalidation::record(&mut tx, Invalidation::Token(person.token.id)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(LogoutResponse { revoked: true }))
}

pub(super) async fn logout_all(app: Audited, person: SessionUser) -> ApiResult<Json<LogoutResponse>> {
    let mut tx = app.services.db.begin().await?;
    user_sessions::end_all(&mut tx, person.id, None, app.services.clock.now()).await?;
    tx.record(app.entry().on_actor());
    let pending = invalidation::record(&mut tx, Invalidation::User(person.id)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(LogoutResponse { revoked: true }))
}

/// Ends all other sessions of the user. The session of the request is listed afterwards, which keeps it valid.
pub(super) async fn end_other_sessions(
    app: &App,
    tx: &mut Tx,
    person: &SessionUser,
    origin: &SessionOrigin,
) -> ApiResult<()> {
    let kept = UserSession {
        id: person.token.id,
        user_id: person.id,
        org_id: person.identity.org.id,
        address: origin.address.to_string(),
        user_agent: origin.user_agent.clone(),
        created_at: person.token.issued_at,
        expires_at: person.expires_at,
    };
    user_sessions::insert(tx, &kept).await?;
    Ok(user_sessions::end_all(tx, person.id, Some(kept.id), app.services.clock.now()).await?)
}
