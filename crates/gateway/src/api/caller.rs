//! The permission that a handler requires, as one of its arguments. A handler without such an argument has no
//! organization and cannot reach tenant data. The entitlement is checked before the role, both before the body is read.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use gateway_core::access::{Entitlement, Role};
use gateway_core::ids::{OrgId, UserId};
use gateway_core::time::Timestamp;
use gateway_store::accounts;
use gateway_store::user_sessions::IssuedToken;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use super::extract::path_param;
use super::openapi::{Operation, OperationInput};
use crate::app::App;
use crate::auth::{Identity, KEY_HEADER, Principal};
use crate::problem::{ApiResult, Problem};

/// The application, as handlers take it.
pub type AppState = State<Arc<App>>;

/// A minimum role as a type.
pub trait RequiredRole: Send + Sync {
    const ROLE: Role;
}

/// An entitlement of a plan as a type.
pub trait RequiredEntitlement: Send + Sync {
    const ENTITLEMENT: Option<Entitlement>;
}

macro_rules! markers {
    ($trait:ident, $constant:ident: $type:ty; $($name:ident = $value:expr),+ $(,)?) => {$(
        pub struct $name;
        impl $trait for $name {
            const $constant: $type = $value;
        }
    )+};
}
markers!(RequiredRole, ROLE: Role;
    Viewer = Role::Viewer,
    Member = Role::Member,
    Admin = Role::Admin,
    Owner = Role::Owner,
);
markers!(RequiredEntitlement, ENTITLEMENT: Option<Entitlement>;
    AnyPlan = None,
    SkillMarketplace = Some(Entitlement::SkillMarketplace),
    Integrations = Some(Entitlement::Integrations),
    Webhooks = Some(Entitlement::Webhooks),
);

/// A caller with at least role `R`, in an organization whose plan includes `E`.
pub struct Caller<R, E = AnyPlan> {
    identity: Identity,
    marker: PhantomData<(R, E)>,
}

impl<R, E> Deref for Caller<R, E> {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl<R: RequiredRole, E: RequiredEntitlement, S: Send + Sync> FromRequestParts<S> for Caller<R, E> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        if let Some(entitlement) = E::ENTITLEMENT
            && !identity.org.plan.includes(entitlement)
        {
            return Err(Problem::forbidden(format!(
                "the plan '{}' does not include {entitlement}; upgrade to the enterprise plan",
                identity.org.plan
            )));
        }
        require_role(R::ROLE, &identity)?;
        Ok(Self { identity, marker: PhantomData })
    }
}

impl<R: RequiredRole, E: RequiredEntitlement> OperationInput for Caller<R, E> {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(R::ROLE);
        operation.entitlement = E::ENTITLEMENT;
    }
}

/// A caller that reads log rows or usage: a viewer, or any key. A key without `*` or `read` among its scopes reads only
/// what it did itself.
pub struct RowReader {
    identity: Identity,
}

impl Deref for RowReader {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RowReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self { identity: of_request(&parts.extensions)?.clone() })
    }
}

impl OperationInput for RowReader {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(Role::Viewer);
        operation.notes.push(OWN_ROWS_NOTE);
    }
}

pub(super) const OWN_ROWS_NOTE: &str =
    "A key without `*` or `read` among its scopes reads only what it did itself.";

/// A caller of MCP: any user or key. Its scopes decide what it sees there, not those for the management API.
pub struct McpCaller {
    pub identity: Identity,
    /// `X-Gateway-User`
    pub user: Option<String>,
    pub headers: HeaderMap,
    pub path: String,
    pub request_id: String,
}

impl<S: Send + Sync> FromRequestParts<S> for McpCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let request_id = parts.extensions.get::<HeaderValue>().and_then(|id| id.to_str().ok());
        let user =
            parts.headers.get("x-gateway-user").and_then(|user| std::str::from_utf8(user.as_bytes()).ok());
        Ok(Self {
            identity: of_request(&parts.extensions)?.clone(),
            user: user.map(|user| user.trim().chars().take(256).collect()),
            path: parts.uri.path().to_owned(),
            request_id: request_id.unwrap_or_default().to_owned(),
            headers: parts.headers.clone(),
        })
    }
}

const MCP_NOTE: &str = "An API key needs the scope `*` or `mcp:` scopes.";

impl OperationInput for McpCaller {
    fn describe(operation: &mut Operation<'_>) {
        operation.notes.push(MCP_NOTE);
        operation.notes.push("Viewers read lists, members call tools.");
    }
}

/// A caller that keeps credentials of its own at MCP servers.
pub struct McpUser(pub McpCaller);

impl Deref for McpUser {
    type Target = McpCaller;

    fn deref(&self) -> &McpCaller {
        &self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for McpUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        McpCaller::from_request_parts(parts, state).await.map(Self)
    }
}

impl OperationInput for McpUser {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(Role::Viewer);
        operation.notes.push(MCP_NOTE);
    }
}

/// A caller with at least role `R` in the organization that the path names.
pub struct InOrg<R> {
    identity: Identity,
    marker: PhantomData<R>,
}

impl<R> Deref for InOrg<R> {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl<R: RequiredRole> FromRequestParts<Arc<App>> for InOrg<R> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        let org: OrgId = path_param(parts, app).await?;
        if org != identity.org.id {
            return Err(other_org_problem(app, &identity, org).await?);
        }
        require_role(R::ROLE, &identity)?;
        Ok(Self { identity, marker: PhantomData })
    }
}

impl<R: RequiredRole> OperationInput for InOrg<R> {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(R::ROLE);
        operation.parameters.push(json!({
            "name": "orgId", "in": "path", "required": true, "schema": {"type": "string", "format": "uuid"},
        }));
    }
}

/// A user with a session token. API keys are rejected.
pub struct SessionUser {
    pub id: UserId,
    pub token: IssuedToken,
    pub expires_at: Timestamp,
    pub identity: Identity,
}

impl<S: Send + Sync> FromRequestParts<S> for SessionUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        match identity.principal {
            Principal::User { id, token, expires_at, team_id: _ } => {
                Ok(Self { id, token, expires_at, identity })
            }
            Principal::Key(_) | Principal::Org => {
                Err(Problem::forbidden("this operation requires a session token, not an API key"))
            }
        }
    }
}

impl OperationInput for SessionUser {
    fn describe(operation: &mut Operation<'_>) {
        operation.notes.push("Requires a session token; API keys are rejected.");
    }
}

/// The headers with the caller's credential. Long-lived responses use them to authenticate again while they run.
pub struct CredentialHeaders(pub HeaderMap);

impl<S: Send + Sync> FromRequestParts<S> for CredentialHeaders {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let names = [HeaderName::from_static(KEY_HEADER), AUTHORIZATION];
        let headers =
            names.into_iter().filter_map(|name| parts.headers.get(&name).cloned().map(|value| (name, value)));
        Ok(Self(headers.collect()))
    }
}

impl OperationInput for CredentialHeaders {
    fn describe(_: &mut Operation<'_>) {}
}

/// A caller that may manage keys: at least a member, and not a key with restricted scopes.
pub struct KeyManager {
    pub identity: Identity,
}

impl KeyManager {
    /// Members manage the keys that they created, admins all keys.
    pub fn may_manage(&self, created_by: Option<&str>) -> ApiResult<()> {
        if self.identity.role >= Role::Admin || created_by == Some(self.identity.actor().as_str()) {
            Ok(())
        } else {
            Err(Problem::forbidden("members can manage only the keys that they created; ask an admin"))
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for KeyManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        require_role(Role::Member, &identity)?;
        if let Principal::Key(key) = &identity.principal
            && !key.scopes.is_all()
        {
            return Err(Problem::forbidden("a key with restricted scopes cannot manage keys"));
        }
        Ok(Self { identity })
    }
}

impl OperationInput for KeyManager {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(Role::Member);
        operation.notes.push(
            "Members manage the keys that they created, admins all keys. An API key needs the scope `*`.",
        );
    }
}

fn identity(parts: &Parts) -> ApiResult<Identity> {
    let identity = of_request(&parts.extensions)?;
    if identity.may_manage() {
        return Ok(identity.clone());
    }
    let message = "the key's scopes do not allow the management API, except for its own log rows and usage; \
        add the scope 'read', or use another key";
    Err(Problem::new(StatusCode::FORBIDDEN, "scope_denied", message))
}

/// The caller's organization, for bodies that are read and parsed on its account.
pub(super) fn org_of(extensions: &Extensions) -> ApiResult<OrgId> {
    of_request(extensions).map(|identity| identity.org.id)
}

fn of_request(extensions: &Extensions) -> ApiResult<&Identity> {
    let identity = extensions.get::<Identity>();
    identity.ok_or_else(|| Problem::unauthorized("send an X-Gateway-Key header or a Bearer token"))
}

pub(super) fn require_role(role: Role, identity: &Identity) -> ApiResult<()> {
    if identity.role >= role {
        Ok(())
    } else {
        Err(Problem::forbidden(format!(
            "this operation requires the role {role}; yours is {}",
            identity.role
        )))
    }
}

/// The error for a path that names another organization than the token. Only a member of it learns that it exists.
async fn other_org_problem(app: &App, identity: &Identity, org: OrgId) -> ApiResult<Problem> {
    let Principal::User { id, .. } = identity.principal else { return Ok(Problem::not_found()) };
    Ok(match accounts::role_of(&app.services.db, org, id).await? {
        Some(_) => Problem::forbidden(
            "the token is for another organization; get a token for this one with POST /auth/switch-org",
        ),
        None => Problem::not_found(),
    })
}
