//! Rules of OpenAI's responses, Gemini and Cohere that no golden file shows.

use serde_json::{Value, json};

use super::{
    super::{
        super::{ClientFormat, ProviderFormat, chat::TranslationError},
        RequestOptions, StreamTranslator, TranslatedRequest, translate_embeddings_request,
        translate_embeddings_response, translate_models, translate_request, translate_response,
    },
    support::{ProviderSide, translate_stream},
};

const CHAT: ProviderSide = ProviderSide { provider: ProviderFormat::OpenAi, use_responses_api: false };

fn sent(
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
    sent(ClientFormat::OpenAiResponses, to, "m", &body)
}

fn from_gemini(to: ProviderFormat, contents: &Value) -> Result<(Value, Vec<String>), TranslationError> {
    sent(ClientFormat::Gemini, to, "m", &json!({"contents": contents}))
}

fn from_chat(to: ProviderFormat, model: &str, mut body: Value) -> (Value, Vec<String>) {
    if body.get("messages").is_none() {
        body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    }
    sent(ClientFormat::OpenAiChat, to, model, &body).unwrap()
}

fn refused(result: Result<(Value, Vec<String>), TranslationError>) -> String {
    match result {
        Err(TranslationError::Unsupported { field, .. }) => field,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn state_stored_at_openai_is_rejected_by_other_providers() {
    for (field, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!({"id": "conv_1"})),
        ("prompt", json!({"id": "pmpt_1"})),
        ("background", json!(true)),
    ] {
        for format in [ProviderFormat::Anthropic, ProviderFormat::OpenAi, ProviderFormat::Gemini] {
            assert_eq!(refused(from_responses(format, json!({field: value}))), field);
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
fn items_and_tools_that_only_openai_runs_are_refused_elsewhere() {
    let reference = json!({"input": [{"type": "item_reference", "id": "msg_1"}]});
    assert_eq!(refused(from_responses(ProviderFormat::Anthropic, reference)), "input[].content[]");
    let search = json!({"tools": [{"type": "web_search"}]});
    assert_eq!(refused(from_responses(ProviderFormat::Gemini, search)), "tools[]");
}

#[test]
fn malformed_items_name_their_place() {
    for (input, place) in [
        (json!([{"role": "robot", "content": "x"}]), "input.0.role"),
        (
            json!([{"role": "user", "content": "x"}, {"type": "function_call", "name": "f"}]),
            "input.1.call_id",
        ),
        (json!([{"role": "user", "content": [{"type": "input_text"}]}]), "input.0.content.0.text"),
        (json!(7), "input"),
    ] {
        match from_responses(ProviderFormat::Anthropic, json!({"input": input})) {
            Err(TranslationError::Malformed { field, .. }) => assert_eq!(field, place),
            other => panic!("{place}: {other:?}"),
        }
    }
}

#[test]
fn thoughts_that_only_claude_can_read_come_back_to_it_through_responses() {
    let answer = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn",
        "content": [{"type": "redacted_thinking", "data": "Emwc"}, {"type": "text", "text": "391"}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    let side = ProviderSide { provider: ProviderFormat::Anthropic, use_responses_api: false };
    let translated = translate_response(
        side.provider,
        ClientFormat::OpenAiResponses,
        answer.to_string().as_bytes(),
        &side.reply(),
    );
    let translated: Value = serde_json::from_slice(&translated.unwrap()).unwrap();
    let mut input = translated["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "And 18 * 23?"}));
    let (claude, _) = from_responses(ProviderFormat::Anthropic, json!({"input": input})).unwrap();
    assert_eq!(claude["messages"][0]["content"][0], json!({"type": "redacted_thinking", "data": "Emwc"}));
    // Other providers do not receive them.
    let (gemini, dropped) = from_responses(ProviderFormat::Gemini, json!({"input": input})).unwrap();
    assert_eq!(gemini["contents"][0]["parts"], json!([{"text": "391"}]));
    assert_eq!(dropped, ["input[].encrypted_content"]);
}

#[test]
fn arguments_that_grow_side_by_side_stay_apart() {
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
fn events_of_a_response_are_numbered_and_every_item_that_opens_closes() {
    let side = ProviderSide { provider: ProviderFormat::Anthropic, use_responses_api: false };
    let stream = super::support::stream_bytes(side, "parallel_tools");
    let out = translate_stream(side, ClientFormat::OpenAiResponses, &stream, &[usize::MAX]);
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
fn an_answer_without_end_is_cut_off_with_an_error() {
    let text = "a".repeat(1 << 20);
    let chunk = json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]});
    let chunk = format!("data: {chunk}\n\n").into_bytes();
    let mut translator =
        StreamTranslator::new(ProviderFormat::OpenAi, ClientFormat::OpenAiResponses, &CHAT.reply());
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
fn geminis_calls_without_ids_are_answered_by_name_and_order() {
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
fn gemini_is_read_in_snake_case_too() {
    let body = json!({
        "system_instruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"parts": [{"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]}],
        "generation_config": {"max_output_tokens": 5, "stop_sequences": ["x"], "response_mime_type": "application/json"},
        "tools": [{"function_declarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {"snake_name": {"type": "STRING"}}}}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY"}},
    });
    let (chat, dropped) = sent(ClientFormat::Gemini, ProviderFormat::OpenAi, "m", &body).unwrap();
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
fn files_that_lie_with_google_are_refused_elsewhere() {
    for uri in ["gs://bucket/a.pdf", "https://generativelanguage.googleapis.com/v1beta/files/abc"] {
        let part = json!({"fileData": {"mimeType": "application/pdf", "fileUri": uri}});
        let contents = json!([{"role": "user", "parts": [part]}]);
        assert_eq!(refused(from_gemini(ProviderFormat::Anthropic, &contents)), "contents[].parts[]");
        let (own, _) = from_gemini(ProviderFormat::Gemini, &contents).unwrap();
        assert_eq!(own["contents"], contents);
    }
}

#[test]
fn sound_and_pictures_as_answers_are_only_googles() {
    for kinds in [json!(["AUDIO"]), json!(["TEXT", "IMAGE"])] {
        let body = json!({"contents": [], "generationConfig": {"responseModalities": kinds}});
        let result = sent(ClientFormat::Gemini, ProviderFormat::OpenAi, "m", &body);
        assert_eq!(refused(result), "generationConfig.responseModalities");
    }
    let body = json!({"contents": [], "generationConfig": {"responseModalities": ["TEXT"]}});
    assert_eq!(
        sent(ClientFormat::Gemini, ProviderFormat::OpenAi, "m", &body).unwrap().1,
        Vec::<String>::new()
    );
}

#[test]
fn each_generation_of_gemini_is_told_to_think_in_its_own_way() {
    let thinking = |model: &str, effort: &str| {
        let (body, dropped) = from_chat(ProviderFormat::Gemini, model, json!({"reasoning_effort": effort}));
        (body["generationConfig"]["thinkingConfig"].clone(), dropped)
    };
    let shown = |key: &str, value: Value| json!({key: value, "includeThoughts": true});
    assert_eq!(thinking("gemini-2.5-flash", "high").0, shown("thinkingBudget", json!(16_384)));
    assert_eq!(thinking("gemini-2.5-flash", "xhigh").0, shown("thinkingBudget", json!(24_576)));
    assert_eq!(thinking("gemini-2.5-pro", "xhigh").0, shown("thinkingBudget", json!(32_768)));
    assert_eq!(thinking("gemini-2.5-flash", "none").0, json!({"thinkingBudget": 0}));
    assert_eq!(thinking("gemini-2.5-pro", "none").1, ["reasoning_effort"]);
    assert_eq!(thinking("gemini-3-flash-preview", "minimal").0, shown("thinkingLevel", json!("minimal")));
    assert_eq!(thinking("gemini-3-pro-preview", "minimal").0, shown("thinkingLevel", json!("low")));
    assert_eq!(thinking("gemini-3-pro-preview", "xhigh").0, shown("thinkingLevel", json!("high")));
}

#[test]
fn a_result_that_is_an_object_reaches_gemini_as_one() {
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
fn cohere_thinks_only_where_the_model_can() {
    let extra = json!({"reasoning_effort": "low"});
    let (body, dropped) = from_chat(ProviderFormat::Cohere, "command-a-reasoning-08-2025", extra.clone());
    assert_eq!(body["thinking"], json!({"type": "enabled", "token_budget": 2_048}));
    assert_eq!(dropped, Vec::<String>::new());
    let (body, dropped) = from_chat(ProviderFormat::Cohere, "command-r", extra);
    assert_eq!((body.get("thinking"), &*dropped), (None, &["reasoning_effort".to_owned()][..]));
}

#[test]
fn texts_that_are_attached_become_coheres_documents() {
    let source = json!({"type": "text", "media_type": "text/plain", "data": "Penguins are tall."});
    let document = json!({"type": "document", "source": source, "title": "Birds"});
    let body = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": [document, {"type": "text", "text": "How tall?"}]},
    ]});
    let (body, _) =
        sent(ClientFormat::Anthropic, ProviderFormat::Cohere, "command-a-03-2025", &body).unwrap();
    assert_eq!(
        body["documents"],
        json!([{"id": "doc-0", "data": {"text": "Penguins are tall.", "title": "Birds"}}])
    );
    assert_eq!(body["messages"], json!([{"role": "user", "content": "How tall?"}]));
}

#[test]
fn embeddings_are_made_by_gemini_and_cohere() {
    let body = br#"{"model":"x","input":["a","b"],"dimensions":8,"user":"u"}"#;
    let gemini = translate_embeddings_request(ProviderFormat::Gemini, body, "gemini-embedding-001").unwrap();
    assert_eq!(gemini.path, "/v1beta/models/gemini-embedding-001:batchEmbedContents");
    assert_eq!(gemini.dropped, ["user"]);
    let one = |text: &str| json!({"model": "models/gemini-embedding-001", "content": {"parts": [{"text": text}]}, "outputDimensionality": 8});
    assert_eq!(
        serde_json::from_slice::<Value>(&gemini.body).unwrap(),
        json!({"requests": [one("a"), one("b")]})
    );
    let cohere = translate_embeddings_request(ProviderFormat::Cohere, body, "embed-v4.0").unwrap();
    assert_eq!(cohere.path, "/v2/embed");
    assert_eq!(
        serde_json::from_slice::<Value>(&cohere.body).unwrap(),
        json!({
            "model": "embed-v4.0", "texts": ["a", "b"], "input_type": "search_document",
            "embedding_types": ["float"], "output_dimension": 8,
        })
    );
    for (format, answer, tokens) in [
        (ProviderFormat::Gemini, json!({"embeddings": [{"values": [0.5, 1.0]}, {"values": [0.25, 2.0]}]}), 0),
        (
            ProviderFormat::Cohere,
            json!({"id": "e", "embeddings": {"float": [[0.5, 1.0], [0.25, 2.0]]}, "meta": {"billed_units": {"input_tokens": 4}}}),
            4,
        ),
    ] {
        let translated =
            translate_embeddings_response(format, answer.to_string().as_bytes(), "m", false).unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&translated).unwrap(),
            json!({
                "object": "list", "model": "m",
                "data": [
                    {"object": "embedding", "index": 0, "embedding": [0.5, 1.0]},
                    {"object": "embedding", "index": 1, "embedding": [0.25, 2.0]},
                ],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            })
        );
    }
}

#[test]
fn lists_of_gemini_and_cohere_are_told_in_the_callers_format() {
    let gemini = json!({"models": [{
        "name": "models/gemini-2.5-pro", "displayName": "Gemini 2.5 Pro", "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536, "supportedGenerationMethods": ["generateContent"],
    }]});
    let cohere =
        json!({"models": [{"name": "command-a-03-2025", "endpoints": ["chat"], "context_length": 288_000}]});
    let translated = |format: ProviderFormat, client: ClientFormat, list: &Value| -> Value {
        serde_json::from_slice(&translate_models(format, client, list.to_string().as_bytes()).unwrap())
            .unwrap()
    };
    assert_eq!(
        translated(ProviderFormat::Gemini, ClientFormat::OpenAiChat, &gemini)["data"][0],
        json!({"id": "gemini-2.5-pro", "object": "model", "created": 0, "owned_by": "google"})
    );
    assert_eq!(translated(ProviderFormat::Gemini, ClientFormat::Gemini, &gemini), gemini);
    assert_eq!(
        translated(ProviderFormat::Cohere, ClientFormat::Gemini, &cohere)["models"][0]["name"],
        "models/command-a-03-2025"
    );
    assert_eq!(
        translated(ProviderFormat::Cohere, ClientFormat::Anthropic, &cohere)["data"][0]["id"],
        "command-a-03-2025"
    );
    assert_eq!(
        translated(ProviderFormat::Cohere, ClientFormat::OpenAiResponses, &cohere)["data"][0]["owned_by"],
        "cohere"
    );
}

#[test]
fn a_conversation_goes_on_with_another_provider() {
    let side = ProviderSide { provider: ProviderFormat::Gemini, use_responses_api: false };
    let answer = super::support::read_json("gemini", "tool.response.json");
    let translated = translate_response(
        side.provider,
        ClientFormat::Anthropic,
        answer.to_string().as_bytes(),
        &side.reply(),
    )
    .unwrap();
    let translated: Value = serde_json::from_slice(&translated).unwrap();
    let id = translated["content"].as_array().unwrap().iter().find_map(|block| block.get("id")).unwrap();
    let body = json!({"max_tokens": 100, "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": translated["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "18"}]},
    ]});
    // The issuer gets the signature back in the same place. Claude does not receive it.
    let (gemini, _) =
        sent(ClientFormat::Anthropic, ProviderFormat::Gemini, "gemini-2.5-flash", &body).unwrap();
    assert_eq!(gemini["contents"][1]["parts"][0]["thoughtSignature"], "CvwBAXLI2nw=");
    assert_eq!(gemini["contents"][1]["parts"][0]["functionCall"]["name"], "get_weather");
    let (claude, _) =
        sent(ClientFormat::Anthropic, ProviderFormat::Anthropic, "claude-sonnet-4-5", &body).unwrap();
    assert_eq!(claude["messages"][1]["content"].as_array().unwrap().len(), 1);
}
