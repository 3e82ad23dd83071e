//! Model lists in OpenAI's format.

use serde_json::{Map, Value, json};

use super::super::{super::chat::ModelEntry, json::str_field};

pub(super) fn decode_models(body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
    let rows = body.get("data")?.as_array()?.iter().filter_map(Value::as_object);
    let decode = |row: &Map<String, Value>| ModelEntry {
        id: str_field(row, "id").to_owned(),
        name: row.get("name").and_then(Value::as_str).map(str::to_owned),
        created: row.get("created").and_then(Value::as_i64),
        owner: row.get("owned_by").and_then(Value::as_str).map(str::to_owned),
        ..ModelEntry::default()
    };
    Some(rows.map(decode).collect())
}

pub(super) fn encode_models(models: Vec<ModelEntry>) -> Value {
    let rows: Vec<Value> = models
        .into_iter()
        .map(|model| {
            let owner = model.owner.unwrap_or_default();
            json!({
                "id": model.id, "object": "model", "created": model.created.unwrap_or(0), "owned_by": owner,
            })
        })
        .collect();
    json!({"object": "list", "data": rows})
}
