//! Settings: raw values from file and environment, and the checked `Config` that the rest of the program sees.
//! The only place that reads the environment.

mod secrets;
mod settings;
mod source;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use gateway_core::access::Plan;
use gateway_core::llm::providers::builtin;
use gateway_core::pricing::PriceTable;
use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};

pub use settings::{SETTINGS, Setting, env_name};
pub use source::{Origin, Values};

/// A sentence for the person who starts the service, naming the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// The settings in force, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub admin_listen: Option<SocketAddr>,
    pub data_dir: PathBuf,
    pub database_url: SecretString,
    pub redis_url: Option<SecretString>,
    pub token_secret: SecretString,
    pub master_key: SecretString,
    pub default_plan: Plan,
    pub plan_changes: PlanChanges,
    pub auth_attempts: u64,
    pub trusted_proxies: Vec<IpNet>,
    pub rate_limits: RateLimits,
    pub egress_private: bool,
    pub judge: JudgeDefaults,
    pub public_docs: bool,
    pub eval_queue: usize,
    pub max_body_bytes: usize,
    pub proxy_timeout: Duration,
    pub log_bodies: bool,
    pub log_retention_days: u32,
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

/// Requests per minute; 0 is unlimited.
#[derive(Debug, Clone, Copy)]
pub struct RateLimits {
    pub free: u64,
    pub pro: u64,
    pub enterprise: u64,
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

/// What a new rubric is seeded with.
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

/// Raw values of this process: the file named by `--config` or `GATEWAY_CONFIG`, and the environment.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn gather(file: Option<&Path>) -> Result<Values, ConfigError> {
    let named = std::env::var_os("GATEWAY_CONFIG").map(PathBuf::from);
    Values::gather(file.or(named.as_deref()), std::env::vars())
}

impl Config {
    /// Checks every value. Secrets that are not given are made once and kept in the data directory.
    pub fn check(values: &Values) -> Result<Self, ConfigError> {
        let data_dir = PathBuf::from(values.get("data_dir"));
        let listen: SocketAddr = parsed(values, "listen", "an address such as 127.0.0.1:8080")?;
        let database_url = database_url(values, &data_dir)?;
        let shared = !database_url.starts_with("sqlite://");
        let (token_secret, master_key) = secrets::load(values, &data_dir, shared)?;
        Ok(Self {
            listen,
            admin_listen: optional(values, "admin_listen", "an address such as 127.0.0.1:9090")?,
            database_url: database_url.into(),
            redis_url: redis_url(values)?,
            token_secret,
            master_key,
            default_plan: parsed(values, "default_plan", "free, pro or enterprise")?,
            plan_changes: choice(
                values,
                "plan_changes",
                &[("owner", PlanChanges::Owner), ("operator", PlanChanges::Operator)],
            )?,
            auth_attempts: ranged(values, "auth_attempts", 1, 1_000_000_000)?,
            trusted_proxies: trusted_proxies(values)?,
            rate_limits: RateLimits {
                free: ranged(values, "rate_limit_free", 0, u32::MAX.into())?,
                pro: ranged(values, "rate_limit_pro", 0, u32::MAX.into())?,
                enterprise: ranged(values, "rate_limit_enterprise", 0, u32::MAX.into())?,
            },
            egress_private: choice(
                values,
                "egress_private",
                &[("allow", true), ("deny", false), ("auto", listen.ip().is_loopback())],
            )?,
            judge: JudgeDefaults {
                judge_provider: filled(values, "judge_provider")?,
                judge_model: filled(values, "judge_model")?,
                embed_provider: filled(values, "embed_provider")?,
                embed_model: filled(values, "embed_model")?,
                embed_dims: small(values, "embed_dims", 1, 8192)?,
            },
            public_docs: flag(values, "public_docs")?,
            eval_queue: usize::try_from(ranged(values, "eval_queue", 1, 1_000_000)?).unwrap_or(256),
            max_body_bytes: usize::try_from(ranged(values, "max_body_bytes", 1024, 4 << 30)?)
                .unwrap_or(32 << 20),
            proxy_timeout: Duration::from_millis(ranged(values, "proxy_timeout_ms", 1, 86_400_000)?),
            log_bodies: flag(values, "log_bodies")?,
            log_retention_days: small(values, "log_retention_days", 1, 36_500)?,
            spool_bytes: ranged(values, "spool_bytes", 1 << 20, 1 << 50)?,
            outage_grace: Duration::from_secs(ranged(values, "outage_grace_s", 1, 30 * 86_400)?),
            cache_bytes: ranged(values, "cache_bytes", 1 << 20, 1 << 50)?,
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

/// The settings in force as TOML, each with where it came from; secrets are masked.
pub fn show(values: &Values) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for setting in SETTINGS {
        let Some(value) = values.settings.get(setting.key) else { continue };
        let _ = writeln!(text, "# {}", setting.help);
        let _ =
            writeln!(text, "{} = {}  # {}\n", setting.key, shown(setting, &value.text), origin(value.origin));
    }
    for (name, entries) in &values.providers {
        let _ = writeln!(text, "[providers.{name}]");
        for setting in settings::PROVIDER_SETTINGS {
            if let Some(value) = entries.get(setting.key) {
                let line = shown(setting, &value.text);
                let _ = writeln!(text, "{} = {line}  # {}", setting.key, origin(value.origin));
            }
        }
        text.push('\n');
    }
    text
}

fn shown(setting: &Setting, text: &str) -> String {
    let masked = match (setting.secret, text) {
        (_, "") => String::new(),
        (true, _) => "********".into(),
        (false, text) => mask_password(text),
    };
    toml::Value::String(masked).to_string()
}

/// The password inside a URL is a secret too, also where PostgreSQL takes it as a parameter.
fn mask_password(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return if text.contains('@') { "********".into() } else { text.to_owned() };
    };
    let hidden = |name: &str| name.contains("password");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    if url.password().is_none() && !pairs.iter().any(|(name, _)| hidden(name)) {
        return text.to_owned();
    }
    if url.password().is_some() {
        let _ = url.set_password(Some("********"));
    }
    if !pairs.is_empty() {
        let masked = pairs.iter().map(|(name, value)| (name, if hidden(name) { "********" } else { value }));
        url.query_pairs_mut().clear().extend_pairs(masked);
    }
    url.to_string()
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::File => "file",
        Origin::Environment => "environment",
    }
}

fn bad(key: &str, expected: &str) -> ConfigError {
    ConfigError(format!("bad value for {} (or '{key}' in the file): expected {expected}", env_name(key)))
}

fn parsed<T: FromStr>(values: &Values, key: &str, expected: &str) -> Result<T, ConfigError> {
    values.get(key).trim().parse().map_err(|_| bad(key, expected))
}

fn optional<T: FromStr>(values: &Values, key: &str, expected: &str) -> Result<Option<T>, ConfigError> {
    if values.get(key).trim().is_empty() { Ok(None) } else { parsed(values, key, expected).map(Some) }
}

fn ranged(values: &Values, key: &str, min: u64, max: u64) -> Result<u64, ConfigError> {
    let expected = format!("a whole number from {min} to {max}");
    let number: u64 = parsed(values, key, &expected)?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(bad(key, &expected)) }
}

fn small(values: &Values, key: &str, min: u32, max: u32) -> Result<u32, ConfigError> {
    ranged(values, key, min.into(), max.into()).map(|number| u32::try_from(number).unwrap_or(max))
}

fn choice<T: Copy>(values: &Values, key: &str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
    let text = values.get(key).trim();
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        bad(key, &names.join(" or "))
    })
}

fn flag(values: &Values, key: &str) -> Result<bool, ConfigError> {
    choice(values, key, &[("true", true), ("false", false)])
}

fn filled(values: &Values, key: &str) -> Result<String, ConfigError> {
    let text = values.get(key).trim();
    if text.is_empty() { Err(bad(key, "a name")) } else { Ok(text.to_owned()) }
}

fn database_url(values: &Values, data_dir: &Path) -> Result<String, ConfigError> {
    let url = values.get("database_url").trim();
    if url.is_empty() {
        return Ok(format!("sqlite://{}", data_dir.join("gateway.db").display()));
    }
    let known = ["sqlite://", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    let readable = url.starts_with("sqlite://") || url::Url::parse(url).is_ok();
    if known && readable && !url.ends_with("://") {
        Ok(url.replace("{data_dir}", &data_dir.display().to_string()))
    } else {
        Err(bad("database_url", "sqlite://PATH or postgres://user:password@host/database"))
    }
}

fn redis_url(values: &Values) -> Result<Option<SecretString>, ConfigError> {
    let url = values.get("redis_url").trim();
    match url {
        "" => Ok(None),
        url if url.starts_with("redis://") || url.starts_with("rediss://") => Ok(Some(url.to_owned().into())),
        _ => Err(bad("redis_url", "redis://host:port or rediss://host:port")),
    }
}

fn workers(values: &Values) -> Result<usize, ConfigError> {
    if values.get("workers").trim().is_empty() {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    }
    Ok(usize::try_from(ranged(values, "workers", 1, 1_024)?).unwrap_or(1))
}

/// The built-in prices, with the operator's over them.
pub fn load_prices(file: Option<&Path>) -> Result<PriceTable, ConfigError> {
    let builtin =
        PriceTable::builtin().map_err(|error| ConfigError(format!("the built-in prices: {error}")))?;
    let Some(path) = file else { return Ok(builtin) };
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("cannot read GATEWAY_PRICES_FILE {shown}: {error}")))?;
    let own = PriceTable::parse(&text)
        .map_err(|error| ConfigError(format!("GATEWAY_PRICES_FILE {shown}: {error}")))?;
    Ok(builtin.merged(own))
}

fn trusted_proxies(values: &Values) -> Result<Vec<IpNet>, ConfigError> {
    let parts = values.get("trusted_proxies").split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let network =
                part.parse::<IpNet>().or_else(|_| part.parse::<std::net::IpAddr>().map(IpNet::from));
            network.map_err(|_| bad("trusted_proxies", "networks such as 10.0.0.0/8, separated by commas"))
        })
        .collect()
}

fn providers(values: &Values) -> Result<BTreeMap<String, ProviderSettings>, ConfigError> {
    let mut providers = BTreeMap::new();
    for (name, entries) in &values.providers {
        if builtin(name).is_none() {
            return Err(ConfigError(format!("unknown provider '{name}' in the settings of providers")));
        }
        let base_url = match entries.get("base_url").map(|value| value.text.trim()) {
            None | Some("") => None,
            Some(url) => Some(checked_base_url(name, url)?),
        };
        let api_key = entries.get("api_key").map(|value| value.text.trim()).filter(|key| !key.is_empty());
        providers.insert(
            name.clone(),
            ProviderSettings { base_url, api_key: api_key.map(|key| key.to_owned().into()) },
        );
    }
    Ok(providers)
}

fn checked_base_url(name: &str, text: &str) -> Result<String, ConfigError> {
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

/// The host part of a database address, for messages: never with a password.
pub fn database_place(config: &Config) -> String {
    mask_password(config.database_url.expose_secret())
}

#[cfg(test)]
mod tests;
