//! The permission that a handler needs, as one of its arguments: a handler without one cannot reach tenant data,
//! because it has no organization to start from. Entitlement is checked before role, both before the body is read.

use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::{FromRequestParts, State};
use gateway_core::access::{Entitlement, Role};
use gateway_core::ids::{OrgId, TokenId, UserId};
use gateway_core::time::Timestamp;
use gateway_store::accounts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use serde_json::json;
use std::sync::Arc;

use super::extract::path_param;
use super::route::{Input, Operation};
use crate::app::App;
use crate::auth::{Identity, KEY_HEADER, Who};
use crate::problem::{Outcome, Problem};

/// The least role, as a type.
pub trait Needs: Send + Sync {
    const ROLE: Role;
}

/// The feature of a plan, as a type.
pub trait Feature: Send + Sync {
    const FEATURE: Option<Entitlement>;
}

macro_rules! markers {
    ($trait:ident, $constant:ident: $type:ty; $($name:ident = $value:expr),+ $(,)?) => {$(
        pub struct $name;
        impl $trait for $name {
            const $constant: $type = $value;
        }
    )+};
}
markers!(Needs, ROLE: Role; Viewer = Role::Viewer, Member = Role::Member, Admin = Role::Admin, Owner = Role::Owner);
markers!(Feature, FEATURE: Option<Entitlement>;
    EveryPlan = None,
    SkillMarketplace = Some(Entitlement::SkillMarketplace),
    Integrations = Some(Entitlement::Integrations),
    Webhooks = Some(Entitlement::Webhooks),
);

/// A caller with at least role `R`, in an organization whose plan includes `E`.
pub struct Caller<R, E = EveryPlan> {
    identity: Identity,
    marker: PhantomData<(R, E)>,
}

impl<R, E> Deref for Caller<R, E> {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl<R: Needs, E: Feature, S: Send + Sync> FromRequestParts<S> for Caller<R, E> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        if let Some(feature) = E::FEATURE
            && !identity.org.plan.includes(feature)
        {
            return Err(Problem::forbidden(format!(
                "the plan '{}' does not include {feature}; it comes with the enterprise plan",
                identity.org.plan
            )));
        }
        at_least(R::ROLE, &identity)?;
        Ok(Self { identity, marker: PhantomData })
    }
}

impl<R: Needs, E: Feature> Input for Caller<R, E> {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(R::ROLE);
        operation.entitlement = E::FEATURE;
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

impl<R: Needs> FromRequestParts<Arc<App>> for InOrg<R> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        let org: OrgId = path_param(parts, app).await?;
        if org != identity.org.id {
            return Err(elsewhere(app, &identity, org).await?);
        }
        at_least(R::ROLE, &identity)?;
        Ok(Self { identity, marker: PhantomData })
    }
}

impl<R: Needs> Input for InOrg<R> {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(R::ROLE);
        operation.parameters.push(json!({
            "name": "orgId", "in": "path", "required": true, "schema": {"type": "string", "format": "uuid"},
        }));
    }
}

/// A person with a session token; keys are refused.
pub struct Person {
    pub id: UserId,
    pub token: TokenId,
    pub expires_at: Timestamp,
    pub identity: Identity,
}

impl<S: Send + Sync> FromRequestParts<S> for Person {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        match identity.who {
            Who::User { id, token, expires_at } => Ok(Self { id, token, expires_at, identity }),
            Who::Key(_) | Who::Org => {
                Err(Problem::forbidden("this needs a session token; an API key does not act for a person"))
            }
        }
    }
}

impl Input for Person {
    fn describe(operation: &mut Operation<'_>) {
        operation.notes.push("Needs a session token, not an API key.");
    }
}

/// The caller's credential itself, for answers that outlive the request: it is looked at again while they run.
pub struct Credentials(pub HeaderMap);

impl<S: Send + Sync> FromRequestParts<S> for Credentials {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let names = [HeaderName::from_static(KEY_HEADER), AUTHORIZATION];
        let found =
            names.into_iter().filter_map(|name| parts.headers.get(&name).cloned().map(|value| (name, value)));
        Ok(Self(found.collect()))
    }
}

impl Input for Credentials {
    fn describe(_: &mut Operation<'_>) {}
}

/// A caller who may touch keys at all: a member or better, and no key of limited scope.
pub struct KeyManager {
    pub identity: Identity,
}

impl KeyManager {
    /// A member manages the keys that they made, an admin all.
    pub fn may_manage(&self, created_by: Option<&str>) -> Outcome<()> {
        if self.identity.role >= Role::Admin || created_by == Some(self.identity.actor().as_str()) {
            Ok(())
        } else {
            Err(Problem::forbidden("a member manages only the keys that they created; ask an admin"))
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for KeyManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let identity = identity(parts)?;
        at_least(Role::Member, &identity)?;
        if let Who::Key(key) = &identity.who
            && !key.scopes.is_all()
        {
            return Err(Problem::forbidden("a key of limited scope cannot manage keys"));
        }
        Ok(Self { identity })
    }
}

impl Input for KeyManager {
    fn describe(operation: &mut Operation<'_>) {
        operation.role = Some(Role::Member);
        operation.notes.push(
            "A member manages the keys that they created, an admin all; an API key only with scope `*`.",
        );
    }
}

fn identity(parts: &Parts) -> Outcome<Identity> {
    let identity = parts.extensions.get::<Identity>().cloned();
    identity.ok_or_else(|| Problem::unauthorized("send X-Gateway-Key or a Bearer token"))
}

pub(super) fn at_least(role: Role, identity: &Identity) -> Outcome<()> {
    if identity.role >= role {
        Ok(())
    } else {
        Err(Problem::forbidden(format!("this needs the role {role}, and you are {}", identity.role)))
    }
}

/// Another organization than the token's: told apart only for its own members.
async fn elsewhere(app: &App, identity: &Identity, org: OrgId) -> Outcome<Problem> {
    let Who::User { id, .. } = identity.who else { return Ok(Problem::not_found()) };
    Ok(match accounts::role_of(&app.services.db, org, id).await? {
        Some(_) => {
            Problem::forbidden("the token is scoped to another organization; use POST /auth/switch-org first")
        }
        None => Problem::not_found(),
    })
}

/// The app itself, as handlers take it.
pub type Shared = State<Arc<App>>;
