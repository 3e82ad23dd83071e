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

/// The messages of a case. A prompt is sent as `X-Gateway-Prompt` and the playground send it: as the system message before
/// what the user says, or as the user message if it takes in the whole input and nothing else is left to say.
fn messages(prompt: Option<&Prompt>, input: &Value) -> Result<Vec<Value>, String> {
    let chat = || chat_of(input).cloned().unwrap_or_else(|| vec![message("user", &text(input))]);
    let Some(prompt) = prompt else { return Ok(chat()) };
    let template = Template::parse(&prompt.content).map_err(|error| format!("invalid prompt: {error}"))?;
    let mut values = prompt.variables.clone();
    for (name, value) in input.as_object().into_iter().flatten() {
        values.insert(name.clone(), text(value));
    }
    values.entry(WHOLE_INPUT.into()).or_insert_with(|| text(input));
    let rendered = template.render(&values).map_err(|error| format!("cannot render the prompt: {error}"))?;
    // As in production, where an empty text adds no message.
    if rendered.is_empty() {
        return Ok(chat());
    }
    let system = message("system", &rendered);
    if let Some(messages) = chat_of(input) {
        return Ok(std::iter::once(system).chain(messages.iter().cloned()).collect());
    }
    Ok(match remaining_text(prompt, template.variables(), input) {
        Some(user) => vec![system, message("user", &user)],
        None => vec![message("user", &rendered)],
    })
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// The messages of an input that is a conversation.
fn chat_of(input: &Value) -> Option<&Vec<Value>> {
    let is_message = |message: &Value| message.get("role").is_some_and(Value::is_string);
    let messages = input.get("messages").unwrap_or(input).as_array();
    messages.filter(|messages| !messages.is_empty() && messages.iter().all(is_message))
}

/// What the prompt does not take of the input: of an input with fields, those that are no variables of the prompt.
fn remaining_text(prompt: &Prompt, used: &[String], input: &Value) -> Option<String> {
    let is_field = input.get(WHOLE_INPUT).is_some();
    let takes_input = is_field || !prompt.variables.contains_key(WHOLE_INPUT);
    if takes_input && used.iter().any(|name| name == WHOLE_INPUT) {
        return None;
    }
    let Some(fields) = input.as_object() else { return Some(text(input)) };
    let mut rest = fields.clone();
    rest.retain(|name, _| !used.contains(name));
    let mut values = rest.values();
    match (values.next(), values.next()) {
        (None, _) => None,
        (Some(Value::String(only)), None) => Some(only.clone()),
        _ => Some(text(&Value::Object(rest))),
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
            (json!([1, 2]), user("[1,2]")),
        ] {
            assert_eq!(Value::Array(messages(None, &input).unwrap()), expected, "{input}");
        }
    }

    #[test]
    fn a_prompt_is_the_system_message_or_takes_in_the_input() {
        let with = |content: &str, input: &Value| messages(Some(&prompt(content)), input).map(Value::Array);
        let system = |system: &str, user: &str| json!([message("system", system), message("user", user)]);
        let user = |text: &str| json!([message("user", text)]);
        let order = json!({"customer": "Ada", "question": "Where is it?"});
        let ticket = json!({"customer": "Ada", "order": 7, "question": "Where is it?"});
        let titled = json!({"customer": "Ada", "input": "hi"});
        let rest = "{\"order\":7,\"question\":\"Where is it?\"}";
        for (content, input, expected) in [
            ("Be {{tone}}.", json!("hi"), system("Be kind.", "hi")),
            // Nothing is left for another message.
            ("Say {{input}}", json!("hi"), user("Say hi")),
            ("{{city}}?", json!({"city": "Rome"}), user("Rome?")),
            ("Be {{tone}}: {{city}}?", json!({"city": "Rome"}), user("Be kind: Rome?")),
            ("{{customer}}: {{question}}", order.clone(), user("Ada: Where is it?")),
            // What the prompt takes of several fields is not repeated.
            ("Help {{customer}}.", order.clone(), system("Help Ada.", "Where is it?")),
            ("Help {{customer}}.", ticket.clone(), system("Help Ada.", rest)),
            ("Help {{customer}}.", titled.clone(), system("Help Ada.", "hi")),
            ("{{input}}!", titled.clone(), user("hi!")),
            // A field of the input is used rather than the same value for all cases.
            ("{{tone}}", json!({"tone": "curt", "question": "why?"}), system("curt", "why?")),
            ("{{empty}}", json!({"empty": ""}), user("{\"empty\":\"\"}")),
        ] {
            assert_eq!(with(content, &input), Ok(expected), "{content} {input}");
        }
        let chat = json!([message("system", "s"), message("user", "u")]);
        let expected = json!([message("system", "Help Ada."), chat[0], chat[1]]);
        assert_eq!(with("Help {{customer}}.", &json!({"messages": chat, "customer": "Ada"})), Ok(expected));
        let listed = with("Say {{input}}.", &chat).unwrap();
        assert_eq!((&listed[1], &listed[2], listed.get(3)), (&chat[0], &chat[1], None));
        assert!(with("{{city}}", &json!("hi")).unwrap_err().contains("city"));
    }

    #[test]
    fn a_fixed_value_of_input_is_not_the_case() {
        let mut prompt = prompt("Read {{input}}.");
        prompt.variables.insert(WHOLE_INPUT.into(), "the manual".into());
        let expected = vec![message("system", "Read the manual."), message("user", "hi")];
        assert_eq!(messages(Some(&prompt), &json!("hi")), Ok(expected));
    }
}
