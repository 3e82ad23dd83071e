//! Decodes a caller's Responses request.

use serde_json::{Map, Value};

use super::{
    super::{
        super::chat::{
            ChatRequest, Content, FunctionTool, Message, OutputFormat, Part, Reasoning, Role, Tool,
            ToolChoice, ToolResult, TranslationError, WireFormat,
        },
        json::{
            at_path, into_object, require_string, take_array, take_bool, take_number, take_object,
            take_string, take_u64, take_value,
        },
    },
    items::{decode_call, decode_content, decode_reasoning, is_message_part},
};

type Object = Map<String, Value>;

const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";

pub(super) fn decode_request(mut body: Object) -> Result<ChatRequest, TranslationError> {
    let body = &mut body;
    let mut request = ChatRequest::new(WireFormat::OpenAiResponses);
    if let Some(instructions) = take_string(body, "instructions")? {
        request.messages.push(Message::text(Role::System, instructions));
    }
    match take_value(body, "input") {
        Some(Value::String(text)) => request.messages.push(Message::text(Role::User, text)),
        Some(Value::Array(items)) => {
            for (at, item) in items.into_iter().enumerate() {
                let decoded = into_object(item, "").and_then(|item| decode_item(&mut request.messages, item));
                at_path(|| format!("input.{at}"), decoded)?;
            }
        }
        // A stored prompt or an earlier response can replace the input.
        None => {}
        Some(_) => return Err(TranslationError::malformed("input", "must be a string or an array of items")),
    }
    request.model = take_string(body, "model")?.unwrap_or_default();
    request.stream = take_bool(body, "stream")?.unwrap_or(false);
    for (at, tool) in take_array(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(at_path(|| format!("tools.{at}"), into_object(tool, "").and_then(decode_tool))?);
    }
    request.tool_choice = take_value(body, "tool_choice").map(decode_tool_choice).transpose()?;
    request.parallel_tool_calls = take_bool(body, "parallel_tool_calls")?;
    decode_text(body, &mut request)?;
    request.max_tokens = take_u64(body, "max_output_tokens")?;
    request.temperature = take_number(body, "temperature")?;
    request.top_p = take_number(body, "top_p")?;
    request.top_logprobs = take_u64(body, "top_logprobs")?;
    if let Some(mut include) = take_array(body, "include")? {
        request.logprobs = include.iter().any(|value| value.as_str() == Some(INCLUDE_LOGPROBS));
        include.retain(|value| value.as_str() != Some(INCLUDE_LOGPROBS));
        if !include.is_empty() {
            body.insert("include".to_owned(), include.into());
        }
    }
    request.reasoning = take_object(body, "reasoning")?
        .map(|reasoning| at_path(|| "reasoning".to_owned(), decode_reasoning_options(reasoning)))
        .transpose()?;
    request.user = take_string(body, "user")?;
    request.metadata = take_value(body, "metadata");
    request.service_tier = take_string(body, "service_tier")?;
    request.store = take_bool(body, "store")?;
    request.prompt_cache_key = take_string(body, "prompt_cache_key")?;
    request.extra = std::mem::take(body);
    // Nulls and default values need not be reported as dropped.
    request.extra.retain(|key, value| {
        !(value.is_null()
            || (key == "background" && *value == Value::Bool(false))
            || (key == "truncation" && value.as_str() == Some("disabled")))
    });
    Ok(request)
}

/// Adds an item to the conversation. Consecutive thinking, text and tool calls of the model form one message, as in all
/// other formats.
fn decode_item(messages: &mut Vec<Message>, mut item: Object) -> Result<(), TranslationError> {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
    let part = match &*kind {
        "message" => return decode_message(messages, item),
        "function_call" => decode_call(item)?,
        "reasoning" => match decode_reasoning(item)? {
            Some(part) => part,
            None => return Ok(()),
        },
        "function_call_output" => {
            item.shift_remove("type");
            let id = require_string(&mut item, "call_id")?;
            let (parts, is_string) = decode_content(take_value(&mut item, "output"), "output")?;
            let result = Content::ToolResult(ToolResult { id, name: None, parts, is_string, is_error: None });
            let message = Message::new(Role::Tool, vec![Part { content: result, cache: None, extra: item }]);
            messages.push(message);
            return Ok(());
        }
        _ => Part::new(Content::Other(item.into())),
    };
    match messages.last_mut() {
        Some(last) if last.role == Role::Assistant => {
            last.is_string = false;
            last.parts.push(part);
        }
        _ => messages.push(Message::new(Role::Assistant, vec![part])),
    }
    Ok(())
}

fn decode_message(messages: &mut Vec<Message>, mut item: Object) -> Result<(), TranslationError> {
    let role = match &*require_string(&mut item, "role")? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => return Err(TranslationError::malformed("role", format!("`{other}` is not a valid role"))),
    };
    let (parts, is_string) = decode_content(take_value(&mut item, "content"), "content")?;
    match messages.last_mut() {
        Some(last) if role == Role::Assistant && last.role == role && is_unfinished(last) => {
            last.parts.extend(parts);
            last.extra.append(&mut item);
        }
        _ => messages.push(Message { role, parts, is_string, name: None, extra: item }),
    }
    Ok(())
}

/// Returns whether a further output message belongs to the same assistant message: so far it contains only thinking, or
/// it has tool calls without results.
fn is_unfinished(message: &Message) -> bool {
    let has_calls = message.parts.iter().any(|part| matches!(part.content, Content::ToolCall(_)));
    has_calls || !message.parts.iter().any(is_message_part)
}

fn decode_text(body: &mut Object, request: &mut ChatRequest) -> Result<(), TranslationError> {
    let Some(mut text) = take_object(body, "text")? else { return Ok(()) };
    request.verbosity = take_string(&mut text, "verbosity")?;
    if let Some(format) = take_object(&mut text, "format")? {
        request.output = Some(at_path(|| "text.format".to_owned(), decode_format(format))?);
    }
    if !text.is_empty() {
        body.insert("text".to_owned(), text.into());
    }
    Ok(())
}

fn decode_format(mut format: Object) -> Result<OutputFormat, TranslationError> {
    match &*require_string(&mut format, "type")? {
        "text" => Ok(OutputFormat::Text),
        "json_object" => Ok(OutputFormat::JsonObject),
        "json_schema" => Ok(OutputFormat::JsonSchema {
            name: take_string(&mut format, "name")?,
            description: take_string(&mut format, "description")?,
            schema: take_value(&mut format, "schema").unwrap_or_else(|| Value::Object(Map::new())),
            strict: take_bool(&mut format, "strict")?,
        }),
        other => Err(TranslationError::malformed("type", format!("`{other}` is not a valid output format"))),
    }
}

fn decode_reasoning_options(mut reasoning: Object) -> Result<Reasoning, TranslationError> {
    let effort = take_string(&mut reasoning, "effort")?;
    let legacy_summary = take_string(&mut reasoning, "generate_summary")?;
    let display = take_string(&mut reasoning, "summary")?.or(legacy_summary);
    reasoning.retain(|_, value| !value.is_null());
    Ok(Reasoning {
        enabled: (effort.as_deref() == Some("none")).then_some(false),
        effort,
        budget: None,
        display,
        extra: reasoning,
    })
}

fn decode_tool(mut tool: Object) -> Result<Tool, TranslationError> {
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        return Ok(Tool::Other(tool.into()));
    }
    tool.shift_remove("type");
    Ok(Tool::Function(FunctionTool {
        name: require_string(&mut tool, "name")?,
        description: take_string(&mut tool, "description")?,
        parameters: take_value(&mut tool, "parameters"),
        strict: take_bool(&mut tool, "strict")?,
        cache: None,
        extra: tool,
    }))
}

fn decode_tool_choice(choice: Value) -> Result<ToolChoice, TranslationError> {
    let invalid = || TranslationError::malformed("tool_choice", "is not a valid tool choice");
    let choice = match choice {
        Value::String(word) => {
            return match &*word {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                "required" => Ok(ToolChoice::Required),
                _ => Err(invalid()),
            };
        }
        Value::Object(choice) => choice,
        _ => return Err(invalid()),
    };
    let name_of = |tool: &Value| match tool.get("type").and_then(Value::as_str) {
        Some("function") => Some(tool.get("name")?.as_str()?.to_owned()),
        _ => None,
    };
    Ok(match choice.get("type").and_then(Value::as_str) {
        Some("function") => {
            let name = choice.get("name").and_then(Value::as_str).ok_or_else(invalid)?;
            ToolChoice::Tool(name.to_owned())
        }
        Some("allowed_tools") => {
            let tools = choice.get("tools").and_then(Value::as_array).ok_or_else(invalid)?;
            match tools.iter().map(name_of).collect::<Option<Vec<_>>>() {
                Some(names) => {
                    let required = choice.get("mode").and_then(Value::as_str) == Some("required");
                    ToolChoice::Allowed { names, required }
                }
                None => ToolChoice::Other(choice.into()),
            }
        }
        Some(_) => ToolChoice::Other(choice.into()),
        None => return Err(invalid()),
    })
}
