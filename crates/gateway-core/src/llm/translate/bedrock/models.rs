//! The list of models.

use serde_json::{Map, Value};

use super::super::{super::chat::Listed, json::text_at};

pub(super) fn read_models(body: &Map<String, Value>) -> Option<Vec<Listed>> {
    let rows = body.get("modelSummaries")?.as_array()?.iter().filter_map(Value::as_object);
    let text = |row: &Map<String, Value>, key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    let read = |row: &Map<String, Value>| Listed {
        id: text_at(row, "modelId").to_owned(),
        name: text(row, "modelName"),
        owner: text(row, "providerName"),
        ..Listed::default()
    };
    Some(rows.map(read).collect())
}
