//! Log rows over HTTP: lists, filters, single rows and search, ingestion and retention.

use std::collections::BTreeSet;
use std::sync::Arc;

use gateway_core::ids::KeyId;
use gateway_core::logs::{BodyStorage, LogLevel, LogRow, LogSource, PromptVersionRef};
use gateway_core::time::DAY;
use gateway_store::{logs, orgs};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{at, chat, many, row, with};
use crate::support::{Account, TestApp};

async fn list(app: &TestApp, account: &Account, query: &str) -> Vec<i64> {
    let answer = app.get(&format!("/api/v1/logs?{query}")).bearer(&account.token).send().await.expect(200);
    ids(&answer)
}

fn ids(answer: &Value) -> Vec<i64> {
    answer["logs"].as_array().unwrap().iter().map(|log| log["id"].as_i64().unwrap()).collect()
}

async fn requests_counted(app: &TestApp, account: &Account) -> i64 {
    let path = "/api/v1/usage/summary?from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z";
    app.get(path).bearer(&account.token).send().await.expect(200)["requests"].as_i64().unwrap()
}

on_both!(a_batch_that_is_sent_twice_is_counted_once, |app| async move {
    let ada = app.signup("acme").await;
    let time = at("2026-11-09T10:00:00Z");
    let rows: Vec<_> = (0..7).map(|n| row(&ada, time.plus(n * 1000))).collect();
    assert_eq!(app.write(&rows[..5]).await, 5);
    assert_eq!(app.write(&rows[..5]).await, 0);
    assert_eq!(app.write(&rows[3..]).await, 2);
    assert_eq!(app.write(&[rows.clone(), rows.clone()].concat()).await, 0);
    let fresh = row(&ada, time.plus(9000));
    assert_eq!(app.write(&[fresh.clone(), fresh]).await, 1);
    assert_eq!(list(&app, &ada, "").await.len(), 8);
    assert_eq!(requests_counted(&app, &ada).await, 8);
    let sessions = app.get("/api/v1/sessions").bearer(&ada.token).send().await.expect(200);
    assert_eq!(sessions["sessions"][0]["requests"], 8);
});

on_both!(overlapping_batches_at_once_are_counted_once, |app| async move {
    let ada = app.signup("acme").await;
    let app = Arc::new(app);
    let rows: Arc<Vec<LogRow>> =
        Arc::new((0..300).map(|n| row(&ada, at("2026-11-09T10:00:00Z").plus(n * 10_000))).collect());
    let writers: Vec<_> = (0..6)
        .map(|n| {
            let (app, rows) = (Arc::clone(&app), Arc::clone(&rows));
            tokio::spawn(async move { app.write(&rows[n * 40..n * 40 + 100]).await })
        })
        .collect();
    let mut new = 0;
    for writer in writers {
        new += writer.await.unwrap();
    }
    assert_eq!(new, 300);
    assert_eq!(requests_counted(&app, &ada).await, 300);
});

on_both!(a_row_shows_what_is_known_of_the_request, |app| async move {
    let ada = app.signup("acme").await;
    let key: KeyId = uuid::Uuid::from_u128(7).into();
    let log = with(row(&ada, at("2026-11-09T10:00:00.123Z")), |row| {
        row.key_id = Some(key);
        row.user = Some("end-user".into());
        row.session_id = Some("my session".into());
        row.metadata.insert("ticket".into(), json!(42));
        row.prompt = Some(PromptVersionRef { name: "support/hello".into(), version: 3 });
        row.request = chat(&"x".repeat(300));
    });
    app.write(std::slice::from_ref(&log)).await;
    let listed = app.get("/api/v1/logs").key(&ada.api_key).send().await.expect(200);
    let mut expected = json!({
        "id": log.id, "request_id": "req-1", "created_at": "2026-11-09T10:00:00.123Z", "level": "info",
        "source": "proxy", "provider": "openai", "model": "gpt-4o", "method": "POST",
        "path": "/v1/chat/completions", "status": 200, "error_code": null, "stream": false, "latency_ms": 100,
        "ttft_ms": 40, "prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 0, "reasoning_tokens": 0,
        "total_tokens": 15, "usage_estimated": false, "cost_usd": 0.001, "cache": null, "cache_marks": null,
        "attempts": [{"provider": "openai", "model": "gpt-4o", "status": 200, "start_ms": 2, "ttft_ms": 38,
            "latency_ms": 97, "error": null}],
        "key_id": key, "app_id": null, "team_id": null, "user": "end-user", "session_id": "my session",
        "metadata": {"ticket": 42}, "prompt": "support/hello", "prompt_version": 3, "request_stored": "full", "response_stored": "full",
        "preview": "x".repeat(200),
    });
    assert_eq!(listed, json!({"logs": [expected], "next_cursor": null}));
    let one = app.get(&format!("/api/logs/{}", log.id)).bearer(&ada.token).send().await.expect(200);
    expected["request"] = serde_json::from_slice(&log.request).unwrap();
    expected["response"] = serde_json::from_slice(&log.response).unwrap();
    assert_eq!(one, expected);
});

on_both!(what_was_not_used_is_null_and_not_zero, |app| async move {
    let ada = app.signup("acme").await;
    let log = with(row(&ada, at("2026-11-09T10:00:00Z")), |row| {
        (row.tokens, row.cost_usd, row.model) = (None, None, None);
        (row.request, row.request_stored) = (Vec::new(), BodyStorage::Off);
        (row.response, row.response_stored) = (b"{\"cut\": \"of".to_vec(), BodyStorage::Truncated);
    });
    app.write(std::slice::from_ref(&log)).await;
    let one = app.get(&format!("/api/v1/logs/{}", log.id)).bearer(&ada.token).send().await.expect(200);
    for field in ["prompt_tokens", "total_tokens", "cached_tokens", "cost_usd", "model", "request", "preview"]
    {
        assert_eq!(one[field], Value::Null, "{field}");
    }
    assert_eq!(one["response"], "{\"cut\": \"of");
    assert_eq!((&one["request_stored"], &one["response_stored"]), (&json!("off"), &json!("truncated")));
});

on_both!(every_filter_narrows_the_list, |app| async move {
    let ada = app.signup("acme").await;
    let time = at("2026-11-09T10:00:00Z");
    let key: KeyId = uuid::Uuid::from_u128(7).into();
    let mut rows: Vec<LogRow> = (0..8).map(|n| row(&ada, time.plus(n * 60_000))).collect();
    rows[0].provider = "anthropic".into();
    rows[1].model = Some("o3".into());
    (rows[2].level, rows[2].status) = (LogLevel::Warn, 429);
    (rows[3].level, rows[3].status) = (LogLevel::Error, 502);
    rows[4].source = LogSource::Otel;
    rows[5].key_id = Some(key);
    rows[6].session_id = Some("s/1".into());
    rows[7].user = Some("Bob O'Hara".into());
    app.write(&rows).await;
    let only = |n: usize| vec![rows[n].id];
    for (query, expected) in [
        ("provider=anthropic".to_owned(), only(0)),
        ("model=o3".into(), only(1)),
        ("level=warn".into(), only(2)),
        ("level=error".into(), only(3)),
        ("status=429".into(), only(2)),
        ("status=5xx".into(), only(3)),
        ("source=otel".into(), only(4)),
        (format!("key_id={key}"), only(5)),
        ("session_id=s%2F1".into(), only(6)),
        ("user=Bob%20O%27Hara".into(), only(7)),
        ("from=2026-11-09T10:07:00Z".into(), only(7)),
        ("to=2026-11-09T10:01:00Z".into(), only(0)),
        ("from=2026-11-09T12:03:00%2B02:00&to=2026-11-09T10:04:00Z".into(), only(3)),
        (format!("after_id={}", rows[6].id), only(7)),
        ("provider=anthropic&model=o3".into(), vec![]),
        ("provider=&model=o3".into(), only(1)),
        ("status=4xx&level=warn&provider=openai".into(), only(2)),
    ] {
        assert_eq!(list(&app, &ada, &query).await, expected, "{query}");
    }
    let all: Vec<i64> = rows.iter().rev().map(|row| row.id).collect();
    assert_eq!(list(&app, &ada, "").await, all);
    assert_eq!(list(&app, &ada, "level=info").await.len(), 6);
});

on_both!(pages_show_every_row_once_while_others_are_added, |app| async move {
    let ada = app.signup("acme").await;
    let time = at("2026-11-09T10:00:00Z");
    let rows: Vec<LogRow> = (0..25).map(|n| row(&ada, time.plus(n * 1000))).collect();
    app.write(&rows).await;
    let mut seen = Vec::new();
    let mut path = "/api/v1/logs?limit=10".to_owned();
    for page in 0.. {
        assert!(page < 10, "the pages do not end");
        let answer = app.get(&path).bearer(&ada.token).send().await.expect(200);
        seen.extend(ids(&answer));
        app.write(&[row(&ada, time.plus(1_000_000 + page))]).await;
        let Some(cursor) = answer["next_cursor"].as_str() else { break };
        path = format!("/api/v1/logs?limit=10&cursor={cursor}");
    }
    let expected: Vec<i64> = rows.iter().rev().map(|row| row.id).collect();
    assert_eq!(seen, expected);
});

on_both!(bad_values_are_refused_by_name, |app| async move {
    let ada = app.signup("acme").await;
    for (query, name) in [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("cursor=%21", "cursor"),
        ("cursor=YWJj", "cursor"),
        ("level=loud", "level"),
        ("status=9xx", "status"),
        ("status=ok", "status"),
        ("source=else", "source"),
        ("key_id=7", "key_id"),
        ("from=yesterday", "from"),
        ("to=2026", "to"),
        ("after_id=x", "after_id"),
        ("q=%22%2A%22", "q"),
    ] {
        let answer = app.get(&format!("/api/v1/logs?{query}")).bearer(&ada.token).send().await;
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(name), "{query}: {error}");
    }
    app.get("/api/v1/logs/abc").bearer(&ada.token).send().await.expect_error(400, "bad_request");
    app.get("/api/v1/logs").send().await.expect_error(401, "unauthorized");
    let viewer = app.join(&ada, "viewer").await;
    app.get("/api/v1/logs?limit=1000").bearer(&viewer.token).send().await.expect(200);
});

on_both!(another_organizations_rows_do_not_exist, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let log = row(&ada, at("2026-11-09T10:00:00Z"));
    app.write(std::slice::from_ref(&log)).await;
    assert_eq!(list(&app, &eve, "").await, Vec::<i64>::new());
    assert_eq!(list(&app, &eve, "q=hello").await, Vec::<i64>::new());
    let foreign = app.get(&format!("/api/v1/logs/{}", log.id)).bearer(&eve.token).send().await;
    let missing = app.get("/api/v1/logs/4711").bearer(&eve.token).send().await;
    foreign.expect_error(404, "not_found");
    assert_eq!(foreign.body, missing.body);
    assert_eq!(foreign.status, missing.status);
});

on_both!(all_words_of_a_search_must_stand_in_the_bodies, |app| async move {
    let ada = app.signup("acme").await;
    let time = at("2026-11-09T10:00:00Z");
    let texts =
        ["The quick brown fox", "a quick-witted Fuchs, très drôle", "nothing OR everything", "日本語 text"];
    let rows: Vec<LogRow> = (0_i64..)
        .zip(texts)
        .map(|(n, text)| with(row(&ada, time.plus(n * 1000)), |row| row.request = chat(text)))
        .collect();
    app.write(&rows).await;
    let search = async |q: &str| {
        let query: String = url::form_urlencoded::byte_serialize(q.as_bytes()).collect();
        let found = list(&app, &ada, &format!("q={query}")).await;
        let position = |id: &i64| rows.iter().position(|row| row.id == *id).unwrap();
        found.iter().map(position).collect::<BTreeSet<_>>()
    };
    for (q, expected) in [
        ("quick", vec![0, 1]),
        ("QUICK fox", vec![0]),
        ("fox quick", vec![0]),
        ("quick missing", vec![]),
        ("greeting", vec![0, 1, 2, 3]),
        ("DRÔLE", vec![1]),
        ("witted", vec![1]),
        ("本", vec![3]),
        ("qui", vec![]),
        // Field names are not searchable text.
        ("messages", vec![]),
        // Search text contains no operators.
        ("fox OR nothing", vec![]),
        ("nothing or everything", vec![2]),
        ("quick NOT fox", vec![]),
        ("-fox quick", vec![0]),
        ("qui*", vec![]),
        ("\"quick brown", vec![0]),
        ("quick\" OR \"everything", vec![]),
        ("words:quick", vec![]),
        ("quick') OR 1=1 --", vec![]),
        ("quick & !fox | everything", vec![]),
        ("NEAR(quick fox)", vec![]),
        ("^quick {fox}", vec![0]),
        ("'quick' :* fox", vec![0]),
    ] {
        assert_eq!(search(q).await, BTreeSet::from_iter(expected), "{q}");
    }
    assert_eq!(list(&app, &ada, "q=greeting&limit=1&level=info").await, [rows[3].id]);
});

on_both!(a_row_of_an_odd_time_finds_its_place, |app| async move {
    let ada = app.signup("acme").await;
    let times =
        ["2024-01-01T00:00:00Z", "2025-06-30T23:59:59.999Z", "2025-07-01T00:00:00Z", "2091-03-04T05:06:07Z"];
    let rows: Vec<LogRow> = times.iter().map(|time| row(&ada, at(time))).collect();
    assert_eq!(app.write(&rows).await, 4);
    assert_eq!(app.write(&rows).await, 0);
    let expected: Vec<i64> = rows.iter().rev().map(|row| row.id).collect();
    assert_eq!(list(&app, &ada, "").await, expected);
    assert_eq!(list(&app, &ada, "q=hello").await, expected);
});

on_both!(rows_go_when_their_organizations_time_is_over, |app| async move {
    let (short, usual, long) =
        (app.signup("short").await, app.signup("usual").await, app.signup("long").await);
    let now = at("2026-11-09T12:00:00Z");
    let mut rows = Vec::new();
    for account in [&short, &usual, &long] {
        for age in [1, 10, 40, 100] {
            rows.push(row(account, now.plus(-age * DAY)));
        }
    }
    app.write(&rows).await;
    let org = |account: &Account| account.org_id.parse().unwrap();
    let kept = [(org(&short), 5), (org(&long), 90)];
    let removed = logs::sweep(&app.app.services.logs, now, 30, &kept).await.unwrap();
    // Rows, sessions, and usage by user.
    assert!(removed >= 2 * (3 + 2 + 1), "{removed}");
    assert_eq!(logs::sweep(&app.app.services.logs, now, 30, &kept).await.unwrap(), 0);
    for (account, left) in [(&short, 1), (&usual, 2), (&long, 3)] {
        assert_eq!(list(&app, account, "").await.len(), left, "{}", account.slug);
        assert_eq!(list(&app, account, "q=hello").await.len(), left, "{}", account.slug);
        let sessions = app.get("/api/v1/sessions").bearer(&account.token).send().await.expect(200);
        assert_eq!(sessions["sessions"].as_array().unwrap().len(), left, "{}", account.slug);
        // Usage totals outlive the rows.
        assert_eq!(requests_counted(&app, account).await, 4, "{}", account.slug);
    }
    let gone = app.get(&format!("/api/v1/logs/{}", rows[3].id)).bearer(&short.token).send().await;
    gone.expect_error(404, "not_found");
    // The same rows may arrive again late: they are stored and removed by the next retention run.
    app.write(&rows[3..4]).await;
    assert_eq!(list(&app, &short, "").await.len(), 2);
});

on_both!(a_limit_is_cut_to_200_in_every_list, |app| async move {
    let ada = app.signup("acme").await;
    let rows: Vec<LogRow> = many(&ada, &app, 205)
        .into_iter()
        .map(|log| with(log, |log| log.session_id = Some(format!("s-{}", log.id))))
        .collect();
    app.write(&rows).await;
    for (path, name) in [("/api/v1/logs", "logs"), ("/api/v1/sessions", "sessions")] {
        for limit in ["200", "201", "99999999999999999999999"] {
            let path = format!("{path}?limit={limit}");
            let page = app.get(&path).bearer(&ada.token).send().await.expect(200);
            assert_eq!(page[name].as_array().unwrap().len(), 200, "{path}");
        }
        for limit in ["0", "-1", "1.5", "many"] {
            let path = format!("{path}?limit={limit}");
            app.get(&path).bearer(&ada.token).send().await.expect_error(400, "bad_request");
        }
    }
});

on_both!(the_retention_that_an_organization_set_is_known, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("usual").await);
    let set = async |account: &Account, days: Value| {
        let body = json!({"settings": {"log_retention_days": days}});
        let path = format!("/api/v1/orgs/{}", account.org_id);
        app.put(&path, body).bearer(&account.token).send().await.expect(200);
        orgs::log_retentions(&app.app.services.db).await.unwrap()
    };
    assert_eq!(set(&ada, json!(90)).await, [(ada.org_id.parse().unwrap(), 90)]);
    assert_eq!(set(&ada, Value::Null).await, []);
    assert_eq!(set(&bob, json!(7)).await, [(bob.org_id.parse().unwrap(), 7)]);
});

on_both!(a_search_for_something_rare_finds_it_among_many, |app| async move {
    let ada = app.signup("acme").await;
    let time = at("2026-11-01T00:00:00Z");
    let key: KeyId = uuid::Uuid::from_u128(7).into();
    // A row every half hour for twelve days. One in a hundred has the rare model, one in fifty has our key.
    let rows: Vec<LogRow> = (0..576_i64)
        .map(|n| {
            with(row(&ada, time.plus(n * 30 * 60_000)), |row| {
                row.model = Some(if n % 100 == 0 { "rare" } else { "usual" }.into());
                row.key_id = (n % 50 == 0).then_some(key);
                row.status = if n == 500 { 429 } else { 200 };
            })
        })
        .collect();
    app.write(&rows).await;
    let id = |n: usize| rows[n].id;
    assert_eq!(list(&app, &ada, "model=rare").await, [500, 400, 300, 200, 100, 0].map(id));
    assert_eq!(list(&app, &ada, "model=rare&status=429").await, [id(500)]);
    assert_eq!(list(&app, &ada, &format!("key_id={key}&model=usual&limit=2")).await, [id(550), id(450)]);
    assert_eq!(list(&app, &ada, &format!("model=rare&after_id={}", id(300))).await, [500, 400].map(id));
    assert_eq!(
        list(&app, &ada, "model=rare&from=2026-11-03T02:00:00Z&to=2026-11-07T06:00:00Z").await,
        [200, 100].map(id)
    );
    assert_eq!(list(&app, &ada, "provider=nobody").await, Vec::<i64>::new());
    let mut seen = Vec::new();
    let mut path = "/api/v1/logs?model=usual&limit=100".to_owned();
    loop {
        let answer = app.get(&path).bearer(&ada.token).send().await.expect(200);
        seen.extend(ids(&answer));
        let Some(cursor) = answer["next_cursor"].as_str() else { break };
        path = format!("/api/v1/logs?model=usual&limit=100&cursor={cursor}");
    }
    let usual: Vec<i64> =
        rows.iter().rev().filter(|row| row.model.as_deref() == Some("usual")).map(|row| row.id).collect();
    assert_eq!(seen, usual);
});
