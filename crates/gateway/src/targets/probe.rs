//! A small call that shows whether a target can be reached and accepts its stored credentials.

use std::time::Duration;

use gateway_core::time::Timestamp;
use http::{Request, StatusCode};

use super::auth::{SigningError, add_credential, sign, signs_with};
use crate::outbound::body::OutboundBody;
use crate::outbound::clients::Clients;
use crate::outbound::exchange::{
    ERROR_BODY_TIMEOUT, ExchangeError, MAX_ERROR_BODY, error_message, exchange, read_prefix,
};
use crate::services::Services;
use crate::targets::{Credential, Target};

const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a target is not usable.
#[derive(Debug)]
pub struct ProbeError {
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    pub message: String,
}

impl From<ExchangeError> for ProbeError {
    fn from(error: ExchangeError) -> Self {
        Self { status: None, message: error.message }
    }
}

impl From<SigningError> for ProbeError {
    fn from(error: SigningError) -> Self {
        Self { status: None, message: error.to_string() }
    }
}

/// Probes with every stored credential. Returns the status for the last one, or the first failure. The probe lists the
/// models of providers that have such an endpoint, and requests `/` from the others.
pub async fn probe(
    services: &Services,
    clients: &Clients,
    target: &Target,
) -> Result<StatusCode, ProbeError> {
    if target.is_sandbox() {
        return Ok(StatusCode::OK);
    }
    if target.is_unreadable {
        let message = target.unreadable_problem().message.into();
        return Err(ProbeError { status: None, message });
    }
    let mut status = probe_with(services, clients, target, target.credentials.first()).await?;
    for credential in target.credentials.iter().skip(1) {
        status = probe_with(services, clients, target, Some(credential)).await?;
    }
    Ok(status)
}

/// The request that shows whether the target accepts a credential.
pub fn probe_request(
    target: &Target,
    credential: Option<&Credential>,
    now: Timestamp,
) -> Result<Request<OutboundBody>, ProbeError> {
    let base = target.base.as_ref().ok_or_else(|| ExchangeError::unreachable("no address is configured"))?;
    let path = target.kind.models_path.filter(|path| !path.contains('{')).unwrap_or("/");
    let uri = base.join(path).map_err(|_| ExchangeError::unreachable("the address is invalid"))?;
    let secret = credential.map(|credential| &credential.secret);
    let mut request = Request::new(OutboundBody::default());
    *request.uri_mut() = uri;
    request.headers_mut().extend(target.headers.iter().cloned());
    add_credential(target, secret, request.headers_mut());
    if let Some(secret) = secret.filter(|secret| signs_with(target, secret)) {
        sign(target, secret, &mut request, now)?;
    }
    Ok(request)
}

async fn probe_with(
    services: &Services,
    clients: &Clients,
    target: &Target,
    credential: Option<&Credential>,
) -> Result<StatusCode, ProbeError> {
    let request = probe_request(target, credential, services.clock.now())?;
    let response = exchange(services, clients, target.guarded, request, PROBE_TIMEOUT).await?;
    let (head, mut body) = response.into_parts();
    if matches!(head.status.as_u16(), 401 | 403 | 429 | 500..) {
        let prefix = read_prefix(&mut body, MAX_ERROR_BODY, ERROR_BODY_TIMEOUT).await;
        let message = error_message(head.status, &prefix);
        return Err(ProbeError { status: Some(head.status.as_u16()), message });
    }
    Ok(head.status)
}
