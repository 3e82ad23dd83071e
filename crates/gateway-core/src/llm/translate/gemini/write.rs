//! A request to generate content, for a provider.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            Content, Field, Function, Losses, OutputFormat, Place, Reasoning, Request, Role, Tool,
            ToolChoice, Untranslatable, Wire,
        },
        json::set,
        turns,
    },
    write_parts::PartWriter,
};

type Object = Map<String, Value>;

pub(super) fn write_request(mut request: Request, losses: &mut Losses) -> Result<Value, Untranslatable> {
    let own = request.wire == Wire::Gemini;
    let names = tool_names(&request);
    let messages = std::mem::take(&mut request.messages);
    let turns::Turns { system, turns } = turns::gather(messages, own, losses);
    let mut writer = PartWriter { own, losses, names };
    let mut body = Object::new();
    let mut instruction = Vec::new();
    for message in system {
        instruction.extend(writer.parts(message.parts)?);
    }
    let mut contents = Vec::with_capacity(turns.len());
    for turn in turns {
        let role = if turn.role == Role::Assistant { "model" } else { "user" };
        let parts = writer.parts(turn.parts)?;
        let mut content =
            Object::from_iter([("role".to_owned(), role.into()), ("parts".to_owned(), parts.into())]);
        if own {
            content.extend(turn.extra);
        }
        contents.push(Value::Object(content));
    }
    set(&mut body, "systemInstruction", (!instruction.is_empty()).then(|| json!({"parts": instruction})));
    body.insert("contents".to_owned(), contents.into());
    write_tools(&mut body, &mut request, losses)?;
    let mut config = write_config(&mut request, losses)?;
    drop_rest(&request, losses);
    if own {
        set(&mut body, "labels", request.metadata.take());
        for (key, value) in request.extra {
            match (key.strip_prefix("generationConfig."), body.get_mut(&key), value) {
                (Some(inner), _, value) => {
                    config.insert(inner.to_owned(), value);
                }
                (None, Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
                (None, _, value) => {
                    body.insert(key, value);
                }
            }
        }
    } else {
        losses.drop_extra(Place::Request, &request.extra);
    }
    set(&mut body, "generationConfig", (!config.is_empty()).then_some(config));
    Ok(body.into())
}

/// What this format has no place for, and what may be left out of it.
fn drop_rest(request: &Request, losses: &mut Losses) {
    for (there, field) in [
        (request.user.is_some(), Field::User),
        (request.metadata.is_some() && request.wire != Wire::Gemini, Field::Metadata),
        (request.store == Some(true), Field::Store),
        (request.service_tier.as_deref().is_some_and(|tier| tier != "auto"), Field::ServiceTier),
        (request.prompt_cache_key.is_some(), Field::PromptCacheKey),
        (request.verbosity.is_some(), Field::Verbosity),
        (request.parallel_tool_calls == Some(false), Field::ParallelToolCalls),
    ] {
        if there {
            losses.drop(field);
        }
    }
}

fn write_config(request: &mut Request, losses: &mut Losses) -> Result<Object, Untranslatable> {
    let bias = request.logit_bias.as_ref().and_then(Value::as_object);
    if bias.is_some_and(|bias| !bias.is_empty()) {
        return Err(losses.refuse(Field::LogitBias, "this provider cannot bias tokens"));
    }
    let mut config = Object::new();
    set(&mut config, "maxOutputTokens", request.max_tokens);
    set(&mut config, "temperature", request.temperature.take());
    set(&mut config, "topP", request.top_p.take());
    set(&mut config, "topK", request.top_k.take());
    set(&mut config, "frequencyPenalty", request.frequency_penalty.take());
    set(&mut config, "presencePenalty", request.presence_penalty.take());
    set(&mut config, "seed", request.seed.take());
    set(&mut config, "candidateCount", request.n);
    set(&mut config, "stopSequences", (!request.stop.is_empty()).then(|| std::mem::take(&mut request.stop)));
    set(&mut config, "responseLogprobs", request.logprobs.then_some(true));
    set(&mut config, "logprobs", request.top_logprobs);
    match request.output.take() {
        None => {}
        Some(OutputFormat::Text) => set(&mut config, "responseMimeType", Some("text/plain")),
        Some(OutputFormat::JsonObject) => set(&mut config, "responseMimeType", Some("application/json")),
        Some(OutputFormat::JsonSchema { name, description, schema, strict: _ }) => {
            if name.is_some() || description.is_some() {
                losses.drop(Field::OutputName);
            }
            set(&mut config, "responseMimeType", Some("application/json"));
            if !(request.wire == Wire::Gemini
                && request.extra.contains_key("generationConfig.responseSchema"))
            {
                config.insert("responseJsonSchema".to_owned(), schema);
            }
        }
    }
    if let Some(reasoning) = request.reasoning.take() {
        let thinking = write_thinking(&request.model, reasoning, request.wire == Wire::Gemini, losses);
        set(&mut config, "thinkingConfig", (!thinking.is_empty()).then_some(thinking));
    }
    Ok(config)
}

/// Models up to 2.5 measure thinking in tokens, later ones in words.
fn write_thinking(model: &str, reasoning: Reasoning, own: bool, losses: &mut Losses) -> Object {
    let mut thinking = Object::new();
    let by_tokens = ["gemini-1", "gemini-2", "gemini-robotics-er-1"].iter().any(|old| model.contains(old));
    let pro = model.contains("pro");
    if own {
        set(&mut thinking, "thinkingLevel", reasoning.effort);
        set(&mut thinking, "thinkingBudget", reasoning.budget);
    } else if by_tokens {
        // The largest budgets that the two families take; the larger one cannot be told not to think.
        let most = if pro { 32_768 } else { 24_576 };
        match reasoning.budget_or_effort() {
            Some(0) if pro => losses.drop(Field::Reasoning),
            budget => set(&mut thinking, "thinkingBudget", budget.map(|budget| budget.min(most))),
        }
    } else {
        let level = match reasoning.effort_or_budget() {
            Some("none" | "minimal") if !pro => Some("minimal"),
            Some("none" | "minimal" | "low") => Some("low"),
            Some("medium") => Some("medium"),
            Some(_) => Some("high"),
            None => None,
        };
        set(&mut thinking, "thinkingLevel", level);
    }
    let show = match (reasoning.show.as_deref(), reasoning.enabled) {
        (Some("omitted"), _) => own.then_some(false),
        (Some(_), _) => Some(true),
        // Who asks for thoughts in another format is shown them, with the signatures that the next turn needs.
        (None, enabled) if !own && enabled != Some(false) => Some(true),
        (None, _) => None,
    };
    set(&mut thinking, "includeThoughts", show);
    if own {
        thinking.extend(reasoning.extra);
    } else {
        losses.drop_extra(Place::Reasoning, &reasoning.extra);
    }
    thinking
}

fn write_tools(body: &mut Object, request: &mut Request, losses: &mut Losses) -> Result<(), Untranslatable> {
    let own = request.wire == Wire::Gemini;
    let mut functions = Vec::new();
    let mut others = Vec::new();
    for tool in std::mem::take(&mut request.tools) {
        match tool {
            Tool::Function(function) => functions.push(write_function(function, own, losses)),
            Tool::Other(value) if own => others.push(value),
            Tool::Other(_) => {
                return Err(losses.refuse(Field::Tool, "only function tools can be used with this provider"));
            }
        }
    }
    let any = !functions.is_empty();
    let mut tools = Vec::new();
    tools.extend(any.then(|| json!({"functionDeclarations": functions})));
    tools.append(&mut others);
    set(body, "tools", (!tools.is_empty()).then_some(tools));
    let calling = match request.tool_choice.take() {
        None => None,
        Some(ToolChoice::Auto) => Some(json!({"mode": "AUTO"})),
        Some(ToolChoice::None) => Some(json!({"mode": "NONE"})),
        Some(ToolChoice::Required) => Some(json!({"mode": "ANY"})),
        Some(ToolChoice::Tool(name)) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
        Some(ToolChoice::Allowed { names, required }) => {
            let mode = if required { "ANY" } else { "VALIDATED" };
            Some(json!({"mode": mode, "allowedFunctionNames": names}))
        }
        Some(ToolChoice::Other(_)) => {
            return Err(losses.refuse(Field::ToolChoice, "cannot be expressed for this provider"));
        }
    };
    let config = calling.filter(|_| any || own).map(|calling| json!({"functionCallingConfig": calling}));
    set(body, "toolConfig", config);
    Ok(())
}

fn write_function(function: Function, own: bool, losses: &mut Losses) -> Value {
    let mut written = Object::new();
    written.insert("name".to_owned(), function.name.into());
    set(&mut written, "description", function.description);
    let parameters = function.parameters.filter(|_| !(own && function.extra.contains_key("parameters")));
    set(&mut written, "parametersJsonSchema", parameters);
    if function.strict == Some(true) {
        losses.drop(Field::Strict);
    }
    if function.cache.is_some() {
        losses.drop(Field::CacheControl);
    }
    if own {
        written.extend(function.extra);
    } else {
        losses.drop_extra(Place::Tool, &function.extra);
    }
    written.into()
}

fn tool_names(request: &Request) -> Vec<(String, String)> {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    let calls = parts.filter_map(|part| match &part.content {
        Content::ToolCall(call) => Some((call.id.clone(), call.name.clone())),
        _ => None,
    });
    calls.collect()
}
