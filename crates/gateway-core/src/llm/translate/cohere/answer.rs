//! A whole answer.

use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            Shape,
            chat::{Choice, Content, Logprob, Part, Response, ToolCall},
            usage,
        },
        json::{list, object, string, text_at},
    },
    stop_of,
};

type Object = Map<String, Value>;

pub(super) fn read_response(mut body: Object) -> Option<Response> {
    let mut message = object(&mut body, "message").ok()??;
    let mut parts = Vec::new();
    if let Some(text) = string(&mut message, "tool_plan").ok()?.filter(|plan| !plan.is_empty()) {
        parts.push(Part::new(Content::Thinking { text, signature: None }));
    }
    for part in list(&mut message, "content").ok()?.unwrap_or_default() {
        let Value::Object(mut part) = part else { return None };
        parts.push(Part::new(match text_at(&part, "type") {
            "thinking" => Content::Thinking {
                text: string(&mut part, "thinking").ok()?.unwrap_or_default(),
                signature: None,
            },
            "text" => Content::Text(string(&mut part, "text").ok()?.unwrap_or_default()),
            _ => Content::Other(part.into()),
        }));
    }
    for call in list(&mut message, "tool_calls").ok()?.unwrap_or_default() {
        let Value::Object(mut call) = call else { return None };
        let mut function = object(&mut call, "function").ok()??;
        parts.push(Part::new(Content::ToolCall(ToolCall {
            id: string(&mut call, "id").ok()?.unwrap_or_default(),
            name: string(&mut function, "name").ok()?.unwrap_or_default(),
            arguments: string(&mut function, "arguments").ok()?.unwrap_or_default(),
            signature: None,
        })));
    }
    let logprobs = list(&mut body, "logprobs").ok()?.unwrap_or_default();
    let choice = Choice {
        index: 0,
        parts,
        stop: body.get("finish_reason").and_then(Value::as_str).map(stop_of),
        logprobs: logprobs.iter().filter_map(read_logprobs).collect(),
    };
    let report = object(&mut body, "usage").ok().flatten();
    Some(Response {
        id: text_at(&body, "id").to_owned(),
        model: String::new(),
        created: None,
        choices: vec![choice],
        usage: report.and_then(|report| usage::of_report(Shape::Cohere, &report)),
    })
}

/// A piece of text with the probabilities of its tokens. Which token is which part of the text is not told, so only
/// pieces of one token say something.
pub(super) fn read_logprobs(piece: &Value) -> Option<Logprob> {
    let probabilities = piece.get("logprobs")?.as_array()?;
    let [probability] = &probabilities[..] else { return None };
    Some(Logprob {
        token: piece.get("text")?.as_str()?.to_owned(),
        logprob: probability.as_number()?.clone(),
        bytes: None,
        top: Vec::new(),
    })
}
