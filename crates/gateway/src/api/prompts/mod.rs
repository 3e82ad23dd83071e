//! Prompt templates with immutable versions: every update creates a new version. Labels, in `labels`, point to versions;
//! `usage` has the usage and the scores of each version.

mod labels;
mod usage;

use std::collections::{BTreeMap, HashMap};

use axum::extract::{FromRequestParts, State};
use gateway_core::ids::PromptId;
use gateway_core::prompts::{
    PromptReference, Template, VersionSelector, check_label, check_name, parse_version,
};
use gateway_core::time::Timestamp;
use gateway_store::prompts::{self, Prompt, PromptName};
use gateway_store::versioned::Versioned;
use http::StatusCode;
use http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audited::Audited;
use super::caller::{AppState, Caller, Member, Viewer};
use super::extract::{
    Body, FromPath, OptionalBody, PagedQuery, PathParam, QueryParams, ResponseRoom, path_param,
};
use super::large_deletions::VersionedDeletion;
use super::openapi::{Area, Operation, OperationInput};
use super::page;
use super::response::{Created, Deleted, Json};
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::prompts::{self as templates, Change, check_content, render_problem};

pub fn area() -> Area {
    Area::new("prompts", "Prompt templates with immutable versions, and labels that point to versions.")
        .post("/prompts", create, "Create a prompt with version 1")
        .get("/prompts", list, "List the prompts, each in its latest version")
        .get("/prompts/{namespace}/{slug}", get, "Get the latest version, or the given version or label")
        .put("/prompts/{namespace}/{slug}", update, "Create a new version")
        .delete("/prompts/{namespace}/{slug}", delete, "Delete a prompt and all its versions")
        .get("/prompts/{namespace}/{slug}/versions", versions, "List all versions, newest first")
        .get("/prompts/{namespace}/{slug}/versions/{version}", version, "Get one version")
        .post("/prompts/{namespace}/{slug}/render", render, "Render a prompt with values for its variables")
        .get(
            "/prompts/{namespace}/{slug}/labels",
            labels::list_labels,
            "List the labels and the versions they point to",
        )
        .put(
            "/prompts/{namespace}/{slug}/labels/{label}",
            labels::set_label,
            "Set a label, or move it to another version",
        )
        .delete("/prompts/{namespace}/{slug}/labels/{label}", labels::delete_label, "Remove a label")
        .get(
            "/prompts/{namespace}/{slug}/usage",
            usage::usage,
            "Get usage, cost and eval verdicts of each version",
        )
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Prompt")]
pub(super) struct PromptView {
    id: PromptId,
    namespace: String,
    slug: String,
    content: String,
    version: i64,
    /// The names of the variables, in the order of their first occurrence.
    variables: Vec<String>,
    /// The id of the user or key that created this version.
    created_by: Option<String>,
    /// When the prompt was created.
    created_at: Timestamp,
    /// When this version was created.
    updated_at: Timestamp,
    /// The labels of the prompt and the versions that they point to.
    labels: BTreeMap<String, i64>,
}

impl TryFrom<Prompt> for PromptView {
    type Error = Problem;

    fn try_from(prompt: Prompt) -> ApiResult<Self> {
        let Prompt { id, namespace, slug, version, content, created_by, created_at, updated_at, labels } =
            prompt;
        let variables = Template::parse(&content).map_err(Problem::internal)?.variables().to_vec();
        Ok(Self {
            id,
            namespace,
            slug,
            content,
            version,
            variables,
            created_by,
            created_at,
            updated_at,
            labels,
        })
    }
}

/// The name of a prompt in the path.
struct PromptPath {
    namespace: String,
    slug: String,
}

impl PromptPath {
    fn name(&self) -> PromptName<'_> {
        PromptName { namespace: &self.namespace, slug: &self.slug }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PromptPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Namespace(namespace) = path_param(parts, state).await?;
        let Slug(slug) = path_param(parts, state).await?;
        Ok(Self { namespace, slug })
    }
}

impl OperationInput for PromptPath {
    fn describe(operation: &mut Operation<'_>) {
        PathParam::<Namespace>::describe(operation);
        PathParam::<Slug>::describe(operation);
    }
}

struct Namespace(String);
struct Slug(String);
struct Version(i64);
struct Label(String);

macro_rules! name_params {
    ($($type:ident = $name:literal),+ $(,)?) => {$(
        impl FromPath for $type {
            const NAME: &'static str = $name;

            fn parse(text: &str) -> Result<Self, String> {
                check_name(text).map_err(str::to_owned)?;
                Ok(Self(text.to_owned()))
            }

            fn schema() -> serde_json::Value {
                json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"})
            }
        }
    )+};
}
name_params!(Namespace = "namespace", Slug = "slug");

impl FromPath for Label {
    const NAME: &'static str = "label";

    fn parse(text: &str) -> Result<Self, String> {
        check_label(text).map_err(str::to_owned)?;
        Ok(Self(text.to_owned()))
    }

    fn schema() -> serde_json::Value {
        json!({"type": "string", "pattern": "^[a-z][a-z0-9._-]{0,63}$"})
    }
}

impl FromPath for Version {
    const NAME: &'static str = "version";

    fn parse(text: &str) -> Result<Self, String> {
        parse_version(text).map(Self).ok_or_else(|| "must be a whole number of at least 1".into())
    }

    fn schema() -> serde_json::Value {
        json!({"type": "integer", "format": "int64", "minimum": 1})
    }
}

#[derive(Deserialize, JsonSchema)]
struct NewPrompt {
    /// `^[a-z0-9][a-z0-9._-]{0,63}$`
    namespace: String,
    /// The same rule.
    slug: String,
    /// At most 131072 bytes. A variable is `{{name}}`; `\{{` produces literal braces.
    content: String,
}

async fn create(
    app: Audited,
    caller: Caller<Member>,
    Body(request): Body<NewPrompt>,
) -> ApiResult<Created<PromptView>> {
    let NewPrompt { namespace, slug, content } = request;
    check_name(&namespace).map_err(|why| Problem::field("namespace", why))?;
    check_name(&slug).map_err(|why| Problem::field("slug", why))?;
    check_content(&content)?;
    let name = PromptName { namespace: &namespace, slug: &slug };
    app.proxy
        .prompts
        .create(Change { author: &caller, entry: app.entry() }, name, content)
        .await?
        .try_into()
        .map(Created)
}

#[derive(Deserialize, JsonSchema)]
struct ListParams {
    /// Only prompts of this namespace.
    namespace: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct PromptList {
    prompts: Vec<PromptView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    room: ResponseRoom,
    PagedQuery { page, filter: params }: PagedQuery<ListParams>,
) -> ApiResult<Json<PromptList>> {
    let namespace = params.namespace.as_deref();
    namespace.map_or(Ok(()), check_name).map_err(|why| Problem::field("namespace", why))?;
    let (db, page) = (&app.services.db, page.page()?);
    let found = prompts::list(db, caller.org.id, namespace, &page, |bytes| room.reserve(bytes)).await?;
    let (prompts, next_cursor) = page::try_into_views(found)?;
    Ok(Json(PromptList { prompts, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct VersionParams {
    /// A version number or a label such as `production`. Default: the latest version.
    version: Option<VersionSelector>,
}

/// 404 that names what is missing.
fn not_found(reference: &PromptReference) -> Problem {
    match reference.version {
        VersionSelector::Latest => Problem::not_found(),
        VersionSelector::Number(_) | VersionSelector::Label(_) => {
            Problem::new(StatusCode::NOT_FOUND, "not_found", reference.missing())
        }
    }
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    path: PromptPath,
    QueryParams(params): QueryParams<VersionParams>,
) -> ApiResult<Json<PromptView>> {
    let PromptPath { namespace, slug } = path;
    let reference = PromptReference { namespace, slug, version: params.version.unwrap_or_default() };
    let name = PromptName { namespace: &reference.namespace, slug: &reference.slug };
    let found = prompts::find(&app.services.db, caller.org.id, name, &reference.version).await?;
    found.ok_or_else(|| not_found(&reference))?.try_into().map(Json)
}

async fn version(
    State(app): AppState,
    caller: Caller<Viewer>,
    path: PromptPath,
    PathParam(Version(version)): PathParam<Version>,
) -> ApiResult<Json<PromptView>> {
    let found =
        prompts::find(&app.services.db, caller.org.id, path.name(), &VersionSelector::Number(version))
            .await?;
    found.ok_or_else(Problem::not_found)?.try_into().map(Json)
}

#[derive(Deserialize, JsonSchema)]
struct PromptChange {
    content: String,
    /// The version that the change is based on. The request fails with 409 if it is no longer the latest one.
    #[schemars(range(min = 1))]
    expected_version: Option<i64>,
}

async fn update(
    app: Audited,
    caller: Caller<Member>,
    path: PromptPath,
    Body(change): Body<PromptChange>,
) -> ApiResult<Json<PromptView>> {
    if change.expected_version.is_some_and(|expected| expected < 1) {
        return Err(Problem::field("expected_version", "must be a whole number of at least 1"));
    }
    check_content(&change.content)?;
    let by = Change { author: &caller, entry: app.entry() };
    let added =
        app.proxy.prompts.add_version(by, path.name(), change.content, change.expected_version).await?;
    added.ok_or_else(Problem::not_found)?.try_into().map(Json)
}

async fn delete(app: Audited, caller: Caller<Member>, path: PromptPath) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let found = prompts::find(&app.services.db, org, path.name(), &VersionSelector::Latest).await?;
    let what = Versioned::Prompt(found.ok_or_else(Problem::not_found)?.id);
    let mut deletion = VersionedDeletion::new(&app, org, what).await?;
    let mut tx = app.services.db.begin().await?;
    if !deletion.delete(&app, &mut tx).await? {
        return Err(Problem::not_found());
    }
    let PromptPath { namespace, slug } = path;
    tx.record(app.entry().named(&format!("{namespace}/{slug}")));
    let pending = invalidation::record(&mut tx, Invalidation::Prompt { org, namespace, slug }).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    deletion.finish(&app);
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
struct VersionList {
    versions: Vec<PromptView>,
    next_cursor: Option<String>,
}

async fn versions(
    State(app): AppState,
    caller: Caller<Viewer>,
    path: PromptPath,
    room: ResponseRoom,
    QueryParams(params): QueryParams<page::PageParams>,
) -> ApiResult<Json<VersionList>> {
    let (db, org, page) = (&app.services.db, caller.org.id, params.numeric_page()?);
    let found = prompts::list_versions(db, org, path.name(), &page, |bytes| room.reserve(bytes)).await?;
    // Every prompt has a version, so an empty first page means that the prompt does not exist.
    if found.rows.is_empty()
        && prompts::find(&app.services.db, caller.org.id, path.name(), &VersionSelector::Latest)
            .await?
            .is_none()
    {
        return Err(Problem::not_found());
    }
    let (versions, next_cursor) = page::try_into_views(found)?;
    Ok(Json(VersionList { versions, next_cursor }))
}

#[derive(Deserialize, JsonSchema, Default)]
struct Variables {
    /// A text for each variable of the template. Values for other names are ignored.
    #[serde(default)]
    variables: HashMap<String, String>,
}

#[derive(Serialize, JsonSchema)]
struct Rendered {
    rendered: String,
    /// Names of values that the template does not use; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unused: Vec<String>,
}

async fn render(
    State(app): AppState,
    caller: Caller<Viewer>,
    path: PromptPath,
    QueryParams(params): QueryParams<VersionParams>,
    OptionalBody(Variables { variables }): OptionalBody<Variables>,
) -> ApiResult<Json<Rendered>> {
    let PromptPath { namespace, slug } = path;
    let reference = PromptReference { namespace, slug, version: params.version.unwrap_or_default() };
    let known = app.proxy.prompts.find(caller.org.id, &reference).await?;
    let prompt = known.ok_or_else(|| not_found(&reference))?;
    let rendered =
        templates::render(&app.services.compute, caller.org.id, &prompt, &variables, |text| text).await?;
    let rendered = rendered.map_err(|error| render_problem("variables", error))?;
    Ok(Json(Rendered { rendered, unused: prompt.template.unused(&variables) }))
}
