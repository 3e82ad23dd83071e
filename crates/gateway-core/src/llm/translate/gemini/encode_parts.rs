//! Encodes the parts of a request's contents.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::{
    super::chat::{
        Content, FieldLocation, Losses, Media, MediaKind, MediaSource, Part, RequestField, ToolResult,
        TranslationError, parse_arguments,
    },
    json::insert_some,
};

type Object = Map<String, Value>;

pub(super) struct PartEncoder<'a> {
    pub(super) same_format: bool,
    pub(super) losses: &'a mut Losses,
    /// Call ids with the names of their tools. Results need the name.
    pub(super) names: HashMap<String, String>,
}

impl PartEncoder<'_> {
    pub(super) fn encode_parts(&mut self, parts: Vec<Part>) -> Result<Vec<Value>, TranslationError> {
        let mut encoded: Vec<Value> = Vec::with_capacity(parts.len());
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            if part.cache.is_some() {
                self.losses.drop(RequestField::CacheControl);
            }
            let next = parts.peek_mut().map(|next| &mut next.content);
            match part.content {
                // In formats that sign only thinking, this is the signature of the call after it.
                Content::Thinking { text, signature }
                    if !self.same_format
                        && text.is_empty()
                        && next.as_deref().is_some_and(is_unsigned_call) =>
                {
                    if let Some(Content::ToolCall(call)) = next {
                        call.signature = signature;
                    }
                }
                // This is the signature of the text before it.
                Content::Thinking { text, signature: Some(signature) }
                    if text.is_empty() && encoded.last().is_some_and(is_unsigned_text) =>
                {
                    if let Some(last) = encoded.last_mut() {
                        last["thoughtSignature"] = signature.into();
                    }
                }
                Content::Thinking { signature: None, .. } if !self.same_format => {
                    self.losses.drop(RequestField::Thinking);
                }
                Content::Redacted(_) => self.losses.drop(RequestField::Redacted),
                content => self.encode_part(content, part.extra, &mut encoded)?,
            }
        }
        Ok(encoded)
    }

    fn encode_part(
        &mut self,
        content: Content,
        extra: Object,
        out: &mut Vec<Value>,
    ) -> Result<(), TranslationError> {
        let mut media = Vec::new();
        let mut encoded = match content {
            Content::Text(text) | Content::Refusal(text) => json!({"text": text}),
            Content::Json(value) => json!({"text": value.to_string()}),
            Content::Thinking { text, signature } => {
                let mut part = json!({"text": text, "thought": true});
                if let Some(signature) = signature {
                    part["thoughtSignature"] = signature.into();
                }
                part
            }
            Content::ToolCall(call) => {
                let args = parse_arguments(&call.arguments);
                let mut part = json!({"functionCall": {"id": call.id, "name": call.name, "args": args}});
                if let Some(signature) = call.signature {
                    part["thoughtSignature"] = signature.into();
                }
                part
            }
            Content::ToolResult(result) => self.encode_tool_result(result, &mut media)?,
            Content::Media(file) => self.encode_media(file)?,
            Content::Other(value) if self.same_format => value,
            Content::Other(_) | Content::Redacted(_) => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this content type is not supported by this provider"));
            }
        };
        if !self.same_format {
            self.losses.drop_extra(FieldLocation::Part, &extra);
        } else if let Some(fields) = encoded.as_object_mut() {
            fields.extend(extra);
        }
        out.push(encoded);
        out.append(&mut media);
        Ok(())
    }

    /// Encodes a tool result. Gemini requires an object, so other results are wrapped. Media become separate parts
    /// after it.
    fn encode_tool_result(
        &mut self,
        result: ToolResult,
        media_parts: &mut Vec<Value>,
    ) -> Result<Value, TranslationError> {
        let ToolResult { id, name, parts, is_string: _, is_error } = result;
        let name = name.or_else(|| self.names.get(&id).cloned()).unwrap_or_else(|| id.clone());
        let mut texts = Vec::new();
        let mut value = None;
        for part in parts {
            match part.content {
                Content::Json(Value::Object(object)) if value.is_none() => value = Some(object),
                Content::Text(text) | Content::Refusal(text) => texts.push(text),
                Content::Json(other) => texts.push(other.to_string()),
                Content::Media(media) => media_parts.push(self.encode_media(media)?),
                _ => {
                    return Err(self.losses.unsupported(
                        RequestField::ToolResult,
                        "this content type is not supported in tool results",
                    ));
                }
            }
        }
        let text = texts.join("\n");
        let response = match (value, serde_json::from_str(&text)) {
            (Some(mut value), _) => {
                if !text.is_empty() {
                    value.insert("output".to_owned(), text.into());
                }
                value
            }
            (None, Ok(Value::Object(value))) if is_error != Some(true) => value,
            (None, _) => {
                let key = if is_error == Some(true) { "error" } else { "output" };
                Object::from_iter([(key.to_owned(), text.into())])
            }
        };
        Ok(json!({"functionResponse": {"id": id, "name": name, "response": response}}))
    }

    fn encode_media(&mut self, media: Media) -> Result<Value, TranslationError> {
        let Media { kind, source, name, detail } = media;
        if detail.is_some() {
            self.losses.drop(RequestField::Detail);
        }
        Ok(match source {
            MediaSource::Base64 { mime, data } => {
                let mut inner = json!({"mimeType": mime, "data": data});
                if self.same_format
                    && let Some(name) = name
                {
                    inner["displayName"] = name.into();
                } else if name.is_some() {
                    self.losses.drop(RequestField::DocumentName);
                }
                json!({"inlineData": inner})
            }
            MediaSource::Url { url, mime } => {
                let mime = mime.or_else(|| mime_of_url(&url, kind).map(str::to_owned));
                let mut inner = Object::new();
                insert_some(&mut inner, "mimeType", mime);
                inner.insert("fileUri".to_owned(), url.into());
                json!({"fileData": inner})
            }
            MediaSource::Text(text) => json!({"text": text}),
            MediaSource::File(_) => {
                return Err(self.losses.unsupported(
                    RequestField::Part,
                    "files uploaded to another provider are not accessible; send the content or a URL",
                ));
            }
        })
    }
}

fn is_unsigned_call(content: &Content) -> bool {
    matches!(content, Content::ToolCall(call) if call.signature.is_none())
}

fn is_unsigned_text(part: &Value) -> bool {
    part.get("text").is_some() && part.get("thought").is_none() && part.get("thoughtSignature").is_none()
}

/// Guesses the MIME type of a URL from its extension, since Google requires one. Falls back to the usual type.
fn mime_of_url(url: &str, kind: MediaKind) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let extension =
        path.rsplit('/').next()?.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match (extension.as_deref(), kind) {
        (Some("png"), _) => Some("image/png"),
        (Some("webp"), _) => Some("image/webp"),
        (Some("gif"), _) => Some("image/gif"),
        (Some("heic"), _) => Some("image/heic"),
        (Some("mp3"), _) => Some("audio/mpeg"),
        (Some("wav"), _) => Some("audio/wav"),
        (Some("mp4"), _) => Some("video/mp4"),
        (Some("txt"), _) => Some("text/plain"),
        (_, MediaKind::Image) => Some("image/jpeg"),
        (_, MediaKind::Document) => Some("application/pdf"),
        (_, MediaKind::Audio | MediaKind::Video) => None,
    }
}
