//! Requests of other gateways' clients. The key is taken from the head before the caller is authenticated, because it
//! stands where those clients put it; everything else is rewritten when the organization is known. Then the request goes
//! on like any other, and the answer gets the headers that the clients read.

mod answer;
mod known;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::accounts::hash_key;
use gateway_core::compat::{self, Changes, CostPlace, Dialect, Head, Refused, Rewritten, Route};
use gateway_core::llm::sdk::{KEY_HEADERS, key_in};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use serde_json::{Map, Value};

use super::headers::PROVIDER;
use super::inbound::Inbound;
use super::origin::CallOrigin;
use super::plan::AUTO;
use super::sdk::repeated_key;
use crate::auth::{Identity, KEY_HEADER};
use crate::problem::{ApiResult, Problem};
use crate::services::Services;
pub(super) use answer::note_call;
use known::OrgNames;

const METADATA: HeaderName = HeaderName::from_static("x-gateway-metadata");
const CONTROL_PREFIX: &str = "x-gateway-";
/// How long the rewriting of a large body may wait for a thread, and take.
const REWRITE_TIMEOUT: Duration = Duration::from_secs(20);
const COST: HeaderName = HeaderName::from_static("x-gateway-cost");

/// A request below `/compat` whose key has been taken from its head.
pub struct CompatCall {
    dialect: &'static Dialect,
    head: Head,
    default_provider: Option<&'static str>,
    /// The path names the provider.
    is_direct: bool,
    /// The key of the caller if it is not one of this gateway.
    foreign_key: Option<String>,
    /// The model that was asked for.
    requested: Option<String>,
    /// Names of what was lost.
    dropped: Vec<String>,
}

/// The route of a request below `/compat`, in its extensions.
#[derive(Clone)]
pub struct ForeignRoute(pub Route);

/// Takes the key from a request below `/compat`. None: the request is not one of another gateway's client. An error is
/// for a caller who is known, see `note_key`.
pub fn enter<B>(served: &[&'static Dialect], request: &mut Request<B>) -> ApiResult<Option<CompatCall>> {
    let Some((found, rest)) = compat::find(request.uri().path()) else { return Ok(None) };
    let is_served = |dialect: &&'static Dialect| served.iter().any(|served| served.name == dialect.name);
    let Some(dialect) = found.filter(is_served) else {
        note_key(found.map_or(&KEY_HEADERS[..], |dialect| dialect.keys), request.headers_mut());
        return Err(not_served());
    };
    if let Some(name) = repeated_header(dialect, request.headers()) {
        if !name.as_str().starts_with(CONTROL_PREFIX) {
            return Err(repeated_key());
        }
        note_key(dialect.keys, request.headers_mut());
        return Err(Problem::field(name.as_str(), "must not be given more than once"));
    }
    let Rewritten { path, provider, default_provider } = dialect.path(rest);
    let path = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let texts =
        request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    let mut head = compat::take_headers(dialect, texts);
    let path = if path.starts_with('/') { path } else { format!("/{path}") };
    *request.uri_mut() = path.parse::<Uri>().map_err(|_| Problem::bad_request("the path is invalid"))?;
    let headers = request.headers_mut();
    for name in &head.removed {
        headers.remove(name);
    }
    headers.entry(PROVIDER).or_insert(HeaderValue::from_static(AUTO));
    if let Some(provider) = provider {
        headers.insert(PROVIDER, HeaderValue::from_static(provider));
    }
    let is_direct = headers.get(PROVIDER).is_some_and(|provider| provider.as_bytes() != AUTO.as_bytes());
    let key = head.key.take();
    let foreign_key = match &key {
        Some(key) if hash_key(key).is_some() => {
            headers.insert(KEY_HEADER, value("key", key)?);
            None
        }
        _ => key,
    };
    if foreign_key.is_none() && !headers.contains_key(KEY_HEADER) {
        let message = "send the key where the clients of this gateway put it, or in X-Gateway-Key";
        return Err(Problem::unauthorized(message));
    }
    Ok(Some(CompatCall {
        dialect,
        head,
        default_provider,
        is_direct,
        foreign_key,
        requested: None,
        dropped: Vec::new(),
    }))
}

/// A control header or a place of keys that is given twice: a proxy in front may have checked the other value.
fn repeated_header(dialect: &Dialect, headers: &HeaderMap) -> Option<HeaderName> {
    let is_repeated = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    let decides = |name: &&HeaderName| {
        name.as_str().starts_with(CONTROL_PREFIX) || dialect.keys.contains(&name.as_str())
    };
    headers.keys().filter(decides).find(is_repeated).cloned()
}

/// Copies a key of this gateway to its own header, from where a client may have put it. It opens nothing: only a caller
/// with a key is told that the path is not served.
fn note_key(places: &[&str], headers: &mut HeaderMap) {
    let key = |name: &&str| key_in(headers.get(*name)?.to_str().ok()?).map(HeaderValue::try_from);
    if let Some(Ok(key)) = places.iter().find_map(key) {
        headers.entry(KEY_HEADER).or_insert(key);
    }
}

fn not_served() -> Problem {
    let message = "this dialect is not served; the operator names those that are in GATEWAY_COMPAT";
    Problem::new(StatusCode::NOT_FOUND, "not_found", message)
}

#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
fn problem(refused: Refused) -> Problem {
    match refused {
        Refused::Meaning { .. } => Problem::unprocessable(refused.to_string()),
        Refused::OtherDialect { .. } | Refused::Invalid { .. } => Problem::bad_request(refused.to_string()),
    }
}

fn value(name: &str, text: &str) -> ApiResult<HeaderValue> {
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| Problem::field(name, "cannot be the value of a header"))
}

impl CompatCall {
    /// The key of the caller if another gateway made it.
    pub fn foreign_key(&self) -> Option<&str> {
        self.foreign_key.as_deref()
    }

    pub(super) fn origin(&self) -> CallOrigin {
        CallOrigin::of_dialect(self.dialect.name)
    }

    /// Rewrites the body, and sets the directives and the route of head and body.
    pub(super) async fn rewrite(
        &mut self,
        head: &mut Parts,
        mut inbound: Inbound,
        identity: &Identity,
        services: &Services,
    ) -> ApiResult<Inbound> {
        let org = OrgNames(Arc::clone(&identity.org));
        let mut changes = compat::read_head(self.dialect, &self.head, &org).map_err(problem)?;
        (changes.default_provider, changes.is_direct) = (self.default_provider, self.is_direct);
        if let Some(name) = &changes.model
            && identity.org.models.find(name)?.is_none()
        {
            // A config whose targets take the caller's model is imported as a pattern.
            changes.model = Some(format!("{name}/*"));
        }
        if is_json(&head.headers) {
            inbound.read_prefix(usize::MAX).await?;
            let (dialect, bytes) = (self.dialect, inbound.first_chunk().len());
            // The fields as they are kept, and the body that is made of them. The memory belongs to the work, which goes
            // on for a while when the client has gone away.
            let memory = identity.org.memory.reserve(bytes.saturating_mul(2))?;
            let rewriting = move || {
                let edited = compat::body(dialect, inbound.first_chunk(), &mut changes, &org);
                drop(memory);
                (inbound, changes, edited)
            };
            let rewriting = services.compute.run_for_body(identity.org.id, bytes, REWRITE_TIMEOUT, rewriting);
            let edited;
            (inbound, changes, edited) = rewriting.await?;
            if let Some(edited) = edited.map_err(problem)? {
                let max_bytes = services.config.max_body_bytes;
                inbound = Inbound::whole(Bytes::from(edited), max_bytes, identity.org.memory.open())?;
            }
        }
        if self.dialect.cost == CostPlace::Header && !changes.streams {
            head.headers.entry(COST).or_insert(HeaderValue::from_static("true"));
        }
        set_directives(&mut head.headers, &mut changes)?;
        let Changes { mut route, dropped, .. } = changes;
        route.is_translated = self.dialect.translates;
        self.requested = route.requested.as_ref().map(compat::Name::text);
        self.dropped = dropped;
        head.extensions.insert(ForeignRoute(route));
        Ok(inbound)
    }
}

fn set_directives(headers: &mut HeaderMap, changes: &mut Changes) -> ApiResult<()> {
    for &(name, ref text) in &changes.set {
        headers.insert(HeaderName::from_static(name), value(name, text)?);
    }
    if changes.metadata.is_empty() {
        return Ok(());
    }
    let given = headers.get(&METADATA).map(|given| serde_json::from_slice(given.as_bytes()));
    let mut metadata: Map<String, Value> = std::mem::take(&mut changes.metadata);
    if let Some(Ok(Value::Object(given))) = given {
        metadata.extend(given);
    }
    let text = Value::Object(metadata).to_string();
    headers.insert(METADATA, value("metadata", &text)?);
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    content_type.is_empty() || content_type.starts_with(b"application/json")
}
