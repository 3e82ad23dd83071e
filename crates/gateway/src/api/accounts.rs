//! Signup, login and setup: the endpoints without authentication, each with a limit of attempts per address.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use gateway_core::access::{Plan, Role};
use gateway_core::accounts::{OrgSettings, check_name, check_password, check_slug, normalise_email, slugify};
use gateway_core::events::{AppEventData, Event};
use gateway_core::ids::{AppId, OrgId, UserId};
use gateway_core::time::Timestamp;
use gateway_store::accounts::User;
use gateway_store::{Tx, accounts, apps, events, members, orgs};
use http::request::Parts;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::auth::{OrgWithRole, issue_token};
use super::caller::AppState;
use super::extract::{Body, ClientIp};
use super::keys::{self, KeyBrief};
use super::members::hash_invite_token;
use super::openapi::{Area, Operation, OperationInput};
use super::response::{Created, Json};
use crate::app::App;
use crate::auth::passwords::PasswordError;
use crate::problem::{ApiResult, Problem};
use crate::rate_limits::AttemptKind;

pub fn area() -> Area {
    Area::new("accounts", "Signup, login, and setup without a user account.")
        .post("/signup", signup, "Create an organization, its first user and its first key in one call")
        .post("/login", login, "Exchange email and password for a session token")
        .post("/setup", setup, "Create an organization, an application and a key in one call")
}

#[derive(Deserialize, JsonSchema)]
struct SignupRequest {
    email: String,
    password: String,
    /// Required unless an `invite_token` is given.
    org_slug: Option<String>,
    org_name: Option<String>,
    display_name: Option<String>,
    /// Joins the inviting organization instead of creating one.
    invite_token: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct SignupResponse {
    org: OrgBrief,
    user: NewUser,
    /// Returned only in this response. Null for a user who joined by invitation: an admin creates keys for them.
    api_key: Option<String>,
    token: String,
}

#[derive(Serialize, JsonSchema)]
struct OrgBrief {
    id: OrgId,
    slug: String,
    plan: Plan,
}

impl From<&orgs::Org> for OrgBrief {
    fn from(org: &orgs::Org) -> Self {
        Self { id: org.id, slug: org.slug.clone(), plan: org.plan }
    }
}

#[derive(Serialize, JsonSchema)]
struct NewUser {
    id: UserId,
    email: String,
}

#[derive(Serialize, JsonSchema)]
struct UserBrief {
    id: UserId,
    email: String,
    display_name: String,
}

impl From<&User> for UserBrief {
    fn from(user: &User) -> Self {
        Self { id: user.id, email: user.email.clone(), display_name: user.display_name.clone() }
    }
}

async fn signup(
    State(app): AppState,
    _: AttemptLimit<Signup>,
    Body(request): Body<SignupRequest>,
) -> ApiResult<Created<SignupResponse>> {
    let email = normalise_email(&request.email).map_err(|why| Problem::field("email", why))?;
    check_password(&request.password).map_err(|why| Problem::field("password", why))?;
    let display_name = match request.display_name {
        Some(name) => {
            check_name(&name).map_err(|why| Problem::field("display_name", why))?;
            name
        }
        None => email.split('@').next().unwrap_or_default().to_owned(),
    };
    let new_org = match (&request.invite_token, request.org_slug) {
        (Some(_), _) => None,
        (None, Some(slug)) => Some(new_org(&app, slug, request.org_name)?),
        (None, None) => {
            return Err(Problem::field("org_slug", "is required unless an invite_token is given"));
        }
    };
    let password_hash =
        app.passwords.hash(SecretString::from(request.password)).await.map_err(password_problem)?;
    let user = User {
        id: app.services.ids.new_id(),
        email,
        display_name,
        password_hash,
        created_at: app.services.clock.now(),
    };

    let mut tx = app.services.db.begin().await?;
    accounts::insert_user(&mut tx, &user)
        .await
        .map_err(Problem::on_duplicate("an account with this email already exists"))?;
    let (org, role, api_key) = if let Some(org) = new_org {
        let raw = create_org(&app, &mut tx, &org, &user).await?;
        (org, Role::Owner, Some(raw))
    } else {
        let token = request.invite_token.unwrap_or_default();
        let (org, role) = join_org(&app, &mut tx, &token, &user).await?;
        (org, role, None)
    };
    tx.commit().await?;

    let (token, _) = issue_token(&app, user.id, org.id, role)?;
    let user = NewUser { id: user.id, email: user.email };
    Ok(Created(SignupResponse { org: (&org).into(), user, api_key, token }))
}

#[derive(Deserialize, JsonSchema)]
struct LoginRequest {
    email: String,
    password: String,
}

#[derive(Serialize, JsonSchema)]
struct LoginResponse {
    token: String,
    expires_at: Timestamp,
    user: UserBrief,
    /// The organization that the token is valid for.
    org: OrgWithRole,
    orgs: Vec<OrgWithRole>,
}

async fn login(
    State(app): AppState,
    _: AttemptLimit<Login>,
    Body(request): Body<LoginRequest>,
) -> ApiResult<Json<LoginResponse>> {
    // An invalid address takes the same path and the same time as an unknown one.
    let email = normalise_email(&request.email).unwrap_or_default();
    let user = accounts::find_by_email(&app.services.db, &email).await?;
    let stored = user.as_ref().map(|user| user.password_hash.clone());
    let matches =
        app.passwords.verify(SecretString::from(request.password), stored).await.map_err(password_problem)?;
    let user = user.filter(|_| matches).ok_or_else(|| Problem::unauthorized("wrong email or password"))?;
    let orgs: Vec<OrgWithRole> =
        orgs::list_by_user(&app.services.db, user.id).await?.into_iter().map(Into::into).collect();
    let org = orgs.first().cloned().ok_or_else(|| {
        Problem::forbidden("you are not a member of any organization; ask for an invitation")
    })?;
    let (token, expires_at) = issue_token(&app, user.id, org.id, org.role)?;
    Ok(Json(LoginResponse { token, expires_at, user: (&user).into(), org, orgs }))
}

#[derive(Deserialize, JsonSchema)]
struct SetupRequest {
    org_name: String,
    /// Default: derived from the name.
    org_slug: Option<String>,
    /// Default: `default`.
    app_name: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct SetupResponse {
    org: OrgBrief,
    app: AppBrief,
    key: KeyBrief,
    /// Returned only in this response.
    api_key: String,
}

#[derive(Serialize, JsonSchema)]
struct AppBrief {
    id: AppId,
    name: String,
}

async fn setup(
    State(app): AppState,
    _: AttemptLimit<Setup>,
    Body(request): Body<SetupRequest>,
) -> ApiResult<Created<SetupResponse>> {
    check_name(&request.org_name).map_err(|why| Problem::field("org_name", why))?;
    let slug = request.org_slug.unwrap_or_else(|| generate_slug(&app, &request.org_name));
    let org = new_org(&app, slug, Some(request.org_name))?;
    let app_name = request.app_name.unwrap_or_else(|| "default".into());
    check_name(&app_name).map_err(|why| Problem::field("app_name", why))?;
    let now = app.services.clock.now();
    let new_app = apps::App {
        id: app.services.ids.new_id(),
        org_id: org.id,
        name: app_name,
        description: String::new(),
        team_id: None,
        config: serde_json::json!({}),
        created_at: now,
    };

    let mut tx = app.services.db.begin().await?;
    orgs::insert(&mut tx, &org).await.map_err(Problem::on_duplicate("this org_slug is taken"))?;
    apps::insert(&mut tx, &new_app).await?;
    let facts = AppEventData { app_id: new_app.id, name: new_app.name.clone(), actor: "setup".into() };
    events::record(&mut tx, org.id, app.services.ids.new_id(), &Event::AppCreate(facts), now).await?;
    let generated = keys::generate(&app, org.id, "default".into(), Some(new_app.id), None)?;
    keys::insert_with_event(&app, &mut tx, &generated, "setup").await?;
    tx.commit().await?;

    Ok(Created(SetupResponse {
        org: (&org).into(),
        app: AppBrief { id: new_app.id, name: new_app.name },
        key: (&generated.key).into(),
        api_key: generated.raw,
    }))
}

/// A new organization, after its slug and name were checked.
pub(super) fn new_org(app: &App, slug: String, name: Option<String>) -> ApiResult<orgs::Org> {
    check_slug(&slug).map_err(|why| Problem::field("org_slug", why))?;
    let name = name.unwrap_or_else(|| slug.clone());
    check_name(&name).map_err(|why| Problem::field("org_name", why))?;
    Ok(orgs::Org {
        id: app.services.ids.new_id(),
        slug,
        name,
        plan: app.services.config.default_plan,
        settings: OrgSettings::default(),
        created_at: app.services.clock.now(),
    })
}

/// A slug for requests without one: derived from the name, with random digits that make it unique.
pub(super) fn generate_slug(app: &App, name: &str) -> String {
    let id: uuid::Uuid = app.services.ids.new_id();
    let tail = &id.simple().to_string()[26..];
    match slugify(name).as_str() {
        "" => format!("org-{tail}"),
        slug => format!("{slug}-{tail}"),
    }
}

/// Creates the organization, its owner and its first key, and returns the raw key.
async fn create_org(app: &App, tx: &mut Tx, org: &orgs::Org, user: &User) -> ApiResult<String> {
    orgs::insert(tx, org).await.map_err(Problem::on_duplicate("this org_slug is taken"))?;
    members::insert(tx, org.id, user.id, Role::Owner, app.services.clock.now()).await?;
    let generated = keys::generate(app, org.id, "default".into(), None, Some(user.id.to_string()))?;
    keys::insert_with_event(app, tx, &generated, &user.id.to_string()).await?;
    Ok(generated.raw)
}

/// Adds the user to the organization that the invitation is for.
async fn join_org(app: &App, tx: &mut Tx, token: &str, user: &User) -> ApiResult<(orgs::Org, Role)> {
    let unknown =
        || Problem::field("invite_token", "is invalid, already used or expired; ask for a new invitation");
    let invite = members::consume_invite(tx, &hash_invite_token(token)).await?.ok_or_else(unknown)?;
    if app.services.clock.now() >= invite.expires_at {
        return Err(unknown());
    }
    if invite.email != user.email {
        return Err(Problem::field("email", "must be the address that the invitation was sent to"));
    }
    members::insert(tx, invite.org_id, user.id, invite.role, app.services.clock.now()).await?;
    let org = orgs::find_in_tx(tx, invite.org_id).await?.ok_or_else(unknown)?;
    Ok((org, invite.role))
}

/// An endpoint with limited attempts, as a type.
trait LimitedEndpoint: Send + Sync {
    const ATTEMPT: AttemptKind;
}

struct Signup;
struct Login;
struct Setup;

impl LimitedEndpoint for Signup {
    const ATTEMPT: AttemptKind = AttemptKind::Signup;
}

impl LimitedEndpoint for Login {
    const ATTEMPT: AttemptKind = AttemptKind::Login;
}

impl LimitedEndpoint for Setup {
    const ATTEMPT: AttemptKind = AttemptKind::Setup;
}

/// Rejects an address with too many attempts. It counts before the body is read, so that every request counts.
struct AttemptLimit<E>(PhantomData<E>);

impl<E: LimitedEndpoint> FromRequestParts<Arc<App>> for AttemptLimit<E> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let ClientIp(address) = ClientIp::from_request_parts(parts, app).await?;
        let verdict = app.rate_limiter.count_attempt(E::ATTEMPT, address).await;
        if verdict.allowed {
            Ok(Self(PhantomData))
        } else {
            Err(Problem::rate_limited(
                verdict,
                app.services.clock.now(),
                "too many attempts from this address; try again later",
            ))
        }
    }
}

impl<E: LimitedEndpoint> OperationInput for AttemptLimit<E> {
    fn describe(_: &mut Operation<'_>) {}
}

fn password_problem(error: PasswordError) -> Problem {
    match error {
        PasswordError::Busy => {
            Problem::overloaded("too many password checks are in progress; try again shortly")
        }
        PasswordError::Failed => Problem::internal(error),
    }
}
