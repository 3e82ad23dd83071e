//! Providers of an import. Their secrets are encrypted before they are stored.

use std::collections::{BTreeMap, HashMap};

use gateway_core::import::{PlannedProvider, Secret};
use gateway_store::Tx;
use gateway_store::providers::{self as store, Provider};
use http::{HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;

use super::{Applied, Existing, Importer, Kind};
use crate::problem::{ApiResult, Problem};
use crate::targets::BaseUrl;
use crate::vault::encryption_context;

impl Importer<'_> {
    pub(super) async fn apply_providers(
        &self,
        tx: &mut Tx,
        providers: &[PlannedProvider],
        applied: &mut Applied,
    ) -> ApiResult<()> {
        let mut unwritten: HashMap<&str, Provider> = HashMap::new();
        for planned in providers {
            check(planned)?;
            let found = match unwritten.get(planned.name.as_str()) {
                Some(found) => Some(found.clone()),
                None if self.dry_run => store::find_in_tx(tx, self.org, &planned.name).await?,
                None => store::find_for_update(tx, self.org, &planned.name).await?,
            };
            let existing = match &found {
                None => Existing::Nothing,
                Some(stored) if self.is_same(planned, stored) => Existing::Same,
                Some(_) => Existing::Other,
            };
            if !applied.changes.decide(Kind::Provider, &planned.name, &existing, self.on_conflict) {
                continue;
            }
            let is_new = found.is_none();
            let provider = match found {
                None => self.created(planned)?,
                Some(stored) => self.replaced(planned, stored)?,
            };
            if self.dry_run {
                applied.unwritten.providers += u64::from(is_new);
                unwritten.insert(&planned.name, provider);
            } else if is_new {
                store::insert(tx, self.org, &provider).await?;
            } else {
                store::update(tx, self.org, &provider).await?;
            }
        }
        Ok(())
    }

    fn created(&self, planned: &PlannedProvider) -> ApiResult<Provider> {
        Ok(Provider {
            name: planned.name.clone(),
            kind: planned.kind.clone(),
            base_url: planned.base_url.clone(),
            path_prefix: planned.path_prefix.clone(),
            api_key: self.sealed_key(planned)?,
            api_keys: Vec::new(),
            headers: self.sealed_headers(planned)?,
            models: Vec::new(),
            no_retention: false,
            created_at: self.now,
            updated_at: self.now,
        })
    }

    /// Secrets that the source does not have stay, unless the address is another one: they are for the old one.
    fn replaced(&self, planned: &PlannedProvider, stored: Provider) -> ApiResult<Provider> {
        let Provider { api_key, api_keys, headers, models, created_at, .. } = stored;
        let is_moved = planned.base_url != stored.base_url;
        let (api_key, api_keys, headers) =
            if is_moved { (None, Vec::new(), None) } else { (api_key, api_keys, headers) };
        let new = self.created(planned)?;
        Ok(Provider {
            // The key of the source takes the place of all others.
            api_keys: if new.api_key.is_some() { Vec::new() } else { api_keys },
            api_key: new.api_key.or(api_key),
            headers: new.headers.or(headers),
            models,
            created_at,
            ..new
        })
    }

    /// Whether the stored provider has everything that the source says about it.
    fn is_same(&self, planned: &PlannedProvider, stored: &Provider) -> bool {
        let has = |column: &str, sealed: Option<&String>, expected: &str| {
            let context = encryption_context(self.org, &stored.name, column);
            let opened = sealed.and_then(|sealed| self.vault.open(&context, sealed).ok());
            opened.is_some_and(|secret| secret.expose_secret() == expected)
        };
        let key = planned.api_key.as_ref();
        let headers = (!planned.headers.is_empty()).then(|| header_json(planned));
        stored.kind == planned.kind
            && stored.base_url == planned.base_url
            && stored.path_prefix == planned.path_prefix
            && key.is_none_or(|key| has("api_key", stored.api_key.as_ref(), key.expose()))
            && headers.is_none_or(|headers| has("headers", stored.headers.as_ref(), &headers))
    }

    fn sealed_key(&self, planned: &PlannedProvider) -> ApiResult<Option<String>> {
        planned.api_key.as_ref().map(|key| self.seal(&planned.name, "api_key", key.expose())).transpose()
    }

    fn sealed_headers(&self, planned: &PlannedProvider) -> ApiResult<Option<String>> {
        if planned.headers.is_empty() {
            return Ok(None);
        }
        self.seal(&planned.name, "headers", &header_json(planned)).map(Some)
    }

    fn seal(&self, name: &str, column: &str, secret: &str) -> ApiResult<String> {
        self.vault.seal(&encryption_context(self.org, name, column), secret).map_err(Problem::internal)
    }
}

fn header_json(planned: &PlannedProvider) -> String {
    let headers: BTreeMap<&str, &str> =
        planned.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    serde_json::to_string(&headers).unwrap_or_default()
}

/// What a source may have that cannot be sent. Messages never show a secret.
fn check(planned: &PlannedProvider) -> ApiResult<()> {
    let name = &planned.name;
    let is_sendable = |secret: &Secret| HeaderValue::from_str(secret.expose()).is_ok();
    let problem = if planned.base_url.as_deref().is_some_and(|url| BaseUrl::parse(url).is_none()) {
        "its base URL is not a URL"
    } else if planned.api_key.as_ref().is_some_and(|key| !is_sendable(key)) {
        "its key has characters that cannot be sent"
    } else if planned
        .headers
        .iter()
        .any(|(name, value)| HeaderName::try_from(name.as_str()).is_err() || !is_sendable(value))
    {
        "its headers cannot be sent"
    } else {
        return Ok(());
    };
    Err(Problem::unprocessable(format!("the provider {name} cannot be imported: {problem}")))
}
