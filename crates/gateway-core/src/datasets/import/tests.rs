//! Tests of importing valid and invalid files.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn all(rows: ImportFormat, text: impl AsRef<[u8]>) -> Result<Vec<Value>, ImportError> {
    let mut found = Vec::new();
    read(rows, text.as_ref(), &mut |content| {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        found.push(json!([value(&content.input), value(&content.expected), value(&content.metadata)]));
        true
    })?;
    Ok(found)
}

fn bad(rows: ImportFormat, text: &str) -> Vec<(u64, String)> {
    match all(rows, text) {
        Err(ImportError::Rows { rows, more: 0 }) => {
            rows.into_iter().map(|row| (row.line, row.message)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn unreadable(rows: ImportFormat, text: impl AsRef<[u8]>) -> String {
    match all(rows, text) {
        Err(ImportError::Unreadable(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn csv_is_read_with_quotes_line_ends_and_a_byte_order_mark() {
    for text in [
        "input,expected\nhello,hi\n\"a,\"\"b\"\"\nc\",\n",
        "input,expected\r\nhello,hi\r\n\"a,\"\"b\"\"\nc\",\r\n",
        "\u{feff}input,expected\nhello,hi\n\n\"a,\"\"b\"\"\nc\",",
        "\u{feff}\"input\", expected \nhello,\"hi\"\n\"a,\"\"b\"\"\nc\",\"\"",
    ] {
        assert_eq!(
            all(ImportFormat::Csv, text).unwrap(),
            [json!(["hello", "hi", {}]), json!(["a,\"b\"\nc", null, {}])],
            "{text:?}"
        );
    }
    assert_eq!(all(ImportFormat::Csv, "input").unwrap(), [""; 0]);
}

#[test]
fn cells_that_are_json_objects_or_arrays_are_parsed_and_others_stay_texts() {
    let text = "input,expected,metadata,topic,n\n\
        \"{\"\"a\"\": 1}\",\"[1,2]\",\"{\"\"k\"\": true}\",maths,12\n\
        {broken,true,,,\n";
    assert_eq!(
        all(ImportFormat::Csv, text).unwrap(),
        [
            json!([{"a": 1}, [1, 2], {"k": true, "topic": "maths", "n": "12"}]),
            json!(["{broken", "true", {"topic": "", "n": ""}]),
        ]
    );
    assert_eq!(all(ImportFormat::Csv, "input,metadata\nx,word\n").unwrap(), [json!(["x", null, "word"])]);
}

#[test]
fn every_bad_row_of_a_csv_is_reported_with_its_first_line() {
    let text = "input,metadata,topic\nok,,x\n\"two\nlines\",,x\n,,x\nshort,x\na,b,c,d\nw,word,x\nok,,x\n";
    let found = bad(ImportFormat::Csv, text);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [5, 6, 7, 8]);
    assert!(found[0].1.contains("input"));
    assert!(found[1].1.contains("2 fields") && found[2].1.contains("4 fields"));
    assert!(found[3].1.contains("metadata"));
}

#[test]
fn an_unreadable_csv_is_rejected_with_a_reason() {
    assert!(unreadable(ImportFormat::Csv, "").contains("empty"));
    assert!(unreadable(ImportFormat::Csv, "\n\n").contains("empty"));
    assert!(unreadable(ImportFormat::Csv, "question,answer\nx,y\n").contains("`input`"));
    assert!(unreadable(ImportFormat::Csv, "Input\nx\n").contains("`input`"));
    assert!(unreadable(ImportFormat::Csv, "input,input\nx,y\n").contains("duplicate column"));
    assert!(unreadable(ImportFormat::Csv, "input,\nx,y\n").contains("column 2"));
    assert!(unreadable(ImportFormat::Csv, b"\xff\xfei\0n\0").contains("UTF-8"));
    let open = unreadable(ImportFormat::Csv, "input,expected\nok,ok\na,\"never\nends,\nx,y\n");
    assert!(open.contains("line 3"), "{open}");
    assert!(unreadable(ImportFormat::Csv, "input,\"expected").contains("not closed"));
}

#[test]
fn invalid_utf8_is_a_bad_row() {
    assert!(
        matches!(all(ImportFormat::Csv, b"input\nok\n\xff\n"), Err(ImportError::Rows { rows, .. }) if rows[0].line == 3)
    );
    assert!(matches!(all(ImportFormat::Ndjson, b"{\"input\":\"\xff\"}"), Err(ImportError::Rows { .. })));
}

#[test]
fn lines_of_json_are_read_one_by_one() {
    let text = "\u{feff}{\"input\": 1}\r\n\n  \n{\"input\": {\"x\": []}, \"expected\": \"y\", \"id\": 7}";
    assert_eq!(all(ImportFormat::Ndjson, text).unwrap(), [json!([1, null, {}]), json!([{"x": []}, "y", {}])]);
    let found = bad(ImportFormat::Ndjson, "{\"input\": 1}\n{\"input\":\n[1]\n{}\n\n{\"input\": 1} 2\n");
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4, 6]);
    assert!(found[0].1.contains("not valid JSON") && found[2].1.contains("input"));
    assert!(all(ImportFormat::Ndjson, "").unwrap().is_empty());
}

#[test]
fn a_json_document_is_an_array_or_an_object_with_cases() {
    let expected = [json!(["a", null, {}]), json!(["b", "c", {}])];
    let array = "\u{feff} [{\"input\": \"a\"}, {\"input\": \"b\", \"expected\": \"c\"}] ";
    assert_eq!(all(ImportFormat::Json, array).unwrap(), expected);
    let object =
        format!("{{\"note\": [1], \"cases\": {}, \"more\": {{}}}}", array.trim_start_matches('\u{feff}'));
    assert_eq!(all(ImportFormat::Json, object).unwrap(), expected);
    for bad in [
        "",
        "[",
        "{}",
        "7",
        "[{\"input\": 1}",
        "[{\"input\": 1}] x",
        "{\"cases\": 1}",
        "{\"cases\": [], \"cases\": []}",
    ] {
        unreadable(ImportFormat::Json, bad);
    }
}

#[test]
fn every_bad_case_of_a_json_document_is_reported_with_its_line() {
    let text = "[\n  {\"input\": 1},\n  {\"expected\": 1},\n  7, \"x\",\n  {\"input\": 2}\n]";
    assert_eq!(bad(ImportFormat::Json, text).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 4, 4]);
    let deep = format!("[{{\"input\": {}{}}}]", "[".repeat(200), "]".repeat(200));
    assert_eq!(bad(ImportFormat::Json, &deep).len(), 1);
}

#[test]
fn beyond_a_hundred_bad_rows_are_counted() {
    let text = format!("input,x\n{}", "bad\n".repeat(250));
    let Err(ImportError::Rows { rows, more }) = all(ImportFormat::Csv, &text) else { panic!() };
    assert_eq!((rows.len(), more), (MAX_REPORTED_ROWS, 150));
}

#[test]
fn reading_stops_when_the_callback_returns_false() {
    for (rows, text) in [
        (ImportFormat::Csv, "input\na\nb\nc\n"),
        (ImportFormat::Ndjson, "{\"input\":1}\n{\"input\":2}\n{\"input\":3}"),
        (ImportFormat::Json, "[{\"input\":1},{\"input\":2},{\"input\":3}]"),
    ] {
        let mut seen = 0;
        let taken = read(rows, text.as_bytes(), &mut |_| {
            seen += 1;
            seen < 2
        });
        assert_eq!((seen, taken), (2, Ok(1)), "{rows:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for rows in [ImportFormat::Csv, ImportFormat::Json, ImportFormat::Ndjson] {
            let _ = check(rows, &bytes);
        }
    }

    #[test]
    fn any_texts_survive_a_csv(texts in proptest::collection::vec("[a-z\",\r\n]{1,12}", 1..8)) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["input"]).unwrap();
        for text in &texts {
            writer.write_record([text]).unwrap();
        }
        let found = all(ImportFormat::Csv, writer.into_inner().unwrap()).unwrap();
        let found: Vec<&str> = found.iter().map(|case| case[0].as_str().unwrap()).collect();
        prop_assert_eq!(found, texts);
    }
}
