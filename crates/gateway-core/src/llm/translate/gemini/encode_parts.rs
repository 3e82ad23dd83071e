//! The parts of a request's contents.

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
    /// Which tool each call of the conversation used: results are told apart by name.
    pub(super) names: Vec<(String, String)>,
}

impl PartEncoder<'_> {
    pub(super) fn parts(&mut self, parts: Vec<Part>) -> Result<Vec<Value>, TranslationError> {
        let mut written: Vec<Value> = Vec::with_capacity(parts.len());
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            if part.cache.is_some() {
                self.losses.drop(RequestField::CacheControl);
            }
            let next = parts.peek_mut().map(|next| &mut next.content);
            match part.content {
                // The signature of the call behind it, in formats that sign nothing but thoughts.
                Content::Thinking { text, signature }
                    if !self.same_format
                        && text.is_empty()
                        && next.as_deref().is_some_and(is_unsigned_call) =>
                {
                    if let Some(Content::ToolCall(call)) = next {
                        call.signature = signature;
                    }
                }
                // The signature of the text before it.
                Content::Thinking { text, signature: Some(mark) }
                    if text.is_empty() && written.last().is_some_and(is_unsigned_text) =>
                {
                    if let Some(last) = written.last_mut() {
                        last["thoughtSignature"] = mark.into();
                    }
                }
                Content::Thinking { signature: None, .. } if !self.same_format => {
                    self.losses.drop(RequestField::Thinking)
                }
                Content::Redacted(_) => self.losses.drop(RequestField::Redacted),
                content => self.part(content, part.extra, &mut written)?,
            }
        }
        Ok(written)
    }

    fn part(
        &mut self,
        content: Content,
        extra: Object,
        out: &mut Vec<Value>,
    ) -> Result<(), TranslationError> {
        let mut beside = Vec::new();
        let mut written = match content {
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
            Content::ToolResult(result) => self.result(result, &mut beside)?,
            Content::Media(media) => self.media(media)?,
            Content::Other(value) if self.same_format => value,
            Content::Other(_) | Content::Redacted(_) => {
                return Err(self
                    .losses
                    .unsupported(RequestField::Part, "this kind of content cannot be translated"));
            }
        };
        if !self.same_format {
            self.losses.drop_extra(FieldLocation::Part, &extra);
        } else if let Some(members) = written.as_object_mut() {
            members.extend(extra);
        }
        out.push(written);
        out.append(&mut beside);
        Ok(())
    }

    /// A result is an object here: texts that are none are wrapped, media come as parts behind it.
    fn result(&mut self, result: ToolResult, beside: &mut Vec<Value>) -> Result<Value, TranslationError> {
        let ToolResult { id, name, parts, is_string: _, is_error } = result;
        let name = name
            .or_else(|| self.names.iter().rev().find(|(known, _)| *known == id).map(|(_, name)| name.clone()))
            .unwrap_or_else(|| id.clone());
        let mut texts = Vec::new();
        let mut value = None;
        for part in parts {
            match part.content {
                Content::Json(Value::Object(object)) if value.is_none() => value = Some(object),
                Content::Text(text) | Content::Refusal(text) => texts.push(text),
                Content::Json(other) => texts.push(other.to_string()),
                Content::Media(media) => beside.push(self.media(media)?),
                _ => {
                    return Err(self
                        .losses
                        .unsupported(RequestField::ToolResult, "this kind of result cannot be translated"));
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

    fn media(&mut self, media: Media) -> Result<Value, TranslationError> {
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
                    "a file that lies with another provider cannot be read",
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

/// Google wants to know what a URL leads to; the ending tells, or else what is usual.
fn mime_of_url(url: &str, kind: MediaKind) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let ending = path.rsplit('/').next()?.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match (ending.as_deref(), kind) {
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
