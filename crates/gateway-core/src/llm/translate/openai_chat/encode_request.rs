//! Encodes a chat completions request.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            CacheControl, ChatRequest, FieldLocation, FunctionTool, Losses, OutputFormat, Reasoning,
            RequestField, Tool, ToolChoice, TranslationError, WireFormat,
        },
        json::insert_some,
        parameter_rules::user_within_limit,
    },
    encode_messages::encode_messages,
};

type Object = Map<String, Value>;

pub(super) fn encode_request(
    mut request: ChatRequest,
    losses: &mut Losses,
) -> Result<Value, TranslationError> {
    let same_format = request.format == WireFormat::OpenAiChat;
    let mut body = Object::new();
    let messages = encode_messages(std::mem::take(&mut request.messages), same_format, losses)?;
    body.insert("model".to_owned(), std::mem::take(&mut request.model).into());
    body.insert("messages".to_owned(), messages.into());
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    encode_stream_options(&mut body, &mut request, same_format);
    encode_tools(&mut body, &mut request, losses)?;
    insert_some(
        &mut body,
        "response_format",
        request.output.take().map(|output| encode_output(output, same_format)),
    );
    let model = body["model"].as_str().unwrap_or_default();
    let legacy_max_tokens =
        if same_format { request.legacy_max_tokens } else { !requires_max_completion_tokens(model) };
    let limit = if legacy_max_tokens { "max_tokens" } else { "max_completion_tokens" };
    insert_some(&mut body, limit, request.max_tokens);
    if !same_format && requires_max_completion_tokens(body["model"].as_str().unwrap_or_default()) {
        drop_sampling_params(&mut request, losses);
    }
    insert_some(&mut body, "temperature", request.temperature);
    insert_some(&mut body, "top_p", request.top_p);
    if same_format {
        insert_some(&mut body, "top_k", request.top_k);
    } else if request.top_k.is_some() {
        losses.drop(RequestField::TopK);
    }
    insert_some(&mut body, "frequency_penalty", request.frequency_penalty);
    insert_some(&mut body, "presence_penalty", request.presence_penalty);
    insert_some(&mut body, "stop", (!request.stop.is_empty()).then_some(request.stop));
    insert_some(&mut body, "seed", request.seed);
    insert_some(&mut body, "n", request.n);
    insert_some(&mut body, "logprobs", request.logprobs.then_some(true));
    insert_some(&mut body, "top_logprobs", request.top_logprobs);
    insert_some(&mut body, "logit_bias", request.logit_bias);
    if let Some(reasoning) = &request.reasoning {
        encode_reasoning(&mut body, reasoning, same_format, losses);
    }
    insert_some(
        &mut body,
        "user",
        if same_format { request.user } else { user_within_limit(request.user, losses) },
    );
    // In other formats, the fields of these names have other meanings.
    if matches!(request.format, WireFormat::OpenAiChat | WireFormat::OpenAiResponses) {
        insert_some(&mut body, "metadata", request.metadata);
        insert_some(&mut body, "service_tier", request.service_tier);
    } else {
        if request.metadata.is_some() {
            losses.drop(RequestField::Metadata);
        }
        if request.service_tier.is_some_and(|tier| tier != "auto") {
            losses.drop(RequestField::ServiceTier);
        }
    }
    insert_some(&mut body, "store", request.store);
    insert_some(&mut body, "prompt_cache_key", request.prompt_cache_key);
    insert_some(&mut body, "verbosity", request.verbosity);
    if same_format {
        body.append(&mut request.extra);
    } else {
        losses.drop_extra(FieldLocation::Request, &request.extra);
    }
    Ok(body.into())
}

fn encode_stream_options(body: &mut Object, request: &mut ChatRequest, same_format: bool) {
    let mut options = match request.extra.shift_remove("stream_options") {
        Some(Value::Object(options)) if same_format => options,
        _ => Object::new(),
    };
    if request.include_usage {
        options.insert("include_usage".to_owned(), true.into());
    }
    insert_some(body, "stream_options", (!options.is_empty()).then_some(options));
}

/// Drops the sampling parameters of OpenAI's reasoning models, which reject any value other than the default.
fn drop_sampling_params(request: &mut ChatRequest, losses: &mut Losses) {
    for (value, default, field) in [
        (&mut request.temperature, 1.0, RequestField::Temperature),
        (&mut request.top_p, 1.0, RequestField::TopP),
        (&mut request.frequency_penalty, 0.0, RequestField::FrequencyPenalty),
        (&mut request.presence_penalty, 0.0, RequestField::PresencePenalty),
    ] {
        if value.take().is_some_and(|value| value.as_f64() != Some(default)) {
            losses.drop(field);
        }
    }
}

/// OpenAI's reasoning models reject `max_tokens`. Most compatible providers accept only that name.
fn requires_max_completion_tokens(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let mut letters = model.chars();
    let o_series = letters.next() == Some('o') && letters.next().is_some_and(|digit| digit.is_ascii_digit());
    o_series || model.starts_with("gpt-5") || model.starts_with("gpt-6")
}

/// Returns whether a model accepts `reasoning_effort`. Only OpenAI's older models are known to reject it.
pub(in super::super) fn supports_reasoning_effort(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    !["gpt-3", "gpt-4", "chatgpt-"].iter().any(|prefix| model.starts_with(prefix))
}

fn encode_reasoning(body: &mut Object, reasoning: &Reasoning, same_format: bool, losses: &mut Losses) {
    let is_supported = supports_reasoning_effort(body["model"].as_str().unwrap_or_default());
    let effort = match reasoning.resolved_effort() {
        effort @ Some(_) if same_format => effort,
        // Most models do not reason by default, and some reject `none`.
        Some("none") => None,
        Some("max") => Some("xhigh"),
        Some(effort) if is_supported => Some(effort),
        _ => None,
    };
    if effort.is_none() {
        losses.drop(RequestField::Reasoning);
    }
    insert_some(body, "reasoning_effort", effort);
    losses.drop_extra(FieldLocation::Reasoning, &reasoning.extra);
}

fn encode_tools(
    body: &mut Object,
    request: &mut ChatRequest,
    losses: &mut Losses,
) -> Result<(), TranslationError> {
    let same_format = request.format == WireFormat::OpenAiChat;
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
            ToolChoice::Other(value) if same_format => value,
            ToolChoice::Other(_) => {
                return Err(losses.unsupported(
                    RequestField::ToolChoice,
                    "this provider does not support this tool choice",
                ));
            }
        };
        // OpenAI rejects a tool choice without tools.
        if has_tools || same_format {
            body.insert("tool_choice".to_owned(), choice);
        }
    }
    insert_some(
        body,
        "parallel_tool_calls",
        request.parallel_tool_calls.take().filter(|_| has_tools || same_format),
    );
    Ok(())
}

fn encode_function(function: FunctionTool, same_format: bool, losses: &mut Losses) -> Value {
    let mut inner = Object::new();
    inner.insert("name".to_owned(), function.name.into());
    insert_some(&mut inner, "description", function.description);
    insert_some(&mut inner, "parameters", function.parameters);
    insert_some(&mut inner, "strict", function.strict);
    let mut tool = Object::new();
    tool.insert("type".to_owned(), "function".into());
    tool.insert("function".to_owned(), inner.into());
    let native = NativeFields { cache: function.cache, extra: function.extra, location: FieldLocation::Tool };
    native.encode(&mut tool, same_format, losses);
    tool.into()
}

/// Fields of an object that are restored if the target uses the same format, and dropped otherwise.
pub(super) struct NativeFields {
    pub(super) cache: Option<CacheControl>,
    pub(super) extra: Object,
    pub(super) location: FieldLocation,
}

impl NativeFields {
    pub(super) fn encode(self, object: &mut Object, same_format: bool, losses: &mut Losses) {
        let NativeFields { cache, mut extra, location } = self;
        if same_format {
            if let Some(cache) = cache {
                let mut control = Object::new();
                control.insert("type".to_owned(), "ephemeral".into());
                insert_some(&mut control, "ttl", cache.ttl);
                object.insert("cache_control".to_owned(), control.into());
            }
            object.append(&mut extra);
            return;
        }
        match cache {
            Some(_) if location == FieldLocation::Tool => losses.drop_key(location, "cache_control"),
            Some(_) => losses.drop(RequestField::CacheControl),
            None => {}
        }
        losses.drop_extra(location, &extra);
    }
}

fn encode_output(output: OutputFormat, same_format: bool) -> Value {
    match output {
        OutputFormat::Text => json!({"type": "text"}),
        OutputFormat::JsonObject => json!({"type": "json_object"}),
        OutputFormat::JsonSchema { name, description, schema, strict } => {
            let mut inner = Object::new();
            inner.insert("name".to_owned(), name.unwrap_or_else(|| "output".to_owned()).into());
            insert_some(&mut inner, "description", description);
            // Other formats always enforce a schema. OpenAI does so in strict mode, which not every schema allows.
            let strict = strict.or((!same_format && allows_strict_mode(&schema)).then_some(true));
            inner.insert("schema".to_owned(), schema);
            insert_some(&mut inner, "strict", strict);
            json!({"type": "json_schema", "json_schema": inner})
        }
    }
}

/// Returns whether OpenAI's strict mode accepts a schema: every object requires all of its properties and no others.
fn allows_strict_mode(schema: &Value) -> bool {
    let is_closed = |object: &Object| match object.get("properties").and_then(Value::as_object) {
        None => object.get("type").and_then(Value::as_str) != Some("object"),
        Some(properties) => {
            let required = object.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            object.get("additionalProperties") == Some(&Value::Bool(false))
                && properties.keys().all(|key| required.iter().any(|name| name == key))
        }
    };
    match schema {
        Value::Object(object) => is_closed(object) && object.values().all(allows_strict_mode),
        Value::Array(list) => list.iter().all(allows_strict_mode),
        _ => true,
    }
}
