//! The headers with which a server is called: its stored credentials, a token of the client credentials grant, or what
//! the caller stored for itself, and the headers of the caller that are sent on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_core::ids::OrgId;
use gateway_core::mcp::{Auth, CallerIdentity};
use gateway_core::time::Timestamp;
use gateway_store::mcp_connections::{self, McpConnection};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::Mcp;
use super::identity::IDENTITY;
use super::upstream::{Failure, FailureKind};
use crate::mcp_servers::{Server, header_map};
use crate::outbound::exchange::{MAX_ERROR_BODY, error_message, read_prefix, send_guarded};
use crate::vault::{Vault, VaultError, encryption_context};

const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A token is not used in the last seconds before its end.
const TOKEN_MARGIN_MS: i64 = 30_000;
const DEFAULT_TOKEN_LIFE_S: i64 = 300;
const MAX_TOKEN_LIFE_S: i64 = 86_400;

/// A token and its end.
pub struct Token {
    header: HeaderValue,
    expires_at: Timestamp,
    /// The server does not accept it.
    is_refused: AtomicBool,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    expires_in: Option<i64>,
}

/// The headers of a caller's own connection, encrypted for the store.
pub fn seal_headers(
    vault: &Vault,
    (org, id): (OrgId, &str),
    headers: &BTreeMap<String, String>,
) -> Result<String, VaultError> {
    let text = serde_json::to_string(headers).map_err(|_| VaultError)?;
    vault.seal(&connection_context(org, id), &text)
}

fn connection_context(org: OrgId, id: &str) -> String {
    encryption_context(org, &format!("mcp-connection/{id}"), "headers")
}

fn open_headers(vault: &Vault, org: OrgId, stored: &McpConnection) -> Result<HeaderMap, VaultError> {
    let text = vault.open(&connection_context(org, &stored.id), &stored.headers)?;
    let headers: BTreeMap<String, String> =
        serde_json::from_str(text.expose_secret()).map_err(|_| VaultError)?;
    Ok(header_map(headers))
}

fn token_form(resource: &str, scope: Option<&str>) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials").append_pair("resource", resource);
    if let Some(scope) = scope {
        form.append_pair("scope", scope);
    }
    form.finish()
}

impl Mcp {
    /// The headers for a call. `caller` names who calls, `forwarded` are the headers of its request.
    pub(super) async fn credentials(
        &self,
        org: OrgId,
        server: &Arc<Server>,
        caller: &str,
        forwarded: Option<&HeaderMap>,
    ) -> Result<HeaderMap, Failure> {
        if server.is_unreadable {
            let message = "the stored secrets of the server cannot be decrypted; store them again";
            return Err(Failure::new(FailureKind::Refused, message));
        }
        let mut headers = HeaderMap::new();
        for name in &server.definition.forward_headers {
            let value = forwarded.and_then(|given| given.get(name));
            if let (Some(value), Ok(name)) = (value, HeaderName::try_from(name.as_str())) {
                headers.insert(name, value.clone());
            }
        }
        headers.extend(server.headers.clone());
        if server.definition.identity == CallerIdentity::Claims {
            let (url, now) = (&server.definition.url, self.services.clock.now());
            let invalid = || Failure::new(FailureKind::Invalid, "the caller cannot be named in a header");
            headers.insert(IDENTITY, self.identity.header((org, caller), url, now).ok_or_else(invalid)?);
        }
        match &server.definition.auth {
            Auth::None | Auth::Headers => {}
            Auth::ClientCredentials { .. } => {
                headers.insert(AUTHORIZATION, self.token(org, server).await?);
            }
            Auth::PerUserHeaders { .. } => headers.extend(self.own_headers(org, server, caller).await?),
        }
        Ok(headers)
    }

    async fn own_headers(&self, org: OrgId, server: &Server, caller: &str) -> Result<HeaderMap, Failure> {
        let found = mcp_connections::find(&self.services.db, org, &server.name, caller).await;
        let unavailable =
            |_| Failure::new(FailureKind::Unreachable, "the database is temporarily unavailable");
        let Some(connection) = found.map_err(unavailable)? else {
            let message = format!("no credential of this caller is stored for the server '{}'", server.name);
            return Err(Failure::new(FailureKind::SignIn, message));
        };
        open_headers(&self.services.vault, org, &connection)
            .map_err(|error| Failure::new(FailureKind::SignIn, error.to_string()))
    }

    /// A token for the server, from memory while it is valid.
    async fn token(&self, org: OrgId, server: &Arc<Server>) -> Result<HeaderValue, Failure> {
        let now = self.services.clock.now();
        if let Some(token) = self.tokens().get(org, &server.key)
            && now.plus(TOKEN_MARGIN_MS) < token.expires_at
            && !token.is_refused.load(Ordering::Relaxed)
        {
            return Ok(token.header.clone());
        }
        let token = self.request_token(server, now).await?;
        let header = token.header.clone();
        // If there is no room, the next call asks again.
        let _ = self.tokens().insert(org, Arc::clone(&server.key), Arc::new(token), |_| true);
        Ok(header)
    }

    /// The token was refused: the next call asks for another.
    pub(super) fn forget_token(&self, org: OrgId, server: &Server) {
        if let Some(token) = self.tokens().peek(org, &server.key) {
            token.is_refused.store(true, Ordering::Relaxed);
        }
    }

    async fn request_token(&self, server: &Server, now: Timestamp) -> Result<Token, Failure> {
        let Auth::ClientCredentials { token_url, client_id, scope } = &server.definition.auth else {
            return Err(Failure::new(FailureKind::Invalid, "the server does not use client credentials"));
        };
        let refused = |why: String| Failure::new(FailureKind::Refused, format!("the token endpoint: {why}"));
        let secret = server.client_secret.as_ref().map(|secret| secret.expose_secret().to_owned());
        let secret = secret.ok_or_else(|| refused("no client_secret is stored".into()))?;
        let form = token_form(&server.definition.url, scope.as_deref());
        let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = STANDARD.encode(format!("{}:{}", encode(client_id), encode(&secret)));
        let request = Request::builder()
            .method(Method::POST)
            .uri(token_url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .header(AUTHORIZATION, format!("Basic {pair}"))
            .body(form.into())
            .map_err(|_| refused("the token_url is invalid".into()))?;
        let response = send_guarded(&self.services, self.clients(), request, TOKEN_TIMEOUT).await?;
        let (head, mut body) = response.into_parts();
        let text = read_prefix(&mut body, MAX_ERROR_BODY, TOKEN_TIMEOUT).await;
        if !head.status.is_success() {
            return Err(refused(error_message(head.status, &text)));
        }
        let answer: TokenResponse =
            serde_json::from_slice(&text).map_err(|_| refused("its answer has no access_token".into()))?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", answer.access_token))
            .map_err(|_| refused("its token cannot be sent in a header".into()))?;
        header.set_sensitive(true);
        let life = answer.expires_in.unwrap_or(DEFAULT_TOKEN_LIFE_S).clamp(0, MAX_TOKEN_LIFE_S);
        Ok(Token { header, expires_at: now.plus(life * 1_000), is_refused: AtomicBool::new(false) })
    }
}
