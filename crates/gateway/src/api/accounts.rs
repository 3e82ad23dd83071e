//! Signup, login and setup: the endpoints without authentication, each with a limit of attempts per address.

use std::sync::Arc;

use gateway_core::access::{Plan, Role};
use gateway_core::accounts::{
    OrgSettings, check_name, check_new_slug, check_password, normalise_email, slugify,
};
use gateway_core::audit::Outcome;
use gateway_core::events::{AppEventData, Event};
use gateway_core::ids::{AppId, OrgId, UserId};
use gateway_core::time::Timestamp;
use gateway_store::accounts::User;
use gateway_store::{StoreError, Tx, accounts, apps, events, members, orgs};
use http::StatusCode;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::attempt_limits::{AttemptLimit, LoginEndpoint, SetupEndpoint, SignupEndpoint};
use super::audited::Audited;
use super::auth::OrgWithRole;
use super::auth::passwords::{password_problem, verify_password};
use super::auth::sessions::{SessionOrigin, record_sign_in, start_session};
use super::extract::Body;
use super::invites::{self, Refusal};
use super::keys::{self, KeyBrief};
use super::openapi::Area;
use super::response::{Created, Json};
use crate::app::App;
use crate::cluster::invalidation::{self, Invalidation};
use crate::config::Signup;
use crate::problem::{ApiResult, Problem};

const MAX_SHOWN_EMAIL: usize = 254;

pub fn area() -> Area {
    Area::new("accounts", "Signup, login, and setup without a user account.")
        .post("/signup", signup, SIGNUP_SUMMARY)
        .post("/login", login, "Exchange email and password for a session token")
        .post("/setup", setup, SETUP_SUMMARY)
}

const SIGNUP_SUMMARY: &str = "Create an organization, its first user and its first key in one call; 403 signup_closed if \
                              the operator has closed signup or requires an invite_token";
const SETUP_SUMMARY: &str = "Create an organization, an application and a key in one call; 403 signup_closed unless signup \
                             is open";

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
    app: Audited,
    _: AttemptLimit<SignupEndpoint>,
    origin: SessionOrigin,
    Body(request): Body<SignupRequest>,
) -> ApiResult<Created<SignupResponse>> {
    check_signup(&app, request.invite_token.is_some()).await?;
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
    accounts::insert_user(&mut tx, &user).await.map_err(Problem::on_duplicate(
        "an account with this email already exists; sign in instead, with the invite_token if you have one",
    ))?;
    let (org, role, api_key) = if let Some(org) = new_org {
        let raw = create_org(&app, &mut tx, &org, &user).await?;
        (org, Role::Owner, Some(raw))
    } else {
        let token = request.invite_token.unwrap_or_default();
        let joined = invites::join(&app, &mut tx, &token, (user.id, &user.email)).await?;
        let (org, role) = joined.map_err(Refusal::into_field_problem)?;
        (org, role, None)
    };
    let (token, _) = start_session(&app, &mut tx, &origin, user.id, (org.id, role)).await?;
    record_sign_in(&app, &mut tx, user.id, &origin).await?;
    let entry = app.entry().within(org.id).by_user(user.id, &user.email);
    tx.record(if role == Role::Owner && api_key.is_some() {
        entry
            .target(org.id, &org.name)
            .created(&json!({"slug": org.slug, "name": org.name, "plan": org.plan}))
    } else {
        let joined = json!({"role": role});
        entry.action("member.add").kind("member").target(user.id, &user.email).created(&joined)
    });
    tx.commit().await?;

    let user = NewUser { id: user.id, email: user.email };
    Ok(Created(SignupResponse { org: (&org).into(), user, api_key, token }))
}

#[derive(Deserialize, JsonSchema)]
struct LoginRequest {
    email: String,
    password: String,
    /// Joins the inviting organization, for an account that is a member of none.
    invite_token: Option<String>,
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
    app: Audited,
    _: AttemptLimit<LoginEndpoint>,
    origin: SessionOrigin,
    Body(request): Body<LoginRequest>,
) -> ApiResult<Json<LoginResponse>> {
    let rejected = || Problem::unauthorized("wrong email or password");
    // An invalid address takes the same path and the same time as an unknown one.
    let email = normalise_email(&request.email).unwrap_or_else(|_| digest_of(&request.email));
    let user = accounts::find_by_email(&app.services.db, &email).await?;
    let password = SecretString::from(request.password);
    let matches = verify_password(&app, origin.address, &email, user.as_ref(), password).await?;
    if !matches {
        record_failed_login(&app, &email, user.as_ref());
    }
    let user = user.filter(|_| matches).ok_or_else(rejected)?;

    let mut tx = app.services.db.begin().await?;
    // The password may have been changed while it was verified.
    if !accounts::lock_with_password(&mut tx, user.id, &user.password_hash).await? {
        return Err(rejected());
    }
    let mut joined = None;
    let mut pending = Vec::new();
    if let Some(token) = request.invite_token {
        let admitted = invites::join(&app, &mut tx, &token, (user.id, &user.email)).await?;
        let (org, _) = admitted.map_err(Refusal::into_field_problem)?;
        pending.push(invalidation::record(&mut tx, Invalidation::Member(org.id, user.id)).await?);
        joined = Some(org.id);
    }
    let orgs = orgs::list_by_user_in_tx(&mut tx, user.id).await?;
    let orgs: Vec<OrgWithRole> = orgs.into_iter().map(Into::into).collect();
    let org = orgs.iter().find(|org| joined.is_none_or(|joined| org.id == joined)).cloned();
    let org = org.ok_or_else(|| {
        Problem::forbidden(
            "you are not a member of any organization; ask for an invitation and sign in with its invite_token",
        )
    })?;
    let (token, expires_at) = start_session(&app, &mut tx, &origin, user.id, (org.id, org.role)).await?;
    record_sign_in(&app, &mut tx, user.id, &origin).await?;
    let entry = app.entry().within(org.id).by_user(user.id, &user.email);
    tx.record(entry.target(user.id, &user.email));
    if joined.is_some() {
        let added = app.entry().within(org.id).by_user(user.id, &user.email).action("member.add");
        let added = added.kind("member").target(user.id, &user.email);
        tx.record(added.created(&json!({"role": org.role})));
    }
    invalidation::commit(tx, pending, &app.cluster).await?;
    Ok(Json(LoginResponse { token, expires_at, user: (&user).into(), org, orgs }))
}

/// Records it in the user's organization, or of the installation if nobody has this address. It is done behind the
/// response, which must take the same time for every address.
fn record_failed_login(app: &Audited, email: &str, user: Option<&User>) {
    let mut entry = app.entry().action("auth.login_failed");
    (entry.outcome, entry.status) = (Outcome::Failed, Some(401));
    entry.target.name = Some(email.chars().take(MAX_SHOWN_EMAIL).collect());
    let user = user.map(|user| user.id);
    entry.target.id = user.map(|id| id.to_string());
    let shared = Arc::clone(app);
    app.services.tasks.spawn(async move {
        let orgs = match user {
            Some(id) => orgs::list_by_user(&shared.services.db, id).await.unwrap_or_default(),
            None => Vec::new(),
        };
        if let Some((org, _)) = orgs.first() {
            entry = entry.within(org.id);
        }
        shared.audit.push(entry);
    });
}

/// Stands for an address that is not valid. No account has it.
fn digest_of(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
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
    app: Audited,
    _: AttemptLimit<SetupEndpoint>,
    Body(request): Body<SetupRequest>,
) -> ApiResult<Created<SetupResponse>> {
    if app.services.config.signup != Signup::Open {
        return Err(signup_closed("new organizations are not open to everyone here; ask for an invitation"));
    }
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
        config: json!({}),
        created_at: now,
    };

    let mut tx = app.services.db.begin().await?;
    insert_org(&app, &mut tx, &org).await.map_err(Problem::on_duplicate("this org_slug is taken"))?;
    apps::insert(&mut tx, &new_app).await?;
    let facts = AppEventData { app_id: new_app.id, name: new_app.name.clone(), actor: "setup".into() };
    events::record(&mut tx, org.id, app.services.ids.new_id(), &Event::AppCreate(facts), now).await?;
    let generated = keys::generate(&app, org.id, "default".into(), Some(new_app.id), None)?;
    keys::insert_with_event(&app, &mut tx, &generated, "setup").await?;
    let created = json!({"slug": org.slug, "name": org.name, "plan": org.plan, "app_id": new_app.id, "key_id": generated.key.id});
    tx.record(app.entry().within(org.id).target(org.id, &org.name).created(&created));
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
    check_new_slug(&slug).map_err(|why| Problem::field("org_slug", why))?;
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

/// Inserts an organization. A second one may end the access of tenants' URLs to private addresses.
pub(super) async fn insert_org(app: &App, tx: &mut Tx, org: &orgs::Org) -> Result<(), StoreError> {
    orgs::insert(tx, org).await?;
    app.services.egress.count_orgs(orgs::count_in_tx(tx).await?);
    Ok(())
}

/// Whether the operator lets this person create an account. The first one always may.
async fn check_signup(app: &App, is_invited: bool) -> ApiResult<()> {
    let is_allowed = match app.services.config.signup {
        Signup::Open => true,
        Signup::Invite => is_invited,
        Signup::Closed => false,
    };
    if is_allowed || !accounts::has_users(&app.services.db).await? {
        return Ok(());
    }
    Err(match app.services.config.signup {
        Signup::Invite => signup_closed("signup needs an invite_token; ask an admin for an invitation"),
        Signup::Open | Signup::Closed => signup_closed("signup is closed; ask the operator"),
    })
}

fn signup_closed(message: &'static str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "signup_closed", message)
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
    insert_org(app, tx, org).await.map_err(Problem::on_duplicate("this org_slug is taken"))?;
    members::insert(tx, org.id, user.id, Role::Owner, app.services.clock.now()).await?;
    app.services.db.owners().set(org.id, user.id);
    let generated = keys::generate(app, org.id, "default".into(), None, Some(user.id.to_string()))?;
    keys::insert_with_event(app, tx, &generated, &user.id.to_string()).await?;
    Ok(generated.raw)
}
