//! Errors in the caller's format: bodies, and the events that end a stream that failed after its start. The events keep
//! an SDK from treating a failed stream as complete.

use serde_json::{Value, json};

use super::ClientFormat;

/// The encoded events that report an error inside a stream and end it.
pub fn stream_error(format: ClientFormat, code: &str, message: &str) -> Vec<u8> {
    match format {
        ClientFormat::OpenAiChat => {
            let chunk = json!({
                "id": "",
                "object": "chat.completion.chunk",
                "created": 0,
                "model": "",
                "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}],
                "error": {"message": message, "type": "server_error", "param": null, "code": code},
            });
            format!("data: {chunk}\n\ndata: [DONE]\n\n")
        }
        ClientFormat::OpenAiResponses => {
            let error = json!({
                "type": "error", "sequence_number": 0, "code": code, "message": message, "param": null,
            });
            let failed = json!({
                "type": "response.failed",
                "sequence_number": 1,
                "response": {
                    "id": "", "object": "response", "created_at": 0, "status": "failed", "model": "",
                    "output": [],
                    "error": {"code": code, "message": message},
                },
            });
            format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n")
        }
        ClientFormat::Anthropic => {
            let kind = if code.contains("timeout") { "timeout_error" } else { "api_error" };
            format!("event: error\ndata: {}\n\n", anthropic(kind, code, message))
        }
        ClientFormat::Gemini => {
            let timed_out = code.contains("timeout");
            let (number, status) = if timed_out { (504, "DEADLINE_EXCEEDED") } else { (502, "UNAVAILABLE") };
            format!("data: {}\n\n", gemini(number, status, code, message))
        }
    }
    .into_bytes()
}

/// An error body, as the caller's SDK expects it with this HTTP status.
pub fn error_body(format: ClientFormat, status: u16, code: &str, message: &str) -> Vec<u8> {
    error_value(format, status, code, message).to_string().into_bytes()
}

/// The same as a value.
pub fn error_value(format: ClientFormat, status: u16, code: &str, message: &str) -> Value {
    match format {
        ClientFormat::OpenAiChat | ClientFormat::OpenAiResponses => {
            let kind = match status {
                401 | 403 => "authentication_error",
                404 => "not_found_error",
                429 => "rate_limit_error",
                500.. => "server_error",
                _ => "invalid_request_error",
            };
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
        ClientFormat::Anthropic => {
            let kind = match status {
                401 => "authentication_error",
                402 => "billing_error",
                403 => "permission_error",
                404 => "not_found_error",
                413 => "request_too_large",
                429 => "rate_limit_error",
                408 | 504 => "timeout_error",
                529 => "overloaded_error",
                500.. => "api_error",
                _ => "invalid_request_error",
            };
            anthropic(kind, code, message)
        }
        ClientFormat::Gemini => {
            let name = match status {
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                409 => "ABORTED",
                429 => "RESOURCE_EXHAUSTED",
                499 => "CANCELLED",
                408 | 504 => "DEADLINE_EXCEEDED",
                502 | 503 | 529 => "UNAVAILABLE",
                500.. => "INTERNAL",
                _ => "INVALID_ARGUMENT",
            };
            gemini(status, name, code, message)
        }
    }
}

fn anthropic(kind: &str, code: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message, "code": code}})
}

fn gemini(number: u16, status: &str, code: &str, message: &str) -> Value {
    // Google's errors have the machine-readable reason in the details.
    let details = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}]);
    json!({"error": {"code": number, "message": message, "status": status, "details": details}})
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "a \"quoted\"\nmessage";

    /// The events of a stream as (event name, data). Panics on anything else.
    fn events(format: ClientFormat) -> Vec<(String, String)> {
        let text = String::from_utf8(stream_error(format, "provider_error", MESSAGE)).unwrap();
        let blocks = text.strip_suffix("\n\n").unwrap().split("\n\n");
        blocks
            .map(|block| {
                let (event, data) = block.split_once('\n').unwrap_or(("event: message", block));
                (
                    event.strip_prefix("event: ").unwrap().to_owned(),
                    data.strip_prefix("data: ").unwrap().to_owned(),
                )
            })
            .collect()
    }

    fn parsed(data: &str) -> Value {
        serde_json::from_str(data).unwrap()
    }

    #[test]
    fn a_failed_chat_stream_ends_with_an_error_chunk_and_done() {
        let events = events(ClientFormat::OpenAiChat);
        let chunk = parsed(&events[0].1);
        assert_eq!(chunk["error"]["message"], MESSAGE);
        assert_eq!(chunk["error"]["code"], "provider_error");
        assert_eq!(chunk["choices"][0]["finish_reason"], "error");
        assert_eq!((events.len(), &*events[1].1), (2, "[DONE]"));
    }

    #[test]
    fn other_failed_streams_end_in_their_own_format() {
        let responses = events(ClientFormat::OpenAiResponses);
        assert_eq!((&*responses[0].0, &*responses[1].0, responses.len()), ("error", "response.failed", 2));
        assert_eq!(parsed(&responses[0].1)["message"], MESSAGE);
        let failed = parsed(&responses[1].1);
        assert_eq!(
            (&failed["type"], &failed["response"]["status"]),
            (&json!("response.failed"), &json!("failed"))
        );
        assert_eq!(failed["response"]["error"]["message"], MESSAGE);
        let anthropic = events(ClientFormat::Anthropic);
        assert_eq!((&*anthropic[0].0, anthropic.len()), ("error", 1));
        assert_eq!(parsed(&anthropic[0].1)["error"]["type"], "api_error");
        let gemini = parsed(&events(ClientFormat::Gemini)[0].1);
        assert_eq!((&gemini["error"]["code"], &gemini["error"]["message"]), (&json!(502), &json!(MESSAGE)));
    }

    #[test]
    fn bodies_name_the_kind_that_fits_the_status() {
        let body =
            |format, status| parsed(std::str::from_utf8(&error_body(format, status, "c", MESSAGE)).unwrap());
        assert_eq!(body(ClientFormat::OpenAiChat, 429)["error"]["type"], "rate_limit_error");
        assert_eq!(body(ClientFormat::OpenAiResponses, 422)["error"]["type"], "invalid_request_error");
        assert_eq!(body(ClientFormat::Anthropic, 529)["error"]["type"], "overloaded_error");
        assert_eq!(body(ClientFormat::Anthropic, 400)["type"], "error");
        assert_eq!(body(ClientFormat::Gemini, 404)["error"]["status"], "NOT_FOUND");
        assert_eq!(body(ClientFormat::Gemini, 404)["error"]["message"], MESSAGE);
    }
}
