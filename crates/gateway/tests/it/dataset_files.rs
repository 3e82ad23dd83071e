//! Bulk input and output of datasets: files, samples, log rows.

use std::collections::HashSet;
use std::fmt::Write as _;

use gateway_core::datasets::CaseContent;
use gateway_core::ids::{CaseId, DatasetId};
use gateway_core::logs::BodyStorage;
use gateway_core::time::DAY;
use gateway_store::datasets::{self, StagedImport};
use gateway_store::partial_deletion::{RowsToDelete, delete_some};
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::Account;
use crate::support::assertions::{assert_field_error, fields, missing_id};
use crate::support::datasets::{DATASETS, DatasetFixture};
use crate::support::log_rows::{chat, row, with};

const CSV: &str = "\u{feff}input,expected,metadata,topic\r\n\
    \"What, is \"\"1+1\"\"?\",2,,maths\r\n\
    \"{\"\"messages\"\": []}\",\"two\nlines\",\"{\"\"k\"\": 1}\",x\r\n";

fn csv_cases() -> Value {
    json!([
        {"input": "What, is \"1+1\"?", "expected": "2", "metadata": {"topic": "maths"}},
        {"input": {"messages": []}, "expected": "two\nlines", "metadata": {"k": 1, "topic": "x"}},
    ])
}

/// The cases as they were submitted.
async fn contents(data: &DatasetFixture<'_>) -> Value {
    let export = data.get("/export").await;
    let mut cases = export.expect(200)["cases"].take();
    for case in cases.as_array_mut().unwrap() {
        for field in ["id", "created_at", "updated_at"] {
            assert!(case.as_object_mut().unwrap().remove(field).is_some());
        }
    }
    cases
}

on_both!(a_file_is_imported_whatever_its_format_and_its_wrapping, |app| async move {
    let ada = app.signup("acme").await;
    let array = csv_cases().to_string();
    let object = json!({"cases": csv_cases()}).to_string();
    let lines = csv_cases()
        .as_array()
        .unwrap()
        .iter()
        .fold(String::new(), |lines, case| lines + &format!("{case}\r\n"));
    for (kind, body) in [
        ("text/csv", CSV.to_owned()),
        ("Text/CSV; charset=utf-8", CSV.to_owned()),
        ("application/json", array.clone()),
        ("application/json", format!(" {object}")),
        ("application/x-www-form-urlencoded", object.clone()),
        ("application/x-ndjson", format!("\n{lines}\n")),
        ("application/json", json!({"format": "csv", "data": CSV}).to_string()),
        ("application/json", json!({"format": "json", "data": array}).to_string()),
        ("application/json", json!({"data": csv_cases(), "format": "json"}).to_string()),
        ("application/json", json!({"format": "json", "data": {"cases": csv_cases()}}).to_string()),
        ("application/json", json!({"format": "ndjson", "data": lines}).to_string()),
    ] {
        let data = DatasetFixture::create(&app, &ada).await;
        assert_eq!(data.import(kind, body.clone()).await.expect(200), json!({"imported": 2}), "{body}");
        assert_eq!(contents(&data).await, csv_cases(), "{kind} {body}");
        assert_eq!(data.count().await, 2);
    }
    let data = DatasetFixture::create(&app, &ada).await;
    data.add(&["there"]).await;
    assert_eq!(data.import("text/csv", "input\n").await.expect(200), json!({"imported": 0}));
    data.import("text/csv", "input\nnew\n").await.expect(200);
    assert_eq!(data.inputs("").await, ["new", "there"]);
});

on_both!(every_bad_row_is_named_and_nothing_is_imported, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    data.add(&["there"]).await;
    let csv = "input,expected\nok,ok\n,x\n\"two\nlines\",x\na,b,c\n";
    let wrapped = json!({"format": "csv", "data": csv}).to_string();
    for (kind, body) in [("text/csv", csv), ("application/json", wrapped.as_str())] {
        let error = data.import(kind, body.to_owned()).await.expect_error(422, "validation_error");
        assert_eq!(fields(&error), ["code", "errors", "message", "more_errors"]);
        let lines: Vec<_> =
            error["errors"].as_array().unwrap().iter().map(|row| row["line"].clone()).collect();
        assert_eq!((lines, &error["more_errors"]), (vec![json!(3), json!(6)], &json!(0)));
        assert!(error["errors"][0]["message"].as_str().unwrap().contains("input"));
        assert!(error["message"].as_str().unwrap().contains("line 3"), "{error}");
    }
    let many = format!("input,x\n{}", "bad\n".repeat(1_000));
    let error = data.import("text/csv", many).await.expect_error(422, "validation_error");
    assert_eq!((error["errors"].as_array().unwrap().len(), &error["more_errors"]), (100, &json!(900)));
    for (kind, body, line) in [
        ("application/x-ndjson", "{\"input\": 1}\nnot json\n", 2),
        ("application/json", "[{\"input\": 1},\n{\"expected\": 1}]", 2),
        ("application/json", "{\"cases\": [\n{\"input\": 1},\n7]}", 3),
    ] {
        let error = data.import(kind, body).await.expect_error(422, "validation_error");
        assert_eq!(error["errors"][0]["line"], line, "{body}");
    }
    for (kind, body) in [
        ("text/csv", "question\nx\n"),
        ("text/csv", ""),
        ("text/csv", "input\n\"never ends"),
        ("application/json", "{\"format\": \"json\", \"data\": \"[\"}"),
    ] {
        data.import(kind, body).await.expect_error(422, "validation_error");
    }
    for (body, named) in [
        ("", "JSON"),
        ("[", "JSON"),
        ("7", "JSON"),
        ("{}", "cases"),
        ("{\"cases\": 1}", "JSON"),
        ("{\"format\": \"xml\", \"data\": \"\"}", "format"),
        ("{\"data\": \"\"}", "format"),
        ("{\"format\": \"csv\"}", "data"),
        ("{\"format\": \"csv\", \"data\": []}", "data"),
    ] {
        assert_field_error(&data.import("application/json", body).await, named);
    }
    assert_eq!(data.inputs("").await, ["there"]);
    let nowhere = format!("{DATASETS}/{}/import", missing_id().as_str().unwrap());
    let call = app.call(Method::POST, &nowhere).bearer(&ada.token).header("content-type", "text/csv");
    call.raw("input\nx\n").send().await.expect_error(404, "not_found");
});

on_both!(an_import_has_a_greatest_size, [("GATEWAY_MAX_BODY_BYTES", "2000000")], |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let body = "x".repeat(2_000_001);
    data.import("text/csv", body).await.expect_error(413, "payload_too_large");
    // Many short rows: more than one batch can hold.
    let rows = format!("input\n{}", "a\n".repeat(200_001));
    data.import("text/csv", rows).await.expect_error(413, "payload_too_large");
    assert_eq!(data.count().await, 0);
});

on_both!(a_hundred_thousand_rows_are_imported_in_one_go, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let mut csv = String::from("input,expected,topic\r\n");
    for number in 0..100_000 {
        let _ = write!(csv, "\"question {number}, with a comma\",answer {number},t{}\r\n", number % 7);
    }
    assert_eq!(data.import("text/csv", csv).await.expect(200), json!({"imported": 100_000}));
    assert_eq!(data.count().await, 100_000);
    assert_eq!(data.inputs("&limit=1").await, ["question 99999, with a comma"]);
    assert_eq!(data.freeze().await["case_count"], 100_000);
    let export = data.get("/export?format=ndjson&version=1").await;
    assert_eq!(export.status, 200);
    // A line begins with the id, `{"id":"…"`; reading a hundred thousand of them as JSON would take most of the test.
    let text = export.text();
    let ids: HashSet<&str> = text.lines().map(|line| &line[..43]).collect();
    assert_eq!(ids.len(), 100_000);
    let sample = data.post("/sample", json!({"size": 250, "seed": 1})).await.expect(200);
    assert_eq!(sample["cases"].as_array().unwrap().len(), 250);
    data.delete("").await.expect(200);
});

on_both!(others_write_while_an_import_runs, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let csv = format!("input\n{}", "some text\n".repeat(20_000));
    let import = data.import("text/csv", csv);
    let adds = async {
        for number in 0..5 {
            data.post("/cases", json!({"input": number})).await.expect(201);
        }
    };
    let (imported, ()) = tokio::join!(import, adds);
    imported.expect(200);
    assert_eq!(data.count().await, 20_005);
});

on_both!(a_large_dataset_is_deleted_in_parts, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let data = DatasetFixture::create(&app, &ada).await;
    let csv = format!("input\n{}", "some text\n".repeat(2_500));
    data.import("text/csv", csv).await.expect(200);
    let (db, id) = (&app.app.services.db, data.path.rsplit_once('/').unwrap().1.parse().unwrap());
    let delete_some = async |of: &Account| {
        delete_some(db, of.org_id.parse().unwrap(), RowsToDelete::Dataset(id)).await.unwrap()
    };
    let left = async || data.get("/export").await.expect(200)["cases"].as_array().unwrap().len();
    assert!(!delete_some(&eve).await, "not of another organization");
    assert_eq!(left().await, 2_500);
    assert!(delete_some(&ada).await);
    assert_eq!(left().await, 1_500);
    assert!(delete_some(&ada).await);
    assert!(!delete_some(&ada).await, "the rest goes together with the dataset");
    assert_eq!(left().await, 500);
    data.delete("").await.expect(200);
    data.get("").await.expect_error(404, "not_found");
});

on_both!(an_import_that_ended_half_way_is_complete_for_readers_and_for_changes, |app| async move {
    let ada = app.signup("acme").await;
    let services = &app.app.services;
    for change in ["freeze", "edit"] {
        let data = DatasetFixture::create(&app, &ada).await;
        let dataset: DatasetId = data.path.rsplit('/').next().unwrap().parse().unwrap();
        let import =
            StagedImport { number: services.ids.next_row_id(), version: 1, now: services.clock.now() };
        let mut ids: Vec<CaseId> = Vec::new();
        for text in ["a", "b", "c"] {
            let id = services.ids.new_id();
            let content = CaseContent::from_value(&json!({"input": text})).unwrap();
            let mut tx = services.db.begin().await.unwrap();
            import.add(&mut tx, dataset, vec![(id, content)]).await.unwrap();
            tx.commit().await.unwrap();
            ids.push(id);
        }
        assert!(data.inputs("").await.is_empty(), "nothing is visible before the end");
        let org = ada.org_id.parse().unwrap();
        let mut tx = services.db.begin().await.unwrap();
        let locked = datasets::find_for_update(&mut tx, org, dataset).await.unwrap().unwrap();
        import.publish(&mut tx, &locked).await.unwrap();
        datasets::update_case_count(&mut tx, &locked, 3, import.now).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = services.db.begin().await.unwrap();
        assert!(import.publish_batch(&mut tx, dataset, (ids[0], ids[0])).await.unwrap());
        tx.commit().await.unwrap();
        // The process ends here.
        assert_eq!(data.inputs("").await, ["c", "b", "a"]);
        assert_eq!(data.count().await, 3);
        let later = import.now.plus(DAY);
        assert_eq!(datasets::delete_abandoned(&services.db, dataset, later).await.unwrap(), 0);
        let expected = if change == "freeze" { ["c", "b", "a"] } else { ["c", "edited", "a"] };
        if change == "edit" {
            data.put(&format!("/cases/{}", ids[1]), json!({"input": "edited"})).await.expect(200);
        }
        assert_eq!(data.freeze().await["case_count"], 3);
        assert_eq!(data.inputs("").await, expected);
        assert_eq!(data.inputs("&version=1").await, expected);
        let mut tx = services.db.begin().await.unwrap();
        assert!(!import.publish_batch(&mut tx, dataset, (ids[1], ids[2])).await.unwrap(), "it is done");
        tx.commit().await.unwrap();
    }
});

on_both!(an_export_holds_every_case_and_can_be_imported_again, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let mut lines = String::new();
    for number in 0..250 {
        let _ = writeln!(
            lines,
            "{}",
            json!({"input": format!("q\"{number}\", \n"), "expected": {"n": number}, "metadata": {"k": "v"}})
        );
    }
    data.import("application/x-ndjson", lines).await.expect(200);
    data.freeze().await;
    data.add(&["later"]).await;
    let expected = contents(&data).await;
    assert_eq!(expected.as_array().unwrap().len(), 251);
    for (format, kind, first) in [
        ("json", "application/json", "{\"cases\":["),
        ("csv", "text/csv; charset=utf-8", "input,expected,metadata\n"),
        ("ndjson", "application/x-ndjson", "{\"id\":"),
    ] {
        let export = data.get(&format!("/export?format={format}")).await;
        assert_eq!((export.status.as_u16(), export.header("content-type")), (200, Some(kind)));
        let name = export.header("content-disposition").unwrap();
        assert!(
            name.starts_with("attachment; filename=\"dataset-") && name.ends_with(&format!(".{format}\""))
        );
        assert!(export.text().starts_with(first), "{format}");
        let copy = DatasetFixture::create(&app, &ada).await;
        copy.import(kind, export.body.clone()).await.expect(200);
        assert_eq!(contents(&copy).await, expected, "{format}");
        let frozen = data.get(&format!("/export?format={format}&version=1")).await;
        assert!(!frozen.text().contains("later") && export.text().contains("later"));
        assert!(frozen.header("content-disposition").unwrap().contains("-v1."));
    }
    let empty = DatasetFixture::create(&app, &ada).await;
    assert_eq!(empty.get("/export").await.expect(200), json!({"cases": []}));
});

on_both!(a_sample_can_be_drawn_again_by_its_seed, |app| async move {
    let ada = app.signup("acme").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let inputs: Vec<String> = (0..150).map(|number| format!("case {number}")).collect();
    data.add(&inputs.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let first = data.post("/sample", json!({"size": 20, "seed": 7})).await.expect(200);
    assert_eq!(fields(&first), ["cases", "seed"]);
    assert_eq!(first["seed"], 7);
    let ids = |sample: &Value| -> Vec<String> {
        sample["cases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|case| case["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&first).iter().collect::<HashSet<_>>().len(), 20);
    assert_eq!(data.post("/sample", json!({"size": 20, "seed": 7})).await.expect(200), first);
    let other = data.post("/sample", json!({"size": 20, "seed": 8})).await.expect(200);
    assert_ne!(ids(&other), ids(&first));
    let larger = data.post("/sample", json!({"size": 120, "seed": 7})).await.expect(200);
    assert_eq!(ids(&larger)[..20], ids(&first));

    // Without a seed the gateway chooses and returns one that reproduces the sample.
    let drawn = data.post("/sample", json!({"size": 20})).await.expect(200);
    let again = data.post("/sample", json!({"size": 20, "seed": drawn["seed"]})).await.expect(200);
    assert_eq!(drawn, again);
    let fresh = data.post("/sample", json!({"size": 20})).await.expect(200);
    assert_ne!(fresh["seed"], drawn["seed"]);

    let all = data.post("/sample", json!({"size": 10_000, "seed": 1})).await.expect(200);
    assert_eq!(ids(&all).iter().collect::<HashSet<_>>().len(), 150);
    data.freeze().await;
    let frozen = json!({"size": 20, "seed": 7, "version": 1});
    data.delete(&format!("/cases/{}", ids(&first)[0])).await.expect(200);
    assert_eq!(data.post("/sample", frozen).await.expect(200), first);
    assert!(
        !ids(&data.post("/sample", json!({"size": 20, "seed": 7})).await.expect(200))
            .contains(&ids(&first)[0])
    );
    let empty = DatasetFixture::create(&app, &ada).await;
    let none = empty.post("/sample", json!({"size": 3, "seed": 1})).await.expect(200);
    assert_eq!(none, json!({"cases": [], "seed": 1}));
    for (body, named) in [
        (json!({}), "size"),
        (json!({"size": 0}), "size"),
        (json!({"size": 10_001}), "size"),
        (json!({"size": "3"}), "size"),
        (json!({"size": 3, "seed": -1}), "seed"),
        (json!({"size": 3, "seed": 9_007_199_254_740_992_i64}), "seed"),
        (json!({"size": 3, "seed": "x"}), "seed"),
        (json!({"size": 3, "version": 0}), "version"),
    ] {
        assert_field_error(&data.post("/sample", body).await, named);
    }
});

on_both!(log_rows_become_cases, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let data = DatasetFixture::create(&app, &ada).await;
    let now = app.app.services.clock.now();
    let one = row(&ada, now);
    let messages = json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]);
    let talk = with(row(&ada, now), |row| {
        row.request = json!({"model": "m", "messages": messages}).to_string().into_bytes();
    });
    let cut = with(row(&ada, now), |row| {
        row.request = chat("hello there")[..60].to_vec();
        row.request_stored = BodyStorage::Truncated;
        row.response = Vec::new();
    });
    let bare = with(row(&ada, now), |row| row.request = Vec::new());
    let foreign = row(&eve, now);
    app.write(&[one.clone(), talk.clone(), cut.clone(), bare.clone(), foreign.clone()]).await;

    let made =
        data.post("/from-logs", json!({"log_ids": [one.id, talk.id, cut.id, one.id]})).await.expect(201);
    let cases = made["cases"].as_array().unwrap();
    assert_eq!((fields(&made), cases.len()), (vec!["cases"], 3));
    assert_eq!((&cases[0]["input"], &cases[0]["expected"]), (&json!("hello there"), &Value::Null));
    assert_eq!(
        cases[0]["metadata"],
        json!({"log_id": one.id, "provider": "openai", "model": "gpt-4o", "output": "general greeting"})
    );
    assert_eq!(cases[1]["input"], messages);
    assert!("hello there".starts_with(cases[2]["input"].as_str().unwrap()));
    assert_eq!(cases[2]["metadata"].get("output"), None);
    assert_eq!(data.count().await, 3);

    let missing = data.post("/from-logs", json!({"log_ids": [one.id, 4711]})).await;
    let hidden = data.post("/from-logs", json!({"log_ids": [one.id, foreign.id]})).await;
    assert_field_error(&missing, "log_ids");
    assert_eq!(missing.text().replace("4711", ""), hidden.text().replace(&foreign.id.to_string(), ""));
    for body in [
        json!({"log_ids": [bare.id]}),
        json!({"log_ids": []}),
        json!({"log_ids": ["x"]}),
        json!({}),
        json!({"log_ids": vec![one.id; 201]}),
    ] {
        assert_field_error(&data.post("/from-logs", body).await, "log_ids");
    }
    assert_eq!(data.count().await, 3);
});
