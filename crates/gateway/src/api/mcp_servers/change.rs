//! Changes of an MCP server, and their checks.

use std::collections::BTreeMap;

use gateway_core::mcp::{Auth, CallerIdentity, Definition, Transport};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::destinations::{check_headers, check_url};
use crate::api::extract::double_option;
use crate::mcp_servers::Secrets;
use crate::problem::{ApiResult, Problem};

/// How the gateway authenticates at the server.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "NewMcpAuth")]
pub enum NewAuth {
    None,
    Headers {
        /// Write-only: sent with every request.
        headers: BTreeMap<String, String>,
    },
    ClientCredentials {
        token_url: String,
        client_id: String,
        /// Write-only. May be omitted to keep the stored one.
        client_secret: Option<String>,
        scope: Option<String>,
    },
    PerUserHeaders {
        /// The headers that each caller stores for itself.
        names: Vec<String>,
    },
}

#[derive(Clone, Deserialize, JsonSchema)]
#[schemars(rename = "McpServerChange")]
pub struct ServerChange {
    /// The endpoint, such as https://mcp.example.com/mcp.
    pub url: Option<String>,
    pub transport: Option<Transport>,
    pub auth: Option<NewAuth>,
    /// Write-only: further headers that are sent with every request. Replaces the whole set; null removes it.
    #[serde(default, deserialize_with = "double_option")]
    pub headers: Option<Option<BTreeMap<String, String>>>,
    /// `claims`: a signed token in `X-Gateway-Identity` tells the server who calls.
    pub identity: Option<CallerIdentity>,
    /// Names of headers of the caller that are sent on.
    pub forward_headers: Option<Vec<String>>,
    /// Patterns with `*` for the tools that are offered; empty for all.
    pub allow: Option<Vec<String>>,
    /// Patterns with `*` for tools that are never offered.
    pub deny: Option<Vec<String>>,
    /// Only tools that say that they change nothing (`annotations.readOnlyHint`).
    pub read_only: Option<bool>,
    /// A tool that is new or has changed is hidden until it is approved.
    pub pin: Option<bool>,
    /// Up to 600000. Default: 60000. Progress of a call begins it again.
    pub timeout_ms: Option<u64>,
    /// By tool, in USD for a call.
    pub prices: Option<BTreeMap<String, f64>>,
    /// What agents are told about the server, in place of its own text; null for its own.
    #[serde(default, deserialize_with = "double_option")]
    pub instructions: Option<Option<String>>,
    pub enabled: Option<bool>,
}

impl ServerChange {
    /// The secrets that it sets, replaces or removes.
    pub fn secret_names(&self) -> [(&'static str, bool); 2] {
        let has_secret = match &self.auth {
            Some(NewAuth::Headers { .. }) => true,
            Some(NewAuth::ClientCredentials { client_secret, .. }) => client_secret.is_some(),
            Some(NewAuth::None | NewAuth::PerUserHeaders { .. }) | None => false,
        };
        [("auth", has_secret), ("headers", self.headers.as_ref().is_some_and(Option::is_some))]
    }

    /// Whether the stored secrets may be others after the change.
    pub fn concerns_secrets(&self) -> bool {
        self.url.is_some() || self.auth.is_some() || self.headers.is_some()
    }

    /// Drops the stored secrets if the change sends them to another origin. `None` if the origin stays; else whether
    /// there were secrets that the change does not repeat.
    pub fn drop_foreign_secrets(&self, definition: &Definition, secrets: &mut Secrets) -> Option<bool> {
        let old_token_url = match &definition.auth {
            Auth::ClientCredentials { token_url, .. } => Some(token_url.as_str()),
            _ => None,
        };
        if let (Some(old), Some(NewAuth::ClientCredentials { token_url, .. })) = (old_token_url, &self.auth)
            && origin(old) != origin(token_url)
        {
            secrets.client_secret = None;
        }
        let url = self.url.as_deref()?;
        if origin(url) == origin(&definition.url) {
            return None;
        }
        let had = std::mem::take(secrets);
        let headers = !had.headers.is_empty() && self.headers.is_none();
        let auth = (!had.auth_headers.is_empty() || had.client_secret.is_some()) && !self.secret_names()[0].1;
        Some(headers || auth)
    }

    /// Checks what does not depend on the stored server, which may have a secret that the change leaves out.
    pub fn check(&self) -> ApiResult<()> {
        let mut secrets = Secrets { client_secret: Some("stored".into()), ..Secrets::default() };
        self.clone().apply(&mut Definition::default(), &mut secrets)
    }

    /// Checks the change and applies it.
    pub fn apply(self, definition: &mut Definition, secrets: &mut Secrets) -> ApiResult<()> {
        if let Some(url) = self.url {
            definition.url = checked_url("url", url)?;
        }
        if let Some(auth) = self.auth {
            definition.auth = apply_auth(auth, secrets)?;
        }
        if let Some(headers) = self.headers {
            secrets.headers = checked_headers("headers", headers.unwrap_or_default())?;
        }
        if let Some(names) = self.forward_headers {
            check_names("forward_headers", &names)?;
            definition.forward_headers = names;
        }
        definition.transport = self.transport.unwrap_or(definition.transport);
        definition.identity = self.identity.unwrap_or(definition.identity);
        definition.allow = self.allow.unwrap_or_else(|| std::mem::take(&mut definition.allow));
        definition.deny = self.deny.unwrap_or_else(|| std::mem::take(&mut definition.deny));
        definition.read_only = self.read_only.unwrap_or(definition.read_only);
        definition.pin = self.pin.unwrap_or(definition.pin);
        definition.timeout_ms = self.timeout_ms.unwrap_or(definition.timeout_ms);
        definition.prices = self.prices.unwrap_or_else(|| std::mem::take(&mut definition.prices));
        definition.instructions = self.instructions.unwrap_or_else(|| definition.instructions.take());
        definition.enabled = self.enabled.unwrap_or(definition.enabled);
        definition.check().map_err(|(field, why)| Problem::field(field, why))
    }
}

fn apply_auth(auth: NewAuth, secrets: &mut Secrets) -> ApiResult<Auth> {
    let kept_secret = secrets.client_secret.take();
    secrets.auth_headers.clear();
    Ok(match auth {
        NewAuth::None => Auth::None,
        NewAuth::Headers { headers } => {
            secrets.auth_headers = checked_headers("auth.headers", headers)?;
            Auth::Headers
        }
        NewAuth::ClientCredentials { token_url, client_id, client_secret, scope } => {
            let token_url = checked_url("auth.token_url", token_url)?;
            secrets.client_secret = client_secret.or(kept_secret);
            if !secrets.client_secret.as_ref().is_some_and(|secret| (1..=8_192).contains(&secret.len())) {
                return Err(Problem::field("auth.client_secret", "is required: 1 to 8192 bytes"));
            }
            Auth::ClientCredentials { token_url, client_id, scope }
        }
        NewAuth::PerUserHeaders { names } => {
            let headers = names.iter().map(|name| (name.clone(), String::new())).collect();
            checked_headers("auth.names", headers)?;
            Auth::PerUserHeaders { names }
        }
    })
}

fn origin(url: &str) -> Option<url::Origin> {
    url::Url::parse(url).ok().map(|url| url.origin())
}

fn checked_url(field: &str, text: String) -> ApiResult<String> {
    check_url(&text).map_err(|why| Problem::field(field, why))?;
    if text.contains('#') {
        return Err(Problem::field(field, "must not have a fragment"));
    }
    Ok(text)
}

/// Headers of the protocol and of the gateway itself are never taken from a definition.
fn check_reserved(field: &str, name: &str) -> ApiResult<()> {
    let lower = name.to_ascii_lowercase();
    let is_reserved = lower.starts_with("mcp-") || lower.starts_with("x-gateway-") || lower == "accept";
    if is_reserved {
        return Err(Problem::field(field, format!("header '{name}' is reserved and cannot be set")));
    }
    Ok(())
}

fn checked_headers(field: &str, headers: BTreeMap<String, String>) -> ApiResult<BTreeMap<String, String>> {
    check_headers(&headers).map_err(|why| Problem::field(field, why))?;
    headers.keys().try_for_each(|name| check_reserved(field, name))?;
    Ok(headers)
}

/// A token that was issued for the gateway is not sent on, so credentials of the caller are not among them.
fn check_names(field: &str, names: &[String]) -> ApiResult<()> {
    let headers = names.iter().map(|name| (name.clone(), String::new())).collect();
    checked_headers(field, headers)?;
    let is_credential = |name: &&String| {
        let lower = name.to_ascii_lowercase();
        matches!(lower.as_str(), "authorization" | "cookie" | "x-api-key")
    };
    match names.iter().find(is_credential) {
        Some(name) => {
            Err(Problem::field(field, format!("header '{name}' is a credential and is not sent on")))
        }
        None => Ok(()),
    }
}
