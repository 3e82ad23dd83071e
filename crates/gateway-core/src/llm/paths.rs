//! Parsing of a request's path: the model, the operation, whether the response is a stream, and the caller's format.
//!
//! Paths are forwarded unchanged, so a model may only be read from a path that every server reads alike. Segments are
//! percent-decoded once and compared without regard to letter case, because some providers route that way. A path is
//! ambiguous, which is an error, in these cases:
//!
//! - It has `.` or `..` segments, broken or double percent-encoding, control characters, backslashes, or semicolons,
//!   which some servers cut off with everything behind them.
//! - It has an encoded slash, except inside the model of a Bedrock path, where ARNs contain one.
//! - A word that introduces a model (`models`, `model`, `deployments`, `engines`, …) appears twice, behind doubled
//!   slashes, or where no known API has it.
//!
//! A check on models must reject an ambiguous path instead of reading the body. A model in the path takes precedence
//! over the body's.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::ClientFormat;

/// The upstream may read another model from the path than the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the model in the path is ambiguous")]
pub struct AmbiguousPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Chat,
    Responses,
    Messages,
    GenerateContent,
    Converse,
    Embeddings,
    Completions,
    Models,
    Other,
}

impl Operation {
    /// Whether a POST is a call to a model whose response depends on nothing but the request.
    pub fn calls_model(self) -> bool {
        !matches!(self, Self::Models | Self::Other)
    }

    /// Whether calls may cost money without a usage report: images, audio, batches, fine-tuning. Reads and deletions are
    /// free.
    pub fn is_unmetered(self, method: &str) -> bool {
        self == Self::Other && matches!(method, "POST" | "PUT" | "PATCH")
    }
}

/// A parsed path.
#[derive(Debug, Clone)]
pub struct RequestPath<'a> {
    raw: &'a str,
    segments: Result<Segments<'a>, AmbiguousPath>,
}

#[derive(Debug, Clone)]
struct Segments<'a> {
    /// The decoded segments, without empty ones.
    words: Vec<Cow<'a, str>>,
    /// There is an empty segment between others.
    has_doubled_slash: bool,
}

impl<'a> RequestPath<'a> {
    pub fn parse(path: &'a str) -> Self {
        Self { raw: path, segments: segments(path) }
    }

    /// The model in the path. `Ok(None)` if the path has none, so that the body's model is used.
    pub fn model(&self) -> Result<Option<Cow<'a, str>>, AmbiguousPath> {
        let Segments { words, has_doubled_slash } = self.segments.as_ref().map_err(|ambiguous| *ambiguous)?;
        let doubled = *has_doubled_slash;
        let mut markers = (0..words.len()).filter(|&at| Marker::of(&words[at]).is_some());
        let Some(at) = markers.next() else {
            return if words.iter().any(|word| word.contains('/')) { Err(AmbiguousPath) } else { Ok(None) };
        };
        let rest = &words[at + 1..];
        let Some(marker) = Marker::of(&words[at]) else { return Ok(None) };
        if rest.is_empty() && marker != Marker::Model && !doubled && markers.next().is_none() {
            return Ok(None);
        }
        // `…/endpoints/openapi/chat/completions` is Vertex's OpenAI-compatible endpoint. Its model is in the body.
        if marker == Marker::Endpoints
            && rest.len() > 1
            && rest[0] == "openapi"
            && !doubled
            && markers.next().is_none()
        {
            return Ok(None);
        }
        let model_may_have_slash = marker == Marker::Model;
        let stray_slash = |(index, word): (usize, &Cow<'_, str>)| {
            word.contains('/') && !(model_may_have_slash && index == at + 1)
        };
        if doubled || words.iter().enumerate().any(stray_slash) {
            return Err(AmbiguousPath);
        }
        // The model itself may have the name of a marker. Any other second marker is ambiguous.
        if markers.any(|other| other != at + 1) {
            return Err(AmbiguousPath);
        }
        match (marker, rest) {
            (Marker::Model, [id, action]) if is_bedrock_action(action) && is_plain_arn(id) => {
                Ok(Some(id.clone()))
            }
            (Marker::Deployments, [id, ..]) => Ok(Some(id.clone())),
            (Marker::Models, [last]) => google_model(self.raw, last, ""),
            (Marker::TunedModels, [last]) => google_model(self.raw, last, "tunedModels/"),
            (Marker::Endpoints, [last]) => google_model(self.raw, last, "endpoints/"),
            _ => Err(AmbiguousPath),
        }
    }

    /// Whether a call to this path returns a stream, regardless of its body.
    pub fn is_streaming(&self, query: Option<&str>) -> bool {
        let Some(last) = self.words().last() else { return false };
        let method = last.rsplit_once(':').map_or("", |(_, method)| method);
        matches!(method, "streamGenerateContent" | "streamRawPredict" | "serverStreamingPredict")
            || matches!(&**last, "converse-stream" | "invoke-with-response-stream")
            || (!method.is_empty()
                && query.is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse")))
    }

    /// The operation of a call to this path.
    pub fn operation(&self) -> Operation {
        let words: Vec<&str> = self.words().iter().map(AsRef::as_ref).collect();
        match *words {
            [.., "chat", "completions"] | [.., "v1" | "v2" | "api", "chat"] => Operation::Chat,
            [.., "completions"] | ["api", "generate"] => Operation::Completions,
            [.., "responses"] => Operation::Responses,
            [.., "v1", "messages"] | ["messages"] => Operation::Messages,
            [.., "embeddings" | "embed"] => Operation::Embeddings,
            [.., "converse" | "converse-stream"] => Operation::Converse,
            [.., "models"] => Operation::Models,
            [.., last] => match last.rsplit_once(':').map(|(_, method)| method) {
                Some("generateContent" | "streamGenerateContent") => Operation::GenerateContent,
                Some("embedContent" | "batchEmbedContents") => Operation::Embeddings,
                Some("rawPredict" | "streamRawPredict") if words.contains(&"anthropic") => {
                    Operation::Messages
                }
                None if words.len() > 1 && words[words.len() - 2] == "models" => Operation::Models,
                _ => Operation::Other,
            },
            [] => Operation::Other,
        }
    }

    /// The caller's format, derived from the path.
    pub fn client_format(&self) -> Option<ClientFormat> {
        let last = self.words().last()?;
        match self.operation() {
            Operation::Chat | Operation::Completions | Operation::Embeddings
                if last == "completions" || last == "embeddings" =>
            {
                Some(ClientFormat::OpenAiChat)
            }
            Operation::Embeddings if last.contains(':') => Some(ClientFormat::Gemini),
            Operation::Responses => Some(ClientFormat::OpenAiResponses),
            Operation::Messages if last == "messages" => Some(ClientFormat::Anthropic),
            Operation::GenerateContent => Some(ClientFormat::Gemini),
            _ => None,
        }
    }

    /// The decoded segments without empty ones. `None` for an ambiguous path.
    pub(super) fn segments(&self) -> Option<&[Cow<'a, str>]> {
        self.segments.as_ref().ok().map(|segments| &*segments.words)
    }

    /// The segments. Empty for an ambiguous path.
    fn words(&self) -> &[Cow<'a, str>] {
        self.segments.as_ref().map_or(&[], |segments| &segments.words)
    }
}

/// The segments that introduce a model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    Model,
    Models,
    TunedModels,
    Endpoints,
    /// Azure's deployments, and their predecessor, engines.
    Deployments,
}

impl Marker {
    fn of(segment: &str) -> Option<Self> {
        const WORDS: [(&str, Marker); 6] = [
            ("model", Marker::Model),
            ("models", Marker::Models),
            ("tunedModels", Marker::TunedModels),
            ("endpoints", Marker::Endpoints),
            ("deployments", Marker::Deployments),
            ("engines", Marker::Deployments),
        ];
        WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(segment)).map(|(_, marker)| *marker)
    }
}

/// A path that is percent-encoded more often is taken for an attempt to hide something.
const MAX_DECODINGS: usize = 8;

/// Whether a path (without its query) has a `..` segment, plain or percent-encoded, also more than once. Servers differ
/// in how often they decode and what separates segments, so every reading counts.
pub fn has_parent_segment(path: &str) -> bool {
    if !path.contains("..") && !path.contains('%') {
        return false;
    }
    let mut text = Cow::Borrowed(path);
    for _ in 0..MAX_DECODINGS {
        // Some servers cut off `;` and what follows.
        let is_parent = |segment: &str| segment.split(';').next() == Some("..");
        if text.split(['/', '\\']).any(is_parent) {
            return true;
        }
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded.len() == text.len() {
            return false;
        }
        text = Cow::Owned(decoded);
    }
    true
}

fn segments(path: &str) -> Result<Segments<'_>, AmbiguousPath> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let mut words = Vec::new();
    let mut has_doubled_slash = false;
    for raw in inner.split('/') {
        if raw.is_empty() {
            has_doubled_slash |= !inner.is_empty();
            continue;
        }
        words.push(if is_plain(raw) { raw.into() } else { decoded(raw)? });
    }
    if words.iter().any(|word| matches!(&**word, "." | "..")) {
        return Err(AmbiguousPath);
    }
    Ok(Segments { words, has_doubled_slash })
}

/// Whether a segment needs no decoding, which is the common case.
fn is_plain(raw: &str) -> bool {
    raw.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':'))
}

fn decoded(raw: &str) -> Result<Cow<'_, str>, AmbiguousPath> {
    let decoded = percent_decode_str(raw).decode_utf8().map_err(|_| AmbiguousPath)?;
    // A remaining percent sign was either invalid or encoded twice.
    let is_ambiguous = |c: char| c.is_control() || matches!(c, '\\' | '%' | '?' | '#' | ';');
    if decoded.contains(is_ambiguous) { Err(AmbiguousPath) } else { Ok(decoded) }
}

fn is_bedrock_action(action: &str) -> bool {
    matches!(
        action,
        "converse"
            | "converse-stream"
            | "invoke"
            | "invoke-with-response-stream"
            | "invoke-with-bidirectional-stream"
            | "count-tokens"
    )
}

/// Whether no slash of a decoded Bedrock model could be removed by path normalization.
fn is_plain_arn(id: &str) -> bool {
    id.split('/').all(|piece| !matches!(piece, "" | "." | ".."))
}

/// Splits `{model}:{method}`. A server might split at a second or an encoded colon instead.
fn google_model<'a>(
    path: &'a str,
    last: &Cow<'a, str>,
    prefix: &str,
) -> Result<Option<Cow<'a, str>>, AmbiguousPath> {
    let (model, method) = last.split_once(':').unwrap_or((last, "x"));
    let colons = |text: &str| text.bytes().filter(|byte| *byte == b':').count();
    let as_sent = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let plain_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if model.is_empty() || !plain_method || colons(as_sent) != colons(last) {
        return Err(AmbiguousPath);
    }
    if prefix.is_empty() {
        let length = model.len();
        return Ok(Some(match last {
            Cow::Borrowed(last) => Cow::Borrowed(&last[..length]),
            Cow::Owned(last) => Cow::Owned(last[..length].to_owned()),
        }));
    }
    Ok(Some(Cow::Owned(format!("{prefix}{model}"))))
}

#[cfg(test)]
mod tests;
