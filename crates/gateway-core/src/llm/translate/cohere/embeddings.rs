//! Embeddings in Cohere's format.

use serde_json::{Map, Value, json};

use super::super::super::{
    ProviderFormat,
    chat::{EmbeddingsRequest, EmbeddingsResponse, Losses, RequestField},
    usage,
};

pub(super) fn encode_embeddings_request(request: &EmbeddingsRequest, losses: &mut Losses) -> (String, Value) {
    if request.user.is_some() {
        losses.drop(RequestField::User);
    }
    // Cohere requires the purpose of the vectors; search is the most common one.
    let mut body = json!({
        "model": request.model, "texts": request.inputs,
        "input_type": "search_document", "embedding_types": ["float"],
    });
    if let Some(dimensions) = request.dimensions {
        body["output_dimension"] = dimensions.into();
    }
    ("/v2/embed".to_owned(), body)
}

pub(super) fn decode_embeddings_response(body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
    let rows = match body.get("embeddings")? {
        Value::Object(kinds) => kinds.get("float")?.as_array()?,
        Value::Array(rows) => rows,
        _ => return None,
    };
    let vector = |row: &Value| -> Option<Vec<f64>> { row.as_array()?.iter().map(Value::as_f64).collect() };
    let vectors = rows.iter().map(vector).collect::<Option<Vec<_>>>()?;
    let report = body.get("meta").and_then(Value::as_object);
    Some(EmbeddingsResponse {
        vectors,
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::Cohere, report)),
    })
}
