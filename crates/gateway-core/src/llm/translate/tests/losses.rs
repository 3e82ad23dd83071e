//! Dropped, rejected and malformed fields, each reported by its name in the caller's format.

use serde_json::{Value, json};

use super::super::{
    super::{ClientFormat, ProviderFormat, chat::TranslationError},
    RequestOptions, TranslatedRequest, translate_request,
};

const OPTIONS: RequestOptions<'static> = RequestOptions {
    model: "claude-sonnet-4-5",
    stream: false,
    supports_include_usage: true,
    use_responses_api: false,
};

fn translate(
    from: ClientFormat,
    to: ProviderFormat,
    fields: &Value,
) -> Result<TranslatedRequest, TranslationError> {
    let mut body = json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
    for (key, value) in fields.as_object().unwrap() {
        body[key] = value.clone();
    }
    translate_request(from, to, body.to_string().as_bytes(), &OPTIONS)
}

#[test]
fn optional_fields_are_dropped_and_reported() {
    for (fields, expected) in [
        (json!({"seed": 1}), "seed"),
        (json!({"presence_penalty": 0.5}), "presence_penalty"),
        (json!({"prompt_cache_key": "k"}), "prompt_cache_key"),
        (json!({"store": true}), "store"),
        (json!({"metadata": {"a": "b"}}), "metadata"),
        (json!({"service_tier": "flex"}), "service_tier"),
        (json!({"mirostat": 1}), "mirostat"),
        (json!({"messages": [{"role": "user", "content": "Hi", "mood": "good"}]}), "messages[].mood"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "x": 1}]}]}),
            "messages[].content[].x",
        ),
        (json!({"stop": [" "]}), "stop"),
    ] {
        let translated = translate(ClientFormat::OpenAiChat, ProviderFormat::Anthropic, &fields).unwrap();
        assert_eq!(translated.dropped, [expected], "{fields}");
    }
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}});
    let translated = translate(ClientFormat::Anthropic, ProviderFormat::Bedrock, &thinking).unwrap();
    assert_eq!(translated.dropped, ["thinking.display", "thinking"]);
}

#[test]
fn default_values_are_not_reported_as_dropped() {
    let fields = json!({
        "n": 1, "logprobs": false, "frequency_penalty": 0, "service_tier": "auto", "logit_bias": {},
        "temperature": null, "tools": [], "parallel_tool_calls": true, "response_format": {"type": "text"},
    });
    let translated = translate(ClientFormat::OpenAiChat, ProviderFormat::Anthropic, &fields).unwrap();
    assert_eq!(translated.dropped, Vec::<String>::new());
}

#[test]
fn losses_that_would_change_the_meaning_are_rejected() {
    let video = json!({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}});
    let audio = json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}});
    let custom = json!({"type": "custom", "custom": {"name": "c"}});
    for format in [ProviderFormat::Anthropic, ProviderFormat::Bedrock] {
        for (fields, expected) in [
            (json!({"n": 2}), "n"),
            (json!({"logprobs": true}), "logprobs"),
            (json!({"logit_bias": {"50256": -100}}), "logit_bias"),
            (json!({"functions": []}), "functions"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"web_search_options": {}}), "web_search_options"),
            (json!({"tools": [custom]}), "tools[]"),
            (json!({"messages": [{"role": "user", "content": [video]}]}), "messages[].content[]"),
            (json!({"messages": [{"role": "user", "content": [audio]}]}), "messages[].content[]"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}),
                "messages[].content[]",
            ),
        ] {
            let result = translate(ClientFormat::OpenAiChat, format, &fields);
            match result {
                Err(TranslationError::Unsupported { field, .. }) => {
                    assert_eq!(field, expected, "{format:?} {fields}");
                }
                other => panic!("{format:?} {fields}: {other:?}"),
            }
        }
    }
    let result = translate(ClientFormat::Anthropic, ProviderFormat::OpenAi, &json!({"mcp_servers": []}));
    assert!(matches!(result, Err(TranslationError::Unsupported { field, .. }) if field == "mcp_servers"));
}

#[test]
fn malformed_bodies_name_the_invalid_field() {
    for (body, expected) in [
        ("[]", ""),
        ("{", ""),
        ("{}", "messages"),
        (r#"{"messages": {}}"#, "messages"),
        (r#"{"messages": [1]}"#, "messages.0"),
        (r#"{"messages": [{"role": "robot", "content": ""}]}"#, "messages.0.role"),
        (r#"{"messages": [{"role": "user", "content": [{"type": "text"}]}]}"#, "messages.0.content.0.text"),
        (r#"{"messages": [{"role": "tool", "content": "x"}]}"#, "messages.0.tool_call_id"),
        (r#"{"messages": [], "temperature": "hot"}"#, "temperature"),
        (r#"{"messages": [], "max_tokens": -1}"#, "max_tokens"),
        (r#"{"messages": [], "tools": [{"type": "function", "function": {}}]}"#, "tools.0.function.name"),
        (r#"{"messages": [], "tool_choice": "maybe"}"#, "tool_choice"),
        (r#"{"messages": [], "response_format": {"type": "xml"}}"#, "response_format.type"),
    ] {
        match translate_request(
            ClientFormat::OpenAiChat,
            ProviderFormat::Anthropic,
            body.as_bytes(),
            &OPTIONS,
        ) {
            Err(TranslationError::Malformed { field, .. }) => assert_eq!(field, expected, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    for (body, expected) in [
        (r#"{"messages": [{"role": "user", "content": [{"text": "x"}]}]}"#, "messages.0.content.0.type"),
        (r#"{"messages": [], "system": 1}"#, "system"),
        (r#"{"messages": [], "tool_choice": {"type": "tool"}}"#, "tool_choice.name"),
        (r#"{"messages": [], "thinking": {}}"#, "thinking.type"),
    ] {
        match translate_request(ClientFormat::Anthropic, ProviderFormat::OpenAi, body.as_bytes(), &OPTIONS) {
            Err(TranslationError::Malformed { field, .. }) => assert_eq!(field, expected, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}
