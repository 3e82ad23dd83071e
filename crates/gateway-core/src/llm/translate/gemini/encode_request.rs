//! Encodes a generateContent request.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            ChatRequest, Content, FieldLocation, FunctionTool, Losses, OutputFormat, Reasoning, RequestField,
            Role, Tool, ToolChoice, TranslationError, WireFormat,
        },
        alternating_turns,
        json::insert_some,
    },
    encode_parts::PartEncoder,
};

type Object = Map<String, Value>;

pub(super) fn encode_request(
    mut request: ChatRequest,
    losses: &mut Losses,
) -> Result<Value, TranslationError> {
    let same_format = request.format == WireFormat::Gemini;
    let names = tool_names_by_call_id(&request);
    let messages = std::mem::take(&mut request.messages);
    let alternating_turns::AlternatingTurns { system, turns } =
        alternating_turns::to_alternating_turns(messages, same_format, losses);
    let mut encoder = PartEncoder { same_format, losses, names };
    let mut body = Object::new();
    let mut instruction = Vec::new();
    for message in system {
        instruction.extend(encoder.encode_parts(message.parts)?);
    }
    let mut contents = Vec::with_capacity(turns.len());
    for turn in turns {
        let role = if turn.role == Role::Assistant { "model" } else { "user" };
        let parts = encoder.encode_parts(turn.parts)?;
        let mut content =
            Object::from_iter([("role".to_owned(), role.into()), ("parts".to_owned(), parts.into())]);
        if same_format {
            content.extend(turn.extra);
        }
        contents.push(Value::Object(content));
    }
    insert_some(
        &mut body,
        "systemInstruction",
        (!instruction.is_empty()).then(|| json!({"parts": instruction})),
    );
    body.insert("contents".to_owned(), contents.into());
    encode_tools(&mut body, &mut request, losses)?;
    let mut config = encode_config(&mut request, losses)?;
    drop_unsupported_params(&request, losses);
    if same_format {
        insert_some(&mut body, "labels", request.metadata.take());
        for (key, value) in request.extra {
            match (key.strip_prefix("generationConfig."), body.get_mut(&key), value) {
                (Some(inner), _, value) => {
                    config.insert(inner.to_owned(), value);
                }
                (None, Some(Value::Object(known)), Value::Object(rest)) => known.extend(rest),
                (None, _, value) => {
                    body.insert(key, value);
                }
            }
        }
    } else {
        losses.drop_extra(FieldLocation::Request, &request.extra);
    }
    insert_some(&mut body, "generationConfig", (!config.is_empty()).then_some(config));
    Ok(body.into())
}

/// Records the parameters without a counterpart that can be dropped.
fn drop_unsupported_params(request: &ChatRequest, losses: &mut Losses) {
    for (is_present, field) in [
        (request.user.is_some(), RequestField::User),
        (request.metadata.is_some() && request.format != WireFormat::Gemini, RequestField::Metadata),
        (request.store == Some(true), RequestField::Store),
        (request.service_tier.as_deref().is_some_and(|tier| tier != "auto"), RequestField::ServiceTier),
        (request.prompt_cache_key.is_some(), RequestField::PromptCacheKey),
        (request.verbosity.is_some(), RequestField::Verbosity),
        (request.parallel_tool_calls == Some(false), RequestField::ParallelToolCalls),
    ] {
        if is_present {
            losses.drop(field);
        }
    }
}

fn encode_config(request: &mut ChatRequest, losses: &mut Losses) -> Result<Object, TranslationError> {
    let bias = request.logit_bias.as_ref().and_then(Value::as_object);
    if bias.is_some_and(|bias| !bias.is_empty()) {
        return Err(losses.unsupported(RequestField::LogitBias, "this provider does not support logit bias"));
    }
    let mut config = Object::new();
    insert_some(&mut config, "maxOutputTokens", request.max_tokens);
    insert_some(&mut config, "temperature", request.temperature.take());
    insert_some(&mut config, "topP", request.top_p.take());
    insert_some(&mut config, "topK", request.top_k.take());
    insert_some(&mut config, "frequencyPenalty", request.frequency_penalty.take());
    insert_some(&mut config, "presencePenalty", request.presence_penalty.take());
    insert_some(&mut config, "seed", request.seed.take());
    insert_some(&mut config, "candidateCount", request.n);
    insert_some(
        &mut config,
        "stopSequences",
        (!request.stop.is_empty()).then(|| std::mem::take(&mut request.stop)),
    );
    insert_some(&mut config, "responseLogprobs", request.logprobs.then_some(true));
    insert_some(&mut config, "logprobs", request.top_logprobs);
    match request.output.take() {
        None => {}
        Some(OutputFormat::Text) => insert_some(&mut config, "responseMimeType", Some("text/plain")),
        Some(OutputFormat::JsonObject) => {
            insert_some(&mut config, "responseMimeType", Some("application/json"));
        }
        Some(OutputFormat::JsonSchema { name, description, schema, strict: _ }) => {
            if name.is_some() || description.is_some() {
                losses.drop(RequestField::OutputName);
            }
            insert_some(&mut config, "responseMimeType", Some("application/json"));
            if !(request.format == WireFormat::Gemini
                && request.extra.contains_key("generationConfig.responseSchema"))
            {
                config.insert("responseJsonSchema".to_owned(), schema);
            }
        }
    }
    if let Some(reasoning) = request.reasoning.take() {
        let thinking =
            encode_thinking(&request.model, reasoning, request.format == WireFormat::Gemini, losses);
        insert_some(&mut config, "thinkingConfig", (!thinking.is_empty()).then_some(thinking));
    }
    Ok(config)
}

/// Encodes the thinking parameters. Models up to 2.5 take a token budget, later ones a level.
fn encode_thinking(model: &str, reasoning: Reasoning, same_format: bool, losses: &mut Losses) -> Object {
    let mut thinking = Object::new();
    let takes_budget = ["gemini-1", "gemini-2", "gemini-robotics-er-1"].iter().any(|old| model.contains(old));
    let is_pro = model.contains("pro");
    if same_format {
        insert_some(&mut thinking, "thinkingLevel", reasoning.effort);
        insert_some(&mut thinking, "thinkingBudget", reasoning.budget);
    } else if takes_budget {
        // Pro and Flash models have different maximum budgets, and thinking cannot be turned off for Pro.
        let max_budget = if is_pro { 32_768 } else { 24_576 };
        match reasoning.resolved_budget() {
            Some(0) if is_pro => losses.drop(RequestField::Reasoning),
            budget => {
                insert_some(&mut thinking, "thinkingBudget", budget.map(|budget| budget.min(max_budget)));
            }
        }
    } else {
        let level = match reasoning.resolved_effort() {
            Some("none" | "minimal") if !is_pro => Some("minimal"),
            Some("none" | "minimal" | "low") => Some("low"),
            Some("medium") => Some("medium"),
            Some(_) => Some("high"),
            None => None,
        };
        insert_some(&mut thinking, "thinkingLevel", level);
    }
    let include = match (reasoning.display.as_deref(), reasoning.enabled) {
        (Some("omitted"), _) => same_format.then_some(false),
        (Some(_), _) => Some(true),
        // Callers of other formats expect thinking in the response. The next turn also needs its signatures.
        (None, enabled) if !same_format && enabled != Some(false) => Some(true),
        (None, _) => None,
    };
    insert_some(&mut thinking, "includeThoughts", include);
    if same_format {
        thinking.extend(reasoning.extra);
    } else {
        losses.drop_extra(FieldLocation::Reasoning, &reasoning.extra);
    }
    thinking
}

fn encode_tools(
    body: &mut Object,
    request: &mut ChatRequest,
    losses: &mut Losses,
) -> Result<(), TranslationError> {
    let same_format = request.format == WireFormat::Gemini;
    let mut functions = Vec::new();
    let mut others = Vec::new();
    for tool in std::mem::take(&mut request.tools) {
        match tool {
            Tool::Function(function) => functions.push(encode_function(function, same_format, losses)),
            Tool::Other(value) if same_format => others.push(value),
            Tool::Other(_) => {
                return Err(
                    losses.unsupported(RequestField::Tool, "this provider supports function tools only")
                );
            }
        }
    }
    let has_functions = !functions.is_empty();
    let mut tools = Vec::new();
    tools.extend(has_functions.then(|| json!({"functionDeclarations": functions})));
    tools.append(&mut others);
    insert_some(body, "tools", (!tools.is_empty()).then_some(tools));
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
            return Err(losses
                .unsupported(RequestField::ToolChoice, "this provider does not support this tool choice"));
        }
    };
    let config = calling
        .filter(|_| has_functions || same_format)
        .map(|calling| json!({"functionCallingConfig": calling}));
    insert_some(body, "toolConfig", config);
    Ok(())
}

fn encode_function(function: FunctionTool, same_format: bool, losses: &mut Losses) -> Value {
    let mut encoded = Object::new();
    encoded.insert("name".to_owned(), function.name.into());
    insert_some(&mut encoded, "description", function.description);
    let parameters =
        function.parameters.filter(|_| !(same_format && function.extra.contains_key("parameters")));
    insert_some(&mut encoded, "parametersJsonSchema", parameters);
    if function.strict == Some(true) {
        losses.drop(RequestField::Strict);
    }
    if function.cache.is_some() {
        losses.drop(RequestField::CacheControl);
    }
    if same_format {
        encoded.extend(function.extra);
    } else {
        losses.drop_extra(FieldLocation::Tool, &function.extra);
    }
    encoded.into()
}

fn tool_names_by_call_id(request: &ChatRequest) -> HashMap<String, String> {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    let calls = parts.filter_map(|part| match &part.content {
        Content::ToolCall(call) => Some((call.id.clone(), call.name.clone())),
        _ => None,
    });
    calls.collect()
}
