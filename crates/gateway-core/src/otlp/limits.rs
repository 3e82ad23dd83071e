//! Limits the number of elements in a received trace request before it is decoded. An empty protobuf message takes two
//! bytes on the wire but a hundred times as many in memory.

use crate::json::string_end;

/// Protobuf messages, or JSON objects and arrays, in one request: spans, their attributes and nested values.
pub const MAX_ELEMENTS: usize = 500_000;
/// The recursion limit of the decoder; deeper messages are rejected there.
const MAX_DEPTH: usize = 100;

/// The message types that contain other messages.
#[derive(Clone, Copy)]
enum MessageType {
    Request,
    ResourceSpans,
    Resource,
    ScopeSpans,
    Span,
    Event,
    KeyValue,
    AnyValue,
    Array,
    Map,
}

impl MessageType {
    /// The type of the message in this field, if it is one of these.
    fn field_type(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
            (Self::Request, 1) => Self::ResourceSpans,
            (Self::ResourceSpans, 1) => Self::Resource,
            (Self::ResourceSpans, 2) => Self::ScopeSpans,
            (Self::ScopeSpans, 2) => Self::Span,
            (Self::Span, 11) => Self::Event,
            (Self::Resource | Self::Map, 1) | (Self::Span, 9) | (Self::Event, 3) => Self::KeyValue,
            (Self::KeyValue, 2) | (Self::Array, 1) => Self::AnyValue,
            (Self::AnyValue, 5) => Self::Array,
            (Self::AnyValue, 6) => Self::Map,
            _ => return None,
        })
    }
}

/// Whether a protobuf request has at most `MAX_ELEMENTS` elements. Malformed input passes; the decoder rejects it.
pub fn protobuf_within_limits(bytes: &[u8]) -> bool {
    let mut elements = 0;
    count_messages(bytes, MessageType::Request, 0, &mut elements);
    elements <= MAX_ELEMENTS
}

/// Counts nested messages until the limit is exceeded. Returns `None` at malformed input.
fn count_messages(mut bytes: &[u8], message: MessageType, depth: usize, elements: &mut usize) -> Option<()> {
    while !bytes.is_empty() && *elements <= MAX_ELEMENTS {
        let key = varint(&mut bytes)?;
        match key & 7 {
            0 => drop(varint(&mut bytes)?),
            1 => bytes = bytes.get(8..)?,
            5 => bytes = bytes.get(4..)?,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                if let Some(nested) = message.field_type(key >> 3).filter(|_| depth < MAX_DEPTH) {
                    *elements += 1;
                    count_messages(inner, nested, depth + 1, elements)?;
                }
            }
            _ => return None,
        }
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * shift);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Whether a JSON request has at most `MAX_ELEMENTS` objects and arrays.
pub fn json_within_limits(bytes: &[u8]) -> bool {
    let (mut elements, mut at) = (0_usize, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr3(b'{', b'[', b'"', rest)) {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            at = string_end(bytes, at + 1).map_or(bytes.len(), |end| end.at + 1);
        } else {
            elements += 1;
            at += 1;
        }
        if elements > MAX_ELEMENTS {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::proto::{
        Any, AnyValue, Array, ExportTraceServiceRequest, KeyValue, ResourceSpans, ScopeSpans, Span,
    };
    use proptest::prelude::*;
    use prost::Message as _;

    fn request(span: Span, times: usize) -> Vec<u8> {
        let scope = ScopeSpans { spans: vec![span; times], ..ScopeSpans::default() };
        let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec()
    }

    #[test]
    fn small_requests_that_decode_to_large_ones_are_rejected() {
        let pair = || KeyValue { key: "k".into(), value: Some(AnyValue { value: Some(Any::Int(1)) }) };
        let usual = Span { attributes: (0..30).map(|_| pair()).collect(), ..Span::default() };
        assert!(protobuf_within_limits(&request(usual, 5_000)));
        assert!(
            !protobuf_within_limits(&request(Span::default(), MAX_ELEMENTS)),
            "a megabyte of empty spans"
        );
        let values = vec![AnyValue::default(); MAX_ELEMENTS];
        let list =
            KeyValue { key: "k".into(), value: Some(AnyValue { value: Some(Any::Array(Array { values })) }) };
        assert!(!protobuf_within_limits(&request(Span { attributes: vec![list], ..Span::default() }, 1)));
    }

    #[test]
    fn malformed_protobuf_is_left_to_the_decoder() {
        for bytes in [&b"\xff\xff\xff"[..], b"\x0a\x7f", b"\x0b\x0a", b"\x0a\x02\x12"] {
            assert!(protobuf_within_limits(bytes) && ExportTraceServiceRequest::decode(bytes).is_err());
        }
    }

    #[test]
    fn objects_and_lists_count_and_texts_do_not() {
        let many = |part: &str, times: usize| {
            format!(r#"{{"resourceSpans": [{}]}}"#, part.repeat(times)).into_bytes()
        };
        assert!(!json_within_limits(&many("{},", MAX_ELEMENTS)));
        assert!(!json_within_limits(&many("[],", MAX_ELEMENTS)));
        assert!(json_within_limits(&many("{},", MAX_ELEMENTS - 2)));
        assert!(json_within_limits(&many(r#""{[\"{[\\","#, MAX_ELEMENTS)));
        assert!(!json_within_limits(&many(r#""\\",{},"#, MAX_ELEMENTS)));
        assert!(json_within_limits(br#"{"unclosed \"#));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_counted(
            bytes in prop::collection::vec(any::<u8>(), 0..200), text in "(\\{|\\[|\"|\\\\|x|é){0,60}",
        ) {
            prop_assert!(protobuf_within_limits(&bytes) && json_within_limits(&bytes));
            prop_assert!(json_within_limits(text.as_bytes()));
        }

        #[test]
        fn damaged_requests_are_left_to_the_decoder(at in 0..40_usize, byte in any::<u8>()) {
            let mut bytes = request(Span { name: "chat".into(), ..Span::default() }, 3);
            let at = at % bytes.len();
            bytes[at] = byte;
            prop_assert!(protobuf_within_limits(&bytes));
            let _ = ExportTraceServiceRequest::decode(&bytes[..]);
        }
    }
}
