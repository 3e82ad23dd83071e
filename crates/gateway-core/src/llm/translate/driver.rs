//! Whole requests and whole answers.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Map, Value};

use super::super::{
    ClientShape, Shape,
    chat::{Choice, Content, Failure, Losses, Response, Stop, Untranslatable, Wire},
    errors,
};
use super::{caller, provider, signatures};

/// What the proxy knows of a call besides its body.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The model as the provider calls it.
    pub model: &'a str,
    /// Whether the provider shall stream; some callers say so in the path.
    pub stream: bool,
    /// The provider takes `stream_options.include_usage`.
    pub takes_include_usage: bool,
    /// The provider has OpenAI's responses, and they are what to call: see `through_responses`.
    pub has_responses: bool,
}

/// A request in the provider's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translated {
    /// The usual path of the format; a provider's own row in the table may know better.
    pub path: String,
    pub body: Vec<u8>,
    /// Fields of the caller that were left out, in the caller's words.
    pub dropped: Vec<String>,
    /// For `Reply`: the caller of an OpenAI stream asked for its usage chunk.
    pub usage_wanted: bool,
}

/// What an answer says of itself where the provider does not.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    pub id: &'a str,
    pub model: &'a str,
    /// Seconds since 1970.
    pub created: i64,
    pub usage_wanted: bool,
    pub has_responses: bool,
}

/// An answer that is not in the provider's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the provider's answer could not be read")]
pub struct Unreadable;

/// Turns a caller's request into one for a provider.
pub fn request(
    from: ClientShape,
    to: Shape,
    body: &[u8],
    ask: &Ask<'_>,
) -> Result<Translated, Untranslatable> {
    let (source, target) = (Wire::of_client(from), Wire::of_provider(to, ask.has_responses));
    let mut request = caller(from).read_request(object(body)?)?;
    ask.model.clone_into(&mut request.model);
    request.stream = ask.stream;
    let usage_wanted = std::mem::replace(&mut request.include_usage, ask.takes_include_usage && ask.stream);
    let mut losses = Losses::new(source);
    if source != target
        && let Some(key) = caller(from).meaningful().iter().find(|key| request.extra.contains_key(**key))
    {
        return Err(Untranslatable::Refused {
            field: (*key).to_owned(),
            message: "cannot be translated for this provider".to_owned(),
        });
    }
    signatures::unwrap_request(&mut request, target, &mut losses);
    let body = provider(target).write_request(request, &mut losses)?.to_string().into_bytes();
    let path = path(target, ask.model, ask.stream);
    Ok(Translated { path, body, dropped: losses.into_dropped(), usage_wanted })
}

/// Turns a provider's successful answer into the caller's format.
pub fn response(from: Shape, to: ClientShape, body: &[u8], reply: &Reply<'_>) -> Result<Vec<u8>, Unreadable> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Err(Unreadable) };
    let source = Wire::of_provider(from, reply.has_responses);
    let mut response = provider(source).read_response(body).ok_or(Unreadable)?;
    settle(&mut response, reply);
    signatures::wrap_answer(&mut response.choices, source, Wire::of_client(to));
    Ok(caller(to).write_response(response).to_string().into_bytes())
}

/// Turns a provider's error into the caller's format. A body that is no error of the format is quoted.
pub fn error(from: Shape, to: ClientShape, status: u16, body: &[u8]) -> Vec<u8> {
    let Failure { code, message, .. } = read_error(from, status, body);
    errors::error_body(to, status, &code, &message)
}

/// Turns a provider's list of models into the caller's format.
pub fn models(from: Shape, to: ClientShape, body: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else { return Err(Unreadable) };
    let provider = provider(Wire::of_provider(from, false));
    let models = provider.read_models(&body).ok_or(Unreadable)?;
    Ok(caller(to).write_models(models).to_string().into_bytes())
}

fn read_error(from: Shape, status: u16, body: &[u8]) -> Failure {
    const LONGEST: usize = 1000;
    let provider = provider(Wire::of_provider(from, false));
    let known = match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => provider.read_error(status, &body),
        // Google answers in a list of one when a stream was asked for.
        Ok(Value::Array(list)) => {
            list.first().and_then(Value::as_object).and_then(|body| provider.read_error(status, body))
        }
        _ => None,
    };
    known.unwrap_or_else(|| {
        let mut message = String::from_utf8_lossy(body).trim().to_owned();
        message.truncate(message.floor_char_boundary(LONGEST));
        if message.is_empty() {
            message = format!("the provider answered with status {status}");
        }
        Failure { status, code: "provider_error".to_owned(), message }
    })
}

/// Fills in what the provider left open, and brings every choice into its one form.
fn settle(response: &mut Response, reply: &Reply<'_>) {
    if response.id.is_empty() {
        reply.id.clone_into(&mut response.id);
    }
    if response.model.is_empty() {
        reply.model.clone_into(&mut response.model);
    }
    response.created.get_or_insert(reply.created);
    for choice in &mut response.choices {
        choice.settle();
        let reason = choice.stop.take().unwrap_or(Stop::EndTurn);
        choice.stop = Some(true_reason(reason, has_refusal(choice), has_calls(choice)));
    }
}

/// Why a model really stopped: several formats say no more than that it did, whether it called tools or declined.
pub(super) fn true_reason(reason: Stop, refused: bool, calls: bool) -> Stop {
    match reason {
        Stop::EndTurn if refused => Stop::Refusal,
        Stop::EndTurn if calls => Stop::ToolUse,
        other => other,
    }
}

fn has_refusal(choice: &Choice) -> bool {
    choice.parts.iter().any(|part| matches!(part.content, Content::Refusal(_)))
}

fn has_calls(choice: &Choice) -> bool {
    choice.parts.iter().any(|part| matches!(part.content, Content::ToolCall(_)))
}

pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Untranslatable> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(Untranslatable::malformed("", "the body must be a JSON object")),
        Err(error) => Err(Untranslatable::malformed("", format!("the body is not valid JSON: {error}"))),
    }
}

/// Where a request of this format is sent.
fn path(wire: Wire, model: &str, stream: bool) -> String {
    let model = path_segment(model);
    match (wire, stream) {
        (Wire::OpenAiChat, _) => "/v1/chat/completions".to_owned(),
        (Wire::OpenAiResponses, _) => "/v1/responses".to_owned(),
        (Wire::Anthropic, _) => "/v1/messages".to_owned(),
        (Wire::Gemini, false) => format!("/v1beta/models/{model}:generateContent"),
        (Wire::Gemini, true) => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        (Wire::Bedrock, false) => format!("/model/{model}/converse"),
        (Wire::Bedrock, true) => format!("/model/{model}/converse-stream"),
        (Wire::Cohere, _) => "/v2/chat".to_owned(),
    }
}

/// A model's name as one segment of a path.
pub(super) fn path_segment(model: &str) -> PercentEncode<'_> {
    const SEGMENT: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');
    utf8_percent_encode(model, SEGMENT)
}
