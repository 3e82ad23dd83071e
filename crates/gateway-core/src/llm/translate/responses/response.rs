//! Complete (non-streaming) responses.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            ProviderFormat,
            chat::{ChatResponse, Choice, Content, Part, StopReason},
            usage::{self, Usage},
        },
        json::{str_field, take_array, take_object},
        openai_chat::{decode_logprob_list, encode_logprob_list},
    },
    decode_stop_reason, encode_status,
    items::{decode_call, decode_content, decode_reasoning, encode_item, item_id, item_spans},
};

type Object = Map<String, Value>;

pub(super) fn decode_response(mut body: Object) -> Option<ChatResponse> {
    let items = take_array(&mut body, "output").ok()??;
    let mut choice = Choice { stop: Some(decode_stop_reason(&body)), ..Choice::default() };
    for item in items {
        let Value::Object(item) = item else { return None };
        decode_output(item, &mut choice)?;
    }
    let report = take_object(&mut body, "usage").ok().flatten();
    Some(ChatResponse {
        id: str_field(&body, "id").to_owned(),
        model: str_field(&body, "model").to_owned(),
        created: body.get("created_at").and_then(unix_seconds),
        choices: vec![choice],
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::OpenAi, &report)),
    })
}

/// Decodes a Unix time. Some servers send fractions of a second.
pub(super) fn unix_seconds(value: &Value) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates, and no realistic time is out of range"
    )]
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))
}

fn decode_output(mut item: Object, choice: &mut Choice) -> Option<()> {
    match str_field(&item, "type") {
        "message" => {
            let content = item.shift_remove("content");
            for part in content.as_ref().and_then(Value::as_array).into_iter().flatten() {
                choice.logprobs.extend(part.get("logprobs").map(decode_logprob_list).unwrap_or_default());
            }
            let (parts, _) = decode_content(content, "content").ok()?;
            choice.parts.extend(parts.into_iter().map(|part| Part::new(part.content)));
        }
        "function_call" => choice.parts.push(Part::new(decode_call(item).ok()?.content)),
        "reasoning" => choice.parts.extend(decode_reasoning(item).ok()?.map(|part| Part::new(part.content))),
        _ => choice.parts.push(Part::new(Content::Other(item.into()))),
    }
    Some(())
}

pub(super) fn encode_response(response: ChatResponse) -> Value {
    let ChatResponse { id, model, created, choices, usage } = response;
    // The format has a single choice.
    let choice = choices.into_iter().next().unwrap_or_default();
    let mut logprobs = encode_logprob_list(&choice.logprobs);
    let mut output = Vec::new();
    for (at, span) in item_spans(&choice.parts).into_iter().enumerate() {
        let parts = &choice.parts[span];
        let id = parts.first().map(|part| item_id(&id, at, part)).unwrap_or_default();
        let has_text = parts.iter().any(|part| matches!(part.content, Content::Text(_)));
        // Log probabilities belong to the text and are sent with the first message that contains text.
        let item_logprobs = if has_text { std::mem::replace(&mut logprobs, json!([])) } else { json!([]) };
        output.push(encode_item(&id, parts, &item_logprobs));
    }
    let has_refusal = choice.parts.iter().any(|part| matches!(part.content, Content::Refusal(_)));
    let (status, incomplete_reason) = encode_status(&choice.stop.unwrap_or(StopReason::EndTurn), has_refusal);
    ResponseObject {
        id: &id,
        model: &model,
        created,
        status,
        incomplete_reason,
        output: &output,
        usage: usage.as_ref(),
    }
    .encode()
}

/// The response object, with every field that the SDKs require.
pub(super) struct ResponseObject<'a> {
    pub(super) id: &'a str,
    pub(super) model: &'a str,
    pub(super) created: Option<i64>,
    pub(super) status: &'a str,
    pub(super) incomplete_reason: Option<&'a str>,
    pub(super) output: &'a [Value],
    pub(super) usage: Option<&'a Usage>,
}

impl ResponseObject<'_> {
    pub(super) fn encode(&self) -> Value {
        let error = (self.status == "failed").then(
            || json!({"code": "server_error", "message": "the provider failed to complete the response"}),
        );
        json!({
            "id": self.id, "object": "response", "created_at": self.created.unwrap_or(0), "status": self.status,
            "error": error,
            "incomplete_details": self.incomplete_reason.map(|reason| json!({"reason": reason})),
            "instructions": null, "metadata": {}, "model": self.model, "output": self.output,
            "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto", "tools": [], "top_p": null,
            "usage": self.usage.map(encode_usage),
        })
    }
}

pub(super) fn encode_usage(usage: &Usage) -> Value {
    let mut input = json!({"cached_tokens": usage.cache_read});
    let cache_write = usage.cache_write.saturating_add(usage.cache_write_1h);
    if cache_write > 0 {
        input["cache_write_tokens"] = cache_write.into();
    }
    if usage.audio_input > 0 {
        input["audio_tokens"] = usage.audio_input.into();
    }
    let mut output = json!({"reasoning_tokens": usage.reasoning});
    if usage.audio_output > 0 {
        output["audio_tokens"] = usage.audio_output.into();
    }
    json!({
        "input_tokens": usage.prompt_tokens(), "input_tokens_details": input,
        "output_tokens": usage.completion_tokens(), "output_tokens_details": output,
        "total_tokens": usage.total(),
    })
}
