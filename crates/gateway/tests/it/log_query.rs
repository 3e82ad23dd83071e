//! The `query` and `sort` parameters over HTTP: lists, counts, completion, usage, sessions and the live stream; errors
//! that point at a character; whose rows a caller finds.

use std::time::Duration;

use gateway_core::logs::{LogLevel, LogRow, LogSource};
use gateway_core::time::MINUTE;
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{at, chat, row, with};
use crate::support::{Account, TestApp, TestRequest};

fn encoded(query: &str) -> String {
    url::form_urlencoded::byte_serialize(query.as_bytes()).collect()
}

fn get(app: &TestApp, account: &Account, path: &str) -> TestRequest {
    app.get(&format!("/api/v1{path}")).bearer(&account.token)
}

fn ids(list: &Value) -> Vec<i64> {
    list["logs"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

async fn find(app: &TestApp, account: &Account, query: &str) -> Vec<i64> {
    let answer = get(app, account, &format!("/logs?query={}", encoded(query))).send().await.expect(200);
    assert_eq!(answer["partial"], false, "{answer}");
    ids(&answer)
}

/// Four rows, a minute apart.
fn rows(account: &Account) -> Vec<LogRow> {
    let time = at("2026-11-09T10:00:00Z");
    let mut rows: Vec<LogRow> = (0..4).map(|number| row(account, time.plus(number * MINUTE))).collect();
    rows[0].latency_ms = 5_000;
    rows[0].user = Some("maria".into());
    rows[1].cost_usd = Some("0.5".parse().unwrap());
    rows[1].model = Some("gpt-4o-mini".into());
    rows[1].request = chat("the exact words of a question");
    rows[2].status = 500;
    rows[2].level = LogLevel::Error;
    rows[2].error_code = Some("timeout".into());
    rows[2].metadata.insert("env".into(), "prod".into());
    rows[3].source = LogSource::Api;
    rows[3].session_id = Some("chat".into());
    rows[3].request = chat("words that are exact");
    rows
}

on_both!(a_list_takes_a_query_and_an_order, |app| async move {
    let ada = app.signup("acme").await;
    let rows = rows(&ada);
    app.write(&rows).await;
    let id: Vec<i64> = rows.iter().map(|row| row.id).collect();
    for (query, expected) in [
        ("status:error", vec![id[2]]),
        ("latency:>2s", vec![id[0]]),
        ("cost:>0.01", vec![id[1]]),
        ("user:maria", vec![id[0]]),
        ("metadata.env:prod", vec![id[2]]),
        ("model:gpt-4o*", vec![id[3], id[2], id[1], id[0]]),
        ("model:gpt-4o* -source:api status:ok", vec![id[1], id[0]]),
        ("exact words", vec![id[3], id[1]]),
        ("\"exact words\"", vec![id[1]]),
        ("-\"exact words\" -source:api", vec![id[2], id[0]]),
        ("user:maria status:error", vec![]),
    ] {
        assert_eq!(find(&app, &ada, query).await, expected, "{query}");
    }
    // Besides other parameters.
    let both = get(&app, &ada, "/logs?query=model%3Agpt*&status=5xx").send().await.expect(200);
    assert_eq!(ids(&both), [id[2]]);
    let both = get(&app, &ada, "/logs?query=source%3Aproxy&q=exact").send().await.expect(200);
    assert_eq!(ids(&both), [id[1]]);
    // Without `query` and `sort` nothing is different.
    let plain = get(&app, &ada, "/logs").send().await.expect(200);
    assert!(plain.get("partial").is_none() && plain.get("scanned_to").is_none(), "{plain}");
    for (sort, expected) in [
        ("latency", vec![id[0], id[3], id[2], id[1]]),
        ("latency:asc", vec![id[1], id[2], id[3], id[0]]),
        ("cost", vec![id[1], id[3], id[2], id[0]]),
        ("tokens", vec![id[3], id[2], id[1], id[0]]),
        ("time:asc", id.clone()),
        ("time", vec![id[3], id[2], id[1], id[0]]),
    ] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/logs?sort={sort}&limit=3{cursor}");
            let page = get(&app, &ada, &path).send().await.expect(200);
            found.extend(ids(&page));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(found, expected, "{sort}");
    }
    get(&app, &ada, "/logs?sort=size").send().await.expect_error(400, "bad_request");
    get(&app, &ada, "/logs?sort=cost:up").send().await.expect_error(400, "bad_request");
});

on_both!(an_error_points_at_the_character, |app| async move {
    let ada = app.signup("acme").await;
    for (path, position, length) in [
        ("/logs?query=model%3Ax%20latncy%3A1s", 8, 6),
        ("/logs/facets?query=status%3Aabc", 7, 3),
        ("/logs/stream?query=%22open", 0, 1),
        ("/usage/summary?query=cost%3A%3E", 5, 1),
        ("/usage/timeseries?query=a%20OR%20b", 2, 2),
        ("/usage/breakdown?query=(a", 0, 1),
        ("/sessions?query=user%3A", 5, 0),
        ("/me/logs?query=gr%C3%B6%C3%9Fe%20x%3A1", 6, 1),
    ] {
        let body = get(&app, &ada, path).send().await.expect_error(400, "bad_request");
        assert_eq!(
            (&body["position"], &body["length"]),
            (&json!(position), &json!(length)),
            "{path}: {body}"
        );
        assert!(body["message"].as_str().unwrap().starts_with("query: at character "), "{body}");
        assert!(body["expected"].is_array());
    }
    let long = "x".repeat(3_000);
    get(&app, &ada, &format!("/logs?query={long}")).send().await.expect_error(400, "bad_request");
});

on_both!(names_stand_for_keys_applications_teams_and_members, |app| async move {
    let ada = app.signup("acme").await;
    let create = |area: &str, name: &str| {
        let path = format!("/api/v1/orgs/{}/{area}", ada.org_id);
        let call = app.post(&path, json!({"name": name})).bearer(&ada.token);
        async move {
            let made = call.send().await.expect(201);
            let nested = made.as_object().unwrap().values().find_map(|value| value["id"].as_str());
            made["id"].as_str().or(nested).unwrap_or_else(|| panic!("{made}")).to_owned()
        }
    };
    let (app_id, team_id) = (create("apps", "Check Out").await, create("teams", "search").await);
    let time = at("2026-11-09T10:00:00Z");
    let of_app = with(row(&ada, time), |row| row.app_id = Some(app_id.parse().unwrap()));
    let of_team = with(row(&ada, time.plus(MINUTE)), |row| row.team_id = Some(team_id.parse().unwrap()));
    app.write(&[of_app.clone(), of_team.clone()]).await;
    assert_eq!(find(&app, &ada, "app:\"check out\"").await, [of_app.id]);
    assert_eq!(find(&app, &ada, &format!("app:{app_id}")).await, [of_app.id]);
    assert_eq!(find(&app, &ada, "team:sea*").await, [of_team.id]);
    assert_eq!(find(&app, &ada, "-team:search").await, [of_app.id]);
    assert_eq!(find(&app, &ada, "team:nobody").await, [0_i64; 0]);
    let values = get(&app, &ada, "/logs/values?field=app&prefix=Che").send().await.expect(200);
    assert_eq!(values, json!({"field": "app", "values": ["Check Out"]}));
    let facets = get(&app, &ada, "/logs/facets?fields=app").send().await.expect(200);
    let value = json!({"value": app_id, "name": "Check Out", "rows": 1});
    assert_eq!((&facets["facets"][0]["values"][0], &facets["facets"][0]["missing"]), (&value, &json!(1)));
});

on_both!(values_are_counted_and_completed, |app| async move {
    let ada = app.signup("acme").await;
    app.write(&rows(&ada)).await;
    let path = "/logs/facets?query=-source%3Aapi&fields=model,status,metadata.env,stream&limit=1";
    let found = get(&app, &ada, path).send().await.expect(200);
    assert_eq!((&found["rows"], &found["partial"]), (&json!(3), &json!(false)));
    assert_eq!(
        found["facets"],
        json!([
            {"field": "model", "values": [{"value": "gpt-4o", "rows": 2}], "other_values": 1, "other_rows": 1,
             "missing": 0},
            {"field": "status", "values": [{"value": "200", "rows": 2}], "other_values": 1, "other_rows": 1,
             "missing": 0},
            {"field": "metadata.env", "values": [{"value": "prod", "rows": 1}], "other_values": 0, "other_rows": 0,
             "missing": 2},
            {"field": "stream", "values": [{"value": "false", "rows": 3}], "other_values": 0, "other_rows": 0,
             "missing": 0},
        ])
    );
    let default = get(&app, &ada, "/logs/facets").send().await.expect(200);
    assert_eq!(default["facets"].as_array().unwrap().len(), 9);
    for (path, expected) in [
        ("field=model&prefix=gpt-4o-", json!(["gpt-4o-mini"])),
        ("field=model", json!(["gpt-4o", "gpt-4o-mini"])),
        ("field=user&prefix=m", json!(["maria"])),
        ("field=level&prefix=w", json!(["warn"])),
        ("field=error", json!(["timeout"])),
        ("field=metadata", json!(["env"])),
        ("field=metadata.env", json!(["prod"])),
        ("field=cost", json!([])),
        ("field=session&prefix=ch", json!(["chat"])),
    ] {
        let found = get(&app, &ada, &format!("/logs/values?{path}")).send().await.expect(200);
        assert_eq!(found["values"], expected, "{path}");
    }
    for path in ["/logs/values?field=nothing", "/logs/facets?fields=latency", "/logs/facets?fields=x,y"] {
        get(&app, &ada, path).send().await.expect_error(400, "bad_request");
    }
    get(&app, &ada, "/logs/facets?limit=0").send().await.expect_error(400, "bad_request");
    get(&app, &ada, "/logs/values?field=model&limit=1000").send().await.expect_error(400, "bad_request");
    let fields = get(&app, &ada, "/logs/fields").send().await.expect(200);
    let fields = fields["fields"].as_array().unwrap();
    assert!(fields.iter().any(|field| field["name"] == "latency" && field["type"] == "duration"));
    // Every example is a query.
    for field in fields {
        find(&app, &ada, field["example"].as_str().unwrap()).await;
    }
});

on_both!(usage_and_sessions_take_a_query, |app| async move {
    let ada = app.signup("acme").await;
    app.write(&rows(&ada)).await;
    let range = "from=2026-11-09T00:00:00Z&to=2026-11-10T00:00:00Z";
    let query = encoded("model:gpt-4o -source:api");
    let summary = get(&app, &ada, &format!("/usage/summary?{range}&query={query}")).send().await.expect(200);
    assert_eq!(
        (&summary["requests"], &summary["errors"], &summary["partial"]),
        (&json!(2), &json!(1), &json!(false))
    );
    assert!(summary["p99_ms"].as_i64().unwrap() >= 4_500, "{summary}");
    let plain = get(&app, &ada, &format!("/usage/summary?{range}")).send().await.expect(200);
    assert_eq!(plain["requests"], 4);
    assert!(plain.get("partial").is_none() && plain.get("p99_ms").is_none(), "{plain}");
    let rolled = encoded("model:gpt-4o-*");
    let path = format!("/usage/timeseries?{range}&interval=hour&by=model&query={rolled}");
    let series = get(&app, &ada, &path).send().await.expect(200);
    let busy: Vec<&Value> =
        series["buckets"].as_array().unwrap().iter().filter(|bucket| bucket["requests"] != 0).collect();
    assert_eq!(busy.len(), 1);
    assert_eq!(busy[0]["groups"][0]["key"], "gpt-4o-mini");
    let path = format!("/usage/breakdown?{range}&by=error&query={}", encoded("status:error"));
    let broken = get(&app, &ada, &path).send().await.expect(200);
    assert_eq!((&broken["rows"][0]["key"], &broken["rows"][0]["requests"]), (&json!("timeout"), &json!(1)));
    let by_error = get(&app, &ada, &format!("/usage/breakdown?{range}&by=error")).send().await.expect(200);
    assert_eq!(by_error["rows"].as_array().unwrap().len(), 2);
    let sessions = |query: &str| {
        let call = get(&app, &ada, &format!("/sessions?query={}", encoded(query)));
        async move { call.send().await.expect(200)["sessions"].as_array().unwrap().clone() }
    };
    let found = sessions("source:api").await;
    assert_eq!((found.len(), &found[0]["id"]), (1, &json!("chat")));
    let found = sessions("\"that are exact\"").await;
    assert_eq!((found.len(), &found[0]["id"]), (1, &json!("chat")));
    assert_eq!(sessions("user:nobody").await.len(), 0);
});

on_both!(a_query_finds_only_rows_that_the_caller_may_read, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("other").await);
    let body = json!({"name": "scoped", "scopes": ["proxy"]});
    let made = app.post("/api/v1/keys", body).bearer(&ada.token).send().await.expect(201);
    let key_id = made["key"]["id"].as_str().unwrap();
    let raw = made["raw_key"].as_str().unwrap();
    let time = at("2026-11-09T10:00:00Z");
    let own = with(row(&ada, time), |row| {
        row.key_id = Some(key_id.parse().unwrap());
        row.user = Some("own-user".into());
    });
    let foreign = with(row(&ada, time.plus(MINUTE)), |row| {
        row.model = Some("secret-model".into());
        row.user = Some("secret-user".into());
        row.error_code = Some("secret-error".into());
        row.level = LogLevel::Error;
        row.metadata.insert("tier".into(), "secret".into());
        row.request = chat("secret words");
    });
    app.write(&[own.clone(), foreign.clone()]).await;
    app.write(&[row(&bob, time)]).await;
    assert_eq!(find(&app, &ada, "hello").await, [own.id]);
    assert_eq!(find(&app, &bob, "secret").await, [0_i64; 0]);
    let by_key = |path: &str| app.get(&format!("/api/v1{path}")).key(raw);
    let query = |text: &str| format!("/logs?query={}", encoded(text));
    assert_eq!(ids(&by_key(&query("latency:>=0")).send().await.expect(200)), [own.id]);
    let all = format!("key:*,{key_id}");
    assert_eq!(ids(&by_key(&query(&all)).send().await.expect(200)), [own.id]);
    for path in [query("secret"), query("model:secret*"), query("metadata.tier:*")] {
        assert_eq!(ids(&by_key(&path).send().await.expect(200)), [0_i64; 0], "{path}");
    }
    for path in [
        "/logs?sort=latency",
        "/logs/facets?fields=model,user,error,metadata.tier",
        "/logs/values?field=model",
        "/logs/values?field=user",
        "/logs/values?field=error",
        "/logs/values?field=metadata",
        "/logs/values?field=metadata.tier",
        "/logs/values?field=key",
        "/usage/breakdown?by=error&from=2026-11-09T00:00:00Z",
        "/usage/breakdown?by=model&query=latency%3A%3E%3D0&from=2026-11-09T00:00:00Z",
    ] {
        let answer = by_key(path).send().await;
        answer.expect(200);
        assert!(!answer.text().contains("secret"), "{path}: {}", answer.text());
    }
    for path in ["/logs/facets", "/logs/values?field=model", "/logs/fields"] {
        app.call(Method::GET, &format!("/api/v1{path}")).send().await.expect_error(401, "unauthorized");
        let foreign = get(&app, &bob, path).send().await;
        foreign.expect(200);
        assert!(!foreign.text().contains("secret"), "{path}");
    }
});

on_both!(a_live_stream_takes_a_query, |app| async move {
    let ada = app.signup("acme").await;
    let send = |text: &'static str, user: &'static str| {
        let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": text}]});
        let call = app.post("/v1/chat/completions", body).key(&ada.api_key);
        let call = call.header("x-gateway-provider", "sandbox").header("x-gateway-user", user);
        async move {
            let answer = call.send().await;
            answer.expect(200);
        }
    };
    let query = encoded("user:erin -\"leave out\" status:ok");
    let mut stream = get(&app, &ada, &format!("/logs/stream?query={query}")).open().await;
    send("please leave out this", "erin").await;
    send("of somebody else", "frank").await;
    send("the one to see", "erin").await;
    let event = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.expect("no event came");
    let event = event.expect("the stream ended");
    assert!(event.data.contains("the one to see"), "{event:?}");
});
