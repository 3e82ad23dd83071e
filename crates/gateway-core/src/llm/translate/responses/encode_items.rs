//! Encodes the conversation of a request as items.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            Content, FieldLocation, Losses, Media, MediaKind, MediaSource, Message, Part, RequestField, Role,
            ToolCall, ToolResult, TranslationError,
        },
        json::insert_some,
        media::{data_url, mime_to_format},
    },
    REDACTED_PREFIX,
};

type Object = Map<String, Value>;

pub(super) struct ItemEncoder<'a> {
    pub(super) same_format: bool,
    pub(super) losses: &'a mut Losses,
    pub(super) items: Vec<Value>,
}

impl ItemEncoder<'_> {
    pub(super) fn encode_message(&mut self, message: Message) -> Result<(), TranslationError> {
        let Message { role, parts, is_string, name, mut extra } = message;
        if name.is_some() {
            self.losses.drop(RequestField::MessageName);
        }
        let mut message_parts: Vec<Part> = Vec::new();
        for part in parts {
            match part.content {
                Content::ToolCall(_)
                | Content::ToolResult(_)
                | Content::Thinking { .. }
                | Content::Redacted(_) => {
                    self.push_message(role, std::mem::take(&mut message_parts), is_string, &mut extra)?;
                    self.push_item(part)?;
                }
                Content::Other(value) if self.same_format && role == Role::Assistant => {
                    self.push_message(role, std::mem::take(&mut message_parts), is_string, &mut extra)?;
                    self.items.push(value);
                }
                _ => message_parts.push(part),
            }
        }
        self.push_message(role, message_parts, is_string, &mut extra)
    }

    /// Encodes text, refusals and media as a message item.
    fn push_message(
        &mut self,
        role: Role,
        parts: Vec<Part>,
        is_string: bool,
        extra: &mut Object,
    ) -> Result<(), TranslationError> {
        if parts.is_empty() {
            return Ok(());
        }
        let is_assistant = role == Role::Assistant;
        let name = match role {
            Role::System => "system",
            Role::Developer => "developer",
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        let content = self.encode_content(parts, is_string, is_assistant)?;
        let mut item = json!({"role": name, "content": content});
        self.encode_extra(&mut item, std::mem::take(extra), FieldLocation::Message);
        self.items.push(item);
        Ok(())
    }

    /// Encodes a tool call, a tool result or thinking as an item of its own.
    fn push_item(&mut self, part: Part) -> Result<(), TranslationError> {
        drop_cache_control(&part, self.losses);
        let mut item = match part.content {
            Content::ToolCall(ToolCall { id, name, arguments, signature }) => {
                let arguments =
                    if arguments.is_empty() && !self.same_format { "{}".to_owned() } else { arguments };
                let mut item =
                    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
                if let Some(signature) = signature {
                    item["extra_content"] = json!({"google": {"thought_signature": signature}});
                }
                item
            }
            Content::ToolResult(ToolResult { id, name: _, parts, is_string, is_error }) => {
                if is_error == Some(true) {
                    self.losses.drop(RequestField::ToolResultError);
                }
                let output = self.encode_content(parts, is_string, false)?;
                json!({"type": "function_call_output", "call_id": id, "output": output})
            }
            Content::Thinking { text, signature } => {
                if signature.is_none() && !self.same_format {
                    self.losses.drop(RequestField::Thinking);
                    return Ok(());
                }
                let summary: Vec<Value> = (!text.is_empty())
                    .then(|| json!({"type": "summary_text", "text": text}))
                    .into_iter()
                    .collect();
                let mut item = json!({"type": "reasoning", "summary": summary});
                if let Some(signature) = signature {
                    item["encrypted_content"] = signature.into();
                }
                item
            }
            Content::Redacted(data) if self.same_format => {
                json!({"type": "reasoning", "summary": [], "encrypted_content": format!("{REDACTED_PREFIX}{data}")})
            }
            _ => {
                self.losses.drop(RequestField::Redacted);
                return Ok(());
            }
        };
        self.encode_extra(&mut item, part.extra, FieldLocation::Message);
        self.items.push(item);
        Ok(())
    }

    fn encode_extra(&mut self, item: &mut Value, mut extra: Object, location: FieldLocation) {
        if !self.same_format {
            self.losses.drop_extra(location, &extra);
        } else if let Some(item) = item.as_object_mut() {
            item.append(&mut extra);
        }
    }

    fn encode_content(
        &mut self,
        parts: Vec<Part>,
        is_string: bool,
        is_assistant: bool,
    ) -> Result<Value, TranslationError> {
        let is_single = parts.len() == 1;
        let mut encoded = Vec::with_capacity(parts.len());
        for part in parts {
            encoded.push(self.encode_part(part, is_assistant)?);
        }
        let text =
            encoded.first_mut().and_then(|part| part.get_mut("text")).filter(|_| is_string && is_single);
        Ok(match text {
            Some(text) => text.take(),
            None => encoded.into(),
        })
    }

    fn encode_part(&mut self, part: Part, is_assistant: bool) -> Result<Value, TranslationError> {
        drop_cache_control(&part, self.losses);
        let text = |text: String| {
            let kind = if is_assistant { "output_text" } else { "input_text" };
            json!({"type": kind, "text": text})
        };
        let mut encoded = match part.content {
            Content::Text(string) => text(string),
            Content::Json(value) => text(value.to_string()),
            Content::Refusal(refusal) if is_assistant => json!({"type": "refusal", "refusal": refusal}),
            Content::Refusal(refusal) => text(refusal),
            Content::Media(media) => self.encode_media(media)?,
            Content::Other(value) if self.same_format => return Ok(value),
            _ => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this content type is not supported by this provider"));
            }
        };
        self.encode_extra(&mut encoded, part.extra, FieldLocation::Part);
        Ok(encoded)
    }

    fn encode_media(&mut self, media: Media) -> Result<Value, TranslationError> {
        let Media { kind, source, name, detail } = media;
        let mut part = Object::new();
        let mut put = |key: &str, value: String| part.insert(key.to_owned(), value.into());
        match (kind, source) {
            (MediaKind::Image, source) => {
                put("type", "input_image".to_owned());
                match source {
                    MediaSource::Url { url, .. } => put("image_url", url),
                    MediaSource::Base64 { mime, data } => put("image_url", data_url(&mime, &data)),
                    MediaSource::File(id) if self.same_format => put("file_id", id),
                    _ => {
                        return Err(self.losses.unsupported(
                            RequestField::Part,
                            "this provider does not support this image source",
                        ));
                    }
                };
                insert_some(&mut part, "detail", detail);
            }
            (_, MediaSource::Text(text)) => {
                put("type", "input_text".to_owned());
                put("text", text);
            }
            (MediaKind::Document, source) => {
                put("type", "input_file".to_owned());
                match source {
                    MediaSource::Url { url, .. } => {
                        put("file_url", url);
                        insert_some(&mut part, "filename", name);
                    }
                    MediaSource::Base64 { mime, data } => {
                        // OpenAI requires a file name.
                        put(
                            "filename",
                            name.unwrap_or_else(|| format!("document.{}", mime_to_format(&mime))),
                        );
                        put("file_data", data_url(&mime, &data));
                    }
                    MediaSource::File(id) if self.same_format => {
                        put("file_id", id);
                        insert_some(&mut part, "filename", name);
                    }
                    _ => {
                        return Err(self.losses.unsupported(
                            RequestField::Part,
                            "this provider does not support this document source",
                        ));
                    }
                }
            }
            _ => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this provider does not support this file type"));
            }
        }
        Ok(part.into())
    }
}

pub(super) fn drop_cache_control(part: &Part, losses: &mut Losses) {
    if part.cache.is_some() {
        losses.drop(RequestField::CacheControl);
    }
}
