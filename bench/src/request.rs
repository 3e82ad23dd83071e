//! The bytes of the requests, equal for every target so that only the proxy differs.

use crate::responses::ResponseScript;

/// The load generator writes a sequence number after this marker, so that no two requests are equal.
pub(crate) const SEQUENCE_MARK: &[u8] = b"request-number-";
pub(crate) const SEQUENCE_DIGITS: usize = 8;

const TEXT: &str = "Summarise the following notes in three sentences for a reader who was not there. \
    The first speaker said that costs had doubled since spring; nobody asked why. \\\"Later\\\", he said.\\n";

/// A chat completion with a body of exactly `body_bytes` bytes, in the field order of the Python SDK.
pub(crate) fn chat(body_bytes: usize, script: ResponseScript, gateway_key: &str) -> Vec<u8> {
    post("/v1/chat/completions", gateway_key, &chat_body(body_bytes, script)).into_bytes()
}

pub(crate) fn chat_body(body_bytes: usize, script: ResponseScript) -> String {
    let body = |text: &str| {
        let stream = if script.chunks > 0 { ",\"stream\":true" } else { "" };
        format!(
            "{{\"messages\":[{{\"role\":\"system\",\"content\":\"You are a careful assistant.\"}},\
             {{\"role\":\"user\",\"content\":\"request-number-00000000 {text}\"}}],\"model\":\"gpt-4o-mini\",\
             \"temperature\":0.7,\"max_tokens\":256{stream},\"user\":\"{}\"}}",
            script.to_user()
        )
    };
    let wanted = body_bytes.saturating_sub(body("").len());
    let mut text = TEXT.repeat(wanted / TEXT.len());
    text.push_str(&"x".repeat(wanted - text.len()));
    body(&text)
}

pub(crate) fn post(path: &str, gateway_key: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
         User-Agent: gateway-bench/1.0\r\nAuthorization: Bearer sk-test\r\nX-Gateway-Provider: openai\r\n\
         X-Gateway-Key: {gateway_key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Adds headers to the request, each with its line ending.
pub(crate) fn with_headers(request: &[u8], headers: &str) -> Vec<u8> {
    let line = memchr::memchr(b'\n', request).map_or(0, |at| at + 1);
    let (line, rest) = request.split_at_checked(line).unwrap_or((request, b""));
    [line, headers.as_bytes(), rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_the_size_asked_for() {
        for size in [2048, 16384] {
            let request = chat(size, ResponseScript { chunks: 5, ..ResponseScript::default() }, "key");
            let head = crate::http::parse_head(&request).unwrap();
            let body = &request[head.length..];
            assert_eq!(body.len(), size);
            let value: serde_json::Value = serde_json::from_slice(body).unwrap();
            assert_eq!(value["stream"], true);
            assert_eq!(head.body, crate::http::Body::Bytes(size as u64));
        }
    }

    #[test]
    fn added_headers_follow_the_request_line() {
        let request = with_headers(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nbody", "X: y\r\n");
        assert_eq!(request, b"POST / HTTP/1.1\r\nX: y\r\nHost: a\r\n\r\nbody");
    }

    #[test]
    fn the_sequence_number_has_its_position() {
        let request = chat(2048, ResponseScript::default(), "key");
        let at = memchr::memmem::find(&request, SEQUENCE_MARK).unwrap() + SEQUENCE_MARK.len();
        assert_eq!(&request[at..at + SEQUENCE_DIGITS], b"00000000");
    }
}
