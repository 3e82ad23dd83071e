//! A chat request for a provider.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            Cache, Content, Field, Function, Losses, Media, MediaKind, Message, OutputFormat, Part, Place,
            Reasoning, Request, Role, Source, Tool, ToolCall, ToolChoice, ToolResult, Untranslatable, Wire,
        },
        common::short_user,
        json::set,
        media::{data_url, short_format},
    },
    answer::details_of,
};

type Object = Map<String, Value>;

pub(super) fn write_request(mut request: Request, losses: &mut Losses) -> Result<Value, Untranslatable> {
    let own = request.wire == Wire::OpenAiChat;
    let mut body = Object::new();
    let mut messages = Vec::with_capacity(request.messages.len());
    let mut writer = MessageWriter { own, losses, messages: &mut messages, later: Vec::new() };
    for message in std::mem::take(&mut request.messages) {
        writer.message(message)?;
    }
    writer.flush();
    body.insert("model".to_owned(), std::mem::take(&mut request.model).into());
    body.insert("messages".to_owned(), messages.into());
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    let mut stream_options = match request.extra.shift_remove("stream_options") {
        Some(Value::Object(options)) if own => options,
        _ => Object::new(),
    };
    if request.include_usage {
        stream_options.insert("include_usage".to_owned(), true.into());
    }
    if !stream_options.is_empty() {
        body.insert("stream_options".to_owned(), stream_options.into());
    }
    write_tools(&mut body, &mut request, losses)?;
    set(&mut body, "response_format", request.output.take().map(|output| write_output(output, own)));
    let model = body["model"].as_str().unwrap_or_default();
    let old_limit = if own { request.old_limit } else { !takes_new_limit(model) };
    let limit = if old_limit { "max_tokens" } else { "max_completion_tokens" };
    set(&mut body, limit, request.max_tokens);
    if !own && takes_new_limit(body["model"].as_str().unwrap_or_default()) {
        leave_out_sampling(&mut request, losses);
    }
    set(&mut body, "temperature", request.temperature);
    set(&mut body, "top_p", request.top_p);
    if own {
        set(&mut body, "top_k", request.top_k);
    } else if request.top_k.is_some() {
        losses.drop(Field::TopK);
    }
    set(&mut body, "frequency_penalty", request.frequency_penalty);
    set(&mut body, "presence_penalty", request.presence_penalty);
    set(&mut body, "stop", (!request.stop.is_empty()).then_some(request.stop));
    set(&mut body, "seed", request.seed);
    set(&mut body, "n", request.n);
    set(&mut body, "logprobs", request.logprobs.then_some(true));
    set(&mut body, "top_logprobs", request.top_logprobs);
    set(&mut body, "logit_bias", request.logit_bias);
    if let Some(reasoning) = &request.reasoning {
        write_reasoning(&mut body, reasoning, own, losses);
    }
    set(&mut body, "user", if own { request.user } else { short_user(request.user, losses) });
    // Other formats have fields of these names with other meanings.
    if matches!(request.wire, Wire::OpenAiChat | Wire::OpenAiResponses) {
        set(&mut body, "metadata", request.metadata);
        set(&mut body, "service_tier", request.service_tier);
    } else {
        if request.metadata.is_some() {
            losses.drop(Field::Metadata);
        }
        if request.service_tier.is_some_and(|tier| tier != "auto") {
            losses.drop(Field::ServiceTier);
        }
    }
    set(&mut body, "store", request.store);
    set(&mut body, "prompt_cache_key", request.prompt_cache_key);
    set(&mut body, "verbosity", request.verbosity);
    if own {
        body.append(&mut request.extra);
    } else {
        losses.drop_extra(Place::Request, &request.extra);
    }
    Ok(body.into())
}

/// OpenAI's reasoning models refuse the old name of the limit; most copiers know no other.
fn takes_new_limit(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let mut letters = model.chars();
    let o_series = letters.next() == Some('o') && letters.next().is_some_and(|digit| digit.is_ascii_digit());
    o_series || model.starts_with("gpt-5") || model.starts_with("gpt-6")
}

/// OpenAI's reasoning models refuse every value but the usual one.
fn leave_out_sampling(request: &mut Request, losses: &mut Losses) {
    for (value, usual, field) in [
        (&mut request.temperature, 1.0, Field::Temperature),
        (&mut request.top_p, 1.0, Field::TopP),
        (&mut request.frequency_penalty, 0.0, Field::FrequencyPenalty),
        (&mut request.presence_penalty, 0.0, Field::PresencePenalty),
    ] {
        if value.take().is_some_and(|value| value.as_f64() != Some(usual)) {
            losses.drop(field);
        }
    }
}

fn write_reasoning(body: &mut Object, reasoning: &Reasoning, own: bool, losses: &mut Losses) {
    let model = body["model"].as_str().unwrap_or_default();
    let model = model.rsplit('/').next().unwrap_or(model);
    let thinks = !["gpt-3", "gpt-4", "chatgpt-"].iter().any(|prefix| model.starts_with(prefix));
    let effort = match reasoning.effort_or_budget() {
        effort @ Some(_) if own => effort,
        // Not to think is what most models do anyway, and what some refuse to be told.
        Some("none") => None,
        Some("max") => Some("xhigh"),
        Some(effort) if thinks => Some(effort),
        _ => None,
    };
    if effort.is_none() {
        losses.drop(Field::Reasoning);
    }
    set(body, "reasoning_effort", effort);
    losses.drop_extra(Place::Reasoning, &reasoning.extra);
}

fn write_tools(body: &mut Object, request: &mut Request, losses: &mut Losses) -> Result<(), Untranslatable> {
    let own = request.wire == Wire::OpenAiChat;
    let mut tools = Vec::with_capacity(request.tools.len());
    for tool in std::mem::take(&mut request.tools) {
        match tool {
            Tool::Function(function) => tools.push(write_function(function, own, losses)),
            Tool::Other(value) if own => tools.push(value),
            Tool::Other(_) => {
                return Err(losses.refuse(Field::Tool, "only function tools can be used with this provider"));
            }
        }
    }
    let any = !tools.is_empty();
    set(body, "tools", any.then_some(tools));
    if let Some(choice) = request.tool_choice.take() {
        let choice = match choice {
            ToolChoice::Auto => "auto".into(),
            ToolChoice::None => "none".into(),
            ToolChoice::Required => "required".into(),
            ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
            ToolChoice::Allowed { names, required } => {
                let tools: Vec<Value> = names
                    .into_iter()
                    .map(|name| json!({"type": "function", "function": {"name": name}}))
                    .collect();
                let mode = if required { "required" } else { "auto" };
                json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
            }
            ToolChoice::Other(value) if own => value,
            ToolChoice::Other(_) => {
                return Err(losses.refuse(Field::ToolChoice, "cannot be expressed for this provider"));
            }
        };
        // A choice without tools is refused by OpenAI and means nothing.
        if any || own {
            body.insert("tool_choice".to_owned(), choice);
        }
    }
    set(body, "parallel_tool_calls", request.parallel_tool_calls.take().filter(|_| any || own));
    Ok(())
}

fn write_function(function: Function, own: bool, losses: &mut Losses) -> Value {
    let mut inner = Object::new();
    inner.insert("name".to_owned(), function.name.into());
    set(&mut inner, "description", function.description);
    set(&mut inner, "parameters", function.parameters);
    set(&mut inner, "strict", function.strict);
    let mut tool = Object::new();
    tool.insert("type".to_owned(), "function".into());
    tool.insert("function".to_owned(), inner.into());
    finish(&mut tool, function.cache, function.extra, own, Place::Tool, losses);
    tool.into()
}

/// Adds what only callers of the same format may send.
fn finish(
    object: &mut Object,
    cache: Option<Cache>,
    mut extra: Object,
    own: bool,
    place: Place,
    losses: &mut Losses,
) {
    if own {
        if let Some(cache) = cache {
            let mut mark = Object::new();
            mark.insert("type".to_owned(), "ephemeral".into());
            set(&mut mark, "ttl", cache.ttl);
            object.insert("cache_control".to_owned(), mark.into());
        }
        object.append(&mut extra);
        return;
    }
    match cache {
        Some(_) if place == Place::Tool => losses.drop_key(place, "cache_control"),
        Some(_) => losses.drop(Field::CacheControl),
        None => {}
    }
    losses.drop_extra(place, &extra);
}

fn write_output(output: OutputFormat, own: bool) -> Value {
    match output {
        OutputFormat::Text => json!({"type": "text"}),
        OutputFormat::JsonObject => json!({"type": "json_object"}),
        OutputFormat::JsonSchema { name, description, schema, strict } => {
            let mut inner = Object::new();
            inner.insert("name".to_owned(), name.unwrap_or_else(|| "output".to_owned()).into());
            set(&mut inner, "description", description);
            // Other formats always keep to a schema; OpenAI only when told to, and only to such schemas.
            let strict = strict.or((!own && is_strict(&schema)).then_some(true));
            inner.insert("schema".to_owned(), schema);
            set(&mut inner, "strict", strict);
            json!({"type": "json_schema", "json_schema": inner})
        }
    }
}

/// Whether a schema is of the kind that OpenAI can guarantee: no object leaves anything open.
fn is_strict(schema: &Value) -> bool {
    let closed = |object: &Object| match object.get("properties").and_then(Value::as_object) {
        None => object.get("type").and_then(Value::as_str) != Some("object"),
        Some(properties) => {
            let required = object.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            object.get("additionalProperties") == Some(&Value::Bool(false))
                && properties.keys().all(|key| required.iter().any(|name| name == key))
        }
    };
    match schema {
        Value::Object(object) => closed(object) && object.values().all(is_strict),
        Value::Array(list) => list.iter().all(is_strict),
        _ => true,
    }
}

struct MessageWriter<'a> {
    own: bool,
    losses: &'a mut Losses,
    messages: &'a mut Vec<Value>,
    /// Media of tool results, which may only stand in a user's message behind all results.
    later: Vec<Value>,
}

impl MessageWriter<'_> {
    fn message(&mut self, message: Message) -> Result<(), Untranslatable> {
        let Message { role, parts, bare, name, extra } = message;
        let mut content = Vec::with_capacity(parts.len());
        let mut beside = Object::new();
        let mut calls = Vec::new();
        let mut thoughts = Vec::new();
        let mut refusal: Option<String> = None;
        let mut answered = false;
        for part in parts {
            match part.content {
                Content::ToolResult(result) => {
                    answered = true;
                    let extra = if role == Role::Tool { extra.clone() } else { part.extra };
                    self.result(result, part.cache, extra)?;
                }
                Content::ToolCall(call) => calls.push(self.call(call, part.cache, part.extra)),
                Content::Thinking { .. } | Content::Redacted(_) if self.own => thoughts.push(part),
                Content::Thinking { .. } => self.losses.drop(Field::Thinking),
                Content::Redacted(_) => self.losses.drop(Field::Redacted),
                Content::Refusal(text) if role == Role::Assistant => {
                    refusal.get_or_insert_default().push_str(&text);
                }
                _ => content.push(self.part(part)?),
            }
        }
        if role == Role::Tool || (answered && content.is_empty() && calls.is_empty()) {
            return Ok(());
        }
        self.flush();
        let mut written = Object::new();
        let role_name = match role {
            Role::System => "system",
            Role::Developer => "developer",
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        written.insert("role".to_owned(), role_name.into());
        written.insert("content".to_owned(), self.content(role, content, bare));
        if !thoughts.is_empty() {
            let (text, details) = details_of(&thoughts);
            set(&mut beside, "reasoning_content", text);
            set(&mut beside, "reasoning_details", details);
        }
        set(&mut beside, "refusal", refusal);
        set(&mut beside, "tool_calls", (!calls.is_empty()).then_some(calls));
        set(&mut beside, "name", name);
        written.append(&mut beside);
        finish(&mut written, None, extra, self.own, Place::Message, self.losses);
        self.messages.push(written.into());
        Ok(())
    }

    /// Copiers often take nothing but a bare text, so that is what everything made of text alone becomes.
    fn content(&self, role: Role, mut content: Vec<Value>, bare: bool) -> Value {
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        if content.is_empty() {
            return if role == Role::Assistant { Value::Null } else { "".into() };
        }
        let single = content.len() == 1;
        if self.own {
            return match content.first_mut() {
                Some(part) if bare && single => part["text"].take(),
                _ => content.into(),
            };
        }
        let joined = match role {
            Role::System | Role::Developer => Some("\n\n"),
            Role::Assistant => Some(""),
            _ if single => Some(""),
            _ => None,
        };
        let texts: Option<Vec<String>> = content.iter().map(text).collect();
        match (joined, texts) {
            (Some(separator), Some(texts)) => texts.join(separator).into(),
            _ => content.into(),
        }
    }

    fn result(
        &mut self,
        result: ToolResult,
        cache: Option<Cache>,
        extra: Object,
    ) -> Result<(), Untranslatable> {
        if result.is_error == Some(true) {
            self.losses.drop(Field::ToolResultError);
        }
        let mut texts = Vec::with_capacity(result.parts.len());
        for part in result.parts {
            let written = self.part(part)?;
            if written.get("text").is_some() { texts.push(written) } else { self.later.push(written) }
        }
        let content = if self.own && !result.bare {
            texts.into()
        } else {
            let texts: Vec<&str> = texts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n").into()
        };
        let mut message = Object::new();
        message.insert("role".to_owned(), "tool".into());
        message.insert("tool_call_id".to_owned(), result.id.into());
        message.insert("content".to_owned(), content);
        finish(&mut message, cache, extra, self.own, Place::Message, self.losses);
        self.messages.push(message.into());
        Ok(())
    }

    fn call(&mut self, call: ToolCall, cache: Option<Cache>, extra: Object) -> Value {
        let mut written = Object::new();
        written.insert("id".to_owned(), call.id.into());
        written.insert("type".to_owned(), "function".into());
        let arguments = if call.arguments.is_empty() && !self.own { "{}".to_owned() } else { call.arguments };
        written.insert("function".to_owned(), json!({"name": call.name, "arguments": arguments}));
        if let Some(signature) = call.signature {
            let content = json!({"google": {"thought_signature": signature}});
            written.insert("extra_content".to_owned(), content);
        }
        finish(&mut written, cache, extra, self.own, Place::Part, self.losses);
        written.into()
    }

    fn part(&mut self, part: Part) -> Result<Value, Untranslatable> {
        let mut written = Object::new();
        let mut put = |kind: &str, key: &str, value: Value| {
            written.insert("type".to_owned(), kind.into());
            written.insert(key.to_owned(), value);
        };
        match part.content {
            Content::Text(text) => put("text", "text", text.into()),
            Content::Json(value) => put("text", "text", value.to_string().into()),
            Content::Refusal(text) => put("refusal", "refusal", text.into()),
            Content::Media(media) => {
                let (kind, key, value) = self.media(media)?;
                put(kind, key, value);
            }
            Content::Other(value) if self.own => return Ok(value),
            _ => return Err(self.losses.refuse(Field::Part, "this kind of content cannot be translated")),
        }
        finish(&mut written, part.cache, part.extra, self.own, Place::Part, self.losses);
        Ok(written.into())
    }

    fn media(&mut self, media: Media) -> Result<(&'static str, &'static str, Value), Untranslatable> {
        let Media { kind, source, name, detail } = media;
        match (kind, source) {
            (MediaKind::Image, Source::Url { url, .. }) => {
                let mut image = Object::new();
                image.insert("url".to_owned(), url.into());
                set(&mut image, "detail", detail);
                Ok(("image_url", "image_url", image.into()))
            }
            (MediaKind::Image, Source::Base64 { mime, data }) => {
                let mut image = Object::new();
                image.insert("url".to_owned(), data_url(&mime, &data).into());
                set(&mut image, "detail", detail);
                Ok(("image_url", "image_url", image.into()))
            }
            (MediaKind::Audio, Source::Base64 { mime, data }) => {
                Ok(("input_audio", "input_audio", json!({"data": data, "format": short_format(&mime)})))
            }
            (MediaKind::Document, Source::Base64 { mime, data }) => {
                let mut file = Object::new();
                // OpenAI insists on a name.
                let name = name.unwrap_or_else(|| format!("document.{}", short_format(&mime)));
                file.insert("filename".to_owned(), name.into());
                file.insert("file_data".to_owned(), data_url(&mime, &data).into());
                Ok(("file", "file", file.into()))
            }
            (MediaKind::Document, Source::File(id)) if self.own => {
                let mut file = Object::new();
                file.insert("file_id".to_owned(), id.into());
                set(&mut file, "filename", name);
                Ok(("file", "file", file.into()))
            }
            (_, Source::Text(text)) => Ok(("text", "text", text.into())),
            _ => {
                Err(self.losses.refuse(Field::Part, "this provider cannot take this kind of file or source"))
            }
        }
    }

    /// Sends on what had to wait for the last tool result.
    fn flush(&mut self) {
        if !self.later.is_empty() {
            let content = std::mem::take(&mut self.later);
            self.messages.push(json!({"role": "user", "content": content}));
        }
    }
}
