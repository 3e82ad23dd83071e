//! Model lists in Google's format.

use serde_json::{Map, Value, json};

use super::super::{super::chat::ModelEntry, json::str_field};

pub(super) fn decode_models(body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
    let rows = body.get("models")?.as_array()?.iter().filter_map(Value::as_object);
    let decode = |row: &Map<String, Value>| {
        let name = str_field(row, "name");
        ModelEntry {
            id: name.strip_prefix("models/").unwrap_or(name).to_owned(),
            name: row.get("displayName").and_then(Value::as_str).map(str::to_owned),
            created: None,
            owner: Some("google".to_owned()),
            input_limit: row.get("inputTokenLimit").and_then(Value::as_u64),
            output_limit: row.get("outputTokenLimit").and_then(Value::as_u64),
        }
    };
    Some(rows.map(decode).collect())
}

pub(super) fn encode_models(models: Vec<ModelEntry>) -> Value {
    let encode = |model: ModelEntry| {
        let mut row = json!({
            "name": format!("models/{}", model.id),
            "displayName": model.name.as_ref().unwrap_or(&model.id),
            "supportedGenerationMethods": ["generateContent"],
        });
        for (key, limit) in [("inputTokenLimit", model.input_limit), ("outputTokenLimit", model.output_limit)]
        {
            if let Some(limit) = limit {
                row[key] = limit.into();
            }
        }
        row
    };
    json!({"models": models.into_iter().map(encode).collect::<Vec<Value>>()})
}
