//! API keys: create, list, update, rotate and revoke. The raw key is only in the response that creates it.

mod checks;
mod queueing;
mod rotate;
mod self_service;

use axum::extract::State;
use gateway_core::access::Role;
use gateway_core::accounts::{KeyHash, check_name, format_key, hash_key, key_prefix};
use gateway_core::events::{Event, KeyEventData};
use gateway_core::ids::{AppId, KeyId, OrgId};
use gateway_core::quotas::Quota;
use gateway_core::scopes::Scopes;
use gateway_core::time::{DAY, Timestamp};
use gateway_store::keys::Key;
use gateway_store::{Tx, events, foreign_keys, keys, mcp_connections};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::Audited;
use super::caller::{AppState, Caller, KeyManager, Viewer};
use super::extract::{Body, PathParam, QueryParams, double_option};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Json};
use crate::app::App;
use crate::auth::CachedOrg;
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::quotas;
use checks::{check_app, check_expiry, check_may_leave_app, checked_scopes};
use self_service::Bounds;

/// Ended keys are kept, because log rows and other keys refer to them. With those that ended in this time an
/// organization has at most so many times its quota.
const ENDED_KEYS_COUNT: i64 = 30 * DAY;
const WITH_ENDED_KEYS: u64 = 10;

pub fn area() -> Area {
    Area::new("keys", "API keys: machine access to the proxy and the API.")
        .post("/keys", create, "Create a key; the raw key is returned only in this response")
        .get("/keys", list, "List the organization's keys with prefix and metadata")
        .get("/keys/{keyId}", get, "Get the metadata of a key, without the secret")
        .put("/keys/{keyId}", update, "Update a key's name, scopes, application, or how its calls are queued")
        .delete("/keys/{keyId}", revoke, "Revoke a key with immediate effect")
        .post(
            "/keys/{keyId}/rotate",
            rotate::rotate,
            "Create a successor; the old key stays valid for overlap_hours",
        )
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(super) struct KeyView {
    id: KeyId,
    name: String,
    /// `sk-gateway-` and the first 8 digits of the key.
    key_prefix: String,
    scopes: Vec<String>,
    app_id: Option<AppId>,
    /// The class whose reserved share of limits its calls may use.
    class: Option<String>,
    /// How long its calls wait for their limits if they have no `X-Gateway-Wait`.
    wait_ms: Option<i64>,
    /// The highest `X-Gateway-Priority` of its calls. Null: 9.
    max_priority: Option<i64>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    /// The user or key that created it; null for keys created by setup.
    created_by: Option<String>,
    /// The gateway that made the raw key, such as `litellm`. Callers still send it below `/compat`;
    /// `gateway keys retire-foreign` ends that. Null for keys of this gateway.
    imported: Option<String>,
}

impl From<Key> for KeyView {
    fn from(key: Key) -> Self {
        let Key {
            id,
            org_id: _,
            app_id,
            name,
            key_prefix,
            scopes,
            role: _,
            class,
            wait_ms,
            max_priority,
            created_by,
            created_at,
            expires_at,
            revoked_at,
            last_used_at,
        } = key;
        let scopes = scopes.into();
        Self {
            id,
            name,
            key_prefix,
            scopes,
            app_id,
            class,
            wait_ms,
            max_priority,
            created_at,
            expires_at,
            revoked_at,
            last_used_at,
            created_by,
            imported: None,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct KeyBrief {
    id: KeyId,
    key_prefix: String,
}

impl From<&Key> for KeyBrief {
    fn from(key: &Key) -> Self {
        Self { id: key.id, key_prefix: key.key_prefix.clone() }
    }
}

#[derive(Deserialize, JsonSchema)]
struct NewKey {
    name: String,
    /// `proxy` calls all models and reads only its own log rows and usage. `provider:<name>` and `model:<name>` limit the
    /// calls; a trailing `*` is a wildcard. `read` reads what a viewer may read. `*`, the default, is full access: such a
    /// key acts as an admin.
    scopes: Option<Vec<String>>,
    app_id: Option<AppId>,
    /// The class whose reserved share of limits its calls may use, such as `prod`. Only admins set it.
    class: Option<String>,
    /// How long its calls wait for their limits if they have no `X-Gateway-Wait`. Default: they do not wait.
    #[schemars(range(min = 0, max = 30_000))]
    wait_ms: Option<i64>,
    /// The highest `X-Gateway-Priority` of its calls. Default: 9.
    #[schemars(range(min = 0, max = 9))]
    max_priority: Option<i64>,
    /// When it stops working. Default: never.
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
struct CreatedKey {
    key: KeyView,
    raw_key: String,
}

async fn create(
    app: Audited,
    manager: KeyManager,
    Body(request): Body<NewKey>,
) -> ApiResult<Created<CreatedKey>> {
    check_name(&request.name).map_err(|why| Problem::field("name", why))?;
    check_expiry(request.expires_at, app.services.clock.now())?;
    let bounds = Bounds::of(&manager.identity)?;
    let scopes = checked_scopes(request.scopes.as_deref())?;
    let scopes = match &bounds {
        Some(bounds) => bounds.check(scopes)?,
        None => scopes.unwrap_or_else(Scopes::all),
    };
    let org = manager.identity.org.id;
    let actor = manager.identity.actor();
    let mut generated = generate(&app, org, request.name, request.app_id, Some(actor.clone()))?;
    generated.key.scopes = scopes;
    generated.key.expires_at = request.expires_at;
    queueing::Change {
        class: request.class.map(Some),
        wait_ms: request.wait_ms.map(Some),
        max_priority: request.max_priority.map(Some),
    }
    .apply(&manager.identity, &mut generated.key)?;
    generated.key.role = manager.identity.role.min(Role::Admin);
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &manager.identity.org, Quota::Keys).await?;
    check_ended(&app, &mut tx, &manager.identity.org).await?;
    check_app(&mut tx, org, request.app_id).await?;
    if let Some(bounds) = &bounds {
        bounds.check_count(&mut tx, &manager.identity, app.services.clock.now()).await?;
    }
    insert_with_event(&app, &mut tx, &generated, &actor).await?;
    let key = &generated.key;
    tx.record(app.entry().target(key.id, &key.name).created(&KeyView::from(key.clone())));
    // A node may remember that it did not know this key.
    let mut pending = vec![invalidation::record(&mut tx, Invalidation::Key(generated.hash)).await?];
    if let Some(limit) = bounds.as_ref().and_then(|bounds| bounds.budget) {
        self_service::insert_budget(&app, &mut tx, key, limit).await?;
        pending.push(invalidation::record(&mut tx, Invalidation::Org(org)).await?);
    }
    invalidation::commit(tx, pending, &app.cluster).await?;
    Ok(Created(CreatedKey { key: generated.key.into(), raw_key: generated.raw }))
}

/// Checks that the organization, which is locked, may have one more key beside those that ended lately.
async fn check_ended(app: &App, tx: &mut Tx, org: &CachedOrg) -> ApiResult<()> {
    let Some(quota) = app.services.config.quotas.limit(org.plan, Quota::Keys) else { return Ok(()) };
    let limit = quota.saturating_mul(WITH_ENDED_KEYS);
    let since = app.services.clock.now().plus(-ENDED_KEYS_COUNT);
    let found = keys::count_not_ended_before(tx, org.id, since).await?;
    if found.unsigned_abs() < limit {
        return Ok(());
    }
    let message = format!(
        "the organization has all {limit} keys that the {} plan allows together with those that ended in the last 30 \
         days; use keys for longer, change the plan, or ask the operator for a higher quota",
        org.plan
    );
    Err(Problem::quota_exceeded((Quota::Keys.as_str(), limit), message))
}

#[derive(Serialize, JsonSchema)]
struct KeyList {
    keys: Vec<KeyView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<KeyList>> {
    let found = keys::list(&app.services.db, caller.org.id, &params.page()?).await?;
    let (mut keys, next_cursor): (Vec<KeyView>, _) = page::into_views(found);
    add_sources(&app, caller.org.id, &mut keys).await?;
    Ok(Json(KeyList { keys, next_cursor }))
}

/// Marks the keys that another gateway made.
async fn add_sources(app: &App, org: OrgId, keys: &mut [KeyView]) -> ApiResult<()> {
    let ids: Vec<KeyId> = keys.iter().map(|key| key.id).collect();
    let mut sources = foreign_keys::sources(&app.services.db, org, &ids).await?;
    for key in keys {
        // The source is the kind of import, and the field names the gateway.
        let source = sources.remove(&key.id);
        key.imported = source.map(|kind| kind.strip_suffix("-keys").map(str::to_owned).unwrap_or(kind));
    }
    Ok(())
}

async fn get(
    State(app): AppState,
    caller: Caller<Viewer>,
    PathParam(id): PathParam<KeyId>,
) -> ApiResult<Json<KeyView>> {
    let key = keys::find(&app.services.db, caller.org.id, id).await?.ok_or_else(Problem::not_found)?;
    let mut key = KeyView::from(key);
    add_sources(&app, caller.org.id, std::slice::from_mut(&mut key)).await?;
    Ok(Json(key))
}

#[derive(Deserialize, JsonSchema)]
struct KeyChange {
    name: Option<String>,
    scopes: Option<Vec<String>>,
    /// Null removes the key from its application.
    #[serde(default, deserialize_with = "double_option")]
    app_id: Option<Option<AppId>>,
    /// Null: no class.
    #[serde(default, deserialize_with = "double_option")]
    class: Option<Option<String>>,
    /// Null: its calls do not wait.
    #[serde(default, deserialize_with = "double_option")]
    #[schemars(range(min = 0, max = 30_000))]
    wait_ms: Option<Option<i64>>,
    /// Null: 9.
    #[serde(default, deserialize_with = "double_option")]
    #[schemars(range(min = 0, max = 9))]
    max_priority: Option<Option<i64>>,
}

async fn update(
    app: Audited,
    manager: KeyManager,
    PathParam(id): PathParam<KeyId>,
    Body(change): Body<KeyChange>,
) -> ApiResult<Json<KeyView>> {
    let scopes = match (checked_scopes(change.scopes.as_deref())?, Bounds::of(&manager.identity)?) {
        (Some(scopes), Some(bounds)) => Some(bounds.check(Some(scopes))?),
        (scopes, _) => scopes,
    };
    if let Some(name) = &change.name {
        check_name(name).map_err(|why| Problem::field("name", why))?;
    }
    let org = manager.identity.org.id;
    let mut tx = app.services.db.begin().await?;
    let (mut key, hash) = find_managed(&mut tx, &manager, id).await?;
    let before = KeyView::from(key.clone());
    if let Some(app_id) = change.app_id {
        check_app(&mut tx, org, app_id).await?;
        check_may_leave_app(&mut tx, &manager, &key, app_id).await?;
        key.app_id = app_id;
    }
    queueing::Change { class: change.class, wait_ms: change.wait_ms, max_priority: change.max_priority }
        .apply(&manager.identity, &mut key)?;
    key.name = change.name.unwrap_or(key.name);
    key.scopes = scopes.unwrap_or(key.scopes);
    key.role = key.role.min(manager.identity.role);
    keys::update(&mut tx, &key).await?;
    tx.record(app.entry().named(&key.name).changed(&before, &KeyView::from(key.clone())));
    let pending = invalidation::record(&mut tx, Invalidation::Key(hash)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    let mut key = KeyView::from(key);
    add_sources(&app, org, std::slice::from_mut(&mut key)).await?;
    Ok(Json(key))
}

#[derive(Serialize, JsonSchema)]
struct Revoked {
    revoked: bool,
}

async fn revoke(
    app: Audited,
    manager: KeyManager,
    PathParam(id): PathParam<KeyId>,
) -> ApiResult<Json<Revoked>> {
    let org = manager.identity.org.id;
    let mut tx = app.services.db.begin().await?;
    let (mut key, hash) = find_managed(&mut tx, &manager, id).await?;
    if key.revoked_at.is_none() {
        key.revoked_at = Some(app.services.clock.now());
        keys::update(&mut tx, &key).await?;
        mcp_connections::delete_of_key(&mut tx, org, id).await?;
        tx.record(app.entry().named(&key.name));
        let event = Event::KeyRevoke(key_facts(&key, manager.identity.actor()));
        events::record(&mut tx, org, app.services.ids.new_id(), &event, app.services.clock.now()).await?;
    }
    let pending = invalidation::record(&mut tx, Invalidation::Key(hash)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(Revoked { revoked: true }))
}

/// A key that is not stored yet, with the raw key that is returned once.
pub(super) struct GeneratedKey {
    pub key: Key,
    pub raw: String,
    pub hash: KeyHash,
}

/// Generates a key with full access.
pub(super) fn generate(
    app: &App,
    org: OrgId,
    name: String,
    app_id: Option<AppId>,
    created_by: Option<String>,
) -> ApiResult<GeneratedKey> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Problem::internal)?;
    let raw = format_key(&random);
    let hash = hash_key(&raw).ok_or_else(|| Problem::internal("a generated key is malformed"))?;
    let key = Key {
        id: app.services.ids.new_id(),
        org_id: org,
        app_id,
        name,
        key_prefix: key_prefix(&raw),
        scopes: Scopes::all(),
        role: Role::Admin,
        class: None,
        wait_ms: None,
        max_priority: None,
        created_by,
        created_at: app.services.clock.now(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    Ok(GeneratedKey { key, raw, hash })
}

/// Stores a generated key and records its event.
pub(super) async fn insert_with_event(
    app: &App,
    tx: &mut Tx,
    generated: &GeneratedKey,
    actor: &str,
) -> ApiResult<()> {
    keys::insert(tx, &generated.key, generated.hash).await?;
    let event = Event::KeyCreate(key_facts(&generated.key, actor.to_owned()));
    events::record(tx, generated.key.org_id, app.services.ids.new_id(), &event, app.services.clock.now())
        .await?;
    Ok(())
}

/// Locks the key for an update by a caller that may manage it.
async fn find_managed(tx: &mut Tx, manager: &KeyManager, id: KeyId) -> ApiResult<(Key, KeyHash)> {
    let found = keys::find_for_update(tx, manager.identity.org.id, id).await?;
    let (key, hash) = found.ok_or_else(Problem::not_found)?;
    manager.may_manage(key.created_by.as_deref())?;
    Ok((key, hash))
}

pub(super) fn key_facts(key: &Key, actor: String) -> KeyEventData {
    KeyEventData {
        key_id: key.id,
        name: key.name.clone(),
        key_prefix: key.key_prefix.clone(),
        app_id: key.app_id,
        actor,
    }
}
