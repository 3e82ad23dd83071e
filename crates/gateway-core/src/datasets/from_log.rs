//! A logged request as a test case: what was asked is the input, what was answered stands in the metadata as `output`,
//! which is what an evaluation without a target judges. Nothing is expected: a logged answer need not be a right one.

use serde_json::{Map, Value, json};

use super::CaseContent;
use crate::llm::preview::{assistant_text, last_user_text};
use crate::logs::{BodyStorage, LogRow};

/// The input is the list of messages where there are several, else the text of the one that the user sent.
pub fn case_from_log(row: &LogRow) -> Result<CaseContent, String> {
    let input = match conversation(row) {
        Some(messages) => messages,
        None => last_user_text(&row.request)
            .map(Value::String)
            .ok_or("its request was not kept, or holds no text of a user")?,
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

/// More than one message, as they were sent. A request that was cut off tells only its last text.
fn conversation(row: &LogRow) -> Option<Value> {
    if row.request_stored != BodyStorage::Full {
        return None;
    }
    let mut body: Value = serde_json::from_slice(&row.request).ok()?;
    let messages = body.get_mut("messages").map(Value::take)?;
    messages.as_array().is_some_and(|list| list.len() > 1).then_some(messages)
}
