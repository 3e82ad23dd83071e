//! Complete (non-streaming) responses.

use serde_json::{Map, Number, Value, json};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{
                ChatResponse, Choice, Content, Logprob, MediaSource, Part, StopReason, ToolCall,
                parse_arguments,
            },
            usage::{self, Usage},
        },
        json::{str_field, take_array, take_object, take_string, take_value},
        media::media_kind,
    },
    decode_stop_reason, encode_finish_reason, is_prompt_blocked,
};
use crate::llm::chat::Media;

type Object = Map<String, Value>;

pub(super) fn decode_response(mut body: Object) -> Option<ChatResponse> {
    let candidates = take_array(&mut body, "candidates").ok()?;
    let mut choices = Vec::new();
    for (at, candidate) in candidates.unwrap_or_default().into_iter().enumerate() {
        let Value::Object(candidate) = candidate else { return None };
        choices.push(decode_candidate(at, candidate)?);
    }
    if choices.is_empty() {
        if !is_prompt_blocked(&body) {
            return None;
        }
        choices.push(Choice { stop: Some(StopReason::Filtered), ..Choice::default() });
    }
    let report = take_object(&mut body, "usageMetadata").ok().flatten();
    Some(ChatResponse {
        id: str_field(&body, "responseId").to_owned(),
        model: str_field(&body, "modelVersion").to_owned(),
        created: None,
        choices,
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::Gemini, &report)),
    })
}

fn decode_candidate(at: usize, mut candidate: Object) -> Option<Choice> {
    let index = candidate.get("index").and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok());
    let mut choice = Choice {
        index: index.or_else(|| u32::try_from(at).ok())?,
        stop: candidate.get("finishReason").and_then(Value::as_str).map(decode_stop_reason),
        logprobs: candidate.get("logprobsResult").map(decode_logprobs).unwrap_or_default(),
        parts: Vec::new(),
    };
    let mut content = take_object(&mut candidate, "content").ok()?.unwrap_or_default();
    for part in take_array(&mut content, "parts").ok()?.unwrap_or_default() {
        let Value::Object(part) = part else { return None };
        choice.parts.extend(decode_part(part)?);
    }
    Some(choice)
}

/// Decodes one part of a response. The signature of a text becomes an empty thinking part after it.
pub(super) fn decode_part(mut part: Object) -> Option<Vec<Part>> {
    let thought = part.get("thought") == Some(&Value::Bool(true));
    let signature = take_string(&mut part, "thoughtSignature").ok()?;
    let signature_only = |signature: Option<String>| {
        signature.map(|signature| Content::Thinking { text: String::new(), signature: Some(signature) })
    };
    let contents = if let Some(text) = take_string(&mut part, "text").ok()? {
        if thought {
            vec![Content::Thinking { text, signature }]
        } else {
            [
                Some(Content::Text(text))
                    .filter(|content| !matches!(content, Content::Text(text) if text.is_empty())),
                signature_only(signature),
            ]
            .into_iter()
            .flatten()
            .collect()
        }
    } else if let Some(mut call) = take_object(&mut part, "functionCall").ok()? {
        let arguments =
            take_value(&mut call, "args").map_or_else(|| "{}".to_owned(), |args| args.to_string());
        vec![Content::ToolCall(ToolCall {
            id: take_string(&mut call, "id").ok()?.unwrap_or_default(),
            name: take_string(&mut call, "name").ok()?.unwrap_or_default(),
            arguments,
            signature,
        })]
    } else if let Some(mut data) = take_object(&mut part, "inlineData").ok()? {
        let mime = take_string(&mut data, "mimeType").ok()?.unwrap_or_default();
        let kind = media_kind(&mime);
        let source =
            MediaSource::Base64 { mime, data: take_string(&mut data, "data").ok()?.unwrap_or_default() };
        let media = Content::Media(Media { kind, source, name: None, detail: None });
        [Some(media), signature_only(signature)].into_iter().flatten().collect()
    } else {
        vec![Content::Other(part.into())]
    };
    Some(contents.into_iter().map(Part::new).collect())
}

/// `chosenCandidates` are the tokens of the response. `topCandidates` lists the most likely tokens at each position.
pub(super) fn decode_logprobs(result: &Value) -> Vec<Logprob> {
    let array_at =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let decode = |value: &Value| {
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
    let mut top = array_at(result, "topCandidates").into_iter();
    let mut chosen = Vec::new();
    for token in array_at(result, "chosenCandidates") {
        let likely = top.next().map(|step| array_at(&step, "candidates")).unwrap_or_default();
        if let Some(token) = decode(&token) {
            chosen.push(Logprob { top: likely.iter().filter_map(decode).collect(), ..token });
        }
    }
    chosen
}

pub(super) fn encode_response(response: ChatResponse) -> Value {
    let candidates: Vec<Value> = response.choices.into_iter().map(encode_candidate).collect();
    let mut body = json!({"candidates": candidates});
    if let Some(usage) = response.usage {
        body["usageMetadata"] = encode_usage(&usage);
    }
    body["modelVersion"] = response.model.into();
    body["responseId"] = response.id.into();
    body
}

fn encode_candidate(choice: Choice) -> Value {
    let mut parts: Vec<Value> = Vec::with_capacity(choice.parts.len());
    for part in choice.parts {
        match part.content {
            Content::Text(text) | Content::Refusal(text) => match parts.last_mut() {
                Some(last) if is_unsigned_text(last) => {
                    let joined = format!("{}{text}", last["text"].as_str().unwrap_or_default());
                    last["text"] = joined.into();
                }
                _ => parts.push(json!({"text": text})),
            },
            Content::Thinking { text, signature } => match (parts.last_mut(), signature) {
                (Some(last), Some(signature)) if text.is_empty() && is_unsigned_text(last) => {
                    last["thoughtSignature"] = signature.into();
                }
                (_, signature) => {
                    let mut part = json!({"text": text, "thought": true});
                    if let Some(signature) = signature {
                        part["thoughtSignature"] = signature.into();
                    }
                    parts.push(part);
                }
            },
            Content::ToolCall(call) => parts.push(encode_call(&call)),
            _ => {}
        }
    }
    let reason = encode_finish_reason(&choice.stop.unwrap_or(StopReason::EndTurn));
    let mut content = json!({"role": "model"});
    if !parts.is_empty() {
        content["parts"] = parts.into();
    }
    let mut candidate = json!({"content": content, "finishReason": reason, "index": choice.index});
    if !choice.logprobs.is_empty() {
        candidate["logprobsResult"] = encode_logprobs(&choice.logprobs);
    }
    candidate
}

fn is_unsigned_text(part: &Value) -> bool {
    part.as_object().is_some_and(|part| part.len() == 1 && part.contains_key("text"))
}

pub(super) fn encode_call(call: &ToolCall) -> Value {
    let args = parse_arguments(&call.arguments);
    let mut part = json!({"functionCall": {"id": call.id, "name": call.name, "args": args}});
    if let Some(signature) = &call.signature {
        part["thoughtSignature"] = signature.clone().into();
    }
    part
}

pub(super) fn encode_logprobs(items: &[Logprob]) -> Value {
    let encode = |item: &Logprob| json!({"token": item.token, "logProbability": item.logprob});
    let chosen: Vec<Value> = items.iter().map(encode).collect();
    let top: Vec<Value> = items
        .iter()
        .map(|item| json!({"candidates": item.top.iter().map(encode).collect::<Vec<Value>>()}))
        .collect();
    json!({"chosenCandidates": chosen, "topCandidates": top})
}

/// Encodes usage as Google counts it: thinking is not part of the candidates' count, but cached tokens are part of the
/// prompt's.
pub(super) fn encode_usage(usage: &Usage) -> Value {
    let mut report = json!({"promptTokenCount": usage.prompt_tokens()});
    let mut put = |key: &str, count: u64| {
        if count > 0 {
            report[key] = count.into();
        }
    };
    put("cachedContentTokenCount", usage.cache_read);
    put("candidatesTokenCount", usage.output.saturating_add(usage.audio_output));
    put("thoughtsTokenCount", usage.reasoning);
    for (key, audio_tokens) in
        [("promptTokensDetails", usage.audio_input), ("candidatesTokensDetails", usage.audio_output)]
    {
        if audio_tokens > 0 {
            report[key] = json!([{"modality": "AUDIO", "tokenCount": audio_tokens}]);
        }
    }
    report["totalTokenCount"] = usage.total().into();
    report
}
