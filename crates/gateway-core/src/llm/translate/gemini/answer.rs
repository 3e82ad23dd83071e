//! A whole answer, read from a provider or written for a caller.

use serde_json::{Map, Number, Value, json};

use super::{
    super::{
        super::{
            Shape,
            chat::{Choice, Content, Logprob, Part, Response, Source, Stop, ToolCall, arguments_value},
            usage::{self, Usage},
        },
        json::{list, object, string, take, text_at},
        media::kind_of_mime,
    },
    blocked, finish_reason, stop_of,
};
use crate::llm::chat::Media;

type Object = Map<String, Value>;

pub(super) fn read_response(mut body: Object) -> Option<Response> {
    let candidates = list(&mut body, "candidates").ok()?;
    let mut choices = Vec::new();
    for (at, candidate) in candidates.unwrap_or_default().into_iter().enumerate() {
        let Value::Object(candidate) = candidate else { return None };
        choices.push(read_candidate(at, candidate)?);
    }
    if choices.is_empty() {
        if !blocked(&body) {
            return None;
        }
        choices.push(Choice { stop: Some(Stop::Filtered), ..Choice::default() });
    }
    let report = object(&mut body, "usageMetadata").ok().flatten();
    Some(Response {
        id: text_at(&body, "responseId").to_owned(),
        model: text_at(&body, "modelVersion").to_owned(),
        created: None,
        choices,
        usage: report.and_then(|report| usage::of_report(Shape::Gemini, &report)),
    })
}

fn read_candidate(at: usize, mut candidate: Object) -> Option<Choice> {
    let index = candidate.get("index").and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok());
    let mut choice = Choice {
        index: index.or_else(|| u32::try_from(at).ok())?,
        stop: candidate.get("finishReason").and_then(Value::as_str).map(stop_of),
        logprobs: candidate.get("logprobsResult").map(read_logprobs).unwrap_or_default(),
        parts: Vec::new(),
    };
    let mut content = object(&mut candidate, "content").ok()?.unwrap_or_default();
    for part in list(&mut content, "parts").ok()?.unwrap_or_default() {
        let Value::Object(part) = part else { return None };
        choice.parts.extend(read_part(part)?);
    }
    Some(choice)
}

/// One part of an answer: what it says, and the signature of a text as a thought of its own.
pub(super) fn read_part(mut part: Object) -> Option<Vec<Part>> {
    let thought = part.get("thought") == Some(&Value::Bool(true));
    let signature = string(&mut part, "thoughtSignature").ok()?;
    let sign = |signature: Option<String>| {
        signature.map(|mark| Content::Thinking { text: String::new(), signature: Some(mark) })
    };
    let contents = if let Some(text) = string(&mut part, "text").ok()? {
        if thought {
            vec![Content::Thinking { text, signature }]
        } else {
            [
                Some(Content::Text(text))
                    .filter(|content| !matches!(content, Content::Text(text) if text.is_empty())),
                sign(signature),
            ]
            .into_iter()
            .flatten()
            .collect()
        }
    } else if let Some(mut call) = object(&mut part, "functionCall").ok()? {
        let arguments = take(&mut call, "args").map_or_else(|| "{}".to_owned(), |args| args.to_string());
        vec![Content::ToolCall(ToolCall {
            id: string(&mut call, "id").ok()?.unwrap_or_default(),
            name: string(&mut call, "name").ok()?.unwrap_or_default(),
            arguments,
            signature,
        })]
    } else if let Some(mut data) = object(&mut part, "inlineData").ok()? {
        let mime = string(&mut data, "mimeType").ok()?.unwrap_or_default();
        let kind = kind_of_mime(&mime);
        let source = Source::Base64 { mime, data: string(&mut data, "data").ok()?.unwrap_or_default() };
        let media = Content::Media(Media { kind, source, name: None, detail: None });
        [Some(media), sign(signature)].into_iter().flatten().collect()
    } else {
        vec![Content::Other(part.into())]
    };
    Some(contents.into_iter().map(Part::new).collect())
}

/// `chosenCandidates` are the tokens of the answer, `topCandidates` what else was likely at each of them.
pub(super) fn read_logprobs(result: &Value) -> Vec<Logprob> {
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let one = |value: &Value| {
        Some(Logprob {
            token: value.get("token")?.as_str()?.to_owned(),
            logprob: value
                .get("logProbability")
                .and_then(Value::as_number)
                .cloned()
                .unwrap_or_else(|| Number::from(0)),
            bytes: None,
            top: Vec::new(),
        })
    };
    let mut top = list(result, "topCandidates").into_iter();
    let mut chosen = Vec::new();
    for token in list(result, "chosenCandidates") {
        let likely = top.next().map(|step| list(&step, "candidates")).unwrap_or_default();
        if let Some(token) = one(&token) {
            chosen.push(Logprob { top: likely.iter().filter_map(one).collect(), ..token });
        }
    }
    chosen
}

pub(super) fn write_response(response: Response) -> Value {
    let candidates: Vec<Value> = response.choices.into_iter().map(write_candidate).collect();
    let mut body = json!({"candidates": candidates});
    if let Some(usage) = response.usage {
        body["usageMetadata"] = usage_value(&usage);
    }
    body["modelVersion"] = response.model.into();
    body["responseId"] = response.id.into();
    body
}

fn write_candidate(choice: Choice) -> Value {
    let mut parts: Vec<Value> = Vec::with_capacity(choice.parts.len());
    for part in choice.parts {
        match part.content {
            Content::Text(text) | Content::Refusal(text) => match parts.last_mut() {
                Some(last) if is_plain(last) => {
                    let joined = format!("{}{text}", last["text"].as_str().unwrap_or_default());
                    last["text"] = joined.into();
                }
                _ => parts.push(json!({"text": text})),
            },
            Content::Thinking { text, signature } => match (parts.last_mut(), signature) {
                (Some(last), Some(mark)) if text.is_empty() && is_plain(last) => {
                    last["thoughtSignature"] = mark.into();
                }
                (_, signature) => {
                    let mut part = json!({"text": text, "thought": true});
                    if let Some(signature) = signature {
                        part["thoughtSignature"] = signature.into();
                    }
                    parts.push(part);
                }
            },
            Content::ToolCall(call) => parts.push(call_part(&call)),
            _ => {}
        }
    }
    let reason = finish_reason(&choice.stop.unwrap_or(Stop::EndTurn));
    let mut content = json!({"role": "model"});
    if !parts.is_empty() {
        content["parts"] = parts.into();
    }
    let mut candidate = json!({"content": content, "finishReason": reason, "index": choice.index});
    if !choice.logprobs.is_empty() {
        candidate["logprobsResult"] = logprobs_value(&choice.logprobs);
    }
    candidate
}

fn is_plain(part: &Value) -> bool {
    part.as_object().is_some_and(|part| part.len() == 1 && part.contains_key("text"))
}

pub(super) fn call_part(call: &ToolCall) -> Value {
    let args = arguments_value(&call.arguments);
    let mut part = json!({"functionCall": {"id": call.id, "name": call.name, "args": args}});
    if let Some(signature) = &call.signature {
        part["thoughtSignature"] = signature.clone().into();
    }
    part
}

pub(super) fn logprobs_value(items: &[Logprob]) -> Value {
    let one = |item: &Logprob| json!({"token": item.token, "logProbability": item.logprob});
    let chosen: Vec<Value> = items.iter().map(one).collect();
    let top: Vec<Value> = items
        .iter()
        .map(|item| json!({"candidates": item.top.iter().map(one).collect::<Vec<Value>>()}))
        .collect();
    json!({"chosenCandidates": chosen, "topCandidates": top})
}

/// Usage in Google's way of counting: thoughts stand beside the candidates, what was cached inside the prompt.
pub(super) fn usage_value(usage: &Usage) -> Value {
    let mut report = json!({"promptTokenCount": usage.prompt_tokens()});
    let mut put = |key: &str, count: u64| {
        if count > 0 {
            report[key] = count.into();
        }
    };
    put("cachedContentTokenCount", usage.cache_read);
    put("candidatesTokenCount", usage.output.saturating_add(usage.audio_output));
    put("thoughtsTokenCount", usage.reasoning);
    for (key, spoken) in
        [("promptTokensDetails", usage.audio_input), ("candidatesTokensDetails", usage.audio_output)]
    {
        if spoken > 0 {
            report[key] = json!([{"modality": "AUDIO", "tokenCount": spoken}]);
        }
    }
    report["totalTokenCount"] = usage.total().into();
    report
}
