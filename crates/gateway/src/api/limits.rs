//! Limits: how many requests, tokens and concurrent calls the organization, a team, an application, a key or a model may
//! use per minute, hour or day.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::State;
use gateway_core::budget::Spender;
use gateway_core::ids::{KeyId, LimitId, OrgId};
use gateway_core::limits::{Definition, LimitSet, MAX_LIMITS, Missing, Mode, Per, Scope, Unit, Window};
use gateway_core::time::{HOUR, Timestamp};
use gateway_store::keys::{self, KeyAccess};
use gateway_store::limits::{self as store, LimitOwner, StoredLimit};
use gateway_store::page::Paged;
use gateway_store::{Db, Tx, apps, orgs, teams};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, PagedQuery, PathParam, without_fields};
use super::openapi::Area;
use super::page;
use super::response::{Created, Deleted, Json};
use crate::cluster::invalidation::{self, Invalidation};
use crate::limits::{BucketUsage, Exactness, UsageScope};
use crate::problem::{ApiResult, Problem};

/// Hours of refusals that the usage of a limit shows.
const SHOWN_HOURS: i64 = 168;

pub fn area() -> Area {
    Area::new("limits", "Limits of requests, tokens and concurrent calls per minute, hour or day.")
        .get("/orgs/{orgId}/limits", list, "List the organization's limits")
        .post("/orgs/{orgId}/limits", create, "Create a limit")
        .get("/orgs/{orgId}/limits/{limitId}", get, "Get a limit")
        .put(
            "/orgs/{orgId}/limits/{limitId}",
            update,
            "Replace the definition of a limit; what was used of it stays used",
        )
        .delete("/orgs/{orgId}/limits/{limitId}", delete, "Delete a limit")
        .get(
            "/orgs/{orgId}/limits/{limitId}/usage",
            usage,
            "Get the buckets of a limit that are used most, and the calls that it refused by hour",
        )
}

/// A definition in a request. The fields that only responses have are accepted, so that a response can be sent back.
struct LimitBody(Definition);

const READ_ONLY: [&str; 3] = ["id", "created_at", "updated_at"];

impl<'de> Deserialize<'de> for LimitBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        without_fields(deserializer, &READ_ONLY).map(Self)
    }
}

impl JsonSchema for LimitBody {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Definition::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Definition::json_schema(generator)
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
struct LimitView {
    id: LimitId,
    name: String,
    scope: Scope,
    /// The id of the team, application or key, or the name of the model; null for the whole organization.
    scope_id: Option<String>,
    /// Null: every model.
    models: Option<Vec<String>>,
    per: Per,
    requests: Option<u64>,
    tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    concurrent: Option<u64>,
    window: Window,
    reserve: BTreeMap<String, f64>,
    count_cached: bool,
    missing: Missing,
    mode: Mode,
    enabled: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl TryFrom<StoredLimit> for LimitView {
    type Error = Problem;

    fn try_from(limit: StoredLimit) -> ApiResult<Self> {
        let StoredLimit { id, name, definition, keys: _, created_at, updated_at } = limit;
        let definition: Definition = serde_json::from_str(&definition).map_err(Problem::internal)?;
        let Definition { scope, scope_id, models, per, requests, tokens, input_tokens, .. } = definition;
        let Definition { output_tokens, concurrent, window, reserve, count_cached, .. } = definition;
        let Definition { missing, mode, enabled, .. } = definition;
        Ok(Self {
            id,
            name,
            scope,
            scope_id,
            models,
            per,
            requests,
            tokens,
            input_tokens,
            output_tokens,
            concurrent,
            window,
            reserve,
            count_cached,
            missing,
            mode,
            enabled,
            created_at,
            updated_at,
        })
    }
}

#[derive(Serialize, JsonSchema)]
struct LimitList {
    limits: Vec<LimitView>,
    /// How exactly all nodes together keep them.
    exactness: Exactness,
    next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct LimitParams {
    /// Only the enabled limits that calls of this key can count against: those of the organization and of models, of the
    /// application and the team of the key, of the key itself, and of the keys that it replaced. All are on one page.
    key: Option<KeyId>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PagedQuery { page, filter }: PagedQuery<LimitParams>,
) -> ApiResult<Json<LimitList>> {
    let (db, org, page) = (&app.services.db, caller.org.id, page.page()?);
    let found = match filter.key {
        Some(key) => Paged { rows: list_of_key(db, org, key).await?, next: None },
        None => store::list(db, org, &page).await?,
    };
    let (limits, next_cursor) = page::try_into_views(found)?;
    Ok(Json(LimitList { limits, exactness: app.proxy.limits.exactness(), next_cursor }))
}

/// The limits that calls of a key can count against, by the rule that admits calls. An organization has few.
async fn list_of_key(db: &Db, org: OrgId, id: KeyId) -> ApiResult<Vec<StoredLimit>> {
    let found = keys::find_access_by_id(db, org, id).await?;
    let found = found.ok_or_else(|| Problem::field("key", "no such key in this organization"))?;
    let KeyAccess { key, team_id } = found;
    let spender = Spender { key: Some(id), app: key.app_id, team: team_id };
    let mut limits = store::list_all(db, org).await?;
    let parsed = limits.iter().filter_map(|limit| {
        let definition: Definition = serde_json::from_str(&limit.definition).ok()?;
        Some((limit.id, definition, limit.keys.clone()))
    });
    let set = LimitSet::new(parsed);
    limits.retain(|limit| set.find(limit.id).is_some_and(|limit| limit.may_apply_to(spender)));
    Ok(limits)
}

async fn get(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<LimitId>,
) -> ApiResult<Json<LimitView>> {
    let found = store::find(&app.services.db, caller.org.id, id).await?;
    found.ok_or_else(Problem::not_found)?.try_into().map(Json)
}

const DUPLICATE: &str = "a limit with this name already exists; change it with PUT, or choose another name";

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    Body(LimitBody(definition)): Body<LimitBody>,
) -> ApiResult<Created<LimitView>> {
    let org = caller.org.id;
    let definition = checked(org, definition)?;
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    let owner = find_owner(&mut tx, org, &definition).await?;
    let count = store::count(&mut tx, org).await?;
    if usize::try_from(count).unwrap_or(usize::MAX) >= MAX_LIMITS {
        let why = format!("the organization already has the maximum of {MAX_LIMITS} limits");
        return Err(Problem::conflict(why));
    }
    let now = app.services.clock.now();
    let limit = StoredLimit {
        id: app.services.ids.new_id(),
        name: definition.name.clone(),
        definition: serde_json::to_string(&definition).map_err(Problem::internal)?,
        keys: owner.key.into_iter().collect(),
        created_at: now,
        updated_at: now,
    };
    store::insert(&mut tx, org, &limit, owner).await.map_err(Problem::on_duplicate(DUPLICATE))?;
    let view = LimitView::try_from(limit)?;
    tx.record(app.entry().target(view.id, &view.name).created(&view));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Created(view))
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<LimitId>,
    Body(LimitBody(definition)): Body<LimitBody>,
) -> ApiResult<Json<LimitView>> {
    let org = caller.org.id;
    let definition = checked(org, definition)?;
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    let before = store::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    let owner = find_owner(&mut tx, org, &definition).await?;
    // A limit of the same key keeps the successors of the key.
    let is_same_key = owner.key.is_some_and(|key| before.keys.contains(&key));
    let limit = StoredLimit {
        name: definition.name.clone(),
        definition: serde_json::to_string(&definition).map_err(Problem::internal)?,
        keys: if is_same_key { before.keys.clone() } else { owner.key.into_iter().collect() },
        updated_at: app.services.clock.now(),
        ..before.clone()
    };
    store::update(&mut tx, org, &limit, owner).await.map_err(Problem::on_duplicate(DUPLICATE))?;
    store::set_keys(&mut tx, &limit).await?;
    let view = LimitView::try_from(limit)?;
    tx.record(app.entry().named(&view.name).changed(&LimitView::try_from(before)?, &view));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(view))
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(id): PathParam<LimitId>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let limit = store::find_for_update(&mut tx, org, id).await?.ok_or_else(Problem::not_found)?;
    store::delete(&mut tx, org, id).await?;
    let view = LimitView::try_from(limit)?;
    tx.record(app.entry().named(&view.name).deleted(&view));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
struct LimitUsage {
    /// The buckets that are used most, at most 50.
    buckets: Vec<BucketView>,
    /// Whether these are the buckets of all nodes, or those that this node has seen.
    scope: UsageScope,
    /// Calls that the limit refused, of the last seven days; hours without any are absent.
    refusals: Vec<RefusalsView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitBucket")]
struct BucketView {
    /// The key, user, session or value that it is for; empty if there is one bucket for all, or for callers without it.
    bucket: String,
    /// `requests`, `tokens`, `input_tokens`, `output_tokens` or `concurrent`.
    unit: &'static str,
    limit: u64,
    used: u64,
    /// Negative if calls used more than they reserved.
    remaining: i64,
    /// When the bucket is full again; null for concurrent calls.
    reset_seconds: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitRefusals")]
struct RefusalsView {
    /// The start of the hour.
    hour: Timestamp,
    refused: i64,
    /// In dry run: what it would have refused.
    would_refuse: i64,
}

impl From<BucketUsage> for BucketView {
    fn from(usage: BucketUsage) -> Self {
        let BucketUsage { bucket, unit, limit, used, remaining, resets_in } = usage;
        let reset_seconds = (unit != Unit::Concurrent).then_some(resets_in.as_secs_f64());
        Self { bucket, unit: unit.as_str(), limit, used, remaining, reset_seconds }
    }
}

async fn usage(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(id): PathParam<LimitId>,
) -> ApiResult<Json<LimitUsage>> {
    let (db, org) = (&app.services.db, caller.org.id);
    let limit = store::find(db, org, id).await?.ok_or_else(Problem::not_found)?;
    let since = app.services.clock.now().plus(-SHOWN_HOURS * HOUR);
    let refusals = store::list_refusals(db, org, id, since).await?;
    let refusals = refusals.into_iter().map(|one| RefusalsView {
        hour: one.hour,
        refused: one.refused,
        would_refuse: one.would_refuse,
    });
    let (buckets, scope) = app.proxy.limits.usage(org, limit).await;
    Ok(Json(LimitUsage {
        buckets: buckets.into_iter().map(BucketView::from).collect(),
        scope,
        refusals: refusals.collect(),
    }))
}

/// The stored form of a definition. The organization's own id is the same as none.
fn checked(org: OrgId, mut definition: Definition) -> ApiResult<Definition> {
    if definition.scope == Scope::Org && definition.scope_id.as_deref() == Some(&*org.to_string()) {
        definition.scope_id = None;
    }
    definition.check().map_err(|(field, why)| Problem::field(field, why))?;
    Ok(definition)
}

/// What the limit belongs to, which must exist.
async fn find_owner(tx: &mut Tx, org: OrgId, definition: &Definition) -> ApiResult<LimitOwner> {
    let mut owner = LimitOwner::default();
    let id = definition.scope_id.as_deref().unwrap_or_default();
    let is_found = match definition.scope {
        Scope::Org | Scope::Model => true,
        Scope::Team => {
            let team = parse(id)?;
            owner.team = Some(team);
            teams::exists(tx, org, team).await?
        }
        Scope::App => {
            owner.app = apps::find(tx, org, parse(id)?).await?.map(|app| app.id);
            owner.app.is_some()
        }
        Scope::Key => {
            owner.key = keys::find_for_update(tx, org, parse(id)?).await?.map(|(key, _)| key.id);
            owner.key.is_some()
        }
    };
    if is_found {
        return Ok(owner);
    }
    let scope = definition.scope.as_str();
    Err(Problem::field("scope_id", format!("no such {scope} in this organization")))
}

fn parse<T: FromStr>(id: &str) -> ApiResult<T>
where
    T::Err: std::fmt::Display,
{
    id.parse().map_err(|why: T::Err| Problem::field("scope_id", why))
}
