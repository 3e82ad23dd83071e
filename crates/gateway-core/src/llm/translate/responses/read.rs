//! A caller's request for a response.

use serde_json::{Map, Value};

use super::{
    super::{
        super::chat::{
            Content, Function, Message, OutputFormat, Part, Reasoning, Request, Role, Tool, ToolChoice,
            ToolResult, Untranslatable, Wire,
        },
        json::{boolean, element, list, needed_string, number, object, string, take, whole, within},
    },
    items::{is_said, read_call, read_content, read_reasoning},
};

type Object = Map<String, Value>;

const LOGPROBS: &str = "message.output_text.logprobs";

pub(super) fn read_request(mut body: Object) -> Result<Request, Untranslatable> {
    let body = &mut body;
    let mut request = Request::new(Wire::OpenAiResponses);
    if let Some(instructions) = string(body, "instructions")? {
        request.messages.push(Message::text(Role::System, instructions));
    }
    match take(body, "input") {
        Some(Value::String(text)) => request.messages.push(Message::text(Role::User, text)),
        Some(Value::Array(items)) => {
            for (at, item) in items.into_iter().enumerate() {
                let read = element(item, "").and_then(|item| read_item(&mut request.messages, item));
                within(|| format!("input.{at}"), read)?;
            }
        }
        // A stored prompt or an earlier response may say it all.
        None => {}
        Some(_) => return Err(Untranslatable::malformed("input", "must be a string or a list of items")),
    }
    request.model = string(body, "model")?.unwrap_or_default();
    request.stream = boolean(body, "stream")?.unwrap_or(false);
    for (at, tool) in list(body, "tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(within(|| format!("tools.{at}"), element(tool, "").and_then(read_tool))?);
    }
    request.tool_choice = take(body, "tool_choice").map(read_tool_choice).transpose()?;
    request.parallel_tool_calls = boolean(body, "parallel_tool_calls")?;
    read_text(body, &mut request)?;
    request.max_tokens = whole(body, "max_output_tokens")?;
    request.temperature = number(body, "temperature")?;
    request.top_p = number(body, "top_p")?;
    request.top_logprobs = whole(body, "top_logprobs")?;
    if let Some(mut include) = list(body, "include")? {
        request.logprobs = include.iter().any(|wish| wish.as_str() == Some(LOGPROBS));
        include.retain(|wish| wish.as_str() != Some(LOGPROBS));
        if !include.is_empty() {
            body.insert("include".to_owned(), include.into());
        }
    }
    request.reasoning = object(body, "reasoning")?
        .map(|reasoning| within(|| "reasoning".to_owned(), read_effort(reasoning)))
        .transpose()?;
    request.user = string(body, "user")?;
    request.metadata = take(body, "metadata");
    request.service_tier = string(body, "service_tier")?;
    request.store = boolean(body, "store")?;
    request.prompt_cache_key = string(body, "prompt_cache_key")?;
    request.extra = std::mem::take(body);
    // What is null, or says what holds anyway, is nothing that a translation could lose.
    request.extra.retain(|key, value| {
        !(value.is_null()
            || (key == "background" && *value == Value::Bool(false))
            || (key == "truncation" && value.as_str() == Some("disabled")))
    });
    Ok(request)
}

/// Adds an item to the conversation. Thoughts, words and calls of the model that follow each other are one message, as
/// in every other format.
fn read_item(messages: &mut Vec<Message>, mut item: Object) -> Result<(), Untranslatable> {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
    let part = match &*kind {
        "message" => return read_message(messages, item),
        "function_call" => read_call(item)?,
        "reasoning" => match read_reasoning(item)? {
            Some(part) => part,
            None => return Ok(()),
        },
        "function_call_output" => {
            item.shift_remove("type");
            let id = needed_string(&mut item, "call_id")?;
            let (parts, bare) = read_content(take(&mut item, "output"), "output")?;
            let result = Content::ToolResult(ToolResult { id, name: None, parts, bare, is_error: None });
            let message = Message::new(Role::Tool, vec![Part { content: result, cache: None, extra: item }]);
            messages.push(message);
            return Ok(());
        }
        _ => Part::new(Content::Other(item.into())),
    };
    match messages.last_mut() {
        Some(last) if last.role == Role::Assistant => {
            last.bare = false;
            last.parts.push(part);
        }
        _ => messages.push(Message::new(Role::Assistant, vec![part])),
    }
    Ok(())
}

fn read_message(messages: &mut Vec<Message>, mut item: Object) -> Result<(), Untranslatable> {
    let role = match &*needed_string(&mut item, "role")? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => return Err(Untranslatable::malformed("role", format!("`{other}` is not a role"))),
    };
    let (parts, bare) = read_content(take(&mut item, "content"), "content")?;
    match messages.last_mut() {
        Some(last) if role == Role::Assistant && last.role == role && open(last) => {
            last.parts.extend(parts);
            last.extra.append(&mut item);
        }
        _ => messages.push(Message { role, parts, bare, name: None, extra: item }),
    }
    Ok(())
}

/// Whether the model may still be speaking: it has only thought so far, or its calls have not been answered.
fn open(message: &Message) -> bool {
    let called = message.parts.iter().any(|part| matches!(part.content, Content::ToolCall(_)));
    called || !message.parts.iter().any(is_said)
}

fn read_text(body: &mut Object, request: &mut Request) -> Result<(), Untranslatable> {
    let Some(mut text) = object(body, "text")? else { return Ok(()) };
    request.verbosity = string(&mut text, "verbosity")?;
    if let Some(format) = object(&mut text, "format")? {
        request.output = Some(within(|| "text.format".to_owned(), read_format(format))?);
    }
    if !text.is_empty() {
        body.insert("text".to_owned(), text.into());
    }
    Ok(())
}

fn read_format(mut format: Object) -> Result<OutputFormat, Untranslatable> {
    match &*needed_string(&mut format, "type")? {
        "text" => Ok(OutputFormat::Text),
        "json_object" => Ok(OutputFormat::JsonObject),
        "json_schema" => Ok(OutputFormat::JsonSchema {
            name: string(&mut format, "name")?,
            description: string(&mut format, "description")?,
            schema: take(&mut format, "schema").unwrap_or_else(|| Value::Object(Map::new())),
            strict: boolean(&mut format, "strict")?,
        }),
        other => Err(Untranslatable::malformed("type", format!("`{other}` is not a format"))),
    }
}

fn read_effort(mut reasoning: Object) -> Result<Reasoning, Untranslatable> {
    let effort = string(&mut reasoning, "effort")?;
    let old_name = string(&mut reasoning, "generate_summary")?;
    let show = string(&mut reasoning, "summary")?.or(old_name);
    reasoning.retain(|_, value| !value.is_null());
    Ok(Reasoning {
        enabled: (effort.as_deref() == Some("none")).then_some(false),
        effort,
        budget: None,
        show,
        extra: reasoning,
    })
}

fn read_tool(mut tool: Object) -> Result<Tool, Untranslatable> {
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        return Ok(Tool::Other(tool.into()));
    }
    tool.shift_remove("type");
    Ok(Tool::Function(Function {
        name: needed_string(&mut tool, "name")?,
        description: string(&mut tool, "description")?,
        parameters: take(&mut tool, "parameters"),
        strict: boolean(&mut tool, "strict")?,
        cache: None,
        extra: tool,
    }))
}

fn read_tool_choice(choice: Value) -> Result<ToolChoice, Untranslatable> {
    let wrong = || Untranslatable::malformed("tool_choice", "is not a choice of tools");
    let choice = match choice {
        Value::String(word) => {
            return match &*word {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                "required" => Ok(ToolChoice::Required),
                _ => Err(wrong()),
            };
        }
        Value::Object(choice) => choice,
        _ => return Err(wrong()),
    };
    let name_of = |tool: &Value| match tool.get("type").and_then(Value::as_str) {
        Some("function") => Some(tool.get("name")?.as_str()?.to_owned()),
        _ => None,
    };
    Ok(match choice.get("type").and_then(Value::as_str) {
        Some("function") => {
            let name = choice.get("name").and_then(Value::as_str).ok_or_else(wrong)?;
            ToolChoice::Tool(name.to_owned())
        }
        Some("allowed_tools") => {
            let tools = choice.get("tools").and_then(Value::as_array).ok_or_else(wrong)?;
            match tools.iter().map(name_of).collect::<Option<Vec<_>>>() {
                Some(names) => {
                    let required = choice.get("mode").and_then(Value::as_str) == Some("required");
                    ToolChoice::Allowed { names, required }
                }
                None => ToolChoice::Other(choice.into()),
            }
        }
        Some(_) => ToolChoice::Other(choice.into()),
        None => return Err(wrong()),
    })
}
