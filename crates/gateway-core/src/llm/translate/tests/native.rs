//! Rules of the Responses API, Gemini and Cohere that the golden files do not cover.

use serde_json::{Value, json};

use super::{
    super::{
        super::{ClientFormat, ProviderFormat, chat::TranslationError},
        RequestOptions, StreamTranslator, TranslatedRequest, translate_request, translate_response,
    },
    support::{ProviderApi, translate_stream},
};

const CHAT: ProviderApi = ProviderApi { provider: ProviderFormat::OpenAi, use_responses_api: false };

fn translate(
    from: ClientFormat,
    to: ProviderFormat,
    model: &str,
    body: &Value,
) -> Result<(Value, Vec<String>), TranslationError> {
    let options =
        RequestOptions { model, stream: false, supports_include_usage: true, use_responses_api: false };
    let TranslatedRequest { body, dropped, .. } =
        translate_request(from, to, body.to_string().as_bytes(), &options)?;
    Ok((serde_json::from_slice(&body).unwrap(), dropped))
}

fn from_responses(to: ProviderFormat, mut body: Value) -> Result<(Value, Vec<String>), TranslationError> {
    if body.get("input").is_none() {
        body["input"] = "Hi".into();
    }
    translate(ClientFormat::OpenAiResponses, to, "m", &body)
}

fn from_gemini(to: ProviderFormat, contents: &Value) -> Result<(Value, Vec<String>), TranslationError> {
    translate(ClientFormat::Gemini, to, "m", &json!({"contents": contents}))
}

fn from_chat(to: ProviderFormat, model: &str, mut body: Value) -> (Value, Vec<String>) {
    if body.get("messages").is_none() {
        body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    }
    translate(ClientFormat::OpenAiChat, to, model, &body).unwrap()
}

fn unsupported_field(result: Result<(Value, Vec<String>), TranslationError>) -> String {
    match result {
        Err(TranslationError::Unsupported { field, .. }) => field,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn references_to_state_stored_by_openai_are_rejected_elsewhere() {
    for (field, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!({"id": "conv_1"})),
        ("prompt", json!({"id": "pmpt_1"})),
        ("background", json!(true)),
    ] {
        for format in [ProviderFormat::Anthropic, ProviderFormat::OpenAi, ProviderFormat::Gemini] {
            assert_eq!(unsupported_field(from_responses(format, json!({field: value}))), field);
        }
    }
    let (_, dropped) = from_responses(
        ProviderFormat::Anthropic,
        json!({"previous_response_id": null, "background": false, "truncation": "disabled", "conversation": null}),
    )
    .unwrap();
    assert_eq!(dropped, Vec::<String>::new());
}

#[test]
fn items_and_tools_of_openai_only_are_rejected_elsewhere() {
    let reference = json!({"input": [{"type": "item_reference", "id": "msg_1"}]});
    assert_eq!(unsupported_field(from_responses(ProviderFormat::Anthropic, reference)), "input[].content[]");
    let search = json!({"tools": [{"type": "web_search"}]});
    assert_eq!(unsupported_field(from_responses(ProviderFormat::Gemini, search)), "tools[]");
}

#[test]
fn malformed_items_name_the_invalid_field() {
    for (input, path) in [
        (json!([{"role": "robot", "content": "x"}]), "input.0.role"),
        (
            json!([{"role": "user", "content": "x"}, {"type": "function_call", "name": "f"}]),
            "input.1.call_id",
        ),
        (json!([{"role": "user", "content": [{"type": "input_text"}]}]), "input.0.content.0.text"),
        (json!(7), "input"),
    ] {
        match from_responses(ProviderFormat::Anthropic, json!({"input": input})) {
            Err(TranslationError::Malformed { field, .. }) => assert_eq!(field, path),
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[test]
fn redacted_thinking_of_claude_is_restored_through_the_responses_api() {
    let response = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn",
        "content": [{"type": "redacted_thinking", "data": "Emwc"}, {"type": "text", "text": "391"}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    let api = ProviderApi { provider: ProviderFormat::Anthropic, use_responses_api: false };
    let translated = translate_response(
        api.provider,
        ClientFormat::OpenAiResponses,
        response.to_string().as_bytes(),
        &api.response_options(),
    );
    let translated: Value = serde_json::from_slice(&translated.unwrap()).unwrap();
    let mut input = translated["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "And 18 * 23?"}));
    let (claude, _) = from_responses(ProviderFormat::Anthropic, json!({"input": input})).unwrap();
    assert_eq!(claude["messages"][0]["content"][0], json!({"type": "redacted_thinking", "data": "Emwc"}));
    // Other providers cannot use it.
    let (gemini, dropped) = from_responses(ProviderFormat::Gemini, json!({"input": input})).unwrap();
    assert_eq!(gemini["contents"][0]["parts"], json!([{"text": "391"}]));
    assert_eq!(dropped, ["input[].encrypted_content"]);
}

#[test]
fn arguments_of_parallel_calls_are_not_mixed() {
    let call = |index: u32, id: Option<&str>, arguments: &str| {
        let function = json!({"name": id.map(|_| "f"), "arguments": arguments});
        let calls = json!([{"index": index, "id": id, "type": "function", "function": function}]);
        json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": null}]})
    };
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let chunks = [
        call(0, Some("a"), "{\"x\""),
        call(1, Some("b"), "{\"y\""),
        call(0, None, ":1}"),
        call(1, None, ":2}"),
        end,
    ];
    let stream: Vec<u8> = chunks.iter().flat_map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect();
    for client in [ClientFormat::OpenAiResponses, ClientFormat::Gemini, ClientFormat::OpenAiChat] {
        let out = translate_stream(CHAT, client, &stream, &[11]);
        let body = crate::llm::aggregate::aggregate_stream(client.into(), crate::llm::BodyFraming::Sse, &out)
            .unwrap();
        let text = String::from_utf8(body).unwrap().replace('\\', "");
        assert!(text.contains(r#"{"x":1}"#) && text.contains(r#"{"y":2}"#), "{client:?}: {text}");
    }
}

#[test]
fn response_events_are_numbered_and_every_item_is_closed() {
    let api = ProviderApi { provider: ProviderFormat::Anthropic, use_responses_api: false };
    let stream = super::support::stream_bytes(api, "parallel_tools");
    let out = translate_stream(api, ClientFormat::OpenAiResponses, &stream, &[usize::MAX]);
    let text = String::from_utf8(out).unwrap();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| Some(serde_json::from_str(line.strip_prefix("data: ")?).unwrap()))
        .collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(count("response.output_item.added"), count("response.output_item.done"));
    assert_eq!(count("response.content_part.added"), count("response.content_part.done"));
    let last = events.last().unwrap();
    assert_eq!(last["response"]["output"].as_array().unwrap().len(), count("response.output_item.done"));
}

#[test]
fn an_endless_response_is_ended_with_an_error() {
    let text = "a".repeat(1 << 20);
    let chunk = json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]});
    let chunk = format!("data: {chunk}\n\n").into_bytes();
    let mut translator = StreamTranslator::new(
        ProviderFormat::OpenAi,
        ClientFormat::OpenAiResponses,
        &CHAT.response_options(),
    );
    let mut out = Vec::new();
    for _ in 0..64 {
        out.clear();
        translator.feed(&chunk, &mut out);
        assert!(!translator.is_finished());
    }
    out.clear();
    translator.feed(&chunk, &mut out);
    assert!(translator.is_finished());
    assert!(String::from_utf8(out).unwrap().contains("response.failed"));
}

#[test]
fn gemini_results_without_ids_are_matched_by_name_and_order() {
    let call = |city: &str| json!({"functionCall": {"name": "weather", "args": {"city": city}}});
    let answer =
        |degrees: u32| json!({"functionResponse": {"name": "weather", "response": {"degrees": degrees}}});
    let contents = json!([
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {"role": "model", "parts": [call("Paris"), call("Rome")]},
        {"role": "user", "parts": [answer(18), answer(24)]},
    ]);
    let (body, _) = from_gemini(ProviderFormat::OpenAi, &contents).unwrap();
    let calls = &body["messages"][1]["tool_calls"];
    assert_eq!((&calls[0]["id"], &calls[1]["id"]), (&json!("call_0"), &json!("call_1")));
    assert_eq!(
        body["messages"][2],
        json!({"role": "tool", "tool_call_id": "call_0", "content": "{\"degrees\":18}"})
    );
    assert_eq!(body["messages"][3]["tool_call_id"], "call_1");
}

#[test]
fn gemini_requests_in_snake_case_are_accepted() {
    let body = json!({
        "system_instruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"parts": [{"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]}],
        "generation_config": {"max_output_tokens": 5, "stop_sequences": ["x"], "response_mime_type": "application/json"},
        "tools": [{"function_declarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {"snake_name": {"type": "STRING"}}}}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY"}},
    });
    let (chat, dropped) = translate(ClientFormat::Gemini, ProviderFormat::OpenAi, "m", &body).unwrap();
    assert_eq!(chat["messages"][0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(chat["messages"][1]["content"][0]["image_url"]["url"], "data:image/png;base64,AAAA");
    assert_eq!((&chat["max_tokens"], &chat["stop"]), (&json!(5), &json!(["x"])));
    assert_eq!(chat["response_format"], json!({"type": "json_object"}));
    assert_eq!(
        chat["tools"][0]["function"]["parameters"],
        json!({"type": "object", "properties": {"snake_name": {"type": "string"}}})
    );
    assert_eq!(chat["tool_choice"], "required");
    assert_eq!(dropped, Vec::<String>::new());
}

#[test]
fn files_in_googles_storage_are_rejected_elsewhere() {
    for uri in ["gs://bucket/a.pdf", "https://generativelanguage.googleapis.com/v1beta/files/abc"] {
        let part = json!({"fileData": {"mimeType": "application/pdf", "fileUri": uri}});
        let contents = json!([{"role": "user", "parts": [part]}]);
        assert_eq!(
            unsupported_field(from_gemini(ProviderFormat::Anthropic, &contents)),
            "contents[].parts[]"
        );
        let (unchanged, _) = from_gemini(ProviderFormat::Gemini, &contents).unwrap();
        assert_eq!(unchanged["contents"], contents);
    }
}

#[test]
fn audio_and_image_output_is_rejected_elsewhere() {
    for kinds in [json!(["AUDIO"]), json!(["TEXT", "IMAGE"])] {
        let body = json!({"contents": [], "generationConfig": {"responseModalities": kinds}});
        let result = translate(ClientFormat::Gemini, ProviderFormat::OpenAi, "m", &body);
        assert_eq!(unsupported_field(result), "generationConfig.responseModalities");
    }
    let body = json!({"contents": [], "generationConfig": {"responseModalities": ["TEXT"]}});
    assert_eq!(
        translate(ClientFormat::Gemini, ProviderFormat::OpenAi, "m", &body).unwrap().1,
        Vec::<String>::new()
    );
}

#[test]
fn each_generation_of_gemini_gets_its_own_thinking_parameters() {
    let thinking = |model: &str, effort: &str| {
        let (body, dropped) = from_chat(ProviderFormat::Gemini, model, json!({"reasoning_effort": effort}));
        (body["generationConfig"]["thinkingConfig"].clone(), dropped)
    };
    let with_thoughts = |key: &str, value: Value| json!({key: value, "includeThoughts": true});
    assert_eq!(thinking("gemini-2.5-flash", "high").0, with_thoughts("thinkingBudget", json!(16_384)));
    assert_eq!(thinking("gemini-2.5-flash", "xhigh").0, with_thoughts("thinkingBudget", json!(24_576)));
    assert_eq!(thinking("gemini-2.5-pro", "xhigh").0, with_thoughts("thinkingBudget", json!(32_768)));
    assert_eq!(thinking("gemini-2.5-flash", "none").0, json!({"thinkingBudget": 0}));
    assert_eq!(thinking("gemini-2.5-pro", "none").1, ["reasoning_effort"]);
    assert_eq!(
        thinking("gemini-3-flash-preview", "minimal").0,
        with_thoughts("thinkingLevel", json!("minimal"))
    );
    assert_eq!(thinking("gemini-3-pro-preview", "minimal").0, with_thoughts("thinkingLevel", json!("low")));
    assert_eq!(thinking("gemini-3-pro-preview", "xhigh").0, with_thoughts("thinkingLevel", json!("high")));
}

#[test]
fn object_results_are_sent_to_gemini_as_objects() {
    let result = |content: &str| {
        let messages = json!([
            {"role": "user", "content": "?"},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": content},
        ]);
        let (body, _) = from_chat(ProviderFormat::Gemini, "gemini-2.5-flash", json!({"messages": messages}));
        body["contents"][2]["parts"][0]["functionResponse"].clone()
    };
    assert_eq!(result(r#"{"a": 1}"#), json!({"id": "c", "name": "f", "response": {"a": 1}}));
    assert_eq!(result("[1]"), json!({"id": "c", "name": "f", "response": {"output": "[1]"}}));
    assert_eq!(result("sunny"), json!({"id": "c", "name": "f", "response": {"output": "sunny"}}));
}

#[test]
fn cohere_gets_thinking_only_for_models_that_support_it() {
    let request = json!({"reasoning_effort": "low"});
    let (body, dropped) = from_chat(ProviderFormat::Cohere, "command-a-reasoning-08-2025", request.clone());
    assert_eq!(body["thinking"], json!({"type": "enabled", "token_budget": 2_048}));
    assert_eq!(dropped, Vec::<String>::new());
    let (body, dropped) = from_chat(ProviderFormat::Cohere, "command-r", request);
    assert_eq!((body.get("thinking"), &*dropped), (None, &["reasoning_effort".to_owned()][..]));
}

#[test]
fn text_documents_become_coheres_documents() {
    let source = json!({"type": "text", "media_type": "text/plain", "data": "Penguins are tall."});
    let document = json!({"type": "document", "source": source, "title": "Birds"});
    let body = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": [document, {"type": "text", "text": "How tall?"}]},
    ]});
    let (body, _) =
        translate(ClientFormat::Anthropic, ProviderFormat::Cohere, "command-a-03-2025", &body).unwrap();
    assert_eq!(
        body["documents"],
        json!([{"id": "doc-0", "data": {"text": "Penguins are tall.", "title": "Birds"}}])
    );
    assert_eq!(body["messages"], json!([{"role": "user", "content": "How tall?"}]));
}

#[test]
fn a_conversation_can_continue_with_another_provider() {
    let api = ProviderApi { provider: ProviderFormat::Gemini, use_responses_api: false };
    let answer = super::support::read_json("gemini", "tool.response.json");
    let translated = translate_response(
        api.provider,
        ClientFormat::Anthropic,
        answer.to_string().as_bytes(),
        &api.response_options(),
    )
    .unwrap();
    let translated: Value = serde_json::from_slice(&translated).unwrap();
    let id = translated["content"].as_array().unwrap().iter().find_map(|block| block.get("id")).unwrap();
    let body = json!({"max_tokens": 100, "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": translated["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "18"}]},
    ]});
    // Gemini gets its signature back in place. For Claude it is removed.
    let (gemini, _) =
        translate(ClientFormat::Anthropic, ProviderFormat::Gemini, "gemini-2.5-flash", &body).unwrap();
    assert_eq!(gemini["contents"][1]["parts"][0]["thoughtSignature"], "CvwBAXLI2nw=");
    assert_eq!(gemini["contents"][1]["parts"][0]["functionCall"]["name"], "get_weather");
    let (claude, _) =
        translate(ClientFormat::Anthropic, ProviderFormat::Anthropic, "claude-sonnet-4-5", &body).unwrap();
    assert_eq!(claude["messages"][1]["content"].as_array().unwrap().len(), 1);
}
