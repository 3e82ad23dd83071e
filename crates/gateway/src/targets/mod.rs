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
use gateway_core::llm::sandbox;
use gateway_core::pricing::PriceTable;
use gateway_core::route::{pick_weighted, splitmix64};
use gateway_store::providers::{ApiKey, Provider as StoredProvider};
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use secrecy::{ExposeSecret, SecretString};

use crate::config::ProviderSettings;
use crate::problem::{ApiResult, Problem};
use crate::vault::{Vault, VaultError, encryption_context};

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
    /// It keeps nothing of calls, as the organization has agreed with it.
    pub no_retention: bool,
    /// The operator or the organization chose the address; otherwise it is the provider's own.
    pub has_chosen_url: bool,
    /// A tenant chose the address, so connections pass the egress guard.
    pub guarded: bool,
    /// Whose account a call without a credential of the caller uses.
    pub account: Account,
    /// A stored secret cannot be decrypted. Calls are refused, because without it they would be made with another
    /// credential or none.
    pub is_unreadable: bool,
}

/// The owner of the account at the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// The organization's own, or none.
    Own,
    /// The operator's credential, which other organizations use too.
    OperatorCredential,
    /// A local server of the operator, whatever the credential.
    OperatorServer,
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
    /// What stands in the place of `/v1` in the paths of calls; none for `/v1` itself.
    pub prefix: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl BaseUrl {
    pub fn parse(url: &str) -> Option<Self> {
        let parts = url.parse::<Uri>().ok()?.into_parts();
        let path =
            parts.path_and_query.map_or(String::new(), |path| path.path().trim_end_matches('/').to_owned());
        Some(Self { scheme: parts.scheme?, authority: parts.authority?, path, prefix: None })
    }

    #[must_use]
    pub fn with_prefix(self, prefix: Option<String>) -> Self {
        Self { prefix, ..self }
    }

    /// Scheme, host and port. Secrets that are stored for one origin are not sent to another.
    pub fn origin(&self) -> Origin {
        let default = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default);
        Origin { scheme: self.scheme.clone(), host: self.authority.host().to_ascii_lowercase(), port }
    }

    /// Returns the base URL with the caller's path and query appended: unchanged, but for the prefix of the server.
    pub fn join(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        let below =
            path_and_query.strip_prefix("/v1").filter(|rest| rest.starts_with(['/', '?']) || rest.is_empty());
        if let (Some(prefix), Some(rest)) = (&self.prefix, below) {
            let path = format!("{}{prefix}{rest}", self.path);
            return builder
                .path_and_query(if path.starts_with('/') { path } else { format!("/{path}") })
                .build();
        }
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

    /// Whether calls can be sent to it.
    pub fn has_address(&self) -> bool {
        self.base.is_some() || self.is_sandbox()
    }

    /// Whether it can be called without a credential of the caller: it has an address, and a credential if it needs one.
    /// A local server counts only if somebody chose its address.
    pub fn is_ready(&self) -> bool {
        let has_credential = !self.credentials.is_empty() || !self.headers.is_empty();
        let needs_none = matches!(self.auth, Auth::None) && self.has_chosen_url;
        self.is_sandbox() || (self.base.is_some() && (has_credential || needs_none))
    }

    /// The models that the organization listed, or else those of these modes with a price.
    pub fn known_models<'a>(&'a self, prices: &'a PriceTable, modes: &[&str]) -> Vec<&'a str> {
        if !self.models.is_empty() {
            return self.models.iter().map(String::as_str).collect();
        }
        if self.is_sandbox() {
            return sandbox::MODELS.to_vec();
        }
        prices.models_of(self.kind.name, modes)
    }

    /// The error for calls to a target with an unreadable secret.
    pub fn unreadable_problem(&self) -> Problem {
        let message = format!(
            "the stored credential of the provider {} cannot be decrypted; an admin must store it again",
            self.name
        );
        Problem::new(StatusCode::BAD_GATEWAY, "provider_error", message)
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

/// The operator's providers, for organizations that may use the operator's credentials and for those that may not.
pub struct OperatorTargets {
    pub with_credentials: Arc<OperatorProviders>,
    pub without_credentials: Arc<OperatorProviders>,
}

impl OperatorTargets {
    pub fn new(settings: &BTreeMap<String, ProviderSettings>) -> Self {
        let without = |settings: &ProviderSettings| ProviderSettings { api_key: None, ..settings.clone() };
        let without = settings.iter().map(|(name, settings)| (name.clone(), without(settings))).collect();
        Self {
            with_credentials: Arc::new(operator_providers(settings)),
            without_credentials: Arc::new(operator_providers(&without)),
        }
    }
}

pub fn operator_providers(settings: &BTreeMap<String, ProviderSettings>) -> OperatorProviders {
    let target = |kind: &'static Provider| {
        let configured = settings.get(kind.name);
        let base_url = configured.and_then(|settings| settings.base_url.as_deref()).or(kind.base_url);
        let has_credential = configured.is_some_and(|settings| settings.api_key.is_some());
        Arc::new(Target {
            account: match kind.is_local() {
                true => Account::OperatorServer,
                false if has_credential => Account::OperatorCredential,
                false => Account::Own,
            },
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
            no_retention: false,
            has_chosen_url: configured.is_some_and(|settings| settings.base_url.is_some()),
            // A local default address was not chosen by the operator, so it is guarded like a tenant's.
            guarded: kind.is_local() && configured.is_none_or(|settings| settings.base_url.is_none()),
            is_unreadable: false,
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

    /// All providers of the organization by name: its own entries, and the built-in ones.
    pub fn all(&self) -> Vec<&Arc<Target>> {
        let built_in = self.operator.values().filter(|target| !self.own.contains_key(&target.name));
        let mut all: Vec<&Arc<Target>> = built_in.chain(self.own.values()).collect();
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }

    pub fn find(&self, name: &str) -> Option<&Arc<Target>> {
        self.own.get(name).or_else(|| self.operator.get(name))
    }

    /// Returns the provider of this name, or an error that names the header or field it came from.
    pub fn resolve(&self, field: &str, name: &str) -> ApiResult<Arc<Target>> {
        let target = self.find(name).ok_or_else(|| self.unknown(field, name))?;
        if target.is_unreadable {
            return Err(target.unreadable_problem());
        }
        if !target.has_address() {
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
        opened.inspect_err(|error| {
            tracing::error!(%error, %org, provider = stored.name, "cannot decrypt a provider credential");
        })
    };
    let open_all = || {
        let headers = stored.headers.as_deref().map(|sealed| open("headers", sealed)).transpose()?;
        let mut credentials = Vec::new();
        if let Some(sealed) = &stored.api_key {
            credentials.push(Credential::new("", 1, open("api_key", sealed)?));
        }
        for ApiKey { label, weight, sealed } in &stored.api_keys {
            credentials.push(Credential::new(label, *weight, open(&format!("api_keys/{label}"), sealed)?));
        }
        Ok::<_, VaultError>(Secrets { credentials, headers })
    };
    let target = org_target(operator, stored, open_all().ok())?;
    Some((stored.name.clone(), Arc::new(target)))
}

/// The decrypted secrets of an entry.
struct Secrets {
    credentials: Vec<Credential>,
    headers: Option<SecretString>,
}

/// An organization's own entry. Settings that it does not have are inherited from the operator's provider of its kind.
/// `secrets` is `None` if one of them cannot be decrypted.
fn org_target(
    operator: &OperatorProviders,
    stored: &StoredProvider,
    secrets: Option<Secrets>,
) -> Option<Target> {
    let kind = builtin(&stored.kind)?;
    let inherited = operator.get(kind.name);
    let is_unreadable = secrets.is_none();
    let Secrets { mut credentials, headers } =
        secrets.unwrap_or(Secrets { credentials: Vec::new(), headers: None });
    // A credential of the operator is sent only to the address that the operator chose, and never in the place of one
    // that the organization has stored.
    let inherits_credential =
        credentials.is_empty() && !is_unreadable && stored.base_url.is_none() && stored.name == kind.name;
    if inherits_credential && let Some(inherited) = inherited {
        credentials.extend(
            inherited
                .credentials
                .iter()
                .map(|credential| Credential::new("", credential.weight, credential.secret.clone())),
        );
    }
    let account = match inherited {
        Some(target) if stored.base_url.is_none() && target.account == Account::OperatorServer => {
            target.account
        }
        Some(target) if inherits_credential => target.account,
        _ => Account::Own,
    };
    Some(Target {
        account,
        name: stored.name.clone(),
        kind,
        format: kind.format,
        auth: kind.auth,
        guarded: stored.base_url.is_some() || inherited.is_some_and(|target| target.guarded),
        base: match &stored.base_url {
            Some(url) => BaseUrl::parse(url),
            None => inherited.and_then(|target| target.base.clone()),
        }
        .map(|base| base.with_prefix(stored.path_prefix.clone())),
        credentials,
        headers: headers.as_ref().map(parse_headers).unwrap_or_default(),
        models: stored.models.clone(),
        no_retention: stored.no_retention,
        has_chosen_url: stored.base_url.is_some() || inherited.is_some_and(|target| target.has_chosen_url),
        is_unreadable,
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
    fn the_origin_is_scheme_host_and_port() {
        let origin = |url: &str| BaseUrl::parse(url).unwrap().origin();
        assert_eq!(origin("https://API.example.com/a"), origin("https://api.example.com:443/b"));
        assert_eq!(origin("http://api.example.com"), origin("http://api.example.com:80/"));
        for other in
            ["http://api.example.com", "https://api.example.com:444", "https://api.example.com.evil.example"]
        {
            assert_ne!(origin("https://api.example.com"), origin(other), "{other}");
        }
    }

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

    #[test]
    fn a_prefix_stands_in_the_place_of_the_version() {
        let join = |base: &str, prefix: &str, path: &str| {
            let base = BaseUrl::parse(base).unwrap().with_prefix(Some(prefix.to_owned()));
            base.join(path).unwrap().to_string()
        };
        assert_eq!(
            join("https://a.example/serving", "", "/v1/models?a=1"),
            "https://a.example/serving/models?a=1"
        );
        assert_eq!(join("https://a.example", "", "/v1/models"), "https://a.example/models");
        assert_eq!(join("https://a.example", "/v2", "/v1/models"), "https://a.example/v2/models");
        assert_eq!(join("https://a.example", "", "/v1beta/models"), "https://a.example/v1beta/models");
        assert_eq!(join("https://a.example", "", "/v1"), "https://a.example/");
    }
}
