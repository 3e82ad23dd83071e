//! The links from which agents install skills without a key.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use gateway_core::accounts::check_name;
use gateway_core::ids::{InstallLinkId, SkillId};
use gateway_core::skills::install::{ALL_SKILLS, MAX_TREE_SKILLS, Selection, marketplace_name};
use gateway_core::time::Timestamp;
use gateway_store::skills;
use gateway_store::skills::install_links::{self, InstallFetch, InstallLink};
use http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::request::origin;
use crate::api::audited::Audited;
use crate::api::caller::AppState;
use crate::api::extract::{Body, PathParam, QueryParams};
use crate::api::openapi::{Operation, OperationInput};
use crate::api::page::{PageParams, encode_cursor};
use crate::api::response::{Created, Deleted, Json};
use crate::api::skills::{Manager, Reader, coded};
use crate::app::App;
use crate::problem::{ApiResult, Problem};

/// Links of an organization.
const MAX_LINKS: i64 = 100;
const TOKEN_BYTES: usize = 32;

#[derive(Deserialize, JsonSchema)]
pub(in crate::api::skills) struct InstallLinkInput {
    name: String,
    /// `passed`: every skill, in its newest version that the publish gate accepts. `shelf`: what the organization has on
    /// the shelf. Or a list of ids. Default: `passed`.
    skills: Option<SkillsInput>,
    /// Default: never.
    expires_at: Option<Timestamp>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "InstallLinkSkillsInput")]
enum SkillsInput {
    Named(NamedSelection),
    Ids(Vec<SkillId>),
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum NamedSelection {
    Passed,
    Shelf,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "InstallLinkSkills")]
enum SkillsView {
    Named(NamedSelection),
    Ids(Vec<SkillId>),
}

impl From<Selection> for SkillsView {
    fn from(selection: Selection) -> Self {
        match selection {
            Selection::Passed => Self::Named(NamedSelection::Passed),
            Selection::Shelf => Self::Named(NamedSelection::Shelf),
            Selection::Skills(ids) => Self::Ids(ids),
        }
    }
}

/// Ready commands. The token is part of them.
#[derive(Serialize, JsonSchema)]
struct InstallCommands {
    /// Any agent that `npx skills` knows.
    skills: String,
    claude_code: String,
    codex: String,
    git: String,
}

#[derive(Serialize, JsonSchema)]
pub(in crate::api::skills) struct NewInstallLink {
    #[serde(flatten)]
    link: InstallLinkView,
    /// The link. It is shown only now.
    url: String,
    commands: InstallCommands,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "InstallLink")]
struct InstallLinkView {
    id: InstallLinkId,
    name: String,
    skills: SkillsView,
    /// The user or key that created it.
    created_by: String,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    /// Who fetched from it lately.
    fetches: Vec<FetchView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "InstallFetch")]
struct FetchView {
    /// `index`, `marketplace`, `archive`, `file` or `git`.
    kind: String,
    /// The `User-Agent`.
    client: String,
    fetches: i64,
    last_at: Timestamp,
}

impl From<InstallFetch> for FetchView {
    fn from(fetch: InstallFetch) -> Self {
        let InstallFetch { kind, client, fetches, last_at } = fetch;
        Self { kind, client, fetches, last_at }
    }
}

impl InstallLinkView {
    fn new(link: InstallLink, fetches: Vec<InstallFetch>) -> Self {
        let InstallLink { id, org_id: _, name, skills, created_by, created_at, expires_at } = link;
        let fetches = fetches.into_iter().map(Into::into).collect();
        Self { id, name, skills: skills.into(), created_by, created_at, expires_at, fetches }
    }
}

#[derive(Serialize, JsonSchema)]
pub(in crate::api::skills) struct InstallLinkList {
    links: Vec<InstallLinkView>,
    next_cursor: Option<String>,
    /// Whether the operator serves links (`GATEWAY_INSTALL_LINKS`).
    enabled: bool,
    /// Where the same tree is served to callers with a key.
    key_url: String,
    /// Who fetched with a key lately.
    key_fetches: Vec<FetchView>,
}

pub(in crate::api::skills) async fn list_install_links(
    State(app): AppState,
    caller: Reader,
    QueryParams(params): QueryParams<PageParams>,
    origin: Origin,
) -> ApiResult<Json<InstallLinkList>> {
    let (db, org) = (&app.services.db, caller.org.id);
    let found = install_links::list(db, org, &params.page()?).await?;
    let next_cursor = encode_cursor(found.next.as_deref());
    let mut links = Vec::with_capacity(found.rows.len());
    for link in found.rows {
        let fetches = install_links::list_fetches(db, org, Some(link.id)).await?;
        links.push(InstallLinkView::new(link, fetches));
    }
    let key_fetches = install_links::list_fetches(db, org, None).await?;
    Ok(Json(InstallLinkList {
        links,
        next_cursor,
        enabled: app.services.config.install_links,
        key_url: format!("{}/api/v1/skills/install", origin.0),
        key_fetches: key_fetches.into_iter().map(Into::into).collect(),
    }))
}

pub(in crate::api::skills) async fn create_install_link(
    app: Audited,
    caller: Manager,
    origin: Origin,
    Body(input): Body<InstallLinkInput>,
) -> ApiResult<Created<NewInstallLink>> {
    let (org, now) = (caller.org.id, app.services.clock.now());
    let InstallLinkInput { name, skills, expires_at } = input;
    check_name(&name).map_err(|why| invalid("name", why))?;
    if expires_at.is_some_and(|at| at <= now) {
        return Err(invalid("expires_at", "must be in the future"));
    }
    let selection = match skills {
        None | Some(SkillsInput::Named(NamedSelection::Passed)) => Selection::Passed,
        Some(SkillsInput::Named(NamedSelection::Shelf)) => Selection::Shelf,
        Some(SkillsInput::Ids(ids)) => Selection::Skills(checked_ids(&app, &caller, ids).await?),
    };
    if !app.services.config.install_links {
        let why = "install links are off; the operator can switch them on with GATEWAY_INSTALL_LINKS=true";
        return Err(Problem::conflict(why));
    }
    let token = new_token()?;
    let link = InstallLink {
        id: app.services.ids.new_id(),
        org_id: org,
        name,
        skills: selection,
        created_by: caller.actor(),
        created_at: now,
        expires_at,
    };
    let mut tx = app.services.db.begin().await?;
    if install_links::count(&mut tx, org).await? >= MAX_LINKS {
        let why = format!("an organization may have {MAX_LINKS} install links; revoke one first");
        return Err(Problem::quota_exceeded(("install_links", MAX_LINKS.unsigned_abs()), why));
    }
    install_links::insert(&mut tx, &link, &hash_token(&token)).await?;
    let created = json!({"name": link.name, "expires_at": link.expires_at});
    tx.record(app.entry().target(link.id, &link.name).created(&created));
    tx.commit().await?;
    let url = format!("{}/s/{token}", origin.0);
    let commands = commands(&url, &caller.org.slug);
    Ok(Created(NewInstallLink { link: InstallLinkView::new(link, Vec::new()), url, commands }))
}

pub(in crate::api::skills) async fn delete_install_link(
    app: Audited,
    caller: Manager,
    PathParam(id): PathParam<InstallLinkId>,
) -> ApiResult<Json<Deleted>> {
    let mut tx = app.services.db.begin().await?;
    let link = install_links::delete(&mut tx, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    tx.record(app.entry().named(&link.name).deleted(&json!({"name": link.name})));
    tx.commit().await?;
    Ok(Deleted::yes())
}

fn invalid(field: &str, why: impl std::fmt::Display) -> Problem {
    coded(http::StatusCode::BAD_REQUEST, "invalid_body", format!("{field}: {why}"))
}

async fn checked_ids(app: &App, caller: &Manager, mut ids: Vec<SkillId>) -> ApiResult<Vec<SkillId>> {
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() || ids.len() > MAX_TREE_SKILLS {
        return Err(invalid(
            "skills",
            format!("must be passed, shelf, or 1 to {MAX_TREE_SKILLS} ids of skills"),
        ));
    }
    for id in &ids {
        if skills::find(&app.services.db, caller.org.id, *id).await?.is_none() {
            return Err(invalid("skills", format!("the organization has no skill {id}")));
        }
    }
    Ok(ids)
}

fn commands(url: &str, slug: &str) -> InstallCommands {
    let market = marketplace_name(slug);
    InstallCommands {
        skills: format!("npx skills add {url}"),
        claude_code: format!(
            "claude plugin marketplace add {url}.git && claude plugin install {ALL_SKILLS}@{market}"
        ),
        codex: format!("codex plugin marketplace add {url}.git && codex plugin add {ALL_SKILLS}@{market}"),
        git: format!("git clone {url}.git {market}"),
    }
}

/// 256 random bits.
fn new_token() -> ApiResult<String> {
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random).map_err(Problem::internal)?;
    Ok(hex::encode(random))
}

/// Whether a text may be a token, so that the database is not asked for others.
pub(super) fn is_token(text: &str) -> bool {
    text.len() == TOKEN_BYTES * 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn hash_token(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

/// The outside address of the gateway.
pub(in crate::api::skills) struct Origin(String);

impl FromRequestParts<Arc<App>> for Origin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        Ok(Self(origin(app, parts)))
    }
}

impl OperationInput for Origin {
    fn describe(_: &mut Operation<'_>) {}
}
