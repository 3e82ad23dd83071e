//! OTLP trace requests: each side decodes what the other one encodes, to the same values.

use gateway_core::otlp::batch::Batch;
use gateway_core::otlp::proto::{
    Any, AnyValue, Array, Event, ExportTraceServiceRequest, KeyValue, Map, Resource, ResourceSpans, Scope,
    ScopeSpans, Span, Status,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest as ReferenceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as ReferenceValue;
use proptest::prelude::*;
use prost::Message as _;

fn any_value() -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        "[a-z\u{e4}]{0,8}".prop_map(Any::String),
        any::<bool>().prop_map(Any::Bool),
        any::<i64>().prop_map(Any::Int),
        (-1e9_f64..1e9).prop_map(Any::Double),
    ]
    .prop_map(|value| AnyValue { value: Some(value) });
    leaf.prop_recursive(3, 12, 4, |inner| {
        let values = prop::collection::vec(inner, 0..4);
        prop_oneof![
            values.clone().prop_map(|values| AnyValue { value: Some(Any::Array(Array { values })) }),
            values.prop_map(|values| {
                let values = (0..).zip(values).map(|(at, value)| pair(format!("k{at}"), value)).collect();
                AnyValue { value: Some(Any::Map(Map { values })) }
            }),
        ]
    })
}

fn pair(key: String, value: AnyValue) -> KeyValue {
    KeyValue { key, value: Some(value) }
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    prop::collection::vec(("[a-z.]{1,12}", any_value()).prop_map(|(key, value)| pair(key, value)), 0..5)
}

fn span() -> impl Strategy<Value = Span> {
    let ids = (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<[u8; 8]>());
    let times = (any::<u64>(), any::<u64>());
    (ids, times, "[a-z ]{0,12}", attributes(), attributes(), 0..3_i32).prop_map(
        |((trace, id, parent), (start, end), name, attributes, event, code)| Span {
            trace_id: trace.to_vec(),
            span_id: id.to_vec(),
            parent_span_id: parent.to_vec(),
            flags: 1,
            kind: 3,
            events: vec![Event { time_unix_nano: start, name: name.clone(), attributes: event }],
            status: Some(Status { message: name.clone(), code }),
            start_time_unix_nano: start,
            end_time_unix_nano: end,
            name,
            attributes,
            ..Span::default()
        },
    )
}

fn request(spans: Vec<Span>, attributes: Vec<KeyValue>) -> ExportTraceServiceRequest {
    let scope = Some(Scope { name: "lib".into(), version: "1".into() });
    let scope_spans = vec![ScopeSpans { scope, spans, schema_url: "s".into() }];
    let resource = Some(Resource { attributes });
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, schema_url: "r".into() }],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The reference decodes every field that we encode: encoding its value again and decoding that gives ours back.
    #[test]
    fn a_request_survives_the_reference_implementation(
        spans in prop::collection::vec(span(), 0..4),
        attributes in attributes(),
    ) {
        let ours = request(spans, attributes);
        let reference = ReferenceRequest::decode(&ours.encode_to_vec()[..]).unwrap();
        let back = ExportTraceServiceRequest::decode(&reference.encode_to_vec()[..]).unwrap();
        prop_assert_eq!(back, ours);
    }

    #[test]
    fn the_reference_decodes_an_export_batch(spans in prop::collection::vec(span(), 1..4)) {
        let org = "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap();
        let mut batch = Batch::default();
        for span in &spans {
            batch.add(span);
        }
        let (head, rest) = batch.finish(org, "1.2.3");
        let reference = ReferenceRequest::decode(&[head, rest].concat()[..]).unwrap();
        let resource = &reference.resource_spans[0];
        let found = &resource.scope_spans[0].spans;
        prop_assert_eq!(reference.resource_spans.len(), 1);
        prop_assert_eq!(found.len(), spans.len());
        for (theirs, ours) in found.iter().zip(&spans) {
            prop_assert_eq!(&theirs.trace_id, &ours.trace_id);
            prop_assert_eq!(&theirs.span_id, &ours.span_id);
            prop_assert_eq!(&theirs.parent_span_id, &ours.parent_span_id);
            prop_assert_eq!(&theirs.name, &ours.name);
            prop_assert_eq!(theirs.kind, ours.kind);
            prop_assert_eq!(theirs.start_time_unix_nano, ours.start_time_unix_nano);
            prop_assert_eq!(theirs.end_time_unix_nano, ours.end_time_unix_nano);
            prop_assert_eq!(theirs.attributes.len(), ours.attributes.len());
            prop_assert_eq!(theirs.status.as_ref().map(|status| status.code), ours.status.as_ref().map(|status| status.code));
        }
        let service = resource.resource.as_ref().unwrap().attributes.iter().find(|pair| pair.key == "service.name");
        let value = service.and_then(|pair| pair.value.clone()).and_then(|value| value.value);
        prop_assert_eq!(value, Some(ReferenceValue::StringValue("gateway".into())));
    }
}
