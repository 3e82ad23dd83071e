//! The exact responses of the upstream, from which the load generator knows the expected length.

/// The response that a request selects, encoded in its `user` field as `bench:name=value,…`. Proxies have no reason
/// to change that field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseScript {
    /// Number of stream events; 0 is a plain response.
    pub(crate) chunks: u32,
    pub(crate) gap_ms: u32,
    /// Sends the first chunk and then nothing until the client disconnects.
    pub(crate) hold: bool,
}

/// Bytes that `"usage":null` adds to every chunk when usage is requested.
const NO_USAGE: &str = ",\"usage\":null";
const MARK: &[u8] = b"\"bench:";

impl ResponseScript {
    pub(crate) fn to_user(self) -> String {
        format!("bench:chunks={},gap_ms={},hold={}", self.chunks, self.gap_ms, u8::from(self.hold))
    }

    /// Searches from the end of the request body, where the field is.
    pub(crate) fn find(body: &[u8]) -> Self {
        let tail = body.get(body.len().saturating_sub(400)..).unwrap_or_default();
        let mut script = Self::default();
        let Some(at) = memchr::memmem::rfind(tail, MARK) else { return script };
        let text = tail.get(at + MARK.len()..).unwrap_or_default();
        let text = text.split(|byte| *byte == b'"').next().unwrap_or_default();
        for pair in std::str::from_utf8(text).unwrap_or_default().split(',') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.parse().unwrap_or(0);
            match name {
                "chunks" => script.chunks = value,
                "gap_ms" => script.gap_ms = value,
                "hold" => script.hold = value != 0,
                _ => {}
            }
        }
        script
    }

    /// Possible lengths of the response: with and without the `usage` fields that a proxy requests.
    pub(crate) fn lengths(self) -> Vec<u64> {
        if self.chunks == 0 {
            return vec![plain_body().len() as u64];
        }
        let length =
            |usage| (0..self.chunks).map(|at| chunk(self, at, usage).len()).sum::<usize>() + DONE.len();
        vec![length(false) as u64, length(true) as u64]
    }
}

pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Exactly 300 bytes, like a short completion.
pub(crate) fn plain_body() -> String {
    let body = |content: &str| {
        format!(
            "{{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"gpt-4o-mini\",\
             \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{content}\"}},\
             \"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":480,\"completion_tokens\":12,\"total_tokens\":492}}}}"
        )
    };
    body(&".".repeat(300_usize.saturating_sub(body("").len())))
}

/// One event of a stream in the provider's format.
pub(crate) fn chunk(script: ResponseScript, at: u32, usage: bool) -> String {
    let (delta, finish) = match at {
        0 => ("{\"role\":\"assistant\",\"content\":\"\"}", "null"),
        _ if at + 1 == script.chunks => ("{}", "\"stop\""),
        _ => ("{\"content\":\" word\"}", "null"),
    };
    let usage = if usage { NO_USAGE } else { "" };
    format!(
        "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\
         \"model\":\"gpt-4o-mini\",\"system_fingerprint\":\"fp_0123456789\",\"choices\":[{{\"index\":0,\
         \"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]{usage}}}\n\n"
    )
}

/// The usage event, sent only on request.
pub(crate) fn usage_chunk(script: ResponseScript) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\
         \"model\":\"gpt-4o-mini\",\"choices\":[],\"usage\":{{\"prompt_tokens\":480,\
         \"completion_tokens\":{0},\"total_tokens\":{1}}}}}\n\n",
        script.chunks,
        480 + script.chunks
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_answer_is_json_of_300_bytes() {
        assert_eq!(plain_body().len(), 300);
        let value: serde_json::Value = serde_json::from_str(&plain_body()).unwrap();
        assert_eq!(value["usage"]["total_tokens"], 492);
    }

    #[test]
    fn every_event_is_json() {
        let script = ResponseScript { chunks: 3, ..ResponseScript::default() };
        for usage in [false, true] {
            for event in (0..3).map(|at| chunk(script, at, usage)).chain([usage_chunk(script)]) {
                let json = event.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
                serde_json::from_str::<serde_json::Value>(json).unwrap();
            }
        }
    }

    #[test]
    fn a_script_survives_the_request_body() {
        let script = ResponseScript { chunks: 50, gap_ms: 5, hold: true };
        let body =
            format!("{{\"user\":\"{}\",\"stream_options\":{{\"include_usage\":true}}}}", script.to_user());
        assert_eq!(ResponseScript::find(body.as_bytes()), script);
        assert_eq!(ResponseScript::find(b"{}"), ResponseScript::default());
    }

    #[test]
    fn lengths_differ_by_the_usage_fields() {
        let lengths = ResponseScript { chunks: 50, ..ResponseScript::default() }.lengths();
        assert_eq!(lengths[1] - lengths[0], 50 * NO_USAGE.len() as u64);
    }
}
