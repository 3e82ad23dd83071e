//! Named models: whether a request asks for one, and the targets that it has for the request.

mod requested;

use std::sync::Arc;

use gateway_core::llm::estimate::estimate_from_chars;
use gateway_core::models::{BodyFields, Model, QueryFacts, Scalar, Selection};
use http::header::CONTENT_TYPE;

use super::compat::ForeignRoute;
use super::context::RequestContext;
use super::directives::Directives;
use super::facts::RequestFacts;
use super::inbound::Inbound;
use super::plan::AUTO;
use crate::problem::{ApiResult, Problem};
pub use requested::RequestedPart;

/// The named model that a request asks for.
pub struct NamedModel {
    /// As the caller wrote it.
    pub name: String,
    pub model: Arc<Model>,
    pub selection: Arc<Selection>,
    /// What a request of another gateway's client asks for: several models, or targets of its own.
    pub parts: Vec<RequestedPart>,
    /// Only the first target is called.
    pub is_single: bool,
    star: Option<String>,
}

impl NamedModel {
    /// `X-Gateway-Provider: auto` means a named model if there is one with the requested name.
    pub async fn find(
        context: RequestContext<'_>,
        directives: &mut Directives,
        facts: &RequestFacts,
        inbound: &mut Inbound,
    ) -> ApiResult<Option<Self>> {
        if let Some(ForeignRoute(route)) = context.head.extensions.get()
            && !route.is_plain()
        {
            return requested::find(context, directives, facts, (inbound, route)).await;
        }
        let Some(name) = facts.model.as_deref().filter(|_| directives.provider == AUTO) else {
            return Ok(None);
        };
        let Some((model, star)) = context.identity.org.models.find(name)? else { return Ok(None) };
        check(context, directives, facts, &model, name)?;
        let body = if model.needs_body() {
            inbound.read_prefix(usize::MAX).await?;
            inbound.first_chunk()
        } else {
            &[]
        };
        let fields = BodyFields::read(body, model.params());
        let body_bytes = body.len();
        let selection =
            model.select(&Facts { context, directives, request: facts, fields: &fields, body_bytes });
        directives.adopt(&model, || stored_name(name, star));
        let (name, star) = (name.to_owned(), star.map(ToOwned::to_owned));
        Ok(Some(Self { name, model, selection, parts: Vec::new(), is_single: false, star }))
    }

    /// What the star of the model's name matched.
    pub fn star(&self) -> Option<&str> {
        self.star.as_deref()
    }
}

/// The name that a model is stored with, by the requested name and what the star matched.
fn stored_name(requested: &str, star: Option<&str>) -> String {
    match star.and_then(|star| requested.strip_suffix(star)) {
        Some(prefix) => format!("{prefix}*"),
        None => requested.to_owned(),
    }
}

fn check(
    context: RequestContext<'_>,
    directives: &Directives,
    facts: &RequestFacts,
    model: &Model,
    name: &str,
) -> ApiResult<()> {
    if !model.enabled {
        let why = format!("'{}' is disabled; an admin can enable it", shown(name));
        return Err(Problem::field("model", why));
    }
    check_headers(directives, name)?;
    if facts.body_model.is_some() && facts.body_model != facts.model {
        let why = format!("is another one in the body than '{}' in the path", shown(name));
        return Err(Problem::field("model", why));
    }
    let content_type = context.head.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if content_type.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/")) {
        let name = shown(name);
        let why = format!("'{name}' is a named model, which a multipart form cannot use; name a provider");
        return Err(Problem::field("model", why));
    }
    Ok(())
}

/// The name as an error has it.
fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}

/// One place decides about the route.
fn check_headers(directives: &Directives, name: &str) -> ApiResult<()> {
    let header = if directives.strategy.is_some() {
        Some("x-gateway-route")
    } else if !directives.fallbacks.is_empty() {
        Some("x-gateway-fallback")
    } else {
        None
    };
    if let Some(header) = header {
        let name = shown(name);
        let why =
            format!("the model '{name}' has targets of its own; leave the header out, or name a provider");
        return Err(Problem::field(header, why));
    }
    Ok(())
}

/// What the conditions of a model ask about the request.
struct Facts<'a> {
    context: RequestContext<'a>,
    directives: &'a Directives,
    request: &'a RequestFacts,
    /// Those that conditions ask about.
    fields: &'a BodyFields<'a>,
    body_bytes: usize,
}

impl QueryFacts for Facts<'_> {
    fn metadata(&self, key: &str) -> Option<Scalar> {
        Scalar::of(self.directives.metadata.get(key)?)
    }

    fn param(&self, name: &str) -> Option<Scalar> {
        let text = self.fields.get(name)?.get();
        if text.starts_with(['{', '[']) {
            return None;
        }
        Scalar::of(&serde_json::from_str(text).ok()?)
    }

    fn header(&self, name: &str) -> Option<Scalar> {
        Some(Scalar::Text(self.context.head.headers.get(name)?.to_str().ok()?.to_owned()))
    }

    fn path(&self) -> &str {
        self.context.head.uri.path()
    }

    fn user(&self) -> Option<&str> {
        self.directives.user.as_deref().or(self.request.user.as_deref())
    }

    fn key_class(&self) -> Option<&str> {
        self.context.identity.key_class()
    }

    fn input_tokens(&self) -> u64 {
        estimate_from_chars(self.body_bytes as u64)
    }
}
