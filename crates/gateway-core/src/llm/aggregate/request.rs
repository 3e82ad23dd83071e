//! Requests for a stream or for a single body. Only the flag is changed, and every other byte of the request stays.

use crate::json::{ObjectScan, ScanStatus};
use crate::llm::WireFormat;

/// Returns the body with its `stream` flag changed. None if the body can be sent unchanged: the flag is right already,
/// the format has the flag in the path (see `stream_path`), or the body is not an object.
///
/// OpenAI rejects `stream_options` without a stream, so the field is set to null with the flag.
pub fn set_stream(format: WireFormat, body: &[u8], stream: bool) -> Option<Vec<u8>> {
    static KEYS: [&str; 2] = ["stream", "stream_options"];
    if matches!(format, WireFormat::Gemini | WireFormat::Bedrock) {
        return None;
    }
    let scan = ObjectScan::new(&KEYS, body);
    if scan.status() != ScanStatus::Complete {
        return None;
    }
    let value: &[u8] = if stream { b"true" } else { b"false" };
    let mut edits = Vec::new();
    match scan.range("stream") {
        Some(flag) if body.get(flag.clone())? != value => edits.push((flag, value)),
        None if stream => {
            let at = scan.closing()?;
            let field: &[u8] = if scan.has_members() { br#","stream":true"# } else { br#""stream":true"# };
            edits.push((at..at, field));
        }
        _ => {}
    }
    if let Some(options) = scan.range("stream_options").filter(|_| !stream)
        && body.get(options.clone())? != b"null"
    {
        edits.push((options, b"null"));
    }
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut edited = Vec::with_capacity(body.len() + 16);
    let mut from = 0;
    for (range, value) in edits {
        edited.extend_from_slice(body.get(from..range.start)?);
        edited.extend_from_slice(value);
        from = range.end;
    }
    edited.extend_from_slice(body.get(from..)?);
    Some(edited)
}

/// Returns the path for a call with or without a stream, for APIs that decide by path (Gemini, Vertex, Bedrock). None
/// if the path is right already or does not decide.
pub fn stream_path(path_and_query: &str, stream: bool) -> Option<String> {
    const METHODS: [(&str, &str); 4] = [
        (":generateContent", ":streamGenerateContent"),
        (":rawPredict", ":streamRawPredict"),
        ("/converse", "/converse-stream"),
        ("/invoke", "/invoke-with-response-stream"),
    ];
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let (path, slash) = path.strip_suffix('/').map_or((path, ""), |path| (path, "/"));
    let (base, plain, streamed) = METHODS.iter().find_map(|(plain, streamed)| {
        let base = path.strip_suffix(streamed).or_else(|| path.strip_suffix(plain))?;
        Some((base, *plain, *streamed))
    })?;
    let method = if stream { streamed } else { plain };
    let events = method == ":streamGenerateContent";
    // Google streams one large array without `alt=sse`, and rejects `alt=sse` without a stream.
    let google = plain == ":generateContent";
    let kept = query.into_iter().flat_map(|query| query.split('&'));
    let kept = kept.filter(|pair| !(google && (*pair == "alt=sse" || events && pair.starts_with("alt="))));
    let pairs: Vec<&str> = kept.chain(events.then_some("alt=sse")).collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    let changed = format!("{base}{method}{slash}{mark}{}", pairs.join("&"));
    (changed != path_and_query).then_some(changed)
}
