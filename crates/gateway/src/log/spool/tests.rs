//! Tests: spooled rows are read back, torn records are skipped, and the limits hold.

use super::record::read_record;
use super::*;
use gateway_core::ids::OrgId;
use gateway_core::logs::LogSource;
use gateway_core::time::Timestamp;

pub(crate) fn row(id: i64, body: &str) -> LogRow {
    LogRow {
        request_id: format!("request-{id}"),
        provider: "openai".into(),
        model: Some("gpt-4o".into()),
        path: "/v1/chat/completions".into(),
        latency_ms: 12,
        cost_usd: Some("0.000125".parse().unwrap()),
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: body.as_bytes().to_vec(),
        response: format!("answer to {body}").into_bytes(),
        ..LogRow::new(id, OrgId(uuid::Uuid::nil()), Timestamp(1_794_700_000_000), LogSource::Proxy)
    }
}

/// A record of an earlier version of a row that `row` made: with the marker, or without as version 0.1.0 wrote it.
pub(crate) fn json_record(row: &LogRow, marker: Option<&Marker>) -> Vec<u8> {
    let start = marker.map_or("{".into(), |marker| String::from_utf8_lossy(marker.json()) + ",");
    let meta = format!(
        r#"{start}"id":{},"org_id":"{}","request_id":"{}","created_at":"{}","level":"info","source":"proxy",
        "provider":"openai","model":"gpt-4o","method":"POST","path":"/v1/chat/completions","status":200,"stream":false,
        "latency_ms":12,"usage_estimated":false,"cost_usd":"0.000125","unpriced":false,"attempts":[],"metadata":{{}},
        "request_stored":"full","response_stored":"full","response_is_stream":false}}"#,
        row.id, row.org_id, row.request_id, row.created_at,
    );
    let number = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
    let body =
        [&number(meta.len()), &number(row.request.len())[..], meta.as_bytes(), &row.request, &row.response];
    let body = body.concat();
    [&number(body.len())[..], &crc32fast::hash(&body).to_le_bytes(), &body].concat()
}

fn spool(limit: u64) -> (tempfile::TempDir, Spool) {
    let directory = tempfile::tempdir().unwrap();
    let spool = Spool::open(directory.path().to_owned(), 2, limit).unwrap();
    (directory, spool)
}

fn everything(directory: &Path) -> Vec<LogRow> {
    let mut rows = Vec::new();
    for path in segment_paths(directory).unwrap() {
        rows.extend(read_records(&std::fs::read(path).unwrap()).rows);
    }
    rows
}

#[test]
fn appended_rows_are_read_back_with_their_bodies() {
    let (directory, spool) = spool(1 << 20);
    for id in 0..10 {
        spool.append(usize::try_from(id % 2).unwrap(), row(id, &format!("question {id}")));
    }
    let mut rows = everything(directory.path());
    rows.sort_by_key(|row| row.id);
    assert_eq!(rows, (0..10).map(|id| row(id, &format!("question {id}"))).collect::<Vec<_>>());
}

#[test]
fn a_torn_or_damaged_record_spoils_nothing_before_it_and_is_found_when_the_segment_is_closed() {
    let (directory, spool) = spool(1 << 20);
    spool.append(0, row(1, "first"));
    spool.append(0, row(2, "second"));
    let path = segment_paths(directory.path()).unwrap().remove(0);
    let whole = std::fs::read(&path).unwrap();
    let first = read_record(&whole).unwrap().length;
    let at = first as u64;
    for cut in first..whole.len() {
        let found = read_records(&whole[..cut]);
        assert_eq!((found.length, found.rows.len(), found.rows[0].id), (at, 1, 1));
    }
    let mut damaged = whole.clone();
    damaged[first + 40] ^= 1;
    assert_eq!(read_records(&damaged).length, at);

    // The second record may still be written, but not if the segment is closed or another record follows.
    let torn = (whole.len() - first - 1) as u64;
    let segment = |is_open| SegmentFile { path: path.clone(), is_open, length: whole.len() as u64 };
    let damaged_length = |is_open, at| spool.set_aside_damage(&segment(is_open), at, u64::MAX).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(damaged_length(true, at), 0);
    assert_eq!(damaged_length(false, at), torn);
    std::fs::write(&path, [&damaged, &whole[..]].concat()).unwrap();
    assert_eq!(damaged_length(true, at), torn + 1);
    assert_eq!(damaged_length(false, 2 * whole.len() as u64), 0);
    assert_eq!(spool.set_aside.damaged(), 2);
}

#[test]
fn records_of_earlier_versions_are_read_beside_those_of_this_one() {
    let marker = Marker::of(uuid::Uuid::from_u128(5));
    let rows: Vec<LogRow> = (1..=3).map(|id| row(id, "question")).collect();
    let mut newest = Vec::new();
    record::encode(&rows[2], &marker, &mut newest).unwrap();
    let newest = [&newest[..], &rows[2].request, &rows[2].response].concat();
    let segment = [json_record(&rows[0], None), json_record(&rows[1], Some(&marker)), newest].concat();
    let found = read_records(&segment);
    assert_eq!((found.rows, found.length), (rows, segment.len() as u64));
}

#[test]
fn an_intact_record_that_this_version_cannot_read_is_kept_apart() {
    let record_of = |id: i64, level: &str| {
        let record = json_record(&row(id, "x"), None);
        let body = String::from_utf8_lossy(&record[16..]).replace(r#""level":"info""#, level);
        let length = u32::try_from(body.len()).unwrap();
        let meta = length - u32::try_from("x".len() + "answer to x".len()).unwrap();
        let body = [&meta.to_le_bytes()[..], &1_u32.to_le_bytes(), body.as_bytes()].concat();
        [&(length + 8).to_le_bytes()[..], &crc32fast::hash(&body).to_le_bytes(), &body].concat()
    };
    let info = r#""level":"info""#;
    let bytes =
        [record_of(1, info), record_of(2, r#""level":"from the future""#), record_of(3, info)].concat();
    let found = read_records(&bytes);
    assert_eq!(found.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((found.unreadable.len(), found.length), (1, bytes.len() as u64));
    assert!(String::from_utf8_lossy(&found.unreadable[0]).contains("from the future"));
}

#[test]
fn a_record_of_a_later_version_is_kept_apart() {
    let (mut record, marker) = (Vec::new(), Marker::of(uuid::Uuid::from_u128(5)));
    let row = row(1, "");
    record::encode(&row, &marker, &mut record).unwrap();
    record.extend_from_slice(&row.response);
    let version_at = record::META_AT + marker.bytes().len();
    record[version_at] += 1;
    let crc = crc32fast::hash(&record[8..]).to_le_bytes();
    record[4..8].copy_from_slice(&crc);
    let found = read_records(&record);
    assert_eq!((found.rows.len(), found.unreadable.len()), (0, 1));
}

#[test]
fn a_full_segment_is_open_until_its_last_row_is_kept_in_memory() {
    let (directory, spool) = spool(1 << 30);
    let mut lane = spool.lanes[0].lock().unwrap();
    let big = row(1, &"x".repeat(1 << 20));
    let mut end = 0;
    while end < SEGMENT_BYTES {
        end = spool.write(0, &mut lane, &big).unwrap().end;
        assert!(spool.segments().unwrap()[0].is_open);
    }
    drop(lane);
    spool.append(0, row(2, "last"));
    assert!(!spool.segments().unwrap()[0].is_open);
    let segments = segment_paths(directory.path()).unwrap();
    assert!(
        matches!(spool.take_recent(&segments[0], end, (9, u64::MAX)), RecentRows::Rows(rows, _) if rows[0].id == 2)
    );
}

#[test]
fn above_the_limit_bodies_are_shed_first_and_rows_last() {
    let (directory, spool) = spool(2_000);
    for id in 0..100 {
        spool.append(0, row(id, &"x".repeat(500)));
    }
    let rows = everything(directory.path());
    assert_eq!(rows[0].request_stored, BodyStorage::Full);
    assert!(
        rows.last().unwrap().request_stored == BodyStorage::Off && rows.last().unwrap().request.is_empty()
    );
    let (bodies, lost) = (spool.shed_bodies.load(Ordering::Relaxed), spool.shed_rows.load(Ordering::Relaxed));
    assert_eq!(rows.iter().filter(|row| row.request_stored == BodyStorage::Off).count() as u64, bodies);
    assert_eq!(rows.len() as u64 + lost, 100);
    assert!(!spool.is_healthy());
    spool.mark_stored(spool.backlog());
    assert!(spool.is_healthy());
}

/// The rows of an organization whose bodies were kept, and their bytes.
fn kept_bodies(directory: &Path, org: OrgId) -> (usize, u64) {
    let rows = everything(directory);
    let of_org = rows.iter().filter(|row| row.org_id == org && row.request_stored == BodyStorage::Full);
    of_org.fold((0, 0), |(count, bytes), row| (count + 1, bytes + body_bytes(row)))
}

#[test]
fn an_organization_alone_fills_the_spool_and_the_next_one_still_keeps_its_bodies() {
    let (directory, spool) = spool(100_000);
    let [flooding, other] = [1, 2].map(|number| OrgId(uuid::Uuid::from_u128(number)));
    let append = |org, id: i64, length: usize| {
        spool.append(0, LogRow { org_id: org, ..row(id, &"x".repeat(length)) });
    };
    let mut id = 0;
    while spool.shed_bodies.load(Ordering::Relaxed) == 0 {
        append(flooding, id, 1_000);
        id += 1;
    }
    // The rows take some of it beside their bodies. What is left is enough for rows without bodies: a node is not
    // unhealthy because of one organization.
    assert!((83_000..90_000).contains(&spool.backlog()), "{}", spool.backlog());
    assert!(spool.is_healthy());
    let (count, bytes) = kept_bodies(directory.path(), flooding);
    assert_eq!(count + 1, usize::try_from(id).unwrap());
    (id..id + 2).for_each(|id| append(other, id, 500));
    assert_eq!(kept_bodies(directory.path(), other).0, 2);
    // With two, the share of the first one binds: it gets nothing while it has so much more.
    spool.mark_stored(10_000);
    spool.mark_stored_of(flooding, 10_000);
    append(flooding, id + 2, 1_000);
    assert_eq!(kept_bodies(directory.path(), flooding), (count, bytes));
    append(other, id + 3, 500);
    assert_eq!(kept_bodies(directory.path(), other).0, 3);
    // Alone again, it may fill the spool again.
    let others = spool.org_bytes.of(other);
    spool.mark_stored(others);
    spool.mark_stored_of(other, others);
    append(flooding, id + 4, 1_000);
    assert_eq!(kept_bodies(directory.path(), flooding).0, count + 1);
}

#[test]
fn the_bodies_of_an_organization_with_most_of_the_spool_are_shed_first() {
    let (directory, spool) = spool(100_000);
    let [flooding, other] = [1, 2].map(|number| OrgId(uuid::Uuid::from_u128(number)));
    let append = |org, id: i64, length: usize| {
        spool.append(0, LogRow { org_id: org, ..row(id, &"x".repeat(length)) });
    };
    append(other, 0, 500);
    (1..46).for_each(|id| append(flooding, id, 1_000));
    (46..50).for_each(|id| append(other, id, 500));
    assert!(spool.backlog() < spool.limit(), "{}: the spool is not full", spool.backlog());
    assert_eq!(kept_bodies(directory.path(), other).0, 5);
    let (count, kept) = kept_bodies(directory.path(), flooding);
    assert!((50_000..75_000).contains(&kept), "{kept}");
    assert_eq!(spool.shed_bodies.load(Ordering::Relaxed), 45 - count as u64);
    // What is stored makes room.
    let stored = spool.org_bytes.of(flooding);
    spool.mark_stored(stored);
    spool.mark_stored_of(flooding, stored);
    append(flooding, 50, 1_000);
    assert_eq!(everything(directory.path()).last().unwrap().request_stored, BodyStorage::Full);
}

#[test]
fn rows_without_bodies_count_as_well() {
    let (directory, spool) = spool(100_000);
    let [flooding, other] = [1, 2].map(|number| OrgId(uuid::Uuid::from_u128(number)));
    for id in 0..36 {
        let mut without = LogRow::new(id, flooding, Timestamp(1_794_700_000_000), LogSource::Proxy);
        without.metadata.insert("note".into(), "x".repeat(2_000).into());
        spool.append(0, without);
    }
    assert_eq!(spool.org_bytes.of(flooding), spool.backlog());
    spool.append(0, LogRow { org_id: other, ..row(36, "mine") });
    spool.append(0, LogRow { org_id: flooding, ..row(37, &"x".repeat(1_000)) });
    assert_eq!([flooding, other].map(|org| kept_bodies(directory.path(), org).0), [0, 1]);
}

#[test]
fn bodies_that_the_disk_rejects_do_not_count() {
    let (directory, spool) = spool(1 << 20);
    std::fs::remove_dir_all(directory.path()).unwrap();
    spool.append(0, row(1, "x"));
    assert_eq!(spool.org_bytes.of(row(1, "x").org_id), 0);
    std::fs::create_dir_all(directory.path()).unwrap();
    assert_eq!(spool.respool(vec![row(1, "x")]), Ok(()));
    assert!(spool.backlog() > 0);
    assert_eq!(spool.org_bytes.of(row(1, "x").org_id), spool.backlog());
    spool.mark_stored(spool.backlog());
    spool.set_caught_up(Instant::now());
    assert_eq!(spool.org_bytes.of(row(1, "x").org_id), 0);
}

#[test]
fn segments_of_an_earlier_run_are_closed() {
    let (directory, first) = spool(1 << 20);
    first.append(0, row(1, "x"));
    drop(first);
    let second = Spool::open(directory.path().to_owned(), 2, 1 << 20).unwrap();
    assert!(second.backlog() > 0);
    second.append(0, row(2, "x"));
    let found = second.segments().unwrap();
    assert_eq!(found.iter().map(|segment| segment.is_open).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn rows_are_kept_in_memory_while_the_disk_rejects_them() {
    let (directory, spool) = spool(1 << 20);
    std::fs::remove_dir_all(directory.path()).unwrap();
    spool.append(0, row(1, "x"));
    assert!(!spool.is_healthy());
    assert!(spool.has_unspooled());
    let rows = spool.take_unspooled();
    assert!(rows.len() == 1 && !spool.has_unspooled());
    spool.put_back_unspooled(rows);
    assert!(spool.has_unspooled());
    assert!(spool.probe().is_err() && !spool.is_healthy());
    assert_eq!(spool.respool(vec![row(1, "x")]).unwrap_err().len(), 1);

    // No request is needed for the recovery.
    std::fs::create_dir_all(directory.path()).unwrap();
    spool.probe().unwrap();
    assert!(spool.is_healthy());
    let rows = spool.take_unspooled();
    assert_eq!(spool.respool(rows), Ok(()));
    let on_disk = everything(directory.path());
    assert!(on_disk.len() == 1 && on_disk[0].id == 1 && spool.backlog() > 0);
    assert!(spool.segments().unwrap().iter().all(|segment| !segment.is_open));
}

#[test]
fn a_second_process_does_not_take_the_spool_of_the_first() {
    let (directory, first) = spool(1 << 20);
    let second = Spool::open(directory.path().to_owned(), 2, 1 << 20);
    assert!(second.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy));
    drop(first);
    assert!(Spool::open(directory.path().to_owned(), 2, 1 << 20).is_ok());
}

#[test]
fn rows_in_memory_equal_those_on_disk_and_gaps_are_reported() {
    let (directory, spool) = spool(1 << 30);
    for id in 1..=3 {
        spool.append(0, row(id, "hello"));
    }
    spool.append(1, row(4, "other lane"));
    let segments = segment_paths(directory.path()).unwrap();
    let on_disk = everything(directory.path());
    let RecentRows::Rows(first, lengths) = spool.take_recent(&segments[0], 0, (2, u64::MAX)) else {
        panic!("no rows in memory")
    };
    assert_eq!(lengths, read_records(&std::fs::read(&segments[0]).unwrap()).lengths[..2]);
    let length: u64 = lengths.iter().sum();
    assert_eq!(first, on_disk[..2]);
    // Rows that were taken and not stored are read from disk, up to the third.
    assert_eq!(spool.take_recent(&segments[0], 0, (2, u64::MAX)), RecentRows::StartsAfter(length));
    assert!(
        matches!(spool.take_recent(&segments[0], length, (9, u64::MAX)), RecentRows::Rows(rows, _) if rows == on_disk[2..3])
    );
    assert_eq!(spool.take_recent(&segments[0], 0, (9, u64::MAX)), RecentRows::Empty);
    assert!(
        matches!(spool.take_recent(&segments[1], 0, (9, u64::MAX)), RecentRows::Rows(rows, _) if rows == on_disk[3..])
    );
}

#[test]
fn memory_for_recent_rows_is_bounded_and_released() {
    let (directory, spool) = spool(1 << 30);
    let body = "x".repeat(200 << 10);
    for id in 1..=20 {
        spool.append(0, row(id, &body));
    }
    let segments = segment_paths(directory.path()).unwrap();
    let RecentRows::Rows(kept, lengths) = spool.take_recent(&segments[0], 0, (100, u64::MAX)) else {
        panic!("no rows in memory")
    };
    let length: u64 = lengths.iter().sum();
    assert!(kept.len() < 10, "{}", kept.len());
    assert_eq!(spool.take_recent(&segments[0], length, (100, u64::MAX)), RecentRows::Empty);
    spool.append(0, row(21, "small"));
    assert!(matches!(spool.take_recent(&segments[0], length, (100, u64::MAX)), RecentRows::StartsAfter(_)));
    spool.remove_recent(&segments[0]);
    assert_eq!(spool.take_recent(&segments[0], length, (100, u64::MAX)), RecentRows::Empty);
}
