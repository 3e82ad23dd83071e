//! The providers and models of an organization, for the tables of dialects.

use std::sync::Arc;

use gateway_core::compat::Known;
use gateway_core::llm::providers::{self, Provider};

use crate::auth::CachedOrg;
use crate::targets::{BaseUrl, Target};

pub struct OrgNames(pub Arc<CachedOrg>);

impl Known for OrgNames {
    fn has_model(&self, name: &str) -> bool {
        // One that cannot be read is found too, and its problem is reported where it is used.
        !matches!(self.0.models.find(name), Ok(None))
    }

    fn has_provider(&self, name: &str) -> bool {
        self.0.providers.find(name).is_some()
    }

    fn provider_at(&self, url: &str) -> Option<String> {
        let url = BaseUrl::parse(url)?;
        let is_there = |target: &Target| target.base.as_ref().is_some_and(|base| is_below(&url, base));
        // The organization's own entries come first; of several the first by name.
        let own = self.0.providers.own().iter().filter(|(_, target)| is_there(target));
        let own = own.map(|(name, _)| name.as_str()).min();
        // A built-in provider has its own address too, wherever the operator sends its calls.
        let is_builtin = |provider: &&Provider| {
            let base = provider.base_url.and_then(BaseUrl::parse);
            base.is_some_and(|base| is_below(&url, &base))
                || self.0.providers.find(provider.name).is_some_and(|target| is_there(target))
        };
        let builtin = || providers::all().iter().find(is_builtin).map(|provider| provider.name);
        own.or_else(builtin).map(str::to_owned)
    }
}

fn is_below(url: &BaseUrl, base: &BaseUrl) -> bool {
    let below = url.path.strip_prefix(&base.path);
    url.origin() == base.origin() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
