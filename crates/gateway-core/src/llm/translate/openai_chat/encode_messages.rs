//! The messages of a chat request for a provider.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            CacheControl, Content, FieldLocation, Losses, Media, MediaKind, MediaSource, Message, Part,
            RequestField, Role, ToolCall, ToolResult, TranslationError,
        },
        json::insert_some,
        media::{data_url, mime_to_format},
    },
    encode_request::finish,
    response::encode_reasoning_details,
};

type Object = Map<String, Value>;

/// `own`: the messages came in this format and go out as they were.
pub(super) fn encode_messages(
    messages: Vec<Message>,
    same_format: bool,
    losses: &mut Losses,
) -> Result<Vec<Value>, TranslationError> {
    let written = Vec::with_capacity(messages.len());
    let mut writer = MessageEncoder { same_format, losses, messages: written, later: Vec::new() };
    for message in messages {
        writer.message(message)?;
    }
    writer.flush();
    Ok(writer.messages)
}

struct MessageEncoder<'a> {
    same_format: bool,
    losses: &'a mut Losses,
    messages: Vec<Value>,
    /// Media of tool results, which may only stand in a user's message behind all results.
    later: Vec<Value>,
}

impl MessageEncoder<'_> {
    fn message(&mut self, message: Message) -> Result<(), TranslationError> {
        let Message { role, parts, is_string, name, extra } = message;
        let mut content = Vec::with_capacity(parts.len());
        let mut beside = Object::new();
        let mut calls = Vec::new();
        let mut thoughts = Vec::new();
        let mut refusal: Option<String> = None;
        let mut answered = false;
        for part in parts {
            match part.content {
                Content::ToolResult(result) => {
                    answered = true;
                    let extra = if role == Role::Tool { extra.clone() } else { part.extra };
                    self.result(result, part.cache, extra)?;
                }
                Content::ToolCall(call) => calls.push(self.call(call, part.cache, part.extra)),
                Content::Thinking { .. } | Content::Redacted(_) if self.same_format => thoughts.push(part),
                Content::Thinking { .. } => self.losses.drop(RequestField::Thinking),
                Content::Redacted(_) => self.losses.drop(RequestField::Redacted),
                Content::Refusal(text) if role == Role::Assistant => {
                    refusal.get_or_insert_default().push_str(&text);
                }
                _ => content.push(self.part(part)?),
            }
        }
        if role == Role::Tool || (answered && content.is_empty() && calls.is_empty()) {
            return Ok(());
        }
        self.flush();
        let mut written = Object::new();
        let role_name = match role {
            Role::System => "system",
            Role::Developer => "developer",
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        written.insert("role".to_owned(), role_name.into());
        written.insert("content".to_owned(), self.content(role, content, is_string));
        if !thoughts.is_empty() {
            let (text, details) = encode_reasoning_details(&thoughts);
            insert_some(&mut beside, "reasoning_content", text);
            insert_some(&mut beside, "reasoning_details", details);
        }
        insert_some(&mut beside, "refusal", refusal);
        insert_some(&mut beside, "tool_calls", (!calls.is_empty()).then_some(calls));
        insert_some(&mut beside, "name", name);
        written.append(&mut beside);
        finish(&mut written, None, extra, self.same_format, FieldLocation::Message, self.losses);
        self.messages.push(written.into());
        Ok(())
    }

    /// Copiers often take nothing but a bare text, so that is what everything made of text alone becomes.
    fn content(&self, role: Role, mut content: Vec<Value>, is_string: bool) -> Value {
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        if content.is_empty() {
            return if role == Role::Assistant { Value::Null } else { "".into() };
        }
        let single = content.len() == 1;
        if self.same_format {
            return match content.first_mut() {
                Some(part) if is_string && single => part["text"].take(),
                _ => content.into(),
            };
        }
        let joined = match role {
            Role::System | Role::Developer => Some("\n\n"),
            Role::Assistant => Some(""),
            _ if single => Some(""),
            _ => None,
        };
        let texts: Option<Vec<String>> = content.iter().map(text).collect();
        match (joined, texts) {
            (Some(separator), Some(texts)) => texts.join(separator).into(),
            _ => content.into(),
        }
    }

    fn result(
        &mut self,
        result: ToolResult,
        cache: Option<CacheControl>,
        extra: Object,
    ) -> Result<(), TranslationError> {
        if result.is_error == Some(true) {
            self.losses.drop(RequestField::ToolResultError);
        }
        let mut texts = Vec::with_capacity(result.parts.len());
        for part in result.parts {
            let written = self.part(part)?;
            if written.get("text").is_some() { texts.push(written) } else { self.later.push(written) }
        }
        let content = if self.same_format && !result.is_string {
            texts.into()
        } else {
            let texts: Vec<&str> = texts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n").into()
        };
        let mut message = Object::new();
        message.insert("role".to_owned(), "tool".into());
        message.insert("tool_call_id".to_owned(), result.id.into());
        message.insert("content".to_owned(), content);
        finish(&mut message, cache, extra, self.same_format, FieldLocation::Message, self.losses);
        self.messages.push(message.into());
        Ok(())
    }

    fn call(&mut self, call: ToolCall, cache: Option<CacheControl>, extra: Object) -> Value {
        let mut written = Object::new();
        written.insert("id".to_owned(), call.id.into());
        written.insert("type".to_owned(), "function".into());
        let arguments =
            if call.arguments.is_empty() && !self.same_format { "{}".to_owned() } else { call.arguments };
        written.insert("function".to_owned(), json!({"name": call.name, "arguments": arguments}));
        if let Some(signature) = call.signature {
            let content = json!({"google": {"thought_signature": signature}});
            written.insert("extra_content".to_owned(), content);
        }
        finish(&mut written, cache, extra, self.same_format, FieldLocation::Part, self.losses);
        written.into()
    }

    fn part(&mut self, part: Part) -> Result<Value, TranslationError> {
        let mut written = Object::new();
        let mut put = |kind: &str, key: &str, value: Value| {
            written.insert("type".to_owned(), kind.into());
            written.insert(key.to_owned(), value);
        };
        match part.content {
            Content::Text(text) => put("text", "text", text.into()),
            Content::Json(value) => put("text", "text", value.to_string().into()),
            Content::Refusal(text) => put("refusal", "refusal", text.into()),
            Content::Media(media) => {
                let (kind, key, value) = self.media(media)?;
                put(kind, key, value);
            }
            Content::Other(value) if self.same_format => return Ok(value),
            _ => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this kind of content cannot be translated"));
            }
        }
        finish(&mut written, part.cache, part.extra, self.same_format, FieldLocation::Part, self.losses);
        Ok(written.into())
    }

    fn media(&mut self, media: Media) -> Result<(&'static str, &'static str, Value), TranslationError> {
        let Media { kind, source, name, detail } = media;
        match (kind, source) {
            (MediaKind::Image, MediaSource::Url { url, .. }) => {
                let mut image = Object::new();
                image.insert("url".to_owned(), url.into());
                insert_some(&mut image, "detail", detail);
                Ok(("image_url", "image_url", image.into()))
            }
            (MediaKind::Image, MediaSource::Base64 { mime, data }) => {
                let mut image = Object::new();
                image.insert("url".to_owned(), data_url(&mime, &data).into());
                insert_some(&mut image, "detail", detail);
                Ok(("image_url", "image_url", image.into()))
            }
            (MediaKind::Audio, MediaSource::Base64 { mime, data }) => {
                Ok(("input_audio", "input_audio", json!({"data": data, "format": mime_to_format(&mime)})))
            }
            (MediaKind::Document, MediaSource::Base64 { mime, data }) => {
                let mut file = Object::new();
                // OpenAI insists on a name.
                let name = name.unwrap_or_else(|| format!("document.{}", mime_to_format(&mime)));
                file.insert("filename".to_owned(), name.into());
                file.insert("file_data".to_owned(), data_url(&mime, &data).into());
                Ok(("file", "file", file.into()))
            }
            (MediaKind::Document, MediaSource::File(id)) if self.same_format => {
                let mut file = Object::new();
                file.insert("file_id".to_owned(), id.into());
                insert_some(&mut file, "filename", name);
                Ok(("file", "file", file.into()))
            }
            (_, MediaSource::Text(text)) => Ok(("text", "text", text.into())),
            _ => Err(self
                .losses
                .unsupported(RequestField::Part, "this provider cannot take this kind of file or source")),
        }
    }

    /// Sends on what had to wait for the last tool result.
    fn flush(&mut self) {
        if !self.later.is_empty() {
            let content = std::mem::take(&mut self.later);
            self.messages.push(json!({"role": "user", "content": content}));
        }
    }
}
