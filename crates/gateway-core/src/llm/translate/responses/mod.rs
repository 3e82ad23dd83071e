//! OpenAI's responses: a list of items in, a list of items out. What the API keeps on OpenAI's side (earlier responses,
//! conversations, stored prompts) exists nowhere else, so requests that lean on it are refused rather than cut short.
//!
//! Thoughts are reasoning items, their signatures stand in `encrypted_content`; thoughts that only their provider can
//! read stand there too, marked as such. Gemini's signatures of calls stand in `extra_content`, as in chats.

mod answer;
mod items;
mod read;
mod stream_in;
mod stream_out;
mod write;
mod write_items;

use serde_json::{Map, Value};

use super::{
    super::chat::{Failure, Listed, Losses, Request, Response, Stop, Untranslatable},
    Caller, Provider, ReadStream, WriteStream,
    openai_chat::Chat,
};

pub(super) struct Responses;

impl Caller for Responses {
    fn meaningful(&self) -> &'static [&'static str] {
        &["previous_response_id", "conversation", "prompt", "background", "context_management"]
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
        Chat.write_models(models)
    }
}

impl Provider for Responses {
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
        Chat.read_error(status, body)
    }

    fn read_models(&self, body: &Map<String, Value>) -> Option<Vec<Listed>> {
        Chat.read_models(body)
    }
}

/// What stands before thoughts that only their provider can read, to tell them from a signature.
const REDACTED: &str = "redacted:";

/// A response's status and why it is incomplete.
fn status_of(stop: &Stop, refusal: bool) -> (&'static str, Option<&'static str>) {
    match stop {
        Stop::EndTurn | Stop::Sequence(_) | Stop::ToolUse | Stop::Paused => ("completed", None),
        Stop::Refusal if refusal => ("completed", None),
        Stop::MaxTokens | Stop::ContextFull => ("incomplete", Some("max_output_tokens")),
        Stop::Refusal | Stop::Filtered => ("incomplete", Some("content_filter")),
        Stop::Failed => ("failed", None),
    }
}

fn stop_of(response: &Map<String, Value>) -> Stop {
    let reason =
        response.get("incomplete_details").and_then(|details| details.get("reason")).and_then(Value::as_str);
    match (response.get("status").and_then(Value::as_str), reason) {
        (Some("incomplete"), Some("content_filter")) => Stop::Filtered,
        (Some("incomplete"), _) => Stop::MaxTokens,
        (Some("failed" | "cancelled"), _) => Stop::Failed,
        _ => Stop::EndTurn,
    }
}
