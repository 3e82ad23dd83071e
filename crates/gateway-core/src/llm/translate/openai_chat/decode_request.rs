//! Decodes a caller's chat completions request.

use serde_json::{Map, Value};

use super::{
    super::{
        super::chat::{
            CacheControl, ChatRequest, Content, FunctionTool, Media, MediaKind, MediaSource, Message,
            OutputFormat, Part, Reasoning, Role, Tool, ToolCall, ToolChoice, ToolResult, TranslationError,
            WireFormat,
        },
        json::{
            at_path, into_object, into_strings, require_string, take_array, take_bool, take_number,
            take_object, take_string, take_u64, take_value,
        },
        media::{audio_mime, image, source_from_url},
    },
    decode_reasoning_detail,
};

type Object = Map<String, Value>;

pub(super) fn decode_request(mut body: Object) -> Result<ChatRequest, TranslationError> {
    let body = &mut body;
    let messages = take_array(body, "messages")?
        .ok_or_else(|| TranslationError::malformed("messages", "is required"))?;
    let mut request = ChatRequest::new(WireFormat::OpenAiChat);
    request.messages = messages
        .into_iter()
        .enumerate()
        .map(|(at, value)| {
            at_path(|| format!("messages.{at}"), into_object(value, "").and_then(decode_message))
        })
        .collect::<Result<_, _>>()?;
    request.model = take_string(body, "model")?.unwrap_or_default();
    request.stream = take_bool(body, "stream")?.unwrap_or(false);
    if let Some(mut options) = take_object(body, "stream_options")? {
        request.include_usage = take_bool(&mut options, "include_usage")?.unwrap_or(false);
        if !options.is_empty() {
            body.insert("stream_options".to_owned(), options.into());
        }
    }
    for (at, tool) in take_array(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(at_path(|| format!("tools.{at}"), into_object(tool, "").and_then(decode_tool))?);
    }
    request.tool_choice = take_value(body, "tool_choice").map(decode_tool_choice).transpose()?;
    request.parallel_tool_calls = take_bool(body, "parallel_tool_calls")?;
    request.output = take_object(body, "response_format")?
        .map(|format| at_path(|| "response_format".to_owned(), decode_output(format)))
        .transpose()?;
    let legacy_max_tokens = take_u64(body, "max_tokens")?;
    request.max_tokens = take_u64(body, "max_completion_tokens")?;
    request.legacy_max_tokens = request.max_tokens.is_none() && legacy_max_tokens.is_some();
    request.max_tokens = request.max_tokens.or(legacy_max_tokens);
    request.temperature = take_number(body, "temperature")?;
    request.top_p = take_number(body, "top_p")?;
    request.top_k = take_number(body, "top_k")?;
    request.frequency_penalty = take_number(body, "frequency_penalty")?;
    request.presence_penalty = take_number(body, "presence_penalty")?;
    request.stop = match take_value(body, "stop") {
        None => Vec::new(),
        Some(Value::String(single)) => vec![single],
        Some(Value::Array(several)) => into_strings(several, "stop")?,
        Some(_) => {
            return Err(TranslationError::malformed("stop", "must be a string or an array of strings"));
        }
    };
    request.seed = take_number(body, "seed")?;
    request.n = take_u64(body, "n")?;
    request.logprobs = take_bool(body, "logprobs")?.unwrap_or(false);
    request.top_logprobs = take_u64(body, "top_logprobs")?;
    request.logit_bias = take_value(body, "logit_bias");
    request.reasoning = take_string(body, "reasoning_effort")?.map(|effort| Reasoning {
        enabled: (effort == "none").then_some(false),
        effort: Some(effort),
        ..Reasoning::default()
    });
    request.user = take_string(body, "user")?;
    request.metadata = take_value(body, "metadata");
    request.service_tier = take_string(body, "service_tier")?;
    request.store = take_bool(body, "store")?;
    request.prompt_cache_key = take_string(body, "prompt_cache_key")?;
    request.verbosity = take_string(body, "verbosity")?;
    request.extra = std::mem::take(body);
    Ok(request)
}

fn decode_message(mut message: Object) -> Result<Message, TranslationError> {
    let message = &mut message;
    let role = match &*require_string(message, "role")? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => return Err(TranslationError::malformed("role", format!("`{other}` is not a valid role"))),
    };
    let (content, is_string) = decode_content(take_value(message, "content"))?;
    let mut parts = Vec::with_capacity(content.len());
    match role {
        Role::Tool => {
            let id = require_string(message, "tool_call_id")?;
            let result = ToolResult { id, name: None, parts: content, is_string, is_error: None };
            parts.push(Part::new(Content::ToolResult(result)));
        }
        Role::Assistant => {
            decode_thinking(message, &mut parts)?;
            parts.extend(content);
            if let Some(refusal) = take_string(message, "refusal")? {
                parts.push(Part::new(Content::Refusal(refusal)));
            }
            for (at, call) in take_array(message, "tool_calls")?.unwrap_or_default().into_iter().enumerate() {
                parts.push(at_path(
                    || format!("tool_calls.{at}"),
                    into_object(call, "").and_then(decode_call),
                )?);
            }
        }
        _ => parts = content,
    }
    let name = take_string(message, "name")?;
    Ok(Message { role, parts, is_string, name, extra: std::mem::take(message) })
}

/// Decodes thinking. Details repeat the plain text together with its signatures, so they take precedence.
pub(super) fn decode_thinking(message: &mut Object, parts: &mut Vec<Part>) -> Result<(), TranslationError> {
    let text = take_string(message, "reasoning_content")?;
    let text = text.or(take_string(message, "reasoning")?).filter(|text| !text.is_empty());
    let details = take_array(message, "reasoning_details")?.unwrap_or_default();
    let details: Vec<Part> = details.into_iter().filter_map(decode_reasoning_detail).collect();
    let text_in_details = details.iter().any(|part| matches!(part.content, Content::Thinking { .. }));
    if let Some(text) = text.filter(|_| !text_in_details) {
        parts.push(Part::new(Content::Thinking { text, signature: None }));
    }
    parts.extend(details);
    Ok(())
}

pub(super) fn decode_content(content: Option<Value>) -> Result<(Vec<Part>, bool), TranslationError> {
    match content {
        None => Ok((Vec::new(), false)),
        Some(Value::String(text)) => Ok((vec![Part::text(text)], true)),
        Some(Value::Array(list)) => {
            let decode = |(at, value)| at_path(|| format!("content.{at}"), decode_part(value));
            Ok((list.into_iter().enumerate().map(decode).collect::<Result<_, _>>()?, false))
        }
        Some(_) => Err(TranslationError::malformed("content", "must be a string or an array of parts")),
    }
}

fn decode_part(value: Value) -> Result<Part, TranslationError> {
    let mut part_object = into_object(value, "")?;
    let part = &mut part_object;
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let content = match &*kind {
        "text" => Content::Text(require_string(part, "text")?),
        "refusal" => Content::Refusal(require_string(part, "refusal")?),
        "image_url" => {
            let mut image_url = match take_value(part, "image_url") {
                Some(Value::Object(image_url)) => image_url,
                // Several compatible providers accept the URL without an object.
                Some(url @ Value::String(_)) => Map::from_iter([("url".to_owned(), url)]),
                _ => return Err(TranslationError::malformed("image_url", "must be an object")),
            };
            let url = at_path(|| "image_url".to_owned(), require_string(&mut image_url, "url"))?;
            let detail = take_string(&mut image_url, "detail")?;
            Content::Media(Media { detail, ..image(source_from_url(url)) })
        }
        "input_audio" => {
            let mut audio = take_object(part, "input_audio")?.unwrap_or_default();
            let mime = audio_mime(&require_string(&mut audio, "format")?);
            let source = MediaSource::Base64 { mime, data: require_string(&mut audio, "data")? };
            Content::Media(Media { kind: MediaKind::Audio, source, name: None, detail: None })
        }
        "file" => {
            let mut file = take_object(part, "file")?.unwrap_or_default();
            let source = match (take_string(&mut file, "file_data")?, take_string(&mut file, "file_id")?) {
                (Some(data), _) if data.starts_with("data:") => source_from_url(data),
                (Some(data), _) => MediaSource::Base64 { mime: "application/pdf".to_owned(), data },
                (None, Some(id)) => MediaSource::File(id),
                (None, None) => {
                    return Err(TranslationError::malformed("file", "requires file_data or file_id"));
                }
            };
            let name = take_string(&mut file, "filename")?;
            Content::Media(Media { kind: MediaKind::Document, source, name, detail: None })
        }
        "" => return Err(TranslationError::malformed("type", "is required")),
        _ => return Ok(Part::new(Content::Other(part_object.into()))),
    };
    part.shift_remove("type");
    let cache = take_object(part, "cache_control")?.map(decode_cache_control).transpose()?;
    Ok(Part { content, cache, extra: part_object })
}

fn decode_cache_control(mut control: Object) -> Result<CacheControl, TranslationError> {
    Ok(CacheControl { ttl: take_string(&mut control, "ttl")? })
}

pub(super) fn decode_call(mut call: Object) -> Result<Part, TranslationError> {
    if call.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "function") {
        return Ok(Part::new(Content::Other(call.into())));
    }
    call.shift_remove("type");
    let id = take_string(&mut call, "id")?.unwrap_or_default();
    let mut function = take_object(&mut call, "function")?
        .ok_or_else(|| TranslationError::malformed("function", "is required"))?;
    let name = at_path(|| "function".to_owned(), require_string(&mut function, "name"))?;
    let arguments = match take_value(&mut function, "arguments") {
        None => String::new(),
        Some(Value::String(text)) => text,
        // Some compatible providers send the arguments as parsed JSON.
        Some(value) => value.to_string(),
    };
    let signature = google_signature(&call);
    if signature.is_some() {
        call.shift_remove("extra_content");
    }
    call.shift_remove("index");
    Ok(Part {
        content: Content::ToolCall(ToolCall { id, name, arguments, signature }),
        cache: None,
        extra: call,
    })
}

pub(super) fn google_signature(call: &Object) -> Option<String> {
    let signature = call.get("extra_content")?.get("google")?.get("thought_signature")?;
    signature.as_str().map(str::to_owned)
}

fn decode_tool(mut tool: Object) -> Result<Tool, TranslationError> {
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        return Ok(Tool::Other(tool.into()));
    }
    tool.shift_remove("type");
    let mut function = take_object(&mut tool, "function")?
        .ok_or_else(|| TranslationError::malformed("function", "is required"))?;
    Ok(Tool::Function(FunctionTool {
        name: at_path(|| "function".to_owned(), require_string(&mut function, "name"))?,
        description: take_string(&mut function, "description")?,
        parameters: take_value(&mut function, "parameters"),
        strict: take_bool(&mut function, "strict")?,
        cache: take_object(&mut tool, "cache_control")?.map(decode_cache_control).transpose()?,
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
                // `any` is Mistral's name for `required`.
                "required" | "any" => Ok(ToolChoice::Required),
                _ => Err(invalid()),
            };
        }
        Value::Object(choice) => choice,
        _ => return Err(invalid()),
    };
    let name_of = |value: &Value| Some(value.get("function")?.get("name")?.as_str()?.to_owned());
    let name = choice.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
    let choice = match (choice.get("type").and_then(Value::as_str), name) {
        (Some("function") | None, Some(name)) => ToolChoice::Tool(name.to_owned()),
        (Some("allowed_tools"), _) => {
            let allowed = choice.get("allowed_tools").and_then(Value::as_object).ok_or_else(invalid)?;
            let tools = allowed.get("tools").and_then(Value::as_array).ok_or_else(invalid)?;
            match tools.iter().map(name_of).collect::<Option<Vec<_>>>() {
                Some(names) => ToolChoice::Allowed {
                    names,
                    required: allowed.get("mode").and_then(Value::as_str) == Some("required"),
                },
                None => ToolChoice::Other(choice.into()),
            }
        }
        (Some("function") | None, None) => return Err(invalid()),
        _ => ToolChoice::Other(choice.into()),
    };
    Ok(choice)
}

fn decode_output(mut format: Object) -> Result<OutputFormat, TranslationError> {
    match &*require_string(&mut format, "type")? {
        "text" => Ok(OutputFormat::Text),
        "json_object" => Ok(OutputFormat::JsonObject),
        "json_schema" => {
            let mut inner = take_object(&mut format, "json_schema")?
                .ok_or_else(|| TranslationError::malformed("json_schema", "is required"))?;
            let inner = &mut inner;
            Ok(OutputFormat::JsonSchema {
                name: take_string(inner, "name")?,
                description: take_string(inner, "description")?,
                schema: take_value(inner, "schema").unwrap_or_else(|| Value::Object(Map::new())),
                strict: take_bool(inner, "strict")?,
            })
        }
        other => Err(TranslationError::malformed("type", format!("`{other}` is not a valid output format"))),
    }
}
