//! The responses API, whole and streamed.

use serde_json::{Value, json};

use super::request::{
    Ask, Said, format_of, heard, limit_of, model_of, pieces, say, stream_of, tool_of, turns,
};
use super::{Orders, Problem, SandboxBody, Seed, tokens, whole};

pub(super) fn responses(body: &Value, orders: &Orders<'_>, seed: &Seed) -> Result<SandboxBody, Problem> {
    let model = model_of(body)?;
    let (last_text, input_tokens) = match body.get("input") {
        Some(Value::String(text)) => (text.clone(), tokens(text)),
        Some(Value::Array(items)) => heard(&turns(items, "input")?),
        _ => return Err(Problem::field("input", "input has to be a text or a list of items.")),
    };
    let instructions = body.get("instructions").and_then(Value::as_str);
    let ask = Ask {
        model,
        stream: stream_of(body)?,
        prompt_tokens: input_tokens + instructions.map_or(0, tokens),
        last_text,
        max_tokens: limit_of(body, &["max_output_tokens"])?,
        format: format_of(body.pointer("/text/format"), "text.format")?,
        tool: tool_of(body)?,
    };
    let said = say(&ask, orders);
    let item = item(&said, seed, "completed");
    let done = response(&ask, Some(&said), &json!([item]), seed, instructions);
    if !ask.stream {
        return Ok(whole(&done));
    }
    let mut events = Events::default();
    let begun = response(&ask, None, &json!([]), seed, instructions);
    events.push("response.created", json!({"response": begun}));
    events.push("response.in_progress", json!({"response": begun}));
    events.item(&said, &item, seed, orders);
    let last = if done["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
    events.push(last, json!({"response": done}));
    Ok(SandboxBody::Events(events.written))
}

/// The response object: in progress while nothing was said, else finished.
fn response(
    ask: &Ask,
    said: Option<&Said>,
    output: &Value,
    seed: &Seed,
    instructions: Option<&str>,
) -> Value {
    let cut = matches!(said, Some(Said::Text { cut: true, .. }));
    let status = match said {
        None => "in_progress",
        Some(_) if cut => "incomplete",
        Some(_) => "completed",
    };
    let usage = said.map(|said| {
        let (input, output) = (ask.prompt_tokens, said.tokens());
        json!({
            "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        })
    });
    json!({
        "id": format!("resp_{}", seed.hex), "object": "response", "created_at": seed.created, "status": status,
        "error": null, "incomplete_details": cut.then(|| json!({"reason": "max_output_tokens"})),
        "instructions": instructions, "max_output_tokens": ask.max_tokens, "model": ask.model, "output": output,
        "parallel_tool_calls": true, "previous_response_id": null, "store": false, "temperature": 1.0,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled", "usage": usage, "metadata": {},
    })
}

fn item(said: &Said, seed: &Seed, status: &str) -> Value {
    match said {
        Said::Text { text, .. } => json!({
            "id": format!("msg_{}", seed.hex), "type": "message", "status": status, "role": "assistant",
            "content": if status == "completed" { json!([part(text)]) } else { json!([]) },
        }),
        Said::Call { name, arguments } => json!({
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
struct Events {
    written: Vec<Vec<u8>>,
}

impl Events {
    fn push(&mut self, kind: &str, mut data: Value) {
        if let Some(members) = data.as_object_mut() {
            members.insert("type".to_owned(), json!(kind));
            members.insert("sequence_number".to_owned(), json!(self.written.len()));
        }
        self.written.push(format!("event: {kind}\ndata: {data}\n\n").into_bytes());
    }

    /// The life of the one output item.
    fn item(&mut self, said: &Said, done: &Value, seed: &Seed, orders: &Orders<'_>) {
        self.push(
            "response.output_item.added",
            json!({"output_index": 0, "item": item(said, seed, "in_progress")}),
        );
        let id = &done["id"];
        match said {
            Said::Text { text, .. } => {
                let at = |extra: Value| {
                    let mut data = json!({"item_id": id, "output_index": 0, "content_index": 0});
                    if let (Some(data), Value::Object(extra)) = (data.as_object_mut(), extra) {
                        data.extend(extra);
                    }
                    data
                };
                self.push("response.content_part.added", at(json!({"part": part("")})));
                for piece in pieces(text, orders.chunks) {
                    self.push("response.output_text.delta", at(json!({"delta": piece, "logprobs": []})));
                }
                self.push("response.output_text.done", at(json!({"text": text, "logprobs": []})));
                self.push("response.content_part.done", at(json!({"part": part(text)})));
            }
            Said::Call { name, arguments } => {
                for piece in pieces(arguments, orders.chunks) {
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
    fn a_response_answers_texts_and_items() {
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
    fn a_stream_ends_with_a_whole_response_that_its_deltas_fold_to() {
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
