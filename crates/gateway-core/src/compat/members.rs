//! The members of a JSON object, with their values as they were written.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// None: the body is not a JSON object.
pub fn members(body: &[u8]) -> Option<Vec<(String, &RawValue)>> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let members = deserializer.deserialize_map(Members).ok()?;
    deserializer.end().ok()?;
    Some(members)
}

pub fn encoded(members: &[(String, String)]) -> Vec<u8> {
    let mut text = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(name.as_str()).to_string());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text.into_bytes()
}
