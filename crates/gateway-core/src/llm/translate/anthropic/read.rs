//! A caller's request for a message.

use serde_json::{Map, Value};

use super::super::{
    super::chat::{
        Cache, Content, Function, Media, MediaKind, Message, OutputFormat, Part, Reasoning, Request, Role,
        Source, Tool, ToolCall, ToolChoice, ToolResult, Untranslatable, Wire,
    },
    json::{
        boolean, element, list, needed_string, number, object, string, strings, take, text_at, whole, within,
    },
};

type Object = Map<String, Value>;

pub(super) fn read_request(mut body: Object) -> Result<Request, Untranslatable> {
    let body = &mut body;
    let mut request = Request::new(Wire::Anthropic);
    if let Some(system) = take(body, "system") {
        let (parts, bare) = read_content(Some(system), "system")?;
        request.messages.push(Message { bare, ..Message::new(Role::System, parts) });
    }
    let messages =
        list(body, "messages")?.ok_or_else(|| Untranslatable::malformed("messages", "is missing"))?;
    for (at, message) in messages.into_iter().enumerate() {
        let message = within(|| format!("messages.{at}"), element(message, "").and_then(read_message))?;
        request.messages.push(message);
    }
    request.model = string(body, "model")?.unwrap_or_default();
    request.stream = boolean(body, "stream")?.unwrap_or(false);
    for (at, tool) in list(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(within(|| format!("tools.{at}"), element(tool, "").and_then(read_tool))?);
    }
    if let Some(choice) = object(body, "tool_choice")? {
        read_tool_choice(choice, &mut request)?;
    }
    request.max_tokens = whole(body, "max_tokens")?;
    request.temperature = number(body, "temperature")?;
    request.top_p = number(body, "top_p")?;
    request.top_k = number(body, "top_k")?;
    request.stop = strings(list(body, "stop_sequences")?.unwrap_or_default(), "stop_sequences")?;
    read_thinking(body, &mut request)?;
    if let Some(mut metadata) = object(body, "metadata")? {
        request.user = string(&mut metadata, "user_id")?;
        request.metadata = (!metadata.is_empty()).then_some(metadata.into());
    }
    request.service_tier = string(body, "service_tier")?;
    request.extra = std::mem::take(body);
    Ok(request)
}

fn read_message(mut message: Object) -> Result<Message, Untranslatable> {
    let role = match &*needed_string(&mut message, "role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        other => return Err(Untranslatable::malformed("role", format!("`{other}` is not a role"))),
    };
    let (parts, bare) = read_content(take(&mut message, "content"), "content")?;
    Ok(Message { bare, extra: message, ..Message::new(role, parts) })
}

/// A bare text or a list of blocks; also what a message and the result of a tool hold.
pub(super) fn read_content(content: Option<Value>, field: &str) -> Result<(Vec<Part>, bool), Untranslatable> {
    match content {
        None => Ok((Vec::new(), false)),
        Some(Value::String(text)) => Ok((vec![Part::text(text)], true)),
        Some(Value::Array(blocks)) => {
            let read =
                |(at, block)| within(|| format!("{field}.{at}"), element(block, "").and_then(read_block));
            Ok((blocks.into_iter().enumerate().map(read).collect::<Result<_, _>>()?, false))
        }
        Some(_) => Err(Untranslatable::malformed(field, "must be a string or a list of blocks")),
    }
}

pub(super) fn read_block(mut block: Object) -> Result<Part, Untranslatable> {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let content = match &*kind {
        "text" => Content::Text(needed_string(&mut block, "text")?),
        "image" | "document" => match read_source(&block) {
            Some(source) => {
                block.shift_remove("source");
                let kind = if kind == "image" { MediaKind::Image } else { MediaKind::Document };
                Content::Media(Media { kind, source, name: string(&mut block, "title")?, detail: None })
            }
            None => return Ok(Part::new(Content::Other(block.into()))),
        },
        "tool_use" => Content::ToolCall(ToolCall {
            id: needed_string(&mut block, "id")?,
            name: needed_string(&mut block, "name")?,
            arguments: take(&mut block, "input").map_or_else(|| "{}".to_owned(), |input| input.to_string()),
            signature: None,
        }),
        "tool_result" => {
            let id = needed_string(&mut block, "tool_use_id")?;
            let (parts, bare) = read_content(take(&mut block, "content"), "content")?;
            let is_error = boolean(&mut block, "is_error")?;
            Content::ToolResult(ToolResult { id, name: None, parts, bare, is_error })
        }
        "thinking" => Content::Thinking {
            text: needed_string(&mut block, "thinking")?,
            signature: string(&mut block, "signature")?.filter(|signature| !signature.is_empty()),
        },
        "redacted_thinking" => Content::Redacted(needed_string(&mut block, "data")?),
        "" => return Err(Untranslatable::malformed("type", "is missing")),
        _ => return Ok(Part::new(Content::Other(block.into()))),
    };
    block.shift_remove("type");
    let cache = object(&mut block, "cache_control")?.map(read_cache).transpose()?;
    Ok(Part { content, cache, extra: block })
}

/// None for sources that only Anthropic knows.
fn read_source(block: &Object) -> Option<Source> {
    let source = block.get("source")?.as_object()?;
    let text = |key: &str| source.get(key).and_then(Value::as_str).map(str::to_owned);
    match text_at(source, "type") {
        "base64" => Some(Source::Base64 { mime: text("media_type")?, data: text("data")? }),
        "url" => Some(Source::Url { url: text("url")?, mime: None }),
        "text" => Some(Source::Text(text("data")?)),
        "file" => Some(Source::File(text("file_id")?)),
        _ => None,
    }
}

fn read_cache(mut mark: Object) -> Result<Cache, Untranslatable> {
    Ok(Cache { ttl: string(&mut mark, "ttl")? })
}

fn read_tool(mut tool: Object) -> Result<Tool, Untranslatable> {
    if tool.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "custom") {
        return Ok(Tool::Other(tool.into()));
    }
    Ok(Tool::Function(Function {
        name: needed_string(&mut tool, "name")?,
        description: string(&mut tool, "description")?,
        parameters: take(&mut tool, "input_schema"),
        strict: boolean(&mut tool, "strict")?,
        cache: object(&mut tool, "cache_control")?.map(read_cache).transpose()?,
        extra: {
            // Says no more than that this is a plain tool.
            tool.shift_remove("type");
            tool
        },
    }))
}

fn read_tool_choice(mut choice: Object, request: &mut Request) -> Result<(), Untranslatable> {
    request.parallel_tool_calls = boolean(&mut choice, "disable_parallel_tool_use")?.map(|off| !off);
    request.tool_choice = Some(match text_at(&choice, "type") {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(within(|| "tool_choice".to_owned(), needed_string(&mut choice, "name"))?),
        _ => return Err(Untranslatable::malformed("tool_choice.type", "is not a choice of tools")),
    });
    Ok(())
}

fn read_thinking(body: &mut Object, request: &mut Request) -> Result<(), Untranslatable> {
    let mut reasoning = Reasoning::default();
    let mut told = false;
    if let Some(mut thinking) = object(body, "thinking")? {
        told = true;
        let place = || "thinking".to_owned();
        reasoning.enabled = Some(within(place, needed_string(&mut thinking, "type"))? != "disabled");
        reasoning.budget = within(place, whole(&mut thinking, "budget_tokens"))?;
        reasoning.show = within(place, string(&mut thinking, "display"))?;
        reasoning.extra = thinking;
    }
    let mut config = object(body, "output_config")?.unwrap_or_default();
    if let Some(effort) = string(&mut config, "effort")? {
        told = true;
        reasoning.effort = Some(effort);
    }
    // The second is the field's name while it was in beta.
    for format in [take(&mut config, "format"), take(body, "output_format")].into_iter().flatten() {
        let mut format = element(format, "output_config.format")?;
        request.output = Some(match text_at(&format, "type") {
            "json_schema" => OutputFormat::JsonSchema {
                name: None,
                description: None,
                schema: take(&mut format, "schema").unwrap_or_else(|| Value::Object(Map::new())),
                strict: None,
            },
            _ => return Err(Untranslatable::malformed("output_config.format.type", "is not a format")),
        });
    }
    if !config.is_empty() {
        body.insert("output_config".to_owned(), config.into());
    }
    request.reasoning = told.then_some(reasoning);
    Ok(())
}
