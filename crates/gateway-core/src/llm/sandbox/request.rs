//! What a generation request asks for, whichever of OpenAI's APIs it came by, and what the sandbox says to it.

use serde_json::Value;

use super::{Orders, Problem, example, tokens};

/// The parts of a request that the sandbox acts on.
pub(super) struct Ask {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) prompt_tokens: usize,
    pub(super) last_text: String,
    pub(super) max_tokens: Option<usize>,
    pub(super) format: Format,
    pub(super) tool: Option<Tool>,
}

pub(super) enum Format {
    Text,
    JsonObject,
    JsonSchema(Value),
}

/// The tool that the request forces the model to call.
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) parameters: Value,
}

/// What the sandbox says.
pub(super) enum Said {
    Text { text: String, cut: bool },
    Call { name: String, arguments: String },
}

impl Said {
    pub(super) fn tokens(&self) -> usize {
        match self {
            Self::Text { text, .. } => tokens(text),
            Self::Call { name, arguments } => tokens(name) + tokens(arguments),
        }
    }
}

pub(super) fn say(ask: &Ask, orders: &Orders<'_>) -> Said {
    if let (Some(tool), None) = (&ask.tool, orders.reply) {
        let arguments = example::of(&tool.parameters).to_string();
        return Said::Call { name: tool.name.clone(), arguments };
    }
    let mut text = match (orders.reply, &ask.format) {
        (Some(reply), _) => reply.to_owned(),
        (None, Format::JsonSchema(schema)) => example::of(schema).to_string(),
        (None, Format::JsonObject) => serde_json::json!({"reply": echo(&ask.last_text)}).to_string(),
        (None, Format::Text) => stretch(echo(&ask.last_text), orders.chunks.unwrap_or(0)),
    };
    let limit = ask.max_tokens.map_or(usize::MAX, |limit| limit.saturating_mul(4));
    let end = text.char_indices().nth(limit).map(|(at, _)| at);
    text.truncate(end.unwrap_or(text.len()));
    Said::Text { text, cut: end.is_some() }
}

fn echo(text: &str) -> String {
    let text = text.trim();
    let start: String = text.chars().take(200).collect();
    match start.len() {
        0 => "The sandbox is here.".to_owned(),
        length if length < text.len() => format!("The sandbox read: {start}…"),
        _ => format!("The sandbox read: {start}"),
    }
}

/// A text long enough that each of so many chunks has something to say.
fn stretch(text: String, chunks: usize) -> String {
    let times = (chunks + 1).div_ceil(text.chars().count() + 1);
    if times <= 1 { text } else { vec![text; times].join(" ") }
}

/// Splits a text into the pieces of a stream: as many as were ordered, else one a word.
pub(super) fn pieces(text: &str, chunks: Option<usize>) -> Vec<&str> {
    let Some(count) = chunks else { return text.split_inclusive(' ').collect() };
    let length = text.chars().count();
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    (0..count)
        .map(|piece| &text[starts[length * piece / count]..starts[length * (piece + 1) / count]])
        .collect()
}

pub(super) fn model_of(body: &Value) -> Result<String, Problem> {
    match body.get("model") {
        Some(Value::String(model)) if !model.is_empty() => Ok(model.clone()),
        Some(Value::String(_)) | None => Err(Problem::field("model", "You must provide a model parameter.")),
        Some(_) => Err(Problem::field("model", "The model has to be a string.")),
    }
}

pub(super) fn stream_of(body: &Value) -> Result<bool, Problem> {
    match body.get("stream") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(stream)) => Ok(*stream),
        Some(_) => Err(Problem::field("stream", "stream has to be a boolean.")),
    }
}

pub(super) fn limit_of(body: &Value, keys: &[&'static str]) -> Result<Option<usize>, Problem> {
    for &key in keys {
        match body.get(key) {
            None | Some(Value::Null) => {}
            Some(value) => {
                let limit =
                    value.as_u64().filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
                return limit
                    .map(Some)
                    .ok_or_else(|| Problem::field(key, &format!("{key} has to be a positive integer.")));
            }
        }
    }
    Ok(None)
}

/// The texts of messages or input items, each with its role.
pub(super) fn turns<'a>(items: &'a [Value], param: &'static str) -> Result<Vec<(&'a str, String)>, Problem> {
    items
        .iter()
        .map(|item| {
            if !item.is_object() {
                return Err(Problem::field(param, &format!("Each entry of {param} has to be an object.")));
            }
            let role = item.get("role").and_then(Value::as_str).unwrap_or_default();
            Ok((role, item.get("content").map(text_of).unwrap_or_default()))
        })
        .collect()
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// The last thing that the user said, and the tokens of all that was said.
pub(super) fn heard(turns: &[(&str, String)]) -> (String, usize) {
    let last = turns.iter().rev().find(|(role, text)| *role == "user" && !text.is_empty());
    (last.map(|(_, text)| text.clone()).unwrap_or_default(), turns.iter().map(|(_, text)| tokens(text)).sum())
}

/// Reads `response_format`, or `text.format` of the responses API, where the schema has one level less.
pub(super) fn format_of(format: Option<&Value>, param: &'static str) -> Result<Format, Problem> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(Format::Text) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(Format::Text),
        Some("json_object") => Ok(Format::JsonObject),
        Some("json_schema") => {
            let schema = format.pointer("/json_schema/schema").or_else(|| format.get("schema"));
            schema
                .filter(|schema| schema.is_object())
                .cloned()
                .map(Format::JsonSchema)
                .ok_or_else(|| Problem::field(param, "A format of type json_schema needs a schema."))
        }
        _ => Err(Problem::field(param, "The format's type has to be text, json_object or json_schema.")),
    }
}

/// The tool that `tool_choice` forces: a named one, or the first when any is required.
pub(super) fn tool_of(body: &Value) -> Result<Option<Tool>, Problem> {
    let function = |tool: &Value| {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name")?.as_str()?.to_owned();
        Some(Tool { name, parameters: function.get("parameters").cloned().unwrap_or(Value::Null) })
    };
    let mut tools = body.get("tools").and_then(Value::as_array).into_iter().flatten().filter_map(function);
    let missing = |message: &str| Problem::field("tool_choice", message);
    match body.get("tool_choice") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" | "none" => Ok(None),
            "required" => {
                tools.next().map(Some).ok_or_else(|| missing("A required tool needs tools to choose from."))
            }
            _ => Err(missing("tool_choice has to be none, auto, required or a function.")),
        },
        Some(choice) => {
            let name =
                choice.pointer("/function/name").or_else(|| choice.get("name")).and_then(Value::as_str);
            let name = name.ok_or_else(|| missing("tool_choice has to name a function."))?;
            let found = tools.find(|tool| tool.name == name);
            found.map(Some).ok_or_else(|| missing(&format!("The tool '{name}' is not among the tools.")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_join_to_the_text_and_are_as_many_as_ordered(text in ".*", chunks in prop::option::of(1_usize..40)) {
            let cut = pieces(&text, chunks);
            prop_assert_eq!(cut.concat(), text.as_str());
            prop_assert!(chunks.is_none_or(|chunks| cut.len() == chunks));
        }

        #[test]
        fn a_stretched_text_fills_every_chunk(text in "[a-zé]{1,9}", chunks in 1_usize..500) {
            let long = stretch(text, chunks);
            prop_assert!(pieces(&long, Some(chunks)).iter().all(|piece| !piece.is_empty()));
        }
    }
}
