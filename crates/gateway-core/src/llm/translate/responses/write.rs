//! A request for a response, for a provider.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            Content, Field, Function, Losses, Message, OutputFormat, Part, Place, Reasoning, Request, Role,
            Tool, ToolChoice, Untranslatable, Wire,
        },
        common::short_user,
        json::set,
        openai_chat::thinks,
    },
    write_items::{ItemWriter, note_cache},
};

type Object = Map<String, Value>;

pub(super) fn write_request(mut request: Request, losses: &mut Losses) -> Result<Value, Untranslatable> {
    let own = request.wire == Wire::OpenAiResponses;
    let mut body = Object::new();
    body.insert("model".to_owned(), std::mem::take(&mut request.model).into());
    let mut messages = std::mem::take(&mut request.messages);
    if let Some(first) = messages.first_mut().filter(|message| plain_system(message)) {
        let texts = first.parts.iter().filter_map(|part| match &part.content {
            Content::Text(text) => Some(&**text),
            _ => None,
        });
        body.insert("instructions".to_owned(), texts.collect::<Vec<&str>>().join("\n\n").into());
        for part in &messages.remove(0).parts {
            note_cache(part, losses);
        }
    }
    let mut writer = ItemWriter { own, losses, items: Vec::new() };
    for message in messages {
        writer.message(message)?;
    }
    let mut items = writer.items;
    let input = match &mut items[..] {
        [Value::Object(only)]
            if own && only.len() == 2 && only["role"] == "user" && only["content"].is_string() =>
        {
            only["content"].take()
        }
        _ => items.into(),
    };
    body.insert("input".to_owned(), input);
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    write_tools(&mut body, &mut request, losses)?;
    write_text(&mut body, &mut request);
    set(&mut body, "max_output_tokens", request.max_tokens);
    set(&mut body, "temperature", request.temperature.take());
    set(&mut body, "top_p", request.top_p.take());
    // Not to think is what most models do anyway, and what some refuse to be told.
    let quiet =
        request.reasoning.as_ref().is_some_and(|reasoning| reasoning.effort_or_budget() == Some("none"));
    if !own
        && (quiet || !thinks(body["model"].as_str().unwrap_or_default()))
        && request.reasoning.take().is_some()
    {
        losses.drop(Field::Reasoning);
    }
    write_wishes(&mut body, &mut request, own);
    set(&mut body, "top_logprobs", request.top_logprobs);
    if let Some(reasoning) = request.reasoning.take() {
        write_reasoning(&mut body, reasoning, own, losses);
    }
    let user = request.user.take();
    set(&mut body, "user", if own { user } else { short_user(user, losses) });
    set(&mut body, "metadata", request.metadata.take());
    set(&mut body, "service_tier", request.service_tier.take());
    // Callers of other formats do not expect to be stored.
    set(&mut body, "store", if own { request.store } else { Some(request.store.unwrap_or(false)) });
    set(&mut body, "prompt_cache_key", request.prompt_cache_key.take());
    refuse_or_drop(&request, losses)?;
    if own {
        merge_extra(&mut body, request.extra);
    } else {
        losses.drop_extra(Place::Request, &request.extra);
    }
    Ok(body.into())
}

/// What responses have no place for.
fn refuse_or_drop(request: &Request, losses: &mut Losses) -> Result<(), Untranslatable> {
    if request.n.is_some_and(|n| n > 1) {
        return Err(losses.refuse(Field::N, "this provider gives one answer at a time"));
    }
    if !request.stop.is_empty() {
        return Err(losses.refuse(Field::Stop, "this provider knows no stop sequences"));
    }
    let bias = request.logit_bias.as_ref().and_then(Value::as_object);
    if bias.is_some_and(|bias| !bias.is_empty()) {
        return Err(losses.refuse(Field::LogitBias, "this provider cannot bias tokens"));
    }
    for (there, field) in [
        (request.top_k.is_some(), Field::TopK),
        (request.frequency_penalty.is_some(), Field::FrequencyPenalty),
        (request.presence_penalty.is_some(), Field::PresencePenalty),
        (request.seed.is_some(), Field::Seed),
    ] {
        if there {
            losses.drop(field);
        }
    }
    Ok(())
}

/// `include`: probabilities, and what the next request needs for the thoughts of this one.
fn write_wishes(body: &mut Object, request: &mut Request, own: bool) {
    let mut include = match request.extra.shift_remove("include") {
        Some(Value::Array(include)) if own => include,
        Some(other) if !own => {
            request.extra.insert("include".to_owned(), other);
            Vec::new()
        }
        _ => Vec::new(),
    };
    if request.logprobs {
        include.push("message.output_text.logprobs".into());
    }
    if !own && request.reasoning.is_some() {
        include.push("reasoning.encrypted_content".into());
    }
    set(body, "include", (!include.is_empty()).then_some(include));
}

/// Fields that belong into objects written before come in addition to what these hold.
fn merge_extra(body: &mut Object, extra: Object) {
    for (key, value) in extra {
        match (body.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(mut more)) => known.append(&mut more),
            (_, value) => {
                body.insert(key, value);
            }
        }
    }
}

fn plain_system(message: &Message) -> bool {
    let text = |part: &Part| matches!(part.content, Content::Text(_)) && part.extra.is_empty();
    message.role == Role::System && message.extra.is_empty() && message.parts.iter().all(text)
}

fn write_text(body: &mut Object, request: &mut Request) {
    let mut text = Object::new();
    let format = request.output.take().map(|output| match output {
        OutputFormat::Text => json!({"type": "text"}),
        OutputFormat::JsonObject => json!({"type": "json_object"}),
        OutputFormat::JsonSchema { name, description, schema, strict } => {
            let mut format = Object::new();
            format.insert("type".to_owned(), "json_schema".into());
            format.insert("name".to_owned(), name.unwrap_or_else(|| "output".to_owned()).into());
            set(&mut format, "description", description);
            format.insert("schema".to_owned(), schema);
            set(&mut format, "strict", strict);
            format.into()
        }
    });
    set(&mut text, "format", format);
    set(&mut text, "verbosity", request.verbosity.take());
    set(body, "text", (!text.is_empty()).then_some(text));
}

fn write_reasoning(body: &mut Object, reasoning: Reasoning, own: bool, losses: &mut Losses) {
    let mut written = Object::new();
    let effort = match reasoning.effort_or_budget() {
        Some("max") if !own => Some("xhigh"),
        effort => effort,
    };
    set(&mut written, "effort", effort);
    let show = match reasoning.show.as_deref() {
        Some("omitted") => None,
        Some(show @ ("auto" | "concise" | "detailed")) => Some(show),
        Some(_) => Some("auto"),
        // Who asks for thoughts in another format is shown them.
        None if !own => Some("auto"),
        None => None,
    };
    set(&mut written, "summary", show);
    if own {
        written.extend(reasoning.extra);
    } else {
        losses.drop_extra(Place::Reasoning, &reasoning.extra);
    }
    body.insert("reasoning".to_owned(), written.into());
}

fn write_tools(body: &mut Object, request: &mut Request, losses: &mut Losses) -> Result<(), Untranslatable> {
    let own = request.wire == Wire::OpenAiResponses;
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
        Some(ToolChoice::Other(value)) if own => Some(value),
        Some(ToolChoice::Other(_)) => {
            return Err(losses.refuse(Field::ToolChoice, "cannot be expressed for this provider"));
        }
    };
    set(body, "tool_choice", choice.filter(|_| any || own));
    set(body, "parallel_tool_calls", request.parallel_tool_calls.take().filter(|_| any || own));
    Ok(())
}

fn write_function(function: Function, own: bool, losses: &mut Losses) -> Value {
    let mut tool = Object::new();
    tool.insert("type".to_owned(), "function".into());
    tool.insert("name".to_owned(), function.name.into());
    set(&mut tool, "description", function.description);
    let parameters =
        function.parameters.or_else(|| (!own).then(|| json!({"type": "object", "properties": {}})));
    set(&mut tool, "parameters", parameters);
    // Strict is the default here, and nowhere else.
    set(&mut tool, "strict", if own { function.strict } else { Some(function.strict.unwrap_or(false)) });
    if function.cache.is_some() {
        losses.drop(Field::CacheControl);
    }
    if own {
        tool.extend(function.extra);
    } else {
        losses.drop_extra(Place::Tool, &function.extra);
    }
    tool.into()
}
