//! The messages of OTLP traces that the gateway sends and receives, as protobuf and as JSON. OTLP's JSON differs from
//! the usual protobuf mapping: ids are hex, 64-bit numbers may be strings, enums are numbers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartialSuccess {
    #[prost(int64, tag = "1")]
    #[serde(serialize_with = "as_text")]
    pub rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub spans: Vec<Span>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Scope {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub version: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "hex_bytes")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "hex_bytes")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(deserialize_with = "hex_bytes")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "kind")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "unsigned")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(deserialize_with = "unsigned")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "nullable")]
    pub events: Vec<Event>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    #[serde(deserialize_with = "nullable")]
    pub flags: u32,
}

pub const KIND_CLIENT: i32 = 3;
pub const STATUS_ERROR: i32 = 2;

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Event {
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "unsigned")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "status_code")]
    pub code: i32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Any {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(Array),
    #[prost(message, tag = "6")]
    Map(Map),
    #[prost(bytes, tag = "7")]
    Bytes(Vec<u8>),
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Array {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Map {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<KeyValue>,
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        #[expect(clippy::struct_field_names, reason = "the names of the specification")]
        struct Json {
            string_value: Option<String>,
            bool_value: Option<bool>,
            int_value: Option<Whole<i64>>,
            double_value: Option<Fraction>,
            array_value: Option<Array>,
            kvlist_value: Option<Map>,
            bytes_value: Option<String>,
        }
        let json = Json::deserialize(deserializer)?;
        let bytes = json.bytes_value.map(|text| BASE64.decode(text).map_err(D::Error::custom)).transpose()?;
        let value = json
            .string_value
            .map(Any::String)
            .or(json.bool_value.map(Any::Bool))
            .or(json.int_value.map(|Whole(number)| Any::Int(number)))
            .or(json.double_value.map(|Fraction(number)| Any::Double(number)))
            .or(json.array_value.map(Any::Array))
            .or(json.kvlist_value.map(Any::Map))
            .or(bytes.map(Any::Bytes));
        Ok(Self { value })
    }
}

/// Deserializes a whole number from a number or a string.
struct Whole<T>(T);

impl<'de, T: std::str::FromStr> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(serde_json::Number),
            Text(String),
        }
        let text = match Either::deserialize(deserializer)? {
            Either::Number(number) => number.to_string(),
            Either::Text(text) => text,
        };
        text.parse().map(Self).map_err(|_| D::Error::custom("expected a whole number"))
    }
}

/// Deserializes a number, or a string such as "NaN" that JSON has no number for.
struct Fraction(f64);

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Whole::<f64>::deserialize(deserializer).map(|Whole(number)| Self(number))
    }
}

/// Null means the default, as in all of protobuf's JSON.
fn nullable<'de, T: DeserializeOwned + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn hex_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    hex::decode(text).map_err(|_| D::Error::custom("expected an id in hex"))
}

fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Option::<Whole<u64>>::deserialize(deserializer)?;
    Ok(number.map_or(0, |Whole(number)| number))
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let names = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
    choice(deserializer, "SPAN_KIND_", &names)
}

fn status_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    choice(deserializer, "STATUS_CODE_", &["UNSET", "OK", "ERROR"])
}

/// Deserializes an enum from its number, or from its name, which general protobuf libraries write.
fn choice<'de, D: Deserializer<'de>>(deserializer: D, prefix: &str, names: &[&str]) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i32),
        Name(String),
    }
    Ok(match Option::<Either>::deserialize(deserializer)? {
        None => 0,
        Some(Either::Number(number)) => number,
        Some(Either::Name(name)) => {
            let short = name.strip_prefix(prefix).unwrap_or(&name);
            let at = names.iter().position(|known| *known == short);
            at.and_then(|at| i32::try_from(at).ok()).unwrap_or(0)
        }
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn as_text<S: serde::Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn the_json_of_the_specification_is_parsed() {
        let text = r#"{"resourceSpans": [{"resource": {"attributes": [
            {"key": "service.name", "value": {"stringValue": "my.service"}}]}, "unknown": 1,
            "scopeSpans": [{"scope": {"name": "my.library", "version": null}, "spans": [{
                "traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "EEE19B7EC3C1B174",
                "parentSpanId": null, "name": "I'm a server span", "startTimeUnixNano": "1544712660000000000",
                "endTimeUnixNano": 1544712661000000000, "kind": 2, "status": {"code": "STATUS_CODE_ERROR"},
                "attributes": [{"key": "i", "value": {"intValue": "-5"}}, {"key": "n", "value": {"intValue": 7}},
                    {"key": "d", "value": {"doubleValue": 0.5}}, {"key": "b", "value": {"bytesValue": "AQI="}},
                    {"key": "a", "value": {"arrayValue": {"values": [{"boolValue": true}]}}},
                    {"key": "e", "value": null}]}]}]}]}"#;
        let read: ExportTraceServiceRequest = serde_json::from_str(text).unwrap();
        let span = &read.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!(hex::encode(&span.trace_id), "5b8efff798038103d269b633813fc60c");
        assert_eq!((span.span_id.len(), span.parent_span_id.len(), span.kind), (8, 0, 2));
        assert_eq!(span.start_time_unix_nano, 1_544_712_660_000_000_000);
        assert_eq!(span.end_time_unix_nano, 1_544_712_661_000_000_000);
        assert_eq!(span.status.as_ref().unwrap().code, STATUS_ERROR);
        let values: Vec<_> =
            span.attributes.iter().map(|pair| pair.value.clone().and_then(|v| v.value)).collect();
        assert_eq!(values[0], Some(Any::Int(-5)));
        assert_eq!(values[1], Some(Any::Int(7)));
        assert_eq!(values[2], Some(Any::Double(0.5)));
        assert_eq!(values[3], Some(Any::Bytes(vec![1, 2])));
        assert!(matches!(&values[4], Some(Any::Array(array)) if array.values.len() == 1));
        assert_eq!(values[5], None);
    }

    #[test]
    fn invalid_json_is_rejected() {
        for bad in [
            r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}"#,
            r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "-1"}]}]}]}"#,
            r#"{"resourceSpans": {}}"#,
        ] {
            assert!(serde_json::from_str::<ExportTraceServiceRequest>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn protobuf_reads_back_as_itself() {
        let value = AnyValue { value: Some(Any::String("x".into())) };
        let pair = KeyValue { key: "k".into(), value: Some(value) };
        let span = Span { trace_id: vec![1; 16], attributes: vec![pair], flags: 1, ..Span::default() };
        let scope = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
        let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
        let request = ExportTraceServiceRequest { resource_spans: vec![resource] };
        assert_eq!(ExportTraceServiceRequest::decode(&request.encode_to_vec()[..]), Ok(request));
    }

    #[test]
    fn a_count_is_a_text_in_json() {
        let partial = PartialSuccess { rejected_spans: 3, error_message: "why".into() };
        let some = ExportTraceServiceResponse { partial_success: Some(partial) };
        assert_eq!(
            serde_json::to_string(&some).unwrap(),
            r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"why"}}"#
        );
        assert_eq!(serde_json::to_string(&ExportTraceServiceResponse::default()).unwrap(), "{}");
    }
}
