//! Streams with every line end and any chunking.

use proptest::prelude::*;

use super::*;

#[derive(Debug, PartialEq, Eq, Clone)]
enum Seen {
    Event(Option<String>, String),
    Overlong,
}

const SMALL: EventLimits = EventLimits { line: 24, event: 40 };

fn seen(item: EventItem<'_>) -> Seen {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match item {
        EventItem::Event(Event { event, data }) => Seen::Event(event.map(text), text(data)),
        EventItem::Overlong => Seen::Overlong,
    }
}

fn read(chunks: &[&[u8]], limits: EventLimits) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut events = EventReader::new(limits);
    for chunk in chunks {
        events.feed(chunk, |item| all.push(seen(item)));
    }
    events.finish(|item| all.push(seen(item)));
    all
}

fn filtered(chunks: &[&[u8]], limits: EventLimits) -> Vec<u8> {
    let mut out = Vec::new();
    let mut filter = EventFilter::new(limits);
    let hide = |event: &Event<'_>| memchr::memchr(b'x', event.data).is_some();
    for chunk in chunks {
        out.extend(filter.feed(chunk, hide).concat(chunk));
    }
    out.extend(filter.finish(hide));
    out
}

fn event(data: &str) -> Seen {
    Seen::Event(None, data.to_owned())
}

#[test]
fn every_line_end_separates_events() {
    for stream in ["data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r"] {
        assert_eq!(read(&[stream.as_bytes()], EventLimits::READ), [event("a"), event("b")], "{stream:?}");
    }
}

#[test]
fn the_space_after_the_colon_is_optional_and_only_one_is_taken() {
    assert_eq!(
        read(&[b"data:a\n\ndata:  b\n\ndata\n\n"], EventLimits::READ),
        [event("a"), event(" b"), event("")]
    );
}

#[test]
fn data_lines_are_joined_and_other_fields_are_skipped() {
    let stream = b"\xEF\xBB\xBF: note\nid: 7\nretry: 10\nevent: delta\ndata: {\ndata: }\ndatum: no\n\n";
    assert_eq!(read(&[stream], EventLimits::READ), [Seen::Event(Some("delta".into()), "{\n}".into())]);
}

#[test]
fn a_block_without_data_is_no_event() {
    assert_eq!(read(&[b": ping\n\nevent: ping\n\n\n\n\ndata: a\n\n"], EventLimits::READ), [event("a")]);
}

#[test]
fn the_last_event_counts_without_its_blank_line() {
    assert_eq!(read(&[b"data: a\n\ndata: [DO", b"NE]"], EventLimits::READ), [event("a"), event("[DONE]")]);
}

#[test]
fn a_character_cut_in_two_is_put_together_again() {
    let stream = "data: é\n\n".as_bytes();
    assert_eq!(read(&[&stream[..7], &stream[7..]], EventLimits::READ), [event("é")]);
}

#[test]
fn an_event_inside_one_chunk_is_not_copied() {
    let chunk = b"data: hello\n\n";
    EventReader::new(EventLimits::READ).feed(chunk, |item| match item {
        EventItem::Event(event) => assert!(chunk.as_ptr_range().contains(&event.data.as_ptr())),
        EventItem::Overlong => panic!("not overlong"),
    });
}

#[test]
fn overlong_events_are_named_and_never_kept() {
    let long = format!("data: {}\n\n", "y".repeat(4096));
    let mut events = EventReader::new(SMALL);
    let mut all = Vec::new();
    for byte in long.as_bytes() {
        events.feed(std::slice::from_ref(byte), |item| all.push(seen(item)));
        assert!(events.buffered.len() <= SMALL.event);
    }
    events.feed(b"data: a\n\n", |item| all.push(seen(item)));
    assert_eq!(all, [Seen::Overlong, event("a")]);
}

#[test]
fn a_long_event_of_short_lines_is_overlong_too() {
    let stream = "data: 12345678\n".repeat(4) + "\n";
    assert_eq!(read(&[stream.as_bytes()], SMALL), [Seen::Overlong]);
}

#[test]
fn filtering_removes_one_event_and_keeps_every_other_byte() {
    let stream = b"data: a\n\n: note\n\ndata: x1\n\ndata: [DONE]\n\n";
    assert_eq!(filtered(&[stream], EventLimits::FILTER), b"data: a\n\n: note\n\ndata: [DONE]\n\n");
}

#[test]
fn a_chunk_without_removed_events_is_forwarded_as_one_range() {
    let chunk = b"data: a\n\ndata: b\n\n";
    let released = EventFilter::new(EventLimits::FILTER).feed(chunk, |_| false);
    assert!(released.buffered.is_empty());
    assert_eq!(released.ranges, std::iter::once(0..chunk.len()).collect::<Vec<_>>());
}

#[test]
fn the_line_feed_of_a_removed_event_is_removed_with_it() {
    let stream: [&[u8]; 3] = [b"data: x\r\n\r", b"\ndata: b\r\n\r", b"\n"];
    assert_eq!(filtered(&stream, EventLimits::FILTER), b"data: b\r\n\r\n");
}

#[test]
fn an_event_over_the_limits_is_forwarded_at_once() {
    let mut filter = EventFilter::new(SMALL);
    let chunk = "data: x".to_owned() + &"y".repeat(50);
    let released = filter.feed(chunk.as_bytes(), |_| true);
    assert_eq!(released.concat(chunk.as_bytes()), chunk.as_bytes());
    let rest = b"z\n\ndata: x\n\n";
    assert_eq!(filter.feed(rest, |_| true).concat(rest), b"z\n\n");
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("data: a\n\n"),
        Just("data:x\r\n\r\n"),
        Just("event: e\rdata: é\r\r"),
        Just("data: x\n"),
        Just("\n"),
        Just("\r"),
        Just(": note\n"),
        Just("data: a very long line of text\n\n"),
        Just("\u{feff}"),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes())
}

fn cut<'a>(bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    let mut rest = bytes;
    for size in sizes {
        let (chunk, after) = rest.split_at((*size).min(rest.len()));
        chunks.push(chunk);
        rest = after;
    }
    chunks.push(rest);
    chunks
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(stream in stream(), sizes in proptest::collection::vec(0usize..9, 0..40)) {
        for limits in [SMALL, EventLimits::READ] {
            prop_assert_eq!(read(&cut(&stream, &sizes), limits), read(&[&stream], limits));
        }
    }

    #[test]
    fn any_chunking_gives_the_same_output(stream in stream(), sizes in proptest::collection::vec(0usize..9, 0..40)) {
        for limits in [SMALL, EventLimits::FILTER] {
            prop_assert_eq!(filtered(&cut(&stream, &sizes), limits), filtered(&[&stream], limits));
        }
    }

    #[test]
    fn arbitrary_bytes_pass_a_filter_that_removes_nothing(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        sizes in proptest::collection::vec(0usize..20, 0..20),
    ) {
        let mut out = Vec::new();
        let mut filter = EventFilter::new(SMALL);
        for chunk in cut(&bytes, &sizes) {
            out.extend(filter.feed(chunk, |_| false).concat(chunk));
        }
        out.extend(filter.finish(|_| false));
        prop_assert_eq!(out, bytes);
    }
}
