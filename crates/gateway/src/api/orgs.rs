//! Organizations: create, read, update and delete.

use axum::extract::State;
use gateway_core::access::{Plan, Role};
use gateway_core::accounts::{
    Affinity, AuditReads, LimitHeaders, OrgSettings, SelfServiceKeys, SkillsServed, check_name,
    check_new_slug,
};
use gateway_core::audit::Chain;
use gateway_core::budget::limit_units;
use gateway_core::ids::{OrgId, UserId};
use gateway_core::llm::prompt_cache::PromptCache;
use gateway_core::scopes::Scopes;
use gateway_core::time::Timestamp;
use gateway_store::partial_deletion::RowsToDelete;
use gateway_store::{StoreError, Tx, audit, exports, members, org_purges, orgs, prompt_cache_pauses};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::accounts::{generate_slug, insert_org, new_org};
use super::audited::Audited;
use super::caller::{Admin, AppState, Caller, InOrg, Owner, SessionUser, Viewer};
use super::extract::{Body, QueryParams, double_option, optional_object};
use super::large_deletions::delete_large_parts;
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Json};
use crate::app::App;
use crate::auth::{Identity, Principal};
use crate::cluster::invalidation::{self, Invalidation};
use crate::config::{AUDIT_RETENTION_MIN, PlanChanges};
use crate::jobs::purge_orgs;
use crate::problem::{ApiResult, Problem};
use crate::quotas;

const MAX_AUDITORS: usize = 100;
/// The default provider that is chosen by the model.
const AUTO: &str = "auto";

pub fn area() -> Area {
    Area::new("orgs", "Organizations, the tenants that own all other resources.")
        .post("/orgs", create, "Create an organization; the caller becomes its owner")
        .get("/orgs", list, "List the organizations of the caller")
        .get("/orgs/{orgId}", get, "Get an organization and its plan")
        .put("/orgs/{orgId}", update, "Update name or settings (admin) or plan (owner)")
        .delete("/orgs/{orgId}", delete, "Delete an organization with everything in it; log rows, sessions and usage are deleted in the background")
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Organization")]
struct OrgView {
    id: OrgId,
    slug: String,
    name: String,
    plan: Plan,
    /// The caller's role.
    role: Role,
    settings: OrgSettings,
    created_at: Timestamp,
}

impl From<(orgs::Org, Role)> for OrgView {
    fn from((org, role): (orgs::Org, Role)) -> Self {
        let orgs::Org { id, slug, name, plan, settings, created_at } = org;
        Self { id, slug, name, plan, role, settings, created_at }
    }
}

#[derive(Deserialize, JsonSchema)]
struct NewOrg {
    name: String,
    /// Default: derived from the name.
    slug: Option<String>,
}

async fn create(
    app: Audited,
    person: SessionUser,
    Body(request): Body<NewOrg>,
) -> ApiResult<Created<OrgView>> {
    check_name(&request.name).map_err(|why| Problem::field("name", why))?;
    if let Some(slug) = &request.slug {
        check_new_slug(slug).map_err(|why| Problem::field("slug", why))?;
    }
    let slug = request.slug.unwrap_or_else(|| generate_slug(&app, &request.name));
    let org = new_org(&app, slug, Some(request.name))?;
    let mut tx = app.services.db.begin().await?;
    quotas::check_orgs_of(&app.services, &mut tx, person.id).await?;
    insert_org(&app, &mut tx, &org).await.map_err(Problem::on_duplicate("this slug is already taken"))?;
    members::insert(&mut tx, org.id, person.id, Role::Owner, org.created_at).await?;
    app.services.db.owners().set(org.id, person.id);
    let created = OrgView::from((org.clone(), Role::Owner));
    tx.record(app.entry().within(org.id).target(org.id, &org.name).created(&created));
    tx.commit().await?;
    Ok(Created((org, Role::Owner).into()))
}

#[derive(Serialize, JsonSchema)]
struct OrgList {
    orgs: Vec<OrgView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: Caller<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<OrgList>> {
    let page = params.page()?;
    let found = match &caller.principal {
        Principal::User { id, .. } => orgs::page_by_user(&app.services.db, *id, &page).await?,
        Principal::Key(_) | Principal::Org => {
            orgs::page_of_single_org(&app.services.db, caller.org.id, caller.role, &page).await?
        }
    };
    let (orgs, next_cursor) = page::into_views(found);
    Ok(Json(OrgList { orgs, next_cursor }))
}

async fn get(State(app): AppState, caller: InOrg<Viewer>) -> ApiResult<Json<OrgView>> {
    let org = orgs::find(&app.services.db, caller.org.id).await?.ok_or_else(Problem::not_found)?;
    Ok(Json((org, caller.role).into()))
}

#[derive(Deserialize, JsonSchema)]
struct OrgChange {
    name: Option<String>,
    plan: Option<Plan>,
    #[serde(default, deserialize_with = "optional_object")]
    settings: Option<SettingsChange>,
}

/// Omitted fields stay unchanged.
#[derive(Deserialize, JsonSchema)]
struct SettingsChange {
    log_bodies: Option<bool>,
    /// 1 to the server's setting (`GATEWAY_LOG_RETENTION_DAYS`); null uses the server's setting.
    #[serde(default, deserialize_with = "double_option")]
    #[schemars(range(min = 1, max = 36500))]
    log_retention_days: Option<Option<u32>>,
    /// Replaces the whole list. Members who may read the audit log besides admins, at most 100.
    auditors: Option<Vec<UserId>>,
    audit_reads: Option<AuditReads>,
    #[schemars(range(min = 30, max = 3650))]
    audit_retention_days: Option<u32>,
    /// The name of a provider, or `auto`. Null: requests must name a provider.
    #[serde(default, deserialize_with = "double_option")]
    default_provider: Option<Option<String>>,
    /// Replaces the whole setting, and ends its pauses.
    #[serde(default, deserialize_with = "optional_object")]
    prompt_cache: Option<PromptCache>,
    affinity: Option<Affinity>,
    /// Null: members make keys up to their own rights.
    #[serde(default, deserialize_with = "double_option")]
    self_service_keys: Option<Option<SelfServiceKeys>>,
    limit_headers: Option<LimitHeaders>,
    skills_served: Option<SkillsServed>,
    skills_as_tools: Option<bool>,
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    Body(change): Body<OrgChange>,
) -> ApiResult<Json<OrgView>> {
    if let Some(name) = &change.name {
        check_name(name).map_err(|why| Problem::field("name", why))?;
    }
    if change.plan.is_some() {
        if app.services.config.plan_changes == PlanChanges::Operator {
            return Err(Problem::forbidden("only the operator of this service can change plans"));
        }
        if caller.role < Role::Owner {
            return Err(Problem::forbidden("only an owner can change the plan"));
        }
    }
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    if !orgs::lock_for_update(&mut tx, org).await? {
        return Err(Problem::not_found());
    }
    let current = orgs::find_in_tx(&mut tx, org).await?.ok_or_else(Problem::not_found)?;
    let settings = change
        .settings
        .as_ref()
        .map(|change| {
            check_default_provider(&caller, change)?;
            apply_settings(&app, current.settings.clone(), change)
        })
        .transpose()?;
    let auditors = change.settings.as_ref().and_then(|change| change.auditors.as_deref());
    check_auditors(&mut tx, org, auditors.unwrap_or_default()).await?;
    orgs::update(&mut tx, org, change.name.as_deref(), change.plan, settings.as_ref()).await?;
    if change.settings.as_ref().is_some_and(|change| change.prompt_cache.is_some()) {
        prompt_cache_pauses::delete(&mut tx, org, None).await?;
    }
    let updated = orgs::find_in_tx(&mut tx, org).await?.ok_or_else(Problem::not_found)?;
    let (before, after) =
        (OrgView::from((current, caller.role)), OrgView::from((updated.clone(), caller.role)));
    let entry = app.entry().named(&updated.name).changed(&before, &after);
    tx.record(match (change.plan, change.name, settings) {
        (Some(_), ..) => entry.action("org.plan"),
        (None, None, Some(_)) => entry.action("settings.update"),
        _ => entry,
    });
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json((updated, caller.role).into()))
}

async fn check_auditors(tx: &mut Tx, org: OrgId, auditors: &[UserId]) -> ApiResult<()> {
    for user in auditors {
        if members::find(tx, org, *user).await?.is_none() {
            let why = format!("user {user} is not a member of this organization");
            return Err(Problem::field("settings.auditors", why));
        }
    }
    Ok(())
}

fn check_default_provider(caller: &Identity, change: &SettingsChange) -> ApiResult<()> {
    match &change.default_provider {
        Some(Some(name)) if name != AUTO && caller.org.providers.find(name).is_none() => {
            let why = format!("must be {AUTO}, the name of a provider, or null");
            Err(Problem::field("settings.default_provider", why))
        }
        _ => Ok(()),
    }
}

fn check_self_service_keys(bounds: Option<&SelfServiceKeys>) -> ApiResult<()> {
    let Some(SelfServiceKeys { scopes, budget_usd, max }) = bounds else { return Ok(()) };
    let field = |name: &str, why: String| Problem::field(&format!("settings.self_service_keys.{name}"), why);
    Scopes::parse(scopes).map_err(|why| field("scopes", why.to_string()))?;
    if let Some(usd) = budget_usd {
        limit_units(*usd).map_err(|why| field("budget_usd", why.to_owned()))?;
    }
    if max.is_some_and(|max| !(1..=1_000).contains(&max)) {
        return Err(field("max", "must be from 1 to 1000".to_owned()));
    }
    Ok(())
}

fn apply_settings(app: &App, mut settings: OrgSettings, change: &SettingsChange) -> ApiResult<OrgSettings> {
    settings.log_bodies = change.log_bodies.unwrap_or(settings.log_bodies);
    settings.audit_reads = change.audit_reads.unwrap_or(settings.audit_reads);
    if let Some(provider) = &change.default_provider {
        settings.default_provider.clone_from(provider);
    }
    if let Some(setting) = change.prompt_cache {
        setting
            .check()
            .map_err(|(field, why)| Problem::field(&format!("settings.prompt_cache.{field}"), why))?;
        settings.prompt_cache = setting;
    }
    settings.limit_headers = change.limit_headers.unwrap_or(settings.limit_headers);
    settings.affinity = change.affinity.unwrap_or(settings.affinity);
    settings.skills_served = change.skills_served.unwrap_or(settings.skills_served);
    settings.skills_as_tools = change.skills_as_tools.unwrap_or(settings.skills_as_tools);
    if let Some(bounds) = &change.self_service_keys {
        check_self_service_keys(bounds.as_ref())?;
        settings.self_service_keys.clone_from(bounds);
    }
    if let Some(days) = change.audit_retention_days {
        let longest = app.services.config.audit_retention_days;
        if !(AUDIT_RETENTION_MIN..=longest).contains(&days) {
            let why = format!(
                "must be between {AUDIT_RETENTION_MIN} and {longest}, the days for which this server keeps audit entries"
            );
            return Err(Problem::field("settings.audit_retention_days", why));
        }
        settings.audit_retention_days = days;
    }
    if let Some(auditors) = &change.auditors {
        if auditors.len() > MAX_AUDITORS {
            let why = format!("must have at most {MAX_AUDITORS} members");
            return Err(Problem::field("settings.auditors", why));
        }
        settings.auditors.clone_from(auditors);
    }
    if let Some(days) = change.log_retention_days {
        let longest = app.services.config.log_retention_days;
        if days.is_some_and(|days| !(1..=longest).contains(&days)) {
            let why =
                format!("must be between 1 and {longest}, the days for which this server keeps log rows");
            return Err(Problem::field("settings.log_retention_days", why));
        }
        settings.log_retention_days = days;
    }
    Ok(settings)
}

#[derive(Serialize, JsonSchema)]
struct DeletedOrg {
    deleted: bool,
    /// The end of its audit log, which is deleted too. Together with an export it proves that nothing is missing.
    audit: AuditEnd,
}

#[derive(Serialize, JsonSchema)]
struct AuditEnd {
    seq: i64,
    hash: String,
}

async fn delete(app: Audited, caller: InOrg<Owner>) -> ApiResult<Json<DeletedOrg>> {
    let org = caller.org.id;
    delete_large_parts(&app, org, RowsToDelete::Org).await?;
    let mut tx = app.services.db.begin().await?;
    if !orgs::delete(&mut tx, org).await? {
        return Err(Problem::not_found());
    }
    org_purges::enqueue(&mut tx, org, app.services.clock.now()).await?;
    let pending = invalidation::record(&mut tx, Invalidation::OrgAll(org)).await?;
    let entry = app.entry().named(&caller.org.name);
    // The installation remembers it after the organization's own log is gone.
    let mut remembered = entry.clone();
    (remembered.chain, remembered.id) = (Chain::System, app.services.ids.new_id());
    tx.record(entry);
    let heads = audit::append(&mut tx).await?;
    let (_, head) =
        heads.into_iter().next().ok_or_else(|| Problem::internal("no audit entry was written"))?;
    let end = AuditEnd { seq: head.seq, hash: head.hash };
    tx.record(remembered.created(&json!({"audit": end})));
    invalidation::commit(tx, [pending], &app.cluster).await?;
    purge_orgs::notify(&app.jobs);
    // Deliveries in progress end at once. If this fails, the job deletes the exports.
    if let Err(error) = delete_exports(&app, org).await {
        tracing::debug!(%error, "cannot delete the exports of a deleted organization yet");
    }
    Ok(Json(DeletedOrg { deleted: true, audit: end }))
}

async fn delete_exports(app: &App, org: OrgId) -> Result<(), StoreError> {
    let mut tx = app.services.logs.begin().await?;
    exports::delete_by_org(&mut tx, org).await?;
    let pending = invalidation::record(&mut tx, Invalidation::Exports).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(())
}
