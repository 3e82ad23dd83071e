//! Model calls of the gateway itself on behalf of a caller: playground, judges, embeddings and replays. They are checked against
//! the caller's scopes and counted against its rate limit.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::memory::tree_bytes;
use http::StatusCode;

use crate::auth::{Identity, Principal};
use crate::problem::{ApiResult, Problem};
use crate::proxy::Proxy;
use crate::proxy::internal_request::{AUTO, resolve_provider};
pub use crate::proxy::internal_request::{
    Endpoint, InsertedPrompt, InternalRequest, ModelResponse, StreamingResponse,
};
pub use crate::proxy::origin::CallSummary;
use crate::proxy::state::ProxyState;
use crate::services::Services;

/// How long a call waits while the organization has as many in progress as it may: a job would count a refusal as a
/// failure.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// What the values of a response may take when it is read. A provider may send many in few bytes.
const MAX_TREE_BYTES: usize = 64 << 20;

#[derive(Clone)]
pub struct InternalCaller {
    pub services: Arc<Services>,
    pub proxy: Arc<ProxyState>,
}

impl InternalCaller {
    /// Sends a request and waits for the whole response. An error of the provider with a status below 500 is a
    /// response; other failures are problems.
    pub async fn call_model(
        &self,
        identity: &Identity,
        request: InternalRequest,
    ) -> ApiResult<ModelResponse> {
        let identity = self.count(identity, &request).await?;
        let call = identity.org.calls.begin_in_turn(MAX_WAIT).await?;
        let response = self.proxy().call_model(&identity, request, Some(call)).await?;
        if tree_bytes(&response.body) > MAX_TREE_BYTES {
            let message = "the response of the model has too many values to be read";
            return Err(Problem::new(StatusCode::BAD_GATEWAY, "provider_error", message));
        }
        Ok(response)
    }

    /// Sends a request for a stream of events.
    pub async fn stream_model(
        &self,
        identity: &Identity,
        request: InternalRequest,
    ) -> ApiResult<StreamingResponse> {
        let identity = self.count(identity, &request).await?;
        let call = identity.org.calls.begin_in_turn(MAX_WAIT).await?;
        self.proxy().send_internal(&identity, request, Some(call), true).await
    }

    fn proxy(&self) -> Proxy<'_> {
        Proxy { services: &self.services, state: &self.proxy, worker: &self.proxy.worker }
    }

    async fn count(&self, identity: &Identity, request: &InternalRequest) -> ApiResult<Identity> {
        let mut identity = identity.clone();
        if !request.is_counted {
            self.proxy.access.count_request(&mut identity).await?;
        }
        Ok(identity)
    }
}

/// Checks whether the caller may use the model; `auto` is for named models. For calls that are made later, by the
/// organization.
pub fn check_allowed(identity: &Identity, provider: &str, model: &str) -> ApiResult<()> {
    let named = if provider == AUTO { identity.org.models.find(model)? } else { None };
    if named.is_none() {
        resolve_provider(identity, provider)?;
    }
    let Principal::Key(key) = &identity.principal else { return Ok(()) };
    let is_allowed = match &named {
        Some((named, _)) => {
            let providers = named.targets().iter().map(|target| target.provider.as_str());
            key.scopes.allow_named(model, providers)
        }
        None => key.scopes.allow(provider, Some(model)),
    };
    if is_allowed {
        return Ok(());
    }
    let message = format!("the key's scopes do not allow the model '{model}' of {provider}");
    Err(Problem::new(StatusCode::FORBIDDEN, "scope_denied", message))
}

/// The log id of a failed call.
pub fn log_id_of(problem: &Problem) -> Option<i64> {
    let found = problem.headers.iter().find(|(name, _)| name == "x-gateway-log-id");
    found.and_then(|(_, value)| value.to_str().ok()?.parse().ok())
}
