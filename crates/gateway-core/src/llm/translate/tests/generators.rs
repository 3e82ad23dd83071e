//! Generators of random requests and responses.

use proptest::{collection::vec, option, prelude::*};
use serde_json::{Map, Value, json};

use super::super::super::{
    chat::{ChatResponse, Choice, Content, Part, StopReason, ToolCall},
    usage::Usage,
};

fn text() -> impl Strategy<Value = String> {
    "[a-zé👋\"\\\\\n {}:]{1,24}"
}

fn thinking_part() -> impl Strategy<Value = Part> {
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

pub(super) fn chat_response() -> impl Strategy<Value = ChatResponse> {
    let parts =
        (vec(thinking_part(), 0..3), option::of(text()), vec(("[a-z_]{1,8}", option::of(text())), 0..3));
    (parts, 0u64..3, [0u64..50, 0..50, 1..50]).prop_map(|((thinking, text, calls), stop, counts)| {
        let mut parts = thinking;
        parts.extend(text.map(Part::text));
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
            id: "response-1".to_owned(),
            model: "model-1".to_owned(),
            created: Some(1_741_570_283),
            choices: vec![Choice { index: 0, parts, stop: Some(reason), logprobs: Vec::new() }],
            usage: Some(Usage { input, cache_read, output, ..Usage::default() }),
        }
    })
}

/// An optional field with one of the given values.
fn optional_field(key: &'static str, values: Vec<Value>) -> impl Strategy<Value = Option<(String, Value)>> {
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
        text().prop_map(|text| json!({"type": "text", "text": text, "unknown_field": [text]})),
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

pub(super) fn chat_request() -> impl Strategy<Value = Map<String, Value>> {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": true}});
    body(
        vec(chat_message(), 1..5).prop_map(Value::from),
        vec![
            optional_field("stream", vec![json!(true)]).boxed(),
            optional_field(
                "stream_options",
                vec![json!({"include_usage": true}), json!({"include_obfuscation": false})],
            )
            .boxed(),
            optional_field("max_tokens", vec![json!(10)]).boxed(),
            optional_field("temperature", vec![json!(0), json!(0.7), json!(1.0)]).boxed(),
            optional_field("top_p", vec![json!(0.5)]).boxed(),
            optional_field("stop", vec![json!(["a", "b"])]).boxed(),
            optional_field("seed", vec![json!(-7)]).boxed(),
            optional_field("n", vec![json!(2)]).boxed(),
            optional_field("logprobs", vec![json!(true)]).boxed(),
            optional_field("top_logprobs", vec![json!(3)]).boxed(),
            optional_field("logit_bias", vec![json!({"1": -100})]).boxed(),
            optional_field(
                "tools",
                vec![json!([tool]), json!([{"type": "custom", "custom": {"name": "c"}}])],
            )
            .boxed(),
            optional_field(
                "tool_choice",
                vec![
                    json!("auto"),
                    json!("none"),
                    json!("required"),
                    json!({"type": "function", "function": {"name": "f"}}),
                ],
            )
            .boxed(),
            optional_field("parallel_tool_calls", vec![json!(true), json!(false)]).boxed(),
            optional_field("reasoning_effort", vec![json!("none"), json!("minimal"), json!("high")]).boxed(),
            optional_field("response_format", vec![json!({"type": "json_object"}), json!({"type": "text"})])
                .boxed(),
            optional_field("user", vec![json!("u")]).boxed(),
            optional_field("metadata", vec![json!({"a": "b"})]).boxed(),
            optional_field("unknown_field", vec![json!({"deep": [1, {"er": null}]})]).boxed(),
        ],
    )
}

fn anthropic_message() -> impl Strategy<Value = Value> {
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
        (text(), option::of(any::<bool>())).prop_map(|(content, is_error)| {
            json!({"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": is_error})
        }),
        text().prop_map(|text| {
            json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": text}]})
        }),
    ];
    let content = prop_oneof![text().prop_map(Value::from), vec(block, 1..4).prop_map(Value::from)];
    (prop::sample::select(vec!["user", "assistant"]), content)
        .prop_map(|(role, content)| json!({"role": role, "content": content}))
}

pub(super) fn anthropic_request() -> impl Strategy<Value = Map<String, Value>> {
    let tool = json!({"name": "f", "description": "d", "input_schema": {"type": "object"}, "eager": true});
    body(
        vec(anthropic_message(), 1..5).prop_map(Value::from),
        vec![
            Just(Some(("max_tokens".to_owned(), json!(64)))).boxed(),
            optional_field("system", vec![json!("s"), json!([{"type": "text", "text": "s"}])]).boxed(),
            optional_field("stream", vec![json!(true)]).boxed(),
            optional_field("temperature", vec![json!(0), json!(1)]).boxed(),
            optional_field("top_k", vec![json!(5)]).boxed(),
            optional_field("stop_sequences", vec![json!([" "])]).boxed(),
            optional_field("tools", vec![json!([tool]), json!([{"type": "web_search_20250305", "name": "w"}])]).boxed(),
            optional_field(
                "tool_choice",
                vec![
                    json!({"type": "auto"}),
                    json!({"type": "any", "disable_parallel_tool_use": true}),
                    json!({"type": "tool", "name": "f", "disable_parallel_tool_use": false}),
                    json!({"type": "none"}),
                ],
            )
            .boxed(),
            optional_field(
                "thinking",
                vec![
                    json!({"type": "enabled", "budget_tokens": 2000}),
                    json!({"type": "adaptive", "display": "omitted"}),
                    json!({"type": "disabled"}),
                ],
            )
            .boxed(),
            optional_field(
                "output_config",
                vec![
                    json!({"effort": "low"}),
                    json!({"format": {"type": "json_schema", "schema": {"type": "object"}}, "task_budget": 1}),
                ],
            )
            .boxed(),
            optional_field("metadata", vec![json!({"user_id": "u", "more": 1})]).boxed(),
            optional_field("service_tier", vec![json!("standard_only")]).boxed(),
            optional_field("mcp_servers", vec![json!([{"type": "url"}])]).boxed(),
        ],
    )
}

fn responses_item() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        text().prop_map(|text| json!({"type": "input_text", "text": text})),
        Just(json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"})),
        Just(json!({"type": "input_image", "file_id": "file_1"})),
        Just(json!({"type": "input_file", "file_url": "https://example.com/a.pdf"})),
        Just(
            json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"})
        ),
        Just(json!({"type": "input_text", "text": "x", "unknown_field": 1})),
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
        (text(), text()).prop_map(|(text, encrypted)| {
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": encrypted})
        }),
        Just(json!({"type": "web_search_call", "id": "ws_1", "status": "completed"})),
    ]
}

pub(super) fn responses_request() -> impl Strategy<Value = Map<String, Value>> {
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true});
    let fields = vec![
        optional_field("instructions", vec![json!("Be brief.")]).boxed(),
        optional_field("stream", vec![json!(true)]).boxed(),
        optional_field("max_output_tokens", vec![json!(10)]).boxed(),
        optional_field("temperature", vec![json!(0), json!(1.5)]).boxed(),
        optional_field("tools", vec![json!([tool]), json!([{"type": "web_search"}, tool])]).boxed(),
        optional_field(
            "tool_choice",
            vec![json!("auto"), json!({"type": "function", "name": "f"}), json!({"type": "web_search"})],
        )
        .boxed(),
        optional_field(
            "text",
            vec![json!({"verbosity": "low"}), json!({"format": {"type": "json_object"}, "unknown_field": 1})],
        )
        .boxed(),
        optional_field(
            "reasoning",
            vec![json!({"effort": "high", "summary": "auto"}), json!({"effort": "none"})],
        )
        .boxed(),
        optional_field(
            "include",
            vec![json!(["reasoning.encrypted_content", "message.output_text.logprobs"])],
        )
        .boxed(),
        optional_field("store", vec![json!(true), json!(false)]).boxed(),
        optional_field("previous_response_id", vec![json!("resp_1")]).boxed(),
        optional_field("unknown_field", vec![json!([1, {"a": 2}])]).boxed(),
    ];
    (vec(responses_item(), 2..6), fields).prop_map(|(mut items, fields)| {
        // Adjacent messages of the model can be merged.
        items.dedup_by(|next, item| next["role"] == "assistant" && item["role"] == "assistant");
        items.push(json!({"role": "user", "content": [{"type": "input_text", "text": "Go on."}]}));
        let mut body = Map::from_iter([("model".to_owned(), json!("m")), ("input".to_owned(), items.into())]);
        body.extend(fields.into_iter().flatten());
        // A leading system message is encoded as instructions.
        let starts_with_system = body["input"][0]["role"] == "system";
        if !body.contains_key("instructions") && starts_with_system {
            body["input"][0]["role"] = json!("user");
        }
        body
    })
}

pub(super) fn gemini_request() -> impl Strategy<Value = Map<String, Value>> {
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
        optional_field("maxOutputTokens", vec![json!(10)]).boxed(),
        optional_field("temperature", vec![json!(0.5)]).boxed(),
        optional_field("topK", vec![json!(3)]).boxed(),
        optional_field("candidateCount", vec![json!(2)]).boxed(),
        optional_field("stopSequences", vec![json!(["a"])]).boxed(),
        optional_field("responseMimeType", vec![json!("application/json"), json!("text/plain")]).boxed(),
        optional_field("responseLogprobs", vec![json!(true)]).boxed(),
        optional_field("speechConfig", vec![json!({"languageCode": "de"})]).boxed(),
        optional_field(
            "thinkingConfig",
            vec![json!({"thinkingBudget": 0}), json!({"thinkingLevel": "low", "includeThoughts": false})],
        )
        .boxed(),
    ];
    let function = json!({"name": "f", "parameters": {"type": "OBJECT"}, "behavior": "BLOCKING"});
    let fields = vec![
        optional_field("systemInstruction", vec![json!({"parts": [{"text": "Be brief."}]})]).boxed(),
        optional_field("tools", vec![json!([{"functionDeclarations": [function]}, {"googleSearch": {}}])])
            .boxed(),
        optional_field(
            "toolConfig",
            vec![
                json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}),
                json!({"functionCallingConfig": {"mode": "NONE"}, "retrievalConfig": {"languageCode": "de"}}),
            ],
        )
        .boxed(),
        optional_field("safetySettings", vec![json!([{"category": "x"}])]).boxed(),
        optional_field("labels", vec![json!({"a": "b"})]).boxed(),
        optional_field("cachedContent", vec![json!("cachedContents/1")]).boxed(),
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
