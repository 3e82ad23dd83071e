//! Marks in the format of Bedrock's Converse: a `cachePoint` behind the tools, blocks of the system prompt or of a
//! message.

use std::ops::Range;

use memchr::memmem;

use super::layout::{
    CallersMarks, Layout, Parts, Place, content_of, has_value, items, latest_items, member, object,
};

const MAX_MARKS: usize = 4;
static BODY: [&str; 3] = ["toolConfig", "system", "messages"];
static TOOLS: [&str; 1] = ["tools"];
static BLOCK: [&str; 2] = ["cachePoint", "reasoningContent"];
static TTL: [&str; 1] = ["ttl"];

pub(super) fn layout(body: &[u8]) -> Option<Layout> {
    let whole = 0..body.len();
    let scan = object(&BODY, body, &whole)?;
    let messages = scan.range("messages")?;
    let config = scan.range("toolConfig");
    let tools = config.and_then(|config| member(&object(&TOOLS, body, &config)?, &config, "tools"));
    let parts = Parts { tools, system: scan.range("system"), messages: messages.clone() };
    let mut layout = Layout::of(body, parts, MAX_MARKS, place);
    if memmem::find(body, b"cachePoint").is_none() {
        return Some(layout);
    }
    for item in layout.head.iter().flat_map(|list| items(body, list)) {
        count(body, &item, &mut layout.marks_in_head);
    }
    let contents = items(body, &messages).filter_map(|message| content_of(body, &message));
    for block in contents.flat_map(|content| items(body, &content)) {
        count(body, &block, &mut layout.marks_behind);
    }
    Some(layout)
}

/// Behind the last block that is not thinking.
fn place(body: &[u8], list: &Range<usize>) -> Option<Place> {
    for block in latest_items(body, list) {
        let scan = object(&BLOCK, body, &block)?;
        if scan.range("cachePoint").is_some() {
            return None;
        }
        if scan.range("reasoningContent").is_none() {
            return Some(Place::BehindBlock(block.end));
        }
    }
    None
}

fn count(body: &[u8], block: &Range<usize>, marks: &mut CallersMarks) {
    if let Some(point) = object(&BLOCK, body, block).and_then(|scan| member(&scan, block, "cachePoint")) {
        marks.add(has_value(body, &point, &TTL, br#""1h""#));
    }
}
