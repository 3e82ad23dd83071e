//! Calls the target model of an eval run on a dataset. The input of each case becomes a conversation, optionally
//! rendered by a prompt. The response is what the evaluator judges.

use std::collections::HashMap;

use gateway_core::evaluators::{BodySide, CallFacts, Field, Subject};
use gateway_core::llm::preview::{assistant_text, last_user_text};
use gateway_core::prompts::Template;
use rust_decimal::prelude::ToPrimitive as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ModelCaller, NoVerdict, object, require_success};
use crate::internal_call::Endpoint;

/// The target as stored with the run, with a snapshot of the prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Target {
    pub provider: String,
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prompt {
    pub namespace: String,
    pub slug: String,
    pub version: i64,
    pub content: String,
    /// Variables with the same value for all cases.
    #[serde(default)]
    pub variables: HashMap<String, String>,
}

/// Calls the target with a case. Returns the subject to evaluate and the log id of the call.
pub async fn call_target(
    caller: &ModelCaller<'_>,
    target: &Target,
    field: &Field,
    case: Case<'_>,
) -> Result<(Subject, i64), NoVerdict> {
    let messages = messages(target.prompt.as_ref(), case.input).map_err(NoVerdict::Permanent)?;
    let mut body = target.params.clone();
    body.extend(object(json!({"model": target.model, "messages": messages})));
    let response = require_success(caller.call(&target.provider, Endpoint::Chat, body).await)?;
    let output = if field.pointer.is_some() && field.side == BodySide::Response {
        serde_json::from_slice(&response.body).unwrap_or_default()
    } else {
        assistant_text(&response.body, false).map_or(Value::Null, Value::String)
    };
    let mut subject = Subject::from_case(field, case.input, Some(&output), case.expected);
    subject.facts = CallFacts {
        status: Some(response.status.as_u16()),
        failed: false,
        latency_ms: Some(response.summary.latency_ms),
        cost_usd: response.summary.cost_usd.and_then(|cost| cost.to_f64()),
    };
    Ok((subject, response.log_id))
}

#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub input: &'a Value,
    pub expected: Option<&'a Value>,
}

/// A prompt with variables of the input is rendered as the user message. A prompt without them becomes the system
/// message before the input.
fn messages(prompt: Option<&Prompt>, input: &Value) -> Result<Vec<Value>, String> {
    let Some(prompt) = prompt else { return Ok(conversation(input)) };
    let template = Template::parse(&prompt.content).map_err(|error| format!("invalid prompt: {error}"))?;
    let mut values = prompt.variables.clone();
    for (name, value) in input.as_object().into_iter().flatten() {
        values.insert(name.clone(), text(value));
    }
    values.entry("input".into()).or_insert_with(|| text(input));
    let rendered = template.render(&values).map_err(|error| format!("cannot render the prompt: {error}"))?;
    if template.variables().iter().any(|name| !prompt.variables.contains_key(name)) {
        return Ok(vec![json!({"role": "user", "content": rendered})]);
    }
    let mut messages = vec![json!({"role": "system", "content": rendered})];
    messages.extend(conversation(input));
    Ok(messages)
}

/// An input that is a list of messages is used as it is. Any other input becomes one user message.
fn conversation(input: &Value) -> Vec<Value> {
    let is_chat = |messages: &&Vec<Value>| {
        !messages.is_empty()
            && messages.iter().all(|message| message.get("role").is_some_and(Value::is_string))
    };
    let messages = input.get("messages").unwrap_or(input).as_array().filter(is_chat);
    messages.cloned().unwrap_or_else(|| vec![json!({"role": "user", "content": text(input)})])
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(_) => last_user_text(value.to_string().as_bytes()).unwrap_or_else(|| value.to_string()),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(content: &str) -> Prompt {
        let variables = HashMap::from([("tone".to_owned(), "kind".to_owned())]);
        Prompt { namespace: "a".into(), slug: "b".into(), version: 1, content: content.into(), variables }
    }

    #[test]
    fn an_input_becomes_a_conversation() {
        let user = |text: &str| json!([{"role": "user", "content": text}]);
        let chat = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]);
        for (input, expected) in [
            (json!("hi"), user("hi")),
            (json!({"messages": chat}), chat.clone()),
            (chat.clone(), chat.clone()),
            (json!({"question": 1}), user("{\"question\":1}")),
            (json!([1, 2]), user("[1,2]")),
        ] {
            assert_eq!(Value::Array(messages(None, &input).unwrap()), expected, "{input}");
        }
    }

    #[test]
    fn a_prompt_renders_the_input_or_becomes_the_system_message() {
        let with = |content: &str, input: Value| messages(Some(&prompt(content)), &input).map(Value::Array);
        assert_eq!(
            with("Be {{tone}}: {{city}}?", json!({"city": "Rome"})),
            Ok(json!([{"role": "user", "content": "Be kind: Rome?"}]))
        );
        assert_eq!(with("Say {{input}}", json!("hi")), Ok(json!([{"role": "user", "content": "Say hi"}])));
        assert_eq!(
            with("Be {{tone}}.", json!("hi")),
            Ok(json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]))
        );
        assert!(with("{{city}}", json!("hi")).unwrap_err().contains("city"));
    }
}
