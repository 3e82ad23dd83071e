//! Bedrock's Converse, one format for many makers' models. What only Claude understands goes into
//! `additionalModelRequestFields`; bytes are base64 here, as everywhere in JSON.

mod answer;
mod embed;
mod models;
mod stream_in;
mod write;

use serde_json::{Map, Value};

use super::{
    super::chat::{Embed, Embedded, Failure, Listed, Losses, Request, Response, Stop, Untranslatable},
    Provider, ReadStream,
};

pub(super) struct Converse;

impl Provider for Converse {
    fn write_request(&self, request: Request, losses: &mut Losses) -> Result<Value, Untranslatable> {
        write::write_request(request, losses)
    }

    fn read_response(&self, body: Map<String, Value>) -> Option<Response> {
        answer::read_response(&body)
    }

    fn stream_reader(&self) -> Box<dyn ReadStream> {
        Box::new(stream_in::Reader::default())
    }

    fn read_error(&self, status: u16, body: &Map<String, Value>) -> Option<Failure> {
        let message = body.get("message").or_else(|| body.get("Message"))?.as_str()?.to_owned();
        let kind = body.get("__type").and_then(Value::as_str).map(|kind| {
            // `com.amazon.coral.service#AccessDeniedException`
            kind.rsplit('#').next().unwrap_or(kind).to_owned()
        });
        let code = kind.unwrap_or_else(|| exception_name(status).to_owned());
        Some(Failure { status, code, message })
    }

    fn read_models(&self, body: &Map<String, Value>) -> Option<Vec<Listed>> {
        models::read_models(body)
    }

    fn write_embed(&self, embed: Embed, losses: &mut Losses) -> Result<(String, Value), Untranslatable> {
        embed::write(embed, losses)
    }

    fn read_embedded(&self, body: &Map<String, Value>) -> Option<Embedded> {
        embed::read(body)
    }
}

/// Bedrock names an error in a header; in the body it is nameless.
fn exception_name(status: u16) -> &'static str {
    match status {
        400 => "ValidationException",
        403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        408 => "ModelTimeoutException",
        424 => "ModelErrorException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        _ => "InternalServerException",
    }
}

fn stop_of(reason: &str) -> Stop {
    match reason {
        "tool_use" => Stop::ToolUse,
        "max_tokens" => Stop::MaxTokens,
        "stop_sequence" => Stop::Sequence(None),
        "guardrail_intervened" | "content_filtered" => Stop::Filtered,
        "model_context_window_exceeded" => Stop::ContextFull,
        "malformed_model_output" | "malformed_tool_use" => Stop::Failed,
        "refusal" => Stop::Refusal,
        _ => Stop::EndTurn,
    }
}
