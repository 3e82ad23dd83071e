//! Settings: raw values from file and environment, and the validated `Config` that the rest of the program uses.
//! No other module reads the environment.

mod display;
mod operator;
mod parse;
mod raw;
mod resources;
mod secrets;
mod settings;
mod source;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_core::access::Plan;
use gateway_core::accounts::OrgSettings;
use gateway_core::compat::Dialect;
use gateway_core::llm::providers::{self, builtin};
use gateway_core::pricing::PriceTable;
use gateway_core::quotas::Quotas;
use gateway_core::time::Timestamp;
use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};

use crate::connections::ConnectionLimits;
pub use display::{masked_database_url, masked_toml};
pub use operator::{EgressPrivate, OperatorCredentials, OperatorObjects, Signup, TlsFiles};
use parse::{choice, flag, integer, invalid, non_empty, optional, parsed, small_integer};
pub use raw::{RawSettings, RawValue, SettingSource, SettingsFile};
pub use resources::raise_descriptor_limit;
use secrets::Secrets;
pub use settings::{SETTINGS, Setting, env_name};
pub use source::{Reader, load_raw, variable};

/// Days for which audit logs may be kept.
pub const AUDIT_RETENTION_MIN: u32 = 30;
const AUDIT_RETENTION_MAX: u32 = 3_650;

/// A message for the operator that names the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// The validated settings.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub admin_listen: Option<SocketAddr>,
    /// The listener speaks TLS.
    pub tls: Option<Box<TlsFiles>>,
    pub data_dir: PathBuf,
    pub database_url: SecretString,
    pub database_connections: DatabaseConnections,
    pub redis_url: Option<SecretString>,
    pub token_secret: SecretString,
    /// Accepted, but not used to sign.
    pub token_secrets_accepted: Vec<SecretString>,
    pub master_key: SecretString,
    /// They open stored secrets, but seal none.
    pub master_keys_accepted: Vec<SecretString>,
    pub default_plan: Plan,
    pub plan_changes: PlanChanges,
    pub auth_attempts: u64,
    pub auth_failures: u64,
    pub trusted_proxies: Vec<IpNet>,
    pub rate_limits: Box<RateLimits>,
    pub quotas: Box<Quotas>,
    /// Organizations that one account may own; none is unlimited.
    pub orgs_per_user: Option<NonZeroU64>,
    pub egress_private: EgressPrivate,
    pub signup: Signup,
    pub operator_credentials: OperatorCredentials,
    pub operator_objects: OperatorObjects,
    /// The dialects that are served below `/compat`.
    pub compat: Vec<&'static Dialect>,
    /// Origins of pages that may call `/mcp`, besides the service's own.
    pub allowed_origins: Vec<String>,
    pub judge: Box<JudgeDefaults>,
    /// Without a slash at its end.
    pub public_url: Option<String>,
    /// Links for installing skills are served.
    pub install_links: bool,
    pub public_docs: bool,
    pub eval_queue: usize,
    pub max_body_bytes: usize,
    pub memory_bytes: u64,
    pub connection_limits: Box<ConnectionLimits>,
    /// Calls in progress.
    pub max_calls: u64,
    pub head_timeout: Duration,
    /// Of a connection without requests.
    pub idle_timeout: Duration,
    pub proxy_timeout: Duration,
    pub log_bodies: bool,
    pub log_retention_days: u32,
    pub audit_retention_days: u32,
    pub spool_bytes: u64,
    pub outage_grace: Duration,
    pub cache_bytes: u64,
    pub prices_file: Option<PathBuf>,
    pub workers: usize,
    pub log_level: tracing::Level,
    pub providers: BTreeMap<String, ProviderSettings>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanChanges {
    Owner,
    Operator,
}

/// The connections of a node to PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseConnections {
    /// For requests and whatever a request may wait for.
    pub requests: u32,
    /// For checking credentials; 0 if those of requests have to do.
    pub authentication: u32,
    /// For log rows, retention and exports.
    pub background: u32,
}

impl DatabaseConnections {
    fn split(total: u32) -> Self {
        let background = (total / 4).max(2);
        let authentication = if total >= 8 { 2 } else { 0 };
        let requests = total.saturating_sub(background + authentication).max(2);
        Self { requests, authentication, background }
    }
}

/// Requests per minute; 0 is unlimited.
#[derive(Debug, Clone, Copy)]
pub struct RateLimits {
    pub free: u64,
    pub pro: u64,
    pub enterprise: u64,
}

impl Config {
    /// Whether the database may be shared with other nodes.
    pub fn is_shared(&self) -> bool {
        !self.database_url.expose_secret().starts_with("sqlite://")
    }

    /// The days for which an organization's log rows are kept. A stored setting may be from before the operator's limit.
    pub fn retention_of(&self, settings: &OrgSettings) -> u32 {
        settings.log_retention_days.map_or(self.log_retention_days, |days| days.min(self.log_retention_days))
    }

    /// The days for which an organization's audit entries are kept. The default of an organization may be longer than the
    /// operator's limit.
    pub fn audit_retention_of(&self, settings: &OrgSettings) -> u32 {
        settings.audit_retention_days.min(self.audit_retention_days)
    }
}

impl RateLimits {
    pub fn of(&self, plan: Plan) -> u64 {
        match plan {
            Plan::Free => self.free,
            Plan::Pro => self.pro,
            Plan::Enterprise => self.enterprise,
        }
    }
}

/// The models of a new rubric.
#[derive(Debug, Clone)]
pub struct JudgeDefaults {
    pub judge_provider: String,
    pub judge_model: String,
    pub embed_provider: String,
    pub embed_model: String,
    pub embed_dims: u32,
}

#[derive(Debug, Clone, Default)]
pub struct ProviderSettings {
    pub base_url: Option<String>,
    pub api_key: Option<SecretString>,
}

impl Config {
    /// Validates every value. Missing secrets are generated once and stored in the data directory.
    pub fn validate(values: &RawSettings) -> Result<Self, ConfigError> {
        let data_dir = PathBuf::from(values.get("data_dir"));
        let listen: SocketAddr = parsed(values, "listen", "an address such as 127.0.0.1:8080")?;
        let database_url = database_url(values, &data_dir)?;
        let is_shared = !database_url.starts_with("sqlite://");
        let Secrets { token_secret, token_secrets_accepted, master_key, master_keys_accepted } =
            Secrets::load(values, &data_dir, is_shared)?;
        let memory_bytes = resources::memory_bytes(values)?;
        Ok(Self {
            listen,
            tls: operator::tls(values)?,
            admin_listen: optional(values, "admin_listen", "an address such as 127.0.0.1:9090")?,
            database_url: database_url.into(),
            database_connections: DatabaseConnections::split(small_integer(
                values,
                "database_connections",
                4,
                1_000,
            )?),
            redis_url: redis_url(values)?,
            token_secret,
            token_secrets_accepted,
            master_key,
            master_keys_accepted,
            default_plan: parsed(values, "default_plan", "free, pro or enterprise")?,
            plan_changes: choice(
                values,
                "plan_changes",
                &[("owner", PlanChanges::Owner), ("operator", PlanChanges::Operator)],
            )?,
            auth_attempts: integer(values, "auth_attempts", 1, 1_000_000_000)?,
            auth_failures: integer(values, "auth_failures", 1, 1_000_000_000)?,
            trusted_proxies: trusted_proxies(values)?,
            rate_limits: Box::new(RateLimits {
                free: integer(values, "rate_limit_free", 0, u32::MAX.into())?,
                pro: integer(values, "rate_limit_pro", 0, u32::MAX.into())?,
                enterprise: integer(values, "rate_limit_enterprise", 0, u32::MAX.into())?,
            }),
            quotas: Quotas::default()
                .with_overrides(values.get("quotas"))
                .map(Box::new)
                .map_err(|error| invalid("quotas", &error.to_string()))?,
            orgs_per_user: NonZeroU64::new(integer(values, "orgs_per_user", 0, u32::MAX.into())?),
            egress_private: operator::egress_private(values)?,
            signup: operator::signup(values)?,
            operator_credentials: operator::credentials(values)?,
            operator_objects: operator::objects(values)?,
            compat: operator::compat(values)?,
            allowed_origins: operator::allowed_origins(values)?,
            judge: Box::new(JudgeDefaults {
                judge_provider: non_empty(values, "judge_provider")?,
                judge_model: non_empty(values, "judge_model")?,
                embed_provider: non_empty(values, "embed_provider")?,
                embed_model: non_empty(values, "embed_model")?,
                embed_dims: small_integer(values, "embed_dims", 1, 8192)?,
            }),
            public_url: public_url(values)?,
            install_links: flag(values, "install_links")?,
            public_docs: flag(values, "public_docs")?,
            eval_queue: usize::try_from(integer(values, "eval_queue", 1, 1_000_000)?).unwrap_or(256),
            max_body_bytes: usize::try_from(integer(values, "max_body_bytes", 1024, 4 << 30)?)
                .unwrap_or(32 << 20),
            memory_bytes,
            connection_limits: Box::new(resources::connection_limits(values, memory_bytes)?),
            max_calls: resources::max_calls(values, memory_bytes)?,
            head_timeout: Duration::from_millis(integer(values, "head_timeout_ms", 1, 86_400_000)?),
            idle_timeout: Duration::from_millis(integer(values, "idle_timeout_ms", 1, 86_400_000)?),
            proxy_timeout: Duration::from_millis(integer(values, "proxy_timeout_ms", 1, 86_400_000)?),
            log_bodies: flag(values, "log_bodies")?,
            log_retention_days: small_integer(values, "log_retention_days", 1, 36_500)?,
            audit_retention_days: small_integer(
                values,
                "audit_retention_days",
                AUDIT_RETENTION_MIN,
                AUDIT_RETENTION_MAX,
            )?,
            spool_bytes: integer(values, "spool_bytes", 1 << 20, 1 << 50)?,
            outage_grace: Duration::from_secs(integer(values, "outage_grace_s", 1, 30 * 86_400)?),
            cache_bytes: integer(values, "cache_bytes", 1 << 20, 1 << 50)?,
            prices_file: Some(values.get("prices_file").trim())
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            workers: workers(values)?,
            log_level: parsed(values, "log_level", "error, warn, info, debug or trace")?,
            providers: providers(values)?,
            data_dir,
        })
    }
}

fn database_url(values: &RawSettings, data_dir: &Path) -> Result<String, ConfigError> {
    let url = values.get("database_url").trim();
    if url.is_empty() {
        return Ok(format!("sqlite://{}", data_dir.join("gateway.db").display()));
    }
    let known = ["sqlite://", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    let readable = url.starts_with("sqlite://") || url::Url::parse(url).is_ok();
    if known && readable && !url.ends_with("://") {
        Ok(url.replace("{data_dir}", &data_dir.display().to_string()))
    } else {
        Err(invalid("database_url", "sqlite://PATH or postgres://user:password@host/database"))
    }
}

fn redis_url(values: &RawSettings) -> Result<Option<SecretString>, ConfigError> {
    let url = values.get("redis_url").trim();
    match url {
        "" => Ok(None),
        url if url.starts_with("redis://") || url.starts_with("rediss://") => Ok(Some(url.to_owned().into())),
        _ => Err(invalid("redis_url", "redis://host:port or rediss://host:port")),
    }
}

fn public_url(values: &RawSettings) -> Result<Option<String>, ConfigError> {
    let text = values.get("public_url").trim().trim_end_matches('/');
    if text.is_empty() {
        return Ok(None);
    }
    let is_plain = |url: &url::Url| {
        matches!(url.scheme(), "http" | "https")
            && url.host().is_some()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    match url::Url::parse(text) {
        Ok(url) if is_plain(&url) => Ok(Some(text.to_owned())),
        _ => Err(invalid("public_url", "a URL such as https://ai.example.com")),
    }
}

fn workers(values: &RawSettings) -> Result<usize, ConfigError> {
    if values.get("workers").trim().is_empty() {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    }
    Ok(usize::try_from(integer(values, "workers", 1, 1_024)?).unwrap_or(1))
}

/// Returns the built-in prices, overridden by the operator's file, whose date is that of its last change.
pub fn load_prices(file: Option<&Path>) -> Result<PriceTable, ConfigError> {
    let builtin =
        PriceTable::builtin().map_err(|error| ConfigError(format!("invalid built-in prices: {error}")))?;
    let Some(path) = file else { return Ok(builtin) };
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("cannot read GATEWAY_PRICES_FILE {shown}: {error}")))?;
    let own = PriceTable::parse(&text)
        .map_err(|error| ConfigError(format!("invalid GATEWAY_PRICES_FILE {shown}: {error}")))?;
    let changed = std::fs::metadata(path).and_then(|file| file.modified()).ok();
    let changed = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let changed = changed.and_then(|age| i64::try_from(age.as_millis()).ok());
    Ok(builtin.merged(match changed {
        Some(millis) => own.dated(Timestamp(millis)),
        None => own,
    }))
}

fn trusted_proxies(values: &RawSettings) -> Result<Vec<IpNet>, ConfigError> {
    let parts = values.get("trusted_proxies").split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let network =
                part.parse::<IpNet>().or_else(|_| part.parse::<std::net::IpAddr>().map(IpNet::from));
            network
                .map(operator::canonical)
                .map_err(|_| invalid("trusted_proxies", "networks such as 10.0.0.0/8, separated by commas"))
        })
        .collect()
}

fn providers(values: &RawSettings) -> Result<BTreeMap<String, ProviderSettings>, ConfigError> {
    let mut providers = BTreeMap::new();
    for (name, entries) in &values.providers {
        if builtin(name).is_none() {
            let variable = name.to_ascii_uppercase().replace('-', "_");
            return Err(ConfigError(format!(
                "GATEWAY_PROVIDER_{variable}_…: unknown provider '{name}': expected {}. Others are added for an \
                 organization, in the console or with POST /api/v1/orgs/:orgId/providers",
                providers::all().iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
            )));
        }
        let base_url = match entries.get("base_url").map(|value| value.text.trim()) {
            None | Some("") => None,
            Some(url) => Some(parse_base_url(name, url)?),
        };
        let api_key = entries.get("api_key").map(|value| value.text.trim()).filter(|key| !key.is_empty());
        providers.insert(
            name.clone(),
            ProviderSettings { base_url, api_key: api_key.map(|key| key.to_owned().into()) },
        );
    }
    Ok(providers)
}

fn parse_base_url(name: &str, text: &str) -> Result<String, ConfigError> {
    match url::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(ConfigError(format!(
            "bad value for GATEWAY_PROVIDER_{}_BASE_URL: expected a URL such as https://api.example.com",
            name.to_uppercase().replace('-', "_")
        ))),
    }
}

#[cfg(test)]
mod tests;
