//! Encodes the messages of a chat completions request.

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
    encode_request::NativeFields,
    response::encode_reasoning_details,
};

type Object = Map<String, Value>;

/// `same_format`: the messages were sent in this format and are encoded unchanged.
pub(super) fn encode_messages(
    messages: Vec<Message>,
    same_format: bool,
    losses: &mut Losses,
) -> Result<Vec<Value>, TranslationError> {
    let encoded = Vec::with_capacity(messages.len());
    let mut encoder = MessageEncoder { same_format, losses, messages: encoded, pending_media: Vec::new() };
    for message in messages {
        encoder.encode_message(message)?;
    }
    encoder.flush_media();
    Ok(encoder.messages)
}

struct MessageEncoder<'a> {
    same_format: bool,
    losses: &'a mut Losses,
    messages: Vec<Value>,
    /// Media of tool results. They are sent in a user message after the last result, since results allow only text.
    pending_media: Vec<Value>,
}

impl MessageEncoder<'_> {
    fn encode_message(&mut self, message: Message) -> Result<(), TranslationError> {
        let Message { role, parts, is_string, name, extra } = message;
        let mut content = Vec::with_capacity(parts.len());
        let mut calls = Vec::new();
        let mut thoughts = Vec::new();
        let mut refusal: Option<String> = None;
        let mut has_results = false;
        for part in parts {
            match part.content {
                Content::ToolResult(result) => {
                    has_results = true;
                    let extra = if role == Role::Tool { extra.clone() } else { part.extra };
                    self.encode_tool_result(result, part.cache, extra)?;
                }
                Content::ToolCall(call) => calls.push(self.encode_call(call, part.cache, part.extra)),
                Content::Thinking { .. } | Content::Redacted(_) if self.same_format => thoughts.push(part),
                Content::Thinking { .. } => self.losses.drop(RequestField::Thinking),
                Content::Redacted(_) => self.losses.drop(RequestField::Redacted),
                Content::Refusal(text) if role == Role::Assistant => {
                    refusal.get_or_insert_default().push_str(&text);
                }
                _ => content.push(self.encode_part(part)?),
            }
        }
        if role == Role::Tool || (has_results && content.is_empty() && calls.is_empty()) {
            return Ok(());
        }
        self.flush_media();
        let mut encoded = Object::new();
        let role_name = match role {
            Role::System => "system",
            Role::Developer => "developer",
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        encoded.insert("role".to_owned(), role_name.into());
        encoded.insert("content".to_owned(), self.encode_content(role, content, is_string));
        if !thoughts.is_empty() {
            let (text, details) = encode_reasoning_details(&thoughts);
            insert_some(&mut encoded, "reasoning_content", text);
            insert_some(&mut encoded, "reasoning_details", details);
        }
        insert_some(&mut encoded, "refusal", refusal);
        insert_some(&mut encoded, "tool_calls", (!calls.is_empty()).then_some(calls));
        insert_some(&mut encoded, "name", name);
        let native = NativeFields { cache: None, extra, location: FieldLocation::Message };
        native.encode(&mut encoded, self.same_format, self.losses);
        self.messages.push(encoded.into());
        Ok(())
    }

    /// Encodes text-only content as a string, since many compatible providers accept nothing else.
    fn encode_content(&self, role: Role, mut content: Vec<Value>, is_string: bool) -> Value {
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        if content.is_empty() {
            return if role == Role::Assistant { Value::Null } else { "".into() };
        }
        let is_single = content.len() == 1;
        if self.same_format {
            return match content.first_mut() {
                Some(part) if is_string && is_single => part["text"].take(),
                _ => content.into(),
            };
        }
        let separator = match role {
            Role::System | Role::Developer => Some("\n\n"),
            Role::Assistant => Some(""),
            _ if is_single => Some(""),
            _ => None,
        };
        let texts: Option<Vec<String>> = content.iter().map(text).collect();
        match (separator, texts) {
            (Some(separator), Some(texts)) => texts.join(separator).into(),
            _ => content.into(),
        }
    }

    fn encode_tool_result(
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
            let encoded = self.encode_part(part)?;
            if encoded.get("text").is_some() { texts.push(encoded) } else { self.pending_media.push(encoded) }
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
        let native = NativeFields { cache, extra, location: FieldLocation::Message };
        native.encode(&mut message, self.same_format, self.losses);
        self.messages.push(message.into());
        Ok(())
    }

    fn encode_call(&mut self, call: ToolCall, cache: Option<CacheControl>, extra: Object) -> Value {
        let mut encoded = Object::new();
        encoded.insert("id".to_owned(), call.id.into());
        encoded.insert("type".to_owned(), "function".into());
        let arguments =
            if call.arguments.is_empty() && !self.same_format { "{}".to_owned() } else { call.arguments };
        encoded.insert("function".to_owned(), json!({"name": call.name, "arguments": arguments}));
        if let Some(signature) = call.signature {
            let content = json!({"google": {"thought_signature": signature}});
            encoded.insert("extra_content".to_owned(), content);
        }
        let native = NativeFields { cache, extra, location: FieldLocation::Part };
        native.encode(&mut encoded, self.same_format, self.losses);
        encoded.into()
    }

    fn encode_part(&mut self, part: Part) -> Result<Value, TranslationError> {
        let mut encoded = Object::new();
        let mut put = |kind: &str, key: &str, value: Value| {
            encoded.insert("type".to_owned(), kind.into());
            encoded.insert(key.to_owned(), value);
        };
        match part.content {
            Content::Text(text) => put("text", "text", text.into()),
            Content::Json(value) => put("text", "text", value.to_string().into()),
            Content::Refusal(text) => put("refusal", "refusal", text.into()),
            Content::Media(media) => {
                let (kind, key, value) = self.encode_media(media)?;
                put(kind, key, value);
            }
            Content::Other(value) if self.same_format => return Ok(value),
            _ => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this content type is not supported by this provider"));
            }
        }
        let native = NativeFields { cache: part.cache, extra: part.extra, location: FieldLocation::Part };
        native.encode(&mut encoded, self.same_format, self.losses);
        Ok(encoded.into())
    }

    fn encode_media(
        &mut self,
        media: Media,
    ) -> Result<(&'static str, &'static str, Value), TranslationError> {
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
                // OpenAI requires a file name.
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
                .unsupported(RequestField::Part, "this provider does not support this file type or source")),
        }
    }

    /// Writes the media that waited for the last tool result.
    fn flush_media(&mut self) {
        if !self.pending_media.is_empty() {
            let content = std::mem::take(&mut self.pending_media);
            self.messages.push(json!({"role": "user", "content": content}));
        }
    }
}
