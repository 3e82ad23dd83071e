//! The request that spans leave in, as bytes.

use prost::{Message as _, encode_length_delimiter};

use super::encode::Attributes;
use super::names;
use super::proto::{Resource, ResourceSpans, Scope, ScopeSpans, Span};
use crate::ids::OrgId;

/// The name under which the gateway appears.
const NAME: &str = "gateway";
/// Fields of the messages around spans.
const RESOURCE_SPANS: u8 = 1;
const SCOPE_SPANS: u8 = 2;
const SPANS: u8 = 2;

/// A request to a destination that grows span by span, as bytes: spans of many rows are never in memory as such.
#[derive(Default)]
pub struct Batch(Vec<u8>);

impl Batch {
    pub fn add(&mut self, span: &Span) {
        begin(SPANS, span.encoded_len(), &mut self.0);
        // Only a buffer that cannot grow has no room.
        let _ = span.encode(&mut self.0);
    }

    /// The beginning of the message, which tells how long it is and who sends it, and the spans that follow.
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
        // Fields of a message may stand in any order: what is long comes last, and is not copied.
        let mut inner = Vec::new();
        begin(SCOPE_SPANS, scope.len() + self.0.len(), &mut inner);
        let mut head = Vec::new();
        begin(RESOURCE_SPANS, resource.len() + inner.len() + scope.len() + self.0.len(), &mut head);
        head.extend([resource, inner, scope].concat());
        (head, self.0)
    }
}

/// The beginning of a message inside another: which field it is, with the kind of all messages (2), and its length.
fn begin(field: u8, length: usize, out: &mut Vec<u8>) {
    out.push((field << 3) | 2);
    let _ = encode_length_delimiter(length, out);
}
