//! Converts a logged request to a test case. The request becomes the input. The response becomes `output` in the
//! metadata, which an evaluation without a target judges. `expected` stays empty, because a logged response need not be
//! correct.

use serde_json::{Map, Value, json};

use super::CaseContent;
use crate::llm::preview::{assistant_text, last_user_text};
use crate::logs::{BodyStorage, LogRow};

/// The input is the list of messages, or the user's text if there is only one message.
pub fn case_from_log(row: &LogRow) -> Result<CaseContent, String> {
    let input = match conversation(row) {
        Some(messages) => messages,
        None => last_user_text(&row.request)
            .map(Value::String)
            .ok_or("its request was not stored, or has no user text")?,
    };
    let mut metadata = Map::new();
    metadata.insert("log_id".into(), json!(row.id));
    metadata.insert("provider".into(), json!(row.provider));
    metadata.insert("model".into(), json!(row.model));
    if let Some(output) = assistant_text(&row.response, row.response_is_stream) {
        metadata.insert("output".into(), output.into());
    }
    CaseContent::new(&input, &Value::Null, &Value::Object(metadata))
}

/// The messages of a completely stored request, if there are several.
fn conversation(row: &LogRow) -> Option<Value> {
    if row.request_stored != BodyStorage::Full {
        return None;
    }
    let mut body: Value = serde_json::from_slice(&row.request).ok()?;
    let messages = body.get_mut("messages").map(Value::take)?;
    messages.as_array().is_some_and(|list| list.len() > 1).then_some(messages)
}
