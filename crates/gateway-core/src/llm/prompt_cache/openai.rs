//! Marks in OpenAI's formats: `prompt_cache_breakpoint` in parts of messages. OpenAI marks the final message itself,
//! unless the caller has switched that off.

use std::ops::Range;

use memchr::memmem;

use super::layout::{
    CallersMarks, Layout, Place, has_value, items, latest_items, member, object, text_place,
};

/// One of the four is the one that OpenAI sets itself.
const MAX_MARKS: usize = 3;
const MAX_EXPLICIT_MARKS: usize = 4;
static CHAT: [&str; 3] = ["tools", "messages", "prompt_cache_options"];
static RESPONSES: [&str; 4] = ["tools", "instructions", "input", "prompt_cache_options"];
static MESSAGE: [&str; 2] = ["role", "content"];
static PART: [&str; 3] = ["type", "text", "prompt_cache_breakpoint"];
static MODE: [&str; 1] = ["mode"];

/// Where a body has its parts.
struct Parts {
    head: Vec<Range<usize>>,
    messages: Range<usize>,
    options: Option<Range<usize>>,
}

pub(super) fn chat_layout(body: &[u8]) -> Option<Layout> {
    let scan = object(&CHAT, body, &(0..body.len()))?;
    let head = scan.range("tools").into_iter().collect();
    let (messages, options) = (scan.range("messages")?, scan.range("prompt_cache_options"));
    Some(layout(body, Parts { head, messages, options }))
}

/// Instructions are a plain text that must stay one, so only messages of the input are marked.
pub(super) fn responses_layout(body: &[u8]) -> Option<Layout> {
    let scan = object(&RESPONSES, body, &(0..body.len()))?;
    let head = scan.range("tools").into_iter().chain(scan.range("instructions")).collect();
    let (messages, options) = (scan.range("input")?, scan.range("prompt_cache_options"));
    Some(layout(body, Parts { head, messages, options }))
}

fn layout(body: &[u8], parts: Parts) -> Layout {
    let Parts { mut head, messages, options } = parts;
    let whole_bytes = head.iter().chain([&messages]).map(ExactSizeIterator::len).sum();
    let is_explicit = options.is_some_and(|options| has_value(body, &options, &MODE, br#""explicit""#));
    let leading = items(body, &messages).map_while(|message| {
        let (role, content) = role_and_content(body, &message)?;
        matches!(&body[role], br#""system""# | br#""developer""#).then_some(content)
    });
    let mut system: Option<Range<usize>> = None;
    let mut start = None;
    for content in leading {
        start.get_or_insert(content.start);
        system = Some(content);
    }
    head.extend(start.zip(system.as_ref()).map(|(start, last)| start..last.end));
    let last = items(body, &messages).last().filter(|_| is_explicit);
    let last = last.and_then(|message| role_and_content(body, &message));
    let last = last.filter(|(role, _)| &body[role.clone()] == br#""user""#);
    let mut layout = Layout {
        whole_bytes,
        system: system.and_then(|content| place(body, &content)),
        last: last.and_then(|(_, content)| place(body, &content)),
        max_marks: if is_explicit { MAX_EXPLICIT_MARKS } else { MAX_MARKS },
        head,
        ..Layout::default()
    };
    if memmem::find(body, b"prompt_cache_breakpoint").is_some() {
        let contents = items(body, &messages).filter_map(|message| role_and_content(body, &message));
        for part in contents.flat_map(|(_, content)| items(body, &content)) {
            count(body, &part, &mut layout.marks_behind);
        }
    }
    layout
}

fn role_and_content(body: &[u8], message: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
    let scan = object(&MESSAGE, body, message)?;
    Some((member(&scan, message, "role")?, member(&scan, message, "content")?))
}

/// The last part of a message that can be marked.
fn place(body: &[u8], content: &Range<usize>) -> Option<Place> {
    if let Some(text) = text_place(body, content) {
        return Some(text);
    }
    for part in latest_items(body, content) {
        let scan = object(&PART, body, &part)?;
        let raw = |key| member(&scan, &part, key).map(|range| &body[range]);
        let is_markable = matches!(
            raw("type"),
            Some(
                br#""text""#
                    | br#""image_url""#
                    | br#""input_text""#
                    | br#""input_image""#
                    | br#""input_file""#
            )
        );
        if !is_markable || raw("text").is_some_and(|text| text == br#""""#) {
            continue;
        }
        let is_taken = raw("prompt_cache_breakpoint").is_some();
        return scan.closing().filter(|_| !is_taken).map(|closing| Place::InBlock(part.start + closing));
    }
    None
}

fn count(body: &[u8], part: &Range<usize>, marks: &mut CallersMarks) {
    let mark = object(&PART, body, part).and_then(|scan| member(&scan, part, "prompt_cache_breakpoint"));
    if mark.is_some_and(|mark| &body[mark] != b"null") {
        marks.add(false);
    }
}
