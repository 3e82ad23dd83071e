//! What the caller asks for: the provider, the directives in `X-Gateway-*` headers, and where the request may go.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::llm::ClientShape;
use gateway_core::llm::paths::{Operation, caller_shape, model_from_path, operation, streams_by_path};
use gateway_core::route::{MAX_RETRIES, Route, Step, parse_chain};
use http::HeaderMap;
use http::request::Parts;
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::target::Target;
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{Outcome, Problem};
use crate::server::PROVIDER;

/// One place where the request may go.
pub struct Hop {
    pub target: Arc<Target>,
    /// The model that is asked for there.
    pub model: Option<String>,
    pub way: Way,
    pub weight: u32,
    /// The caller named this provider: a credential of its own may go there.
    pub named: bool,
}

/// What the request looks like there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    AsItCame,
    /// At another path, which this provider has for the same thing.
    At(String),
}

/// Everything that is known of a request before it is sent.
pub struct Call {
    /// What `X-Gateway-Provider` says.
    pub provider: String,
    pub steps: Vec<Step>,
    pub route: Route,
    pub retries: u32,
    /// In the order in which they are tried; never empty once the call is planned.
    pub hops: Vec<Hop>,
    /// The hop of the attempt under way.
    at: usize,
    /// The stored credential of the attempt under way.
    pub credential: Option<usize>,
    pub operation: Operation,
    pub caller: ClientShape,
    /// From the path when it stands there, else from the body.
    pub asked_model: Option<String>,
    pub model_in_path: bool,
    /// A model in the body besides one in the path: the provider may heed either.
    pub body_model: Option<String>,
    pub stream: bool,
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

const MAX_TAG: usize = 256;
const MAX_METADATA: usize = 16 << 10;

impl Call {
    pub fn read(app: &App, identity: &Identity, head: &Parts) -> Outcome<Self> {
        let headers = &head.headers;
        let provider = text(headers, PROVIDER.as_str())?.unwrap_or_default().to_owned();
        let path = head.uri.path();
        let log = one_of(headers, "x-gateway-log", &["full", "metadata"])?;
        let asked_model = path_model(identity, path)?;
        Ok(Self {
            provider,
            steps: chain(headers)?,
            route: one_of(headers, "x-gateway-route", &Route::NAMES)?
                .and_then(Route::parse)
                .unwrap_or_default(),
            retries: retries(headers)?,
            hops: Vec::new(),
            at: 0,
            credential: None,
            operation: operation(path),
            caller: caller_shape(path).unwrap_or(ClientShape::OpenAiChat),
            model_in_path: asked_model.is_some(),
            asked_model,
            stream: streams_by_path(path, head.uri.query()),
            body_model: None,
            wants_usage: false,
            hide_usage: false,
            usage_refused: false,
            session: tag(headers, "x-gateway-session")?,
            user: tag(headers, "x-gateway-user")?,
            metadata: metadata(headers)?,
            log_bodies: app.config.log_bodies && identity.org.settings.log_bodies && log != Some("metadata"),
            timeout: timeout(headers, app.config.proxy_timeout)?,
            stored_credential: one_of(headers, "x-gateway-credential", &["stored"])?.is_some(),
        })
    }

    /// The hop of the attempt under way.
    pub fn hop(&self) -> &Hop {
        &self.hops[self.at]
    }

    pub fn target(&self) -> &Arc<Target> {
        &self.hop().target
    }

    pub fn model(&self) -> Option<&str> {
        self.hop().model.as_deref()
    }

    /// The path and query of the attempt under way.
    pub fn path<'a>(&'a self, head: &'a Parts) -> &'a str {
        match &self.hop().way {
            Way::AsItCame => head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
            Way::At(path) => path,
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
        self.usage_refused = false;
    }
}

fn chain(headers: &HeaderMap) -> Outcome<Vec<Step>> {
    const NAME: &str = "x-gateway-fallback";
    let Some(text) = text(headers, NAME)? else { return Ok(Vec::new()) };
    parse_chain(text).map_err(|why| Problem::field(NAME, why))
}

fn retries(headers: &HeaderMap) -> Outcome<u32> {
    const NAME: &str = "x-gateway-retry";
    let Some(text) = text(headers, NAME)? else { return Ok(0) };
    let retries = text.parse().ok().filter(|retries| *retries <= MAX_RETRIES);
    retries.ok_or_else(|| Problem::field(NAME, format!("must be a whole number from 0 to {MAX_RETRIES}")))
}

/// A path whose model cannot be told for sure is refused to keys that name models; others may go on.
fn path_model(identity: &Identity, path: &str) -> Outcome<Option<String>> {
    match model_from_path(path) {
        Ok(model) => Ok(model.map(std::borrow::Cow::into_owned)),
        Err(_) if !super::admit::names_models(identity) => Ok(None),
        Err(error) => Err(Problem::bad_request(error.to_string())),
    }
}

/// A header that must be readable text when it is there.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Outcome<Option<&'a str>> {
    headers
        .get(name)
        .map(|value| {
            value.to_str().map(str::trim).map_err(|_| Problem::field(name, "must be plain ASCII text"))
        })
        .transpose()
}

fn one_of<'a>(headers: &'a HeaderMap, name: &str, values: &[&str]) -> Outcome<Option<&'a str>> {
    match text(headers, name)? {
        Some(value) if !values.contains(&value) => {
            Err(Problem::field(name, format!("must be {}", values.join(" or "))))
        }
        value => Ok(value),
    }
}

/// Session and user names may be any text; they are only recorded.
fn tag(headers: &HeaderMap, name: &str) -> Outcome<Option<String>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text =
        std::str::from_utf8(value.as_bytes()).map_err(|_| Problem::field(name, "must be UTF-8 text"))?.trim();
    if (1..=MAX_TAG).contains(&text.len()) {
        Ok(Some(text.to_owned()))
    } else {
        Err(Problem::field(name, format!("must be 1 to {MAX_TAG} characters long")))
    }
}

fn metadata(headers: &HeaderMap) -> Outcome<Map<String, Value>> {
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
fn timeout(headers: &HeaderMap, limit: Duration) -> Outcome<Duration> {
    let Some(value) = text(headers, "x-gateway-timeout")? else { return Ok(limit) };
    match value.parse::<u64>() {
        Ok(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds).min(limit)),
        _ => Err(Problem::field("x-gateway-timeout", "must be a whole number of milliseconds above 0")),
    }
}
