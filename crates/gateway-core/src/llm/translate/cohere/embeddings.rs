//! Embeddings.

use serde_json::{Map, Value, json};

use super::super::super::{
    ProviderFormat,
    chat::{EmbeddingsRequest, EmbeddingsResponse, Losses, RequestField},
    usage,
};

pub(super) fn encode_embeddings_request(embed: &EmbeddingsRequest, losses: &mut Losses) -> (String, Value) {
    if embed.user.is_some() {
        losses.drop(RequestField::User);
    }
    // Cohere insists on knowing what the vectors are for; to be found is what most are made for.
    let mut body = json!({
        "model": embed.model, "texts": embed.inputs,
        "input_type": "search_document", "embedding_types": ["float"],
    });
    if let Some(dimensions) = embed.dimensions {
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
