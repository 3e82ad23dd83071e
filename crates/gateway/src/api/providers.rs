//! Provider credentials of an organization: its own keys for built-in providers, and providers of its own.
//! Secrets are sealed before they are stored and never returned.

use std::collections::BTreeMap;

use axum::extract::State;
use gateway_core::ids::OrgId;
use gateway_core::llm::providers::{all, builtin};
use gateway_core::time::Timestamp;
use gateway_store::providers::{self, ApiKey, Provider};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, FromPath, PathParam, QueryParams, double_option};
use super::openapi::Area;
use super::page::{self, PageParams};
use super::response::{Created, Deleted, Json};
use crate::app::App;
use crate::nodes::{self, Invalidation};
use crate::problem::{ApiResult, Problem};
use crate::proxy::target::Base;
use crate::proxy::upstream;
use crate::vault::encryption_context;

const MAX_HEADERS: usize = 32;
const MAX_MODELS: usize = 1_000;
const MAX_API_KEYS: usize = 50;

pub fn area() -> Area {
    Area::new("providers", "Provider credentials of an organization, and providers of its own.")
        .get(
            "/orgs/{orgId}/providers",
            list,
            "The organization's provider credentials, without their secrets",
        )
        .post(
            "/orgs/{orgId}/providers",
            create,
            "Store a credential for a built-in provider, or define a custom one",
        )
        .put(
            "/orgs/{orgId}/providers/{name}",
            update,
            "Change a credential; fields left out stay as they are",
        )
        .delete("/orgs/{orgId}/providers/{name}", delete, "Remove a credential or custom provider")
        .post(
            "/orgs/{orgId}/providers/{name}/test",
            test,
            "Make one tiny call to see whether the provider answers",
        )
}

/// What `X-Gateway-Provider` says.
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
    /// The built-in provider whose wire format and way of authenticating it has.
    kind: String,
    base_url: Option<String>,
    has_api_key: bool,
    /// Those of `api_keys`, without their secrets.
    credentials: Vec<CredentialView>,
    has_headers: bool,
    models: Vec<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProviderCredential")]
struct CredentialView {
    label: String,
    weight: u32,
}

impl From<Provider> for ProviderView {
    fn from(provider: Provider) -> Self {
        let Provider { name, kind, base_url, api_key, api_keys, headers, models, created_at, updated_at } =
            provider;
        let has_api_key = api_key.is_some() || !api_keys.is_empty();
        let view = |ApiKey { label, weight, sealed: _ }| CredentialView { label, weight };
        let credentials = api_keys.into_iter().map(view).collect();
        let has_headers = headers.is_some();
        Self { name, kind, base_url, has_api_key, credentials, has_headers, models, created_at, updated_at }
    }
}

/// One of several credentials of a provider.
#[derive(Deserialize, JsonSchema)]
struct NewApiKey {
    /// Unique within the provider; told back, unlike the key.
    label: String,
    /// Write-only. Left out for a label that is there already: the stored one stays.
    api_key: Option<String>,
    /// 1 to 1000; calls are spread in proportion. Default 1.
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
    let next_cursor = page::encode_cursor(found.next.as_deref());
    Ok(Json(ProviderList { providers: found.rows.into_iter().map(Into::into).collect(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct NewProvider {
    /// A built-in name overrides its credential; any other name defines a custom provider.
    name: String,
    /// Required for a custom provider: the built-in provider that it behaves like.
    kind: Option<String>,
    base_url: Option<String>,
    /// Write-only.
    api_key: Option<String>,
    /// Several credentials, over which calls are spread by weight.
    api_keys: Option<Vec<NewApiKey>>,
    /// Write-only: sent with every request to the provider.
    headers: Option<BTreeMap<String, String>>,
    models: Option<Vec<String>>,
}

async fn create(
    State(app): AppState,
    caller: InOrg<Admin>,
    Body(request): Body<NewProvider>,
) -> ApiResult<Created<ProviderView>> {
    check_provider_name(&request.name).map_err(|why| Problem::field("name", why))?;
    let kind = checked_kind(&request.name, request.kind)?;
    let now = app.services.clock.now();
    let mut provider = Provider {
        base_url: None,
        api_key: None,
        api_keys: Vec::new(),
        headers: None,
        models: Vec::new(),
        created_at: now,
        updated_at: now,
        name: request.name,
        kind,
    };
    let change = ProviderChange {
        base_url: Some(request.base_url),
        api_key: Some(request.api_key),
        api_keys: request.api_keys,
        headers: Some(request.headers),
        models: request.models,
    };
    apply(&app, caller.org.id, &mut provider, change)?;
    let mut tx = app.services.db.begin().await?;
    providers::insert(&mut tx, caller.org.id, &provider).await.map_err(Problem::on_duplicate(
        "this organization has a provider of that name already; change it with PUT",
    ))?;
    let told = nodes::tell(&mut tx, Invalidation::Org(caller.org.id)).await?;
    tx.commit().await?;
    told.committed(&app);
    Ok(Created(provider.into()))
}

#[derive(Deserialize, JsonSchema)]
struct ProviderChange {
    #[serde(default, deserialize_with = "double_option")]
    base_url: Option<Option<String>>,
    /// Write-only; null removes it.
    #[serde(default, deserialize_with = "double_option")]
    api_key: Option<Option<String>>,
    /// The whole set; an empty list removes it.
    api_keys: Option<Vec<NewApiKey>>,
    /// Write-only; the whole set; null removes it.
    #[serde(default, deserialize_with = "double_option")]
    headers: Option<Option<BTreeMap<String, String>>>,
    models: Option<Vec<String>>,
}

async fn update(
    State(app): AppState,
    caller: InOrg<Admin>,
    PathParam(ProviderName(name)): PathParam<ProviderName>,
    Body(change): Body<ProviderChange>,
) -> ApiResult<Json<ProviderView>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let mut provider =
        providers::find_for_update(&mut tx, org, &name).await?.ok_or_else(Problem::not_found)?;
    apply(&app, org, &mut provider, change)?;
    provider.updated_at = app.services.clock.now();
    providers::update(&mut tx, org, &provider).await?;
    let told = nodes::tell(&mut tx, Invalidation::Org(org)).await?;
    tx.commit().await?;
    told.committed(&app);
    Ok(Json(provider.into()))
}

async fn delete(
    State(app): AppState,
    caller: InOrg<Admin>,
    PathParam(ProviderName(name)): PathParam<ProviderName>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    if !providers::delete(&mut tx, org, &name).await? {
        return Err(Problem::not_found());
    }
    let told = nodes::tell(&mut tx, Invalidation::Org(org)).await?;
    tx.commit().await?;
    told.committed(&app);
    Ok(Deleted::yes())
}

#[derive(Serialize, JsonSchema)]
struct ProviderTest {
    ok: bool,
    /// What the provider answered; null when it did not.
    status: Option<u16>,
    latency_ms: u64,
    error: Option<String>,
}

async fn test(
    State(app): AppState,
    caller: InOrg<Admin>,
    PathParam(ProviderName(name)): PathParam<ProviderName>,
) -> ApiResult<Json<ProviderTest>> {
    let target = caller.org.providers.get(&name).or_else(|| app.proxy.providers.get(name.as_str()));
    let target = target.ok_or_else(Problem::not_found)?;
    let began = std::time::Instant::now();
    let probed = upstream::probe(&app, target).await;
    let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Json(match probed {
        Ok(status) => ProviderTest { ok: true, status: Some(status.as_u16()), latency_ms, error: None },
        Err(failed) => {
            ProviderTest { ok: false, status: failed.status, latency_ms, error: Some(failed.message) }
        }
    }))
}

fn apply(app: &App, org: OrgId, provider: &mut Provider, change: ProviderChange) -> ApiResult<()> {
    let seal = |column: &str, secret: &str| {
        app.services
            .vault
            .seal(&encryption_context(org, &provider.name, column), secret)
            .map_err(Problem::internal)
    };
    if let Some(base_url) = change.base_url {
        provider.base_url = base_url.map(|url| checked_url("base_url", &url)).transpose()?;
    }
    if let Some(api_key) = change.api_key {
        let checked = api_key.map(|key| checked_secret(&key).map(|()| key)).transpose()?;
        provider.api_key = checked.map(|key| seal("api_key", &key)).transpose()?;
    }
    if let Some(api_keys) = change.api_keys {
        provider.api_keys = checked_api_keys(api_keys, &provider.api_keys, |label, key| {
            seal(&format!("api_keys/{label}"), key)
        })?;
    }
    if let Some(headers) = change.headers {
        let checked =
            headers.filter(|headers| !headers.is_empty()).as_ref().map(checked_headers).transpose()?;
        provider.headers = checked.map(|text| seal("headers", &text)).transpose()?;
    }
    if let Some(models) = change.models {
        let bad =
            |model: &String| model.is_empty() || model.len() > 200 || model.chars().any(char::is_control);
        if models.len() > MAX_MODELS || models.iter().any(bad) {
            return Err(Problem::field(
                "models",
                format!("must be at most {MAX_MODELS} names of 1 to 200 characters"),
            ));
        }
        provider.models = models;
    }
    let needs_url = builtin(&provider.kind).is_some_and(|kind| kind.base_url.is_none());
    let custom = builtin(&provider.name).is_none();
    if provider.base_url.is_none() && custom && needs_url {
        return Err(Problem::field(
            "base_url",
            "is required: this kind of provider has no address of its own",
        ));
    }
    Ok(())
}

fn check_provider_name(name: &str) -> Result<(), &'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let fits = matches!(name.as_bytes(), [first, rest @ ..]
        if plain(*first) && rest.len() <= 63 && rest.iter().all(|b| plain(*b) || matches!(b, b'-' | b'_')));
    if !fits {
        Err("must be 1 to 64 lowercase letters, digits, '-' or '_', beginning with a letter or digit")
    } else if name == "auto" {
        Err("'auto' has a meaning of its own")
    } else {
        Ok(())
    }
}

fn checked_kind(name: &str, kind: Option<String>) -> ApiResult<String> {
    let known = || all().iter().map(|provider| provider.name).collect::<Vec<_>>().join(", ");
    match (builtin(name), kind) {
        (Some(_), None) => Ok(name.to_owned()),
        (Some(_), Some(kind)) if kind == name => Ok(kind),
        (Some(_), Some(_)) => {
            Err(Problem::field("kind", "a built-in name keeps its own kind; choose another name"))
        }
        (None, Some(kind)) if builtin(&kind).is_some() => Ok(kind),
        (None, Some(_)) => Err(Problem::field("kind", format!("must be one of {}", known()))),
        (None, None) => {
            Err(Problem::field("kind", format!("is required for a custom provider: one of {}", known())))
        }
    }
}

/// http or https with a host, without credentials in it.
fn checked_url(field: &str, text: &str) -> ApiResult<String> {
    let wrong = || Problem::field(field, "must be a URL such as https://api.example.com");
    let url = url::Url::parse(text).map_err(|_| wrong())?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.host().is_some()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && text.len() <= 2_000;
    let text = url.as_str().trim_end_matches('/');
    if plain && Base::parse(text).is_some() { Ok(text.to_owned()) } else { Err(wrong()) }
}

fn checked_secret(key: &str) -> ApiResult<()> {
    let sendable = http::HeaderValue::from_str(key).is_ok_and(|value| value.to_str().is_ok());
    if !key.trim().is_empty() && key.len() <= 8_192 && sendable {
        Ok(())
    } else {
        Err(Problem::field("api_key", "must be 1 to 8192 printable ASCII characters"))
    }
}

fn checked_api_keys(
    given: Vec<NewApiKey>,
    stored: &[ApiKey],
    seal: impl Fn(&str, &str) -> ApiResult<String>,
) -> ApiResult<Vec<ApiKey>> {
    let wrong = |why: String| Err(Problem::field("api_keys", why));
    if given.len() > MAX_API_KEYS {
        return wrong(format!("must be at most {MAX_API_KEYS}"));
    }
    let mut api_keys: Vec<ApiKey> = Vec::with_capacity(given.len());
    for NewApiKey { label, api_key, weight } in given {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !(1..=64).contains(&label.len()) || !label.chars().all(plain) {
            return wrong("each label must be 1 to 64 letters, digits, '-', '_' or '.'".into());
        }
        let weight = weight.unwrap_or(1);
        if !(1..=1_000).contains(&weight) {
            return wrong(format!("the weight of '{label}' must be from 1 to 1000"));
        }
        if api_keys.iter().any(|other| other.label == label) {
            return wrong(format!("the label '{label}' stands twice"));
        }
        let sealed = match api_key {
            Some(key) => {
                checked_secret(&key)?;
                seal(&label, &key)?
            }
            None => match stored.iter().find(|stored| stored.label == label) {
                Some(stored) => stored.sealed.clone(),
                None => return wrong(format!("'{label}' needs its api_key")),
            },
        };
        api_keys.push(ApiKey { label, weight, sealed });
    }
    Ok(api_keys)
}

/// Names that would change how a request is framed or where it is read from.
fn is_reserved(name: &str) -> bool {
    const RESERVED: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    RESERVED.contains(&name) || name.starts_with("x-gateway-") || name.starts_with("proxy-")
}

fn checked_headers(headers: &BTreeMap<String, String>) -> ApiResult<String> {
    let sendable = |(name, value): (&String, &String)| {
        http::HeaderName::try_from(name.as_str()).is_ok() && http::HeaderValue::from_str(value).is_ok()
    };
    if headers.len() > MAX_HEADERS || !headers.iter().all(sendable) {
        return Err(Problem::field("headers", format!("must be at most {MAX_HEADERS} valid HTTP headers")));
    }
    if let Some(name) = headers.keys().find(|name| is_reserved(&name.to_ascii_lowercase())) {
        let why = format!("'{name}' cannot be set: it belongs to the connection or to the gateway");
        return Err(Problem::field("headers", why));
    }
    serde_json::to_string(headers).map_err(Problem::internal)
}
