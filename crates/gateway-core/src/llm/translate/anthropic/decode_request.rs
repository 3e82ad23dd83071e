//! Decodes a caller's Messages request.

use serde_json::{Map, Value};

use super::super::{
    super::chat::{
        CacheControl, ChatRequest, Content, FunctionTool, Media, MediaKind, MediaSource, Message,
        OutputFormat, Part, Reasoning, Role, Tool, ToolCall, ToolChoice, ToolResult, TranslationError,
        WireFormat,
    },
    json::{
        at_path, into_object, into_strings, require_string, str_field, take_array, take_bool, take_number,
        take_object, take_string, take_u64, take_value,
    },
};

type Object = Map<String, Value>;

pub(super) fn decode_request(mut body: Object) -> Result<ChatRequest, TranslationError> {
    let body = &mut body;
    let mut request = ChatRequest::new(WireFormat::Anthropic);
    if let Some(system) = take_value(body, "system") {
        let (parts, is_string) = decode_content(Some(system), "system")?;
        request.messages.push(Message { is_string, ..Message::new(Role::System, parts) });
    }
    let messages = take_array(body, "messages")?
        .ok_or_else(|| TranslationError::malformed("messages", "is required"))?;
    for (at, message) in messages.into_iter().enumerate() {
        let message =
            at_path(|| format!("messages.{at}"), into_object(message, "").and_then(decode_message))?;
        request.messages.push(message);
    }
    request.model = take_string(body, "model")?.unwrap_or_default();
    request.stream = take_bool(body, "stream")?.unwrap_or(false);
    for (at, tool) in take_array(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(at_path(|| format!("tools.{at}"), into_object(tool, "").and_then(decode_tool))?);
    }
    if let Some(choice) = take_object(body, "tool_choice")? {
        decode_tool_choice(choice, &mut request)?;
    }
    request.max_tokens = take_u64(body, "max_tokens")?;
    request.temperature = take_number(body, "temperature")?;
    request.top_p = take_number(body, "top_p")?;
    request.top_k = take_number(body, "top_k")?;
    request.stop = into_strings(take_array(body, "stop_sequences")?.unwrap_or_default(), "stop_sequences")?;
    decode_thinking(body, &mut request)?;
    if let Some(mut metadata) = take_object(body, "metadata")? {
        request.user = take_string(&mut metadata, "user_id")?;
        request.metadata = (!metadata.is_empty()).then_some(metadata.into());
    }
    request.service_tier = take_string(body, "service_tier")?;
    request.extra = std::mem::take(body);
    Ok(request)
}

fn decode_message(mut message: Object) -> Result<Message, TranslationError> {
    let role = match &*require_string(&mut message, "role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        other => return Err(TranslationError::malformed("role", format!("`{other}` is not a valid role"))),
    };
    let (parts, is_string) = decode_content(take_value(&mut message, "content"), "content")?;
    Ok(Message { is_string, extra: message, ..Message::new(role, parts) })
}

/// Decodes a string or a list of blocks. System prompts, messages and tool results contain either. The flag returned is
/// true for a string.
pub(super) fn decode_content(
    content: Option<Value>,
    field: &str,
) -> Result<(Vec<Part>, bool), TranslationError> {
    match content {
        None => Ok((Vec::new(), false)),
        Some(Value::String(text)) => Ok((vec![Part::text(text)], true)),
        Some(Value::Array(blocks)) => {
            let decode = |(at, block)| {
                at_path(|| format!("{field}.{at}"), into_object(block, "").and_then(decode_block))
            };
            Ok((blocks.into_iter().enumerate().map(decode).collect::<Result<_, _>>()?, false))
        }
        Some(_) => Err(TranslationError::malformed(field, "must be a string or an array of blocks")),
    }
}

pub(super) fn decode_block(mut block: Object) -> Result<Part, TranslationError> {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let content = match &*kind {
        "text" => Content::Text(require_string(&mut block, "text")?),
        "image" | "document" => match decode_source(&block) {
            Some(source) => {
                block.shift_remove("source");
                let kind = if kind == "image" { MediaKind::Image } else { MediaKind::Document };
                Content::Media(Media { kind, source, name: take_string(&mut block, "title")?, detail: None })
            }
            None => return Ok(Part::new(Content::Other(block.into()))),
        },
        "tool_use" => Content::ToolCall(ToolCall {
            id: require_string(&mut block, "id")?,
            name: require_string(&mut block, "name")?,
            arguments: take_value(&mut block, "input")
                .map_or_else(|| "{}".to_owned(), |input| input.to_string()),
            signature: None,
        }),
        "tool_result" => {
            let id = require_string(&mut block, "tool_use_id")?;
            let (parts, is_string) = decode_content(take_value(&mut block, "content"), "content")?;
            let is_error = take_bool(&mut block, "is_error")?;
            Content::ToolResult(ToolResult { id, name: None, parts, is_string, is_error })
        }
        "thinking" => Content::Thinking {
            text: require_string(&mut block, "thinking")?,
            signature: take_string(&mut block, "signature")?.filter(|signature| !signature.is_empty()),
        },
        "redacted_thinking" => Content::Redacted(require_string(&mut block, "data")?),
        "" => return Err(TranslationError::malformed("type", "is required")),
        _ => return Ok(Part::new(Content::Other(block.into()))),
    };
    block.shift_remove("type");
    let cache = take_object(&mut block, "cache_control")?.map(decode_cache_control).transpose()?;
    Ok(Part { content, cache, extra: block })
}

/// Returns None for source types that other formats do not have.
fn decode_source(block: &Object) -> Option<MediaSource> {
    let source = block.get("source")?.as_object()?;
    let text = |key: &str| source.get(key).and_then(Value::as_str).map(str::to_owned);
    match str_field(source, "type") {
        "base64" => Some(MediaSource::Base64 { mime: text("media_type")?, data: text("data")? }),
        "url" => Some(MediaSource::Url { url: text("url")?, mime: None }),
        "text" => Some(MediaSource::Text(text("data")?)),
        "file" => Some(MediaSource::File(text("file_id")?)),
        _ => None,
    }
}

fn decode_cache_control(mut control: Object) -> Result<CacheControl, TranslationError> {
    Ok(CacheControl { ttl: take_string(&mut control, "ttl")? })
}

fn decode_tool(mut tool: Object) -> Result<Tool, TranslationError> {
    if tool.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "custom") {
        return Ok(Tool::Other(tool.into()));
    }
    Ok(Tool::Function(FunctionTool {
        name: require_string(&mut tool, "name")?,
        description: take_string(&mut tool, "description")?,
        parameters: take_value(&mut tool, "input_schema"),
        strict: take_bool(&mut tool, "strict")?,
        cache: take_object(&mut tool, "cache_control")?.map(decode_cache_control).transpose()?,
        extra: {
            // The type `custom` is the default, so it carries no information.
            tool.shift_remove("type");
            tool
        },
    }))
}

fn decode_tool_choice(mut choice: Object, request: &mut ChatRequest) -> Result<(), TranslationError> {
    request.parallel_tool_calls = take_bool(&mut choice, "disable_parallel_tool_use")?.map(|off| !off);
    request.tool_choice = Some(match str_field(&choice, "type") {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => {
            ToolChoice::Tool(at_path(|| "tool_choice".to_owned(), require_string(&mut choice, "name"))?)
        }
        _ => return Err(TranslationError::malformed("tool_choice.type", "is not a valid tool choice")),
    });
    Ok(())
}

fn decode_thinking(body: &mut Object, request: &mut ChatRequest) -> Result<(), TranslationError> {
    let mut reasoning = Reasoning::default();
    let mut is_given = false;
    if let Some(mut thinking) = take_object(body, "thinking")? {
        is_given = true;
        let path = || "thinking".to_owned();
        reasoning.enabled = Some(at_path(path, require_string(&mut thinking, "type"))? != "disabled");
        reasoning.budget = at_path(path, take_u64(&mut thinking, "budget_tokens"))?;
        reasoning.display = at_path(path, take_string(&mut thinking, "display"))?;
        reasoning.extra = thinking;
    }
    let mut config = take_object(body, "output_config")?.unwrap_or_default();
    if let Some(effort) = take_string(&mut config, "effort")? {
        is_given = true;
        reasoning.effort = Some(effort);
    }
    // `output_format` was the field's name during its beta.
    for format in [take_value(&mut config, "format"), take_value(body, "output_format")].into_iter().flatten()
    {
        let mut format = into_object(format, "output_config.format")?;
        request.output = Some(match str_field(&format, "type") {
            "json_schema" => OutputFormat::JsonSchema {
                name: None,
                description: None,
                schema: take_value(&mut format, "schema").unwrap_or_else(|| Value::Object(Map::new())),
                strict: None,
            },
            _ => {
                return Err(TranslationError::malformed(
                    "output_config.format.type",
                    "is not a valid output format",
                ));
            }
        });
    }
    if !config.is_empty() {
        body.insert("output_config".to_owned(), config.into());
    }
    request.reasoning = is_given.then_some(reasoning);
    Ok(())
}
