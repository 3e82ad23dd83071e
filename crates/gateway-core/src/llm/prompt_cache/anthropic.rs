//! Marks in Anthropic's format: `cache_control` in blocks of tools, system prompt and messages, or once for the whole
//! request.

use std::ops::Range;

use memchr::memmem;

use super::layout::{
    CallersMarks, Layout, Parts, Place, content_of, has_value, items, latest_items, member, object,
    text_place,
};

const MAX_MARKS: usize = 4;
static BODY: [&str; 4] = ["cache_control", "tools", "system", "messages"];
static BLOCK: [&str; 4] = ["type", "text", "cache_control", "content"];
static TTL: [&str; 1] = ["ttl"];

pub(super) fn layout(body: &[u8]) -> Option<Layout> {
    let whole = 0..body.len();
    let scan = object(&BODY, body, &whole)?;
    let messages = scan.range("messages")?;
    let parts =
        Parts { tools: scan.range("tools"), system: scan.range("system"), messages: messages.clone() };
    let mut layout = Layout::of(body, parts, MAX_MARKS, place);
    if memmem::find(body, b"cache_control").is_none() {
        return Some(layout);
    }
    for item in layout.head.iter().flat_map(|list| items(body, list)) {
        count(body, &item, &mut layout.marks_in_head);
    }
    let contents = items(body, &messages).filter_map(|message| content_of(body, &message));
    for block in contents.flat_map(|content| items(body, &content)) {
        count(body, &block, &mut layout.marks_behind);
        let nested = object(&BLOCK, body, &block).and_then(|scan| member(&scan, &block, "content"));
        for part in nested.into_iter().flat_map(|content| items(body, &content)) {
            count(body, &part, &mut layout.marks_behind);
        }
    }
    // A mark of the whole request stands at its last block.
    if let Some(mark) = scan.range("cache_control").filter(|mark| !is_null(body, mark)) {
        layout.marks_behind.add(is_long(body, &mark));
        layout.last = None;
    }
    Some(layout)
}

/// The end of a system prompt or of a message. The provider refuses marks in thinking and in empty text.
fn place(body: &[u8], value: &Range<usize>) -> Option<Place> {
    if let Some(text) = text_place(body, value) {
        return Some(text);
    }
    for block in latest_items(body, value) {
        let scan = object(&BLOCK, body, &block)?;
        let raw = |key| member(&scan, &block, key).map(|range| &body[range]);
        let is_thinking = matches!(raw("type"), Some(br#""thinking""# | br#""redacted_thinking""#));
        if is_thinking || raw("text").is_some_and(|text| text == br#""""#) {
            continue;
        }
        let is_taken = raw("cache_control").is_some();
        return scan.closing().filter(|_| !is_taken).map(|closing| Place::InBlock(block.start + closing));
    }
    None
}

fn count(body: &[u8], block: &Range<usize>, marks: &mut CallersMarks) {
    let mark = object(&BLOCK, body, block).and_then(|scan| member(&scan, block, "cache_control"));
    if let Some(mark) = mark.filter(|mark| !is_null(body, mark)) {
        marks.add(is_long(body, &mark));
    }
}

fn is_null(body: &[u8], value: &Range<usize>) -> bool {
    &body[value.clone()] == b"null"
}

fn is_long(body: &[u8], mark: &Range<usize>) -> bool {
    has_value(body, mark, &TTL, br#""1h""#)
}
