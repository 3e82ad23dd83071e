//! Parsing of a generation request of any of OpenAI's APIs, and the generated text or tool call.

use std::borrow::Cow;

use serde_json::Value;

use super::{ParsedDirectives, SandboxError, example, tokens};

/// The chunks of a stream. Each repeats the model and the ids.
pub(super) const MAX_CHUNKS: usize = 10_000;
const MAX_MODEL_BYTES: usize = 512;

/// The fields of a request that the sandbox uses.
pub(super) struct GenerationRequest<'a> {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) prompt_tokens: usize,
    pub(super) last_text: Cow<'a, str>,
    pub(super) max_tokens: Option<usize>,
    pub(super) format: OutputFormat,
    pub(super) tool: Option<ForcedTool>,
}

pub(super) enum OutputFormat {
    Text,
    JsonObject,
    JsonSchema(Value),
}

/// The tool that the request forces the model to call.
pub(super) struct ForcedTool {
    pub(super) name: String,
    pub(super) parameters: Value,
}

/// The generated output.
pub(super) enum Generated {
    Text { text: String, is_truncated: bool },
    ToolCall { name: String, arguments: String },
}

impl Generated {
    pub(super) fn tokens(&self) -> usize {
        match self {
            Self::Text { text, .. } => tokens(text),
            Self::ToolCall { name, arguments } => tokens(name) + tokens(arguments),
        }
    }
}

pub(super) fn generate(request: &GenerationRequest<'_>, directives: &ParsedDirectives<'_>) -> Generated {
    if let (Some(tool), None) = (&request.tool, directives.reply) {
        let arguments = example::example_of(&tool.parameters).to_string();
        return Generated::ToolCall { name: tool.name.clone(), arguments };
    }
    let mut text = match (directives.reply, &request.format) {
        (Some(reply), _) => reply.to_owned(),
        (None, OutputFormat::JsonSchema(schema)) => example::example_of(schema).to_string(),
        (None, OutputFormat::JsonObject) => {
            serde_json::json!({"reply": echo(&request.last_text)}).to_string()
        }
        (None, OutputFormat::Text) => {
            repeat_to_fill(echo(&request.last_text), directives.chunks.unwrap_or(0))
        }
    };
    let limit = request.max_tokens.map_or(usize::MAX, |limit| limit.saturating_mul(4));
    let end = text.char_indices().nth(limit).map(|(at, _)| at);
    text.truncate(end.unwrap_or(text.len()));
    Generated::Text { text, is_truncated: end.is_some() }
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

/// Repeats a text until every chunk has at least one character.
fn repeat_to_fill(text: String, chunks: usize) -> String {
    let times = (chunks + 1).div_ceil(text.chars().count() + 1);
    if times <= 1 { text } else { vec![text; times].join(" ") }
}

/// Splits a text into the chunks of a stream: the requested number, or one per word.
pub(super) fn text_chunks(text: &str, chunks: Option<usize>) -> Vec<&str> {
    let Some(count) = chunks else {
        let words: Vec<&str> = text.split_inclusive(' ').take(MAX_CHUNKS + 1).collect();
        return if words.len() > MAX_CHUNKS { text_chunks(text, Some(MAX_CHUNKS)) } else { words };
    };
    let length = text.chars().count();
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    (0..count)
        .map(|piece| &text[starts[length * piece / count]..starts[length * (piece + 1) / count]])
        .collect()
}

pub(super) fn model_of(body: &Value) -> Result<String, SandboxError> {
    match body.get("model") {
        Some(Value::String(model)) if model.len() > MAX_MODEL_BYTES => {
            let message = format!("model must not be longer than {MAX_MODEL_BYTES} bytes.");
            Err(SandboxError::field("model", &message))
        }
        Some(Value::String(model)) if !model.is_empty() => Ok(model.clone()),
        Some(Value::String(_)) | None => {
            Err(SandboxError::field("model", "You must provide a model parameter."))
        }
        Some(_) => Err(SandboxError::field("model", "model must be a string.")),
    }
}

pub(super) fn stream_of(body: &Value) -> Result<bool, SandboxError> {
    match body.get("stream") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(stream)) => Ok(*stream),
        Some(_) => Err(SandboxError::field("stream", "stream must be a boolean.")),
    }
}

pub(super) fn limit_of(body: &Value, keys: &[&'static str]) -> Result<Option<usize>, SandboxError> {
    for &key in keys {
        match body.get(key) {
            None | Some(Value::Null) => {}
            Some(value) => {
                let limit =
                    value.as_u64().filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
                return limit
                    .map(Some)
                    .ok_or_else(|| SandboxError::field(key, &format!("{key} must be a positive integer.")));
            }
        }
    }
    Ok(None)
}

/// The role and the text of each message or input item.
/// The role and the text of a message. A request may be large, so the text is copied only if it has several parts.
type Message<'a> = (&'a str, Cow<'a, str>);

pub(super) fn messages_of<'a>(
    items: &'a [Value],
    param: &'static str,
) -> Result<Vec<Message<'a>>, SandboxError> {
    items
        .iter()
        .map(|item| {
            if !item.is_object() {
                return Err(SandboxError::field(param, &format!("Each entry of {param} must be an object.")));
            }
            let role = item.get("role").and_then(Value::as_str).unwrap_or_default();
            Ok((role, item.get("content").map(text_of).unwrap_or_default()))
        })
        .collect()
}

fn text_of(content: &Value) -> Cow<'_, str> {
    match content {
        Value::String(text) => text.into(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            texts.join("\n").into()
        }
        _ => Cow::Borrowed(""),
    }
}

/// The last user text, and the number of tokens of all texts.
pub(super) fn last_user_text(messages: Vec<Message<'_>>) -> (Cow<'_, str>, usize) {
    let count = messages.iter().map(|(_, text)| tokens(text)).sum();
    let last = messages.into_iter().rev().find(|(role, text)| *role == "user" && !text.is_empty());
    (last.map(|(_, text)| text).unwrap_or_default(), count)
}

/// Parses `response_format`, or `text.format` of the responses API, which nests the schema one level less.
pub(super) fn format_of(format: Option<&Value>, param: &'static str) -> Result<OutputFormat, SandboxError> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(OutputFormat::Text) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(OutputFormat::Text),
        Some("json_object") => Ok(OutputFormat::JsonObject),
        Some("json_schema") => {
            let schema = format.pointer("/json_schema/schema").or_else(|| format.get("schema"));
            schema
                .filter(|schema| schema.is_object())
                .cloned()
                .map(OutputFormat::JsonSchema)
                .ok_or_else(|| SandboxError::field(param, "A format of type json_schema requires a schema."))
        }
        _ => Err(SandboxError::field(
            param,
            "The type of the format must be one of text, json_object, json_schema.",
        )),
    }
}

/// The tool that `tool_choice` forces: the named one, or the first if any is required.
pub(super) fn tool_of(body: &Value) -> Result<Option<ForcedTool>, SandboxError> {
    let function = |tool: &Value| {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name")?.as_str()?.to_owned();
        Some(ForcedTool { name, parameters: function.get("parameters").cloned().unwrap_or(Value::Null) })
    };
    let mut tools = body.get("tools").and_then(Value::as_array).into_iter().flatten().filter_map(function);
    let missing = |message: &str| SandboxError::field("tool_choice", message);
    match body.get("tool_choice") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" | "none" => Ok(None),
            "required" => {
                tools.next().map(Some).ok_or_else(|| missing("tool_choice 'required' requires tools."))
            }
            _ => Err(missing("tool_choice must be one of none, auto, required, or a function.")),
        },
        Some(choice) => {
            let name =
                choice.pointer("/function/name").or_else(|| choice.get("name")).and_then(Value::as_str);
            let name = name.ok_or_else(|| missing("tool_choice must name a function."))?;
            let found = tools.find(|tool| tool.name == name);
            found.map(Some).ok_or_else(|| missing(&format!("The tool '{name}' is not defined in tools.")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chunks_and_what_they_repeat_are_bounded() {
        let text = "a ".repeat(30_000);
        let cut = text_chunks(&text, None);
        assert_eq!((cut.len(), cut.concat()), (MAX_CHUNKS, text));
        assert_eq!(text_chunks("a b c", None), ["a ", "b ", "c"]);
        assert!(model_of(&serde_json::json!({"model": "m".repeat(MAX_MODEL_BYTES)})).is_ok());
        assert!(model_of(&serde_json::json!({"model": "m".repeat(MAX_MODEL_BYTES + 1)})).is_err());
    }

    proptest! {
        #[test]
        fn chunks_join_to_the_text_and_have_the_requested_number(text in ".*", chunks in prop::option::of(1_usize..40)) {
            let cut = text_chunks(&text, chunks);
            prop_assert_eq!(cut.concat(), text.as_str());
            prop_assert!(chunks.is_none_or(|chunks| cut.len() == chunks));
        }

        #[test]
        fn a_repeated_text_fills_every_chunk(text in "[a-zé]{1,9}", chunks in 1_usize..500) {
            let long = repeat_to_fill(text, chunks);
            prop_assert!(text_chunks(&long, Some(chunks)).iter().all(|piece| !piece.is_empty()));
        }
    }
}
