//! Embeddings in OpenAI's format.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::super::{
    super::{
        ProviderFormat,
        chat::{EmbeddingsRequest, EmbeddingsResponse},
        usage,
    },
    json::insert_some,
};

pub(super) fn encode_embeddings_request(request: EmbeddingsRequest) -> (String, Value) {
    let mut body = Map::new();
    body.insert("model".to_owned(), request.model.into());
    body.insert("input".to_owned(), request.inputs.into());
    insert_some(&mut body, "dimensions", request.dimensions);
    insert_some(&mut body, "user", request.user);
    ("/v1/embeddings".to_owned(), body.into())
}

pub(super) fn decode_embeddings_response(body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
    let rows = body.get("data")?.as_array()?;
    let vectors = rows.iter().map(|row| decode_vector(row.get("embedding")?)).collect::<Option<_>>()?;
    let report = body.get("usage").and_then(Value::as_object);
    Some(EmbeddingsResponse {
        vectors,
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::OpenAi, report)),
    })
}

fn decode_vector(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::Array(numbers) => numbers.iter().map(Value::as_f64).collect(),
        Value::String(packed) => {
            let bytes = STANDARD.decode(packed).ok()?;
            let (numbers, _) = bytes.as_chunks::<4>();
            Some(numbers.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect())
        }
        _ => None,
    }
}
