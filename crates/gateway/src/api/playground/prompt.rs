//! Conversations of the playground: messages of the request, or messages rendered from a prompt. A run can be saved as
//! the next version of a prompt.

use std::collections::HashMap;
use std::sync::Arc;

use gateway_core::ids::PlayId;
use gateway_core::json::SharedJson;
use gateway_core::prompts::{PromptReference, RenderError, Template, VersionSelector, check_name};
use gateway_store::playground::{self, PlaygroundRun};
use gateway_store::prompts::{self, PromptName};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::audited::Audited;
use crate::api::caller::{Caller, Member};
use crate::api::extract::Body;
use crate::api::prompts::PromptView;
use crate::api::response::Json;
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};
use crate::prompts::{CachedPrompt, Change, check_content, render, render_problem};

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PlaygroundPrompt")]
pub(super) struct PromptRequest {
    namespace: String,
    slug: String,
    /// A version number or a label. Default: the latest version.
    version: Option<VersionSelector>,
    variables: Option<HashMap<String, String>>,
}

/// The messages, and the template that they were rendered from.
pub(super) struct Conversation {
    /// A list, serialized once for all models that get it.
    pub messages: SharedJson,
    pub template: Option<String>,
}

/// The conversation that a request describes.
pub(super) async fn conversation(
    app: &App,
    caller: &Identity,
    messages: Option<Vec<Map<String, Value>>>,
    prompt: Option<PromptRequest>,
) -> ApiResult<Conversation> {
    let messages = messages.map(checked_messages).transpose()?;
    let Some(prompt) = prompt else {
        let messages =
            messages.ok_or_else(|| Problem::field("messages", "is required unless prompt is given"))?;
        return Conversation::new(&messages, None);
    };
    let PromptRequest { namespace, slug, version, variables } = prompt;
    let reference = PromptReference { namespace, slug, version: version.unwrap_or_default() };
    let name = PromptName { namespace: &reference.namespace, slug: &reference.slug };
    let found = prompts::find(&app.services.db, caller.org.id, name, &reference.version).await?;
    let found = found.ok_or_else(|| Problem::field("prompt", reference.missing()))?;
    let template = Template::parse(&found.content).map_err(Problem::internal)?;
    let prompt = Arc::new(CachedPrompt { template, version: found.version });
    let serialized = move |rendered: Result<String, RenderError>| {
        let rendered = rendered.map_err(|error| render_problem("prompt.variables", error))?;
        let message = |role: &str| json!({"role": role, "content": rendered});
        let messages = match messages {
            None => vec![message("user")],
            // As in production, where an empty text adds no message.
            Some(messages) if rendered.is_empty() => messages,
            Some(messages) => std::iter::once(message("system")).chain(messages).collect(),
        };
        Conversation::new(&messages, Some(found.content))
    };
    let variables = variables.unwrap_or_default();
    render(&app.services.compute, caller.org.id, &prompt, &variables, serialized).await?
}

impl Conversation {
    fn new(messages: &[Value], template: Option<String>) -> ApiResult<Self> {
        Ok(Self { messages: SharedJson::new(&messages).map_err(Problem::internal)?, template })
    }
}

fn checked_messages(messages: Vec<Map<String, Value>>) -> ApiResult<Vec<Value>> {
    if messages.is_empty() {
        return Err(Problem::field("messages", "must not be empty"));
    }
    for (index, message) in messages.iter().enumerate() {
        if !message.get("role").is_some_and(Value::is_string) {
            return Err(Problem::field(&format!("messages[{index}].role"), "must be a string"));
        }
        if !message.contains_key("content") && !message.contains_key("tool_calls") {
            return Err(Problem::field(&format!("messages[{index}].content"), "is required"));
        }
    }
    Ok(messages.into_iter().map(Value::Object).collect())
}

/// Either `run_id` or `content`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SaveRequest {
    run_id: Option<PlayId>,
    content: Option<String>,
    namespace: String,
    slug: String,
}

pub(super) async fn save_version(
    app: Audited,
    caller: Caller<Member>,
    Body(request): Body<SaveRequest>,
) -> ApiResult<Json<PromptView>> {
    let SaveRequest { run_id, content, namespace, slug } = request;
    check_name(&namespace).map_err(|why| Problem::field("namespace", why))?;
    check_name(&slug).map_err(|why| Problem::field("slug", why))?;
    let content = match (run_id, content) {
        (None, None) => return Err(Problem::field("content", "is required unless run_id is given")),
        (Some(_), Some(_)) => return Err(Problem::field("content", "cannot be combined with run_id")),
        (None, Some(content)) => content,
        (Some(id), None) => {
            let run = playground::find(&app.services.db, caller.org.id, &caller.actor(), id).await?;
            template_of(run.ok_or_else(|| Problem::field("run_id", "no such run of the caller"))?)
        }
    };
    check_content(&content)?;
    let name = PromptName { namespace: &namespace, slug: &slug };
    let change = Change { author: &caller, entry: app.entry() };
    Ok(Json(app.proxy.prompts.save(change, name, content).await?.try_into()?))
}

/// The template of the run, or the texts of its system and user messages.
fn template_of(run: PlaygroundRun) -> String {
    if let Some(template) = run.template {
        return template;
    }
    let messages: Vec<Value> = serde_json::from_str(run.messages.text()).unwrap_or_default();
    let texts = messages.iter().filter(|message| {
        matches!(message.get("role").and_then(Value::as_str), Some("system" | "developer" | "user"))
    });
    let texts = texts.filter_map(|message| match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let parts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            Some(parts.join("\n"))
        }
        _ => None,
    });
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}
