//! Embeddings in Google's format.

use serde_json::{Map, Value, json};

use super::super::{
    super::{
        ProviderFormat,
        chat::{EmbeddingsRequest, EmbeddingsResponse, Losses, RequestField},
        usage,
    },
    request::path_segment,
};

pub(super) fn encode_embeddings_request(request: EmbeddingsRequest, losses: &mut Losses) -> (String, Value) {
    if request.user.is_some() {
        losses.drop(RequestField::User);
    }
    let path = format!("/v1beta/models/{}:batchEmbedContents", path_segment(&request.model));
    let model = format!("models/{}", request.model);
    let encode = |text: String| {
        let mut entry = json!({"model": model, "content": {"parts": [{"text": text}]}});
        if let Some(dimensions) = request.dimensions {
            entry["outputDimensionality"] = dimensions.into();
        }
        entry
    };
    (path, json!({"requests": request.inputs.into_iter().map(encode).collect::<Vec<Value>>()}))
}

pub(super) fn decode_embeddings_response(body: &Map<String, Value>) -> Option<EmbeddingsResponse> {
    let vector = |row: &Value| -> Option<Vec<f64>> {
        row.get("values")?.as_array()?.iter().map(Value::as_f64).collect()
    };
    let vectors = match (body.get("embeddings"), body.get("embedding")) {
        (Some(rows), _) => rows.as_array()?.iter().map(vector).collect::<Option<Vec<_>>>()?,
        (None, Some(row)) => vec![vector(row)?],
        (None, None) => return None,
    };
    let report = body.get("usageMetadata").and_then(Value::as_object);
    Some(EmbeddingsResponse {
        vectors,
        usage: report.and_then(|report| usage::parse_report(ProviderFormat::Gemini, report)),
    })
}
