//! Canonical JSON: texts with the same meaning become the same bytes. Keys are sorted, and whitespace and unneeded
//! escapes are removed. Numbers are normalized as decimals, so `1.0` equals `1` but big integers stay distinct, unlike
//! in a float.

use std::borrow::Cow;

use crate::json::{Number, skip_space, string_end, unescape};

/// Limits recursion, and thereby the stack. Real requests are never nested this deeply.
const MAX_DEPTH: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Parsers disagree about which of the values counts, so the text has no canonical form.
    #[error("the body has a duplicate key")]
    DuplicateKey,
    #[error("the body is nested too deeply")]
    TooDeep,
    #[error("the body is not JSON")]
    NotJson,
}

/// The canonical form of a JSON text, without the top-level keys in `without`.
pub fn canonical_json(text: &[u8], without: &[&str]) -> Result<Vec<u8>, CanonicalError> {
    let text = std::str::from_utf8(text).map_err(|_| CanonicalError::NotJson)?;
    let mut reader = Reader { text, at: 0, out: Vec::with_capacity(text.len()) };
    reader.value(0, without)?;
    reader.space();
    if reader.at == text.len() { Ok(reader.out) } else { Err(CanonicalError::NotJson) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    out: Vec<u8>,
}

/// An object member with the range of its canonical value in the output.
struct Member<'a> {
    key: Cow<'a, str>,
    start: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        self.at = skip_space(self.text.as_bytes(), self.at);
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), CanonicalError> {
        self.space();
        if self.take(byte) { Ok(()) } else { Err(CanonicalError::NotJson) }
    }

    fn value(&mut self, depth: usize, without: &[&str]) -> Result<(), CanonicalError> {
        if depth > MAX_DEPTH {
            return Err(CanonicalError::TooDeep);
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth, without),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                match self.string()? {
                    // A string without escapes needs none in the output.
                    Cow::Borrowed(text) => quote_plain(&mut self.out, text),
                    Cow::Owned(text) => quote(&mut self.out, &text),
                }
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.literal(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), CanonicalError> {
        self.at += 1;
        self.out.push(b'[');
        self.space();
        if !self.take(b']') {
            loop {
                self.value(depth + 1, &[])?;
                self.space();
                if self.take(b']') {
                    break;
                }
                self.expect(b',')?;
                self.out.push(b',');
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: usize, without: &[&str]) -> Result<(), CanonicalError> {
        self.at += 1;
        let begin = self.out.len();
        let mut members: Vec<Member<'a>> = Vec::new();
        self.space();
        if !self.take(b'}') {
            loop {
                self.space();
                if self.peek() != Some(b'"') {
                    return Err(CanonicalError::NotJson);
                }
                let key = self.string()?;
                self.expect(b':')?;
                let start = self.out.len();
                self.value(depth + 1, &[])?;
                members.push(Member { key, start, end: self.out.len() });
                self.space();
                if self.take(b'}') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        members.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        if members.windows(2).any(|pair| pair[0].key == pair[1].key) {
            return Err(CanonicalError::DuplicateKey);
        }
        let values = self.out.split_off(begin);
        self.out.push(b'{');
        let kept = members.iter().filter(|member| !without.contains(&&*member.key));
        for (index, Member { key, start, end }) in kept.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            quote(&mut self.out, key);
            self.out.push(b':');
            self.out.extend_from_slice(&values[start - begin..end - begin]);
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Reads a string and returns its content.
    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let end = string_end(bytes, start).ok_or(CanonicalError::NotJson)?;
        self.at = end.at + 1;
        let raw = &self.text[start..end.at];
        if end.has_escapes {
            return unescape(raw.as_bytes()).map(Cow::Owned).ok_or(CanonicalError::NotJson);
        }
        // Without an early exit the loop is vectorized, and a control character is rare.
        if raw.bytes().fold(0, |found, byte| found | u8::from(byte < 0x20)) != 0 {
            return Err(CanonicalError::NotJson);
        }
        Ok(Cow::Borrowed(raw))
    }

    fn literal(&mut self) -> Result<(), CanonicalError> {
        let rest = &self.text[self.at..];
        let found = ["true", "false", "null"].into_iter().find(|literal| rest.starts_with(literal));
        let literal = found.ok_or(CanonicalError::NotJson)?;
        self.at += literal.len();
        self.out.extend_from_slice(literal.as_bytes());
        Ok(())
    }

    /// Writes a number as its significant digits and a power of ten.
    fn number(&mut self) -> Result<(), CanonicalError> {
        let (number, length) = Number::read(&self.text[self.at..]).ok_or(CanonicalError::NotJson)?;
        self.at += length;
        let Number { is_negative, integer, fraction, exponent, exponent_is_negative } = number;
        let power: i64 =
            if exponent.is_empty() { 0 } else { exponent.parse().map_err(|_| CanonicalError::NotJson)? };
        let power = if exponent_is_negative { -power } else { power };
        let digits = [integer, fraction].concat();
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        if significant.is_empty() {
            self.out.push(b'0');
            return Ok(());
        }
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        let shift = i64::try_from(zeros).ok().zip(i64::try_from(fraction.len()).ok());
        let power = shift
            .and_then(|(zeros, fraction)| power.checked_add(zeros)?.checked_sub(fraction))
            .ok_or(CanonicalError::NotJson)?;
        if is_negative {
            self.out.push(b'-');
        }
        self.out.extend_from_slice(significant.as_bytes());
        if power != 0 {
            self.out.extend_from_slice(format!("e{power}").as_bytes());
        }
        Ok(())
    }
}

/// Quotes a text with as few escapes as JSON allows.
fn quote(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            byte => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn quote_plain(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn form(text: &str) -> Result<String, CanonicalError> {
        canonical_json(text.as_bytes(), &[]).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_same_meaning_has_one_form() {
        for (text, expected) in [
            (r#" { "b" : [ 1 , 2.50 ] , "a" : null } "#, r#"{"a":null,"b":[1,25e-1]}"#),
            (
                r#"{"z":{"y":1,"x":true},"\u0061":"\u0041\/\n"}"#,
                "{\"a\":\"A/\\u000a\",\"z\":{\"x\":true,\"y\":1}}",
            ),
            ("[1.0, 1, 1e0, 10e-1, 0.1E+1]", "[1,1,1,1,1]"),
            ("[100, 1e2, 100.00, 1E+2]", "[1e2,1e2,1e2,1e2]"),
            ("[0, -0, 0.0, -0.0e5]", "[0,0,0,0]"),
            ("[-1.50]", "[-15e-1]"),
            ("[]", "[]"),
            ("{}", "{}"),
            ("\"é \\u00e9\"", "\"é é\""),
        ] {
            assert_eq!(form(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn big_integers_never_become_equal() {
        for (a, b) in [
            ("18446744073709551616", "18446744073709551617"),
            ("9007199254740992", "9007199254740993"),
            ("0.1", "0.10000000000000000001"),
            ("1e400", "1e401"),
        ] {
            assert_ne!(form(a).unwrap(), form(b).unwrap(), "{a} {b}");
        }
    }

    #[test]
    fn keys_are_left_out_at_the_top_only() {
        let text = br#"{"stream":true,"a":{"stream":true},"b":[{"stream":1}]}"#;
        let found = canonical_json(text, &["stream", "absent"]).unwrap();
        assert_eq!(found, br#"{"a":{"stream":true},"b":[{"stream":1}]}"#);
    }

    #[test]
    fn invalid_and_ambiguous_json_is_rejected() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{,}",
            "01",
            "1.",
            ".5",
            "-",
            "1e",
            "+1",
            "tru",
            "\"a",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"\n\"",
            "{} {}",
            "nul",
            "'a'",
            "1e99999999999999999999",
        ] {
            assert_eq!(form(text), Err(CanonicalError::NotJson), "{text}");
        }
        assert_eq!(canonical_json(b"\"\xff\"", &[]), Err(CanonicalError::NotJson));
        for text in
            [r#"{"a":1,"a":1}"#, r#"{"a":1,"b":{"x":1,"y":2,"\u0078":3}}"#, r#"{"stream":1,"stream":2}"#]
        {
            assert_eq!(
                canonical_json(text.as_bytes(), &["stream"]),
                Err(CanonicalError::DuplicateKey),
                "{text}"
            );
        }
        assert_eq!(form(&"[".repeat(100_000)), Err(CanonicalError::TooDeep));
        assert!(form(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_ok());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_form_is_json_and_stays_as_it_is(value in any_json()) {
            let once = form(&value.to_string()).unwrap();
            prop_assert!(serde_json::from_str::<Value>(&once).is_ok(), "{}", once);
            prop_assert_eq!(form(&once).unwrap(), once);
        }

        #[test]
        fn layout_and_order_change_nothing(value in any_json()) {
            fn reversed(value: &Value) -> Value {
                match value {
                    Value::Array(items) => items.iter().map(reversed).collect(),
                    Value::Object(map) => Value::Object(map.iter().rev().map(|(k, v)| (k.clone(), reversed(v))).collect()),
                    other => other.clone(),
                }
            }
            let pretty = serde_json::to_string_pretty(&reversed(&value)).unwrap();
            prop_assert_eq!(form(&pretty).unwrap(), form(&value.to_string()).unwrap());
        }

        #[test]
        fn json_is_what_serde_says_it_is(text in r#"(\{|\}|\[|\]|"|:|,|1|0|-|\.|e|true|null|\\|a| ){0,12}"#) {
            let ours = form(&text);
            if ours != Err(CanonicalError::DuplicateKey) {
                prop_assert_eq!(ours.is_ok(), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
            }
        }
    }
}
