//! A request for a message, for a provider.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::super::{
    super::chat::{
        Cache, Content, Field, Function, Losses, Media, MediaKind, Message, OutputFormat, Part, Place,
        Reasoning, Request, Role, Source, Tool, ToolChoice, Untranslatable, Wire, arguments_value,
    },
    claude::{self, Mode, Thinking},
    common::{allowed_only, refuse_common},
    json::set,
    turns::{Turns, gather, json_line, plain_id},
};

type Object = Map<String, Value>;

pub(super) fn write_request(mut request: Request, losses: &mut Losses) -> Result<Value, Untranslatable> {
    let own = request.wire == Wire::Anthropic;
    let generation = claude::generation(&request.model).unwrap_or((u32::MAX, 0));
    let max_tokens = request.max_tokens.unwrap_or_else(|| claude::default_max_tokens(generation));
    let thinking = if own {
        own_thinking(request.reasoning.as_ref())
    } else {
        refuse_common(&request, losses)?;
        let thinking = claude::thinking(&request, generation, max_tokens, losses);
        claude::limit_sampling(&mut request, generation, thinking.mode, losses);
        thinking
    };
    let mut writer = Writer { own, losses };
    let mut body = Object::new();
    body.insert("model".to_owned(), std::mem::take(&mut request.model).into());
    body.insert("max_tokens".to_owned(), max_tokens.into());
    writer.conversation(&mut body, &mut request)?;
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    writer.tools(&mut body, &mut request, generation)?;
    set(&mut body, "temperature", request.temperature);
    set(&mut body, "top_p", request.top_p);
    set(&mut body, "top_k", request.top_k);
    if !own {
        let before = request.stop.len();
        // Refused by Anthropic.
        request.stop.retain(|sequence| !sequence.trim().is_empty());
        if request.stop.len() < before {
            losses.drop(Field::Stop);
        }
    }
    set(&mut body, "stop_sequences", (!request.stop.is_empty()).then_some(request.stop));
    write_thinking(&mut body, thinking, request.reasoning, own);
    write_output(&mut body, request.output, &mut request.extra);
    write_metadata(&mut body, request.user, request.metadata, own, losses);
    if own {
        set(&mut body, "service_tier", request.service_tier);
        body.append(&mut request.extra);
    } else {
        losses.drop_extra(Place::Request, &request.extra);
    }
    Ok(body.into())
}

fn own_thinking(reasoning: Option<&Reasoning>) -> Thinking {
    let Some(reasoning) = reasoning else { return Thinking::default() };
    let mode = reasoning.enabled.map(|enabled| match reasoning.budget {
        _ if !enabled => Mode::Disabled,
        Some(budget) => Mode::Budget(budget),
        None => Mode::Adaptive,
    });
    Thinking { mode, effort: reasoning.effort.clone() }
}

fn write_thinking(body: &mut Object, thinking: Thinking, reasoning: Option<Reasoning>, own: bool) {
    if let Some(mode) = thinking.mode {
        let mut written = Object::new();
        let kind = match mode {
            Mode::Budget(_) => "enabled",
            Mode::Adaptive => "adaptive",
            Mode::Disabled => "disabled",
        };
        written.insert("type".to_owned(), kind.into());
        if let Mode::Budget(budget) = mode {
            written.insert("budget_tokens".to_owned(), budget.into());
        }
        if let Some(mut reasoning) = reasoning.filter(|_| own) {
            set(&mut written, "display", reasoning.show);
            written.append(&mut reasoning.extra);
        }
        body.insert("thinking".to_owned(), written.into());
    }
    if let Some(effort) = thinking.effort {
        body.insert("output_config".to_owned(), json!({"effort": effort}));
    }
}

fn write_output(body: &mut Object, output: Option<OutputFormat>, extra: &mut Object) {
    let config = body.entry("output_config").or_insert_with(|| Value::Object(Object::new()));
    if let Value::Object(config) = config {
        if let Some(OutputFormat::JsonSchema { schema, .. }) = output {
            config.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
        }
        if let Some(Value::Object(more)) = extra.get_mut("output_config") {
            config.append(more);
            extra.shift_remove("output_config");
        }
        if config.is_empty() {
            body.shift_remove("output_config");
        }
    }
}

fn write_metadata(
    body: &mut Object,
    user: Option<String>,
    metadata: Option<Value>,
    own: bool,
    losses: &mut Losses,
) {
    let mut written = match metadata {
        Some(Value::Object(metadata)) if own => metadata,
        Some(_) => {
            losses.drop(Field::Metadata);
            Object::new()
        }
        None => Object::new(),
    };
    set(&mut written, "user_id", user);
    if !written.is_empty() {
        body.insert("metadata".to_owned(), written.into());
    }
}

struct Writer<'a> {
    own: bool,
    losses: &'a mut Losses,
}

impl Writer<'_> {
    fn conversation(&mut self, body: &mut Object, request: &mut Request) -> Result<(), Untranslatable> {
        let Turns { mut system, turns } =
            gather(std::mem::take(&mut request.messages), self.own, self.losses);
        if let Some(line) = json_line(request.output.as_ref()) {
            system.push(Message::text(Role::System, line));
        }
        match &mut *system {
            [] => {}
            [one] if one.bare => {
                let text = one.parts.pop().map(|part| part.content);
                set(
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
                    blocks.extend(self.block(part)?);
                }
                body.insert("system".to_owned(), blocks.into());
            }
        }
        let mut messages = Vec::with_capacity(turns.len());
        for turn in turns {
            let role = if turn.role == Role::Assistant { "assistant" } else { "user" };
            let content = self.content(turn.parts, turn.bare)?;
            if content.as_array().is_some_and(Vec::is_empty) && !self.own {
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

    fn content(&mut self, mut parts: Vec<Part>, bare: bool) -> Result<Value, Untranslatable> {
        if bare
            && parts.len() == 1
            && let Some(Part { content: Content::Text(text), .. }) = parts.first_mut()
        {
            return Ok(std::mem::take(text).into());
        }
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            blocks.extend(self.block(part)?);
        }
        Ok(blocks.into())
    }

    fn block(&mut self, part: Part) -> Result<Option<Value>, Untranslatable> {
        let mut block = match part.content {
            Content::Text(text) | Content::Refusal(text) => kind("text", [("text", text.into())]),
            Content::Json(value) => kind("text", [("text", value.to_string().into())]),
            Content::Media(media) => self.media(media)?,
            Content::ToolCall(call) => {
                let input = arguments_value(&call.arguments);
                let id = if self.own { call.id } else { plain_id(call.id) };
                kind("tool_use", [("id", id.into()), ("name", call.name.into()), ("input", input)])
            }
            Content::ToolResult(result) => {
                let id = if self.own { result.id } else { plain_id(result.id) };
                let mut block = kind("tool_result", [("tool_use_id", id.into())]);
                if !result.parts.is_empty() || !self.own {
                    block.insert("content".to_owned(), self.content(result.parts, result.bare)?);
                }
                set(&mut block, "is_error", result.is_error);
                block
            }
            Content::Thinking { text, signature: Some(signature) } => {
                kind("thinking", [("thinking", text.into()), ("signature", signature.into())])
            }
            Content::Thinking { text, signature: None } if self.own => {
                kind("thinking", [("thinking", text.into()), ("signature", "".into())])
            }
            // Unsigned thoughts are not Anthropic's, which would refuse them.
            Content::Thinking { .. } => {
                self.losses.drop(Field::Thinking);
                return Ok(None);
            }
            Content::Redacted(data) => kind("redacted_thinking", [("data", data.into())]),
            Content::Other(value) if self.own => return Ok(Some(value)),
            Content::Other(_) => {
                return Err(self.losses.refuse(Field::Part, "this kind of content cannot be translated"));
            }
        };
        set(&mut block, "cache_control", part.cache.map(cache_value));
        self.extra(&mut block, part.extra, Place::Part);
        Ok(Some(block.into()))
    }

    fn extra(&mut self, object: &mut Object, mut extra: Object, place: Place) {
        if self.own {
            object.append(&mut extra);
        } else {
            self.losses.drop_extra(place, &extra);
        }
    }

    fn media(&mut self, media: Media) -> Result<Object, Untranslatable> {
        let Media { kind: media_kind, source, name, detail } = media;
        if detail.is_some_and(|detail| detail != "auto") {
            self.losses.drop(Field::Detail);
        }
        let block_kind = match media_kind {
            MediaKind::Image => "image",
            MediaKind::Document => "document",
            MediaKind::Audio | MediaKind::Video => {
                return Err(self.losses.refuse(Field::Part, "this provider takes no sound or film"));
            }
        };
        let source = match source {
            Source::Base64 { mime, data } if media_kind == MediaKind::Image || mime == "application/pdf" => {
                json!({"type": "base64", "media_type": mime, "data": data})
            }
            Source::Base64 { mime, data } if mime.starts_with("text/") => {
                let text = STANDARD.decode(&data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or_else(|| self.losses.refuse(Field::Part, "is not base64 of a text"))?;
                json!({"type": "text", "media_type": "text/plain", "data": text})
            }
            Source::Url { url, .. } => json!({"type": "url", "url": url}),
            Source::Text(text) => json!({"type": "text", "media_type": "text/plain", "data": text}),
            Source::File(id) if self.own => json!({"type": "file", "file_id": id}),
            _ => return Err(self.losses.refuse(Field::Part, "this provider cannot take this kind of file")),
        };
        let mut block = kind(block_kind, [("source", source)]);
        set(&mut block, "title", name.filter(|_| media_kind == MediaKind::Document));
        Ok(block)
    }

    fn tools(
        &mut self,
        body: &mut Object,
        request: &mut Request,
        generation: (u32, u32),
    ) -> Result<(), Untranslatable> {
        let choice = request.tool_choice.take();
        let choice = if self.own { choice } else { allowed_only(choice, &mut request.tools) };
        let mut tools = Vec::with_capacity(request.tools.len());
        for tool in std::mem::take(&mut request.tools) {
            match tool {
                Tool::Function(function) => tools.push(self.function(function, generation)),
                Tool::Other(value) if self.own => tools.push(value),
                Tool::Other(_) => {
                    let why = "only function tools can be used with this provider";
                    return Err(self.losses.refuse(Field::Tool, why));
                }
            }
        }
        let any = !tools.is_empty();
        set(body, "tools", any.then_some(tools));
        let parallel = request.parallel_tool_calls.take();
        let default = (parallel == Some(false)).then_some(ToolChoice::Auto);
        let Some(choice) = choice.or(default).filter(|_| any || self.own) else { return Ok(()) };
        let mut written = match choice {
            ToolChoice::Auto => kind("auto", []),
            ToolChoice::None => kind("none", []),
            ToolChoice::Required => kind("any", []),
            ToolChoice::Tool(name) => kind("tool", [("name", name.into())]),
            ToolChoice::Allowed { .. } | ToolChoice::Other(_) => {
                return Err(self.losses.refuse(Field::ToolChoice, "cannot be expressed for this provider"));
            }
        };
        let none = written.get("type").and_then(Value::as_str) == Some("none");
        if let Some(parallel) = parallel.filter(|parallel| self.own || !(*parallel || none)) {
            written.insert("disable_parallel_tool_use".to_owned(), (!parallel).into());
        }
        body.insert("tool_choice".to_owned(), written.into());
        Ok(())
    }

    fn function(&mut self, function: Function, generation: (u32, u32)) -> Value {
        let mut tool = Object::new();
        tool.insert("name".to_owned(), function.name.into());
        set(&mut tool, "description", function.description);
        let mut schema = function.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        if let Value::Object(schema) = &mut schema
            && !self.own
        {
            schema.entry("type").or_insert_with(|| "object".into());
        }
        tool.insert("input_schema".to_owned(), schema);
        if self.own || generation >= (4, 5) {
            set(&mut tool, "strict", function.strict);
        } else if function.strict == Some(true) {
            self.losses.drop(Field::Strict);
        }
        set(&mut tool, "cache_control", function.cache.map(cache_value));
        self.extra(&mut tool, function.extra, Place::Tool);
        tool.into()
    }
}

fn kind<const N: usize>(kind: &str, fields: [(&str, Value); N]) -> Object {
    let mut object = Object::with_capacity(N + 2);
    object.insert("type".to_owned(), kind.into());
    object.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
    object
}

fn cache_value(cache: Cache) -> Value {
    let mut mark = kind("ephemeral", []);
    set(&mut mark, "ttl", cache.ttl);
    mark.into()
}
