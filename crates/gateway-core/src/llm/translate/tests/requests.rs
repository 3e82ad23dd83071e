//! Rules for requests that the golden files do not cover: differences between models and requirements of providers.

use serde_json::{Value, json};

use super::super::{
    super::{ClientFormat, ProviderFormat, chat::TranslationError},
    RequestOptions, TranslatedRequest, translate_request,
};

fn options(model: &str) -> RequestOptions<'_> {
    RequestOptions { model, stream: false, supports_include_usage: true, use_responses_api: false }
}

fn chat_to(
    format: ProviderFormat,
    model: &str,
    mut body: Value,
) -> Result<(Value, Vec<String>), TranslationError> {
    if body.get("messages").is_none() {
        body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    }
    let TranslatedRequest { body, dropped, .. } =
        translate_request(ClientFormat::OpenAiChat, format, body.to_string().as_bytes(), &options(model))?;
    Ok((serde_json::from_slice(&body).unwrap(), dropped))
}

fn to_claude(model: &str, body: Value) -> (Value, Vec<String>) {
    chat_to(ProviderFormat::Anthropic, model, body).unwrap()
}

#[test]
fn each_generation_of_claude_gets_its_own_thinking_parameters() {
    let params = json!({"reasoning_effort": "high", "max_tokens": 20_000});
    let (body, _) = to_claude("claude-sonnet-4-5", params.clone());
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 16_384}));
    let (body, _) = to_claude("claude-opus-4-7", params.clone());
    assert_eq!(body["thinking"], json!({"type": "adaptive"}));
    assert_eq!(body["output_config"], json!({"effort": "high"}));
    let (body, dropped) = to_claude("claude-3-5-haiku-latest", params);
    assert_eq!((body.get("thinking"), &*dropped), (None, &["reasoning_effort".to_owned()][..]));
}

#[test]
fn the_thinking_budget_stays_below_max_tokens_or_is_dropped() {
    let (body, _) = to_claude("claude-sonnet-4-5", json!({"reasoning_effort": "high", "max_tokens": 4_000}));
    assert_eq!(body["thinking"]["budget_tokens"], 3_999);
    let (body, dropped) =
        to_claude("claude-sonnet-4-5", json!({"reasoning_effort": "high", "max_tokens": 1_000}));
    assert_eq!((body.get("thinking"), &*dropped), (None, &["reasoning_effort".to_owned()][..]));
}

#[test]
fn thinking_is_dropped_where_claude_would_reject_it() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let forced = json!({"reasoning_effort": "low", "tools": tools, "tool_choice": "required"});
    assert_eq!(to_claude("claude-sonnet-4-5", forced).1, ["reasoning_effort"]);
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let unsigned = json!({"reasoning_effort": "low", "tools": tools, "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]});
    assert_eq!(to_claude("claude-sonnet-4-5", unsigned).1, ["reasoning_effort"]);
}

#[test]
fn sampling_parameters_follow_the_generation_of_claude() {
    let params = || json!({"temperature": 1.5, "top_p": 0.9, "top_k": 5});
    let (body, dropped) = to_claude("claude-3-5-sonnet-20241022", params());
    assert_eq!((&body["temperature"], &body["top_p"], &body["top_k"]), (&json!(1), &json!(0.9), &json!(5)));
    assert_eq!(dropped, ["temperature"]);
    let (body, dropped) = to_claude("claude-sonnet-4-5", params());
    assert_eq!((body.get("top_p"), &body["top_k"]), (None, &json!(5)));
    assert_eq!(dropped, ["top_p", "temperature"]);
    let (body, dropped) = to_claude("claude-opus-4-7", params());
    assert_eq!((body.get("temperature"), body.get("top_k")), (None, None));
    assert_eq!(dropped, ["temperature", "top_k", "top_p"]);
}

#[test]
fn the_default_max_tokens_depends_on_the_model() {
    for (model, expected) in [
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-5-haiku-latest", 8_192),
        ("claude-sonnet-4-5", 32_000),
        ("claude-opus-5", 32_000),
    ] {
        assert_eq!(to_claude(model, json!({})).0["max_tokens"], expected, "{model}");
    }
}

#[test]
fn turns_alternate_and_tool_results_come_first() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": ""}});
    let (body, _) = to_claude(
        "claude-sonnet-4-5",
        json!({"messages": [
            {"role": "system", "content": "A"},
            {"role": "user", "content": "One"},
            {"role": "user", "content": "Two"},
            {"role": "assistant", "content": "", "tool_calls": [call("functions.f:0"), call("b")]},
            {"role": "user", "content": "Wait"},
            {"role": "tool", "tool_call_id": "functions.f:0", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "system", "content": "B"},
        ]}),
    );
    assert_eq!(body["system"], json!([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]));
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "functions_f_0", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "functions_f_0", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                {"type": "text", "text": "Wait"},
            ]},
        ])
    );
}

#[test]
fn a_choice_among_some_tools_removes_the_others() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let allowed = json!({"mode": "required", "tools": [tool("b"), tool("c")]});
    let (body, _) = to_claude(
        "claude-sonnet-4-5",
        json!({
            "tools": [tool("a"), tool("b"), tool("c")],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed},
        }),
    );
    let names: Vec<&str> =
        body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!((&*names, &body["tool_choice"]), (&["b", "c"][..], &json!({"type": "any"})));
}

#[test]
fn converse_is_sent_the_tools_that_a_conversation_has_used() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]);
    let (body, _) =
        chat_to(ProviderFormat::Bedrock, "amazon.nova-pro-v1:0", json!({"messages": messages})).unwrap();
    assert_eq!(body["toolConfig"]["tools"][0]["toolSpec"]["name"], "f");
    let none = json!({"messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "none"});
    let error = chat_to(ProviderFormat::Bedrock, "amazon.nova-pro-v1:0", none).unwrap_err();
    assert!(matches!(error, TranslationError::Unsupported { field, .. } if field == "tool_choice"));
}

#[test]
fn the_token_limit_has_the_name_that_the_openai_model_accepts() {
    let body = json!({"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    for (model, field) in [
        ("gpt-4o", "max_tokens"),
        ("o3-mini", "max_completion_tokens"),
        ("gpt-5-mini", "max_completion_tokens"),
        ("openai/gpt-5", "max_completion_tokens"),
        ("olmo-2", "max_tokens"),
    ] {
        let translated = translate_request(
            ClientFormat::Anthropic,
            ProviderFormat::OpenAi,
            body.to_string().as_bytes(),
            &options(model),
        );
        let body: Value = serde_json::from_slice(&translated.unwrap().body).unwrap();
        assert_eq!(body[field], 9, "{model}");
    }
}

#[test]
fn openais_reasoning_models_get_no_sampling_parameters() {
    let body = json!({"model": "x", "max_tokens": 9, "temperature": 0.3, "top_p": 1, "metadata": {"user_id": "u".repeat(65)},
        "messages": [{"role": "user", "content": "Hi"}]});
    let translated = translate_request(
        ClientFormat::Anthropic,
        ProviderFormat::OpenAi,
        body.to_string().as_bytes(),
        &options("gpt-5"),
    );
    let translated = translated.unwrap();
    assert_eq!(translated.dropped, ["temperature", "metadata.user_id"]);
    let body: Value = serde_json::from_slice(&translated.body).unwrap();
    assert_eq!((body.get("temperature"), body.get("top_p"), body.get("user")), (None, None, None));
}

#[test]
fn strict_mode_is_used_for_schemas_that_allow_it() {
    let strict_of = |schema: Value| {
        let body = json!({"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
            "output_config": {"format": {"type": "json_schema", "schema": schema}}});
        let translated = translate_request(
            ClientFormat::Anthropic,
            ProviderFormat::OpenAi,
            body.to_string().as_bytes(),
            &options("gpt-4o"),
        );
        let body: Value = serde_json::from_slice(&translated.unwrap().body).unwrap();
        body["response_format"]["json_schema"].get("strict").cloned()
    };
    let inner = |required: Value| {
        json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": required, "additionalProperties": false})
    };
    assert_eq!(strict_of(inner(json!(["a"]))), Some(json!(true)));
    assert_eq!(strict_of(inner(json!([]))), None);
    let outer = json!({"type": "object", "properties": {"in": inner(json!([]))}, "required": ["in"],
        "additionalProperties": false});
    assert_eq!(strict_of(outer), None);
}

#[test]
fn models_without_chat_completions_use_the_responses_api() {
    use super::super::{ClientFormat, should_use_responses_api};
    for (model, expected) in [
        ("gpt-5-pro", true),
        ("gpt-5.1-codex-mini", true),
        ("openai/o3-pro-2025-06-10", true),
        ("o4-mini-deep-research", true),
        ("codex-mini-latest", true),
        ("gpt-5", false),
        ("o3", false),
        ("gpt-4o", false),
        ("gemini-2.5-pro", false),
        ("open-pro", false),
        ("", false),
    ] {
        assert_eq!(should_use_responses_api(ClientFormat::Anthropic, model), expected, "{model}");
        assert!(should_use_responses_api(ClientFormat::OpenAiResponses, model));
    }
}
