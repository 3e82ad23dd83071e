//! Sessions over HTTP: grouping of requests, timelines, and the summary of a user.

use gateway_core::ids::KeyId;
use gateway_core::logs::{Attempt, LogLevel, LogRow};
use gateway_core::time::{HOUR, MINUTE, SECOND, Timestamp};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{at, row, with};
use crate::support::{Account, TestApp};

fn start() -> Timestamp {
    at("2026-11-09T10:00:00Z")
}

async fn sessions(app: &TestApp, account: &Account, query: &str) -> Vec<Value> {
    let path = format!("/api/v1/sessions?{query}");
    let answer = app.get(&path).bearer(&account.token).send().await.expect(200);
    answer["sessions"].as_array().unwrap().clone()
}

async fn counts(app: &TestApp, account: &Account) -> Vec<i64> {
    sessions(app, account, "").await.iter().map(|session| session["requests"].as_i64().unwrap()).collect()
}

fn by(account: &Account, key: u128, user: Option<&str>, time: Timestamp) -> LogRow {
    with(row(account, time), |row| {
        row.key_id = Some(KeyId::from(uuid::Uuid::from_u128(key)));
        row.user = user.map(Into::into);
    })
}

on_both!(requests_less_than_half_an_hour_apart_are_a_session, |app| async move {
    let ada = app.signup("acme").await;
    let near = 30 * MINUTE - SECOND;
    let far = 30 * MINUTE + SECOND;
    let (first, second, third) = (start(), start().plus(near), start().plus(near + far));
    // Each in its own batch, as after a restart.
    for time in [first, second, third] {
        app.write(&[by(&ada, 1, None, time)]).await;
    }
    assert_eq!(counts(&app, &ada).await, [1, 2]);
    // All in one batch. A gap of exactly half an hour starts a new session.
    let rows = [third.plus(HOUR), third.plus(HOUR + near), third.plus(HOUR + near + 30 * MINUTE)];
    app.write(&rows.map(|time| by(&ada, 1, None, time))).await;
    assert_eq!(counts(&app, &ada).await, [1, 2, 1, 2]);
    let newest = &sessions(&app, &ada, "").await[1];
    assert_eq!(newest["started_at"], third.plus(HOUR).to_string());
    assert_eq!(newest["last_seen_at"], third.plus(HOUR + near).to_string());
});

on_both!(keys_and_users_have_sessions_of_their_own, |app| async move {
    let ada = app.signup("acme").await;
    let rows = [
        by(&ada, 1, None, start()),
        by(&ada, 2, None, start().plus(1)),
        by(&ada, 1, Some("ann"), start().plus(2)),
        by(&ada, 1, Some("bob"), start().plus(3)),
        by(&ada, 1, Some("bob"), start().plus(4)),
        row(&ada, start().plus(5)),
        with(by(&ada, 1, Some("bob"), start().plus(6)), |row| row.session_id = Some("named".into())),
        with(by(&ada, 2, Some("ann"), start().plus(10 * HOUR)), |row| row.session_id = Some("named".into())),
    ];
    app.write(&rows).await;
    assert_eq!(counts(&app, &ada).await, [2, 1, 2, 1, 1, 1]);
});

on_both!(a_late_row_joins_the_session_that_it_lies_in, |app| async move {
    let ada = app.signup("acme").await;
    app.write(&[by(&ada, 1, None, start().plus(20 * MINUTE)), by(&ada, 1, None, start().plus(5 * HOUR))])
        .await;
    app.write(&[by(&ada, 1, None, start())]).await;
    let all = sessions(&app, &ada, "").await;
    assert_eq!((&all[0]["requests"], &all[1]["requests"]), (&json!(1), &json!(2)));
    assert_eq!(all[1]["started_at"], start().to_string());
});

on_both!(a_session_adds_up_its_requests, |app| async move {
    let ada = app.signup("acme").await;
    let named = |row: &mut LogRow| {
        row.session_id = Some("chat 1".into());
        row.user = Some("ann".into());
    };
    let mut rows = [
        with(row(&ada, start()), named),
        with(row(&ada, start().plus(MINUTE)), named),
        with(row(&ada, start().plus(2 * MINUTE)), named),
    ];
    (rows[1].provider, rows[1].model) = ("anthropic".into(), Some("claude".into()));
    (rows[2].status, rows[2].level, rows[2].tokens, rows[2].cost_usd) = (500, LogLevel::Error, None, None);
    app.write(&rows[..1]).await;
    app.write(&rows[1..]).await;
    let expected = json!({
        "id": "chat 1", "user": "ann", "started_at": start(), "last_seen_at": start().plus(2 * MINUTE), "requests": 3,
        "total_tokens": 30, "cost_usd": 0.002, "providers": ["openai", "anthropic"], "models": ["gpt-4o", "claude"],
        "errors": 1,
    });
    assert_eq!(sessions(&app, &ada, "").await, std::slice::from_ref(&expected));
    let one = app.get("/api/v1/sessions/chat%201").bearer(&ada.token).send().await.expect(200);
    let ids: Vec<i64> =
        one["requests"].as_array().unwrap().iter().map(|log| log["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, rows.each_ref().map(|row| row.id));
    assert_eq!(one["request_count"], 3);
    for field in
        ["id", "user", "started_at", "last_seen_at", "total_tokens", "cost_usd", "providers", "errors"]
    {
        assert_eq!(one[field], expected[field], "{field}");
    }
    let none = |row: &mut LogRow| (row.cost_usd, row.unpriced) = (None, true);
    app.write(&[with(row(&ada, start().plus(9 * HOUR)), none)]).await;
    assert_eq!(sessions(&app, &ada, "").await[0]["cost_usd"], Value::Null);
});

on_both!(sessions_are_found_by_user_provider_and_time, |app| async move {
    let ada = app.signup("acme").await;
    let session = |id: &'static str, user: &'static str, provider: &'static str, hour: i64| {
        with(row(&ada, start().plus(hour * HOUR)), |row| {
            (row.session_id, row.user, row.provider) = (Some(id.into()), Some(user.into()), provider.into());
        })
    };
    let rows = [
        session("a", "ann", "openai", 0),
        session("b", "bob", "anthropic", 2),
        session("c", "ann", "open", 4),
        session("a", "ann", "groq", 5),
    ];
    app.write(&rows).await;
    for (query, expected) in [
        ("", vec!["c", "b", "a"]),
        ("user=ann", vec!["c", "a"]),
        ("provider=open", vec!["c"]),
        ("provider=OPENAI", vec![]),
        ("provider=groq&user=ann", vec!["a"]),
        ("provider=%25", vec![]),
        // A session matches a range when any part of it does.
        ("from=2026-11-09T15:00:00Z", vec!["a"]),
        ("to=2026-11-09T12:00:00Z", vec!["a"]),
        ("from=2026-11-09T12:00:00Z&to=2026-11-09T14:00:00Z", vec!["b", "a"]),
    ] {
        let found = sessions(&app, &ada, query).await;
        let ids: Vec<&str> = found.iter().map(|session| session["id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected, "{query}");
    }
    let page = app.get("/api/v1/sessions?limit=2").bearer(&ada.token).send().await.expect(200);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = sessions(&app, &ada, &format!("limit=2&cursor={cursor}")).await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["id"], "a");
    for query in ["limit=0", "cursor=x", "from=now"] {
        let answer = app.get(&format!("/api/v1/sessions?{query}")).bearer(&ada.token).send().await;
        answer.expect_error(400, "bad_request");
    }
});

on_both!(a_timeline_shows_requests_in_order, |app| async move {
    let ada = app.signup("acme").await;
    let attempt = |provider: &str, status: u16, start_ms: i64, error: Option<&str>| Attempt {
        provider: provider.into(),
        model: Some("m".into()),
        status: Some(status),
        start_ms,
        ttft_ms: None,
        latency_ms: 10,
        error: error.map(Into::into),
    };
    let mut rows = [row(&ada, start()), row(&ada, start().plus(SECOND)), row(&ada, start().plus(50))];
    for row in &mut rows {
        row.session_id = Some("s".into());
    }
    rows[0].attempts = vec![
        attempt("openai", 503, 1, Some("provider_error")),
        attempt("openai", 503, 20, Some("provider_error")),
        attempt("groq", 200, 60, None),
    ];
    rows[0].provider = "groq".into();
    rows[1].cache = Some("HIT".into());
    (rows[2].status, rows[2].error_code) = (502, Some("provider_error".into()));
    app.write(&rows).await;
    let line = app.get("/api/v1/sessions/s/timeline").bearer(&ada.token).send().await.expect(200);
    assert_eq!(line["session_id"], "s");
    let told: Vec<(String, i64, String)> = line["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let text = |name: &str| event[name].as_str().unwrap().to_owned();
            (text("type"), event["log_id"].as_i64().unwrap(), text("at"))
        })
        .collect();
    let event = |kind: &str, n: usize, ms: i64| (kind.to_owned(), rows[n].id, start().plus(ms).to_string());
    assert_eq!(
        told,
        [
            event("request", 0, 0),
            event("request", 2, 50),
            event("fallback", 0, 60),
            event("response", 0, 100),
            event("error", 2, 150),
            event("request", 1, 1000),
            event("cache_hit", 1, 1100),
            event("response", 1, 1100),
        ]
    );
    assert_eq!(line["events"][0]["provider"], "openai");
    assert_eq!(line["events"][2]["provider"], "groq");
    assert_eq!(line["events"][4]["error"], "provider_error");
});

on_both!(another_organizations_sessions_and_users_do_not_exist, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let both = |account: &Account, hour: i64| {
        with(row(account, start().plus(hour * HOUR)), |row| {
            (row.session_id, row.user) = (Some("same".into()), Some("ann".into()));
        })
    };
    app.write(&[both(&ada, 0), both(&ada, 1)]).await;
    for path in ["/api/v1/sessions/same", "/api/v1/sessions/same/timeline", "/api/v1/users/ann/summary"] {
        let foreign = app.get(path).bearer(&eve.token).send().await;
        foreign.expect_error(404, "not_found");
        let missing =
            app.get(&path.replace("same", "other").replace("ann", "other")).bearer(&eve.token).send().await;
        assert_eq!(foreign.body, missing.body, "{path}");
    }
    app.write(&[both(&eve, 2)]).await;
    assert_eq!(counts(&app, &ada).await, [2]);
    assert_eq!(counts(&app, &eve).await, [1]);
});

on_both!(a_users_summary_adds_up_all_their_requests, |app| async move {
    let ada = app.signup("acme").await;
    let of_ann = |hour: i64, model: &'static str, cost: &'static str| {
        with(row(&ada, start().plus(hour * HOUR)), |row| {
            row.user = Some("ann@example.com/1".into());
            row.model = Some(model.into());
            row.cost_usd = Some(cost.parse().unwrap());
        })
    };
    app.write(&[of_ann(0, "cheap", "0.001"), of_ann(30, "dear", "1.5"), of_ann(55, "cheap", "0.002")]).await;
    app.write(&[row(&ada, start())]).await;
    let summary = app.get("/api/v1/users/ann@example.com%2F1/summary").bearer(&ada.token).send().await;
    assert_eq!(
        summary.expect(200),
        json!({
            "user": "ann@example.com/1", "requests": 3, "prompt_tokens": 30, "completion_tokens": 15, "total_tokens": 45,
            "cost_usd": 1.503,
            "top_models": [
                {"model": "dear", "requests": 1, "cost_usd": 1.5},
                {"model": "cheap", "requests": 2, "cost_usd": 0.003},
            ],
            "first_seen_at": start(), "last_seen_at": start().plus(55 * HOUR), "budgets": [],
        })
    );
    let idle = app.get(&format!("/api/v1/users/{}/summary", ada.user_id)).bearer(&ada.token).send().await;
    let idle = idle.expect(200);
    assert_eq!(
        (&idle["requests"], &idle["cost_usd"], &idle["first_seen_at"]),
        (&json!(0), &json!(0.0), &Value::Null)
    );
});
