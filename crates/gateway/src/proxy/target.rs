//! Where a request goes: a built-in provider, an organization's own credential for it, or a provider of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use gateway_core::llm::ProviderFormat;
use gateway_core::llm::providers::{Auth, Provider, SANDBOX, all, builtin};
use gateway_core::route::{pick_weighted, splitmix64};
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};

use crate::auth::Identity;
use crate::config::ProviderSettings;
use crate::problem::{ApiResult, Problem};

/// A provider that can be called.
pub struct Target {
    /// What `X-Gateway-Provider` said.
    pub name: String,
    /// The built-in provider that it is or behaves like.
    pub kind: &'static Provider,
    pub format: ProviderFormat,
    pub auth: Auth,
    /// None: nobody has said where it is. The sandbox is nowhere at all.
    pub base: Option<Base>,
    /// Calls are spread over them by weight.
    pub credentials: Vec<Credential>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The models that the organization says it has.
    pub models: Vec<String>,
    /// The address was chosen by a tenant: connections pass the egress guard.
    pub guarded: bool,
    /// It refused to be asked for the usage of a stream, and took the same request without the question.
    pub refuses_usage: AtomicBool,
}

/// A stored credential, and whether it may be used now.
pub struct Credential {
    pub secret: SecretString,
    weight: u32,
    /// Tells it from the others of its provider.
    name: u64,
    /// Milliseconds; it was rejected or limited, and is not used before.
    rests_until: AtomicI64,
}

impl Credential {
    pub fn new(label: &str, weight: u32, secret: SecretString) -> Self {
        let name = label.bytes().fold(0, |name, byte| splitmix64(name ^ u64::from(byte)));
        Self { secret, weight, name, rests_until: AtomicI64::new(0) }
    }

    pub fn rest(&self, until: i64) {
        self.rests_until.fetch_max(until, Ordering::Relaxed);
    }
}

/// A base URL, taken apart once.
#[derive(Clone, Debug)]
pub struct Base {
    pub scheme: Scheme,
    pub authority: Authority,
    /// Without a slash at the end.
    pub path: String,
}

impl Base {
    pub fn parse(url: &str) -> Option<Self> {
        let parts = url.parse::<Uri>().ok()?.into_parts();
        let path =
            parts.path_and_query.map_or(String::new(), |path| path.path().trim_end_matches('/').to_owned());
        Some(Self { scheme: parts.scheme?, authority: parts.authority?, path })
    }

    /// The base with the caller's path and query appended as they are.
    pub fn join(&self, path_and_query: &str) -> Result<Uri, http::Error> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        if self.path.is_empty() {
            builder.path_and_query(path_and_query).build()
        } else {
            builder.path_and_query(format!("{}{path_and_query}", self.path)).build()
        }
    }
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.path)
    }
}

impl Target {
    pub fn is_sandbox(&self) -> bool {
        self.kind.name == SANDBOX
    }

    /// The credential for the next attempt. `seed` is the same for the requests of a session: they stay with one
    /// account as long as it can be used. When all of them rest, the one that is ready first is used all the same.
    pub fn choose(&self, seed: u64, now: i64, tried: &[usize]) -> Option<usize> {
        if self.credentials.len() < 2 {
            return (!self.credentials.is_empty() && tried.is_empty()).then_some(0);
        }
        let rest = |place: usize| self.credentials[place].rests_until.load(Ordering::Relaxed);
        let untried = || (0..self.credentials.len()).filter(|place| !tried.contains(place));
        let ready: Vec<usize> = untried().filter(|place| rest(*place) <= now).collect();
        let candidates = ready.iter().map(|place| {
            let Credential { name, weight, .. } = &self.credentials[*place];
            (*name, *weight)
        });
        match pick_weighted(candidates, seed) {
            Some(place) => Some(ready[place]),
            None if tried.is_empty() => untried().min_by_key(|place| rest(*place)),
            None => None,
        }
    }
}

/// The providers as the operator has set them up, by name.
pub type Operators = HashMap<&'static str, Arc<Target>>;

pub fn operators(settings: &BTreeMap<String, ProviderSettings>) -> Operators {
    let target = |kind: &'static Provider| {
        let given = settings.get(kind.name);
        let base_url = given.and_then(|given| given.base_url.as_deref()).or(kind.base_url);
        Arc::new(Target {
            name: kind.name.to_owned(),
            kind,
            format: kind.format,
            auth: kind.auth,
            base: base_url.and_then(Base::parse),
            credentials: given
                .and_then(|given| given.api_key.clone())
                .map(|secret| Credential::new("", 1, secret))
                .into_iter()
                .collect(),
            headers: Vec::new(),
            models: Vec::new(),
            // A local address that the operator did not choose is as private as one that a tenant chose.
            guarded: kind.is_local() && given.is_none_or(|given| given.base_url.is_none()),
            refuses_usage: AtomicBool::new(false),
        })
    };
    all().iter().map(|kind| (kind.name, target(kind))).collect()
}

/// An organization's own entry, over what the operator has for the same kind.
pub fn of_org(
    operators: &Operators,
    stored: &gateway_store::providers::Provider,
    mut credentials: Vec<Credential>,
    headers: Option<&SecretString>,
) -> Option<Target> {
    let kind = builtin(&stored.kind)?;
    let operator = operators.get(kind.name);
    let own_base = stored.base_url.as_deref().and_then(Base::parse);
    // A credential of the operator's goes only to the address that the operator chose.
    let inherits = credentials.is_empty() && stored.base_url.is_none() && stored.name == kind.name;
    if inherits && let Some(operator) = operator {
        credentials.extend(
            operator
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
        guarded: stored.base_url.is_some() || operator.is_some_and(|target| target.guarded),
        base: match stored.base_url {
            Some(_) => own_base,
            None => operator.and_then(|target| target.base.clone()),
        },
        credentials,
        headers: headers.map(parse_headers).unwrap_or_default(),
        models: stored.models.clone(),
        refuses_usage: AtomicBool::new(false),
    })
}

/// The provider of that name for this caller, if there is one.
pub fn find<'a>(operators: &'a Operators, identity: &'a Identity, name: &str) -> Option<&'a Arc<Target>> {
    identity.org.providers.get(name).or_else(|| operators.get(name))
}

/// The provider of that name for this caller. `header` is where the name stood.
pub fn resolve(
    operators: &Operators,
    identity: &Identity,
    header: &str,
    name: &str,
) -> ApiResult<Arc<Target>> {
    let target = find(operators, identity, name).ok_or_else(|| unknown(identity, header, name))?;
    if target.base.is_none() && !target.is_sandbox() {
        return Err(Problem::bad_request(format!(
            "{header}: {name} has no address; store one with POST /orgs/:orgId/providers, or set \
             GATEWAY_PROVIDER_{}_BASE_URL",
            name.to_uppercase().replace('-', "_")
        )));
    }
    Ok(Arc::clone(target))
}

fn unknown(identity: &Identity, header: &str, name: &str) -> Problem {
    let own = identity.org.providers.keys().map(String::as_str);
    let mut names: Vec<&str> = all().iter().map(|provider| provider.name).chain(own).collect();
    names.sort_unstable();
    names.dedup();
    let shown: String = name.chars().take(64).collect();
    Problem::bad_request(format!("{header}: unknown provider '{shown}'; known are {}", names.join(", ")))
}

fn parse_headers(sealed: &SecretString) -> Vec<(HeaderName, HeaderValue)> {
    let map: BTreeMap<String, String> = serde_json::from_str(sealed.expose_secret()).unwrap_or_default();
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
        let join = |base: &str, path: &str| Base::parse(base).unwrap().join(path).unwrap().to_string();
        assert_eq!(
            join("https://api.openai.com", "/v1/chat/completions?x=%20y"),
            "https://api.openai.com/v1/chat/completions?x=%20y"
        );
        assert_eq!(join("https://api.groq.com/openai/", "/v1//x"), "https://api.groq.com/openai/v1//x");
        assert_eq!(join("http://127.0.0.1:9000", "/"), "http://127.0.0.1:9000/");
    }
}
