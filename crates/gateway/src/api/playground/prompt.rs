//! What is said to the models: messages as they were sent, or made from a prompt; and the way back, from a run to the
//! next version of a prompt.

use std::collections::HashMap;

use axum::extract::State;
use gateway_core::ids::PlayId;
use gateway_core::prompts::{Template, check_name};
use gateway_store::playground::{self, PlaygroundRun};
use gateway_store::prompts::{self, PromptName};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::caller::{AppState, Caller, Member};
use crate::api::extract::Body;
use crate::api::prompts::PromptView;
use crate::api::response::Json;
use crate::app::App;
use crate::auth::Identity;
use crate::problem::{ApiResult, Problem};
use crate::prompts::{unrendered, write};

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PlaygroundPrompt")]
pub(super) struct PromptRequest {
    namespace: String,
    slug: String,
    /// The latest without it.
    version: Option<i64>,
    variables: Option<HashMap<String, String>>,
}

/// What is asked, and the template that it was made from.
pub(super) struct Asked {
    pub messages: Vec<Value>,
    pub template: Option<String>,
}

/// The conversation that a request describes.
pub(super) async fn conversation(
    app: &App,
    caller: &Identity,
    messages: Option<Vec<Map<String, Value>>>,
    prompt: Option<PromptRequest>,
) -> ApiResult<Asked> {
    let messages = messages.map(checked).transpose()?;
    let Some(prompt) = prompt else {
        let messages = messages.ok_or_else(|| Problem::field("messages", "is needed (or prompt)"))?;
        return Ok(Asked { messages, template: None });
    };
    let name = PromptName { namespace: &prompt.namespace, slug: &prompt.slug };
    let found = prompts::find(&app.services.db, caller.org.id, name, prompt.version).await?;
    let found = found.ok_or_else(|| Problem::field("prompt", "there is no such prompt or version"))?;
    let template = Template::parse(&found.content).map_err(Problem::internal)?;
    let rendered = template
        .render(&prompt.variables.unwrap_or_default())
        .map_err(|error| unrendered("prompt.variables", error))?;
    let said = |role: &str| json!({"role": role, "content": rendered});
    let messages = match messages {
        None => vec![said("user")],
        Some(messages) => std::iter::once(said("system")).chain(messages).collect(),
    };
    Ok(Asked { messages, template: Some(found.content) })
}

fn checked(messages: Vec<Map<String, Value>>) -> ApiResult<Vec<Value>> {
    if messages.is_empty() {
        return Err(Problem::field("messages", "must not be empty"));
    }
    for (index, message) in messages.iter().enumerate() {
        if !message.get("role").is_some_and(Value::is_string) {
            return Err(Problem::field(&format!("messages[{index}].role"), "must be a string"));
        }
        if !message.contains_key("content") && !message.contains_key("tool_calls") {
            return Err(Problem::field(&format!("messages[{index}].content"), "is needed"));
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
    State(app): AppState,
    caller: Caller<Member>,
    Body(request): Body<SaveRequest>,
) -> ApiResult<Json<PromptView>> {
    let SaveRequest { run_id, content, namespace, slug } = request;
    check_name(&namespace).map_err(|why| Problem::field("namespace", why))?;
    check_name(&slug).map_err(|why| Problem::field("slug", why))?;
    let content = match (run_id, content) {
        (None, None) => return Err(Problem::field("content", "is needed (or run_id)")),
        (Some(_), Some(_)) => return Err(Problem::field("content", "give content or run_id, not both")),
        (None, Some(content)) => content,
        (Some(id), None) => {
            let play = playground::find(&app.services.db, caller.org.id, &caller.actor(), id).await?;
            text_of(play.ok_or_else(|| Problem::field("run_id", "there is no such run"))?)
        }
    };
    write::check_content(&content)?;
    let name = PromptName { namespace: &namespace, slug: &slug };
    Ok(Json(write::save(&app, &caller, name, content).await?.try_into()?))
}

/// The template that the run was made from, else what the system and the user said.
fn text_of(play: PlaygroundRun) -> String {
    if let Some(template) = play.template {
        return template;
    }
    let messages = play.messages.as_array().cloned().unwrap_or_default();
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
