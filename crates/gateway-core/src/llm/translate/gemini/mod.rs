//! Google's generateContent. Every message is a list of parts, every event of a stream a whole answer with a few more
//! of them. Calls are answered by name, with ids as a later addition, so ids are made up where a caller has none.
//!
//! A signature stands in the part that it signs: a thought, a call, or a text, where the model here knows only thoughts
//! and calls; the signature of a text is a thought without words behind it.

mod answer;
mod embed;
mod models;
mod read;
mod stream_in;
mod stream_out;
mod write;
mod write_parts;

use serde_json::{Map, Value};

use super::{
    super::chat::{Embed, Embedded, Failure, Listed, Losses, Request, Response, Stop, Untranslatable},
    Caller, Provider, ReadStream, WriteStream,
    json::text_at,
};

pub(super) struct Gemini;

impl Caller for Gemini {
    fn meaningful(&self) -> &'static [&'static str] {
        &["cachedContent", "generationConfig.responseModalities", "generationConfig.speechConfig"]
    }

    fn read_request(&self, body: Map<String, Value>) -> Result<Request, Untranslatable> {
        read::read_request(body)
    }

    fn write_response(&self, response: Response) -> Value {
        answer::write_response(response)
    }

    fn stream_writer(&self, _usage_wanted: bool) -> Box<dyn WriteStream> {
        Box::new(stream_out::Writer::default())
    }

    fn write_models(&self, models: Vec<Listed>) -> Value {
        models::write_models(models)
    }
}

impl Provider for Gemini {
    fn write_request(&self, request: Request, losses: &mut Losses) -> Result<Value, Untranslatable> {
        write::write_request(request, losses)
    }

    fn read_response(&self, body: Map<String, Value>) -> Option<Response> {
        answer::read_response(body)
    }

    fn stream_reader(&self) -> Box<dyn ReadStream> {
        Box::new(stream_in::Reader::default())
    }

    fn read_error(&self, status: u16, body: &Map<String, Value>) -> Option<Failure> {
        read_error(status, body)
    }

    fn read_models(&self, body: &Map<String, Value>) -> Option<Vec<Listed>> {
        models::read_models(body)
    }

    fn write_embed(&self, embed: Embed, losses: &mut Losses) -> Result<(String, Value), Untranslatable> {
        Ok(embed::write_embed(embed, losses))
    }

    fn read_embedded(&self, body: &Map<String, Value>) -> Option<Embedded> {
        embed::read_embedded(body)
    }
}

fn read_error(status: u16, body: &Map<String, Value>) -> Option<Failure> {
    let error = body.get("error")?.as_object()?;
    let mut details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let reason = details.find_map(|detail| detail.get("reason")?.as_str());
    let code = reason.or_else(|| error.get("status")?.as_str()).unwrap_or("provider_error");
    Some(Failure { status, code: code.to_owned(), message: text_at(error, "message").to_owned() })
}

fn finish_reason(stop: &Stop) -> &'static str {
    match stop {
        Stop::EndTurn | Stop::Sequence(_) | Stop::ToolUse | Stop::Paused => "STOP",
        Stop::MaxTokens | Stop::ContextFull => "MAX_TOKENS",
        Stop::Refusal | Stop::Filtered => "SAFETY",
        Stop::Failed => "OTHER",
    }
}

fn stop_of(reason: &str) -> Stop {
    match reason {
        "MAX_TOKENS" => Stop::MaxTokens,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "MODEL_ARMOR" => Stop::Filtered,
        reason if reason.starts_with("IMAGE_") => Stop::Filtered,
        "OTHER"
        | "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE"
        | "MALFORMED_RESPONSE" => Stop::Failed,
        _ => Stop::EndTurn,
    }
}

/// Why a prompt was not answered at all, where Google says so.
fn blocked(body: &Map<String, Value>) -> bool {
    body.get("promptFeedback").is_some_and(|feedback| feedback.get("blockReason").is_some())
}
