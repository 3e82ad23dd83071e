//! What the caller asks for: the provider, the directives in `X-Gateway-*` headers, and where the request may go.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::llm::aggregate::stream_path;
use gateway_core::llm::paths::{Operation, RequestPath};
use gateway_core::llm::{ClientFormat, WireFormat};
use gateway_core::route::{FallbackStep, MAX_RETRIES, RouteStrategy, parse_chain};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::cache_stage::{CACHE, Caching};
use super::headers::PROVIDER;
use super::target::Target;
use super::translate::Translation;
use crate::app::App;
use crate::auth::Identity;
use crate::cache::CacheMode;
use crate::problem::{ApiResult, Problem};

/// One place where the request may go.
pub struct RouteTarget {
    pub target: Arc<Target>,
    /// The model that is asked for there.
    pub model: Option<String>,
    pub adaptation: Adaptation,
    pub weight: u32,
    /// The caller named this provider: a credential of its own may go there.
    pub named: bool,
}

/// What the request looks like there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adaptation {
    Passthrough,
    /// At another path, which this provider has for the same thing.
    Path(String),
    /// In the provider's own format.
    Translate,
}

/// Everything that is known of a request before it is sent.
pub struct Call {
    /// What `X-Gateway-Provider` says.
    pub provider: String,
    pub steps: Vec<FallbackStep>,
    pub route: RouteStrategy,
    pub retries: u32,
    /// In the order in which they are tried; never empty once the call is planned.
    pub targets: Vec<RouteTarget>,
    /// The hop of the attempt under way.
    at: usize,
    /// The stored credential of the attempt under way.
    pub credential: Option<usize>,
    pub operation: Operation,
    pub caller: ClientFormat,
    /// The caller says which format it speaks, so that it is translated where the provider speaks another.
    pub format_is_set: bool,
    /// Neither the path nor the caller says which format it is: it can be taken elsewhere, but not translated.
    pub caller_is_known: bool,
    /// How the attempt under way was translated.
    pub translation: Option<Translation>,
    /// From the path when it stands there, else from the body.
    pub asked_model: Option<String>,
    pub model_in_path: bool,
    /// A model in the body besides one in the path: the provider may heed either.
    pub body_model: Option<String>,
    /// The limit on output tokens that the body names, and how many answers it asks for.
    pub max_tokens: Option<u64>,
    pub answers: Option<u64>,
    /// The provider is asked for a stream.
    pub stream: bool,
    /// The caller gets one.
    pub wants_stream: bool,
    /// The caller's body does not ask for the stream that the provider is asked for.
    sets_stream: bool,
    /// `X-Gateway-Stream`
    stream_header: Option<bool>,
    /// What the caller asks of the cache.
    pub caching: Option<Caching>,
    /// The body asks for the usage chunk itself, so that it must not be hidden.
    pub wants_usage: bool,
    /// The usage chunk is asked for by us alone.
    pub hide_usage: bool,
    /// The provider has just refused to be asked for it.
    pub usage_refused: bool,
    pub session: Option<String>,
    pub user: Option<String>,
    pub metadata: Map<String, Value>,
    pub log_bodies: bool,
    /// For each attempt.
    pub timeout: Duration,
    pub stored_credential: bool,
}

const FORMAT: &str = "x-gateway-format";
const MAX_TAG: usize = 256;
const MAX_METADATA: usize = 16 << 10;

impl Call {
    pub fn read(app: &App, identity: &Identity, head: &Parts) -> ApiResult<Self> {
        let headers = &Directives::of(&head.headers);
        let provider = headers.text(PROVIDER.as_str())?.unwrap_or_default().to_owned();
        let path = &RequestPath::parse(head.uri.path());
        let log = headers.one_of("x-gateway-log", &["full", "metadata"])?;
        let asked_model = path_model(identity, path)?;
        let format = headers
            .one_of(FORMAT, &ClientFormat::ALL.map(ClientFormat::as_str))?
            .and_then(ClientFormat::parse);
        let by_path = path.client_format();
        if let (Some(format), Some(by_path)) = (format, by_path)
            && format != by_path
        {
            let why = format!("is {}, but the path is one of {}", format.as_str(), by_path.as_str());
            return Err(Problem::field(FORMAT, why));
        }
        Ok(Self {
            provider,
            steps: chain(headers)?,
            route: headers
                .one_of("x-gateway-route", &RouteStrategy::NAMES)?
                .and_then(RouteStrategy::parse)
                .unwrap_or_default(),
            retries: retries(headers)?,
            targets: Vec::new(),
            at: 0,
            credential: None,
            operation: path.operation(),
            caller: format.or(by_path).unwrap_or(ClientFormat::OpenAiChat),
            format_is_set: format.is_some(),
            caller_is_known: format.is_some() || by_path.is_some(),
            translation: None,
            model_in_path: asked_model.is_some(),
            asked_model,
            stream: path.is_streaming(head.uri.query()),
            wants_stream: false,
            sets_stream: false,
            stream_header: headers
                .one_of("x-gateway-stream", &["true", "false"])?
                .map(|value| value == "true"),
            caching: caching(headers)?,
            body_model: None,
            max_tokens: None,
            answers: None,
            wants_usage: false,
            hide_usage: false,
            usage_refused: false,
            session: headers.tag("x-gateway-session")?,
            user: headers.tag("x-gateway-user")?,
            metadata: metadata(headers)?,
            log_bodies: app.services.config.log_bodies
                && identity.org.settings.log_bodies
                && log != Some("metadata"),
            timeout: timeout(headers, app.services.config.proxy_timeout)?,
            stored_credential: headers.one_of("x-gateway-credential", &["stored"])?.is_some(),
        })
    }

    /// The hop of the attempt under way.
    pub fn hop(&self) -> &RouteTarget {
        &self.targets[self.at]
    }

    pub fn target(&self) -> &Arc<Target> {
        &self.hop().target
    }

    pub fn model(&self) -> Option<&str> {
        self.hop().model.as_deref()
    }

    /// The body is known: decides who streams.
    pub fn settle_stream(&mut self) {
        self.wants_stream = self.stream;
        let can_stream = WireFormat::of_response(self.caller.native(), self.operation).is_some();
        if let Some(wanted) = self.stream_header.filter(|_| can_stream) {
            self.wants_stream = wanted;
            self.sets_stream = wanted && !self.stream;
            self.stream |= wanted;
        }
    }

    /// The caller said by a header what it wants.
    pub fn has_stream_header(&self) -> bool {
        self.stream_header.is_some()
    }

    pub fn sets_stream(&self) -> bool {
        self.sets_stream
    }

    /// The path and query of the attempt under way.
    pub fn path<'a>(&'a self, head: &'a Parts) -> Cow<'a, str> {
        let own = || head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        match (&self.hop().adaptation, &self.translation) {
            (_, Some(made)) => made.path.as_str().into(),
            (Adaptation::Path(path), _) => path.as_str().into(),
            (Adaptation::Passthrough | Adaptation::Translate, _) if self.sets_stream => {
                stream_path(own(), true).map_or(own().into(), Cow::Owned)
            }
            (Adaptation::Passthrough | Adaptation::Translate, _) => own().into(),
        }
    }

    /// The stored credential of the attempt under way.
    pub fn secret(&self) -> Option<&SecretString> {
        let credential = self.target().credentials.get(self.credential?)?;
        Some(&credential.secret)
    }

    /// From now on the request is on its way to this hop.
    pub fn enter(&mut self, at: usize) {
        self.at = at;
        self.credential = None;
        self.translation = None;
        self.usage_refused = false;
    }
}

/// The headers that are meant for the gateway. Most requests have two or three of some twenty that there are, so they are
/// found once and not looked up one by one.
struct Directives<'a>(Vec<(&'a str, &'a HeaderValue)>);

impl<'a> Directives<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let named = headers.iter().map(|(name, value)| (name.as_str(), value));
        Self(named.filter(|(name, _)| name.starts_with("x-gateway-")).collect())
    }

    fn get(&self, name: &str) -> Option<&'a HeaderValue> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// A header that must be readable text when it is there.
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

    /// Session and user names may be any text; they are only recorded.
    fn tag(&self, name: &str) -> ApiResult<Option<String>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Problem::field(name, "must be UTF-8 text"))?
            .trim();
        if (1..=MAX_TAG).contains(&text.len()) {
            Ok(Some(text.to_owned()))
        } else {
            Err(Problem::field(name, format!("must be 1 to {MAX_TAG} characters long")))
        }
    }
}

fn chain(headers: &Directives<'_>) -> ApiResult<Vec<FallbackStep>> {
    const NAME: &str = "x-gateway-fallback";
    let Some(text) = headers.text(NAME)? else { return Ok(Vec::new()) };
    parse_chain(text).map_err(|why| Problem::field(NAME, why))
}

fn caching(headers: &Directives<'_>) -> ApiResult<Option<Caching>> {
    const TTL: &str = "x-gateway-cache-ttl";
    const THRESHOLD: &str = "x-gateway-cache-threshold";
    let mode = headers.one_of(CACHE.as_str(), &["true", "exact", "semantic", "refresh", "false"])?;
    let ttl = match headers.text(TTL)? {
        None => 3_600,
        Some(text) => text
            .parse()
            .ok()
            .filter(|seconds| (1..=2_592_000).contains(seconds))
            .ok_or_else(|| Problem::field(TTL, "must be a whole number of seconds from 1 to 2592000"))?,
    };
    let threshold = match headers.text(THRESHOLD)? {
        None => 0.95,
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
    Ok(Some(Caching { mode, ttl: Duration::from_secs(ttl), namespace, threshold }))
}

fn retries(headers: &Directives<'_>) -> ApiResult<u32> {
    const NAME: &str = "x-gateway-retry";
    let Some(text) = headers.text(NAME)? else { return Ok(0) };
    let retries = text.parse().ok().filter(|retries| *retries <= MAX_RETRIES);
    retries.ok_or_else(|| Problem::field(NAME, format!("must be a whole number from 0 to {MAX_RETRIES}")))
}

/// A path whose model cannot be told for sure is refused to keys that name models; others may go on.
fn path_model(identity: &Identity, path: &RequestPath<'_>) -> ApiResult<Option<String>> {
    match path.model() {
        Ok(model) => Ok(model.map(Cow::into_owned)),
        Err(_) if !super::admit::names_models(identity) => Ok(None),
        Err(error) => Err(Problem::bad_request(error.to_string())),
    }
}

fn metadata(headers: &Directives<'_>) -> ApiResult<Map<String, Value>> {
    let Some(value) = headers.get("x-gateway-metadata") else { return Ok(Map::new()) };
    let parsed =
        if value.len() <= MAX_METADATA { serde_json::from_slice(value.as_bytes()).ok() } else { None };
    let sound =
        |map: &Map<String, Value>| !serde_json::to_string(map).is_ok_and(|text| text.contains("\\u0000"));
    parsed
        .filter(sound)
        .ok_or_else(|| Problem::field("x-gateway-metadata", "must be a JSON object of at most 16 KiB"))
}

/// Above the server's limit it is cut to it.
fn timeout(headers: &Directives<'_>, limit: Duration) -> ApiResult<Duration> {
    let Some(value) = headers.text("x-gateway-timeout")? else { return Ok(limit) };
    match value.parse::<u64>() {
        Ok(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds).min(limit)),
        _ => Err(Problem::field("x-gateway-timeout", "must be a whole number of milliseconds above 0")),
    }
}
