//! Skills as agents install them: with a key below `/api/v1/skills/install/`, and for readers that cannot send one below
//! `/s/{token}`. Both serve the same tree: discovery indexes, archives, a plugin marketplace and a git repository.

mod git;
pub(super) mod links;
mod request;
mod serve;
mod tree;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use gateway_core::access::Entitlement;
use gateway_core::skills::install::Selection;
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::skills::install_links::{self, InstallLink};

use self::git::GitRequest;
use self::request::{FetchHead, LinkPath, UploadBody};
use self::serve::TreeAnswer;
use self::tree::TreeContext;
use super::Reader;
use super::files::FilePath;
use crate::api::caller::AppState;
use crate::api::extract::{ClientIp, PathParam};
use crate::api::openapi::Area;
use crate::app::App;
use crate::attempts::FailureKind;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};

/// The git repository below `/api/v1/skills/install/`.
const KEY_REPOSITORY: &str = "skills.git";

/// The links. Their token is in the path, so they have no other credential.
pub fn area() -> Area {
    Area::new("install", "Skills for agents that cannot send a key, by a link with a secret token.")
        .get(
            "/s/{token}/{path}",
            by_link,
            "Install from a link: indexes, archives, marketplace.json, and git",
        )
        .post("/s/{token}/{path}", git_by_link, "Fetch from the git repository of a link")
        .at_root()
}

pub(super) async fn install_by_key(
    State(app): AppState,
    caller: Reader,
    PathParam(path): PathParam<FilePath>,
    head: FetchHead,
) -> ApiResult<TreeAnswer> {
    let context = TreeContext::new(&app, &caller, None);
    match path.0.strip_prefix(KEY_REPOSITORY) {
        Some(below) => git::advertise(&context, below, &head).await,
        None => serve::serve(&context, &path.0, &head).await,
    }
}

pub(super) async fn install_git_by_key(
    State(app): AppState,
    caller: Reader,
    PathParam(path): PathParam<FilePath>,
    head: FetchHead,
    body: UploadBody,
) -> ApiResult<TreeAnswer> {
    let context = TreeContext::new(&app, &caller, None);
    let below = path.0.strip_prefix(KEY_REPOSITORY).ok_or_else(Problem::not_found)?;
    git::upload_pack(&context, GitRequest { below, head: &head, body }).await
}

async fn by_link(
    State(app): AppState,
    ClientIp(address): ClientIp,
    link: LinkPath,
    head: FetchHead,
) -> ApiResult<TreeAnswer> {
    let found = find_link(&app, address, &link.token).await?;
    let org = found.org_id;
    let answer = async move {
        let context = link_context(&app, &found).await?;
        if link.is_git {
            git::advertise(&context, &link.below(), &head).await
        } else {
            serve::serve(&context, &link.path, &head).await
        }
    };
    Box::pin(on_behalf_of(org, answer)).await
}

async fn git_by_link(
    State(app): AppState,
    ClientIp(address): ClientIp,
    link: LinkPath,
    head: FetchHead,
    body: UploadBody,
) -> ApiResult<TreeAnswer> {
    let found = find_link(&app, address, &link.token).await?;
    if !link.is_git {
        return Err(Problem::not_found());
    }
    let org = found.org_id;
    let answer = async move {
        let context = link_context(&app, &found).await?;
        git::upload_pack(&context, GitRequest { below: &link.below(), head: &head, body }).await
    };
    Box::pin(on_behalf_of(org, answer)).await
}

/// The link of a token. Unknown, revoked and expired ones look the same, and so does a gateway without links. Their
/// number per address is limited.
async fn find_link(app: &App, address: IpAddr, token: &str) -> ApiResult<InstallLink> {
    let now = app.services.clock.now();
    let status = app.attempts.peek_failure(FailureKind::InstallToken, address);
    if !status.allowed {
        let why = "too many unknown install links from this address; try again later";
        return Err(Problem::rate_limited(status, now, why));
    }
    let found = if app.services.config.install_links && links::is_token(token) {
        install_links::find_by_token(&app.services.db, &links::hash_token(token), now).await?
    } else {
        None
    };
    found.ok_or_else(|| {
        app.attempts.count_failure(FailureKind::InstallToken, address);
        Problem::not_found()
    })
}

/// The tree of a link, as long as the organization exists and its plan has skills.
async fn link_context<'a>(app: &'a Arc<App>, link: &'a InstallLink) -> ApiResult<TreeContext<'a>> {
    let identity = app.proxy.access.org_identity(link.org_id).await?.ok_or_else(Problem::not_found)?;
    if !identity.org.plan.includes(Entitlement::SkillMarketplace) {
        return Err(Problem::not_found());
    }
    count_request(app, &identity, link).await?;
    Ok(TreeContext::new(app, &identity, Some(link)))
}

/// Counts a request against the rate limit of the plan. A link has a count of its own, as a key has, so that its readers
/// cannot use up the requests of the organization's jobs.
async fn count_request(app: &App, identity: &Identity, link: &InstallLink) -> ApiResult<()> {
    let limit = app.services.config.rate_limits.of(identity.org.plan);
    if limit == 0 {
        return Ok(());
    }
    let (id, limits) = (link.id.0, &app.proxy.limits);
    let status = limits.count_request(id, &limits.plan_counter(id), limit).await;
    if status.allowed {
        return Ok(());
    }
    let message = "too many requests by this link in this minute; see Retry-After";
    Err(Problem::rate_limited(status, app.services.clock.now(), message))
}

impl<'a> TreeContext<'a> {
    fn new(app: &'a Arc<App>, identity: &Identity, link: Option<&'a InstallLink>) -> Self {
        let (selection, key) = match link {
            None => (Selection::Passed, "passed".to_owned()),
            Some(link) => match &link.skills {
                Selection::Passed => (Selection::Passed, "passed".to_owned()),
                Selection::Shelf => (Selection::Shelf, "shelf".to_owned()),
                Selection::Skills(ids) => (Selection::Skills(ids.clone()), link.id.to_string()),
            },
        };
        Self {
            app,
            org: identity.org.id,
            slug: identity.org.slug.clone(),
            selection,
            key,
            link: link.map(|link| link.id),
        }
    }
}
