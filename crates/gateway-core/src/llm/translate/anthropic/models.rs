//! Model lists in Anthropic's format.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::{super::chat::ModelEntry, json::str_field};

pub(super) fn decode_models(body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
    let rows = body.get("data")?.as_array()?.iter().filter_map(Value::as_object);
    let decode = |row: &Map<String, Value>| ModelEntry {
        id: str_field(row, "id").to_owned(),
        name: row.get("display_name").and_then(Value::as_str).map(str::to_owned),
        created: str_field(row, "created_at").parse::<Timestamp>().ok().map(Timestamp::as_second),
        owner: Some("anthropic".to_owned()),
        input_limit: row.get("max_input_tokens").and_then(Value::as_u64),
        output_limit: row.get("max_tokens").and_then(Value::as_u64),
    };
    Some(rows.map(decode).collect())
}

pub(super) fn encode_models(models: Vec<ModelEntry>) -> Value {
    let first = models.first().map(|model| model.id.clone());
    let last = models.last().map(|model| model.id.clone());
    let rows: Vec<Value> = models
        .into_iter()
        .map(|model| {
            let created = Timestamp::from_second(model.created.unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH);
            let name = model.name.unwrap_or_else(|| model.id.clone());
            json!({
                "type": "model", "id": model.id, "display_name": name, "created_at": created.to_string(),
            })
        })
        .collect();
    json!({"data": rows, "has_more": false, "first_id": first, "last_id": last})
}
