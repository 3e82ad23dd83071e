//! The providers of a plan: one for each endpoint and credential that the source uses.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{PlannedProvider, Secret};

/// An address, and a credential for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of a built-in provider.
    pub kind: &'static str,
    pub base_url: Option<String>,
    pub path_prefix: Option<String>,
    /// The credential as the source has it: itself, or a reference. Endpoints with different ones are different.
    pub credential: Option<String>,
    /// The credential itself, if it is known.
    pub api_key: Option<Secret>,
    pub headers: BTreeMap<String, Secret>,
}

/// What distinguishes endpoints.
type Identity = (&'static str, Option<String>, Option<String>, Option<String>, Vec<(String, String)>);

impl Endpoint {
    pub fn of(kind: &'static str) -> Self {
        Self {
            kind,
            base_url: None,
            path_prefix: None,
            credential: None,
            api_key: None,
            headers: BTreeMap::new(),
        }
    }

    /// The built-in provider as it is: nothing of it must be stored.
    fn is_plain(&self) -> bool {
        self.base_url.is_none() && self.credential.is_none() && self.headers.is_empty()
    }

    fn identity(&self) -> Identity {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        (
            self.kind,
            self.base_url.clone(),
            self.path_prefix.clone(),
            self.credential.clone(),
            headers.collect(),
        )
    }
}

/// The endpoints in the order of their first use.
#[derive(Default)]
pub struct Endpoints {
    list: Vec<Endpoint>,
    places: HashMap<Identity, usize>,
    /// Names that the source gives to providers.
    reserved: HashSet<String>,
}

impl Endpoints {
    /// The place of an endpoint.
    pub fn place(&mut self, endpoint: Endpoint) -> usize {
        let next = self.list.len();
        let place = *self.places.entry(endpoint.identity()).or_insert(next);
        if place == next {
            self.list.push(endpoint);
        }
        place
    }

    /// Keeps a name for a provider that the source names.
    pub fn reserve(&mut self, name: &str) {
        self.reserved.insert(name.to_owned());
    }

    /// The name of each endpoint: that of its kind if it is the plain one or the first, otherwise one with a number.
    pub fn names(&self) -> Vec<String> {
        let plain = self.list.iter().filter(|endpoint| endpoint.is_plain());
        let mut taken = self.reserved.clone();
        taken.extend(plain.map(|endpoint| endpoint.kind.to_owned()));
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut name = |endpoint: &Endpoint| {
            if endpoint.is_plain() {
                return endpoint.kind.to_owned();
            }
            loop {
                let count = counts.entry(endpoint.kind).or_default();
                *count += 1;
                let name = match *count {
                    1 => endpoint.kind.to_owned(),
                    count => format!("{}-{count}", endpoint.kind),
                };
                if taken.insert(name.clone()) {
                    return name;
                }
            }
        };
        self.list.iter().map(&mut name).collect()
    }

    /// The providers to store.
    pub fn into_planned(self) -> Vec<PlannedProvider> {
        let names = self.names();
        let named = self.list.into_iter().zip(names);
        let stored = named.filter(|(endpoint, _)| !endpoint.is_plain());
        let planned = stored.map(|(endpoint, name)| {
            let Endpoint { kind, base_url, path_prefix, credential: _, api_key, headers } = endpoint;
            PlannedProvider { name, kind: kind.to_owned(), base_url, path_prefix, api_key, headers }
        });
        planned.collect()
    }
}

/// The address of an OpenAI-compatible API that is called as `{base}/chat/completions`: its base URL without `/v1`, or
/// an empty prefix in the place of `/v1`.
pub fn split_version(base: &str) -> (String, Option<String>) {
    let base = base.trim().trim_end_matches('/');
    let base = base.strip_suffix("/chat/completions").unwrap_or(base);
    match base.strip_suffix("/v1") {
        Some(base) => (base.to_owned(), None),
        None => (base.to_owned(), Some(String::new())),
    }
}
