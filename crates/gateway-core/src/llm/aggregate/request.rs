//! The other half of changing the kind of an answer: asking for it. Only the flag is changed; every other byte of the
//! request stays as the caller sent it.

use crate::json::{ObjectScan, ScanStatus};
use crate::llm::WireFormat;

/// The body with its `stream` flag set or unset. None when it is to be sent as it is: the flag says so already, the
/// format has none in the body (see `stream_path`), or there is no object in which it could be set.
///
/// Without a stream OpenAI refuses `stream_options`, which therefore become null with the flag's end.
pub fn set_stream(format: WireFormat, body: &[u8], stream: bool) -> Option<Vec<u8>> {
    static KEYS: [&str; 2] = ["stream", "stream_options"];
    if matches!(format, WireFormat::Gemini | WireFormat::Bedrock) {
        return None;
    }
    let scan = ObjectScan::new(&KEYS, body);
    if scan.status() != ScanStatus::Complete {
        return None;
    }
    let word: &[u8] = if stream { b"true" } else { b"false" };
    let mut edits = Vec::new();
    match scan.range("stream") {
        Some(flag) if body.get(flag.clone())? != word => edits.push((flag, word)),
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
    edits.sort_by_key(|(place, _)| place.start);
    let mut edited = Vec::with_capacity(body.len() + 16);
    let mut from = 0;
    for (place, value) in edits {
        edited.extend_from_slice(body.get(from..place.start)?);
        edited.extend_from_slice(value);
        from = place.end;
    }
    edited.extend_from_slice(body.get(from..)?);
    Some(edited)
}

/// The same call with or without a stream, where the path and not the body asks for it (Gemini, Vertex, Bedrock).
/// None when it is to be sent as it is: it asks for that already, or its path has no say in the matter.
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
    // Google streams one large array unless `alt` says otherwise, and refuses `alt=sse` without a stream.
    let google = plain == ":generateContent";
    let kept = query.into_iter().flat_map(|query| query.split('&'));
    let kept = kept.filter(|pair| !(google && (*pair == "alt=sse" || events && pair.starts_with("alt="))));
    let pairs: Vec<&str> = kept.chain(events.then_some("alt=sse")).collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    let changed = format!("{base}{method}{slash}{mark}{}", pairs.join("&"));
    (changed != path_and_query).then_some(changed)
}
