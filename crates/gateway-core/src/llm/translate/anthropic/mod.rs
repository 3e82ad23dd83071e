//! Anthropic's messages. A JSON schema for the answer is asked for by `output_config.format`, the format's own means,
//! which works with thinking and streams as text; an answer of any JSON object is asked for by a line in the system
//! prompt, since the format has no switch for it. Gemini's signature of a call is shown to callers as that of a
//! thought before the call.

mod answer;
mod models;
mod read;
mod stream_in;
mod stream_out;
mod write;

use serde_json::{Map, Value};

use super::{
    super::chat::{Failure, Listed, Losses, Request, Response, Stop, Untranslatable},
    Caller, Provider, ReadStream, WriteStream,
    json::text_at,
};

pub(super) struct Messages;

impl Caller for Messages {
    fn meaningful(&self) -> &'static [&'static str] {
        &["mcp_servers", "container"]
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

impl Provider for Messages {
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
        read_error(Some(status), body)
    }

    fn read_models(&self, body: &Map<String, Value>) -> Option<Vec<Listed>> {
        models::read_models(body)
    }
}

/// Inside a stream an error has no status, but its kind tells which it would have had.
fn read_error(status: Option<u16>, body: &Map<String, Value>) -> Option<Failure> {
    let error = body.get("error")?.as_object()?;
    let kind = text_at(error, "type");
    let status = status.unwrap_or(match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => 500,
    });
    let code = if kind.is_empty() { "provider_error" } else { kind }.to_owned();
    Some(Failure { status, code, message: text_at(error, "message").to_owned() })
}

fn stop_of(reason: &str, sequence: Option<&str>) -> Stop {
    match reason {
        "max_tokens" => Stop::MaxTokens,
        "stop_sequence" => Stop::Sequence(sequence.map(str::to_owned)),
        "tool_use" => Stop::ToolUse,
        "refusal" => Stop::Refusal,
        "pause_turn" => Stop::Paused,
        "model_context_window_exceeded" => Stop::ContextFull,
        _ => Stop::EndTurn,
    }
}

/// The reason and the sequence, if it was one.
fn stop_reason(stop: &Stop) -> (&'static str, Option<&str>) {
    match stop {
        Stop::EndTurn | Stop::Failed => ("end_turn", None),
        Stop::MaxTokens => ("max_tokens", None),
        Stop::Sequence(sequence) => ("stop_sequence", sequence.as_deref()),
        Stop::ToolUse => ("tool_use", None),
        Stop::Refusal | Stop::Filtered => ("refusal", None),
        Stop::Paused => ("pause_turn", None),
        Stop::ContextFull => ("model_context_window_exceeded", None),
    }
}
