//! Compression of JSON responses of the management API, for clients that accept it. Event streams and streamed files are
//! sent as they are: a compressor would hold back their first bytes.
//!
//! Credentials are in headers that no other site can make a browser send, so the length of a compressed response tells an
//! attacker nothing about its content.

use std::io::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gateway_core::ids::OrgId;
use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use crate::compute::ComputePool;
use crate::console::Encoding;

/// Shorter responses are sent as they are.
const MIN_BYTES: u64 = 1 << 10;
/// Longer responses are sent as they are. Only files are, and those are streamed.
const MAX_BYTES: u64 = 32 << 20;
/// How long a large response may wait for its compression. It is sent as it is otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Higher qualities take several times as long for a few percent.
const BROTLI_QUALITY: i32 = 4;
const BROTLI_WINDOW_BITS: i32 = 20;

/// The encodings that responses are offered in.
pub const OFFERED: [Encoding; 3] = [Encoding::Brotli, Encoding::Gzip, Encoding::Identity];

/// Compresses a JSON response of more than 1 KiB. Large ones are compressed in the organization's share of computation.
pub async fn compress(
    compute: &ComputePool,
    org: Option<OrgId>,
    encoding: Encoding,
    mut response: Response,
) -> Response {
    if !is_compressible(&response) {
        return response;
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    let Some(name) = encoding.name() else { return response };
    let (mut head, body) = response.into_parts();
    // A body whose size is known is in memory already.
    let Ok(body) = body.collect().await else { return Response::from_parts(head, Body::empty()) };
    let body = body.to_bytes();
    let compressed = match org {
        Some(org) => {
            let bytes = body.clone();
            let work = move || encode(encoding, &bytes);
            compute.run_for_body(org, body.len(), TIMEOUT, work).await.ok().flatten()
        }
        None => encode(encoding, &body),
    };
    let Some(compressed) = compressed.filter(|compressed| compressed.len() < body.len()) else {
        return Response::from_parts(head, Body::from(body));
    };
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    Response::from_parts(head, Body::from(compressed))
}

pub(super) fn is_compressible(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let size = response.body().size_hint().exact();
    content_type.starts_with(b"application/json")
        && !response.headers().contains_key(CONTENT_ENCODING)
        && size.is_some_and(|size| (MIN_BYTES + 1..=MAX_BYTES).contains(&size))
}

fn encode(encoding: Encoding, body: &Bytes) -> Option<Vec<u8>> {
    let mut compressed = Vec::with_capacity(body.len() / 4);
    match encoding {
        Encoding::Brotli => {
            let parameters = BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                lgwin: BROTLI_WINDOW_BITS,
                size_hint: body.len(),
                ..BrotliEncoderParams::default()
            };
            brotli::BrotliCompress(&mut &body[..], &mut compressed, &parameters).ok()?;
        }
        Encoding::Gzip => {
            let mut gzip = GzEncoder::new(&mut compressed, Compression::default());
            gzip.write_all(body).and_then(|()| gzip.finish().map(drop)).ok()?;
        }
        Encoding::Identity => return None,
    }
    Some(compressed)
}
