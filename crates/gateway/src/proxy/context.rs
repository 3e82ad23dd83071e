//! What travels with a request through every stage of the proxy.

use std::sync::Arc;

use gateway_core::time::Timestamp;
use http::HeaderValue;
use http::request::Parts;

use super::Worker;
use super::plan::RouteTarget;
use super::state::ProxyState;
use super::target_health::TargetKey;
use crate::auth::Identity;
use crate::problem::ApiResult;
use crate::services::Services;
use crate::targets::Target;

#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    pub services: &'a Arc<Services>,
    pub state: &'a Arc<ProxyState>,
    pub worker: &'a Worker,
    pub identity: &'a Identity,
    pub head: &'a Parts,
    pub request_id: &'a HeaderValue,
}

impl<'a> RequestContext<'a> {
    pub fn now(&self) -> Timestamp {
        self.services.clock.now()
    }

    /// The provider of this name, as the caller's organization sees it.
    pub fn find_provider(&self, name: &str) -> Option<&'a Arc<Target>> {
        self.identity.org.providers.find(name)
    }

    /// The provider of this name. `header` named it.
    pub fn resolve_provider(&self, header: &str, name: &str) -> ApiResult<Arc<Target>> {
        self.identity.org.providers.resolve(header, name)
    }

    /// The target as the health of the caller's organization knows it.
    pub fn health_key<'t>(&self, target: &'t RouteTarget) -> TargetKey<'t> {
        TargetKey {
            org: self.identity.org.id,
            provider: &target.provider.name,
            model: target.model.as_deref(),
        }
    }
}
