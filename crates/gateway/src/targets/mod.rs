//! The providers that calls can be sent to: built-in providers as the operator configured them, and an organization's
//! own entries with their credentials.

pub mod auth;
pub mod probe;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gateway_core::ids::OrgId;
use gateway_core::llm::ProviderFormat;
use gateway_core::llm::providers::{Auth, Provider, SANDBOX, all, builtin};
use gateway_core::route::{pick_weighted, splitmix64};
use gateway_store::providers::Provider as StoredProvider;
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};

use crate::config::ProviderSettings;
use crate::problem::{ApiResult, Problem};
use crate::vault::{Vault, encryption_context};

/// A provider that can be called.
pub struct Target {
    /// The name that callers use in `X-Gateway-Provider`.
    pub name: String,
    /// The built-in provider that it is, or whose API it implements.
    pub kind: &'static Provider,
    pub format: ProviderFormat,
    pub auth: Auth,
    /// `None` if no base URL is configured, and for the sandbox.
    pub base: Option<BaseUrl>,
    /// Calls are distributed over them by weight.
    pub credentials: Vec<Credential>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The models that the organization listed.
    pub models: Vec<String>,
    /// A tenant chose the address, so connections pass the egress guard.
    pub guarded: bool,
}

/// A stored credential and its availability.
pub struct Credential {
    pub secret: SecretString,
    weight: u32,
    /// A hash of the label, which distinguishes the credentials of a provider.
    label_hash: u64,
    /// The provider rejected or rate-limited it, so it is not used before this time in milliseconds.
    blocked_until: AtomicI64,
}

impl Credential {
    pub fn new(label: &str, weight: u32, secret: SecretString) -> Self {
        let label_hash = label.bytes().fold(0, |hash, byte| splitmix64(hash ^ u64::from(byte)));
        Self { secret, weight, label_hash, blocked_until: AtomicI64::new(0) }
    }

    /// Does not use the credential before `until`, in milliseconds.
    pub fn block_until(&self, until: i64) {
        self.blocked_until.fetch_max(until, Ordering::Relaxed);
    }
}

/// A parsed base URL.
#[derive(Clone, Debug)]
pub struct BaseUrl {
    pub scheme: Scheme,
    pub authority: Authority,
    /// Without a trailing slash.
    pub path: String,
}

impl BaseUrl {
    pub fn parse(url: &str) -> Option<Self> {
        let parts = url.parse::<Uri>().ok()?.into_parts();
        let path =
            parts.path_and_query.map_or(String::new(), |path| path.path().trim_end_matches('/').to_owned());
        Some(Self { scheme: parts.scheme?, authority: parts.authority?, path })
    }

    /// Returns the base URL with the caller's path and query appended unchanged.
    pub fn join(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        if self.path.is_empty() {
            builder.path_and_query(path_and_query).build()
        } else {
            builder.path_and_query(format!("{}{path_and_query}", self.path)).build()
        }
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.path)
    }
}

impl Target {
    pub fn is_sandbox(&self) -> bool {
        self.kind.name == SANDBOX
    }

    /// Chooses the credential of the next attempt. The requests of a session have the same `seed`, so they stay with
    /// one credential while it is available. If all are blocked, the first attempt uses the one that is available
    /// soonest.
    pub fn choose_credential(&self, seed: u64, now: i64, tried: &[usize]) -> Option<usize> {
        if self.credentials.len() < 2 {
            return (!self.credentials.is_empty() && tried.is_empty()).then_some(0);
        }
        let blocked_until = |index: usize| self.credentials[index].blocked_until.load(Ordering::Relaxed);
        let untried = || (0..self.credentials.len()).filter(|index| !tried.contains(index));
        let available: Vec<usize> = untried().filter(|index| blocked_until(*index) <= now).collect();
        let candidates = available.iter().map(|index| {
            let Credential { label_hash, weight, .. } = &self.credentials[*index];
            (*label_hash, *weight)
        });
        match pick_weighted(candidates, seed) {
            Some(position) => Some(available[position]),
            None if tried.is_empty() => untried().min_by_key(|index| blocked_until(*index)),
            None => None,
        }
    }
}

/// The built-in providers as the operator configured them, by name.
pub type OperatorProviders = HashMap<&'static str, Arc<Target>>;

pub fn operator_providers(settings: &BTreeMap<String, ProviderSettings>) -> OperatorProviders {
    let target = |kind: &'static Provider| {
        let configured = settings.get(kind.name);
        let base_url = configured.and_then(|settings| settings.base_url.as_deref()).or(kind.base_url);
        Arc::new(Target {
            name: kind.name.to_owned(),
            kind,
            format: kind.format,
            auth: kind.auth,
            base: base_url.and_then(BaseUrl::parse),
            credentials: configured
                .and_then(|settings| settings.api_key.clone())
                .map(|secret| Credential::new("", 1, secret))
                .into_iter()
                .collect(),
            headers: Vec::new(),
            models: Vec::new(),
            // A local default address was not chosen by the operator, so it is guarded like a tenant's.
            guarded: kind.is_local() && configured.is_none_or(|settings| settings.base_url.is_none()),
        })
    };
    all().iter().map(|kind| (kind.name, target(kind))).collect()
}

/// The providers of one organization: its own entries, and the operator's for all other names.
pub struct OrgProviders {
    own: HashMap<String, Arc<Target>>,
    operator: Arc<OperatorProviders>,
}

impl OrgProviders {
    /// Decrypts the organization's own entries. An entry whose provider is unknown is skipped.
    pub fn new(
        vault: &Vault,
        operator: &Arc<OperatorProviders>,
        org: OrgId,
        stored: &[StoredProvider],
    ) -> Self {
        let own = stored.iter().filter_map(|stored| own_target(vault, operator, org, stored)).collect();
        Self { own, operator: Arc::clone(operator) }
    }

    /// The organization's own entries by name.
    pub fn own(&self) -> &HashMap<String, Arc<Target>> {
        &self.own
    }

    pub fn find(&self, name: &str) -> Option<&Arc<Target>> {
        self.own.get(name).or_else(|| self.operator.get(name))
    }

    /// Returns the provider of this name, or an error that names the header or field it came from.
    pub fn resolve(&self, field: &str, name: &str) -> ApiResult<Arc<Target>> {
        let target = self.find(name).ok_or_else(|| self.unknown(field, name))?;
        if target.base.is_none() && !target.is_sandbox() {
            return Err(Problem::bad_request(format!(
                "{field}: the provider {name} has no base URL; add one with POST /orgs/:orgId/providers, or set \
                 GATEWAY_PROVIDER_{}_BASE_URL",
                name.to_uppercase().replace('-', "_")
            )));
        }
        Ok(Arc::clone(target))
    }

    fn unknown(&self, field: &str, name: &str) -> Problem {
        let own = self.own.keys().map(String::as_str);
        let mut names: Vec<&str> = all().iter().map(|provider| provider.name).chain(own).collect();
        names.sort_unstable();
        names.dedup();
        let shown: String = name.chars().take(64).collect();
        Problem::bad_request(format!(
            "{field}: unknown provider '{shown}'; must be one of {}",
            names.join(", ")
        ))
    }
}

fn own_target(
    vault: &Vault,
    operator: &OperatorProviders,
    org: OrgId,
    stored: &StoredProvider,
) -> Option<(String, Arc<Target>)> {
    let open = |column: &str, sealed: &str| {
        let opened = vault.open(&encryption_context(org, &stored.name, column), sealed);
        opened
            .inspect_err(|error| {
                tracing::error!(%error, %org, provider = stored.name, "cannot decrypt a provider credential");
            })
            .ok()
    };
    let headers = stored.headers.as_deref().and_then(|sealed| open("headers", sealed));
    let api_key = stored.api_key.as_deref().and_then(|sealed| open("api_key", sealed));
    let api_keys = stored.api_keys.iter().filter_map(|key| {
        let secret = open(&format!("api_keys/{}", key.label), &key.sealed)?;
        Some(Credential::new(&key.label, key.weight, secret))
    });
    let api_key = api_key.map(|secret| Credential::new("", 1, secret));
    let credentials = api_key.into_iter().chain(api_keys).collect();
    let target = org_target(operator, stored, credentials, headers.as_ref())?;
    Some((stored.name.clone(), Arc::new(target)))
}

/// An organization's own entry. Settings that it does not have are inherited from the operator's provider of its kind.
fn org_target(
    operator: &OperatorProviders,
    stored: &StoredProvider,
    mut credentials: Vec<Credential>,
    headers: Option<&SecretString>,
) -> Option<Target> {
    let kind = builtin(&stored.kind)?;
    let inherited = operator.get(kind.name);
    // A credential of the operator is sent only to the address that the operator chose.
    let inherits_credential = credentials.is_empty() && stored.base_url.is_none() && stored.name == kind.name;
    if inherits_credential && let Some(inherited) = inherited {
        credentials.extend(
            inherited
                .credentials
                .iter()
                .map(|credential| Credential::new("", credential.weight, credential.secret.clone())),
        );
    }
    Some(Target {
        name: stored.name.clone(),
        kind,
        format: kind.format,
        auth: kind.auth,
        guarded: stored.base_url.is_some() || inherited.is_some_and(|target| target.guarded),
        base: match &stored.base_url {
            Some(url) => BaseUrl::parse(url),
            None => inherited.and_then(|target| target.base.clone()),
        },
        credentials,
        headers: headers.map(parse_headers).unwrap_or_default(),
        models: stored.models.clone(),
    })
}

fn parse_headers(json: &SecretString) -> Vec<(HeaderName, HeaderValue)> {
    let map: BTreeMap<String, String> = serde_json::from_str(json.expose_secret()).unwrap_or_default();
    map.into_iter()
        .filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_path_and_query_are_appended_as_they_are() {
        let join = |base: &str, path: &str| BaseUrl::parse(base).unwrap().join(path).unwrap().to_string();
        assert_eq!(
            join("https://api.openai.com", "/v1/chat/completions?x=%20y"),
            "https://api.openai.com/v1/chat/completions?x=%20y"
        );
        assert_eq!(join("https://api.groq.com/openai/", "/v1//x"), "https://api.groq.com/openai/v1//x");
        assert_eq!(join("http://127.0.0.1:9000", "/"), "http://127.0.0.1:9000/");
    }
}
