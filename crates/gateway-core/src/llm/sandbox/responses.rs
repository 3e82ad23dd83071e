//! The responses API, as a body or as a stream.

use serde_json::{Value, json};

use super::request::{
    Generated, GenerationRequest, format_of, generate, last_user_text, limit_of, messages_of, model_of,
    stream_of, text_chunks, tool_of,
};
use super::{ParsedDirectives, SandboxBody, SandboxError, Seed, json_body, tokens};

pub(super) fn responses(
    body: &Value,
    directives: &ParsedDirectives<'_>,
    seed: &Seed,
) -> Result<SandboxBody, SandboxError> {
    let model = model_of(body)?;
    let (last_text, input_tokens) = match body.get("input") {
        Some(Value::String(text)) => (text.into(), tokens(text)),
        Some(Value::Array(items)) => last_user_text(messages_of(items, "input")?),
        _ => return Err(SandboxError::field("input", "input must be a text or a list of items.")),
    };
    let instructions = body.get("instructions").and_then(Value::as_str);
    let request = GenerationRequest {
        model,
        stream: stream_of(body)?,
        prompt_tokens: input_tokens + instructions.map_or(0, tokens),
        last_text,
        max_tokens: limit_of(body, &["max_output_tokens"])?,
        format: format_of(body.pointer("/text/format"), "text.format")?,
        tool: tool_of(body)?,
    };
    let generated = generate(&request, directives);
    let item = item(&generated, seed, "completed");
    let done = response(&request, Some(&generated), &json!([item]), seed, instructions);
    if !request.stream {
        return Ok(json_body(&done));
    }
    let mut events = EventLog::default();
    let started = response(&request, None, &json!([]), seed, instructions);
    events.push("response.created", json!({"response": started}));
    events.push("response.in_progress", json!({"response": started}));
    events.item(&generated, &item, seed, directives);
    let last = if done["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
    events.push(last, json!({"response": done}));
    Ok(SandboxBody::Events(events.encoded))
}

/// The response object: in progress without output, completed with it.
fn response(
    request: &GenerationRequest<'_>,
    generated: Option<&Generated>,
    output: &Value,
    seed: &Seed,
    instructions: Option<&str>,
) -> Value {
    let is_truncated = matches!(generated, Some(Generated::Text { is_truncated: true, .. }));
    let status = match generated {
        None => "in_progress",
        Some(_) if is_truncated => "incomplete",
        Some(_) => "completed",
    };
    let usage = generated.map(|generated| {
        let (input, output) = (request.prompt_tokens, generated.tokens());
        json!({
            "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        })
    });
    json!({
        "id": format!("resp_{}", seed.hex), "object": "response", "created_at": seed.created, "status": status,
        "error": null, "incomplete_details": is_truncated.then(|| json!({"reason": "max_output_tokens"})),
        "instructions": instructions, "max_output_tokens": request.max_tokens, "model": request.model, "output": output,
        "parallel_tool_calls": true, "previous_response_id": null, "store": false, "temperature": 1.0,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled", "usage": usage, "metadata": {},
    })
}

fn item(generated: &Generated, seed: &Seed, status: &str) -> Value {
    match generated {
        Generated::Text { text, .. } => json!({
            "id": format!("msg_{}", seed.hex), "type": "message", "status": status, "role": "assistant",
            "content": if status == "completed" { json!([part(text)]) } else { json!([]) },
        }),
        Generated::ToolCall { name, arguments } => json!({
            "id": format!("fc_{}", seed.hex), "type": "function_call", "status": status, "name": name,
            "call_id": format!("call_{}", seed.hex),
            "arguments": if status == "completed" { arguments.as_str() } else { "" },
        }),
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

#[derive(Default)]
struct EventLog {
    encoded: Vec<Vec<u8>>,
}

impl EventLog {
    fn push(&mut self, kind: &str, mut data: Value) {
        if let Some(members) = data.as_object_mut() {
            members.insert("type".to_owned(), json!(kind));
            members.insert("sequence_number".to_owned(), json!(self.encoded.len()));
        }
        self.encoded.push(format!("event: {kind}\ndata: {data}\n\n").into_bytes());
    }

    /// Adds all events of the single output item.
    fn item(&mut self, generated: &Generated, done: &Value, seed: &Seed, directives: &ParsedDirectives<'_>) {
        self.push(
            "response.output_item.added",
            json!({"output_index": 0, "item": item(generated, seed, "in_progress")}),
        );
        let id = &done["id"];
        match generated {
            Generated::Text { text, .. } => {
                let at = |extra: Value| {
                    let mut data = json!({"item_id": id, "output_index": 0, "content_index": 0});
                    if let (Some(data), Value::Object(extra)) = (data.as_object_mut(), extra) {
                        data.extend(extra);
                    }
                    data
                };
                self.push("response.content_part.added", at(json!({"part": part("")})));
                for piece in text_chunks(text, directives.chunks) {
                    self.push("response.output_text.delta", at(json!({"delta": piece, "logprobs": []})));
                }
                self.push("response.output_text.done", at(json!({"text": text, "logprobs": []})));
                self.push("response.content_part.done", at(json!({"part": part(text)})));
            }
            Generated::ToolCall { name, arguments } => {
                for piece in text_chunks(arguments, directives.chunks) {
                    let data = json!({"item_id": id, "output_index": 0, "delta": piece});
                    self.push("response.function_call_arguments.delta", data);
                }
                let data = json!({"item_id": id, "output_index": 0, "name": name, "arguments": arguments});
                self.push("response.function_call_arguments.done", data);
            }
        }
        self.push("response.output_item.done", json!({"output_index": 0, "item": done}));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SandboxDirectives, respond};
    use super::*;

    fn post(body: &Value) -> SandboxBody {
        respond("POST", "/v1/responses", &SandboxDirectives::default(), body.to_string().as_bytes()).body
    }

    fn plain(body: &Value) -> Value {
        let SandboxBody::Json(reply) = post(body) else { panic!("no JSON") };
        serde_json::from_slice(&reply).unwrap()
    }

    fn streamed(body: &Value) -> Vec<Value> {
        let SandboxBody::Events(events) = post(body) else { panic!("no events") };
        let read = |(index, event): (usize, &Vec<u8>)| {
            let text = std::str::from_utf8(event).unwrap();
            let (kind, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
            assert_eq!((&data["type"], &data["sequence_number"]), (&json!(kind), &json!(index)));
            data
        };
        events.iter().enumerate().map(read).collect()
    }

    #[test]
    fn a_response_accepts_texts_and_items() {
        let answer = plain(&json!({"model": "m", "input": "hello", "instructions": "be kind"}));
        assert_eq!(answer["output"][0]["content"][0]["text"], "The sandbox read: hello");
        assert_eq!((&answer["status"], &answer["usage"]["input_tokens"]), (&json!("completed"), &json!(4)));
        let items = json!({"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]});
        assert_eq!(plain(&items)["output"][0]["content"][0]["text"], "The sandbox read: hello");
        let cut = plain(&json!({"model": "m", "input": "hello", "max_output_tokens": 1}));
        assert_eq!(
            (&cut["status"], &cut["incomplete_details"]["reason"]),
            (&json!("incomplete"), &json!("max_output_tokens"))
        );
    }

    #[test]
    fn a_stream_ends_with_the_response_that_its_deltas_join_to() {
        let events = streamed(&json!({"model": "m", "input": "hello there", "stream": true}));
        let text: String = events
            .iter()
            .filter(|e| e["type"] == "response.output_text.delta")
            .filter_map(|e| e["delta"].as_str())
            .collect();
        let last = &events.last().unwrap()["response"];
        assert_eq!(last["output"][0]["content"][0]["text"], text);
        assert_eq!(
            (&last["status"], &events[0]["response"]["status"]),
            (&json!("completed"), &json!("in_progress"))
        );
        assert!(
            last["usage"]["output_tokens"].as_u64().unwrap() > 0 && events[0]["response"]["usage"].is_null()
        );
    }

    #[test]
    fn forced_tools_and_formats_work_here_too() {
        let schema = json!({"type": "object", "properties": {"n": {"const": 5}}});
        let mut body = json!({"model": "m", "input": "x", "tools": [{"type": "function", "name": "pick", "parameters": schema}], "tool_choice": "required"});
        let call = &plain(&body)["output"][0];
        assert_eq!((&call["name"], &call["arguments"]), (&json!("pick"), &json!("{\"n\":5}")));
        body["stream"] = json!(true);
        assert!(streamed(&body).iter().any(|event| event["type"] == "response.function_call_arguments.done"));
        let formatted = plain(
            &json!({"model": "m", "input": "x", "text": {"format": {"type": "json_schema", "name": "s", "schema": schema}}}),
        );
        assert_eq!(formatted["output"][0]["content"][0]["text"], "{\"n\":5}");
    }
}
