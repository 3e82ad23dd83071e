//! Embeddings. Converse does not cover them, so Titan and Cohere models are invoked in their own formats.

use serde_json::{Map, Value, json};

use super::super::{
    super::{
        chat::{EmbeddingsRequest, EmbeddingsResponse, Losses, RequestField, TranslationError},
        usage::Usage,
    },
    json::insert_some,
    request::path_segment,
};

pub(super) fn encode_embeddings_request(
    mut request: EmbeddingsRequest,
    losses: &mut Losses,
) -> Result<(String, Value), TranslationError> {
    let unsupported = |field: &str, message: &str| TranslationError::Unsupported {
        field: field.to_owned(),
        message: message.to_owned(),
    };
    if request.user.is_some() {
        losses.drop(RequestField::User);
    }
    let path = format!("/model/{}/invoke", path_segment(&request.model));
    if request.model.contains("titan-embed") {
        if request.inputs.len() > 1 {
            return Err(unsupported("input", "this model accepts a single text per request"));
        }
        let mut body = Map::new();
        insert_some(&mut body, "inputText", request.inputs.pop());
        insert_some(&mut body, "dimensions", request.dimensions);
        return Ok((path, body.into()));
    }
    if request.model.contains("cohere.embed") {
        let mut body = json!({"texts": request.inputs, "input_type": "search_document"});
        if let Some(dimensions) = request.dimensions {
            body["output_dimension"] = dimensions.into();
        }
        return Ok((path, body));
    }
    Err(unsupported(
        "model",
        "embeddings of this model are not supported; use a Titan or Cohere embedding model",
    ))
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
