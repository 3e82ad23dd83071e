//! Encodes a Converse request.

use std::collections::HashSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::super::{
    super::chat::{
        CacheControl, ChatRequest, Content, FieldLocation, FunctionTool, Losses, Media, MediaKind,
        MediaSource, Message, OutputFormat, Part, RequestField, Role, Tool, ToolChoice, ToolResult,
        TranslationError, parse_arguments,
    },
    alternating_turns::{AlternatingTurns, json_instruction, sanitize_call_id, to_alternating_turns},
    claude_models::{self, ThinkingMode},
    json::insert_some,
    media::mime_to_format,
    parameter_rules::{check_common_params, restrict_to_allowed_tools},
};

type Object = Map<String, Value>;

pub(super) fn encode_request(
    mut request: ChatRequest,
    losses: &mut Losses,
) -> Result<Value, TranslationError> {
    check_common_params(&request, losses)?;
    let mut body = Object::new();
    let mut model_fields = Object::new();
    encode_model_fields(&mut model_fields, &mut request, losses);
    let called_tools = called_tool_names(&request.messages);
    let mut encoder = RequestEncoder { losses };
    encoder.encode_conversation(&mut body, &mut request)?;
    let mut inference = Object::new();
    insert_some(&mut inference, "maxTokens", request.max_tokens);
    insert_some(&mut inference, "temperature", request.temperature.take());
    insert_some(&mut inference, "topP", request.top_p.take());
    let stop = std::mem::take(&mut request.stop);
    insert_some(&mut inference, "stopSequences", (!stop.is_empty()).then_some(stop));
    insert_nonempty(&mut body, "inferenceConfig", inference);
    encoder.encode_tools(&mut body, &mut request, &called_tools)?;
    if let Some(OutputFormat::JsonSchema { name, description, schema, .. }) = request.output.take() {
        let mut definition = Object::new();
        definition.insert("schema".to_owned(), schema.to_string().into());
        insert_some(&mut definition, "name", name);
        insert_some(&mut definition, "description", description);
        let format = json!({"type": "json_schema", "structure": {"jsonSchema": definition}});
        body.insert("outputConfig".to_owned(), json!({"textFormat": format}));
    }
    insert_nonempty(&mut body, "additionalModelRequestFields", model_fields);
    if request.user.is_some() {
        losses.drop(RequestField::User);
    }
    if request.metadata.is_some() {
        losses.drop(RequestField::Metadata);
    }
    losses.drop_extra(FieldLocation::Request, &request.extra);
    Ok(body.into())
}

fn insert_nonempty(body: &mut Object, key: &str, value: Object) {
    if !value.is_empty() {
        body.insert(key.to_owned(), value.into());
    }
}

/// Sets the parameters that belong to the model's vendor and not to Converse.
fn encode_model_fields(fields: &mut Object, request: &mut ChatRequest, losses: &mut Losses) {
    if let Some(generation) = claude_models::generation(&request.model) {
        let max_tokens = request.max_tokens.unwrap_or_else(|| claude_models::default_max_tokens(generation));
        let thinking = claude_models::thinking(request, generation, max_tokens, losses);
        claude_models::limit_sampling_params(request, generation, thinking.mode, losses);
        let mode = match thinking.mode {
            Some(ThinkingMode::Budget(budget)) => Some(json!({"type": "enabled", "budget_tokens": budget})),
            Some(ThinkingMode::Adaptive) => Some(json!({"type": "adaptive"})),
            Some(ThinkingMode::Disabled) => Some(json!({"type": "disabled"})),
            None => None,
        };
        if mode.is_some() {
            // The budget must stay below the limit, and Bedrock's default limit is unknown.
            request.max_tokens = Some(max_tokens);
        }
        insert_some(fields, "thinking", mode);
        insert_some(fields, "output_config", thinking.effort.map(|effort| json!({"effort": effort})));
        insert_some(fields, "top_k", request.top_k.take());
        return;
    }
    if request.top_k.take().is_some() {
        losses.drop(RequestField::TopK);
    }
    match request.reasoning.take() {
        Some(reasoning) if request.model.contains("openai.") => {
            insert_some(
                fields,
                "reasoning_effort",
                reasoning.resolved_effort().filter(|effort| *effort != "none"),
            );
        }
        Some(_) => losses.drop(RequestField::Reasoning),
        None => {}
    }
}

/// Returns the distinct names of the tools that a conversation has used.
fn called_tool_names(messages: &[Message]) -> Vec<String> {
    let mut seen = HashSet::new();
    let parts = messages.iter().flat_map(|message| &message.parts);
    let names = parts.filter_map(|part| match &part.content {
        Content::ToolCall(call) if seen.insert(&call.name) => Some(call.name.clone()),
        _ => None,
    });
    names.collect()
}

struct RequestEncoder<'a> {
    losses: &'a mut Losses,
}

impl RequestEncoder<'_> {
    fn encode_conversation(
        &mut self,
        body: &mut Object,
        request: &mut ChatRequest,
    ) -> Result<(), TranslationError> {
        let AlternatingTurns { mut system, turns } =
            to_alternating_turns(std::mem::take(&mut request.messages), false, self.losses);
        if let Some(line) = json_instruction(request.output.as_ref()) {
            system.push(Message::text(Role::System, line));
        }
        let mut messages = Vec::with_capacity(turns.len());
        for turn in turns {
            let role = if turn.role == Role::Assistant { "assistant" } else { "user" };
            let content = self.encode_blocks(turn.parts)?;
            if !content.is_empty() {
                messages.push(json!({"role": role, "content": content}));
            }
        }
        body.insert("messages".to_owned(), messages.into());
        let mut blocks = Vec::new();
        for message in system {
            blocks.extend(self.encode_blocks(message.parts)?);
        }
        insert_some(body, "system", (!blocks.is_empty()).then_some(blocks));
        Ok(())
    }

    fn encode_blocks(&mut self, parts: Vec<Part>) -> Result<Vec<Value>, TranslationError> {
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            self.losses.drop_extra(FieldLocation::Part, &part.extra);
            blocks.extend(self.encode_block(part.content)?);
            blocks.extend(part.cache.map(encode_cache_point));
        }
        Ok(blocks)
    }

    fn encode_block(&mut self, content: Content) -> Result<Option<Value>, TranslationError> {
        Ok(Some(match content {
            Content::Text(text) | Content::Refusal(text) => json!({"text": text}),
            Content::Json(value) => json!({"text": value.to_string()}),
            Content::Media(media) => self.encode_media(media)?,
            Content::ToolCall(call) => {
                let input = parse_arguments(&call.arguments);
                json!({"toolUse": {"toolUseId": sanitize_call_id(call.id), "name": call.name, "input": input}})
            }
            Content::ToolResult(result) => self.encode_tool_result(result)?,
            Content::Thinking { text, signature: Some(signature) } => {
                json!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
            }
            Content::Thinking { .. } => {
                self.losses.drop(RequestField::Thinking);
                return Ok(None);
            }
            Content::Redacted(data) => json!({"reasoningContent": {"redactedContent": data}}),
            Content::Other(_) => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this content type is not supported by this provider"));
            }
        }))
    }

    fn encode_tool_result(&mut self, result: ToolResult) -> Result<Value, TranslationError> {
        let mut content = Vec::with_capacity(result.parts.len());
        for part in result.parts {
            content.extend(match part.content {
                Content::Json(value) => Some(json!({"json": value})),
                other => self.encode_block(other)?,
            });
        }
        let mut encoded = Object::new();
        encoded.insert("toolUseId".to_owned(), sanitize_call_id(result.id).into());
        encoded.insert("content".to_owned(), content.into());
        let status = result.is_error.map(|is_error| if is_error { "error" } else { "success" });
        insert_some(&mut encoded, "status", status);
        Ok(json!({"toolResult": encoded}))
    }

    fn encode_media(&mut self, media: Media) -> Result<Value, TranslationError> {
        let Media { kind, source, name, detail } = media;
        if detail.is_some_and(|detail| detail != "auto") {
            self.losses.drop(RequestField::Detail);
        }
        let key = match kind {
            MediaKind::Image => "image",
            MediaKind::Video => "video",
            MediaKind::Document => "document",
            MediaKind::Audio => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this provider does not support audio"));
            }
        };
        let (format, source) = match source {
            MediaSource::Base64 { mime, data } => (mime_to_format(&mime).to_owned(), json!({"bytes": data})),
            MediaSource::Text(text) => ("txt".to_owned(), json!({"bytes": STANDARD.encode(text)})),
            MediaSource::Url { url, mime } if url.starts_with("s3://") => {
                let named = url.rsplit_once('.').map(|(_, ending)| ending.replace("jpg", "jpeg"));
                let format = mime.map(|mime| mime_to_format(&mime).to_owned()).or(named).unwrap_or_default();
                (format, json!({"s3Location": {"uri": url}}))
            }
            _ => {
                let reason = "this provider accepts files as base64 data or S3 URLs only";
                return Err(self.losses.unsupported(RequestField::Part, reason));
            }
        };
        let mut block = Object::new();
        block.insert("format".to_owned(), format.into());
        if kind == MediaKind::Document {
            block.insert("name".to_owned(), document_name(name.as_deref()).into());
        }
        block.insert("source".to_owned(), source);
        Ok(Value::Object(Map::from_iter([(key.to_owned(), block.into())])))
    }

    fn encode_tools(
        &mut self,
        body: &mut Object,
        request: &mut ChatRequest,
        called_tools: &[String],
    ) -> Result<(), TranslationError> {
        let choice = restrict_to_allowed_tools(request.tool_choice.take(), &mut request.tools);
        if request.parallel_tool_calls == Some(false) && !request.tools.is_empty() {
            self.losses.drop(RequestField::ParallelToolCalls);
        }
        if choice == Some(ToolChoice::None) {
            if !called_tools.is_empty() {
                let reason = "this provider cannot disable tools that the conversation has already used";
                return Err(self.losses.unsupported(RequestField::ToolChoice, reason));
            }
            return Ok(());
        }
        let mut tools = Vec::with_capacity(request.tools.len());
        for tool in std::mem::take(&mut request.tools) {
            let Tool::Function(function) = tool else {
                let reason = "this provider supports function tools only";
                return Err(self.losses.unsupported(RequestField::Tool, reason));
            };
            self.encode_function(function, &mut tools);
        }
        if tools.is_empty() {
            // Converse rejects a conversation with tool calls unless the tools are declared.
            tools.extend(called_tools.iter().map(
                |name| json!({"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}}),
            ));
        }
        if tools.is_empty() {
            return Ok(());
        }
        let mut config = Object::new();
        config.insert("tools".to_owned(), tools.into());
        let choice = match choice {
            None => None,
            Some(ToolChoice::Auto) => Some(json!({"auto": {}})),
            Some(ToolChoice::Required) => Some(json!({"any": {}})),
            Some(ToolChoice::Tool(name)) => Some(json!({"tool": {"name": name}})),
            Some(_) => {
                return Err(self.losses.unsupported(
                    RequestField::ToolChoice,
                    "this provider does not support this tool choice",
                ));
            }
        };
        insert_some(&mut config, "toolChoice", choice);
        body.insert("toolConfig".to_owned(), config.into());
        Ok(())
    }

    fn encode_function(&mut self, function: FunctionTool, tools: &mut Vec<Value>) {
        let mut spec = Object::new();
        spec.insert("name".to_owned(), function.name.into());
        // Bedrock rejects an empty description.
        insert_some(&mut spec, "description", function.description.filter(|text| !text.is_empty()));
        let mut schema = function.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        if let Value::Object(schema) = &mut schema {
            schema.entry("type").or_insert_with(|| "object".into());
        }
        spec.insert("inputSchema".to_owned(), json!({"json": schema}));
        insert_some(&mut spec, "strict", function.strict.filter(|strict| *strict));
        tools.push(json!({"toolSpec": spec}));
        tools.extend(function.cache.map(encode_cache_point));
        self.losses.drop_extra(FieldLocation::Tool, &function.extra);
    }
}

fn encode_cache_point(cache: CacheControl) -> Value {
    let mut point = Object::new();
    point.insert("type".to_owned(), "default".into());
    insert_some(&mut point, "ttl", cache.ttl);
    json!({"cachePoint": point})
}

/// Returns a valid document name. Bedrock requires one and restricts its characters.
fn document_name(name: Option<&str>) -> String {
    let name = name.unwrap_or("document");
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '(' | ')' | '[' | ']');
    let clean: String = stem.chars().map(|c| if is_allowed(c) { c } else { '-' }).collect();
    if clean.is_empty() { "document".to_owned() } else { clean }
}
