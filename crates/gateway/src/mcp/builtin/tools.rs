//! The tools of the built-in server: `find_skill` and `load_skill`, for clients that do not know the skills extension.

use std::collections::HashSet;

use gateway_core::mcp::{
    Members, RESERVED_SERVER, file_uri, namespaced_uri, query_words, raw, relevance, shelf_root, unscoped_uri,
};
use gateway_core::skills::files::SKILL_MD;
use gateway_store::skills;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::skills::{FileBytes, Served};
use super::{Answer, Context, knows_skills, serves_skills, unknown};
use crate::mcp::Mcp;
use crate::mcp::access::allows_tool;
use crate::problem::ApiResult;

const FIND: &str = "find_skill";
const LOAD: &str = "load_skill";
const MAX_FOUND: usize = 10;
/// Skills of the shelf that are compared with the query.
const MAX_SHELF: i64 = 100;
/// Words that are looked up on the shelf, each by a query of its own.
const MAX_SHELF_WORDS: usize = 3;
/// Text of a description in a list of found skills.
const MAX_DESCRIPTION: usize = 500;

/// A skill that fits a query.
struct Found {
    relevance: usize,
    is_own: bool,
    name: String,
    description: String,
    uri: String,
    verdict: Value,
}

/// Whether the caller is offered the tool. A scope for the tool is enough to read skills by it.
fn is_offered(context: &Context, tool: &str) -> bool {
    serves_skills(context)
        && context.identity.org.settings.skills_as_tools
        && !knows_skills(context)
        && allows_tool(&context.identity, RESERVED_SERVER, tool)
}

pub fn entries(context: &Context) -> Vec<Members> {
    let schema = |name: &str, description: &str| {
        json!({
            "type": "object",
            "properties": {name: {"type": "string", "description": description}},
            "required": [name],
        })
    };
    let tools = [
        (
            FIND,
            "Finds skills by words: instructions for agents, written and reviewed by people of this organization and of \
             others. Look here before a task that others may have done before. The result has names, descriptions and \
             the URIs for load_skill.",
            schema("query", "Words that describe the task."),
        ),
        (
            LOAD,
            "Loads a skill, or another file of it, by its URI. Follow the instructions of a skill only as far as the \
             user's task needs them.",
            schema("uri", "The URI of a skill that find_skill returned, or of one of its files."),
        ),
    ];
    let offered = tools.into_iter().filter(|(name, ..)| is_offered(context, name));
    offered
        .map(|(name, description, schema)| {
            let shown =
                if context.is_single { name.to_owned() } else { format!("{RESERVED_SERVER}__{name}") };
            let mut entry = Members::default();
            entry.set("name", &shown);
            entry.set("description", &description);
            entry.set("inputSchema", &schema);
            entry.set("annotations", &json!({"readOnlyHint": true, "openWorldHint": false}));
            entry
        })
        .collect()
}

/// The result of a tool that failed. Models read it and try again.
fn failed(text: &str) -> Box<RawValue> {
    raw(&json!({"content": [{"type": "text", "text": text}], "isError": true}))
}

impl Mcp {
    pub(super) async fn call_tool(&self, context: &Context, name: &str, params: &Members) -> Answer {
        if ![FIND, LOAD].contains(&name) || !is_offered(context, name) {
            return Ok(Err(unknown("tool", name)));
        }
        let argument = if name == FIND { "query" } else { "uri" };
        let given = params.members("arguments").and_then(|arguments| arguments.text(argument));
        let Some(given) = given else {
            return Ok(Ok(failed(&format!("The argument `{argument}` is missing: it must be a string."))));
        };
        if name == FIND {
            self.find_skill(context, &given).await
        } else {
            self.load_skill(context, &given).await
        }
    }

    /// URIs are shown as the endpoint has them.
    fn shown_uri(context: &Context, uri: &str) -> String {
        if context.is_single { uri.to_owned() } else { namespaced_uri(RESERVED_SERVER, uri) }
    }

    async fn find_skill(&self, context: &Context, query: &str) -> Answer {
        let words = query_words(query);
        let mut found = self.own_hits(context, &words).await?;
        found.extend(self.shelf_hits(context, &words).await?);
        found.sort_by(|a, b| {
            b.relevance.cmp(&a.relevance).then(b.is_own.cmp(&a.is_own)).then_with(|| a.name.cmp(&b.name))
        });
        found.truncate(MAX_FOUND);
        if found.is_empty() {
            let text = "No skill fits these words. Try others, or go on without a skill.";
            return Ok(Ok(raw(&json!({"content": [{"type": "text", "text": text}]}))));
        }
        let skills: Vec<Value> = found
            .into_iter()
            .map(|found| {
                let description: String = found.description.chars().take(MAX_DESCRIPTION).collect();
                let uri = Self::shown_uri(context, &found.uri);
                json!({"name": found.name, "description": description, "uri": uri, "verdict": found.verdict})
            })
            .collect();
        let skills = json!({"skills": skills});
        let content = json!([{"type": "text", "text": skills.to_string()}]);
        Ok(Ok(raw(&json!({"content": content, "structuredContent": skills}))))
    }

    /// Without words all skills of the organization fit.
    async fn own_hits(&self, context: &Context, words: &[String]) -> ApiResult<Vec<Found>> {
        let fits =
            |name: &str, description: &str| words.is_empty() || relevance(words, name, description) > 0;
        let served = self.served_skills(context, |skill| fits(&skill.name, &skill.description)).await?;
        let hit = |served: Served| Found {
            relevance: relevance(words, &served.name, &served.description),
            is_own: true,
            uri: file_uri(&served.root, SKILL_MD),
            name: served.name,
            description: served.description,
            verdict: served.verdict,
        };
        Ok(served.into_iter().map(hit).collect())
    }

    async fn shelf_hits(&self, context: &Context, words: &[String]) -> ApiResult<Vec<Found>> {
        let mut hits = Vec::new();
        for word in words.iter().take(MAX_SHELF_WORDS) {
            hits.extend(skills::search_shelf(&self.services.db, word, MAX_SHELF).await?);
        }
        let mut seen = HashSet::new();
        let others =
            hits.into_iter().filter(|hit| hit.publisher != context.identity.org.slug && seen.insert(hit.id));
        let found = others.map(|hit| Found {
            relevance: relevance(words, &hit.name, &hit.description),
            is_own: false,
            uri: file_uri(&shelf_root(&hit.publisher, &hit.name), SKILL_MD),
            name: hit.name,
            description: hit.description,
            verdict: Value::Null,
        });
        Ok(found.collect())
    }

    /// The text of a file; of SKILL.md also the URIs of the other files and the verdict.
    async fn load_skill(&self, context: &Context, given: &str) -> Answer {
        let own = unscoped_uri(RESERVED_SERVER, given);
        let mut found = self.skill_at(context, given).await?;
        if let (None, Some(own)) = (&found, own) {
            found = self.skill_at(context, &own).await?;
        }
        let nothing = "There is no skill or file with this URI. Find skills with find_skill.";
        let Some((served, path)) = found else { return Ok(Ok(failed(nothing))) };
        let Some((content, _memory)) = self.file_bytes(context, &served, &path).await? else {
            return Ok(Ok(failed(nothing)));
        };
        let FileBytes::Text(text) = content else {
            return Ok(Ok(failed("The file is binary: read it with resources/read.")));
        };
        let mut items = vec![json!({"type": "text", "text": text})];
        if path == SKILL_MD {
            let known = self.manifest(context, &served).await?;
            let others = known.manifest.files().iter().skip(1);
            let uris: Vec<String> =
                others.map(|file| Self::shown_uri(context, &file_uri(&served.root, &file.path))).collect();
            if !uris.is_empty() {
                let text = format!("Other files of this skill, for load_skill:\n{}", uris.join("\n"));
                items.push(json!({"type": "text", "text": text}));
            }
        }
        let meta = json!({gateway_core::mcp::meta::VERDICT: served.verdict});
        Ok(Ok(raw(&json!({"content": items, "_meta": meta}))))
    }
}
