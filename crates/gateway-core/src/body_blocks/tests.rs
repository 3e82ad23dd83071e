//! What blocks contain, how bodies are read from them, and damaged bytes.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::logs::first_log_id;
use crate::time::Timestamp;

const NOW: i64 = 1_790_000_000_000;

fn id(millis: i64) -> i64 {
    first_log_id(Timestamp(NOW + millis))
}

fn org(number: u64) -> OrgId {
    OrgId(Uuid::from_u64_pair(1, number))
}

fn row<'a>(id: i64, org: OrgId, request: &'a [u8], response: &'a [u8]) -> RowBodies<'a> {
    RowBodies { id, org, conversation: Conversation::default(), request, response }
}

/// All bodies of the blocks, by row.
fn read_all(blocks: &[BodyBlock]) -> HashMap<i64, Bodies> {
    blocks.iter().flat_map(|block| read_bodies(block.id(), &block.bytes, |_| true).unwrap()).collect()
}

#[test]
fn what_repeats_is_stored_once() {
    let history = "Please summarize the report of the last quarter for the board. ".repeat(30);
    let rows: Vec<_> = (0..8).map(|at| row(id(at), org(1), history.as_bytes(), b"Certainly.")).collect();
    let blocks = blocks_of(rows);
    assert_eq!(blocks.len(), 1);
    assert!(blocks[0].bytes.len() < history.len() / 4, "{}", blocks[0].bytes.len());
}

#[test]
fn a_block_has_rows_of_one_organization_and_of_a_short_time() {
    let bodies = [&b"question"[..], b"answer"];
    let late = 2 * MAX_SPAN;
    let rows = [(0, 1), (1, 2), (2, 1), (late, 1), (late + 1, 1)];
    let blocks = blocks_of(rows.map(|(at, of)| row(id(at), org(of), bodies[0], bodies[1])));
    let mut ids: Vec<Vec<i64>> = blocks.iter().map(|block| block.ids.clone()).collect();
    ids.sort();
    assert_eq!(ids, [vec![id(0), id(2)], vec![id(1)], vec![id(late), id(late + 1)]]);
    assert!(blocks.iter().all(|block| block.last_id == *block.ids.iter().max().unwrap()));
}

#[test]
fn conversations_are_side_by_side_and_the_first_id_is_the_smallest() {
    let body = vec![b'x'; FULL / 2];
    let turn = |at, session| RowBodies {
        conversation: Conversation { session: Some(session), ..Conversation::default() },
        ..row(id(at), org(1), &body, b"")
    };
    let blocks = blocks_of([turn(4, "a"), turn(1, "b"), turn(2, "a"), turn(3, "b")]);
    let ids: Vec<_> = blocks.iter().map(|block| block.ids.clone()).collect();
    assert_eq!(ids, [vec![id(2), id(4)], vec![id(1), id(3)]]);
}

#[test]
fn only_wanted_rows_are_read() {
    let blocks = blocks_of([row(id(0), org(1), b"a", b"b"), row(id(1), org(1), b"c", b"")]);
    let found = read_bodies(blocks[0].id(), &blocks[0].bytes, |row| row == id(1)).unwrap();
    assert_eq!(found, HashMap::from([(id(1), (b"c".to_vec(), Vec::new()))]));
}

#[test]
fn damaged_blocks_are_errors() {
    let text = "some text that is long enough to be compressed ".repeat(20);
    let block = &blocks_of([row(id(0), org(1), text.as_bytes(), b"x")])[0];
    for end in 0..block.bytes.len() {
        assert!(read_bodies(block.id(), &block.bytes[..end], |_| true).is_err(), "cut at {end}");
    }
    let mut huge = vec![ZSTD];
    put_varint(&mut huge, u64::MAX);
    assert!(read_bodies(1, &huge, |_| true).is_err());
    assert!(read_bodies(1, &[9, 0], |_| true).is_err());
}

proptest! {
    #[test]
    fn bodies_are_read_as_they_were_stored(
        rows in prop::collection::btree_map(
            0_i64..3_000_000,
            (0_u64..3, prop::collection::vec(any::<u8>(), 0..4_000), prop::collection::vec(any::<u8>(), 0..40)),
            0..40,
        )
    ) {
        let given = rows.iter().map(|(at, (of, request, response))| row(id(*at), org(*of), request, response));
        let blocks = blocks_of(given);
        let found = read_all(&blocks);
        prop_assert_eq!(found.len(), rows.len());
        for (at, (_, request, response)) in rows {
            prop_assert_eq!(&found[&id(at)], &(request, response));
        }
        let count: usize = blocks.iter().map(|block| block.ids.len()).sum();
        prop_assert_eq!(count, found.len());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_bodies(1, &bytes, |_| true);
        let mut plain = vec![PLAIN];
        put_varint(&mut plain, bytes.len() as u64);
        plain.extend(bytes);
        let _ = read_bodies(1, &plain, |_| true);
    }
}
