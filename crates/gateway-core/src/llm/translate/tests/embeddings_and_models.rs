//! Embeddings and model lists.

use serde_json::{Value, json};

use super::super::{
    super::{ClientFormat, ProviderFormat, chat::TranslationError},
    translate_embeddings_request, translate_embeddings_response, translate_models,
};

#[test]
fn model_lists_of_anthropic_and_bedrock_are_translated() {
    let anthropic = json!({"data": [{"type": "model", "id": "claude-opus-4-1", "display_name": "Claude Opus 4.1",
        "created_at": "2025-08-05T00:00:00Z"}], "has_more": false, "first_id": "a", "last_id": "a"});
    let translated = translate_models(
        ProviderFormat::Anthropic,
        ClientFormat::OpenAiChat,
        anthropic.to_string().as_bytes(),
    )
    .unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&translated).unwrap(),
        json!({"object": "list", "data": [
            {"id": "claude-opus-4-1", "object": "model", "created": 1_754_352_000, "owned_by": "anthropic"},
        ]})
    );
    let bedrock = json!({"modelSummaries": [{"modelId": "amazon.nova-pro-v1:0", "modelName": "Nova Pro",
        "providerName": "Amazon"}]});
    let translated =
        translate_models(ProviderFormat::Bedrock, ClientFormat::Anthropic, bedrock.to_string().as_bytes())
            .unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&translated).unwrap(),
        json!({
            "data": [{"type": "model", "id": "amazon.nova-pro-v1:0", "display_name": "Nova Pro",
                "created_at": "1970-01-01T00:00:00Z"}],
            "has_more": false, "first_id": "amazon.nova-pro-v1:0", "last_id": "amazon.nova-pro-v1:0",
        })
    );
}

#[test]
fn models_on_bedrock_make_embeddings() {
    let body = br#"{"model":"m","input":"Hi","dimensions":256,"encoding_format":"base64"}"#;
    let request =
        translate_embeddings_request(ProviderFormat::Bedrock, body, "amazon.titan-embed-text-v2:0").unwrap();
    assert_eq!(request.path, "/model/amazon.titan-embed-text-v2%3A0/invoke");
    assert_eq!(
        serde_json::from_slice::<Value>(&request.body).unwrap(),
        json!({"inputText": "Hi", "dimensions": 256})
    );
    assert!(request.base64);
    let response = br#"{"embedding":[0.5,-1.0],"inputTextTokenCount":3}"#;
    let translated = |base64| {
        let translated =
            translate_embeddings_response(ProviderFormat::Bedrock, response, "titan", base64).unwrap();
        serde_json::from_slice::<Value>(&translated).unwrap()
    };
    assert_eq!(
        translated(false)["data"],
        json!([{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}])
    );
    assert_eq!(translated(false)["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    assert_eq!(translated(true)["data"][0]["embedding"], "AAAAPwAAgL8=");
}

#[test]
fn unsupported_embeddings_requests_are_rejected() {
    let unsupported_field =
        |format, body: &str, model| match translate_embeddings_request(format, body.as_bytes(), model) {
            Err(TranslationError::Unsupported { field, .. }) => field,
            other => panic!("{other:?}"),
        };
    assert_eq!(
        unsupported_field(ProviderFormat::Bedrock, r#"{"input":["a","b"]}"#, "amazon.titan-embed-text-v2:0"),
        "input"
    );
    assert_eq!(
        unsupported_field(ProviderFormat::Bedrock, r#"{"input":[[1,2]]}"#, "amazon.titan-embed-text-v2:0"),
        "input"
    );
    assert_eq!(
        unsupported_field(ProviderFormat::Bedrock, r#"{"input":"a"}"#, "amazon.nova-pro-v1:0"),
        "model"
    );
    assert_eq!(unsupported_field(ProviderFormat::Anthropic, r#"{"input":"a"}"#, "claude"), "model");
}

#[test]
fn gemini_and_cohere_make_embeddings() {
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
    for (format, response, tokens) in [
        (ProviderFormat::Gemini, json!({"embeddings": [{"values": [0.5, 1.0]}, {"values": [0.25, 2.0]}]}), 0),
        (
            ProviderFormat::Cohere,
            json!({"id": "e", "embeddings": {"float": [[0.5, 1.0], [0.25, 2.0]]}, "meta": {"billed_units": {"input_tokens": 4}}}),
            4,
        ),
    ] {
        let translated =
            translate_embeddings_response(format, response.to_string().as_bytes(), "m", false).unwrap();
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
fn model_lists_of_gemini_and_cohere_are_translated() {
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
