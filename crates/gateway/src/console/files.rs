//! The static files of the console, each with the compressed variants that the build created.

use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};

use super::list_files::list_files;
use super::negotiation::{Encoding, matches_etag, preferred};
use super::response;

/// Names below `assets/` contain a hash of the content, so a file never changes.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// Revalidated on every request.
const REVALIDATE: &str = "no-cache";

#[derive(Debug, PartialEq, Eq)]
pub struct StaticFile {
    content_type: &'static str,
    cache_control: &'static str,
    /// Hash of the uncompressed content.
    hash: String,
    variants: Vec<(Encoding, Bytes)>,
}

impl StaticFile {
    fn new(name: &str, variants: Vec<(Encoding, Bytes)>) -> Self {
        let uncompressed = variants.iter().find(|(encoding, _)| *encoding == Encoding::Identity);
        let digest = Sha256::digest(uncompressed.map_or(&[][..], |(_, bytes)| bytes));
        Self {
            content_type: content_type(name),
            cache_control: cache_control(name),
            hash: hex::encode(&digest[..12]),
            variants,
        }
    }

    /// Responds with the preferred variant, or 304 if the client has it.
    pub fn respond(&self, headers: &HeaderMap) -> Response {
        let variant = preferred(headers, &self.variants);
        let (encoding, bytes) = variant.map_or((Encoding::Identity, Bytes::new()), Clone::clone);
        let tag = match encoding.name() {
            Some(name) => format!("\"{}-{name}\"", self.hash),
            None => format!("\"{}\"", self.hash),
        };
        let is_unchanged = matches_etag(headers, &tag);
        let mut response = if is_unchanged { Response::default() } else { response(bytes) };
        let sent = response.headers_mut();
        sent.insert(CACHE_CONTROL, HeaderValue::from_static(self.cache_control));
        sent.insert(VARY, HeaderValue::from_static("accept-encoding"));
        // A quoted hash is always a valid header value.
        sent.extend(HeaderValue::try_from(tag).ok().map(|tag| (ETAG, tag)));
        if is_unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        sent.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        sent.extend(encoding.name().map(|name| (CONTENT_ENCODING, HeaderValue::from_static(name))));
        response
    }
}

/// Reads the files of a directory, by relative path.
pub fn read(directory: &Path) -> io::Result<HashMap<String, Bytes>> {
    list_files(directory)?.into_iter().map(|(name, path)| Ok((name, fs::read(path)?.into()))).collect()
}

/// Groups `app.js`, `app.js.br` and `app.js.gz` into one file.
pub fn group_variants(contents: HashMap<String, Bytes>) -> HashMap<String, StaticFile> {
    let mut variants: HashMap<String, Vec<(Encoding, Bytes)>> = HashMap::new();
    for (name, bytes) in contents {
        let (name, encoding) = Encoding::of_file(&name);
        variants.entry(name.to_owned()).or_default().push((encoding, bytes));
    }
    // A compressed file without its original is a leftover of an earlier build.
    variants.retain(|_, variants| variants.iter().any(|(encoding, _)| *encoding == Encoding::Identity));
    variants
        .into_iter()
        .map(|(name, mut variants)| {
            variants.sort_by_key(|(encoding, _)| *encoding);
            let file = StaticFile::new(&name, variants);
            (name, file)
        })
        .collect()
}

/// How long a browser may keep a file.
pub fn cache_control(name: &str) -> &'static str {
    if name.starts_with("assets/") { IMMUTABLE } else { REVALIDATE }
}

pub fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "txt" => "text/uncompressed; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}
