//! The one document of the console. It is made anew for every answer, with a nonce that no other has: the policy lets
//! only styles with that nonce in, and no script that is not a file of ours.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};

use super::response;
use crate::problem::{ApiResult, Problem};

/// What the build writes where the nonce belongs.
const PLACEHOLDER: &str = "__CSP_NONCE__";

/// The document, cut where the nonce belongs.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pieces: Vec<String>,
}

impl Page {
    pub fn new(document: &Bytes) -> Self {
        let text = String::from_utf8_lossy(document);
        Self { pieces: text.split(PLACEHOLDER).map(str::to_owned).collect() }
    }

    /// What is served while there is no console.
    pub fn unbuilt() -> Self {
        Self::new(&Bytes::from_static(include_bytes!("unbuilt.html")))
    }

    pub fn answer(&self) -> ApiResult<Response> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(Problem::internal)?;
        let nonce = STANDARD.encode(random);
        let policy = HeaderValue::try_from(policy(&nonce)).map_err(Problem::internal)?;
        let mut response = response(self.pieces.join(&nonce).into());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        Ok(response)
    }
}

/// Nothing is allowed but what is named: our files, our API, and pictures and sound that are part of a message. A form
/// goes nowhere by itself, so that a password never lands in an address.
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; connect-src 'self'; \
         img-src 'self' data: blob:; media-src data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
}
