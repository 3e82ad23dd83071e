//! OpenAI's chat completions, the format that most providers have copied. Two of the copiers' additions are spoken too,
//! because the original has no words for thoughts: `reasoning_content` holds their text (`reasoning` is read as well),
//! and `reasoning_details` their signatures and what is encrypted, in OpenRouter's form. Gemini's signatures of calls
//! stand in `extra_content`, as in Google's own copy.

mod answer;
mod embed;
mod models;
mod read;
mod stream_in;
mod stream_out;
mod write;
mod write_messages;

use serde_json::{Map, Value};

use super::{
    super::chat::{
        Content, Embed, Embedded, Failure, Listed, Logprob, Losses, Part, Request, Response, Stop,
        Untranslatable,
    },
    Caller, Provider, ReadStream, WriteStream,
};

pub(super) use write::thinks;

pub(super) struct Chat;

impl Caller for Chat {
    fn meaningful(&self) -> &'static [&'static str] {
        &["functions", "function_call", "audio", "modalities", "web_search_options"]
    }

    fn read_request(&self, body: Map<String, Value>) -> Result<Request, Untranslatable> {
        read::read_request(body)
    }

    fn write_response(&self, response: Response) -> Value {
        answer::write_response(response)
    }

    fn stream_writer(&self, usage_wanted: bool) -> Box<dyn WriteStream> {
        Box::new(stream_out::Writer::new(usage_wanted))
    }

    fn write_models(&self, models: Vec<Listed>) -> Value {
        models::write_models(models)
    }
}

impl Provider for Chat {
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

    fn write_embed(&self, embed: Embed, _losses: &mut Losses) -> Result<(String, Value), Untranslatable> {
        Ok(embed::write(embed))
    }

    fn read_embedded(&self, body: &Map<String, Value>) -> Option<Embedded> {
        embed::read(body)
    }
}

/// A bare list of log probabilities, as responses have them.
pub(super) fn read_logprob_list(list: &Value) -> Vec<Logprob> {
    list.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(answer::read_logprob).collect()
}

pub(super) fn logprobs_list(items: &[Logprob]) -> Value {
    answer::logprobs_value(items)["content"].take()
}

fn read_error(status: u16, body: &Map<String, Value>) -> Option<Failure> {
    let (message, code) = match body.get("error") {
        Some(Value::Object(error)) => (error.get("message")?.as_str()?, code_of(error)),
        Some(Value::String(message)) => (&**message, None),
        // Some copiers leave the wrapping out.
        _ => (body.get("message")?.as_str()?, code_of(body)),
    };
    let code = code.unwrap_or_else(|| "provider_error".to_owned());
    Some(Failure { status, code, message: message.to_owned() })
}

fn code_of(error: &Map<String, Value>) -> Option<String> {
    ["code", "type"].into_iter().find_map(|key| match error.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    })
}

/// A chat has no word of its own for half of the reasons; `refusal` says whether the message holds one.
fn finish_reason(stop: &Stop, refusal: bool) -> &'static str {
    match stop {
        Stop::EndTurn | Stop::Sequence(_) | Stop::Paused => "stop",
        Stop::Refusal if refusal => "stop",
        Stop::MaxTokens | Stop::ContextFull => "length",
        Stop::ToolUse => "tool_calls",
        Stop::Refusal | Stop::Filtered => "content_filter",
        Stop::Failed => "error",
    }
}

fn stop_of(reason: &str) -> Stop {
    match reason {
        "length" | "max_tokens" | "model_length" => Stop::MaxTokens,
        "tool_calls" | "function_call" => Stop::ToolUse,
        "content_filter" => Stop::Filtered,
        "error" => Stop::Failed,
        _ => Stop::EndTurn,
    }
}

/// One element of `reasoning_details`.
fn thought_of_detail(detail: Value) -> Option<Part> {
    let Value::Object(mut detail) = detail else { return None };
    let mut text = |key: &str| match detail.remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let content = match &*text("type")? {
        "reasoning.encrypted" => Content::Redacted(text("data")?),
        "reasoning.summary" => Content::Thinking { text: text("summary")?, signature: None },
        _ => Content::Thinking {
            text: text("text").unwrap_or_default(),
            signature: text("signature").filter(|signature| !signature.is_empty()),
        },
    };
    Some(Part::new(content))
}
