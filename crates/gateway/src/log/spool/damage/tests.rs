//! Tests: whatever bytes of a segment are damaged, every other record is read, in order, exactly once.

use std::ops::Range;

use proptest::prelude::*;

use super::super::record::{encode, read_records};
use super::super::tests::{json_record, row};
use super::*;
use gateway_core::logs::LogRow;

/// How the records of a segment are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// By version 0.1.0.
    Unmarked,
    /// By versions that wrote JSON.
    MarkedJson,
    Marked,
}

fn marker() -> Marker {
    Marker::of(uuid::Uuid::from_u128(0x5e5e_5e5e))
}

fn record(row: &LogRow, form: Form, marker: &Marker) -> Vec<u8> {
    if form != Form::Marked {
        return json_record(row, (form == Form::MarkedJson).then_some(marker));
    }
    let mut start = Vec::new();
    encode(row, marker, &mut start).unwrap();
    [&start[..], &row.request, &row.response].concat()
}

/// Records of different lengths, and where each is.
fn segment(count: i64, form: Form) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for id in 0..count {
        // A body that contains a record of another segment is only a body.
        let body = if id % 3 == 1 { "[1,2,3] ".repeat(20) } else { "x".to_owned() };
        let mut row = row(id, &body);
        if id % 3 == 2 {
            row.request = record(
                &row,
                if form == Form::Unmarked { Form::MarkedJson } else { form },
                &Marker::of(uuid::Uuid::nil()),
            );
        }
        let start = bytes.len();
        bytes.extend_from_slice(&record(&row, form, &marker()));
        spans.push(start..bytes.len());
    }
    (bytes, spans)
}

/// The ids that the writer reads from a closed segment, and the damaged ranges between them.
fn read_all(bytes: &[u8], marker: &Marker) -> (Vec<i64>, Vec<Range<usize>>) {
    let (mut ids, mut damaged, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        let found = read_records(&bytes[at..]);
        ids.extend(found.rows.iter().map(|row| row.id));
        at += usize::try_from(found.length).unwrap();
        if at < bytes.len() {
            let next = next_record(bytes, at, marker).unwrap_or(bytes.len());
            damaged.push(at..next);
            at = next;
        }
    }
    (ids, damaged)
}

#[derive(Clone, Debug)]
enum Damage {
    Flip { at: prop::sample::Index, mask: u8 },
    Zero { at: prop::sample::Index, length: usize },
    Tear { at: prop::sample::Index },
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 1..=255_u8).prop_map(|(at, mask)| Damage::Flip { at, mask }),
        2 => (any::<prop::sample::Index>(), 1..1_500_usize)
            .prop_map(|(at, length)| Damage::Zero { at, length }),
        1 => any::<prop::sample::Index>().prop_map(|at| Damage::Tear { at }),
    ]
}

/// Applies the damage. Returns the range that it touched.
fn apply(bytes: &mut Vec<u8>, damage: &Damage) -> Range<usize> {
    match damage {
        Damage::Flip { at, mask } => {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
            at..at + 1
        }
        Damage::Zero { at, length } => {
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            // Unlike zeros, these bytes are different from what was there.
            bytes[at..end].iter_mut().for_each(|byte| *byte = !*byte);
            at..end
        }
        Damage::Tear { at } => {
            let (at, end) = (at.index(bytes.len()), bytes.len());
            bytes.truncate(at);
            at..end
        }
    }
}

proptest! {
    #[test]
    fn all_undamaged_records_are_read_in_order_exactly_once(
        count in 1..12_i64,
        damages in prop::collection::vec(damage(), 1..4),
        form in prop::sample::select(vec![Form::Unmarked, Form::MarkedJson, Form::Marked]),
    ) {
        let (marker, (mut bytes, spans)) = (marker(), segment(count, form));
        let mut touched = Vec::new();
        for damage in &damages {
            if !bytes.is_empty() {
                touched.push(apply(&mut bytes, damage));
            }
        }
        let is_intact = |span: &Range<usize>| {
            touched.iter().all(|range| range.end <= span.start || span.end <= range.start)
        };
        let expected: Vec<i64> =
            (0_i64..).zip(&spans).filter(|(_, span)| is_intact(span)).map(|(id, _)| id).collect();
        let (ids, damaged) = read_all(&bytes, &marker);
        // Two flips of the same byte may restore it.
        let read: Vec<i64> = ids.iter().copied().filter(|id| expected.contains(id)).collect();
        prop_assert_eq!(&read, &expected);
        prop_assert!(ids.is_sorted_by(|a, b| a < b), "{:?}", ids);
        // Without markers, a record inside of the body of a damaged one may be taken for the next.
        for range in damaged.iter().filter(|_| form != Form::Unmarked) {
            prop_assert!(touched.iter().any(|touched| touched.start <= range.end), "{:?}", range);
        }
    }
}

#[test]
fn a_record_inside_the_body_of_a_torn_record_is_not_read() {
    let marker = marker();
    let mut outer = row(1, "");
    let forged = record(&row(99, "forged"), Form::Unmarked, &marker);
    outer.request = [&forged[..], &[b' '; 100]].concat();
    let mut bytes = record(&outer, Form::Marked, &marker);
    bytes.truncate(bytes.len() - outer.response.len());
    // The disk was full before the response was written.
    let whole = 0..bytes.len();
    assert_eq!(read_all(&bytes, &marker), (Vec::new(), vec![whole]));
}

#[test]
fn a_segment_that_looks_like_many_records_is_given_up_in_time() {
    let marker = marker();
    let mut header = Vec::new();
    for number in [1_u32 << 20, 0, 2, 0] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    header.extend_from_slice(b"{}");
    let bytes = header.repeat((4 << 20) / header.len());
    assert_eq!(next_record(&bytes, 0, &marker), None);
}
