//! The MCP servers of an organization in memory, with their secrets decrypted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::mcp::{Auth, CallerIdentity, Definition, ToolFilter};
use gateway_store::mcp_servers::McpServer;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use rust_decimal::Decimal;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::vault::{Vault, VaultError, encryption_context};

/// What is stored encrypted for a server.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Secrets {
    /// Sent with every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Of the authentication by headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub auth_headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
}

impl Secrets {
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.auth_headers.is_empty() && self.client_secret.is_none()
    }

    fn context(org: OrgId, server: &str) -> String {
        encryption_context(org, &format!("mcp/{server}"), "secrets")
    }

    /// The stored form.
    pub fn seal(&self, vault: &Vault, org: OrgId, server: &str) -> Result<Option<String>, VaultError> {
        if self.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(self).map_err(|_| VaultError)?;
        vault.seal(&Self::context(org, server), &text).map(Some)
    }

    pub fn open(vault: &Vault, org: OrgId, stored: &McpServer) -> Result<Self, VaultError> {
        let Some(sealed) = &stored.secrets else { return Ok(Self::default()) };
        let text = vault.open(&Self::context(org, &stored.name), sealed)?;
        serde_json::from_str(text.expose_secret()).map_err(|_| VaultError)
    }
}

/// A server as calls use it.
pub struct Server {
    pub name: Arc<str>,
    pub definition: Definition,
    pub filter: ToolFilter,
    pub uri: Uri,
    /// Sent with every request.
    pub headers: HeaderMap,
    pub client_secret: Option<SecretString>,
    /// Its secrets cannot be decrypted.
    pub is_unreadable: bool,
    /// The hashes of the approved tools; `None` until the tools were read for the first time.
    pub pins: Option<BTreeMap<String, String>>,
    /// Identifies the server and the credentials with which it is called: what is known of it belongs to this key.
    pub key: Arc<str>,
}

/// The key of a server.
pub fn key_of(stored: &McpServer) -> Arc<str> {
    let McpServer { name, definition, secrets, .. } = stored;
    let auth = serde_json::to_string(&definition.auth).unwrap_or_default();
    let (told, transport) = (definition.identity, definition.transport);
    let secrets = secrets.as_deref().unwrap_or_default();
    let identity = format!("{}\n{auth}\n{secrets}\n{told:?}\n{transport:?}", definition.url);
    format!("{name}@{}", hex::encode(&Sha256::digest(identity)[..12])).into()
}

impl Server {
    fn new(vault: &Vault, org: OrgId, stored: McpServer) -> Option<Self> {
        let secrets = Secrets::open(vault, org, &stored);
        let key = key_of(&stored);
        let McpServer { name, definition, pins, .. } = stored;
        let uri: Uri = definition.url.parse().ok()?;
        let is_unreadable = secrets.is_err();
        let Secrets { headers, auth_headers, client_secret } = secrets.unwrap_or_default();
        Some(Self {
            filter: definition.filter(),
            uri,
            headers: header_map(headers.into_iter().chain(auth_headers)),
            client_secret: client_secret.map(Into::into),
            is_unreadable,
            pins: pins.filter(|_| definition.pin),
            key,
            name: name.into(),
            definition,
        })
    }

    pub fn timeout(&self) -> Duration {
        self.definition.timeout()
    }

    pub fn is_per_user(&self) -> bool {
        self.definition.auth.is_per_user()
    }

    /// The server learns who calls, so its lists may depend on it.
    pub fn lists_by_caller(&self) -> bool {
        self.is_per_user() || self.definition.identity == CallerIdentity::Claims
    }

    pub fn price(&self, tool: &str) -> Option<Decimal> {
        self.definition.price(tool)
    }

    /// The tools are to be pinned, but were not read since.
    pub fn awaits_pins(&self) -> bool {
        self.definition.pin && self.pins.is_none()
    }

    /// Whether the tool is as it was approved. A server that does not pin its tools approves all.
    pub fn approves(&self, tool: &str, hash: &str) -> bool {
        let Some(pins) = self.pins.as_ref().filter(|_| self.definition.pin) else { return true };
        pins.get(tool).is_some_and(|approved| approved == hash)
    }

    /// The names of the headers that each caller stores for it.
    pub fn user_header_names(&self) -> &[String] {
        match &self.definition.auth {
            Auth::PerUserHeaders { names } => names,
            Auth::None | Auth::Headers | Auth::ClientCredentials { .. } => &[],
        }
    }
}

/// Headers that must not appear in log messages.
pub fn header_map(headers: impl IntoIterator<Item = (String, String)>) -> HeaderMap {
    let valid = headers.into_iter().filter_map(|(name, value)| {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::try_from(name).ok()?, value))
    });
    valid.collect()
}

/// The servers of an organization, by name.
#[derive(Default)]
pub struct OrgMcpServers(Vec<Arc<Server>>);

impl OrgMcpServers {
    pub fn new(vault: &Vault, org: OrgId, stored: Vec<McpServer>) -> Self {
        let mut servers: Vec<Arc<Server>> =
            stored.into_iter().filter_map(|stored| Server::new(vault, org, stored).map(Arc::new)).collect();
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        Self(servers)
    }

    pub fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.0.iter().find(|server| &*server.name == name)
    }

    pub fn enabled(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.0.iter().filter(|server| server.definition.enabled)
    }
}
