//! Encodes a Responses request.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            ChatRequest, Content, FieldLocation, FunctionTool, Losses, Message, OutputFormat, Part,
            Reasoning, RequestField, Role, Tool, ToolChoice, TranslationError, WireFormat,
        },
        json::insert_some,
        openai_chat::supports_reasoning_effort,
        parameter_rules::user_within_limit,
    },
    encode_items::{ItemEncoder, drop_cache_control},
};

type Object = Map<String, Value>;

pub(super) fn encode_request(
    mut request: ChatRequest,
    losses: &mut Losses,
) -> Result<Value, TranslationError> {
    let same_format = request.format == WireFormat::OpenAiResponses;
    let mut body = Object::new();
    body.insert("model".to_owned(), std::mem::take(&mut request.model).into());
    let mut messages = std::mem::take(&mut request.messages);
    if let Some(first) = messages.first_mut().filter(|message| is_plain_system(message)) {
        let texts = first.parts.iter().filter_map(|part| match &part.content {
            Content::Text(text) => Some(&**text),
            _ => None,
        });
        body.insert("instructions".to_owned(), texts.collect::<Vec<&str>>().join("\n\n").into());
        for part in &messages.remove(0).parts {
            drop_cache_control(part, losses);
        }
    }
    let mut encoder = ItemEncoder { same_format, losses, items: Vec::new() };
    for message in messages {
        encoder.encode_message(message)?;
    }
    let mut items = encoder.items;
    let input = match &mut items[..] {
        [Value::Object(only)]
            if same_format && only.len() == 2 && only["role"] == "user" && only["content"].is_string() =>
        {
            only["content"].take()
        }
        _ => items.into(),
    };
    body.insert("input".to_owned(), input);
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    encode_tools(&mut body, &mut request, losses)?;
    encode_text(&mut body, &mut request);
    insert_some(&mut body, "max_output_tokens", request.max_tokens);
    insert_some(&mut body, "temperature", request.temperature.take());
    insert_some(&mut body, "top_p", request.top_p.take());
    // Most models do not reason by default, and some reject `none`.
    let is_disabled =
        request.reasoning.as_ref().is_some_and(|reasoning| reasoning.resolved_effort() == Some("none"));
    if !same_format
        && (is_disabled || !supports_reasoning_effort(body["model"].as_str().unwrap_or_default()))
        && request.reasoning.take().is_some()
    {
        losses.drop(RequestField::Reasoning);
    }
    encode_include(&mut body, &mut request, same_format);
    insert_some(&mut body, "top_logprobs", request.top_logprobs);
    if let Some(reasoning) = request.reasoning.take() {
        encode_reasoning(&mut body, reasoning, same_format, losses);
    }
    let user = request.user.take();
    insert_some(&mut body, "user", if same_format { user } else { user_within_limit(user, losses) });
    insert_some(&mut body, "metadata", request.metadata.take());
    insert_some(&mut body, "service_tier", request.service_tier.take());
    // OpenAI stores responses by default, which callers of other formats do not expect.
    insert_some(
        &mut body,
        "store",
        if same_format { request.store } else { Some(request.store.unwrap_or(false)) },
    );
    insert_some(&mut body, "prompt_cache_key", request.prompt_cache_key.take());
    check_unsupported_params(&request, losses)?;
    if same_format {
        merge_extra(&mut body, request.extra);
    } else {
        losses.drop_extra(FieldLocation::Request, &request.extra);
    }
    Ok(body.into())
}

/// Rejects or drops the parameters that the Responses API does not have.
fn check_unsupported_params(request: &ChatRequest, losses: &mut Losses) -> Result<(), TranslationError> {
    if request.n.is_some_and(|n| n > 1) {
        return Err(losses
            .unsupported(RequestField::N, "this provider returns a single choice; set it to 1 or omit it"));
    }
    if !request.stop.is_empty() {
        return Err(losses.unsupported(RequestField::Stop, "this provider does not support stop sequences"));
    }
    let bias = request.logit_bias.as_ref().and_then(Value::as_object);
    if bias.is_some_and(|bias| !bias.is_empty()) {
        return Err(losses.unsupported(RequestField::LogitBias, "this provider does not support logit bias"));
    }
    for (is_present, field) in [
        (request.top_k.is_some(), RequestField::TopK),
        (request.frequency_penalty.is_some(), RequestField::FrequencyPenalty),
        (request.presence_penalty.is_some(), RequestField::PresencePenalty),
        (request.seed.is_some(), RequestField::Seed),
    ] {
        if is_present {
            losses.drop(field);
        }
    }
    Ok(())
}

/// Encodes `include`: log probabilities, and the encrypted reasoning that the next request has to send back.
fn encode_include(body: &mut Object, request: &mut ChatRequest, same_format: bool) {
    let mut include = match request.extra.shift_remove("include") {
        Some(Value::Array(include)) if same_format => include,
        Some(other) if !same_format => {
            request.extra.insert("include".to_owned(), other);
            Vec::new()
        }
        _ => Vec::new(),
    };
    if request.logprobs {
        include.push("message.output_text.logprobs".into());
    }
    if !same_format && request.reasoning.is_some() {
        include.push("reasoning.encrypted_content".into());
    }
    insert_some(body, "include", (!include.is_empty()).then_some(include));
}

/// Adds the extra fields. Objects that exist in the body already are merged.
fn merge_extra(body: &mut Object, extra: Object) {
    for (key, value) in extra {
        match (body.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(mut rest)) => known.append(&mut rest),
            (_, value) => {
                body.insert(key, value);
            }
        }
    }
}

fn is_plain_system(message: &Message) -> bool {
    let is_plain_text = |part: &Part| matches!(part.content, Content::Text(_)) && part.extra.is_empty();
    message.role == Role::System && message.extra.is_empty() && message.parts.iter().all(is_plain_text)
}

fn encode_text(body: &mut Object, request: &mut ChatRequest) {
    let mut text = Object::new();
    let format = request.output.take().map(|output| match output {
        OutputFormat::Text => json!({"type": "text"}),
        OutputFormat::JsonObject => json!({"type": "json_object"}),
        OutputFormat::JsonSchema { name, description, schema, strict } => {
            let mut format = Object::new();
            format.insert("type".to_owned(), "json_schema".into());
            format.insert("name".to_owned(), name.unwrap_or_else(|| "output".to_owned()).into());
            insert_some(&mut format, "description", description);
            format.insert("schema".to_owned(), schema);
            insert_some(&mut format, "strict", strict);
            format.into()
        }
    });
    insert_some(&mut text, "format", format);
    insert_some(&mut text, "verbosity", request.verbosity.take());
    insert_some(body, "text", (!text.is_empty()).then_some(text));
}

fn encode_reasoning(body: &mut Object, reasoning: Reasoning, same_format: bool, losses: &mut Losses) {
    let mut encoded = Object::new();
    let effort = match reasoning.resolved_effort() {
        Some("max") if !same_format => Some("xhigh"),
        effort => effort,
    };
    insert_some(&mut encoded, "effort", effort);
    let summary = match reasoning.display.as_deref() {
        Some("omitted") => None,
        Some(level @ ("auto" | "concise" | "detailed")) => Some(level),
        Some(_) => Some("auto"),
        // Callers of other formats expect thinking in the response.
        None if !same_format => Some("auto"),
        None => None,
    };
    insert_some(&mut encoded, "summary", summary);
    if same_format {
        encoded.extend(reasoning.extra);
    } else {
        losses.drop_extra(FieldLocation::Reasoning, &reasoning.extra);
    }
    body.insert("reasoning".to_owned(), encoded.into());
}

fn encode_tools(
    body: &mut Object,
    request: &mut ChatRequest,
    losses: &mut Losses,
) -> Result<(), TranslationError> {
    let same_format = request.format == WireFormat::OpenAiResponses;
    let mut tools = Vec::with_capacity(request.tools.len());
    for tool in std::mem::take(&mut request.tools) {
        match tool {
            Tool::Function(function) => tools.push(encode_function(function, same_format, losses)),
            Tool::Other(value) if same_format => tools.push(value),
            Tool::Other(_) => {
                return Err(
                    losses.unsupported(RequestField::Tool, "this provider supports function tools only")
                );
            }
        }
    }
    let has_tools = !tools.is_empty();
    insert_some(body, "tools", has_tools.then_some(tools));
    let function = |name: String| json!({"type": "function", "name": name});
    let choice = match request.tool_choice.take() {
        None => None,
        Some(ToolChoice::Auto) => Some("auto".into()),
        Some(ToolChoice::None) => Some("none".into()),
        Some(ToolChoice::Required) => Some("required".into()),
        Some(ToolChoice::Tool(name)) => Some(function(name)),
        Some(ToolChoice::Allowed { names, required }) => {
            let mode = if required { "required" } else { "auto" };
            let tools: Vec<Value> = names.into_iter().map(function).collect();
            Some(json!({"type": "allowed_tools", "mode": mode, "tools": tools}))
        }
        Some(ToolChoice::Other(value)) if same_format => Some(value),
        Some(ToolChoice::Other(_)) => {
            return Err(losses
                .unsupported(RequestField::ToolChoice, "this provider does not support this tool choice"));
        }
    };
    insert_some(body, "tool_choice", choice.filter(|_| has_tools || same_format));
    insert_some(
        body,
        "parallel_tool_calls",
        request.parallel_tool_calls.take().filter(|_| has_tools || same_format),
    );
    Ok(())
}

fn encode_function(function: FunctionTool, same_format: bool, losses: &mut Losses) -> Value {
    let mut tool = Object::new();
    tool.insert("type".to_owned(), "function".into());
    tool.insert("name".to_owned(), function.name.into());
    insert_some(&mut tool, "description", function.description);
    let parameters =
        function.parameters.or_else(|| (!same_format).then(|| json!({"type": "object", "properties": {}})));
    insert_some(&mut tool, "parameters", parameters);
    // Strict mode is the default in this format only.
    insert_some(
        &mut tool,
        "strict",
        if same_format { function.strict } else { Some(function.strict.unwrap_or(false)) },
    );
    if function.cache.is_some() {
        losses.drop(RequestField::CacheControl);
    }
    if same_format {
        tool.extend(function.extra);
    } else {
        losses.drop_extra(FieldLocation::Tool, &function.extra);
    }
    tool.into()
}
