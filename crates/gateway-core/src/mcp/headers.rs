//! Values of `Mcp-Name` and `Mcp-Param-*` headers: plain where a header can carry the text, else base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const START: &str = "=?base64?";
const END: &str = "?=";

/// The text that a header means. `None` if it is damaged.
pub fn decode_header(value: &str) -> Option<String> {
    match value.strip_prefix(START).and_then(|rest| rest.strip_suffix(END)) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

/// The header for a text.
pub fn encode_header(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim() == text
        && !text.is_empty()
        && !text.starts_with(START);
    if is_plain { text.to_owned() } else { format!("{START}{}{END}", STANDARD.encode(text)) }
}

/// The header for an argument that a tool's schema marks with `x-mcp-header`. Only strings, numbers and booleans have
/// one.
pub fn header_value_of(argument: &Value) -> Option<String> {
    match argument {
        Value::String(text) => Some(encode_header(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives_a_header() {
        for text in ["tool", "a b", " a", "über", "", "=?base64?eA==?=", "line\nbreak"] {
            let header = encode_header(text);
            assert!(header.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{header:?}");
            assert_eq!(decode_header(&header).as_deref(), Some(text));
        }
        assert_eq!(encode_header("tool"), "tool");
        assert_eq!(decode_header("=?base64?!?="), None);
    }

    #[test]
    fn only_scalars_have_a_header() {
        assert_eq!(header_value_of(&Value::from(3)).as_deref(), Some("3"));
        assert_eq!(header_value_of(&Value::from("ü")).as_deref(), Some("=?base64?w7w=?="));
        assert_eq!(header_value_of(&serde_json::json!([1])), None);
    }
}
