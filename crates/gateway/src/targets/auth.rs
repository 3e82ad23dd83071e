//! Authentication with a stored credential: a header, or a signature over the request.

use gateway_core::llm::providers::{ANTHROPIC_VERSION, Auth};
use gateway_core::llm::sigv4::{self, Credentials, Scope};
use gateway_core::time::{Timestamp, jiff_timestamp};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use secrecy::{ExposeSecret, SecretString};

use crate::outbound::body::OutboundBody;
use crate::targets::Target;

pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub const API_KEY: HeaderName = HeaderName::from_static("api-key");
pub const GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const DEFAULT_REGION: &str = "us-east-1";

#[derive(Debug, thiserror::Error)]
#[error("the request could not be signed")]
pub struct SigningError;

/// Returns true if a stored credential of the target may sign the body.
pub fn signs_body(target: &Target) -> bool {
    target.credentials.iter().any(|credential| signs_with(target, &credential.secret))
}

/// Returns true if this credential signs requests, instead of being sent with them.
pub fn signs_with(target: &Target, secret: &SecretString) -> bool {
    matches!(target.auth, Auth::SigV4 { .. }) && Credentials::parse(secret.expose_secret()).is_some()
}

/// Adds the credential in the header that the provider expects. A credential that signs is not added.
pub fn add_credential(target: &Target, secret: Option<&SecretString>, headers: &mut HeaderMap) {
    let Some(secret) = secret else { return };
    let is_signed = signs_with(target, secret);
    let secret = secret.expose_secret();
    let (name, value) = match target.auth {
        Auth::XApiKey => {
            if !headers.contains_key(VERSION) {
                headers.insert(VERSION, HeaderValue::from_static(ANTHROPIC_VERSION));
            }
            (X_API_KEY, secret.to_owned())
        }
        Auth::ApiKey => (API_KEY, secret.to_owned()),
        Auth::GoogApiKey => (GOOG_API_KEY, secret.to_owned()),
        Auth::SigV4 { .. } if is_signed => return,
        Auth::SigV4 { .. } | Auth::Bearer | Auth::OAuthBearer | Auth::None => {
            (AUTHORIZATION, format!("Bearer {secret}"))
        }
    };
    if let Ok(mut value) = HeaderValue::try_from(value) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}

/// Adds the signature to a complete request whose body is in memory.
pub fn sign(
    target: &Target,
    secret: &SecretString,
    request: &mut Request<OutboundBody>,
    now: Timestamp,
) -> Result<(), SigningError> {
    let Auth::SigV4 { service } = target.auth else { return Ok(()) };
    let credentials = Credentials::parse(secret.expose_secret()).ok_or(SigningError)?;
    let host = request.uri().authority().map(http::uri::Authority::as_str).ok_or(SigningError)?;
    let region = sigv4::region_of_host(host).unwrap_or(DEFAULT_REGION);
    let body = request.body().bytes().ok_or(SigningError)?;
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut signed: Vec<(&str, &str)> = vec![("host", host)];
    signed.extend(content_type.map(|value| ("content-type", value)));
    let canonical = sigv4::Request {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        headers: &signed,
        body_sha256: &sigv4::hex_sha256(&body),
    };
    let signature = sigv4::sign(&canonical, &credentials, Scope { region, service }, jiff_timestamp(now));
    for (name, value) in signature {
        let name = HeaderName::try_from(name).map_err(|_| SigningError)?;
        request.headers_mut().insert(name, value.parse().map_err(|_| SigningError)?);
    }
    Ok(())
}
