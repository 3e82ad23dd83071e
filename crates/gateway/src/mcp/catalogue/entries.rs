//! The entries of a server's lists, taken apart: names in the list of all servers, hashes and findings of tools.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::mcp::{Finding, Members, findings, namespaced, namespaced_uri, raw, tool_hash};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Lists;
use crate::mcp::upstream::{Failure, FailureKind};
use crate::services::Services;

const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// A tool as its server lists it.
pub struct Tool {
    pub name: String,
    /// Its name in the list of all servers.
    pub exposed: String,
    pub members: Members,
    pub is_read_only: bool,
    pub hash: String,
    /// Identifies the definition as it is listed.
    pub digest: u64,
    pub findings: Vec<Finding>,
    /// Arguments that are repeated in headers: the argument and the header.
    pub argument_headers: Vec<(String, String)>,
}

/// Larger definitions are not stored for a comparison with later ones.
const MAX_DEFINITION: usize = 64 << 10;

impl Tool {
    /// The whole definition, unless it is too large to be kept.
    pub fn definition(&self) -> Option<Box<RawValue>> {
        (self.members.bytes() <= MAX_DEFINITION).then(|| raw(&self.members))
    }
}

/// A prompt, a resource, a template of resources or a skill.
pub struct Listed {
    /// The name or URI.
    pub name: String,
    /// Its name in the list of all servers.
    pub exposed: String,
    pub members: Members,
}

/// Identify lists that callers see as a whole. Only the same process compares them.
#[derive(Debug, Clone, Copy)]
pub struct Digests {
    pub prompts: u64,
    pub resources: u64,
}

/// The lists of a server.
pub(super) struct Compiled {
    pub tools: Vec<Tool>,
    pub prompts: Vec<Listed>,
    pub resources: Vec<Listed>,
    pub templates: Vec<Listed>,
    pub skills: Vec<Listed>,
    pub digests: Digests,
}

/// Takes the lists apart, where computation that tenants cause belongs.
pub(super) async fn compile(
    services: &Services,
    org: OrgId,
    server: Arc<str>,
    lists: Lists,
) -> Result<Compiled, Failure> {
    let overloaded =
        |_| Failure::new(FailureKind::Overloaded, "the lists of the server could not be read in time");
    let bytes = lists.tree_bytes();
    let work = move || {
        let prompts = listed(&lists.prompts, "name", &server);
        let resources = listed(&lists.resources, "uri", &server);
        let digest = |list: &[Listed]| digest_of(list.iter().map(|one| &one.members));
        let digests = Digests { prompts: digest(&prompts), resources: digest(&resources) };
        Compiled {
            tools: tools(&server, &lists.tools),
            prompts,
            resources,
            templates: listed(&lists.templates, "uriTemplate", &server),
            skills: listed(&lists.skills, "uri", &server),
            digests,
        }
    };
    services.compute.run_for_body(org, bytes, SCAN_TIMEOUT, work).await.map_err(overloaded)
}

fn tools(server: &str, entries: &[Box<RawValue>]) -> Vec<Tool> {
    let mut taken = HashSet::new();
    let mut tools: Vec<Tool> = entries.iter().filter_map(|entry| tool(entry)).collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    for tool in &mut tools {
        tool.exposed = namespaced(server, &tool.name, |name| taken.contains(name));
        taken.insert(tool.exposed.clone());
    }
    tools
}

fn tool(entry: &RawValue) -> Option<Tool> {
    let members = Members::from_raw(entry)?;
    let name = members.text("name").filter(|name| (1..=256).contains(&name.len()))?;
    let value: Value = serde_json::from_str(entry.get()).ok()?;
    let is_read_only = value.pointer("/annotations/readOnlyHint") == Some(&Value::Bool(true));
    let properties = value.pointer("/inputSchema/properties").and_then(Value::as_object);
    let headers = properties.into_iter().flatten().filter_map(|(argument, schema)| {
        let header = schema.get("x-mcp-header")?.as_str()?;
        Some((argument.clone(), format!("mcp-param-{}", header.to_ascii_lowercase())))
    });
    Some(Tool {
        argument_headers: headers.take(16).collect(),
        hash: tool_hash(&value),
        digest: digest_of(std::iter::once(&members)),
        findings: findings(&value),
        exposed: String::new(),
        name,
        members,
        is_read_only,
    })
}

fn listed(entries: &[Box<RawValue>], member: &str, server: &str) -> Vec<Listed> {
    let mut taken = HashSet::new();
    let mut listed: Vec<Listed> = entries
        .iter()
        .filter_map(|entry| {
            let members = Members::from_raw(entry)?;
            let name = members.text(member)?;
            Some(Listed { exposed: String::new(), name, members })
        })
        .collect();
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    for one in &mut listed {
        one.exposed = if member == "name" {
            namespaced(server, &one.name, |name| taken.contains(name))
        } else {
            namespaced_uri(server, &one.name)
        };
        taken.insert(one.exposed.clone());
    }
    listed
}

/// Identifies entries. Only the same process compares it.
pub fn digest_of<'a>(entries: impl Iterator<Item = &'a Members>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in entries {
        for (name, value) in entry.iter() {
            name.hash(&mut hasher);
            value.get().hash(&mut hasher);
        }
        hasher.write_u8(0);
    }
    hasher.finish()
}
