//! Which server and what of it a request means. The body decides, never a header.

use std::sync::Arc;
use std::sync::Mutex;

use gateway_core::mcp::{Era, Members, RequestId, RpcError, header_value_of, split_uri};
use http::{HeaderName, HeaderValue};
use serde_json::value::RawValue;

use super::Call;
use crate::mcp::Mcp;
use crate::mcp::access::{find_tool, sees_whole_server};
use crate::mcp::catalogue::{Catalogue, Listed};
use crate::mcp::reply::Outcome;
use crate::mcp::serve::Context;
use crate::mcp::upstream::{Failure, FailureKind};
use crate::mcp_servers::Server;

const MAX_ARGUMENTS: usize = 1 << 20;

pub struct Resolved {
    server: Arc<Server>,
    catalogue: Arc<Catalogue>,
    params: Members,
    name: Option<String>,
    argument_headers: Vec<(HeaderName, HeaderValue)>,
}

impl Resolved {
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A server of 2026-07-28 has no such request. The gateway follows the resource for the client.
    pub fn is_subscription_of_older_client(&self, context: &Context, method: &str) -> bool {
        matches!(method, "resources/subscribe" | "resources/unsubscribe")
            && !context.era.is_modern()
            && self.catalogue.eras.legacy.is_none()
    }

    pub fn into_call(self, mcp: &Arc<Mcp>, context: Context, id: RequestId, method: &str) -> Call {
        let Self { server, catalogue, params, name, argument_headers } = self;
        let (mcp, method) = (Arc::clone(mcp), method.to_owned());
        let sent = Mutex::new(None);
        Call {
            mcp,
            context,
            server,
            catalogue,
            id,
            method,
            params,
            name,
            argument_headers,
            sent,
            record: None,
        }
    }
}

/// Arguments have a size that every server is to take.
pub fn check_arguments(params: &Members) -> Result<(), RpcError> {
    if params.get("arguments").is_some_and(|arguments| arguments.get().len() > MAX_ARGUMENTS) {
        let message = format!("the arguments are larger than {MAX_ARGUMENTS} bytes");
        return Err(RpcError::invalid_params(message));
    }
    Ok(())
}

/// A request that names something the caller cannot see is answered as if it did not exist.
fn unknown(what: &str, name: &str) -> Outcome {
    let name: String = name.chars().take(256).collect();
    Outcome::error(RpcError::invalid_params(format!("Unknown {what}: {name}")))
}

impl Mcp {
    pub(super) async fn resolve(
        self: &Arc<Self>,
        context: &Context,
        method: &str,
        params: Members,
    ) -> Result<Resolved, Box<Outcome>> {
        check_arguments(&params).map_err(|error| Box::new(Outcome::error(error)))?;
        let is_legacy = matches!(context.era, Era::Legacy(_));
        match method {
            "tools/call" => self.resolve_tool(context, params).await,
            "prompts/get" => self.resolve_prompt(context, params).await,
            "resources/read" | "skills/get" => self.resolve_resource(context, params).await,
            "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel"
                if is_legacy && context.is_single =>
            {
                self.resolve_plain(context, params).await
            }
            "completion/complete" if context.is_single => self.resolve_plain(context, params).await,
            _ => Err(Box::new(Outcome::error(RpcError::method_not_found(method)))),
        }
    }

    async fn catalogue_of(
        self: &Arc<Self>,
        context: &Context,
        server: &Arc<Server>,
    ) -> Result<Arc<Catalogue>, Box<Outcome>> {
        let lookup = self.look_up(&context.catalogue_request(server)).await;
        lookup.catalogue.ok_or_else(|| {
            let unreachable = || Failure::new(FailureKind::Unreachable, "it does not answer");
            Box::new(Outcome::failed(&server.name, &lookup.failure.unwrap_or_else(unreachable)))
        })
    }

    /// The server that a request names, whether it has what is asked for or not.
    pub(super) fn server_named<'c>(
        context: &'c Context,
        method: &str,
        asked: &str,
    ) -> Option<&'c Arc<Server>> {
        if matches!(method, "tools/call" | "prompts/get") || context.is_single {
            return Self::server_of(context, asked);
        }
        context.server(split_uri(asked)?.0)
    }

    /// The server that a name of the list begins with.
    fn server_of<'c>(context: &'c Context, name: &str) -> Option<&'c Arc<Server>> {
        if context.is_single {
            return context.servers.first();
        }
        context.server(name.split_once("__")?.0)
    }

    async fn resolve_tool(
        self: &Arc<Self>,
        context: &Context,
        mut params: Members,
    ) -> Result<Resolved, Box<Outcome>> {
        let name = named(&params, "name")?;
        let Some(server) = Self::server_of(context, &name) else { return Err(unknown("tool", &name).into()) };
        let catalogue = self.catalogue_of(context, server).await?;
        let found = find_tool(&context.identity, server, &catalogue, |tool| {
            if context.is_single { tool.name == name } else { tool.exposed == name }
        });
        let Some(tool) = found else { return Err(unknown("tool", &name).into()) };
        params.set("name", &tool.name);
        let (name, argument_headers) =
            (tool.name.clone(), headers_of(&tool.argument_headers, params.get("arguments")));
        let server = Arc::clone(server);
        Ok(Resolved { server, catalogue, params, name: Some(name), argument_headers })
    }

    async fn resolve_prompt(
        self: &Arc<Self>,
        context: &Context,
        mut params: Members,
    ) -> Result<Resolved, Box<Outcome>> {
        let name = named(&params, "name")?;
        let server = Self::server_of(context, &name)
            .filter(|server| sees_whole_server(&context.identity, &server.name));
        let Some(server) = server else { return Err(unknown("prompt", &name).into()) };
        let catalogue = self.catalogue_of(context, server).await?;
        let is_meant =
            |prompt: &&Listed| if context.is_single { prompt.name == name } else { prompt.exposed == name };
        let own = catalogue.prompts.iter().find(is_meant).map(|prompt| prompt.name.clone());
        let Some(own) = own else { return Err(unknown("prompt", &name).into()) };
        params.set("name", &own);
        let server = Arc::clone(server);
        Ok(Resolved { server, catalogue, params, name: Some(own), argument_headers: Vec::new() })
    }

    /// Resources need not be listed: templates stand for many.
    async fn resolve_resource(
        self: &Arc<Self>,
        context: &Context,
        mut params: Members,
    ) -> Result<Resolved, Box<Outcome>> {
        let uri = named(&params, "uri")?;
        let found = if context.is_single {
            context.servers.first().map(|server| (server, uri.clone()))
        } else {
            split_uri(&uri).and_then(|(server, own)| Some((context.server(server)?, own)))
        };
        let found = found.filter(|(server, _)| sees_whole_server(&context.identity, &server.name));
        let Some((server, own)) = found else { return Err(unknown("resource", &uri).into()) };
        let catalogue = self.catalogue_of(context, server).await?;
        params.set("uri", &own);
        let server = Arc::clone(server);
        Ok(Resolved { server, catalogue, params, name: Some(own), argument_headers: Vec::new() })
    }

    /// What passes through to the one server of the endpoint.
    async fn resolve_plain(
        self: &Arc<Self>,
        context: &Context,
        params: Members,
    ) -> Result<Resolved, Box<Outcome>> {
        let server =
            context.servers.first().filter(|server| sees_whole_server(&context.identity, &server.name));
        let Some(server) = server else {
            return Err(Outcome::error(RpcError::invalid_params(
                "the key's scopes allow only tools of this server",
            ))
            .into());
        };
        let catalogue = self.catalogue_of(context, server).await?;
        let name = params.text("uri");
        Ok(Resolved { server: Arc::clone(server), catalogue, params, name, argument_headers: Vec::new() })
    }
}

fn named(params: &Members, member: &str) -> Result<String, Box<Outcome>> {
    params.text(member).ok_or_else(|| {
        Box::new(Outcome::error(RpcError::invalid_params(format!("`{member}` must be a string"))))
    })
}

/// The headers for the arguments that the tool's schema marks.
fn headers_of(marked: &[(String, String)], arguments: Option<&RawValue>) -> Vec<(HeaderName, HeaderValue)> {
    let arguments = arguments.filter(|_| !marked.is_empty()).and_then(Members::from_raw).unwrap_or_default();
    let header = |(argument, header): &(String, String)| {
        let value = header_value_of(&arguments.value(argument)?)?;
        Some((HeaderName::try_from(header).ok()?, HeaderValue::try_from(value).ok()?))
    };
    marked.iter().filter_map(header).collect()
}
