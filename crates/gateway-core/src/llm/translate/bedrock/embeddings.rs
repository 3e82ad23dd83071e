//! Embeddings. Converse has none: Titan's and Cohere's models are invoked in their own words.

use serde_json::{Map, Value, json};

use super::super::{
    super::{
        chat::{EmbeddingsRequest, EmbeddingsResponse, Losses, RequestField, TranslationError},
        usage::Usage,
    },
    driver::path_segment,
    json::insert_some,
};

pub(super) fn encode_embeddings_request(
    mut embed: EmbeddingsRequest,
    losses: &mut Losses,
) -> Result<(String, Value), TranslationError> {
    let refused = |field: &str, message: &str| TranslationError::Unsupported {
        field: field.to_owned(),
        message: message.to_owned(),
    };
    if embed.user.is_some() {
        losses.drop(RequestField::User);
    }
    let path = format!("/model/{}/invoke", path_segment(&embed.model));
    if embed.model.contains("titan-embed") {
        if embed.inputs.len() > 1 {
            return Err(refused("input", "this model embeds one text at a time"));
        }
        let mut body = Map::new();
        insert_some(&mut body, "inputText", embed.inputs.pop());
        insert_some(&mut body, "dimensions", embed.dimensions);
        return Ok((path, body.into()));
    }
    if embed.model.contains("cohere.embed") {
        let mut body = json!({"texts": embed.inputs, "input_type": "search_document"});
        if let Some(dimensions) = embed.dimensions {
            body["output_dimension"] = dimensions.into();
        }
        return Ok((path, body));
    }
    Err(refused("model", "the gateway knows no embeddings of this model"))
}

pub(super) fn decode_embeddings_response(body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
    let vector = |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
    if let Some(one) = body.get("embedding") {
        let usage = body.get("inputTextTokenCount").and_then(Value::as_u64);
        return Some(EmbeddingsResponse {
            vectors: vec![vector(one)?],
            usage: usage.map(|input| Usage::from_totals(input, 0)),
        });
    }
    let list = match body.get("embeddings")? {
        Value::Object(by_type) => by_type.get("float")?.as_array()?,
        list => list.as_array()?,
    };
    Some(EmbeddingsResponse { vectors: list.iter().map(vector).collect::<Option<_>>()?, usage: None })
}
