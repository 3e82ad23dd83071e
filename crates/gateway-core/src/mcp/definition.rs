//! The definition of an MCP server of an organization, without its secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::RESERVED_SERVER;
use super::tools::ToolFilter;

/// Servers of one organization.
pub const MAX_SERVERS: usize = 200;
const DEFAULT_TIMEOUT_MS: u64 = 60_000;
pub const MAX_TIMEOUT_MS: u64 = 600_000;
const MAX_PATTERNS: usize = 200;
const MAX_PATTERN_BYTES: usize = 128;
const MAX_PRICES: usize = 1_000;
const MAX_INSTRUCTIONS: usize = 4_000;
const MAX_FORWARDED: usize = 20;
const MAX_NAME: usize = 32;
/// In USD for one call.
const MAX_PRICE: f64 = 1_000.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "McpTransport")]
pub enum Transport {
    /// Streamable HTTP, in the newest revision that the server speaks; or the transport before it, if the server refuses
    /// what is posted.
    #[default]
    Auto,
    /// Streamable HTTP.
    Http,
    /// The transport before it: a stream of events, and an address for messages that the stream names.
    Sse,
}

/// How the gateway authenticates at the server. Secrets are stored apart from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "McpAuth")]
pub enum Auth {
    #[default]
    None,
    /// The same headers for all callers.
    Headers,
    /// A token of the OAuth client credentials grant, for all callers.
    ClientCredentials { token_url: String, client_id: String, scope: Option<String> },
    /// Headers that each caller stores under `/mcp-connections`.
    PerUserHeaders { names: Vec<String> },
}

/// What the server is told of who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "McpIdentity")]
pub enum CallerIdentity {
    #[default]
    None,
    /// A signed token in `X-Gateway-Identity`.
    Claims,
}

impl Auth {
    pub fn is_per_user(&self) -> bool {
        matches!(self, Self::PerUserHeaders { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    pub url: String,
    pub transport: Transport,
    pub auth: Auth,
    pub identity: CallerIdentity,
    /// Headers of the caller that are sent on.
    pub forward_headers: Vec<String>,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub read_only: bool,
    pub pin: bool,
    pub timeout_ms: u64,
    /// By tool, in USD for a call.
    pub prices: BTreeMap<String, f64>,
    pub instructions: Option<String>,
    pub enabled: bool,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            url: String::new(),
            transport: Transport::Auto,
            auth: Auth::None,
            identity: CallerIdentity::None,
            forward_headers: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            read_only: false,
            pin: false,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            prices: BTreeMap::new(),
            instructions: None,
            enabled: true,
        }
    }
}

/// Checks the name of a server: it begins the names of its tools, so it has no underscore.
pub fn check_server_name(name: &str) -> Result<(), String> {
    let bytes = name.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = bytes.len() <= MAX_NAME
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(is_plain)
        && bytes.iter().all(|byte| is_plain(byte) || *byte == b'-');
    if !fits {
        return Err(
            "must be 1 to 32 lowercase letters, digits or '-', from a letter to a letter or digit".into()
        );
    }
    if name == RESERVED_SERVER {
        return Err(format!("'{RESERVED_SERVER}' is the built-in server; choose another name"));
    }
    Ok(())
}

impl Definition {
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// The price of a call of the tool, if it has one.
    pub fn price(&self, tool: &str) -> Option<Decimal> {
        self.prices.get(tool)?.to_string().parse().ok()
    }

    pub fn filter(&self) -> ToolFilter {
        ToolFilter::new(&self.allow, &self.deny, self.read_only)
    }

    /// Checks all but URLs and header names. The error names the field.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (field, patterns) in [("allow", &self.allow), ("deny", &self.deny)] {
            let is_short = |text: &String| (1..=MAX_PATTERN_BYTES).contains(&text.len());
            if patterns.len() > MAX_PATTERNS || !patterns.iter().all(is_short) {
                let why =
                    format!("must be at most {MAX_PATTERNS} patterns of 1 to {MAX_PATTERN_BYTES} bytes");
                return Err((field, why));
            }
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            return Err(("timeout_ms", format!("must be from 1 to {MAX_TIMEOUT_MS}")));
        }
        let is_price = |price: &f64| (0.0..=MAX_PRICE).contains(price);
        if self.prices.len() > MAX_PRICES || !self.prices.values().all(is_price) {
            let why = format!("must be at most {MAX_PRICES} prices from 0 to {MAX_PRICE} USD");
            return Err(("prices", why));
        }
        if self.instructions.as_ref().is_some_and(|text| text.len() > MAX_INSTRUCTIONS) {
            return Err(("instructions", format!("must have at most {MAX_INSTRUCTIONS} bytes")));
        }
        if self.forward_headers.len() > MAX_FORWARDED {
            return Err(("forward_headers", format!("must be at most {MAX_FORWARDED} names")));
        }
        match &self.auth {
            Auth::PerUserHeaders { names } if names.is_empty() || names.len() > MAX_FORWARDED => {
                Err(("auth.names", format!("must be 1 to {MAX_FORWARDED} header names")))
            }
            Auth::ClientCredentials { client_id, scope, .. }
                if client_id.is_empty()
                    || client_id.len() > 512
                    || scope.as_ref().is_some_and(|s| s.len() > 1_000) =>
            {
                Err(("auth", "client_id must have 1 to 512 bytes and scope at most 1000".into()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_can_begin_the_names_of_tools() {
        for good in ["a", "git-hub", "x2", &"a".repeat(32)] {
            assert!(check_server_name(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "a_b", "-a", "a-", "gateway", "a.b", &"a".repeat(33)] {
            assert!(check_server_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_definition_is_within_its_bounds() {
        let good = Definition { allow: vec!["get_*".into()], ..Definition::default() };
        assert_eq!(good.check(), Ok(()));
        let field = |definition: Definition| definition.check().unwrap_err().0;
        let base = Definition::default;
        assert_eq!(field(Definition { timeout_ms: 600_001, ..base() }), "timeout_ms");
        assert_eq!(field(Definition { timeout_ms: 0, ..base() }), "timeout_ms");
        assert_eq!(field(Definition { allow: vec![String::new()], ..base() }), "allow");
        assert_eq!(field(Definition { deny: vec!["a".into(); 201], ..base() }), "deny");
        let prices = BTreeMap::from([("a".to_owned(), -1.0)]);
        assert_eq!(field(Definition { prices, ..base() }), "prices");
        let auth = Auth::PerUserHeaders { names: vec![] };
        assert_eq!(field(Definition { auth, ..base() }), "auth.names");
        assert_eq!(field(Definition { instructions: Some("x".repeat(4_001)), ..base() }), "instructions");
    }
}
