//! What the caller asks for in `X-Gateway-*` headers and by the path of its request.

use std::time::Duration;

use gateway_core::limits::{MAX_PRIORITY, MAX_WAIT_MS};
use gateway_core::llm::ClientFormat;
use gateway_core::llm::paths::{Operation, RequestPath};
use gateway_core::llm::prompt_cache::PromptCacheMode;
use gateway_core::models::{CacheDefaultMode, Model};
use gateway_core::route::{FallbackStep, MAX_RETRIES, RouteStrategy, parse_chain};
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};

use super::affinity::Affinity;
use super::cache_stage::CacheDirectives;
use super::context::RequestContext;
use super::headers::{CACHE, PROVIDER};
use super::prompt_cache::PromptCacheDirective;
use crate::cache::CacheMode;
use crate::problem::{ApiResult, Problem};

pub const FORMAT: &str = "x-gateway-format";
const MAX_TAG_BYTES: usize = 256;
const MAX_METADATA_BYTES: usize = 16 << 10;
const DEFAULT_CACHE_TTL_S: u64 = 3_600;
const DEFAULT_CACHE_THRESHOLD: f32 = 0.95;

pub struct Directives {
    /// `X-Gateway-Provider`
    pub provider: String,
    pub fallbacks: Vec<FallbackStep>,
    /// `X-Gateway-Route`
    pub strategy: Option<RouteStrategy>,
    /// `X-Gateway-Retry`
    pub max_retries: Option<u32>,
    pub operation: Operation,
    pub client_format: ClientFormat,
    pub format_source: FormatSource,
    /// `X-Gateway-Stream`
    pub stream: Option<bool>,
    pub cache: Option<CacheDirectives>,
    /// The caller says in a header whether to use the cache.
    pub has_cache_header: bool,
    pub session: Option<String>,
    /// What keeps the calls of a conversation without a session together.
    pub affinity: Option<Affinity>,
    pub prompt_cache: PromptCacheDirective,
    /// `X-Gateway-Cost`
    pub wants_cost: bool,
    pub user: Option<String>,
    pub metadata: Map<String, Value>,
    pub log_bodies: bool,
    /// Timeout of each attempt.
    pub timeout: Duration,
    /// Use the stored credential, even if the request carries one.
    pub stored_credential: bool,
    /// `X-Gateway-Wait`: how long the call waits for its limits.
    pub wait_ms: Option<u32>,
    /// `X-Gateway-Priority` among those who wait.
    pub priority: Option<u8>,
}

/// What a caller says about a request that is only recorded.
pub struct Tags {
    pub session: Option<String>,
    pub user: Option<String>,
    pub metadata: Map<String, Value>,
    /// `X-Gateway-Log: metadata`: the bodies are not to be stored.
    pub without_bodies: bool,
}

impl Tags {
    pub fn read(headers: &HeaderMap) -> ApiResult<Self> {
        let headers = &GatewayHeaders::of(headers)?;
        Ok(Self {
            session: headers.tag("x-gateway-session")?,
            user: headers.tag("x-gateway-user")?,
            metadata: metadata(headers)?,
            without_bodies: headers.one_of("x-gateway-log", &["full", "metadata"])? == Some("metadata"),
        })
    }
}

/// How the format of the request is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatSource {
    /// By `X-Gateway-Format`: the request is translated for a provider of another format.
    Declared,
    FromPath,
    /// Not at all: the request can be sent to other providers, but not translated.
    Unknown,
}

impl Directives {
    pub fn read(context: RequestContext<'_>, path: &RequestPath<'_>) -> ApiResult<Self> {
        let headers = &GatewayHeaders::of(&context.head.headers)?;
        let config = &context.services.config;
        let default_provider = || context.identity.org.settings.default_provider.as_deref();
        let provider =
            headers.text(PROVIDER.as_str())?.or_else(default_provider).unwrap_or_default().to_owned();
        let log = headers.one_of("x-gateway-log", &["full", "metadata"])?;
        let (client_format, format_source) = format(headers, path)?;
        Ok(Self {
            provider,
            fallbacks: fallbacks(headers)?,
            strategy: headers
                .one_of("x-gateway-route", &RouteStrategy::NAMES)?
                .and_then(RouteStrategy::parse),
            max_retries: max_retries(headers)?,
            operation: path.operation(),
            client_format,
            format_source,
            stream: headers.one_of("x-gateway-stream", &["true", "false"])?.map(|value| value == "true"),
            cache: cache(headers)?,
            has_cache_header: headers.get(CACHE.as_str()).is_some(),
            session: headers.tag("x-gateway-session")?,
            affinity: None,
            prompt_cache: prompt_cache(context, headers)?,
            wants_cost: headers.one_of("x-gateway-cost", &["true", "false"])? == Some("true"),
            user: headers.tag("x-gateway-user")?,
            metadata: metadata(headers)?,
            log_bodies: config.log_bodies
                && context.identity.org.settings.log_bodies
                && log != Some("metadata"),
            timeout: timeout(headers, config.proxy_timeout)?,
            stored_credential: headers.one_of("x-gateway-credential", &["stored"])?.is_some(),
            wait_ms: headers.number("x-gateway-wait", &MAX_WAIT_MS)?,
            priority: headers.number("x-gateway-priority", &MAX_PRIORITY)?,
        })
    }

    /// What keeps the calls of a conversation together.
    pub fn conversation(&self) -> Option<&str> {
        let derived = || self.affinity.as_ref().map(|affinity| affinity.text.as_str());
        self.session.as_deref().or_else(derived)
    }

    /// The same, if it is not only derived from how the conversation begins.
    pub fn named_conversation(&self) -> Option<&str> {
        let is_derived = self.affinity.as_ref().is_some_and(|affinity| !affinity.is_named);
        self.conversation().filter(|_| !is_derived)
    }

    /// Takes over what a named model says about calls that do not say it themselves. `name` is the one that it is stored
    /// with.
    pub fn adopt(&mut self, model: &Model, name: impl FnOnce() -> String) {
        if let Some(setting) = model.prompt_cache {
            self.prompt_cache.adopt(setting, name());
        }
        if let Some(default) = model.cache.as_ref().filter(|_| !self.has_cache_header) {
            self.cache = Some(CacheDirectives {
                mode: match default.mode {
                    CacheDefaultMode::Exact => CacheMode::Exact,
                    CacheDefaultMode::Semantic => CacheMode::Semantic,
                },
                ttl: Duration::from_secs(default.ttl.unwrap_or(DEFAULT_CACHE_TTL_S)),
                namespace: default.namespace.clone().unwrap_or_default(),
                threshold: DEFAULT_CACHE_THRESHOLD,
            });
        }
    }

    pub fn is_format_declared(&self) -> bool {
        self.format_source == FormatSource::Declared
    }

    pub fn is_format_known(&self) -> bool {
        self.format_source != FormatSource::Unknown
    }
}

/// The `X-Gateway-*` headers of a request. Most requests have two or three of about twenty possible ones, so they are
/// collected once instead of being looked up one by one.
struct GatewayHeaders<'a>(Vec<(&'a str, &'a HeaderValue)>);

impl<'a> GatewayHeaders<'a> {
    /// A header that is given twice is refused: a proxy in front may have checked the other value.
    fn of(headers: &'a HeaderMap) -> ApiResult<Self> {
        let named = headers.iter().map(|(name, value)| (name.as_str(), value));
        let found: Vec<_> = named.filter(|(name, _)| name.starts_with("x-gateway-")).collect();
        // The values of a name are next to each other.
        match found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(Problem::field(pair[0].0, "must not be given more than once")),
            None => Ok(Self(found)),
        }
    }

    fn get(&self, name: &str) -> Option<&'a HeaderValue> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    fn text(&self, name: &str) -> ApiResult<Option<&'a str>> {
        self.get(name)
            .map(|value| {
                value.to_str().map(str::trim).map_err(|_| Problem::field(name, "must be plain ASCII text"))
            })
            .transpose()
    }

    fn one_of(&self, name: &str, values: &[&str]) -> ApiResult<Option<&'a str>> {
        match self.text(name)? {
            Some(value) if !values.contains(&value) => {
                Err(Problem::field(name, format!("must be {}", values.join(" or "))))
            }
            value => Ok(value),
        }
    }

    /// A whole number from 0 to `max`.
    fn number<T>(&self, name: &str, max: &T) -> ApiResult<Option<T>>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| number <= max);
        number
            .map(Some)
            .ok_or_else(|| Problem::field(name, format!("must be a whole number from 0 to {max}")))
    }

    /// Session and user names may be any text, because they are only recorded.
    fn tag(&self, name: &str) -> ApiResult<Option<String>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Problem::field(name, "must be UTF-8 text"))?
            .trim();
        if (1..=MAX_TAG_BYTES).contains(&text.len()) {
            Ok(Some(text.to_owned()))
        } else {
            Err(Problem::field(name, format!("must be 1 to {MAX_TAG_BYTES} characters long")))
        }
    }
}

fn format(headers: &GatewayHeaders<'_>, path: &RequestPath<'_>) -> ApiResult<(ClientFormat, FormatSource)> {
    let declared =
        headers.one_of(FORMAT, &ClientFormat::ALL.map(ClientFormat::as_str))?.and_then(ClientFormat::parse);
    match (declared, path.client_format()) {
        (Some(declared), Some(from_path)) if declared != from_path => {
            let why = format!("is {}, but the path is one of {}", declared.as_str(), from_path.as_str());
            Err(Problem::field(FORMAT, why))
        }
        (Some(declared), _) => Ok((declared, FormatSource::Declared)),
        (None, Some(from_path)) => Ok((from_path, FormatSource::FromPath)),
        (None, None) => Ok((ClientFormat::OpenAiChat, FormatSource::Unknown)),
    }
}

fn fallbacks(headers: &GatewayHeaders<'_>) -> ApiResult<Vec<FallbackStep>> {
    const NAME: &str = "x-gateway-fallback";
    let Some(text) = headers.text(NAME)? else { return Ok(Vec::new()) };
    parse_chain(text).map_err(|error| Problem::field(NAME, error))
}

fn cache(headers: &GatewayHeaders<'_>) -> ApiResult<Option<CacheDirectives>> {
    const TTL: &str = "x-gateway-cache-ttl";
    const THRESHOLD: &str = "x-gateway-cache-threshold";
    let mode = headers.one_of(CACHE.as_str(), &["true", "exact", "semantic", "refresh", "false"])?;
    let ttl = match headers.text(TTL)? {
        None => DEFAULT_CACHE_TTL_S,
        Some(text) => text
            .parse()
            .ok()
            .filter(|seconds| (1..=2_592_000).contains(seconds))
            .ok_or_else(|| Problem::field(TTL, "must be a whole number of seconds from 1 to 2592000"))?,
    };
    let threshold = match headers.text(THRESHOLD)? {
        None => DEFAULT_CACHE_THRESHOLD,
        Some(text) => text
            .parse()
            .ok()
            .filter(|threshold| (0.0..=1.0).contains(threshold))
            .ok_or_else(|| Problem::field(THRESHOLD, "must be a number from 0 to 1"))?,
    };
    let namespace = headers.tag("x-gateway-cache-namespace")?.unwrap_or_default();
    let mode = match mode {
        None | Some("false") => return Ok(None),
        Some("semantic") => CacheMode::Semantic,
        Some("refresh") => CacheMode::Refresh,
        Some(_) => CacheMode::Exact,
    };
    Ok(Some(CacheDirectives { mode, ttl: Duration::from_secs(ttl), namespace, threshold }))
}

fn prompt_cache(
    context: RequestContext<'_>,
    headers: &GatewayHeaders<'_>,
) -> ApiResult<PromptCacheDirective> {
    let mode = headers.one_of("x-gateway-prompt-cache", &["auto", "off"])?;
    let mode = mode.map(|mode| if mode == "auto" { PromptCacheMode::Auto } else { PromptCacheMode::Off });
    Ok(PromptCacheDirective::new(context.identity.org.settings.prompt_cache, mode))
}

fn max_retries(headers: &GatewayHeaders<'_>) -> ApiResult<Option<u32>> {
    const NAME: &str = "x-gateway-retry";
    let Some(text) = headers.text(NAME)? else { return Ok(None) };
    let retries = text.parse().ok().filter(|retries| *retries <= MAX_RETRIES);
    retries
        .map(Some)
        .ok_or_else(|| Problem::field(NAME, format!("must be a whole number from 0 to {MAX_RETRIES}")))
}

fn metadata(headers: &GatewayHeaders<'_>) -> ApiResult<Map<String, Value>> {
    let Some(value) = headers.get("x-gateway-metadata") else { return Ok(Map::new()) };
    let parsed =
        if value.len() <= MAX_METADATA_BYTES { serde_json::from_slice(value.as_bytes()).ok() } else { None };
    // PostgreSQL cannot store the NUL character.
    let is_storable =
        |map: &Map<String, Value>| !serde_json::to_string(map).is_ok_and(|text| text.contains("\\u0000"));
    parsed
        .filter(is_storable)
        .ok_or_else(|| Problem::field("x-gateway-metadata", "must be a JSON object of at most 16 KiB"))
}

/// A timeout above the configured one is reduced to it.
fn timeout(headers: &GatewayHeaders<'_>, max: Duration) -> ApiResult<Duration> {
    let Some(value) = headers.text("x-gateway-timeout")? else { return Ok(max) };
    match value.parse::<u64>() {
        Ok(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds).min(max)),
        _ => Err(Problem::field("x-gateway-timeout", "must be a whole number of milliseconds above 0")),
    }
}
