//! A chat request for a provider.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            Cache, Field, Function, Losses, OutputFormat, Place, Reasoning, Request, Tool, ToolChoice,
            Untranslatable, Wire,
        },
        common::short_user,
        json::set,
    },
    write_messages::write_messages,
};

type Object = Map<String, Value>;

pub(super) fn write_request(mut request: Request, losses: &mut Losses) -> Result<Value, Untranslatable> {
    let own = request.wire == Wire::OpenAiChat;
    let mut body = Object::new();
    let messages = write_messages(std::mem::take(&mut request.messages), own, losses)?;
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

/// OpenAI's reasoning models refuse the old name of the limit; most copiers know no other.
fn takes_new_limit(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let mut letters = model.chars();
    let o_series = letters.next() == Some('o') && letters.next().is_some_and(|digit| digit.is_ascii_digit());
    o_series || model.starts_with("gpt-5") || model.starts_with("gpt-6")
}

/// Whether a model can be told how much to think. Only OpenAI's older ones are known to refuse it.
pub(in super::super) fn thinks(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    !["gpt-3", "gpt-4", "chatgpt-"].iter().any(|prefix| model.starts_with(prefix))
}

fn write_reasoning(body: &mut Object, reasoning: &Reasoning, own: bool, losses: &mut Losses) {
    let thinks = thinks(body["model"].as_str().unwrap_or_default());
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
pub(super) fn finish(
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
