//! Decodes a caller's generateContent request. Google accepts field names in snake case too, so both are decoded.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value};

use super::super::{
    super::chat::{
        ChatRequest, Content, FunctionTool, Media, MediaKind, MediaSource, Message, OutputFormat, Part,
        Reasoning, Role, Tool, ToolCall, ToolChoice, ToolResult, TranslationError, WireFormat,
        generated_call_id,
    },
    json::{
        at_path, into_object, into_strings, require_string, take_array, take_bool, take_number, take_object,
        take_string, take_u64, take_value,
    },
    media::media_kind,
};

type Object = Map<String, Value>;

pub(super) fn decode_request(body: Object) -> Result<ChatRequest, TranslationError> {
    let mut body = camel_case_keys(body);
    let body = &mut body;
    let mut request = ChatRequest::new(WireFormat::Gemini);
    let mut calls = OpenCalls::default();
    if let Some(system) = take_value(body, "systemInstruction") {
        let system = match system {
            Value::String(text) => Message::text(Role::System, text),
            system => {
                let decoded = into_object(system, "").and_then(|system| decode_content(system, &mut calls));
                Message { role: Role::System, ..at_path(|| "systemInstruction".to_owned(), decoded)? }
            }
        };
        request.messages.push(system);
    }
    let contents = match take_value(body, "contents") {
        Some(Value::Array(contents)) => contents,
        Some(single @ Value::Object(_)) => vec![single],
        Some(_) => return Err(TranslationError::malformed("contents", "must be an array")),
        None => return Err(TranslationError::malformed("contents", "is required")),
    };
    for (at, content) in contents.into_iter().enumerate() {
        let decoded = into_object(content, "").and_then(|content| decode_content(content, &mut calls));
        request.messages.push(at_path(|| format!("contents.{at}"), decoded)?);
    }
    request.model = take_string(body, "model")?.unwrap_or_default();
    for (at, tool) in take_array(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        let decoded = into_object(tool, "").and_then(|tool| decode_tool(tool, &mut request.tools));
        at_path(|| format!("tools.{at}"), decoded)?;
    }
    if let Some(config) = take_object(body, "toolConfig")? {
        let mut config = camel_case_keys(config);
        if let Some(calling) = take_object(&mut config, "functionCallingConfig")? {
            request.tool_choice = decode_calling(camel_case_keys(calling))?;
        }
        if !config.is_empty() {
            body.insert("toolConfig".to_owned(), config.into());
        }
    }
    if let Some(config) = take_object(body, "generationConfig")? {
        let decoded = decode_config(camel_case_keys(config), &mut request);
        let rest = at_path(|| "generationConfig".to_owned(), decoded)?;
        body.extend(rest.into_iter().map(|(key, value)| (format!("generationConfig.{key}"), value)));
    }
    request.metadata = take_value(body, "labels");
    request.extra = std::mem::take(body);
    request.extra.retain(|_, value| !value.is_null());
    Ok(request)
}

/// Decodes the fields that the model has and returns the others.
fn decode_config(mut config: Object, request: &mut ChatRequest) -> Result<Object, TranslationError> {
    request.max_tokens = take_u64(&mut config, "maxOutputTokens")?;
    request.temperature = take_number(&mut config, "temperature")?;
    request.top_p = take_number(&mut config, "topP")?;
    request.top_k = take_number(&mut config, "topK")?;
    request.frequency_penalty = take_number(&mut config, "frequencyPenalty")?;
    request.presence_penalty = take_number(&mut config, "presencePenalty")?;
    request.seed = take_number(&mut config, "seed")?;
    request.n = take_u64(&mut config, "candidateCount")?;
    request.stop =
        into_strings(take_array(&mut config, "stopSequences")?.unwrap_or_default(), "stopSequences")?;
    request.logprobs = take_bool(&mut config, "responseLogprobs")?.unwrap_or(false);
    request.top_logprobs = take_u64(&mut config, "logprobs")?;
    let mime = take_string(&mut config, "responseMimeType")?;
    let schema = take_value(&mut config, "responseJsonSchema")
        .or(take_value(&mut config, "_responseJsonSchema"))
        .or(config.get("responseSchema").cloned().map(to_json_schema));
    request.output = match (mime.as_deref(), schema) {
        (_, Some(schema)) => {
            Some(OutputFormat::JsonSchema { name: None, description: None, schema, strict: None })
        }
        (Some("application/json"), None) => Some(OutputFormat::JsonObject),
        (Some("text/plain"), None) => Some(OutputFormat::Text),
        (None, None) => None,
        (Some(other), None) => {
            config.insert("responseMimeType".to_owned(), other.into());
            None
        }
    };
    if let Some(thinking) = take_object(&mut config, "thinkingConfig")? {
        request.reasoning =
            Some(at_path(|| "thinkingConfig".to_owned(), decode_thinking(camel_case_keys(thinking)))?);
    }
    // Text is the default, so requesting it changes nothing.
    if config.get("responseModalities").is_some_and(|kinds| *kinds == serde_json::json!(["TEXT"])) {
        config.shift_remove("responseModalities");
    }
    Ok(config)
}

fn decode_thinking(mut thinking: Object) -> Result<Reasoning, TranslationError> {
    let level = take_string(&mut thinking, "thinkingLevel")?.map(|level| level.to_ascii_lowercase());
    let include = take_bool(&mut thinking, "includeThoughts")?;
    // A budget of -1 lets the model decide.
    let budget = take_number(&mut thinking, "thinkingBudget")?;
    let budget = budget.filter(|budget| budget.as_i64() != Some(-1));
    let budget = budget.map(|budget| budget.as_u64().ok_or(budget)).transpose();
    let budget = budget
        .map_err(|_| TranslationError::malformed("thinkingBudget", "must be an integer of at least -1"))?;
    Ok(Reasoning {
        enabled: budget.map(|budget| budget > 0),
        effort: level,
        budget,
        display: include.map(|include| if include { "auto" } else { "omitted" }.to_owned()),
        extra: thinking,
    })
}

/// The tool calls of a conversation without a result so far. Assigns results to calls by id, or by name and order.
#[derive(Default)]
struct OpenCalls {
    /// The ids of all calls, and None for those that have a result.
    calls: Vec<Option<String>>,
    /// The numbers of calls by id and by name, in their order. A number may belong to a call with a result.
    by_id: HashMap<String, VecDeque<usize>>,
    by_name: HashMap<String, VecDeque<usize>>,
}

impl OpenCalls {
    fn register_call(&mut self, id: Option<String>, name: &str) -> String {
        let number = self.calls.len();
        let id = id
            .filter(|id| !id.is_empty())
            .unwrap_or_else(|| generated_call_id(0, u32::try_from(number).unwrap_or(u32::MAX)));
        self.by_id.entry(id.clone()).or_default().push_back(number);
        self.by_name.entry(name.to_owned()).or_default().push_back(number);
        self.calls.push(Some(id.clone()));
        id
    }

    fn resolve_result(&mut self, id: Option<String>, name: &str) -> String {
        let id = id.filter(|id| !id.is_empty());
        let numbers = match &id {
            Some(id) => self.by_id.get_mut(id),
            None => self.by_name.get_mut(name),
        };
        let mut numbers = numbers.into_iter().flat_map(|numbers| std::iter::from_fn(|| numbers.pop_front()));
        let open = numbers.find_map(|number| self.calls.get_mut(number)?.take());
        open.or(id).unwrap_or_else(|| name.to_owned())
    }
}

fn decode_content(content: Object, calls: &mut OpenCalls) -> Result<Message, TranslationError> {
    let mut content = camel_case_keys(content);
    let role = match take_string(&mut content, "role")?.as_deref() {
        None | Some("user" | "function" | "tool") => Role::User,
        Some("model" | "assistant") => Role::Assistant,
        Some("system") => Role::System,
        Some(other) => {
            return Err(TranslationError::malformed("role", format!("`{other}` is not a valid role")));
        }
    };
    let mut parts = Vec::new();
    for (at, part) in take_array(&mut content, "parts")?.unwrap_or_default().into_iter().enumerate() {
        let decoded = into_object(part, "").and_then(|part| decode_part(part, calls, &mut parts));
        at_path(|| format!("parts.{at}"), decoded)?;
    }
    let has_only_results =
        !parts.is_empty() && parts.iter().all(|part| matches!(part.content, Content::ToolResult(_)));
    let role = if has_only_results { Role::Tool } else { role };
    Ok(Message { extra: content, ..Message::new(role, parts) })
}

fn decode_part(part: Object, calls: &mut OpenCalls, parts: &mut Vec<Part>) -> Result<(), TranslationError> {
    let mut part = camel_case_keys(part);
    let thought = take_bool(&mut part, "thought")?.unwrap_or(false);
    let signature = take_string(&mut part, "thoughtSignature")?;
    let mut detached_signature = None;
    let content = if let Some(text) = take_string(&mut part, "text")? {
        if thought || (text.is_empty() && signature.is_some()) {
            Content::Thinking { text, signature }
        } else {
            detached_signature = signature;
            Content::Text(text)
        }
    } else if let Some(mut call) = take_object(&mut part, "functionCall")? {
        let name = at_path(|| "functionCall".to_owned(), require_string(&mut call, "name"))?;
        let id = calls.register_call(take_string(&mut call, "id")?, &name);
        let arguments =
            take_value(&mut call, "args").map_or_else(|| "{}".to_owned(), |args| args.to_string());
        Content::ToolCall(ToolCall { id, name, arguments, signature })
    } else if let Some(response) = take_object(&mut part, "functionResponse")? {
        detached_signature = signature;
        at_path(|| "functionResponse".to_owned(), decode_result(camel_case_keys(response), calls))?
    } else if let Some(media) = decode_media(&mut part)? {
        detached_signature = signature;
        Content::Media(media)
    } else {
        if let Some(signature) = signature {
            part.insert("thoughtSignature".to_owned(), signature.into());
        }
        parts.push(Part::new(Content::Other(part.into())));
        return Ok(());
    };
    parts.push(Part { content, cache: None, extra: part });
    parts.extend(
        detached_signature.map(|signature| {
            Part::new(Content::Thinking { text: String::new(), signature: Some(signature) })
        }),
    );
    Ok(())
}

fn decode_result(mut response: Object, calls: &mut OpenCalls) -> Result<Content, TranslationError> {
    let name = require_string(&mut response, "name")?;
    let id = calls.resolve_result(take_string(&mut response, "id")?, &name);
    let value = take_value(&mut response, "response").unwrap_or_else(|| Value::Object(Map::new()));
    let is_error = value.as_object().is_some_and(|value| value.len() == 1 && value.contains_key("error"));
    let mut parts = vec![Part::new(Content::Json(value))];
    for part in take_array(&mut response, "parts")?.unwrap_or_default() {
        let mut part = camel_case_keys(into_object(part, "parts")?);
        parts.extend(decode_media(&mut part)?.map(|media| Part::new(Content::Media(media))));
    }
    Ok(Content::ToolResult(ToolResult {
        id,
        name: Some(name),
        parts,
        is_string: false,
        is_error: is_error.then_some(true),
    }))
}

fn decode_media(part: &mut Object) -> Result<Option<Media>, TranslationError> {
    if let Some(data) = take_object(part, "inlineData")? {
        let mut data = camel_case_keys(data);
        let mime = require_string(&mut data, "mimeType")?;
        let name = take_string(&mut data, "displayName")?;
        let kind = media_kind(&mime);
        let source = MediaSource::Base64 { mime, data: require_string(&mut data, "data")? };
        return Ok(Some(Media { kind, source, name, detail: None }));
    }
    // Other providers cannot read files in Google's storage, so such a part exists for Gemini only.
    let url = part.get("fileData").and_then(|file| file.get("fileUri").or(file.get("file_uri"))?.as_str());
    if url.is_some_and(|url| url.starts_with("gs://") || url.contains("generativelanguage.googleapis.com")) {
        return Ok(None);
    }
    if let Some(file) = take_object(part, "fileData")? {
        let mut file = camel_case_keys(file);
        let mime = take_string(&mut file, "mimeType")?;
        let name = take_string(&mut file, "displayName")?;
        let url = require_string(&mut file, "fileUri")?;
        let kind = mime.as_deref().map_or(MediaKind::Document, media_kind);
        return Ok(Some(Media { kind, source: MediaSource::Url { url, mime }, name, detail: None }));
    }
    Ok(None)
}

fn decode_tool(tool: Object, tools: &mut Vec<Tool>) -> Result<(), TranslationError> {
    let mut tool = camel_case_keys(tool);
    for function in take_array(&mut tool, "functionDeclarations")?.unwrap_or_default() {
        let mut function = camel_case_keys(into_object(function, "functionDeclarations")?);
        let name = require_string(&mut function, "name")?;
        let description = take_string(&mut function, "description")?;
        let parameters = take_value(&mut function, "parametersJsonSchema")
            .or(function.get("parameters").cloned().map(to_json_schema));
        let function =
            FunctionTool { name, description, parameters, strict: None, cache: None, extra: function };
        tools.push(Tool::Function(function));
    }
    if !tool.is_empty() {
        tools.push(Tool::Other(tool.into()));
    }
    Ok(())
}

fn decode_calling(mut calling: Object) -> Result<Option<ToolChoice>, TranslationError> {
    let names = take_array(&mut calling, "allowedFunctionNames")?.unwrap_or_default();
    let mut names = into_strings(names, "toolConfig.functionCallingConfig.allowedFunctionNames")?;
    let mode = take_string(&mut calling, "mode")?.unwrap_or_default().to_ascii_uppercase();
    Ok(match (&*mode, names.len()) {
        ("NONE", _) => Some(ToolChoice::None),
        ("ANY", 0) => Some(ToolChoice::Required),
        ("ANY", 1) => names.pop().map(ToolChoice::Tool),
        ("ANY", _) => Some(ToolChoice::Allowed { names, required: true }),
        ("" | "MODE_UNSPECIFIED", 0) => None,
        (_, 0) => Some(ToolChoice::Auto),
        (_, _) => Some(ToolChoice::Allowed { names, required: false }),
    })
}

/// Converts the keys of an object to camel case. Only for objects whose keys Google defines, not for caller data.
fn camel_case_keys(object: Object) -> Object {
    if !object.keys().any(|key| key[1.min(key.len())..].contains('_')) {
        return object;
    }
    object.into_iter().map(|(key, value)| (to_camel_case(&key), value)).collect()
}

fn to_camel_case(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut uppercase_next = false;
    for (at, letter) in word.chars().enumerate() {
        if letter == '_' && at > 0 {
            uppercase_next = true;
        } else if std::mem::take(&mut uppercase_next) {
            out.extend(letter.to_uppercase());
        } else {
            out.push(letter);
        }
    }
    out
}

/// Converts Google's schema dialect to JSON Schema. Google's type names are upper case, and `nullable` is a separate
/// field.
fn to_json_schema(schema: Value) -> Value {
    match schema {
        Value::Object(schema) => {
            let mut converted = Object::new();
            let mut nullable = false;
            for (key, value) in camel_case_keys(schema) {
                match (&*key, value) {
                    ("type", Value::String(kind)) => {
                        converted.insert(key, kind.to_ascii_lowercase().into());
                    }
                    ("nullable", value) => nullable = value == Value::Bool(true),
                    ("propertyOrdering", _) => {}
                    ("properties", Value::Object(properties)) => {
                        let properties: Object = properties
                            .into_iter()
                            .map(|(name, schema)| (name, to_json_schema(schema)))
                            .collect();
                        converted.insert(key, properties.into());
                    }
                    (
                        "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
                        | "maxProperties",
                        Value::String(count),
                    ) => {
                        // Google's JSON encodes 64-bit integers as strings.
                        let count = count.parse::<u64>().map_or_else(|_| Value::from(&*count), Value::from);
                        converted.insert(key, count);
                    }
                    ("items" | "anyOf" | "additionalProperties", value) => {
                        converted.insert(key, to_json_schema(value));
                    }
                    (_, value) => {
                        converted.insert(key, value);
                    }
                }
            }
            if nullable && let Some(kind) = converted.get_mut("type") {
                *kind = serde_json::json!([kind.take(), "null"]);
            }
            converted.into()
        }
        Value::Array(schemas) => schemas.into_iter().map(to_json_schema).collect(),
        other => other,
    }
}
