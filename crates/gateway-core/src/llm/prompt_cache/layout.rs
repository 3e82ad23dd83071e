//! Where the marks of a body stand, and where more can be put.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

use super::{MarkFormat, PromptCache, PromptCacheTtl, anthropic, bedrock, models, openai};
use crate::json::{ObjectScan, ScanStatus, array_items};
use crate::llm::estimate::estimate_from_chars;

/// Blocks at the end of a list in which one that can be marked is searched.
const SEARCHED_BLOCKS: usize = 8;

/// The provider's body of a request, read as far as marks need it.
#[derive(Debug)]
pub struct CacheablePrompt<'a> {
    body: &'a [u8],
    format: MarkFormat,
    layout: Layout,
}

/// A body with marks of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    pub body: Vec<u8>,
    /// How many marks the gateway has added.
    pub marks: u32,
}

#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Tools and system prompt, with which every call of a conversation begins.
    pub head: Vec<Range<usize>>,
    /// The length of the head and everything behind it.
    pub whole_bytes: usize,
    /// The caller's marks in the head, and behind it.
    pub marks_in_head: CallersMarks,
    pub marks_behind: CallersMarks,
    /// The end of the system prompt. None if it cannot be marked, or the caller has marked it.
    pub system: Option<Place>,
    /// The end of the final message, likewise.
    pub last: Option<Place>,
    pub max_marks: usize,
}

/// The parts of a body that marks stand in.
pub(super) struct Parts {
    pub tools: Option<Range<usize>>,
    pub system: Option<Range<usize>>,
    pub messages: Range<usize>,
}

impl Layout {
    /// The layout of a body without marks of the caller. `place` finds the end of a system prompt or of a message.
    pub(super) fn of(
        body: &[u8],
        parts: Parts,
        max_marks: usize,
        place: fn(&[u8], &Range<usize>) -> Option<Place>,
    ) -> Self {
        let Parts { tools, system, messages } = parts;
        let last = items(body, &messages).last().and_then(|message| content_of(body, &message));
        let head: Vec<Range<usize>> = tools.into_iter().chain(system.clone()).collect();
        Self {
            whole_bytes: head.iter().chain([&messages]).map(ExactSizeIterator::len).sum(),
            system: system.and_then(|system| place(body, &system)),
            last: last.and_then(|content| place(body, &content)),
            max_marks,
            head,
            ..Self::default()
        }
    }
}

/// The content of a message.
pub(super) fn content_of(body: &[u8], message: &Range<usize>) -> Option<Range<usize>> {
    static MESSAGE: [&str; 1] = ["content"];
    member(&object(&MESSAGE, body, message)?, message, "content")
}

#[derive(Debug, Default)]
pub(super) struct CallersMarks {
    pub count: usize,
    /// One of them keeps its entry for five minutes, or for an hour.
    pub has_short: bool,
    pub has_long: bool,
}

impl CallersMarks {
    pub(super) fn add(&mut self, is_long: bool) {
        self.count += 1;
        self.has_long |= is_long;
        self.has_short |= !is_long;
    }
}

/// A place for a mark.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the block with the closing brace at this offset.
    InBlock(usize),
    /// Behind the block that ends at this offset.
    BehindBlock(usize),
    /// A plain text, which becomes a block.
    Text(Range<usize>),
}

impl<'a> CacheablePrompt<'a> {
    /// Reads a body. None if it is not a JSON object with messages.
    pub fn read(format: MarkFormat, body: &'a [u8]) -> Option<Self> {
        let layout = match format {
            MarkFormat::Anthropic => anthropic::layout(body),
            MarkFormat::Bedrock => bedrock::layout(body),
            MarkFormat::OpenAiChat => openai::chat_layout(body),
            MarkFormat::OpenAiResponses => openai::responses_layout(body),
        }?;
        Some(Self { body, format, layout })
    }

    /// Identifies the bytes of tools and system prompt.
    pub fn head_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for range in &self.layout.head {
            hasher.write_usize(range.len());
            hasher.write(self.body.get(range.clone()).unwrap_or_default());
        }
        hasher.finish()
    }

    /// The body with marks where they pay. None if there is no place for one.
    pub fn marked(&self, setting: &PromptCache, model: &str) -> Option<Marked> {
        let support = models::support(self.format, model)?;
        let minimum = setting.min_tokens.max(support.min_tokens);
        let Layout { head, whole_bytes, marks_in_head, marks_behind, system, last, max_marks } = &self.layout;
        let is_long_enough = |bytes: usize| estimate_from_chars(bytes as u64) >= minimum;
        let head_bytes: usize = head.iter().map(ExactSizeIterator::len).sum();
        // An entry of an hour must come before those of five minutes.
        let is_long = marks_behind.has_long
            || (setting.ttl == PromptCacheTtl::OneHour && support.has_hour && !marks_in_head.has_short);
        let last = last.as_ref().filter(|_| is_long_enough(*whole_bytes)).map(|place| (place, false));
        let system = system.as_ref().filter(|_| is_long_enough(head_bytes)).map(|place| (place, is_long));
        let free = max_marks.saturating_sub(marks_in_head.count + marks_behind.count);
        let mut insertions = Vec::with_capacity(4);
        let mut marks = 0;
        // If there is room for one, the final message is worth more: its prefix has everything.
        for (place, is_long) in last.into_iter().chain(system).take(free) {
            self.insert(place, is_long, &mut insertions);
            marks += 1;
        }
        (marks > 0).then(|| Marked { body: with_insertions(self.body, insertions), marks })
    }

    fn insert(&self, place: &Place, is_long: bool, insertions: &mut Vec<(usize, Cow<'static, str>)>) {
        let mark = mark(self.format, is_long);
        match place {
            Place::InBlock(at) | Place::BehindBlock(at) => insertions.push((*at, mark.into())),
            Place::Text(text) => {
                let kind = if self.format == MarkFormat::OpenAiResponses { "input_text" } else { "text" };
                insertions.push((text.start, format!(r#"[{{"type":"{kind}","text":"#).into()));
                insertions.push((text.end, format!("{mark}}}]").into()));
            }
        }
    }
}

/// A mark as it is inserted.
fn mark(format: MarkFormat, is_long: bool) -> &'static str {
    match (format, is_long) {
        (MarkFormat::Anthropic, false) => r#","cache_control":{"type":"ephemeral"}"#,
        (MarkFormat::Anthropic, true) => r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        (MarkFormat::Bedrock, false) => r#",{"cachePoint":{"type":"default"}}"#,
        (MarkFormat::Bedrock, true) => r#",{"cachePoint":{"type":"default","ttl":"1h"}}"#,
        (MarkFormat::OpenAiChat | MarkFormat::OpenAiResponses, _) => {
            r#","prompt_cache_breakpoint":{"mode":"explicit"}"#
        }
    }
}

fn with_insertions(body: &[u8], mut insertions: Vec<(usize, Cow<'static, str>)>) -> Vec<u8> {
    insertions.sort_by_key(|(at, _)| *at);
    let added: usize = insertions.iter().map(|(_, text)| text.len()).sum();
    let mut edited = Vec::with_capacity(body.len() + added);
    let mut from = 0;
    for (at, text) in insertions {
        edited.extend_from_slice(&body[from..at]);
        edited.extend_from_slice(text.as_bytes());
        from = at;
    }
    edited.extend_from_slice(&body[from..]);
    edited
}

/// The items of an array in the body.
pub(super) fn items<'a>(
    body: &'a [u8],
    array: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<'a> {
    let start = array.start;
    let text = body.get(array.clone()).unwrap_or_default();
    array_items(text).map(move |item| start + item.start..start + item.end)
}

/// The last items of an array, the last one first.
pub(super) fn latest_items(body: &[u8], array: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut latest = VecDeque::with_capacity(SEARCHED_BLOCKS + 1);
    for item in items(body, array) {
        latest.push_front(item);
        latest.truncate(SEARCHED_BLOCKS);
    }
    latest.into_iter()
}

/// A plain text that can become a block with a mark. An empty one cannot.
pub(super) fn text_place(body: &[u8], value: &Range<usize>) -> Option<Place> {
    let is_text = body.get(value.start) == Some(&b'"') && value.len() > 2;
    is_text.then(|| Place::Text(value.clone()))
}

/// Scans a complete object of the body.
pub(super) fn object<'a, const N: usize>(
    keys: &'static [&'static str; N],
    body: &'a [u8],
    range: &Range<usize>,
) -> Option<ObjectScan<'a, N>> {
    let scan = ObjectScan::new(keys, body.get(range.clone())?);
    (scan.status() == ScanStatus::Complete).then_some(scan)
}

/// A member of an object that `object` scanned, as a range of the body.
pub(super) fn member<const N: usize>(
    scan: &ObjectScan<'_, N>,
    object: &Range<usize>,
    key: &str,
) -> Option<Range<usize>> {
    let range = scan.range(key)?;
    Some(object.start + range.start..object.start + range.end)
}

/// Whether the object at this range has `key` with this raw value.
pub(super) fn has_value(
    body: &[u8],
    object_at: &Range<usize>,
    key: &'static [&'static str; 1],
    raw: &[u8],
) -> bool {
    object(key, body, object_at)
        .and_then(|scan| member(&scan, object_at, key[0]))
        .is_some_and(|value| &body[value] == raw)
}
