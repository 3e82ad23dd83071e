//! Named models of an organization: what a model name means, in versions.

use axum::extract::State;
use gateway_core::ids::{ModelId, OrgId};
use gateway_core::llm::prompt_cache::PromptCache;
use gateway_core::models::{
    CacheDefault, Definition, InvalidModel, MAX_BYTES, ModelPrice, Severity, Strategy, Target,
    check_model_name,
};
use gateway_core::quotas::Quota;
use gateway_core::time::Timestamp;
use gateway_store::models::{self as store, StoredModel};
use gateway_store::prompt_cache_pauses;
use gateway_store::versioned::Versioned;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{FromPath, LimitedBody, PathParam, QueryParams, without_fields};
use super::large_deletions::VersionedDeletion;
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use super::usage::PauseView;
use crate::app::App;
use crate::auth::CachedOrg;
use crate::cluster::invalidation::{self, Invalidation};
use crate::models;
use crate::problem::{ApiResult, Problem};
use crate::quotas;

pub fn area() -> Area {
    Area::new("models", "Named models: what a model name means for the organization, in versions.")
        .get("/orgs/{orgId}/models", list, "List the named models, each in its latest version")
        .post("/orgs/{orgId}/models", create, "Create a named model with version 1")
        .get("/orgs/{orgId}/models/{model}", get, "Get the latest version of a named model, or the given one")
        .put(
            "/orgs/{orgId}/models/{model}",
            update,
            "Create a new version from the whole definition; the body of an old version rolls back to it",
        )
        .delete("/orgs/{orgId}/models/{model}", delete, "Delete a named model and all its versions")
        .get("/orgs/{orgId}/models/{model}/versions", versions, "List all versions, newest first")
}

/// The name of a model, percent-encoded, or its id.
struct NameOrId(String);

impl FromPath for NameOrId {
    const NAME: &'static str = "model";

    fn parse(text: &str) -> Result<Self, String> {
        check_model_name(text).map(|()| Self(text.to_owned())).map_err(ToOwned::to_owned)
    }

    fn schema() -> Value {
        json!({"type": "string", "pattern": r"^([A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}\*?|\*)$"})
    }
}

/// A definition in a request. The fields that only responses have are accepted, so that a response can be sent back.
struct DefinitionBody(Definition);

const READ_ONLY: [&str; 6] =
    ["id", "version", "created_by", "created_at", "updated_at", "prompt_cache_pauses"];

impl<'de> Deserialize<'de> for DefinitionBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        without_fields(deserializer, &READ_ONLY).map(Self)
    }
}

impl JsonSchema for DefinitionBody {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Definition::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Definition::json_schema(generator)
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NamedModel")]
struct ModelView {
    id: ModelId,
    name: String,
    description: String,
    strategy: Strategy,
    targets: Vec<Target>,
    retries: Option<u32>,
    timeout_ms: Option<u64>,
    first_byte_timeout_ms: Option<u64>,
    cache: Option<CacheDefault>,
    prompt_cache: Option<PromptCache>,
    /// Keys for which its prompt caching is paused because it lost money. A new version ends the pauses.
    prompt_cache_pauses: Vec<PauseView>,
    price: Option<ModelPrice>,
    hidden: bool,
    enabled: bool,
    version: i64,
    /// The id of the user or key that created this version.
    created_by: Option<String>,
    /// When the model was created.
    created_at: Timestamp,
    /// When this version was created.
    updated_at: Timestamp,
}

impl TryFrom<StoredModel> for ModelView {
    type Error = Problem;

    fn try_from(model: StoredModel) -> ApiResult<Self> {
        let StoredModel { id, name, version, definition, created_by, created_at, updated_at } = model;
        let definition: Definition = serde_json::from_str(&definition).map_err(Problem::internal)?;
        let Definition { description, strategy, targets, retries, timeout_ms, .. } = definition;
        let Definition { first_byte_timeout_ms, cache, prompt_cache, price, hidden, enabled, .. } =
            definition;
        Ok(Self {
            id,
            name,
            description,
            strategy,
            targets,
            retries,
            timeout_ms,
            first_byte_timeout_ms,
            cache,
            prompt_cache,
            prompt_cache_pauses: Vec::new(),
            price,
            hidden,
            enabled,
            version,
            created_by,
            created_at,
            updated_at,
        })
    }
}

#[derive(Serialize, JsonSchema)]
struct NamedModelList {
    models: Vec<ModelView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<NamedModelList>> {
    let found = store::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let (mut models, next_cursor): (Vec<ModelView>, _) = page::try_into_views(found)?;
    add_pauses(&app, caller.org.id, &mut models).await?;
    Ok(Json(NamedModelList { models, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct ModelVersionParams {
    /// Default: the latest version.
    #[schemars(range(min = 1))]
    version: Option<i64>,
}

async fn get(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(NameOrId(name)): PathParam<NameOrId>,
    QueryParams(params): QueryParams<ModelVersionParams>,
) -> ApiResult<Json<ModelView>> {
    if params.version.is_some_and(|version| version < 1) {
        return Err(Problem::field("version", "must be a whole number of at least 1"));
    }
    let found = store::find(&app.services.db, caller.org.id, &name, params.version).await?;
    let mut model: ModelView = found.ok_or_else(Problem::not_found)?.try_into()?;
    add_pauses(&app, caller.org.id, std::slice::from_mut(&mut model)).await?;
    Ok(Json(model))
}

async fn add_pauses(app: &App, org: OrgId, models: &mut [ModelView]) -> ApiResult<()> {
    for pause in prompt_cache_pauses::list(&app.services.db, org).await? {
        let paused = models.iter_mut().find(|model| pause.model.as_deref() == Some(&*model.name));
        if let Some(model) = paused {
            model.prompt_cache_pauses.push(pause.into());
        }
    }
    Ok(())
}

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    LimitedBody(DefinitionBody(mut definition)): LimitedBody<MAX_BYTES, DefinitionBody>,
) -> ApiResult<Created<ModelView>> {
    let name = definition.name.take().ok_or_else(|| Problem::field("name", "is required"))?;
    check_model_name(&name).map_err(|why| Problem::field("name", why))?;
    let now = app.services.clock.now();
    let model = StoredModel {
        id: app.services.ids.new_id(),
        definition: checked(&caller.org, &name, definition)?,
        name,
        version: 1,
        created_by: Some(caller.actor()),
        created_at: now,
        updated_at: now,
    };
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Models).await?;
    store::insert(&mut tx, caller.org.id, &model)
        .await
        .map_err(Problem::on_duplicate("a model with this name already exists; change it with PUT"))?;
    models::check_total(&mut tx, caller.org.id).await?;
    let view = ModelView::try_from(model)?;
    tx.record(app.entry().target(view.id, &view.name).created(&view));
    let pending = invalidation::record(&mut tx, Invalidation::Org(caller.org.id)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Created(view))
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(NameOrId(name)): PathParam<NameOrId>,
    LimitedBody(DefinitionBody(mut definition)): LimitedBody<MAX_BYTES, DefinitionBody>,
) -> ApiResult<Json<ModelView>> {
    let org = caller.org.id;
    let found = store::find(&app.services.db, org, &name, None).await?;
    let (given, known) = (definition.name.take(), found.as_ref().map(|found| &found.name));
    if given.is_some_and(|given| known.is_some_and(|known| given != *known)) {
        return Err(Problem::field("name", "cannot be changed; create another model and delete this one"));
    }
    // An invalid definition is reported before a missing model.
    let definition = checked(&caller.org, known.unwrap_or(&name), definition)?;
    let found = found.ok_or_else(Problem::not_found)?;
    let mut tx = app.services.db.begin().await?;
    let before = store::next_version(&mut tx, org, found.id).await?.ok_or_else(Problem::not_found)?;
    quotas::check_version("model", before.version + 1)?;
    let model = StoredModel {
        version: before.version + 1,
        definition,
        created_by: Some(caller.actor()),
        updated_at: app.services.clock.now(),
        ..before.clone()
    };
    store::insert_version(&mut tx, &model).await?;
    models::check_total(&mut tx, org).await?;
    prompt_cache_pauses::delete(&mut tx, org, Some(&model.name)).await?;
    let view = ModelView::try_from(model)?;
    let entry = app.entry().target(view.id, &view.name);
    tx.record(entry.changed(&ModelView::try_from(before)?, &view));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(view))
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(NameOrId(name)): PathParam<NameOrId>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let found = store::find(&app.services.db, org, &name, None).await?.ok_or_else(Problem::not_found)?;
    let mut deletion = VersionedDeletion::new(&app, org, Versioned::Model(found.id)).await?;
    let mut tx = app.services.db.begin().await?;
    if !deletion.delete(&app, &mut tx).await? {
        return Err(Problem::not_found());
    }
    prompt_cache_pauses::delete(&mut tx, org, Some(&found.name)).await?;
    tx.record(app.entry().target(found.id, &found.name).deleted(&ModelView::try_from(found.clone())?));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    deletion.finish(&app);
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
struct ModelVersionList {
    versions: Vec<ModelView>,
    next_cursor: Option<String>,
}

async fn versions(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(NameOrId(name)): PathParam<NameOrId>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<ModelVersionList>> {
    let (db, org, page) = (&app.services.db, caller.org.id, params.numeric_page()?);
    let found = store::find(db, org, &name, None).await?.ok_or_else(Problem::not_found)?;
    let (versions, next_cursor) =
        page::try_into_views(store::list_versions(db, org, found.id, &page).await?)?;
    Ok(Json(ModelVersionList { versions, next_cursor }))
}

/// Checks a definition and returns its stored form.
fn checked(org: &CachedOrg, name: &str, definition: Definition) -> ApiResult<String> {
    let checked = definition.checked(name, &|provider| org.providers.find(provider).is_some());
    serde_json::to_string(&checked.map_err(invalid)?).map_err(Problem::internal)
}

fn invalid(error: InvalidModel) -> Problem {
    match error.severity {
        Severity::Malformed => Problem::field(&error.field, error.message),
        Severity::Unroutable => Problem::unprocessable(error.to_string()),
    }
}
