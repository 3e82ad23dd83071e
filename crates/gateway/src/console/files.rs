//! The files of the console, each with the compressed forms that the build left beside it, and how one is sent.

use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};

use super::choose::{Encoding, has_tag, preferred};
use super::response;
use super::walk::walk;

/// Names below `assets/` carry a hash of their content, so what a name once meant it means for ever.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// Asked for anew each time, and answered with 304 while it is the same.
const CHECKED: &str = "no-cache";

#[derive(Debug, PartialEq, Eq)]
pub struct File {
    kind: &'static str,
    caching: &'static str,
    /// Hash of the content, the same for all its forms.
    hash: String,
    forms: Vec<(Encoding, Bytes)>,
}

impl File {
    fn new(name: &str, forms: Vec<(Encoding, Bytes)>) -> Self {
        let plain = forms.iter().find(|(encoding, _)| *encoding == Encoding::Identity);
        let digest = Sha256::digest(plain.map_or(&[][..], |(_, bytes)| bytes));
        Self {
            kind: kind_of(name),
            caching: if name.starts_with("assets/") { FOR_EVER } else { CHECKED },
            hash: hex::encode(&digest[..12]),
            forms,
        }
    }

    /// The form that the caller likes best, or 304 when it has that one.
    pub fn answer(&self, headers: &HeaderMap) -> Response {
        let wanted = preferred(headers, &self.forms);
        let (encoding, bytes) = wanted.map_or((Encoding::Identity, Bytes::new()), Clone::clone);
        let tag = match encoding.name() {
            Some(name) => format!("\"{}-{name}\"", self.hash),
            None => format!("\"{}\"", self.hash),
        };
        let is_known = has_tag(headers, &tag);
        let mut response = if is_known { Response::default() } else { response(bytes) };
        let sent = response.headers_mut();
        sent.insert(CACHE_CONTROL, HeaderValue::from_static(self.caching));
        sent.insert(VARY, HeaderValue::from_static("accept-encoding"));
        // A hash in quotes is always a header value.
        sent.extend(HeaderValue::try_from(tag).ok().map(|tag| (ETAG, tag)));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        sent.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        sent.extend(encoding.name().map(|name| (CONTENT_ENCODING, HeaderValue::from_static(name))));
        response
    }
}

/// The files of a directory by their path there.
pub fn read(directory: &Path) -> io::Result<HashMap<String, Bytes>> {
    walk(directory)?.into_iter().map(|(name, path)| Ok((name, fs::read(path)?.into()))).collect()
}

/// Brings `app.js`, `app.js.br` and `app.js.gz` together as one file.
pub fn pair_up(contents: HashMap<String, Bytes>) -> HashMap<String, File> {
    let mut forms: HashMap<String, Vec<(Encoding, Bytes)>> = HashMap::new();
    for (name, bytes) in contents {
        let (name, encoding) = Encoding::of_file(&name);
        forms.entry(name.to_owned()).or_default().push((encoding, bytes));
    }
    // A compressed form alone is a leftover of a file that the build did not make.
    forms.retain(|_, forms| forms.iter().any(|(encoding, _)| *encoding == Encoding::Identity));
    forms
        .into_iter()
        .map(|(name, mut forms)| {
            forms.sort_by_key(|(encoding, _)| *encoding);
            let file = File::new(&name, forms);
            (name, file)
        })
        .collect()
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}
