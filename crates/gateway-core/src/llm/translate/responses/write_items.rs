//! The conversation of a request, as items.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::chat::{
            Content, Field, Losses, Media, MediaKind, Message, Part, Place, Role, Source, ToolCall,
            ToolResult, Untranslatable,
        },
        json::set,
        media::{data_url, short_format},
    },
    REDACTED,
};

type Object = Map<String, Value>;

pub(super) struct ItemWriter<'a> {
    pub(super) own: bool,
    pub(super) losses: &'a mut Losses,
    pub(super) items: Vec<Value>,
}

impl ItemWriter<'_> {
    pub(super) fn message(&mut self, message: Message) -> Result<(), Untranslatable> {
        let Message { role, parts, bare, name, mut extra } = message;
        if name.is_some() {
            self.losses.drop(Field::MessageName);
        }
        let mut said: Vec<Part> = Vec::new();
        for part in parts {
            match part.content {
                Content::ToolCall(_)
                | Content::ToolResult(_)
                | Content::Thinking { .. }
                | Content::Redacted(_) => {
                    self.said(role, std::mem::take(&mut said), bare, &mut extra)?;
                    self.other(part)?;
                }
                Content::Other(value) if self.own && role == Role::Assistant => {
                    self.said(role, std::mem::take(&mut said), bare, &mut extra)?;
                    self.items.push(value);
                }
                _ => said.push(part),
            }
        }
        self.said(role, said, bare, &mut extra)
    }

    /// The words of a message, as an item of their own.
    fn said(
        &mut self,
        role: Role,
        parts: Vec<Part>,
        bare: bool,
        extra: &mut Object,
    ) -> Result<(), Untranslatable> {
        if parts.is_empty() {
            return Ok(());
        }
        let assistant = role == Role::Assistant;
        let name = match role {
            Role::System => "system",
            Role::Developer => "developer",
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        let content = self.content(parts, bare, assistant)?;
        let mut item = json!({"role": name, "content": content});
        self.finish(&mut item, std::mem::take(extra), Place::Message);
        self.items.push(item);
        Ok(())
    }

    fn other(&mut self, part: Part) -> Result<(), Untranslatable> {
        note_cache(&part, self.losses);
        let mut item = match part.content {
            Content::ToolCall(ToolCall { id, name, arguments, signature }) => {
                let arguments = if arguments.is_empty() && !self.own { "{}".to_owned() } else { arguments };
                let mut item =
                    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
                if let Some(signature) = signature {
                    item["extra_content"] = json!({"google": {"thought_signature": signature}});
                }
                item
            }
            Content::ToolResult(ToolResult { id, name: _, parts, bare, is_error }) => {
                if is_error == Some(true) {
                    self.losses.drop(Field::ToolResultError);
                }
                let output = self.content(parts, bare, false)?;
                json!({"type": "function_call_output", "call_id": id, "output": output})
            }
            Content::Thinking { text, signature } => {
                if signature.is_none() && !self.own {
                    self.losses.drop(Field::Thinking);
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
            Content::Redacted(data) if self.own => {
                json!({"type": "reasoning", "summary": [], "encrypted_content": format!("{REDACTED}{data}")})
            }
            _ => {
                self.losses.drop(Field::Redacted);
                return Ok(());
            }
        };
        self.finish(&mut item, part.extra, Place::Message);
        self.items.push(item);
        Ok(())
    }

    fn finish(&mut self, item: &mut Value, mut extra: Object, place: Place) {
        if !self.own {
            self.losses.drop_extra(place, &extra);
        } else if let Some(item) = item.as_object_mut() {
            item.append(&mut extra);
        }
    }

    fn content(&mut self, parts: Vec<Part>, bare: bool, assistant: bool) -> Result<Value, Untranslatable> {
        let single = parts.len() == 1;
        let mut written = Vec::with_capacity(parts.len());
        for part in parts {
            written.push(self.part(part, assistant)?);
        }
        let text = written.first_mut().and_then(|part| part.get_mut("text")).filter(|_| bare && single);
        Ok(match text {
            Some(text) => text.take(),
            None => written.into(),
        })
    }

    fn part(&mut self, part: Part, assistant: bool) -> Result<Value, Untranslatable> {
        note_cache(&part, self.losses);
        let text = |text: String| {
            let kind = if assistant { "output_text" } else { "input_text" };
            json!({"type": kind, "text": text})
        };
        let mut written = match part.content {
            Content::Text(said) => text(said),
            Content::Json(value) => text(value.to_string()),
            Content::Refusal(refusal) if assistant => json!({"type": "refusal", "refusal": refusal}),
            Content::Refusal(refusal) => text(refusal),
            Content::Media(media) => self.media(media)?,
            Content::Other(value) if self.own => return Ok(value),
            _ => return Err(self.losses.refuse(Field::Part, "this kind of content cannot be translated")),
        };
        self.finish(&mut written, part.extra, Place::Part);
        Ok(written)
    }

    fn media(&mut self, media: Media) -> Result<Value, Untranslatable> {
        let Media { kind, source, name, detail } = media;
        let mut part = Object::new();
        let mut put = |key: &str, value: String| part.insert(key.to_owned(), value.into());
        match (kind, source) {
            (MediaKind::Image, source) => {
                put("type", "input_image".to_owned());
                match source {
                    Source::Url { url, .. } => put("image_url", url),
                    Source::Base64 { mime, data } => put("image_url", data_url(&mime, &data)),
                    Source::File(id) if self.own => put("file_id", id),
                    _ => {
                        return Err(self
                            .losses
                            .refuse(Field::Part, "this provider cannot take this picture"));
                    }
                };
                set(&mut part, "detail", detail);
            }
            (_, Source::Text(text)) => {
                put("type", "input_text".to_owned());
                put("text", text);
            }
            (MediaKind::Document, source) => {
                put("type", "input_file".to_owned());
                match source {
                    Source::Url { url, .. } => {
                        put("file_url", url);
                        set(&mut part, "filename", name);
                    }
                    Source::Base64 { mime, data } => {
                        // OpenAI insists on a name.
                        put("filename", name.unwrap_or_else(|| format!("document.{}", short_format(&mime))));
                        put("file_data", data_url(&mime, &data));
                    }
                    Source::File(id) if self.own => {
                        put("file_id", id);
                        set(&mut part, "filename", name);
                    }
                    _ => {
                        return Err(self
                            .losses
                            .refuse(Field::Part, "this provider cannot take this document"));
                    }
                }
            }
            _ => return Err(self.losses.refuse(Field::Part, "this provider cannot take this kind of file")),
        }
        Ok(part.into())
    }
}

pub(super) fn note_cache(part: &Part, losses: &mut Losses) {
    if part.cache.is_some() {
        losses.drop(Field::CacheControl);
    }
}
