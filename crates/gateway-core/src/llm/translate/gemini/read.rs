//! A caller's request to generate content. Google takes names in snake case as well, so both are read.

use serde_json::{Map, Value};

use super::super::{
    super::chat::{
        Content, Function, Media, MediaKind, Message, OutputFormat, Part, Reasoning, Request, Role, Source,
        Tool, ToolCall, ToolChoice, ToolResult, Untranslatable, Wire, call_id,
    },
    json::{boolean, element, list, needed_string, number, object, string, strings, take, whole, within},
    media::kind_of_mime,
};

type Object = Map<String, Value>;

pub(super) fn read_request(body: Object) -> Result<Request, Untranslatable> {
    let mut body = camel(body);
    let body = &mut body;
    let mut request = Request::new(Wire::Gemini);
    let mut calls = Calls::default();
    if let Some(system) = take(body, "systemInstruction") {
        let system = match system {
            Value::String(text) => Message::text(Role::System, text),
            system => {
                let read = element(system, "").and_then(|system| read_content(system, &mut calls));
                Message { role: Role::System, ..within(|| "systemInstruction".to_owned(), read)? }
            }
        };
        request.messages.push(system);
    }
    let contents = match take(body, "contents") {
        Some(Value::Array(contents)) => contents,
        Some(one @ Value::Object(_)) => vec![one],
        Some(_) => return Err(Untranslatable::malformed("contents", "must be a list")),
        None => return Err(Untranslatable::malformed("contents", "is missing")),
    };
    for (at, content) in contents.into_iter().enumerate() {
        let read = element(content, "").and_then(|content| read_content(content, &mut calls));
        request.messages.push(within(|| format!("contents.{at}"), read)?);
    }
    request.model = string(body, "model")?.unwrap_or_default();
    for (at, tool) in list(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        let read = element(tool, "").and_then(|tool| read_tool(tool, &mut request.tools));
        within(|| format!("tools.{at}"), read)?;
    }
    if let Some(config) = object(body, "toolConfig")? {
        let mut config = camel(config);
        if let Some(calling) = object(&mut config, "functionCallingConfig")? {
            request.tool_choice = read_calling(camel(calling))?;
        }
        if !config.is_empty() {
            body.insert("toolConfig".to_owned(), config.into());
        }
    }
    if let Some(config) = object(body, "generationConfig")? {
        let read = read_config(camel(config), &mut request);
        let rest = within(|| "generationConfig".to_owned(), read)?;
        body.extend(rest.into_iter().map(|(key, value)| (format!("generationConfig.{key}"), value)));
    }
    request.metadata = take(body, "labels");
    request.extra = std::mem::take(body);
    request.extra.retain(|_, value| !value.is_null());
    Ok(request)
}

/// Reads what the model has a place for and returns the rest.
fn read_config(mut config: Object, request: &mut Request) -> Result<Object, Untranslatable> {
    request.max_tokens = whole(&mut config, "maxOutputTokens")?;
    request.temperature = number(&mut config, "temperature")?;
    request.top_p = number(&mut config, "topP")?;
    request.top_k = number(&mut config, "topK")?;
    request.frequency_penalty = number(&mut config, "frequencyPenalty")?;
    request.presence_penalty = number(&mut config, "presencePenalty")?;
    request.seed = number(&mut config, "seed")?;
    request.n = whole(&mut config, "candidateCount")?;
    request.stop = strings(list(&mut config, "stopSequences")?.unwrap_or_default(), "stopSequences")?;
    request.logprobs = boolean(&mut config, "responseLogprobs")?.unwrap_or(false);
    request.top_logprobs = whole(&mut config, "logprobs")?;
    let mime = string(&mut config, "responseMimeType")?;
    let schema = take(&mut config, "responseJsonSchema")
        .or(take(&mut config, "_responseJsonSchema"))
        .or(config.get("responseSchema").cloned().map(plain_schema));
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
    if let Some(thinking) = object(&mut config, "thinkingConfig")? {
        request.reasoning = Some(within(|| "thinkingConfig".to_owned(), read_thinking(camel(thinking)))?);
    }
    // Text is what all answers are made of.
    if config.get("responseModalities").is_some_and(|kinds| *kinds == serde_json::json!(["TEXT"])) {
        config.shift_remove("responseModalities");
    }
    Ok(config)
}

fn read_thinking(mut thinking: Object) -> Result<Reasoning, Untranslatable> {
    let level = string(&mut thinking, "thinkingLevel")?.map(|level| level.to_ascii_lowercase());
    let show = boolean(&mut thinking, "includeThoughts")?;
    // A budget of -1 leaves it to the model.
    let budget = number(&mut thinking, "thinkingBudget")?;
    let budget = budget.filter(|budget| budget.as_i64() != Some(-1));
    let budget = budget.map(|budget| budget.as_u64().ok_or(budget)).transpose();
    let budget = budget.map_err(|_| Untranslatable::malformed("thinkingBudget", "must be a whole number"))?;
    Ok(Reasoning {
        enabled: budget.map(|budget| budget > 0),
        effort: level,
        budget,
        show: show.map(|show| if show { "auto" } else { "omitted" }.to_owned()),
        extra: thinking,
    })
}

/// The calls of a conversation so far, so that results can be told which of them they answer.
#[derive(Default)]
struct Calls {
    open: Vec<(String, String)>,
    count: u32,
}

impl Calls {
    fn made(&mut self, id: Option<String>, name: &str) -> String {
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| call_id(0, self.count));
        self.count += 1;
        self.open.push((id.clone(), name.to_owned()));
        id
    }

    fn answered(&mut self, id: Option<String>, name: &str) -> String {
        let id = id.filter(|id| !id.is_empty());
        let matches = |(known, called): &(String, String)| match &id {
            Some(id) => known == id,
            None => called == name,
        };
        match self.open.iter().position(matches) {
            Some(at) => self.open.remove(at).0,
            None => id.unwrap_or_else(|| name.to_owned()),
        }
    }
}

fn read_content(content: Object, calls: &mut Calls) -> Result<Message, Untranslatable> {
    let mut content = camel(content);
    let role = match string(&mut content, "role")?.as_deref() {
        None | Some("user" | "function" | "tool") => Role::User,
        Some("model" | "assistant") => Role::Assistant,
        Some("system") => Role::System,
        Some(other) => return Err(Untranslatable::malformed("role", format!("`{other}` is not a role"))),
    };
    let mut parts = Vec::new();
    for (at, part) in list(&mut content, "parts")?.unwrap_or_default().into_iter().enumerate() {
        let read = element(part, "").and_then(|part| read_part(part, calls, &mut parts));
        within(|| format!("parts.{at}"), read)?;
    }
    let answers =
        !parts.is_empty() && parts.iter().all(|part| matches!(part.content, Content::ToolResult(_)));
    let role = if answers { Role::Tool } else { role };
    Ok(Message { extra: content, ..Message::new(role, parts) })
}

fn read_part(part: Object, calls: &mut Calls, parts: &mut Vec<Part>) -> Result<(), Untranslatable> {
    let mut part = camel(part);
    let thought = boolean(&mut part, "thought")?.unwrap_or(false);
    let signature = string(&mut part, "thoughtSignature")?;
    let mut unsigned = None;
    let content = if let Some(text) = string(&mut part, "text")? {
        if thought || (text.is_empty() && signature.is_some()) {
            Content::Thinking { text, signature }
        } else {
            unsigned = signature;
            Content::Text(text)
        }
    } else if let Some(mut call) = object(&mut part, "functionCall")? {
        let name = within(|| "functionCall".to_owned(), needed_string(&mut call, "name"))?;
        let id = calls.made(string(&mut call, "id")?, &name);
        let arguments = take(&mut call, "args").map_or_else(|| "{}".to_owned(), |args| args.to_string());
        Content::ToolCall(ToolCall { id, name, arguments, signature })
    } else if let Some(response) = object(&mut part, "functionResponse")? {
        unsigned = signature;
        within(|| "functionResponse".to_owned(), read_result(camel(response), calls))?
    } else if let Some(media) = read_media(&mut part)? {
        unsigned = signature;
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
        unsigned.map(|mark| Part::new(Content::Thinking { text: String::new(), signature: Some(mark) })),
    );
    Ok(())
}

fn read_result(mut response: Object, calls: &mut Calls) -> Result<Content, Untranslatable> {
    let name = needed_string(&mut response, "name")?;
    let id = calls.answered(string(&mut response, "id")?, &name);
    let value = take(&mut response, "response").unwrap_or_else(|| Value::Object(Map::new()));
    let is_error = value.as_object().is_some_and(|value| value.len() == 1 && value.contains_key("error"));
    let mut parts = vec![Part::new(Content::Json(value))];
    for part in list(&mut response, "parts")?.unwrap_or_default() {
        let mut part = camel(element(part, "parts")?);
        parts.extend(read_media(&mut part)?.map(|media| Part::new(Content::Media(media))));
    }
    Ok(Content::ToolResult(ToolResult {
        id,
        name: Some(name),
        parts,
        bare: false,
        is_error: is_error.then_some(true),
    }))
}

fn read_media(part: &mut Object) -> Result<Option<Media>, Untranslatable> {
    if let Some(data) = object(part, "inlineData")? {
        let mut data = camel(data);
        let mime = needed_string(&mut data, "mimeType")?;
        let name = string(&mut data, "displayName")?;
        let kind = kind_of_mime(&mime);
        let source = Source::Base64 { mime, data: needed_string(&mut data, "data")? };
        return Ok(Some(Media { kind, source, name, detail: None }));
    }
    // What was uploaded to Google, or lies in its buckets, can be read by nobody else: it stays a part of Google's.
    let url = part.get("fileData").and_then(|file| file.get("fileUri").or(file.get("file_uri"))?.as_str());
    if url.is_some_and(|url| url.starts_with("gs://") || url.contains("generativelanguage.googleapis.com")) {
        return Ok(None);
    }
    if let Some(file) = object(part, "fileData")? {
        let mut file = camel(file);
        let mime = string(&mut file, "mimeType")?;
        let name = string(&mut file, "displayName")?;
        let url = needed_string(&mut file, "fileUri")?;
        let kind = mime.as_deref().map_or(MediaKind::Document, kind_of_mime);
        return Ok(Some(Media { kind, source: Source::Url { url, mime }, name, detail: None }));
    }
    Ok(None)
}

fn read_tool(tool: Object, tools: &mut Vec<Tool>) -> Result<(), Untranslatable> {
    let mut tool = camel(tool);
    for function in list(&mut tool, "functionDeclarations")?.unwrap_or_default() {
        let mut function = camel(element(function, "functionDeclarations")?);
        let name = needed_string(&mut function, "name")?;
        let description = string(&mut function, "description")?;
        let parameters = take(&mut function, "parametersJsonSchema")
            .or(function.get("parameters").cloned().map(plain_schema));
        let function = Function { name, description, parameters, strict: None, cache: None, extra: function };
        tools.push(Tool::Function(function));
    }
    if !tool.is_empty() {
        tools.push(Tool::Other(tool.into()));
    }
    Ok(())
}

fn read_calling(mut calling: Object) -> Result<Option<ToolChoice>, Untranslatable> {
    let names = list(&mut calling, "allowedFunctionNames")?.unwrap_or_default();
    let mut names = strings(names, "toolConfig.functionCallingConfig.allowedFunctionNames")?;
    let mode = string(&mut calling, "mode")?.unwrap_or_default().to_ascii_uppercase();
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

/// Names of members in camel case. Only for objects whose members Google names, not for those that callers name.
fn camel(object: Object) -> Object {
    if !object.keys().any(|key| key[1.min(key.len())..].contains('_')) {
        return object;
    }
    object.into_iter().map(|(key, value)| (camel_word(&key), value)).collect()
}

fn camel_word(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut up = false;
    for (at, letter) in word.chars().enumerate() {
        if letter == '_' && at > 0 {
            up = true;
        } else if std::mem::take(&mut up) {
            out.extend(letter.to_uppercase());
        } else {
            out.push(letter);
        }
    }
    out
}

/// Google's own schemas as JSON schemas: its names of types are written in capitals, and `nullable` stands for a type.
fn plain_schema(schema: Value) -> Value {
    match schema {
        Value::Object(schema) => {
            let mut plain = Object::new();
            let mut nullable = false;
            for (key, value) in camel(schema) {
                match (&*key, value) {
                    ("type", Value::String(kind)) => {
                        plain.insert(key, kind.to_ascii_lowercase().into());
                    }
                    ("nullable", value) => nullable = value == Value::Bool(true),
                    ("propertyOrdering", _) => {}
                    ("properties", Value::Object(properties)) => {
                        let properties: Object = properties
                            .into_iter()
                            .map(|(name, schema)| (name, plain_schema(schema)))
                            .collect();
                        plain.insert(key, properties.into());
                    }
                    (
                        "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
                        | "maxProperties",
                        Value::String(count),
                    ) => {
                        // Google's JSON writes its longest whole numbers as texts.
                        let count = count.parse::<u64>().map_or_else(|_| Value::from(&*count), Value::from);
                        plain.insert(key, count);
                    }
                    ("items" | "anyOf" | "additionalProperties", value) => {
                        plain.insert(key, plain_schema(value));
                    }
                    (_, value) => {
                        plain.insert(key, value);
                    }
                }
            }
            if nullable && let Some(kind) = plain.get_mut("type") {
                *kind = serde_json::json!([kind.take(), "null"]);
            }
            plain.into()
        }
        Value::Array(schemas) => schemas.into_iter().map(plain_schema).collect(),
        other => other,
    }
}
