//! The export of log rows: both formats, filters and orders, bodies, who may read what, and rows that arrive meanwhile.

use std::collections::HashMap;

use gateway_core::logs::LogRow;
use gateway_core::time::MINUTE;
use gateway_store::logs;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{chat, many, row, with};
use crate::support::{Account, TestApp, TestResponse};

const EXPORT: &str = "/api/v1/logs/export";

async fn export(app: &TestApp, by: &Account, query: &str) -> TestResponse {
    app.get(&format!("{EXPORT}?{query}")).bearer(&by.token).send().await
}

fn lines(answer: &TestResponse) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(answer: &TestResponse) -> Vec<i64> {
    lines(answer).iter().map(|line| line["id"].as_i64().unwrap()).collect()
}

/// The rows of CSV by the names of the columns.
fn cells(answer: &TestResponse) -> Vec<HashMap<String, String>> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let text = answer.text();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            other => cell.push(other),
        }
    }
    assert!(!quoted && row.is_empty() && cell.is_empty());
    let names = rows.remove(0);
    assert!(rows.iter().all(|row| row.len() == names.len()));
    rows.into_iter().map(|row| names.iter().cloned().zip(row).collect()).collect()
}

/// Three rows, oldest first.
async fn write(app: &TestApp, of: &Account) -> Vec<LogRow> {
    let now = app.app.services.clock.now();
    let rows = vec![
        with(row(of, now.plus(-3)), |row| {
            row.request = b"{\"messages\":\n[{\"role\": \"user\",\r\n\"content\": \"=1+1\"}]}".to_vec();
            row.user = Some("=cmd".into());
        }),
        with(row(of, now.plus(-2)), |row| {
            (row.status, row.latency_ms) = (500, 900);
            row.metadata.insert("tier".into(), "gold, \"old\"".into());
        }),
        with(row(of, now.plus(-1)), |row| (row.latency_ms, row.request) = (300, chat("the last"))),
    ];
    app.write(&rows).await;
    rows
}

on_both!(rows_are_exported_as_json_lines, |app| async move {
    let ada = app.signup("acme").await;
    let rows = write(&app, &ada).await;
    let found = export(&app, &ada, "").await;
    assert_eq!(ids(&found), [rows[2].id, rows[1].id, rows[0].id]);
    assert_eq!(found.header("content-type"), Some("application/x-ndjson"));
    let name = format!("attachment; filename=\"logs-{}.ndjson\"", ada.org_id);
    assert_eq!(found.header("content-disposition"), Some(name.as_str()));
    let list = app.get("/api/v1/logs").bearer(&ada.token).send().await.expect(200);
    assert_eq!(lines(&found), *list["logs"].as_array().unwrap());
    // With bodies a row is what it is alone, also if its body has breaks.
    let with_bodies = lines(&export(&app, &ada, "bodies=true").await);
    for line in &with_bodies {
        let one =
            app.get(&format!("/api/v1/logs/{}", line["id"])).bearer(&ada.token).send().await.expect(200);
        assert_eq!(*line, one);
    }
    assert_eq!(with_bodies.len(), 3);
    for (query, expected) in [
        ("query=status%3Aerror", vec![1]),
        ("query=%22the+last%22&format=ndjson", vec![2]),
        ("status=5xx", vec![1]),
        ("sort=latency", vec![1, 2, 0]),
        ("sort=time:asc", vec![0, 1, 2]),
        ("to=2020-01-01T00:00:00Z", vec![]),
    ] {
        let expected: Vec<i64> = expected.into_iter().map(|at: usize| rows[at].id).collect();
        assert_eq!(ids(&export(&app, &ada, query).await), expected, "{query}");
    }
});

on_both!(rows_are_exported_as_csv_without_formulas, |app| async move {
    let ada = app.signup("acme").await;
    let rows = write(&app, &ada).await;
    let found = export(&app, &ada, "format=csv&sort=time:asc").await;
    assert_eq!(found.header("content-type"), Some("text/csv; charset=utf-8"));
    let name = format!("attachment; filename=\"logs-{}.csv\"", ada.org_id);
    assert_eq!(found.header("content-disposition"), Some(name.as_str()));
    assert!(found.text().starts_with("id,request_id,created_at,level,source,provider,model,"));
    let lines = cells(&found);
    assert_eq!(lines.len(), 3);
    assert_eq!(
        (lines[0]["id"].as_str(), lines[0]["user"].as_str()),
        (rows[0].id.to_string().as_str(), "'=cmd")
    );
    assert_eq!((lines[0]["preview"].as_str(), lines[0]["stream"].as_str()), ("'=1+1", "false"));
    assert_eq!((lines[1]["status"].as_str(), lines[1]["error_code"].as_str()), ("500", ""));
    let metadata: Value = serde_json::from_str(&lines[1]["metadata"]).unwrap();
    assert_eq!(metadata["tier"], "gold, \"old\"");
    assert!(!lines[0].contains_key("request"));
    let lines = cells(&export(&app, &ada, "format=csv&bodies=true&query=%22the+last%22").await);
    assert_eq!((lines.len(), lines[0]["request"].as_bytes()), (1, rows[2].request.as_slice()));
    assert_eq!(lines[0]["response"].as_bytes(), rows[2].response);
    let none = export(&app, &ada, "format=csv&to=2020-01-01T00:00:00Z").await;
    assert_eq!(none.text().lines().count(), 1, "the names of the columns");
});

on_both!(an_export_has_more_rows_than_a_page_each_of_them_once, |app| async move {
    let ada = app.signup("acme").await;
    let rows = many(&ada, &app, 1_203);
    app.write(&rows).await;
    let mut expected: Vec<i64> = rows.iter().map(|row| row.id).collect();
    // The last of them have begun after now.
    app.app.services.clock.advance(MINUTE);
    // Rows arrive while it is read.
    let arriving = async {
        for _ in 0..20 {
            let now = app.app.services.clock.now();
            logs::write_batch(&app.app.services.logs, &[row(&ada, now.plus(MINUTE))]).await.unwrap();
        }
    };
    let (ascending, ()) = tokio::join!(export(&app, &ada, "sort=time:asc&bodies=true"), arriving);
    assert_eq!(ids(&ascending), expected);
    let found = export(&app, &ada, "format=csv&query=latency%3A%3C1s&after_id=1").await;
    assert_eq!(cells(&found).len(), 1_223);
    let until = app.app.services.clock.now();
    expected.reverse();
    assert_eq!(ids(&export(&app, &ada, &format!("to={until}")).await), expected);
    assert_eq!(ids(&export(&app, &ada, &format!("sort=tokens:asc&to={until}")).await).len(), 1_203);
});

on_both!(an_export_has_only_what_the_caller_may_read, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let rows = write(&app, &ada).await;
    assert_eq!(ids(&export(&app, &eve, "bodies=true").await), [0_i64; 0]);
    for role in ["viewer", "member"] {
        let joined = app.join(&ada, role).await;
        assert_eq!(ids(&export(&app, &joined, "").await).len(), 3, "{role}");
    }
    app.get(EXPORT).send().await.expect_error(401, "unauthorized");
    let body = json!({"name": "scoped", "scopes": ["proxy"]});
    let made = app.post("/api/v1/keys", body).bearer(&ada.token).send().await.expect(201);
    let key_id = made["key"]["id"].as_str().unwrap().parse().unwrap();
    let own = with(row(&ada, app.app.services.clock.now()), |row| row.key_id = Some(key_id));
    app.write(std::slice::from_ref(&own)).await;
    let by_key = app.get(EXPORT).key(made["raw_key"].as_str().unwrap()).send().await;
    assert_eq!(ids(&by_key), [own.id]);
    assert_eq!(ids(&export(&app, &ada, "").await).len(), rows.len() + 1);
});

on_both!(a_wrong_export_is_refused_before_it_begins, |app| async move {
    let ada = app.signup("acme").await;
    for (query, named) in [
        ("format=xlsx", "format"),
        ("bodies=some", "bodies"),
        ("sort=size", "sort"),
        ("from=yesterday", "from"),
        ("status=abc", "status"),
        ("query=status:200+bad:1", "query"),
    ] {
        let refused = export(&app, &ada, query).await.expect_error(400, "bad_request");
        assert!(refused["message"].to_string().contains(named), "{query}: {refused}");
    }
    let refused = export(&app, &ada, "query=status:200+bad:1").await;
    assert_eq!(refused.json()["position"], 11);
});
