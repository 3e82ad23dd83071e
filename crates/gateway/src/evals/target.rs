//! Calls the target model of an eval run on a dataset. The input of each case becomes a conversation, after a prompt if
//! the target has one. The response is what the evaluator judges.

use std::collections::HashMap;

use gateway_core::evaluators::{BodySide, CallFacts, Field, Subject};
use gateway_core::llm::preview::{assistant_text, last_user_text};
use gateway_core::prompts::Template;
use rust_decimal::prelude::ToPrimitive as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ModelCaller, NoVerdict, object, require_success};
use crate::internal_call::Endpoint;

/// The variable that is the whole input, unless the input has a field of this name.
const WHOLE_INPUT: &str = "input";

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

impl Prompt {
    /// Whether the prompt has variables that take their values from the input.
    pub fn fills_in_input(&self) -> bool {
        let template = Template::parse(&self.content);
        let is_filled = |name: &String| !self.variables.contains_key(name);
        template.is_ok_and(|template| template.variables().iter().any(is_filled))
    }
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

/// The messages of a case as an application sends them in production: the input, and before it the rendered prompt as
/// the system message, like `X-Gateway-Prompt` adds it.
fn messages(prompt: Option<&Prompt>, input: &Value) -> Result<Vec<Value>, String> {
    let Some(prompt) = prompt else { return Ok(conversation(input, &[])) };
    let template = Template::parse(&prompt.content).map_err(|error| format!("invalid prompt: {error}"))?;
    let mut values = prompt.variables.clone();
    for (name, value) in input.as_object().into_iter().flatten() {
        values.insert(name.clone(), text(value));
    }
    values.entry(WHOLE_INPUT.into()).or_insert_with(|| text(input));
    let rendered = template.render(&values).map_err(|error| format!("cannot render the prompt: {error}"))?;
    let mut messages = conversation(input, template.variables());
    if !rendered.is_empty() {
        messages.insert(0, json!({"role": "system", "content": rendered}));
    }
    Ok(messages)
}

/// An input that is a list of messages is used as it is. Any other input becomes one user message.
fn conversation(input: &Value, used: &[String]) -> Vec<Value> {
    let is_chat = |messages: &&Vec<Value>| {
        !messages.is_empty()
            && messages.iter().all(|message| message.get("role").is_some_and(Value::is_string))
    };
    let messages = input.get("messages").unwrap_or(input).as_array().filter(is_chat);
    messages.cloned().unwrap_or_else(|| vec![json!({"role": "user", "content": user_text(input, used)})])
}

/// Of an input with fields, those that the prompt does not use, because the others are in the system message. All of
/// them if the prompt uses all, because providers require a user message.
fn user_text(input: &Value, used: &[String]) -> String {
    let Some(fields) = input.as_object() else { return text(input) };
    let mut rest = fields.clone();
    rest.retain(|name, _| name == WHOLE_INPUT || !used.contains(name));
    if rest.is_empty() {
        rest.clone_from(fields);
    }
    let mut values = rest.values();
    match (values.next(), values.next()) {
        (Some(Value::String(only)), None) => only.clone(),
        _ => text(&Value::Object(rest)),
    }
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
            (json!({"question": "why?"}), user("why?")),
            (json!({"a": "x", "b": "y"}), user("{\"a\":\"x\",\"b\":\"y\"}")),
            (json!([1, 2]), user("[1,2]")),
        ] {
            assert_eq!(Value::Array(messages(None, &input).unwrap()), expected, "{input}");
        }
    }

    #[test]
    fn a_prompt_is_the_system_message_before_the_input() {
        let with = |content: &str, input: &Value| messages(Some(&prompt(content)), input).map(Value::Array);
        let order = json!({"customer": "Ada", "question": "Where is it?"});
        let ticket = json!({"customer": "Ada", "order": 7, "question": "Where is it?"});
        let chat = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]);
        for (content, input, system, user) in [
            ("Be {{tone}}.", json!("hi"), "Be kind.", "hi"),
            // What the prompt takes whole is still the user's message.
            ("Say {{input}}", json!("hi"), "Say hi", "hi"),
            ("{{city}}?", json!({"city": "Rome"}), "Rome?", "Rome"),
            ("{{customer}}: {{question}}", order.clone(), "Ada: Where is it?", &order.to_string()),
            // What the prompt takes of several fields is not repeated.
            ("Help {{customer}}.", order.clone(), "Help Ada.", "Where is it?"),
            (
                "Help {{customer}}.",
                ticket.clone(),
                "Help Ada.",
                "{\"order\":7,\"question\":\"Where is it?\"}",
            ),
            ("Help {{customer}}.", json!({"customer": "Ada", "input": "hi"}), "Help Ada.", "hi"),
            ("{{input}}", json!({"customer": "Ada", "input": "hi"}), "hi", "hi"),
            // A field of the input is used rather than the same value for all cases.
            ("{{tone}}", json!({"tone": "curt", "question": "why?"}), "curt", "why?"),
        ] {
            let expected = json!([{"role": "system", "content": system}, {"role": "user", "content": user}]);
            assert_eq!(with(content, &input), Ok(expected), "{content} {input}");
        }
        let with_messages = json!({"messages": chat, "customer": "Ada"});
        let expected = json!([{"role": "system", "content": "Help Ada."}, chat[0], chat[1]]);
        assert_eq!(with("Help {{customer}}.", &with_messages), Ok(expected));
        let listed = with("Say {{input}}.", &chat).unwrap();
        assert_eq!((&listed[1], &listed[2], listed.get(3)), (&chat[0], &chat[1], None));
        assert_eq!(
            with("{{empty}}", &json!({"empty": "", "q": "hi"})),
            Ok(json!([{"role": "user", "content": "hi"}]))
        );
        assert!(with("{{city}}", &json!("hi")).unwrap_err().contains("city"));
    }
}
