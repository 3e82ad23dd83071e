//! Encodes a chat request.

use serde_json::{Map, Value, json};

use super::super::{
    super::chat::{
        ChatRequest, Content, FieldLocation, FunctionTool, Losses, Media, MediaKind, MediaSource, Message,
        OutputFormat, Part, Reasoning, RequestField, Role, Tool, ToolChoice, ToolResult, TranslationError,
    },
    json::insert_some,
    media::data_url,
    parameter_rules::restrict_to_allowed_tools,
};

type Object = Map<String, Value>;

pub(super) fn encode_request(
    mut request: ChatRequest,
    losses: &mut Losses,
) -> Result<Value, TranslationError> {
    let mut encoder = MessageEncoder { losses, messages: Vec::new(), documents: Vec::new() };
    for message in std::mem::take(&mut request.messages) {
        encoder.encode_message(message)?;
    }
    let MessageEncoder { messages, documents, .. } = encoder;
    let mut body = Object::new();
    body.insert("model".to_owned(), std::mem::take(&mut request.model).into());
    body.insert("messages".to_owned(), messages.into());
    insert_some(&mut body, "documents", (!documents.is_empty()).then_some(documents));
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    encode_tools(&mut body, &mut request, losses)?;
    match request.output.take() {
        None | Some(OutputFormat::Text) => {}
        Some(OutputFormat::JsonObject) => {
            body.insert("response_format".to_owned(), json!({"type": "json_object"}));
        }
        Some(OutputFormat::JsonSchema { name, description, schema, strict: _ }) => {
            if name.is_some() || description.is_some() {
                losses.drop(RequestField::OutputName);
            }
            body.insert("response_format".to_owned(), json!({"type": "json_object", "json_schema": schema}));
        }
    }
    insert_some(&mut body, "max_tokens", request.max_tokens);
    insert_some(&mut body, "temperature", request.temperature.take());
    insert_some(&mut body, "p", request.top_p.take());
    insert_some(&mut body, "k", request.top_k.take());
    insert_some(&mut body, "frequency_penalty", request.frequency_penalty.take());
    insert_some(&mut body, "presence_penalty", request.presence_penalty.take());
    insert_some(
        &mut body,
        "stop_sequences",
        (!request.stop.is_empty()).then(|| std::mem::take(&mut request.stop)),
    );
    insert_some(&mut body, "seed", request.seed.take());
    insert_some(&mut body, "logprobs", request.logprobs.then_some(true));
    if let Some(reasoning) = request.reasoning.take() {
        encode_thinking(&mut body, &reasoning, losses);
    }
    check_unsupported_params(&request, losses)?;
    losses.drop_extra(FieldLocation::Request, &request.extra);
    Ok(body.into())
}

fn check_unsupported_params(request: &ChatRequest, losses: &mut Losses) -> Result<(), TranslationError> {
    if request.n.is_some_and(|n| n > 1) {
        return Err(losses
            .unsupported(RequestField::N, "this provider returns a single choice; set it to 1 or omit it"));
    }
    let bias = request.logit_bias.as_ref().and_then(Value::as_object);
    if bias.is_some_and(|bias| !bias.is_empty()) {
        return Err(losses.unsupported(RequestField::LogitBias, "this provider does not support logit bias"));
    }
    for (is_present, field) in [
        (request.top_logprobs.is_some_and(|top| top > 0), RequestField::TopLogprobs),
        (request.parallel_tool_calls == Some(false), RequestField::ParallelToolCalls),
        (request.user.is_some(), RequestField::User),
        (request.metadata.is_some(), RequestField::Metadata),
        (request.store == Some(true), RequestField::Store),
        (request.service_tier.as_deref().is_some_and(|tier| tier != "auto"), RequestField::ServiceTier),
        (request.prompt_cache_key.is_some(), RequestField::PromptCacheKey),
        (request.verbosity.is_some(), RequestField::Verbosity),
    ] {
        if is_present {
            losses.drop(field);
        }
    }
    Ok(())
}

/// Encodes the thinking parameters. Only models with `reasoning` in their name accept them.
fn encode_thinking(body: &mut Object, reasoning: &Reasoning, losses: &mut Losses) {
    let supports_thinking =
        body.get("model").and_then(Value::as_str).is_some_and(|model| model.contains("reasoning"));
    match reasoning.resolved_budget() {
        Some(0) if supports_thinking => {
            body.insert("thinking".to_owned(), json!({"type": "disabled"}));
        }
        Some(0) => {}
        budget if supports_thinking => {
            let mut thinking = json!({"type": "enabled"});
            if let Some(budget) = budget {
                thinking["token_budget"] = budget.into();
            }
            body.insert("thinking".to_owned(), thinking);
        }
        _ => losses.drop(RequestField::Reasoning),
    }
    if reasoning.display.is_some() {
        losses.drop(RequestField::ReasoningShow);
    }
    losses.drop_extra(FieldLocation::Reasoning, &reasoning.extra);
}

/// Encodes tools and tool choice. Cohere cannot name the tool to use, so choosing one tool removes all others.
fn encode_tools(
    body: &mut Object,
    request: &mut ChatRequest,
    losses: &mut Losses,
) -> Result<(), TranslationError> {
    let mut tools = std::mem::take(&mut request.tools);
    let choice = match request.tool_choice.take() {
        Some(ToolChoice::Tool(name)) => Some(ToolChoice::Allowed { names: vec![name], required: true }),
        other => other,
    };
    let choice = restrict_to_allowed_tools(choice, &mut tools);
    let mut encoded = Vec::with_capacity(tools.len());
    let mut strict = Vec::with_capacity(tools.len());
    for tool in tools {
        match tool {
            Tool::Function(function) => {
                strict.push(function.strict == Some(true));
                encoded.push(encode_function(function, losses));
            }
            Tool::Other(_) => {
                return Err(
                    losses.unsupported(RequestField::Tool, "this provider supports function tools only")
                );
            }
        }
    }
    if encoded.is_empty() {
        return Ok(());
    }
    body.insert("tools".to_owned(), encoded.into());
    // Strict mode applies to all tools or to none.
    if strict.iter().all(|strict| *strict) {
        body.insert("strict_tools".to_owned(), true.into());
    } else if strict.contains(&true) {
        losses.drop(RequestField::Strict);
    }
    match choice {
        None | Some(ToolChoice::Auto) => {}
        Some(ToolChoice::None) => insert_some(body, "tool_choice", Some("NONE")),
        Some(ToolChoice::Required | ToolChoice::Tool(_)) => {
            insert_some(body, "tool_choice", Some("REQUIRED"));
        }
        Some(ToolChoice::Allowed { .. } | ToolChoice::Other(_)) => {
            return Err(losses
                .unsupported(RequestField::ToolChoice, "this provider does not support this tool choice"));
        }
    }
    Ok(())
}

fn encode_function(function: FunctionTool, losses: &mut Losses) -> Value {
    let mut inner = Object::new();
    inner.insert("name".to_owned(), function.name.into());
    insert_some(&mut inner, "description", function.description);
    let parameters = function.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    inner.insert("parameters".to_owned(), parameters);
    if function.cache.is_some() {
        losses.drop(RequestField::CacheControl);
    }
    losses.drop_extra(FieldLocation::Tool, &function.extra);
    json!({"type": "function", "function": inner})
}

struct MessageEncoder<'a> {
    losses: &'a mut Losses,
    messages: Vec<Value>,
    documents: Vec<Value>,
}

impl MessageEncoder<'_> {
    fn encode_message(&mut self, message: Message) -> Result<(), TranslationError> {
        let Message { role, parts, is_string: _, name, extra } = message;
        if name.is_some() {
            self.losses.drop(RequestField::MessageName);
        }
        self.losses.drop_extra(FieldLocation::Message, &extra);
        let mut content = Vec::new();
        let mut calls = Vec::new();
        let mut plan = String::new();
        for part in parts {
            if part.cache.is_some() {
                self.losses.drop(RequestField::CacheControl);
            }
            self.losses.drop_extra(FieldLocation::Part, &part.extra);
            match part.content {
                Content::ToolResult(result) => self.encode_tool_result(result)?,
                Content::ToolCall(call) => {
                    let arguments = if call.arguments.is_empty() { "{}".to_owned() } else { call.arguments };
                    let function = json!({"name": call.name, "arguments": arguments});
                    calls.push(json!({"id": call.id, "type": "function", "function": function}));
                }
                Content::Thinking { text, .. } => plan.push_str(&text),
                Content::Redacted(_) => self.losses.drop(RequestField::Redacted),
                other => content.extend(self.encode_content(other)?),
            }
        }
        let mut encoded = Object::new();
        let role_name = match role {
            Role::System | Role::Developer => "system",
            Role::Assistant => "assistant",
            Role::User => "user",
            Role::Tool => return Ok(()),
        };
        encoded.insert("role".to_owned(), role_name.into());
        if calls.is_empty() {
            if !plan.is_empty() {
                self.losses.drop(RequestField::Thinking);
            }
            if content.is_empty() {
                return Ok(());
            }
        } else {
            // Text next to tool calls becomes part of the tool plan.
            for text in content
                .drain(..)
                .filter_map(|part| part.get("text").and_then(Value::as_str).map(str::to_owned))
            {
                if !plan.is_empty() {
                    plan.push('\n');
                }
                plan.push_str(&text);
            }
            insert_some(&mut encoded, "tool_plan", (!plan.is_empty()).then_some(plan));
            encoded.insert("tool_calls".to_owned(), calls.into());
        }
        insert_some(&mut encoded, "content", join_texts(content));
        self.messages.push(encoded.into());
        Ok(())
    }

    /// Encodes a part of a message. Documents are moved to the request's `documents` and return None.
    fn encode_content(&mut self, content: Content) -> Result<Option<Value>, TranslationError> {
        let text = |text: String| Ok(Some(json!({"type": "text", "text": text})));
        match content {
            Content::Text(string) | Content::Refusal(string) => text(string),
            Content::Json(value) => text(value.to_string()),
            Content::Media(Media { kind: MediaKind::Image, source, detail, .. }) => {
                let url = match source {
                    MediaSource::Url { url, .. } => url,
                    MediaSource::Base64 { mime, data } => data_url(&mime, &data),
                    _ => {
                        return Err(self.losses.unsupported(
                            RequestField::Part,
                            "this provider does not support this image source",
                        ));
                    }
                };
                let mut image = json!({"url": url});
                if let Some(detail) = detail {
                    image["detail"] = detail.into();
                }
                Ok(Some(json!({"type": "image_url", "image_url": image})))
            }
            Content::Media(Media { source: MediaSource::Text(string), name, .. }) => {
                let mut data = json!({"text": string});
                if let Some(name) = name {
                    data["title"] = name.into();
                }
                let id = format!("doc-{}", self.documents.len());
                self.documents.push(json!({"id": id, "data": data}));
                Ok(None)
            }
            Content::Media(_) => Err(self.losses.unsupported(
                RequestField::Part,
                "this provider supports images and plain text documents only",
            )),
            _ => Err(self
                .losses
                .unsupported(RequestField::Part, "this content type is not supported by this provider")),
        }
    }

    fn encode_tool_result(&mut self, result: ToolResult) -> Result<(), TranslationError> {
        if result.is_error == Some(true) {
            self.losses.drop(RequestField::ToolResultError);
        }
        let mut texts = Vec::with_capacity(result.parts.len());
        for Part { content, .. } in result.parts {
            match content {
                Content::Text(text)
                | Content::Refusal(text)
                | Content::Media(Media { source: MediaSource::Text(text), .. }) => texts.push(text),
                Content::Json(value) => texts.push(value.to_string()),
                _ => {
                    return Err(self.losses.unsupported(
                        RequestField::ToolResult,
                        "this provider supports text in tool results only",
                    ));
                }
            }
        }
        let content = texts.join("\n");
        self.messages.push(json!({"role": "tool", "tool_call_id": result.id, "content": content}));
        Ok(())
    }
}

/// Joins the content into one string if it consists of text only.
fn join_texts(content: Vec<Value>) -> Option<Value> {
    if content.is_empty() {
        return None;
    }
    let texts: Option<Vec<&str>> = content.iter().map(|part| part.get("text")?.as_str()).collect();
    Some(match texts {
        Some(texts) => texts.join("\n").into(),
        None => content.into(),
    })
}
