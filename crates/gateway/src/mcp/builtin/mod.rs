//! The server `gateway`, which the service itself provides: the organization's prompts, its skills and those of the shelf,
//! and tools for skills. It has scopes, rows and limits like every other server.

mod prompts;
mod skills;
mod tools;

use std::sync::Arc;

use axum::response::Response;
use gateway_core::access::Entitlement;
use gateway_core::mcp::{
    Members, RESERVED_SERVER, RequestId, RpcError, codes, has_skills, result_for, scoped_result, split_uri,
};
use serde_json::value::RawValue;

use super::Mcp;
use super::access::sees_whole_server;
use super::call::check_arguments;
use super::lists::{List, TTL_MS};
use super::record::{Record, Subject};
use super::reply::{Outcome, json};
use super::serve::Context;
use crate::problem::ApiResult;
pub use skills::CachedManifest;

/// How a request to the built-in server ends, unless the service itself fails.
type Answer = ApiResult<Result<Box<RawValue>, RpcError>>;

/// Whether the plan of the caller's organization has skills.
pub fn serves_skills(context: &Context) -> bool {
    context.has_builtin && context.identity.org.plan.includes(Entitlement::SkillMarketplace)
}

/// Whether the client loads skills by itself, and needs no tools for them.
fn knows_skills(context: &Context) -> bool {
    has_skills(&context.client.capabilities)
}

/// Whether the request is for the built-in server.
pub fn is_meant(context: &Context, method: &str, params: &Members) -> bool {
    if !context.has_builtin || context.is_single {
        return context.has_builtin;
    }
    let is_own = |server: Option<&str>| server == Some(RESERVED_SERVER);
    match method {
        "tools/call" | "prompts/get" => {
            let name = params.text("name").unwrap_or_default();
            is_own(name.split_once("__").map(|(server, _)| server))
        }
        "resources/read" | "skills/get" => {
            let uri = params.text("uri").unwrap_or_default();
            is_own(split_uri(&uri).map(|(server, _)| server))
        }
        _ => false,
    }
}

/// Whether the caller may read skills, other than by tools.
fn reads_skills(context: &Context) -> bool {
    sees_whole_server(&context.identity, RESERVED_SERVER) && serves_skills(context)
}

/// A request that names something the caller cannot see is answered as if it did not exist.
fn unknown(what: &str, name: &str) -> RpcError {
    let name: String = name.chars().take(256).collect();
    RpcError::invalid_params(format!("Unknown {what}: {name}"))
}

impl Mcp {
    /// What a list shows of the built-in server, in its own names.
    pub(super) async fn builtin_entries(&self, context: &Context, list: List) -> ApiResult<Vec<Members>> {
        let is_whole = sees_whole_server(&context.identity, RESERVED_SERVER);
        match list {
            List::Tools => Ok(tools::entries(context)),
            List::Prompts if is_whole => self.prompt_entries(context).await,
            List::Resources if reads_skills(context) => self.skill_resources(context).await,
            List::Skills if reads_skills(context) => self.skill_entries(context).await,
            List::Prompts | List::Resources | List::Skills | List::Templates => Ok(Vec::new()),
        }
    }

    /// Answers a call, with a row for it.
    pub(super) async fn call_builtin(
        self: &Arc<Self>,
        context: Context,
        id: RequestId,
        method: &str,
        params: Members,
    ) -> ApiResult<Response> {
        let _slot = self.call_slot(&context).await?;
        let member = if matches!(method, "tools/call" | "prompts/get") { "name" } else { "uri" };
        let asked = params.text(member);
        let name = asked.as_ref().map(|asked| own_name(&context, member, asked));
        let subject = Subject {
            server: RESERVED_SERVER,
            price: None,
            method,
            name: name.as_deref().or(asked.as_deref()),
            params: &params,
        };
        let record = Record::open(self, &context, subject).await?;
        let outcome = match check_arguments(&params) {
            Err(error) => Outcome::error(error),
            Ok(()) => self.builtin_outcome(&context, method, (name, &params)).await,
        };
        if let Some(mut record) = record {
            record.close(&outcome);
        }
        Ok(json(Some(&id), context.era, &outcome))
    }

    async fn builtin_outcome(
        &self,
        context: &Context,
        method: &str,
        (name, params): (Option<String>, &Members),
    ) -> Outcome {
        let answer = match (method, name) {
            ("tools/call" | "prompts/get", None) => {
                Ok(Err(RpcError::invalid_params("`name` must be a string")))
            }
            ("resources/read" | "skills/get", None) => {
                Ok(Err(RpcError::invalid_params("`uri` must be a string")))
            }
            ("tools/call", Some(name)) => self.call_tool(context, &name, params).await,
            ("prompts/get", Some(name)) => self.get_prompt(context, &name, params).await,
            ("resources/read", Some(uri)) => self.read_skill_file(context, &uri).await,
            ("skills/get", Some(uri)) => self.get_skill(context, &uri).await,
            _ => Ok(Err(RpcError::method_not_found(method))),
        };
        match answer {
            Ok(Ok(result)) => {
                let scoped = if context.is_single { result } else { scoped_result(RESERVED_SERVER, &result) };
                Outcome::ok(result_for(context.era, &scoped))
            }
            Ok(Err(error)) => Outcome::error(error),
            Err(problem) => Outcome::problem(&problem),
        }
    }
}

/// The name or URI as the built-in server has it. Names of prompts need the list of them.
fn own_name(context: &Context, member: &str, asked: &str) -> String {
    if context.is_single {
        return asked.to_owned();
    }
    match member {
        "name" => asked.split_once("__").map_or(asked, |(_, own)| own).to_owned(),
        _ => split_uri(asked).map_or_else(|| asked.to_owned(), |(_, own)| own),
    }
}

/// Clients may keep the result as long as lists. Older revisions do not have these members.
fn cacheable(mut result: Members) -> Box<RawValue> {
    result.set("ttlMs", &TTL_MS);
    result.set("cacheScope", &"private");
    gateway_core::mcp::raw(&result)
}

/// Older revisions have a code of their own for it.
fn no_resource(context: &Context, uri: &str) -> RpcError {
    let error = unknown("resource", uri);
    if context.era.is_modern() { error } else { RpcError { code: codes::RESOURCE_NOT_FOUND, ..error } }
}
