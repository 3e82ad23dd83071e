//! Builds the protobuf body of an export request, span by span.

use prost::{Message as _, encode_length_delimiter};

use super::encode::Attributes;
use super::names;
use super::proto::{Resource, ResourceSpans, Scope, ScopeSpans, Span};
use crate::ids::OrgId;

/// The service and scope name of the gateway.
const NAME: &str = "gateway";
/// Protobuf field numbers of the messages around spans.
const RESOURCE_SPANS_FIELD: u8 = 1;
const SCOPE_SPANS_FIELD: u8 = 2;
const SPANS_FIELD: u8 = 2;

/// The encoded spans of a request. Each span is encoded when it is added, so that the structs of a large batch never
/// accumulate in memory.
#[derive(Default)]
pub struct Batch(Vec<u8>);

impl Batch {
    pub fn add(&mut self, span: &Span) {
        write_field_header(SPANS_FIELD, span.encoded_len(), &mut self.0);
        // Encoding fails only for a buffer with a fixed capacity.
        let _ = span.encode(&mut self.0);
    }

    /// Returns the request in two parts: its head, with the lengths and the resource, and the spans that follow it.
    pub fn finish(self, org: OrgId, version: &str) -> (Vec<u8>, Vec<u8>) {
        let mut attributes = Attributes::default();
        attributes.text(&names::SERVICE, NAME);
        attributes.text(&names::SERVICE_VERSION, version);
        attributes.text(&names::ORG, &org.to_string());
        let scope = Scope { name: NAME.into(), version: version.into() };
        let (spans, schema_url) = (Vec::new(), names::SCHEMA_URL.to_owned());
        let scope = ScopeSpans { scope: Some(scope), spans, schema_url: schema_url.clone() }.encode_to_vec();
        let resource = Some(Resource { attributes: attributes.0 });
        let resource = ResourceSpans { resource, scope_spans: Vec::new(), schema_url }.encode_to_vec();
        // Protobuf allows any field order. The spans come last, so that they need not be copied.
        let mut scope_header = Vec::new();
        write_field_header(SCOPE_SPANS_FIELD, scope.len() + self.0.len(), &mut scope_header);
        let mut head = Vec::new();
        let length = resource.len() + scope_header.len() + scope.len() + self.0.len();
        write_field_header(RESOURCE_SPANS_FIELD, length, &mut head);
        head.extend([resource, scope_header, scope].concat());
        (head, self.0)
    }
}

/// Writes the tag and the length of an embedded message.
fn write_field_header(field: u8, length: usize, out: &mut Vec<u8>) {
    const LENGTH_DELIMITED: u8 = 2;
    out.push((field << 3) | LENGTH_DELIMITED);
    let _ = encode_length_delimiter(length, out);
}
