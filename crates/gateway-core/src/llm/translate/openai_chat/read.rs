//! A caller's chat request.

use serde_json::{Map, Value};

use super::{
    super::{
        super::chat::{
            Cache, Content, Function, Media, MediaKind, Message, OutputFormat, Part, Reasoning, Request,
            Role, Source, Tool, ToolCall, ToolChoice, ToolResult, Untranslatable, Wire,
        },
        json::{boolean, element, list, needed_string, number, object, string, strings, take, whole, within},
        media::{audio_mime, image, source_of_url},
    },
    thought_of_detail,
};

type Object = Map<String, Value>;

pub(super) fn read_request(mut body: Object) -> Result<Request, Untranslatable> {
    let body = &mut body;
    let messages =
        list(body, "messages")?.ok_or_else(|| Untranslatable::malformed("messages", "is missing"))?;
    let mut request = Request::new(Wire::OpenAiChat);
    request.messages = messages
        .into_iter()
        .enumerate()
        .map(|(at, value)| within(|| format!("messages.{at}"), element(value, "").and_then(read_message)))
        .collect::<Result<_, _>>()?;
    request.model = string(body, "model")?.unwrap_or_default();
    request.stream = boolean(body, "stream")?.unwrap_or(false);
    if let Some(mut options) = object(body, "stream_options")? {
        request.include_usage = boolean(&mut options, "include_usage")?.unwrap_or(false);
        if !options.is_empty() {
            body.insert("stream_options".to_owned(), options.into());
        }
    }
    for (at, tool) in list(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(within(|| format!("tools.{at}"), element(tool, "").and_then(read_tool))?);
    }
    request.tool_choice = take(body, "tool_choice").map(read_tool_choice).transpose()?;
    request.parallel_tool_calls = boolean(body, "parallel_tool_calls")?;
    request.output = object(body, "response_format")?
        .map(|format| within(|| "response_format".to_owned(), read_output(format)))
        .transpose()?;
    let old_limit = whole(body, "max_tokens")?;
    request.max_tokens = whole(body, "max_completion_tokens")?;
    request.old_limit = request.max_tokens.is_none() && old_limit.is_some();
    request.max_tokens = request.max_tokens.or(old_limit);
    request.temperature = number(body, "temperature")?;
    request.top_p = number(body, "top_p")?;
    request.top_k = number(body, "top_k")?;
    request.frequency_penalty = number(body, "frequency_penalty")?;
    request.presence_penalty = number(body, "presence_penalty")?;
    request.stop = match take(body, "stop") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => strings(several, "stop")?,
        Some(_) => return Err(Untranslatable::malformed("stop", "must be a string or a list of strings")),
    };
    request.seed = number(body, "seed")?;
    request.n = whole(body, "n")?;
    request.logprobs = boolean(body, "logprobs")?.unwrap_or(false);
    request.top_logprobs = whole(body, "top_logprobs")?;
    request.logit_bias = take(body, "logit_bias");
    request.reasoning = string(body, "reasoning_effort")?.map(|effort| Reasoning {
        enabled: (effort == "none").then_some(false),
        effort: Some(effort),
        ..Reasoning::default()
    });
    request.user = string(body, "user")?;
    request.metadata = take(body, "metadata");
    request.service_tier = string(body, "service_tier")?;
    request.store = boolean(body, "store")?;
    request.prompt_cache_key = string(body, "prompt_cache_key")?;
    request.verbosity = string(body, "verbosity")?;
    request.extra = std::mem::take(body);
    Ok(request)
}

fn read_message(mut message: Object) -> Result<Message, Untranslatable> {
    let message = &mut message;
    let role = match &*needed_string(message, "role")? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => return Err(Untranslatable::malformed("role", format!("`{other}` is not a role"))),
    };
    let (content, bare) = read_content(take(message, "content"))?;
    let mut parts = Vec::with_capacity(content.len());
    match role {
        Role::Tool => {
            let id = needed_string(message, "tool_call_id")?;
            let result = ToolResult { id, name: None, parts: content, bare, is_error: None };
            parts.push(Part::new(Content::ToolResult(result)));
        }
        Role::Assistant => {
            read_thoughts(message, &mut parts)?;
            parts.extend(content);
            if let Some(refusal) = string(message, "refusal")? {
                parts.push(Part::new(Content::Refusal(refusal)));
            }
            for (at, call) in list(message, "tool_calls")?.unwrap_or_default().into_iter().enumerate() {
                parts.push(within(|| format!("tool_calls.{at}"), element(call, "").and_then(read_call))?);
            }
        }
        _ => parts = content,
    }
    let name = string(message, "name")?;
    Ok(Message { role, parts, bare, name, extra: std::mem::take(message) })
}

/// Details hold the same thoughts as the plain text, with their signatures.
pub(super) fn read_thoughts(message: &mut Object, parts: &mut Vec<Part>) -> Result<(), Untranslatable> {
    let text = string(message, "reasoning_content")?;
    let text = text.or(string(message, "reasoning")?).filter(|text| !text.is_empty());
    let details = list(message, "reasoning_details")?.unwrap_or_default();
    let details: Vec<Part> = details.into_iter().filter_map(thought_of_detail).collect();
    let detailed = details.iter().any(|part| matches!(part.content, Content::Thinking { .. }));
    if let Some(text) = text.filter(|_| !detailed) {
        parts.push(Part::new(Content::Thinking { text, signature: None }));
    }
    parts.extend(details);
    Ok(())
}

pub(super) fn read_content(content: Option<Value>) -> Result<(Vec<Part>, bool), Untranslatable> {
    match content {
        None => Ok((Vec::new(), false)),
        Some(Value::String(text)) => Ok((vec![Part::text(text)], true)),
        Some(Value::Array(list)) => {
            let read = |(at, value)| within(|| format!("content.{at}"), read_part(value));
            Ok((list.into_iter().enumerate().map(read).collect::<Result<_, _>>()?, false))
        }
        Some(_) => Err(Untranslatable::malformed("content", "must be a string or a list of parts")),
    }
}

fn read_part(value: Value) -> Result<Part, Untranslatable> {
    let mut object_ = element(value, "")?;
    let part = &mut object_;
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let content = match &*kind {
        "text" => Content::Text(needed_string(part, "text")?),
        "refusal" => Content::Refusal(needed_string(part, "refusal")?),
        "image_url" => {
            let mut image_url = match take(part, "image_url") {
                Some(Value::Object(image_url)) => image_url,
                // Several copiers take the bare URL.
                Some(url @ Value::String(_)) => Map::from_iter([("url".to_owned(), url)]),
                _ => return Err(Untranslatable::malformed("image_url", "must be an object")),
            };
            let url = within(|| "image_url".to_owned(), needed_string(&mut image_url, "url"))?;
            let detail = string(&mut image_url, "detail")?;
            Content::Media(Media { detail, ..image(source_of_url(url)) })
        }
        "input_audio" => {
            let mut audio = object(part, "input_audio")?.unwrap_or_default();
            let mime = audio_mime(&needed_string(&mut audio, "format")?);
            let source = Source::Base64 { mime, data: needed_string(&mut audio, "data")? };
            Content::Media(Media { kind: MediaKind::Audio, source, name: None, detail: None })
        }
        "file" => {
            let mut file = object(part, "file")?.unwrap_or_default();
            let source = match (string(&mut file, "file_data")?, string(&mut file, "file_id")?) {
                (Some(data), _) if data.starts_with("data:") => source_of_url(data),
                (Some(data), _) => Source::Base64 { mime: "application/pdf".to_owned(), data },
                (None, Some(id)) => Source::File(id),
                (None, None) => return Err(Untranslatable::malformed("file", "needs file_data or file_id")),
            };
            let name = string(&mut file, "filename")?;
            Content::Media(Media { kind: MediaKind::Document, source, name, detail: None })
        }
        "" => return Err(Untranslatable::malformed("type", "is missing")),
        _ => return Ok(Part::new(Content::Other(object_.into()))),
    };
    part.shift_remove("type");
    let cache = object(part, "cache_control")?.map(read_cache).transpose()?;
    Ok(Part { content, cache, extra: object_ })
}

fn read_cache(mut mark: Object) -> Result<Cache, Untranslatable> {
    Ok(Cache { ttl: string(&mut mark, "ttl")? })
}

pub(super) fn read_call(mut call: Object) -> Result<Part, Untranslatable> {
    if call.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "function") {
        return Ok(Part::new(Content::Other(call.into())));
    }
    call.shift_remove("type");
    let id = string(&mut call, "id")?.unwrap_or_default();
    let mut function =
        object(&mut call, "function")?.ok_or_else(|| Untranslatable::malformed("function", "is missing"))?;
    let name = within(|| "function".to_owned(), needed_string(&mut function, "name"))?;
    let arguments = match take(&mut function, "arguments") {
        None => String::new(),
        Some(Value::String(text)) => text,
        // Some copiers send the arguments as they would be after parsing.
        Some(value) => value.to_string(),
    };
    let signature = signature_of(&call);
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

pub(super) fn signature_of(call: &Object) -> Option<String> {
    let signature = call.get("extra_content")?.get("google")?.get("thought_signature")?;
    signature.as_str().map(str::to_owned)
}

fn read_tool(mut tool: Object) -> Result<Tool, Untranslatable> {
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        return Ok(Tool::Other(tool.into()));
    }
    tool.shift_remove("type");
    let mut function =
        object(&mut tool, "function")?.ok_or_else(|| Untranslatable::malformed("function", "is missing"))?;
    Ok(Tool::Function(Function {
        name: within(|| "function".to_owned(), needed_string(&mut function, "name"))?,
        description: string(&mut function, "description")?,
        parameters: take(&mut function, "parameters"),
        strict: boolean(&mut function, "strict")?,
        cache: object(&mut tool, "cache_control")?.map(read_cache).transpose()?,
        extra: tool,
    }))
}

fn read_tool_choice(choice: Value) -> Result<ToolChoice, Untranslatable> {
    let wrong = || Untranslatable::malformed("tool_choice", "is not a choice of tools");
    let choice = match choice {
        Value::String(word) => {
            return match &*word {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                // Mistral's word for the same.
                "required" | "any" => Ok(ToolChoice::Required),
                _ => Err(wrong()),
            };
        }
        Value::Object(choice) => choice,
        _ => return Err(wrong()),
    };
    let name_of = |value: &Value| Some(value.get("function")?.get("name")?.as_str()?.to_owned());
    let name = choice.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
    let choice = match (choice.get("type").and_then(Value::as_str), name) {
        (Some("function") | None, Some(name)) => ToolChoice::Tool(name.to_owned()),
        (Some("allowed_tools"), _) => {
            let allowed = choice.get("allowed_tools").and_then(Value::as_object).ok_or_else(wrong)?;
            let tools = allowed.get("tools").and_then(Value::as_array).ok_or_else(wrong)?;
            match tools.iter().map(name_of).collect::<Option<Vec<_>>>() {
                Some(names) => ToolChoice::Allowed {
                    names,
                    required: allowed.get("mode").and_then(Value::as_str) == Some("required"),
                },
                None => ToolChoice::Other(choice.into()),
            }
        }
        (Some("function") | None, None) => return Err(wrong()),
        _ => ToolChoice::Other(choice.into()),
    };
    Ok(choice)
}

fn read_output(mut format: Object) -> Result<OutputFormat, Untranslatable> {
    match &*needed_string(&mut format, "type")? {
        "text" => Ok(OutputFormat::Text),
        "json_object" => Ok(OutputFormat::JsonObject),
        "json_schema" => {
            let mut inner = object(&mut format, "json_schema")?
                .ok_or_else(|| Untranslatable::malformed("json_schema", "is missing"))?;
            let inner = &mut inner;
            Ok(OutputFormat::JsonSchema {
                name: string(inner, "name")?,
                description: string(inner, "description")?,
                schema: take(inner, "schema").unwrap_or_else(|| Value::Object(Map::new())),
                strict: boolean(inner, "strict")?,
            })
        }
        other => Err(Untranslatable::malformed("type", format!("`{other}` is not a format"))),
    }
}
