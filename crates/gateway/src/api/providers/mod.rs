//! Provider credentials of an organization: keys for built-in providers, and custom providers.
//! Secrets are encrypted before they are stored and never returned.

mod validate;

use std::collections::BTreeMap;

use axum::extract::State;
use gateway_core::audit::Draft;
use gateway_core::ids::OrgId;
use gateway_core::llm::providers::builtin;
use gateway_core::quotas::Quota;
use gateway_core::time::Timestamp;
use gateway_store::providers::{self, ApiKey, Provider};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::audited::Audited;
use crate::api::caller::{Admin, AppState, InOrg, Viewer};
use crate::api::extract::{Body, FromPath, PathParam, QueryParams, double_option};
use crate::api::openapi::Area;
use crate::api::page::{self, PageParams};
use crate::api::response::{Created, Deleted, Json};
use crate::app::App;
use crate::cluster::invalidation::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::quotas;
use crate::targets::BaseUrl;
use crate::targets::probe::probe;
use crate::vault::encryption_context;
use validate::{
    check_api_keys, check_headers, check_models, check_path_prefix, check_provider_name, check_secret,
    checked_base_url, checked_kind, sealed_api_keys,
};

pub fn area() -> Area {
    Area::new("providers", "Provider credentials and custom providers of an organization.")
        .get("/orgs/{orgId}/providers", list, "List the organization's provider credentials, without secrets")
        .post(
            "/orgs/{orgId}/providers",
            create,
            "Store a credential for a built-in provider, or create a custom provider",
        )
        .put(
            "/orgs/{orgId}/providers/{name}",
            update,
            "Update a credential or custom provider; omitted fields stay unchanged, except that a change of the base URL's \
             origin drops secrets that the request does not repeat",
        )
        .delete("/orgs/{orgId}/providers/{name}", delete, "Delete a credential or custom provider")
        .post(
            "/orgs/{orgId}/providers/{name}/test",
            test,
            "Test the credential with one small call to the provider",
        )
}

/// The name of a provider, as in `X-Gateway-Provider`.
pub(super) struct ProviderName(pub String);

impl FromPath for ProviderName {
    const NAME: &'static str = "name";

    fn parse(text: &str) -> Result<Self, String> {
        check_provider_name(text).map(|()| Self(text.to_owned())).map_err(ToOwned::to_owned)
    }

    fn schema() -> serde_json::Value {
        json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"})
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Provider")]
struct ProviderView {
    name: String,
    /// The built-in provider whose wire format and authentication it uses.
    kind: String,
    base_url: Option<String>,
    /// What stands in the place of `/v1` in the paths of calls.
    path_prefix: Option<String>,
    has_api_key: bool,
    /// The entries of `api_keys`, without secrets.
    credentials: Vec<CredentialView>,
    has_headers: bool,
    models: Vec<String>,
    /// The provider keeps nothing of calls.
    no_retention: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// True if this change of the origin (scheme, host, port) dropped stored secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    secrets_dropped: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProviderCredential")]
struct CredentialView {
    label: String,
    weight: u32,
}

impl From<Provider> for ProviderView {
    fn from(provider: Provider) -> Self {
        let Provider { created_at, updated_at, no_retention, .. } = provider;
        let Provider { name, kind, base_url, path_prefix, api_key, api_keys, headers, models, .. } = provider;
        let has_api_key = api_key.is_some() || !api_keys.is_empty();
        let view = |ApiKey { label, weight, sealed: _ }| CredentialView { label, weight };
        let credentials = api_keys.into_iter().map(view).collect();
        let has_headers = headers.is_some();
        Self {
            name,
            kind,
            base_url,
            path_prefix,
            has_api_key,
            credentials,
            has_headers,
            models,
            no_retention,
            created_at,
            updated_at,
            secrets_dropped: None,
        }
    }
}

/// One of several credentials of a provider.
#[derive(Deserialize, JsonSchema)]
struct NewApiKey {
    /// Unique within the provider. Returned in responses, unlike the key.
    label: String,
    /// Write-only. May be omitted for an existing label to keep its stored key.
    api_key: Option<String>,
    /// 1 to 1000; calls are distributed in proportion. Default: 1.
    weight: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
struct ProviderList {
    providers: Vec<ProviderView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<ProviderList>> {
    let found = providers::list_page(&app.services.db, caller.org.id, &params.page()?).await?;
    let (providers, next_cursor) = page::into_views(found);
    Ok(Json(ProviderList { providers, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct NewProvider {
    /// The name of a built-in provider overrides its credential; any other name creates a custom provider.
    name: String,
    /// Required for a custom provider: the built-in provider with the same wire format.
    kind: Option<String>,
    base_url: Option<String>,
    /// What stands in the place of `/v1` in the paths of calls: empty for servers that are called without it, or a path
    /// such as `/v2`. Default: `/v1`.
    path_prefix: Option<String>,
    /// Write-only.
    api_key: Option<String>,
    /// Several credentials; calls are distributed over them by weight.
    api_keys: Option<Vec<NewApiKey>>,
    /// Write-only: sent with every request to the provider.
    headers: Option<BTreeMap<String, String>>,
    models: Option<Vec<String>>,
    /// The provider keeps nothing of calls, as you have agreed with it. Calls that demand it use only such providers.
    /// Default: false.
    no_retention: Option<bool>,
}

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    Body(request): Body<NewProvider>,
) -> ApiResult<Created<ProviderView>> {
    check_provider_name(&request.name).map_err(|why| Problem::field("name", why))?;
    let kind = checked_kind(&request.name, request.kind)?;
    let now = app.services.clock.now();
    let mut provider = Provider {
        base_url: None,
        path_prefix: None,
        api_key: None,
        api_keys: Vec::new(),
        headers: None,
        models: Vec::new(),
        no_retention: false,
        created_at: now,
        updated_at: now,
        name: request.name,
        kind,
    };
    let change = ProviderChange {
        base_url: Some(request.base_url),
        path_prefix: Some(request.path_prefix),
        api_key: Some(request.api_key),
        api_keys: request.api_keys,
        headers: Some(request.headers),
        models: request.models,
        no_retention: request.no_retention,
    };
    let secrets = change.secrets();
    apply(&app, caller.org.id, &mut provider, change.checked()?)?;
    let mut tx = app.services.db.begin().await?;
    quotas::check(&app.services, &mut tx, &caller.org, Quota::Providers).await?;
    providers::insert(&mut tx, caller.org.id, &provider)
        .await
        .map_err(Problem::on_duplicate("a provider with this name already exists; update it with PUT"))?;
    let created = ProviderView::from(provider.clone());
    let entry = app.entry().target(&provider.name, &provider.name).created(&created);
    tx.record(with_secrets(entry, secrets));
    let pending = invalidation::record(&mut tx, Invalidation::Org(caller.org.id)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Created(provider.into()))
}

#[derive(Deserialize, JsonSchema)]
struct ProviderChange {
    #[serde(default, deserialize_with = "double_option")]
    base_url: Option<Option<String>>,
    /// What stands in the place of `/v1` in the paths of calls; null for `/v1`.
    #[serde(default, deserialize_with = "double_option")]
    path_prefix: Option<Option<String>>,
    /// Write-only; null removes it.
    #[serde(default, deserialize_with = "double_option")]
    api_key: Option<Option<String>>,
    /// Replaces the whole set; an empty list removes it.
    api_keys: Option<Vec<NewApiKey>>,
    /// Write-only. Replaces the whole set; null removes it.
    #[serde(default, deserialize_with = "double_option")]
    headers: Option<Option<BTreeMap<String, String>>>,
    models: Option<Vec<String>>,
    /// The provider keeps nothing of calls.
    no_retention: Option<bool>,
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ProviderName(name)): PathParam<ProviderName>,
    Body(change): Body<ProviderChange>,
) -> ApiResult<Json<ProviderView>> {
    let org = caller.org.id;
    // An invalid change is reported before a missing provider.
    let change = change.checked()?;
    let mut tx = app.services.db.begin().await?;
    let mut provider =
        providers::find_for_update(&mut tx, org, &name).await?.ok_or_else(Problem::not_found)?;
    let (before, secrets) = (ProviderView::from(provider.clone()), change.secrets());
    let secrets_dropped = drop_foreign_secrets(&app, &mut provider, &change);
    apply(&app, org, &mut provider, change)?;
    provider.updated_at = app.services.clock.now();
    providers::update(&mut tx, org, &provider).await?;
    let entry = app.entry().named(&name).changed(&before, &ProviderView::from(provider.clone()));
    tx.record(with_secrets(entry, secrets));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    let view = ProviderView::from(provider);
    Ok(Json(ProviderView { secrets_dropped: secrets_dropped.then_some(true), ..view }))
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ProviderName(name)): PathParam<ProviderName>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    if !providers::delete(&mut tx, org, &name).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().named(&name));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
struct ProviderTest {
    ok: bool,
    /// The status of the provider's response; null if there was none.
    status: Option<u16>,
    latency_ms: u64,
    error: Option<String>,
}

async fn test(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ProviderName(name)): PathParam<ProviderName>,
) -> ApiResult<Json<ProviderTest>> {
    let target = caller.org.providers.find(&name);
    let target = target.ok_or_else(Problem::not_found)?;
    let began = std::time::Instant::now();
    let probed = probe(&app.services, &app.proxy.worker.clients, target).await;
    let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let outcome = match &probed {
        Ok(status) => json!({"ok": true, "status": status.as_u16()}),
        Err(failed) => json!({"ok": false, "status": failed.status}),
    };
    app.write(app.entry().named(&name).created(&outcome)).await?;
    Ok(Json(match probed {
        Ok(status) => ProviderTest { ok: true, status: Some(status.as_u16()), latency_ms, error: None },
        Err(failed) => {
            ProviderTest { ok: false, status: failed.status, latency_ms, error: Some(failed.message) }
        }
    }))
}

impl ProviderChange {
    /// The secrets that it sets, replaces or removes.
    fn secrets(&self) -> [(&'static str, bool); 3] {
        [
            ("api_key", self.api_key.as_ref().is_some_and(Option::is_some)),
            ("api_keys", self.api_keys.as_ref().is_some_and(|keys| !keys.is_empty())),
            ("headers", self.headers.as_ref().is_some_and(Option::is_some)),
        ]
    }

    /// Checks what does not depend on the stored provider, and brings the base URL into its stored form.
    fn checked(mut self) -> ApiResult<Self> {
        if let Some(Some(base_url)) = &mut self.base_url {
            *base_url = checked_base_url(base_url)?;
        }
        if let Some(Some(path_prefix)) = &self.path_prefix {
            check_path_prefix(path_prefix)?;
        }
        if let Some(Some(api_key)) = &self.api_key {
            check_secret(api_key)?;
        }
        check_api_keys(self.api_keys.as_deref().unwrap_or_default())?;
        if let Some(Some(headers)) = &self.headers {
            check_headers(headers)?;
        }
        check_models(self.models.as_deref().unwrap_or_default())?;
        Ok(self)
    }
}

fn with_secrets(entry: Draft, secrets: [(&'static str, bool); 3]) -> Draft {
    secrets.into_iter().fold(entry, |entry, (field, is_set)| entry.secret_if(is_set, field))
}

/// Drops the stored secrets if the change sends them to another origin: otherwise a caller who may change the
/// address could read them there. Returns whether there were any that the change does not replace.
fn drop_foreign_secrets(app: &App, provider: &mut Provider, change: &ProviderChange) -> bool {
    let Some(base_url) = &change.base_url else { return false };
    let inherited = app.proxy.providers.get(provider.kind.as_str()).and_then(|target| target.base.clone());
    let origin_of = |url: Option<&str>| match url {
        Some(url) => BaseUrl::parse(url).map(|base| base.origin()),
        None => inherited.as_ref().map(BaseUrl::origin),
    };
    if origin_of(provider.base_url.as_deref()) == origin_of(base_url.as_deref()) {
        return false;
    }
    let api_key = provider.api_key.take().is_some_and(|_| change.api_key.is_none());
    let api_keys = !std::mem::take(&mut provider.api_keys).is_empty() && change.api_keys.is_none();
    let headers = provider.headers.take().is_some_and(|_| change.headers.is_none());
    api_key || api_keys || headers
}

/// Applies a checked change to the provider.
fn apply(app: &App, org: OrgId, provider: &mut Provider, change: ProviderChange) -> ApiResult<()> {
    let seal = |column: &str, secret: &str| {
        app.services
            .vault
            .seal(&encryption_context(org, &provider.name, column), secret)
            .map_err(Problem::internal)
    };
    if let Some(base_url) = change.base_url {
        provider.base_url = base_url;
    }
    if let Some(path_prefix) = change.path_prefix {
        provider.path_prefix = path_prefix;
    }
    if let Some(api_key) = change.api_key {
        provider.api_key = api_key.map(|key| seal("api_key", &key)).transpose()?;
    }
    if let Some(api_keys) = change.api_keys {
        provider.api_keys = sealed_api_keys(api_keys, &provider.api_keys, |label, key| {
            seal(&format!("api_keys/{label}"), key)
        })?;
    }
    if let Some(headers) = change.headers {
        let headers = headers.filter(|headers| !headers.is_empty());
        let text = headers.map(|headers| serde_json::to_string(&headers).map_err(Problem::internal));
        provider.headers = text.transpose()?.map(|text| seal("headers", &text)).transpose()?;
    }
    if let Some(models) = change.models {
        provider.models = models;
    }
    provider.no_retention = change.no_retention.unwrap_or(provider.no_retention);
    let needs_url = builtin(&provider.kind).is_some_and(|kind| kind.base_url.is_none());
    let custom = builtin(&provider.name).is_none();
    if provider.base_url.is_none() && custom && needs_url {
        return Err(Problem::field("base_url", "is required: this kind of provider has no default URL"));
    }
    Ok(())
}
