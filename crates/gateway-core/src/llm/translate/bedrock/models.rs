//! Model lists in Bedrock's format.

use serde_json::{Map, Value};

use super::super::{super::chat::ModelEntry, json::str_field};

pub(super) fn decode_models(body: &Map<String, Value>) -> Option<Vec<ModelEntry>> {
    let rows = body.get("modelSummaries")?.as_array()?.iter().filter_map(Value::as_object);
    let text = |row: &Map<String, Value>, key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    let decode = |row: &Map<String, Value>| ModelEntry {
        id: str_field(row, "modelId").to_owned(),
        name: text(row, "modelName"),
        owner: text(row, "providerName"),
        ..ModelEntry::default()
    };
    Some(rows.map(decode).collect())
}
