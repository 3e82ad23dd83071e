//! JSON text with several owners. It takes a fraction of the memory of a tree, and copies of it take none.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

#[derive(Debug, Clone)]
pub struct SharedJson(Arc<RawValue>);

impl SharedJson {
    pub fn new(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self(to_raw_value(value)?.into()))
    }

    /// The text must be one JSON value.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        Ok(Self(RawValue::from_string(text)?.into()))
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for SharedJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Serialize for SharedJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Adds a member at the end of the text of a JSON object.
pub fn append_member(object: &mut String, name: &str, value: &str) {
    object.truncate(object.trim_end().len());
    if object.pop() != Some('}') {
        return;
    }
    if !object.trim_end().ends_with('{') {
        object.push(',');
    }
    for part in ["\"", name, "\":", value, "}"] {
        object.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_kept_as_it_is() {
        let shared = SharedJson::new(&json!({"a": [1, "é"]})).unwrap();
        assert_eq!(shared.text(), r#"{"a":[1,"é"]}"#);
        assert_eq!(serde_json::to_string(&json!({"x": 1})).unwrap(), r#"{"x":1}"#);
        assert_eq!(serde_json::to_string(&[&shared]).unwrap(), r#"[{"a":[1,"é"]}]"#);
        assert_eq!(SharedJson::from_text(r#"{"a":[1,"é"]}"#.into()).unwrap(), shared);
        assert!(SharedJson::from_text("{".into()).is_err());
    }

    #[test]
    fn a_member_is_added_at_the_end() {
        let with = |object: &str| {
            let mut text = object.to_owned();
            append_member(&mut text, "b", "true");
            text
        };
        assert_eq!(with("{}"), r#"{"b":true}"#);
        assert_eq!(with("{ } "), r#"{ "b":true}"#);
        assert_eq!(with(r#"{"a":{}}"#), r#"{"a":{},"b":true}"#);
    }
}
