//! Lists over all servers that a caller sees, and what the endpoint says about itself. All servers are asked at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use gateway_core::mcp::{
    Cursor, Members, RESERVED_SERVER, REVISIONS, RpcError, SKILLS_EXTENSION, has_skills, meta, page, raw,
    scoped_skill,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Mcp;
use super::access::{sees_tool, sees_whole_server};
use super::builtin::serves_skills;
use super::catalogue::Catalogue;
use super::catalogues::Lookup;
use super::serve::Context;
use crate::mcp_servers::Server;
use crate::problem::Problem;

/// How long callers may keep lists, in milliseconds.
pub const TTL_MS: u64 = 60_000;
/// A page is held so many times while it is written: its entries, their list, and the result.
const COPIES: usize = 3;

/// What a list has of each server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
    Skills,
}

impl List {
    pub fn of(method: &str) -> Option<Self> {
        match method {
            "tools/list" => Some(Self::Tools),
            "prompts/list" => Some(Self::Prompts),
            "resources/list" => Some(Self::Resources),
            "resources/templates/list" => Some(Self::Templates),
            "skills/list" => Some(Self::Skills),
            _ => None,
        }
    }

    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Skills => "skills",
        }
    }

    fn name_member(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Skills => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

impl Mcp {
    /// The catalogues of the caller's servers, in their order.
    pub(super) async fn look_up_all(self: &Arc<Self>, context: &Context) -> Vec<(Arc<Server>, Lookup)> {
        let lookups = context.servers.iter().map(|server| async move {
            (Arc::clone(server), self.look_up_briefly(&context.catalogue_request(server)).await)
        });
        join_all(lookups).await
    }

    pub(super) async fn list(
        self: &Arc<Self>,
        context: &Context,
        list: List,
        params: &Members,
    ) -> Result<Box<RawValue>, RpcError> {
        let from = match params.text("cursor") {
            None => Cursor(0),
            Some(text) => Cursor::parse(&text).ok_or_else(|| RpcError::invalid_params("Invalid cursor"))?,
        };
        let mut stale = Vec::new();
        let mut groups: Vec<(&str, Vec<Item<'_>>)> = Vec::new();
        let lookups = self.look_up_all(context).await;
        if list == List::Skills && !has_skills_of(context, &lookups) {
            return Err(RpcError::method_not_found("skills/list"));
        }
        for (server, lookup) in &lookups {
            if lookup.is_stale {
                stale.push(server.name.to_string());
            }
            if let Some(catalogue) = &lookup.catalogue {
                groups.push((&server.name, items_of(context, server, catalogue, list)));
            }
        }
        if context.has_builtin {
            match self.builtin_entries(context, list).await {
                Ok(entries) => {
                    let entries = scoped(context, list, entries).into_iter().map(Item::Own);
                    groups.push((RESERVED_SERVER, entries.collect()));
                }
                Err(problem) => {
                    tracing::warn!(error = %problem.message, "the built-in MCP server cannot be listed");
                    stale.push(RESERVED_SERVER.to_owned());
                }
            }
        }
        groups.sort_by(|a, b| a.0.cmp(b.0));
        let items = groups.into_iter().flat_map(|(_, items)| items).collect();
        let (items, next) = page(items, from, Item::bytes);
        let bytes: usize = items.iter().map(Item::bytes).sum();
        let _memory = context
            .identity
            .org
            .memory
            .reserve(bytes * COPIES)
            .map_err(|error| RpcError::internal(Problem::from(error).message))?;
        let entries: Vec<Members> = items.into_iter().map(|item| item.copied(context, list)).collect();
        let mut result = Members::default();
        result.set(list.member(), &entries);
        if let Some(next) = next {
            result.set("nextCursor", &next);
        }
        if !stale.is_empty() {
            result.set("_meta", &json!({meta::STALE: stale}));
        }
        if context.era.is_modern() {
            result.set("ttlMs", &TTL_MS);
            result.set("cacheScope", &"private");
        }
        Ok(raw(&result))
    }

    /// The answer to `server/discover`, and the greater part of the one to `initialize`.
    pub(super) fn about(
        context: &Context,
        lookups: &[(Arc<Server>, Lookup)],
    ) -> BTreeMap<&'static str, Value> {
        let mut about = BTreeMap::new();
        let own = || json!({"name": "gateway", "version": env!("CARGO_PKG_VERSION")});
        let single = lookups.first().filter(|_| context.is_single);
        let (info, capabilities, instructions) = if let Some((server, lookup)) = single {
            let catalogue = lookup.catalogue.as_deref();
            let info = catalogue.map(|catalogue| catalogue.server_info.clone());
            let own_text = server.definition.instructions.clone();
            let text = own_text.or_else(|| catalogue.and_then(|catalogue| catalogue.instructions.clone()));
            let info = info.filter(|info| info.get("name").is_some()).unwrap_or_else(own);
            let capabilities = catalogue.map(|catalogue| capabilities_of(context, catalogue));
            (info, capabilities.unwrap_or_else(|| json!({"tools": {}})), text)
        } else {
            let texts = lookups.iter().filter_map(|(server, _)| {
                let text = server.definition.instructions.as_ref()?;
                Some(format!("{}: {text}", server.name))
            });
            let text = texts.collect::<Vec<_>>().join("\n\n");
            let mut all = json!({"tools": listed(), "prompts": listed(), "resources": listed()});
            let is_followed = |lookup: &Lookup| {
                lookup.catalogue.as_ref().is_some_and(|it| it.eras.is_modern && it.has_subscriptions())
            };
            if context.era.is_modern() && lookups.iter().any(|(_, lookup)| is_followed(lookup)) {
                all["resources"]["subscribe"] = true.into();
            }
            if has_skills_of(context, lookups) {
                all["extensions"] = skills_extension();
            }
            (own(), all, Some(text).filter(|text| !text.is_empty()))
        };
        about.insert("serverInfo", info);
        about.insert("capabilities", capabilities);
        if let Some(instructions) = instructions {
            about.insert("instructions", instructions.into());
        }
        about
    }

    pub(super) async fn discover(self: &Arc<Self>, context: &Context) -> Box<RawValue> {
        let mut about = Self::about(context, &self.look_up_all(context).await);
        let info = about.get("serverInfo").cloned().unwrap_or_default();
        about.insert("_meta", json!({meta::SERVER_INFO: info}));
        about.insert("supportedVersions", json!(REVISIONS));
        about.insert("ttlMs", TTL_MS.into());
        about.insert("cacheScope", "private".into());
        raw(&about)
    }
}

/// The capabilities of a server that pass through the gateway.
fn capabilities_of(context: &Context, catalogue: &Catalogue) -> Value {
    let mut passed = serde_json::Map::new();
    for name in ["tools", "prompts", "resources"] {
        if catalogue.has(name) {
            passed.insert(name.to_owned(), listed());
        }
    }
    // A client of 2026-07-28 cannot subscribe at a server of an older revision.
    let is_followed = catalogue.eras.is_modern || !context.era.is_modern();
    if is_followed
        && catalogue.has_subscriptions()
        && let Some(resources) = passed.get_mut("resources")
    {
        resources["subscribe"] = true.into();
    }
    for name in ["completions", "logging"] {
        if let Some(capability) = catalogue.capabilities.get(name) {
            passed.insert(name.to_owned(), capability.clone());
        }
    }
    if has_skills(&catalogue.capabilities) {
        passed.insert("extensions".to_owned(), skills_extension());
    }
    Value::Object(passed)
}

/// Callers can be told of changes.
fn listed() -> Value {
    json!({"listChanged": true})
}

/// Directories cannot be read through the gateway.
fn skills_extension() -> Value {
    json!({SKILLS_EXTENSION: {"directoryRead": false}})
}

/// Whether a server that the caller sees here has skills.
fn has_skills_of(context: &Context, lookups: &[(Arc<Server>, Lookup)]) -> bool {
    let is_one = |lookup: &Lookup| lookup.catalogue.as_ref().is_some_and(|it| has_skills(&it.capabilities));
    serves_skills(context) || lookups.iter().any(|(_, lookup)| is_one(lookup))
}

/// Entries of the built-in server whose URIs are those of the endpoint. Their names already are.
fn scoped(context: &Context, list: List, entries: Vec<Members>) -> Vec<Members> {
    if context.is_single || !matches!(list, List::Resources | List::Skills) {
        return entries;
    }
    entries.into_iter().map(|entry| scoped_skill(RESERVED_SERVER, entry)).collect()
}

/// An entry of a list. Only those of the page are copied.
enum Item<'a> {
    /// Of the built-in server.
    Own(Members),
    Of {
        server: &'a str,
        exposed: &'a str,
        members: &'a Members,
    },
}

impl Item<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Own(members) => members.bytes(),
            Self::Of { members, .. } => members.bytes(),
        }
    }

    /// The entry as the endpoint lists it.
    fn copied(self, context: &Context, list: List) -> Members {
        match self {
            Self::Own(members) => members,
            Self::Of { members, .. } if context.is_single => members.clone(),
            Self::Of { server, members, .. } if list == List::Skills => scoped_skill(server, members.clone()),
            Self::Of { exposed, members, .. } => {
                let mut members = members.clone();
                members.set(list.name_member(), &exposed);
                members
            }
        }
    }
}

/// What a list shows of a server.
fn items_of<'a>(
    context: &Context,
    server: &'a Server,
    catalogue: &'a Catalogue,
    list: List,
) -> Vec<Item<'a>> {
    let item = |members: &'a Members, exposed: &'a str| Item::Of { server: &server.name, exposed, members };
    let others = match list {
        List::Tools => {
            let visible = catalogue.tools.iter().filter(|tool| sees_tool(&context.identity, server, tool));
            return visible.map(|tool| item(&tool.members, &tool.exposed)).collect();
        }
        List::Prompts => &catalogue.prompts,
        List::Resources => &catalogue.resources,
        List::Templates => &catalogue.templates,
        List::Skills => &catalogue.skills,
    };
    if !sees_whole_server(&context.identity, &server.name) {
        return Vec::new();
    }
    others.iter().map(|one| item(&one.members, &one.exposed)).collect()
}
