//! What the operator opens to callers: signup, the operator's own credentials, and private addresses.

use std::net::IpAddr;
use std::path::PathBuf;

use gateway_core::access::Plan;
use gateway_core::accounts::check_slug;
use gateway_core::compat::{DIALECTS, Dialect, named};
use ipnet::{IpNet, Ipv4Net};

use super::parse::{choice, invalid};
use super::{Config, ConfigError, RawSettings};

/// The PEM files of the listener's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those of its issuers.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Who may create an account. The first account can always be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signup {
    Open,
    /// Only with an invitation.
    Invite,
    Closed,
}

impl Signup {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Invite => "invite",
            Self::Closed => "closed",
        }
    }
}

/// Whether URLs of tenants may reach private addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressPrivate {
    Allow,
    Deny,
    /// Allowed as long as the gateway looks like that of one person on one machine.
    Auto,
}

/// The organizations that may use the operator's provider credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorCredentials {
    All,
    Off,
    Listed { slugs: Vec<String>, plans: Vec<Plan> },
}

impl OperatorCredentials {
    pub fn allow(&self, slug: &str, plan: Plan) -> bool {
        match self {
            Self::All => true,
            Self::Off => false,
            Self::Listed { slugs, plans } => {
                plans.contains(&plan) || slugs.iter().any(|listed| listed == slug)
            }
        }
    }
}

/// Whether organizations that use the operator's credential may access the objects that a provider keeps for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorObjects {
    Refuse,
    Shared,
}

impl Config {
    /// Whether several people probably use the gateway: others can connect to it, or several nodes share its database.
    pub fn is_exposed(&self) -> bool {
        !self.listen.ip().is_loopback() || !self.trusted_proxies.is_empty() || self.is_shared()
    }

    /// The operator's provider credentials, by provider.
    pub fn credential_names(&self) -> Vec<&str> {
        let named = self.providers.iter().filter(|(_, settings)| settings.api_key.is_some());
        named.map(|(name, _)| name.as_str()).collect()
    }
}

/// Both files or none.
pub(super) fn tls(values: &RawSettings) -> Result<Option<Box<TlsFiles>>, ConfigError> {
    let path = |key: &str| Some(values.get(key).trim()).filter(|path| !path.is_empty()).map(PathBuf::from);
    match (path("tls_cert"), path("tls_key")) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some(Box::new(TlsFiles { cert, key }))),
        (Some(_), None) => {
            Err(invalid("tls_key", "the file of the private key, because GATEWAY_TLS_CERT is set"))
        }
        (None, Some(_)) => {
            Err(invalid("tls_cert", "the file of the certificate, because GATEWAY_TLS_KEY is set"))
        }
    }
}

pub(super) fn signup(values: &RawSettings) -> Result<Signup, ConfigError> {
    let choices = [Signup::Open, Signup::Invite, Signup::Closed].map(|signup| (signup.as_str(), signup));
    choice(values, "signup", &choices)
}

pub(super) fn egress_private(values: &RawSettings) -> Result<EgressPrivate, ConfigError> {
    let choices =
        [("allow", EgressPrivate::Allow), ("deny", EgressPrivate::Deny), ("auto", EgressPrivate::Auto)];
    choice(values, "egress_private", &choices)
}

pub(super) fn objects(values: &RawSettings) -> Result<OperatorObjects, ConfigError> {
    let choices = [("refuse", OperatorObjects::Refuse), ("shared", OperatorObjects::Shared)];
    choice(values, "operator_objects", &choices)
}

pub(super) fn credentials(values: &RawSettings) -> Result<OperatorCredentials, ConfigError> {
    const KEY: &str = "operator_credentials";
    let text = values.get(KEY).trim();
    match text {
        "all" => return Ok(OperatorCredentials::All),
        "off" => return Ok(OperatorCredentials::Off),
        _ => {}
    }
    let expected = || invalid(KEY, "all, off, or a list such as acme, plan:enterprise");
    let (mut slugs, mut plans) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim) {
        match part.strip_prefix("plan:") {
            Some(plan) => plans.push(plan.parse().map_err(|_| expected())?),
            None => slugs.push(check_slug(part).map(|()| part.to_owned()).map_err(|_| expected())?),
        }
    }
    Ok(OperatorCredentials::Listed { slugs, plans })
}

/// A network of IPv4 addresses that is written as one of IPv6. Addresses of peers are compared in their short form.
pub(super) fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let IpAddr::V4(address) = IpAddr::V6(v6.addr()).to_canonical() else { return network };
    let length = v6.prefix_len().checked_sub(96);
    length.and_then(|length| Ipv4Net::new(address, length).ok()).map_or(network, IpNet::V4)
}

/// Origins such as `https://app.example.com`, in lower case and without a path.
pub(super) fn allowed_origins(values: &RawSettings) -> Result<Vec<String>, ConfigError> {
    let origins = values.get("allowed_origins").split(',').map(str::trim).filter(|origin| !origin.is_empty());
    let check = |origin: &str| {
        let origin = origin.trim_end_matches('/').to_ascii_lowercase();
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        let is_origin = host.is_some_and(|host| !host.is_empty() && !host.contains('/'));
        is_origin
            .then_some(origin)
            .ok_or_else(|| invalid("allowed_origins", "origins such as https://app.example.com"))
    };
    origins.map(check).collect()
}

/// The dialects that are served, by their names.
pub(super) fn compat(values: &RawSettings) -> Result<Vec<&'static Dialect>, ConfigError> {
    let names = values.get("compat").split(',').map(str::trim).filter(|name| !name.is_empty());
    let known = || DIALECTS.iter().map(|dialect| dialect.name).collect::<Vec<_>>().join(", ");
    names
        .map(|name| named(name).ok_or_else(|| invalid("compat", &format!("names among {}", known()))))
        .collect()
}
