//! Chat completions and completions, as a body or as a stream.

use serde_json::{Value, json};

use super::request::{
    Generated, GenerationRequest, OutputFormat, format_of, generate, last_user_text, limit_of, messages_of,
    model_of, stream_of, text_chunks, tool_of,
};
use super::{ParsedDirectives, SandboxBody, SandboxError, Seed, json_body, tokens};

pub(super) fn chat(
    body: &Value,
    directives: &ParsedDirectives<'_>,
    seed: &Seed,
) -> Result<SandboxBody, SandboxError> {
    let messages = body.get("messages").and_then(Value::as_array);
    let messages = messages.filter(|list| !list.is_empty());
    let model = model_of(body)?;
    let messages = messages
        .ok_or_else(|| SandboxError::field("messages", "messages must be a list of at least one message."))?;
    let (last_text, prompt_tokens) = last_user_text(messages_of(messages, "messages")?);
    let request = GenerationRequest {
        model,
        stream: stream_of(body)?,
        prompt_tokens,
        last_text,
        max_tokens: limit_of(body, &["max_completion_tokens", "max_tokens"])?,
        format: format_of(body.get("response_format"), "response_format")?,
        tool: tool_of(body)?,
    };
    let generated = generate(&request, directives);
    let usage = usage(&request, &generated);
    let call = |name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": format!("call_{}", seed.hex), "type": "function", "function": function})
    };
    let finish = finish_reason(&generated);
    let envelope = Envelope { id: format!("chatcmpl-{}", seed.hex), seed, request: &request };
    if !request.stream {
        let message = match &generated {
            Generated::Text { text, .. } => json!({"role": "assistant", "content": text, "refusal": null}),
            Generated::ToolCall { name, arguments } => {
                let calls = [call(name, arguments)];
                json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": calls})
            }
        };
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
        return Ok(json_body(&envelope.object("chat.completion", &json!([choice]), Some(&usage))));
    }
    let mut deltas = Vec::new();
    match &generated {
        Generated::Text { text, .. } => {
            deltas.push(json!({"role": "assistant", "content": "", "refusal": null}));
            deltas.extend(
                text_chunks(text, directives.chunks).into_iter().map(|piece| json!({"content": piece})),
            );
        }
        Generated::ToolCall { name, arguments } => {
            let mut first = call(name, "");
            first["index"] = json!(0);
            deltas.push(json!({"role": "assistant", "content": null, "tool_calls": [first]}));
            deltas.extend(
                text_chunks(arguments, directives.chunks)
                    .into_iter()
                    .map(|piece| json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})),
            );
        }
    }
    let choices = deltas.into_iter().map(|delta| (delta, Value::Null)).chain([(json!({}), json!(finish))]);
    let choices = choices.map(
        |(delta, finish)| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]),
    );
    Ok(events(&envelope, "chat.completion.chunk", choices, include_usage(body).then_some(&usage)))
}

pub(super) fn completions(
    body: &Value,
    directives: &ParsedDirectives<'_>,
    seed: &Seed,
) -> Result<SandboxBody, SandboxError> {
    let model = model_of(body)?;
    let prompts: Option<Vec<&str>> = match body.get("prompt") {
        Some(Value::String(prompt)) => Some(vec![prompt]),
        Some(Value::Array(prompts)) => prompts.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let prompts = prompts.filter(|prompts| !prompts.is_empty());
    let prompts =
        prompts.ok_or_else(|| SandboxError::field("prompt", "prompt must be a text or a list of texts."))?;
    let request = GenerationRequest {
        model,
        stream: stream_of(body)?,
        prompt_tokens: prompts.iter().map(|prompt| tokens(prompt)).sum(),
        last_text: prompts.last().copied().unwrap_or_default().into(),
        max_tokens: limit_of(body, &["max_tokens"])?,
        format: OutputFormat::Text,
        tool: None,
    };
    let generated = generate(&request, directives);
    let usage = usage(&request, &generated);
    let text = if let Generated::Text { text, .. } = &generated { text.as_str() } else { "" };
    let envelope = Envelope { id: format!("cmpl-{}", seed.hex), seed, request: &request };
    let choice = |text: &str, finish: Value| json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}]);
    let finish = json!(finish_reason(&generated));
    if !request.stream {
        return Ok(json_body(&envelope.object("text_completion", &choice(text, finish), Some(&usage))));
    }
    let choices = text_chunks(text, directives.chunks)
        .into_iter()
        .map(|piece| choice(piece, Value::Null))
        .chain([choice("", finish)]);
    Ok(events(&envelope, "text_completion", choices, include_usage(body).then_some(&usage)))
}

struct Envelope<'a> {
    id: String,
    seed: &'a Seed,
    request: &'a GenerationRequest<'a>,
}

impl Envelope<'_> {
    fn object(&self, kind: &str, choices: &Value, usage: Option<&Value>) -> Value {
        let mut object = json!({
            "id": self.id, "object": kind, "created": self.seed.created, "model": self.request.model,
            "system_fingerprint": "fp_sandbox", "choices": choices,
        });
        if let (Some(usage), Some(members)) = (usage, object.as_object_mut()) {
            members.insert("usage".to_owned(), usage.clone());
        }
        object
    }
}

/// The chunks of a stream. With `include_usage`, all chunks but the last have `"usage": null`, as in OpenAI's streams.
fn events(
    envelope: &Envelope<'_>,
    kind: &str,
    choices: impl Iterator<Item = Value>,
    usage: Option<&Value>,
) -> SandboxBody {
    let null = usage.is_some().then_some(Value::Null);
    let chunks = choices.map(|choices| envelope.object(kind, &choices, null.as_ref()));
    let last = usage.map(|usage| envelope.object(kind, &json!([]), Some(usage)));
    let mut events: Vec<Vec<u8>> =
        chunks.chain(last).map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect();
    events.push(b"data: [DONE]\n\n".to_vec());
    SandboxBody::Events(events)
}

fn include_usage(body: &Value) -> bool {
    body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true))
}

fn finish_reason(generated: &Generated) -> &'static str {
    match generated {
        Generated::Text { is_truncated: false, .. } => "stop",
        Generated::Text { is_truncated: true, .. } => "length",
        Generated::ToolCall { .. } => "tool_calls",
    }
}

fn usage(request: &GenerationRequest<'_>, generated: &Generated) -> Value {
    let (prompt, completion) = (request.prompt_tokens, generated.tokens());
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

#[cfg(test)]
mod tests {
    use super::super::{SandboxDirectives, SandboxResponse, respond};
    use super::*;

    fn post(path: &str, directives: &SandboxDirectives<'_>, body: &Value) -> SandboxResponse {
        respond("POST", path, directives, body.to_string().as_bytes())
    }

    fn plain(directives: &SandboxDirectives<'_>, extra: &Value) -> Value {
        let reply = post("/v1/chat/completions", directives, &request(extra));
        let SandboxBody::Json(body) = reply.body else { panic!("no JSON") };
        serde_json::from_slice(&body).unwrap()
    }

    fn request(extra: &Value) -> Value {
        let mut body = json!({"model": "sandbox-small", "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    }

    fn streamed(path: &str, directives: &SandboxDirectives<'_>, body: &Value) -> Vec<Value> {
        let SandboxBody::Events(events) = post(path, directives, body).body else { panic!("no events") };
        let mut data: Vec<String> = events
            .iter()
            .map(|event| {
                std::str::from_utf8(event)
                    .unwrap()
                    .strip_prefix("data: ")
                    .unwrap()
                    .strip_suffix("\n\n")
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert_eq!(data.pop().as_deref(), Some("[DONE]"));
        data.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    #[test]
    fn a_chat_echoes_the_user_and_counts_tokens() {
        let answer = plain(&SandboxDirectives::default(), &json!({}));
        assert_eq!(answer["choices"][0]["message"]["content"], "The sandbox read: hello");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert_eq!(
            (&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]),
            (&json!(4), &json!(6))
        );
        assert_eq!(
            answer,
            plain(&SandboxDirectives::default(), &json!({})),
            "the same request gives the same answer"
        );
        assert_ne!(answer["id"], plain(&SandboxDirectives::default(), &json!({"seed": 1}))["id"]);
        let reply = SandboxDirectives { reply: Some("as requested"), ..SandboxDirectives::default() };
        assert_eq!(plain(&reply, &json!({}))["choices"][0]["message"]["content"], "as requested");
        let cut = plain(&reply, &json!({"max_tokens": 1}));
        assert_eq!(
            (&cut["choices"][0]["message"]["content"], &cut["choices"][0]["finish_reason"]),
            (&json!("as r"), &json!("length"))
        );
    }

    #[test]
    fn a_stream_joins_to_the_body_in_the_requested_chunks() {
        let chunks = SandboxDirectives { chunks: Some("40"), ..SandboxDirectives::default() };
        let events = streamed(
            "/v1/chat/completions",
            &chunks,
            &request(&json!({"stream": true, "stream_options": {"include_usage": true}})),
        );
        let content: Vec<&str> =
            events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect();
        assert_eq!(content.len(), 41, "the opening chunk and forty of text");
        let whole = plain(&chunks, &json!({}));
        assert_eq!(whole["choices"][0]["message"]["content"], content.concat());
        let last = events.last().unwrap();
        assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]));
        assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(events[0]["usage"], Value::Null);
        let without_usage = streamed("/v1/chat/completions", &chunks, &request(&json!({"stream": true})));
        assert!(without_usage.iter().all(|event| event.get("usage").is_none()));
    }

    #[test]
    fn formats_give_json_and_forced_tools_are_called() {
        let none = SandboxDirectives::default();
        let content = |extra: Value| -> Value {
            serde_json::from_str(plain(&none, &extra)["choices"][0]["message"]["content"].as_str().unwrap())
                .unwrap()
        };
        assert!(content(json!({"response_format": {"type": "json_object"}})).is_object());
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        assert_eq!(
            content(
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
            ),
            json!({"n": 1})
        );

        let tools = json!([{"type": "function", "function": {"name": "other"}}, {"type": "function", "function": {"name": "pick", "parameters": schema}}]);
        let forced =
            json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "pick"}}});
        let answer = plain(&none, &forced);
        let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(call, &json!({"name": "pick", "arguments": "{\"n\":1}"}));
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
        let mut body = request(&forced);
        body["stream"] = json!(true);
        let arguments: String = streamed("/v1/chat/completions", &none, &body)
            .iter()
            .filter_map(|event| {
                event.pointer("/choices/0/delta/tool_calls/0/function/arguments")?.as_str().map(str::to_owned)
            })
            .collect();
        assert_eq!(arguments, "{\"n\":1}");
        let required = plain(&none, &json!({"tools": tools, "tool_choice": "required"}));
        assert_eq!(required["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "other");
        let auto = plain(&none, &json!({"tools": tools, "tool_choice": "auto"}));
        assert!(auto["choices"][0]["message"]["content"].is_string());
        for bad in [
            json!({"tool_choice": "required"}),
            json!({"tool_choice": {"function": {"name": "x"}}}),
            json!({"response_format": {"type": "xml"}}),
            json!({"max_tokens": 0}),
        ] {
            assert_eq!(post("/v1/chat/completions", &none, &request(&bad)).status, 400, "{bad}");
        }
    }

    #[test]
    fn completions_are_the_same_as_stream_and_body() {
        let none = SandboxDirectives::default();
        let SandboxBody::Json(body) =
            post("/v1/completions", &none, &json!({"model": "m", "prompt": "hi there"})).body
        else {
            panic!()
        };
        let whole: Value = serde_json::from_slice(&body).unwrap();
        let events = streamed(
            "/v1/completions",
            &none,
            &json!({"model": "m", "prompt": ["hi there"], "stream": true}),
        );
        let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert_eq!(
            (whole["choices"][0]["text"].as_str(), whole["object"].as_str()),
            (Some(&*text), Some("text_completion"))
        );
    }
}
