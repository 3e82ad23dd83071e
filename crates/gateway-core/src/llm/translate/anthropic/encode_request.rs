//! Encodes a Messages request.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::super::{
    super::chat::{
        CacheControl, ChatRequest, Content, FieldLocation, FunctionTool, Losses, Media, MediaKind,
        MediaSource, Message, OutputFormat, Part, Reasoning, RequestField, Role, Tool, ToolChoice,
        TranslationError, WireFormat, parse_arguments,
    },
    alternating_turns::{AlternatingTurns, json_instruction, sanitize_call_id, to_alternating_turns},
    claude_models::{self, ThinkingConfig, ThinkingMode},
    json::insert_some,
    parameter_rules::{check_common_params, restrict_to_allowed_tools},
};

type Object = Map<String, Value>;

pub(super) fn encode_request(
    mut request: ChatRequest,
    losses: &mut Losses,
) -> Result<Value, TranslationError> {
    let same_format = request.format == WireFormat::Anthropic;
    let generation = claude_models::generation(&request.model).unwrap_or((u32::MAX, 0));
    let max_tokens = request.max_tokens.unwrap_or_else(|| claude_models::default_max_tokens(generation));
    let thinking = if same_format {
        native_thinking(request.reasoning.as_ref())
    } else {
        check_common_params(&request, losses)?;
        let thinking = claude_models::thinking(&request, generation, max_tokens, losses);
        claude_models::limit_sampling_params(&mut request, generation, thinking.mode, losses);
        thinking
    };
    let mut encoder = RequestEncoder { same_format, losses };
    let mut body = Object::new();
    body.insert("model".to_owned(), std::mem::take(&mut request.model).into());
    body.insert("max_tokens".to_owned(), max_tokens.into());
    encoder.encode_conversation(&mut body, &mut request)?;
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    encoder.encode_tools(&mut body, &mut request, generation)?;
    insert_some(&mut body, "temperature", request.temperature);
    insert_some(&mut body, "top_p", request.top_p);
    insert_some(&mut body, "top_k", request.top_k);
    if !same_format {
        let before = request.stop.len();
        // Anthropic rejects blank stop sequences.
        request.stop.retain(|sequence| !sequence.trim().is_empty());
        if request.stop.len() < before {
            losses.drop(RequestField::Stop);
        }
    }
    insert_some(&mut body, "stop_sequences", (!request.stop.is_empty()).then_some(request.stop));
    encode_thinking(&mut body, thinking, request.reasoning, same_format);
    encode_output(&mut body, request.output, &mut request.extra);
    encode_metadata(&mut body, request.user, request.metadata, same_format, losses);
    if same_format {
        insert_some(&mut body, "service_tier", request.service_tier);
        body.append(&mut request.extra);
    } else {
        losses.drop_extra(FieldLocation::Request, &request.extra);
    }
    Ok(body.into())
}

fn native_thinking(reasoning: Option<&Reasoning>) -> ThinkingConfig {
    let Some(reasoning) = reasoning else { return ThinkingConfig::default() };
    let mode = reasoning.enabled.map(|enabled| match reasoning.budget {
        _ if !enabled => ThinkingMode::Disabled,
        Some(budget) => ThinkingMode::Budget(budget),
        None => ThinkingMode::Adaptive,
    });
    ThinkingConfig { mode, effort: reasoning.effort.clone() }
}

fn encode_thinking(
    body: &mut Object,
    thinking: ThinkingConfig,
    reasoning: Option<Reasoning>,
    same_format: bool,
) {
    if let Some(mode) = thinking.mode {
        let mut encoded = Object::new();
        let kind = match mode {
            ThinkingMode::Budget(_) => "enabled",
            ThinkingMode::Adaptive => "adaptive",
            ThinkingMode::Disabled => "disabled",
        };
        encoded.insert("type".to_owned(), kind.into());
        if let ThinkingMode::Budget(budget) = mode {
            encoded.insert("budget_tokens".to_owned(), budget.into());
        }
        if let Some(mut reasoning) = reasoning.filter(|_| same_format) {
            insert_some(&mut encoded, "display", reasoning.display);
            encoded.append(&mut reasoning.extra);
        }
        body.insert("thinking".to_owned(), encoded.into());
    }
    if let Some(effort) = thinking.effort {
        body.insert("output_config".to_owned(), json!({"effort": effort}));
    }
}

fn encode_output(body: &mut Object, output: Option<OutputFormat>, extra: &mut Object) {
    let config = body.entry("output_config").or_insert_with(|| Value::Object(Object::new()));
    if let Value::Object(config) = config {
        if let Some(OutputFormat::JsonSchema { schema, .. }) = output {
            config.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
        }
        if let Some(Value::Object(rest)) = extra.get_mut("output_config") {
            config.append(rest);
            extra.shift_remove("output_config");
        }
        if config.is_empty() {
            body.shift_remove("output_config");
        }
    }
}

fn encode_metadata(
    body: &mut Object,
    user: Option<String>,
    metadata: Option<Value>,
    same_format: bool,
    losses: &mut Losses,
) {
    let mut encoded = match metadata {
        Some(Value::Object(metadata)) if same_format => metadata,
        Some(_) => {
            losses.drop(RequestField::Metadata);
            Object::new()
        }
        None => Object::new(),
    };
    insert_some(&mut encoded, "user_id", user);
    if !encoded.is_empty() {
        body.insert("metadata".to_owned(), encoded.into());
    }
}

struct RequestEncoder<'a> {
    same_format: bool,
    losses: &'a mut Losses,
}

impl RequestEncoder<'_> {
    fn encode_conversation(
        &mut self,
        body: &mut Object,
        request: &mut ChatRequest,
    ) -> Result<(), TranslationError> {
        let AlternatingTurns { mut system, turns } =
            to_alternating_turns(std::mem::take(&mut request.messages), self.same_format, self.losses);
        if let Some(line) = json_instruction(request.output.as_ref()) {
            system.push(Message::text(Role::System, line));
        }
        match &mut *system {
            [] => {}
            [only] if only.is_string => {
                let text = only.parts.pop().map(|part| part.content);
                insert_some(
                    body,
                    "system",
                    text.and_then(|content| match content {
                        Content::Text(text) => Some(text),
                        _ => None,
                    }),
                );
            }
            several => {
                let mut blocks = Vec::new();
                for part in several.iter_mut().flat_map(|message| std::mem::take(&mut message.parts)) {
                    blocks.extend(self.encode_block(part)?);
                }
                body.insert("system".to_owned(), blocks.into());
            }
        }
        let mut messages = Vec::with_capacity(turns.len());
        for turn in turns {
            let role = if turn.role == Role::Assistant { "assistant" } else { "user" };
            let content = self.encode_content(turn.parts, turn.is_string)?;
            if content.as_array().is_some_and(Vec::is_empty) && !self.same_format {
                continue;
            }
            let mut message = Object::new();
            message.insert("role".to_owned(), role.into());
            message.insert("content".to_owned(), content);
            message.extend(turn.extra);
            messages.push(message.into());
        }
        body.insert("messages".to_owned(), Value::Array(messages));
        Ok(())
    }

    fn encode_content(&mut self, mut parts: Vec<Part>, is_string: bool) -> Result<Value, TranslationError> {
        if is_string
            && parts.len() == 1
            && let Some(Part { content: Content::Text(text), .. }) = parts.first_mut()
        {
            return Ok(std::mem::take(text).into());
        }
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            blocks.extend(self.encode_block(part)?);
        }
        Ok(blocks.into())
    }

    fn encode_block(&mut self, part: Part) -> Result<Option<Value>, TranslationError> {
        let mut block = match part.content {
            Content::Text(text) | Content::Refusal(text) => tagged("text", [("text", text.into())]),
            Content::Json(value) => tagged("text", [("text", value.to_string().into())]),
            Content::Media(media) => self.encode_media(media)?,
            Content::ToolCall(call) => {
                let input = parse_arguments(&call.arguments);
                let id = if self.same_format { call.id } else { sanitize_call_id(call.id) };
                tagged("tool_use", [("id", id.into()), ("name", call.name.into()), ("input", input)])
            }
            Content::ToolResult(result) => {
                let id = if self.same_format { result.id } else { sanitize_call_id(result.id) };
                let mut block = tagged("tool_result", [("tool_use_id", id.into())]);
                if !result.parts.is_empty() || !self.same_format {
                    block.insert("content".to_owned(), self.encode_content(result.parts, result.is_string)?);
                }
                insert_some(&mut block, "is_error", result.is_error);
                block
            }
            Content::Thinking { text, signature: Some(signature) } => {
                tagged("thinking", [("thinking", text.into()), ("signature", signature.into())])
            }
            Content::Thinking { text, signature: None } if self.same_format => {
                tagged("thinking", [("thinking", text.into()), ("signature", "".into())])
            }
            // Unsigned thinking comes from another provider, and Anthropic rejects it.
            Content::Thinking { .. } => {
                self.losses.drop(RequestField::Thinking);
                return Ok(None);
            }
            Content::Redacted(data) => tagged("redacted_thinking", [("data", data.into())]),
            Content::Other(value) if self.same_format => return Ok(Some(value)),
            Content::Other(_) => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this content type is not supported by this provider"));
            }
        };
        insert_some(&mut block, "cache_control", part.cache.map(encode_cache_control));
        self.encode_extra(&mut block, part.extra, FieldLocation::Part);
        Ok(Some(block.into()))
    }

    fn encode_extra(&mut self, object: &mut Object, mut extra: Object, location: FieldLocation) {
        if self.same_format {
            object.append(&mut extra);
        } else {
            self.losses.drop_extra(location, &extra);
        }
    }

    fn encode_media(&mut self, media: Media) -> Result<Object, TranslationError> {
        let Media { kind: media_kind, source, name, detail } = media;
        if detail.is_some_and(|detail| detail != "auto") {
            self.losses.drop(RequestField::Detail);
        }
        let block_kind = match media_kind {
            MediaKind::Image => "image",
            MediaKind::Document => "document",
            MediaKind::Audio | MediaKind::Video => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this provider does not support audio or video"));
            }
        };
        let source = match source {
            MediaSource::Base64 { mime, data }
                if media_kind == MediaKind::Image || mime == "application/pdf" =>
            {
                json!({"type": "base64", "media_type": mime, "data": data})
            }
            MediaSource::Base64 { mime, data } if mime.starts_with("text/") => {
                let text = STANDARD.decode(&data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or_else(|| {
                    self.losses.unsupported(RequestField::Part, "must be base64-encoded UTF-8 text")
                })?;
                json!({"type": "text", "media_type": "text/plain", "data": text})
            }
            MediaSource::Url { url, .. } => json!({"type": "url", "url": url}),
            MediaSource::Text(text) => json!({"type": "text", "media_type": "text/plain", "data": text}),
            MediaSource::File(id) if self.same_format => json!({"type": "file", "file_id": id}),
            _ => {
                return Err(self.losses.unsupported(
                    RequestField::Part,
                    "this provider does not support this file type or source",
                ));
            }
        };
        let mut block = tagged(block_kind, [("source", source)]);
        insert_some(&mut block, "title", name.filter(|_| media_kind == MediaKind::Document));
        Ok(block)
    }

    fn encode_tools(
        &mut self,
        body: &mut Object,
        request: &mut ChatRequest,
        generation: (u32, u32),
    ) -> Result<(), TranslationError> {
        let choice = request.tool_choice.take();
        let choice =
            if self.same_format { choice } else { restrict_to_allowed_tools(choice, &mut request.tools) };
        let mut tools = Vec::with_capacity(request.tools.len());
        for tool in std::mem::take(&mut request.tools) {
            match tool {
                Tool::Function(function) => tools.push(self.encode_function(function, generation)),
                Tool::Other(value) if self.same_format => tools.push(value),
                Tool::Other(_) => {
                    let reason = "this provider supports function tools only";
                    return Err(self.losses.unsupported(RequestField::Tool, reason));
                }
            }
        }
        let has_tools = !tools.is_empty();
        insert_some(body, "tools", has_tools.then_some(tools));
        let parallel = request.parallel_tool_calls.take();
        let default = (parallel == Some(false)).then_some(ToolChoice::Auto);
        let Some(choice) = choice.or(default).filter(|_| has_tools || self.same_format) else {
            return Ok(());
        };
        let mut encoded = match choice {
            ToolChoice::Auto => tagged("auto", []),
            ToolChoice::None => tagged("none", []),
            ToolChoice::Required => tagged("any", []),
            ToolChoice::Tool(name) => tagged("tool", [("name", name.into())]),
            ToolChoice::Allowed { .. } | ToolChoice::Other(_) => {
                return Err(self.losses.unsupported(
                    RequestField::ToolChoice,
                    "this provider does not support this tool choice",
                ));
            }
        };
        let is_none = encoded.get("type").and_then(Value::as_str) == Some("none");
        if let Some(parallel) = parallel.filter(|parallel| self.same_format || !(*parallel || is_none)) {
            encoded.insert("disable_parallel_tool_use".to_owned(), (!parallel).into());
        }
        body.insert("tool_choice".to_owned(), encoded.into());
        Ok(())
    }

    fn encode_function(&mut self, function: FunctionTool, generation: (u32, u32)) -> Value {
        let mut tool = Object::new();
        tool.insert("name".to_owned(), function.name.into());
        insert_some(&mut tool, "description", function.description);
        let mut schema = function.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        if let Value::Object(schema) = &mut schema
            && !self.same_format
        {
            schema.entry("type").or_insert_with(|| "object".into());
        }
        tool.insert("input_schema".to_owned(), schema);
        if self.same_format || generation >= (4, 5) {
            insert_some(&mut tool, "strict", function.strict);
        } else if function.strict == Some(true) {
            self.losses.drop(RequestField::Strict);
        }
        insert_some(&mut tool, "cache_control", function.cache.map(encode_cache_control));
        self.encode_extra(&mut tool, function.extra, FieldLocation::Tool);
        tool.into()
    }
}

fn tagged<const N: usize>(kind: &str, fields: [(&str, Value); N]) -> Object {
    let mut object = Object::with_capacity(N + 2);
    object.insert("type".to_owned(), kind.into());
    object.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
    object
}

fn encode_cache_control(cache: CacheControl) -> Value {
    let mut control = tagged("ephemeral", []);
    insert_some(&mut control, "ttl", cache.ttl);
    control.into()
}
