//! Checks the properties of `laws` on random responses and requests.

use proptest::{collection::vec, option, prelude::*};
use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            ClientFormat, aggregate,
            chat::{ChatResponse, Choice, Content, Losses, Part, StopReason, ToolCall, WireFormat},
            usage::Usage,
        },
        client_codec, provider_codec, translate_response,
    },
    support::{CLIENTS, ProviderSide, plain, translate_stream},
};

fn text() -> impl Strategy<Value = String> {
    "[a-zé👋\"\\\\\n {}:]{1,24}"
}

fn thought() -> impl Strategy<Value = Part> {
    prop_oneof![
        (text(), "[A-Za-z0-9+/]{4,12}")
            .prop_map(|(text, signature)| Content::Thinking { text, signature: Some(signature) }),
        "[A-Za-z0-9+/]{4,12}".prop_map(Content::Redacted),
    ]
    .prop_map(Part::new)
}

fn call(number: usize, name: String, argument: Option<String>) -> Part {
    let arguments = argument.map_or_else(|| json!({}), |value| json!({"q": value, "n": [1, 2.5, null]}));
    Part::new(Content::ToolCall(ToolCall {
        id: format!("call_x{number}"),
        name,
        arguments: arguments.to_string(),
        signature: None,
    }))
}

fn answer() -> impl Strategy<Value = ChatResponse> {
    let parts = (vec(thought(), 0..3), option::of(text()), vec(("[a-z_]{1,8}", option::of(text())), 0..3));
    (parts, 0u64..3, [0u64..50, 0..50, 1..50]).prop_map(|((thoughts, said, calls), stop, counts)| {
        let mut parts = thoughts;
        parts.extend(said.map(Part::text));
        if parts.is_empty() && calls.is_empty() {
            parts.push(Part::text("Hi"));
        }
        let reason = match stop {
            0 => StopReason::MaxTokens,
            _ if calls.is_empty() => StopReason::EndTurn,
            _ => StopReason::ToolUse,
        };
        let calls = calls.into_iter().enumerate();
        parts.extend(calls.map(|(number, (name, argument))| call(number, name, argument)));
        let [input, cache_read, output] = counts;
        ChatResponse {
            id: "answer-1".to_owned(),
            model: "model-1".to_owned(),
            created: Some(1_741_570_283),
            choices: vec![Choice { index: 0, parts, stop: Some(reason), logprobs: Vec::new() }],
            usage: Some(Usage { input, cache_read, output, ..Usage::default() }),
        }
    })
}

fn json_value(bytes: &[u8]) -> Value {
    plain(serde_json::from_slice(bytes).unwrap())
}

/// An optional field with one of a few values.
fn maybe(key: &'static str, values: Vec<Value>) -> impl Strategy<Value = Option<(String, Value)>> {
    option::of(prop::sample::select(values)).prop_map(move |value| Some((key.to_owned(), value?)))
}

fn body(
    messages: impl Strategy<Value = Value>,
    fields: Vec<BoxedStrategy<Option<(String, Value)>>>,
) -> impl Strategy<Value = Map<String, Value>> {
    (messages, fields).prop_map(|(messages, fields)| {
        let mut body = Map::from_iter([("model".to_owned(), json!("m")), ("messages".to_owned(), messages)]);
        body.extend(fields.into_iter().flatten());
        body
    })
}

fn chat_message() -> impl Strategy<Value = Value> {
    let function = |name: String, arguments: String| json!({"name": name, "arguments": arguments});
    let call = ("[a-z]{1,4}", "[a-z]{1,4}", text()).prop_map(move |(id, name, arguments)| {
        json!({"id": id, "type": "function", "function": function(name, arguments)})
    });
    let part = prop_oneof![
        text().prop_map(|text| json!({"type": "text", "text": text})),
        text().prop_map(|text| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}})),
        Just(
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}})
        ),
        Just(json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})),
        Just(json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}})),
        Just(
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}})
        ),
        Just(json!({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}})),
        text().prop_map(|text| json!({"type": "text", "text": text, "unheard_of": [text]})),
    ];
    let content = prop_oneof![text().prop_map(Value::from), vec(part, 1..4).prop_map(Value::from)];
    prop_oneof![
        (prop::sample::select(vec!["user", "system", "developer"]), content.clone())
            .prop_map(|(role, content)| json!({"role": role, "content": content})),
        (text(), vec(call, 1..3), option::of(text())).prop_map(|(content, calls, thought)| {
            json!({"role": "assistant", "content": content, "tool_calls": calls, "reasoning_content": thought})
        }),
        (text(), text()).prop_map(|(name, refusal)| {
            json!({"role": "assistant", "content": null, "refusal": refusal, "name": name})
        }),
        text().prop_map(|text| json!({"role": "tool", "tool_call_id": "c", "content": text})),
    ]
}

fn chat_request() -> impl Strategy<Value = Map<String, Value>> {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": true}});
    body(
        vec(chat_message(), 1..5).prop_map(Value::from),
        vec![
            maybe("stream", vec![json!(true)]).boxed(),
            maybe(
                "stream_options",
                vec![json!({"include_usage": true}), json!({"include_obfuscation": false})],
            )
            .boxed(),
            maybe("max_tokens", vec![json!(10)]).boxed(),
            maybe("temperature", vec![json!(0), json!(0.7), json!(1.0)]).boxed(),
            maybe("top_p", vec![json!(0.5)]).boxed(),
            maybe("stop", vec![json!(["a", "b"])]).boxed(),
            maybe("seed", vec![json!(-7)]).boxed(),
            maybe("n", vec![json!(2)]).boxed(),
            maybe("logprobs", vec![json!(true)]).boxed(),
            maybe("top_logprobs", vec![json!(3)]).boxed(),
            maybe("logit_bias", vec![json!({"1": -100})]).boxed(),
            maybe("tools", vec![json!([tool]), json!([{"type": "custom", "custom": {"name": "c"}}])]).boxed(),
            maybe(
                "tool_choice",
                vec![
                    json!("auto"),
                    json!("none"),
                    json!("required"),
                    json!({"type": "function", "function": {"name": "f"}}),
                ],
            )
            .boxed(),
            maybe("parallel_tool_calls", vec![json!(true), json!(false)]).boxed(),
            maybe("reasoning_effort", vec![json!("none"), json!("minimal"), json!("high")]).boxed(),
            maybe("response_format", vec![json!({"type": "json_object"}), json!({"type": "text"})]).boxed(),
            maybe("user", vec![json!("u")]).boxed(),
            maybe("metadata", vec![json!({"a": "b"})]).boxed(),
            maybe("never_heard_of", vec![json!({"deep": [1, {"er": null}]})]).boxed(),
        ],
    )
}

fn messages_turn() -> impl Strategy<Value = Value> {
    let cache = option::of(prop::sample::select(vec![
        json!({"type": "ephemeral"}),
        json!({"type": "ephemeral", "ttl": "1h"}),
    ]));
    let block = prop_oneof![
        (text(), cache)
            .prop_map(|(text, cache)| json!({"type": "text", "text": text, "cache_control": cache})),
        Just(
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}})
        ),
        Just(json!({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}})),
        Just(
            json!({"type": "document", "source": {"type": "file", "file_id": "f"}, "title": "t", "context": "c"})
        ),
        Just(json!({"type": "search_result", "source": "s", "title": "t", "content": []})),
        (text(), text()).prop_map(
            |(thinking, signature)| json!({"type": "thinking", "thinking": thinking, "signature": signature})
        ),
        text().prop_map(|data| json!({"type": "redacted_thinking", "data": data})),
        text().prop_map(|value| json!({"type": "tool_use", "id": "t", "name": "f", "input": {"q": value}})),
        (text(), option::of(any::<bool>())).prop_map(|(content, wrong)| {
            json!({"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": wrong})
        }),
        text().prop_map(|text| {
            json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": text}]})
        }),
    ];
    let content = prop_oneof![text().prop_map(Value::from), vec(block, 1..4).prop_map(Value::from)];
    (prop::sample::select(vec!["user", "assistant"]), content)
        .prop_map(|(role, content)| json!({"role": role, "content": content}))
}

fn messages_request() -> impl Strategy<Value = Map<String, Value>> {
    let tool = json!({"name": "f", "description": "d", "input_schema": {"type": "object"}, "eager": true});
    body(
        vec(messages_turn(), 1..5).prop_map(Value::from),
        vec![
            Just(Some(("max_tokens".to_owned(), json!(64)))).boxed(),
            maybe("system", vec![json!("s"), json!([{"type": "text", "text": "s"}])]).boxed(),
            maybe("stream", vec![json!(true)]).boxed(),
            maybe("temperature", vec![json!(0), json!(1)]).boxed(),
            maybe("top_k", vec![json!(5)]).boxed(),
            maybe("stop_sequences", vec![json!([" "])]).boxed(),
            maybe("tools", vec![json!([tool]), json!([{"type": "web_search_20250305", "name": "w"}])]).boxed(),
            maybe(
                "tool_choice",
                vec![
                    json!({"type": "auto"}),
                    json!({"type": "any", "disable_parallel_tool_use": true}),
                    json!({"type": "tool", "name": "f", "disable_parallel_tool_use": false}),
                    json!({"type": "none"}),
                ],
            )
            .boxed(),
            maybe(
                "thinking",
                vec![
                    json!({"type": "enabled", "budget_tokens": 2000}),
                    json!({"type": "adaptive", "display": "omitted"}),
                    json!({"type": "disabled"}),
                ],
            )
            .boxed(),
            maybe(
                "output_config",
                vec![
                    json!({"effort": "low"}),
                    json!({"format": {"type": "json_schema", "schema": {"type": "object"}}, "task_budget": 1}),
                ],
            )
            .boxed(),
            maybe("metadata", vec![json!({"user_id": "u", "more": 1})]).boxed(),
            maybe("service_tier", vec![json!("standard_only")]).boxed(),
            maybe("mcp_servers", vec![json!([{"type": "url"}])]).boxed(),
        ],
    )
}

fn item() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        text().prop_map(|text| json!({"type": "input_text", "text": text})),
        Just(json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"})),
        Just(json!({"type": "input_image", "file_id": "file_1"})),
        Just(json!({"type": "input_file", "file_url": "https://example.com/a.pdf"})),
        Just(
            json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"})
        ),
        Just(json!({"type": "input_text", "text": "x", "unheard_of": 1})),
    ];
    let content = prop_oneof![text().prop_map(Value::from), vec(part, 1..4).prop_map(Value::from)];
    prop_oneof![
        (prop::sample::select(vec!["user", "system", "developer"]), content.clone())
            .prop_map(|(role, content)| json!({"role": role, "content": content})),
        text().prop_map(
            |text| json!({"role": "assistant", "content": [{"type": "output_text", "text": text}]})
        ),
        text().prop_map(
            |text| json!({"role": "assistant", "content": [{"type": "refusal", "refusal": text}]})
        ),
        (text(), "[a-z]{1,4}").prop_map(
            |(arguments, id)| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": arguments, "id": id})
        ),
        content.prop_map(|output| json!({"type": "function_call_output", "call_id": "c", "output": output})),
        (text(), text()).prop_map(|(text, sealed)| {
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": sealed})
        }),
        Just(json!({"type": "web_search_call", "id": "ws_1", "status": "completed"})),
    ]
}

fn responses_request() -> impl Strategy<Value = Map<String, Value>> {
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true});
    let fields = vec![
        maybe("instructions", vec![json!("Be brief.")]).boxed(),
        maybe("stream", vec![json!(true)]).boxed(),
        maybe("max_output_tokens", vec![json!(10)]).boxed(),
        maybe("temperature", vec![json!(0), json!(1.5)]).boxed(),
        maybe("tools", vec![json!([tool]), json!([{"type": "web_search"}, tool])]).boxed(),
        maybe(
            "tool_choice",
            vec![json!("auto"), json!({"type": "function", "name": "f"}), json!({"type": "web_search"})],
        )
        .boxed(),
        maybe(
            "text",
            vec![json!({"verbosity": "low"}), json!({"format": {"type": "json_object"}, "unheard_of": 1})],
        )
        .boxed(),
        maybe("reasoning", vec![json!({"effort": "high", "summary": "auto"}), json!({"effort": "none"})])
            .boxed(),
        maybe("include", vec![json!(["reasoning.encrypted_content", "message.output_text.logprobs"])])
            .boxed(),
        maybe("store", vec![json!(true), json!(false)]).boxed(),
        maybe("previous_response_id", vec![json!("resp_1")]).boxed(),
        maybe("never_heard_of", vec![json!([1, {"a": 2}])]).boxed(),
    ];
    (vec(item(), 2..6), fields).prop_map(|(mut items, fields)| {
        // Adjacent messages of the model may be merged.
        items.dedup_by(|next, item| next["role"] == "assistant" && item["role"] == "assistant");
        items.push(json!({"role": "user", "content": [{"type": "input_text", "text": "Go on."}]}));
        let mut body = Map::from_iter([("model".to_owned(), json!("m")), ("input".to_owned(), items.into())]);
        body.extend(fields.into_iter().flatten());
        // Instructions become the first system message regardless of their position.
        let plain = body["input"][0]["role"] == "system";
        if !body.contains_key("instructions") && plain {
            body["input"][0]["role"] = json!("user");
        }
        body
    })
}

fn generate_request() -> impl Strategy<Value = Map<String, Value>> {
    let user_part = prop_oneof![
        text().prop_map(|text| json!({"text": text})),
        Just(
            json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "mediaResolution": {"level": "LOW"}})
        ),
        Just(json!({"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/a.mp4"}})),
        Just(json!({"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"}})),
        text()
            .prop_map(|text| json!({"functionResponse": {"id": "c", "name": "f", "response": {"a": text}}})),
    ];
    let model_part = prop_oneof![
        text().prop_map(|text| json!({"text": text})),
        text().prop_map(|text| json!({"text": text, "thought": true})),
        text().prop_map(|text| json!({"text": text, "thoughtSignature": "c2ln"})),
        text().prop_map(
            |text| json!({"functionCall": {"id": "c", "name": "f", "args": {"a": text}}, "thoughtSignature": "c2ln"})
        ),
        Just(json!({"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"})),
    ];
    let contents = prop_oneof![
        vec(user_part, 1..4).prop_map(|parts| json!({"role": "user", "parts": parts})),
        vec(model_part, 1..4).prop_map(|parts| json!({"role": "model", "parts": parts})),
    ];
    let config = vec![
        maybe("maxOutputTokens", vec![json!(10)]).boxed(),
        maybe("temperature", vec![json!(0.5)]).boxed(),
        maybe("topK", vec![json!(3)]).boxed(),
        maybe("candidateCount", vec![json!(2)]).boxed(),
        maybe("stopSequences", vec![json!(["a"])]).boxed(),
        maybe("responseMimeType", vec![json!("application/json"), json!("text/plain")]).boxed(),
        maybe("responseLogprobs", vec![json!(true)]).boxed(),
        maybe("speechConfig", vec![json!({"languageCode": "de"})]).boxed(),
        maybe(
            "thinkingConfig",
            vec![json!({"thinkingBudget": 0}), json!({"thinkingLevel": "low", "includeThoughts": false})],
        )
        .boxed(),
    ];
    let function = json!({"name": "f", "parameters": {"type": "OBJECT"}, "behavior": "BLOCKING"});
    let fields = vec![
        maybe("systemInstruction", vec![json!({"parts": [{"text": "Be brief."}]})]).boxed(),
        maybe("tools", vec![json!([{"functionDeclarations": [function]}, {"googleSearch": {}}])]).boxed(),
        maybe(
            "toolConfig",
            vec![
                json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}),
                json!({"functionCallingConfig": {"mode": "NONE"}, "retrievalConfig": {"languageCode": "de"}}),
            ],
        )
        .boxed(),
        maybe("safetySettings", vec![json!([{"category": "x"}])]).boxed(),
        maybe("labels", vec![json!({"a": "b"})]).boxed(),
        maybe("cachedContent", vec![json!("cachedContents/1")]).boxed(),
    ];
    (vec(contents, 1..4), config, fields).prop_map(|(contents, config, fields)| {
        let mut body = Map::from_iter([("contents".to_owned(), contents.into())]);
        body.extend(fields.into_iter().flatten());
        let config: Map<String, Value> = config.into_iter().flatten().collect();
        if !config.is_empty() {
            body.insert("generationConfig".to_owned(), config.into());
        }
        body
    })
}

fn comes_back(client: ClientFormat, body: Map<String, Value>) -> Result<(), TestCaseError> {
    let request = client_codec(client).decode_request(body.clone()).unwrap();
    let format = WireFormat::from(client);
    let mut losses = Losses::new(format);
    let written = provider_codec(format).encode_request(request, &mut losses).unwrap();
    prop_assert_eq!(plain(written), plain(body.into()));
    prop_assert_eq!(losses.into_dropped(), Vec::<String>::new());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn aggregating_and_translating_commute_for_any_answer(
        answer in answer(),
        sizes in vec(1usize..64, 1..4),
    ) {
        for source in CLIENTS {
            let side = ProviderSide { provider: source.native(), use_responses_api: source == ClientFormat::OpenAiResponses };
            let body = client_codec(source).encode_response(answer.clone()).to_string();
            let stream = aggregate::synthesize_stream(side.format(), body.as_bytes(), true).unwrap().concat();
            for client in CLIENTS {
                let translated = translate_stream(side, client, &stream, &sizes);
                let format = client.into();
                let aggregated = aggregate::aggregate_stream(format, format.framing(), &translated).unwrap();
                let expected = translate_response(side.provider, client, body.as_bytes(), &side.reply()).unwrap();
                prop_assert_eq!(json_value(&aggregated), json_value(&expected), "{:?} to {:?}", source, client);
            }
        }
    }

    #[test]
    fn any_chat_request_comes_back_as_it_was(body in chat_request()) {
        comes_back(ClientFormat::OpenAiChat, body)?;
    }

    #[test]
    fn any_responses_request_comes_back_as_it_was(body in responses_request()) {
        comes_back(ClientFormat::OpenAiResponses, body)?;
    }

    #[test]
    fn any_gemini_request_comes_back_as_it_was(body in generate_request()) {
        comes_back(ClientFormat::Gemini, body)?;
    }

    #[test]
    fn any_messages_request_comes_back_as_it_was(body in messages_request()) {
        comes_back(ClientFormat::Anthropic, body)?;
    }
}
