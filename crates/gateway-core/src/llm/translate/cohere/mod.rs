//! Cohere's chat, second version, which only providers speak. Its plan for using tools is a thought, its documents are
//! the texts that a caller attached.

mod answer;
mod embed;
mod stream_in;
mod write;

use serde_json::{Map, Value};

use super::{
    super::chat::{Embed, Embedded, Failure, Listed, Losses, Request, Response, Stop, Untranslatable},
    Provider, ReadStream,
    json::text_at,
};

pub(super) struct Cohere;

impl Provider for Cohere {
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
        let message = body.get("message")?.as_str()?.to_owned();
        let code = body.get("error_type").and_then(Value::as_str).unwrap_or("provider_error").to_owned();
        Some(Failure { status, code, message })
    }

    fn read_models(&self, body: &Map<String, Value>) -> Option<Vec<Listed>> {
        let rows = body.get("models")?.as_array()?.iter().filter_map(Value::as_object);
        let read = |row: &Map<String, Value>| Listed {
            id: text_at(row, "name").to_owned(),
            owner: Some("cohere".to_owned()),
            input_limit: row.get("context_length").and_then(Value::as_u64),
            ..Listed::default()
        };
        Some(rows.map(read).collect())
    }

    fn write_embed(&self, embed: Embed, losses: &mut Losses) -> Result<(String, Value), Untranslatable> {
        Ok(embed::write_embed(&embed, losses))
    }

    fn read_embedded(&self, body: &Map<String, Value>) -> Option<Embedded> {
        embed::read_embedded(body)
    }
}

fn stop_of(reason: &str) -> Stop {
    match reason {
        "STOP_SEQUENCE" => Stop::Sequence(None),
        "MAX_TOKENS" => Stop::MaxTokens,
        "TOOL_CALL" => Stop::ToolUse,
        "TIMEOUT" => Stop::Failed,
        "ERROR_TOXIC" => Stop::Filtered,
        "ERROR_LIMIT" => Stop::ContextFull,
        reason if reason.starts_with("ERROR") => Stop::Failed,
        _ => Stop::EndTurn,
    }
}
