//! A whole response, read from a provider or written for a caller.

use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            Shape,
            chat::{Choice, Content, Part, Response, Stop},
            usage::{self, Usage},
        },
        json::{list, object, text_at},
        openai_chat::{logprobs_list, read_logprob_list},
    },
    items::{item, item_id, read_call, read_content, read_reasoning, spans},
    status_of, stop_of,
};

type Object = Map<String, Value>;

pub(super) fn read_response(mut body: Object) -> Option<Response> {
    let items = list(&mut body, "output").ok()??;
    let mut choice = Choice { stop: Some(stop_of(&body)), ..Choice::default() };
    for item in items {
        let Value::Object(item) = item else { return None };
        read_output(item, &mut choice)?;
    }
    let report = object(&mut body, "usage").ok().flatten();
    Some(Response {
        id: text_at(&body, "id").to_owned(),
        model: text_at(&body, "model").to_owned(),
        created: body.get("created_at").and_then(seconds),
        choices: vec![choice],
        usage: report.and_then(|report| usage::of_report(Shape::OpenAi, &report)),
    })
}

/// Some servers write the time as a fraction.
pub(super) fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and no clock gets there")]
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))
}

fn read_output(mut item: Object, choice: &mut Choice) -> Option<()> {
    match text_at(&item, "type") {
        "message" => {
            let content = item.shift_remove("content");
            for part in content.as_ref().and_then(Value::as_array).into_iter().flatten() {
                choice.logprobs.extend(part.get("logprobs").map(read_logprob_list).unwrap_or_default());
            }
            let (parts, _) = read_content(content, "content").ok()?;
            choice.parts.extend(parts.into_iter().map(|part| Part::new(part.content)));
        }
        "function_call" => choice.parts.push(Part::new(read_call(item).ok()?.content)),
        "reasoning" => choice.parts.extend(read_reasoning(item).ok()?.map(|part| Part::new(part.content))),
        _ => choice.parts.push(Part::new(Content::Other(item.into()))),
    }
    Some(())
}

pub(super) fn write_response(response: Response) -> Value {
    let Response { id, model, created, choices, usage } = response;
    // One answer is all that a caller of this format can ask for.
    let choice = choices.into_iter().next().unwrap_or_default();
    let mut logprobs = logprobs_list(&choice.logprobs);
    let mut output = Vec::new();
    for (at, span) in spans(&choice.parts).into_iter().enumerate() {
        let parts = &choice.parts[span];
        let id = parts.first().map(|part| item_id(&id, at, part)).unwrap_or_default();
        let said = parts.iter().any(|part| matches!(part.content, Content::Text(_)));
        // They tell of the text, of which the first message holds the beginning.
        let given = if said { std::mem::replace(&mut logprobs, json!([])) } else { json!([]) };
        output.push(item(&id, parts, &given));
    }
    let refusal = choice.parts.iter().any(|part| matches!(part.content, Content::Refusal(_)));
    let (status, reason) = status_of(&choice.stop.unwrap_or(Stop::EndTurn), refusal);
    whole(&id, &model, created, status, reason, &output.into(), usage.as_ref())
}

/// The response object, with every field that the SDKs insist on.
pub(super) fn whole(
    id: &str,
    model: &str,
    created: Option<i64>,
    status: &str,
    incomplete: Option<&str>,
    output: &Value,
    usage: Option<&Usage>,
) -> Value {
    let error =
        (status == "failed").then(|| json!({"code": "server_error", "message": "the provider failed"}));
    json!({
        "id": id, "object": "response", "created_at": created.unwrap_or(0), "status": status,
        "error": error,
        "incomplete_details": incomplete.map(|reason| json!({"reason": reason})),
        "instructions": null, "metadata": {}, "model": model, "output": output,
        "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto", "tools": [], "top_p": null,
        "usage": usage.map(usage_value),
    })
}

pub(super) fn usage_value(usage: &Usage) -> Value {
    let mut input = json!({"cached_tokens": usage.cache_read});
    let written = usage.cache_write.saturating_add(usage.cache_write_1h);
    if written > 0 {
        input["cache_write_tokens"] = written.into();
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
