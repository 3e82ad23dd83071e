//! Usage over HTTP: totals, buckets and breakdowns, and their exactness.

use gateway_core::ids::{AppId, KeyId, TeamId};
use gateway_core::logs::LogRow;
use gateway_core::time::{DAY, HOUR, MINUTE, Timestamp};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{at, row, with};
use crate::support::{Account, TestApp};

fn start() -> Timestamp {
    at("2026-11-09T10:00:00Z")
}

async fn get(app: &TestApp, account: &Account, path: &str) -> Value {
    app.get(&format!("/api/v1/usage/{path}")).bearer(&account.token).send().await.expect(200)
}

async fn requests(app: &TestApp, account: &Account, query: &str) -> i64 {
    get(app, account, &format!("summary?{query}")).await["requests"].as_i64().unwrap()
}

fn keys(rows: &Value) -> Vec<(Option<&str>, i64)> {
    let rows = rows.as_array().unwrap();
    rows.iter().map(|row| (row["key"].as_str(), row["requests"].as_i64().unwrap())).collect()
}

on_both!(a_summary_adds_up_rows, |app| async move {
    let ada = app.signup("acme").await;
    let mut rows: Vec<LogRow> = (0..5).map(|n| row(&ada, start().plus(n * 7 * HOUR))).collect();
    rows[1].status = 500;
    rows[2].error_code = Some("client_closed".into());
    rows[3].cache = Some("hit".into());
    (rows[4].tokens, rows[4].cost_usd) = (None, None);
    app.write(&rows).await;
    let range = "from=2026-11-09T00:00:00Z&to=2026-11-11T00:00:00Z";
    assert_eq!(
        get(&app, &ada, &format!("summary?{range}")).await,
        json!({
            "requests": 5, "prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60, "cost_usd": 0.004,
            "errors": 2, "cache_hits": 1, "unpriced": 0, "p50_ms": 100, "p95_ms": 100,
            "cached_tokens": 0, "cache_write_tokens": 0, "cache_saved_usd": 0.0, "prompt_cache_pauses": [],
            "from": "2026-11-09T00:00:00.000Z", "to": "2026-11-11T00:00:00.000Z",
        })
    );
    let empty = get(&app, &ada, "summary?from=2025-01-01T00:00:00Z&to=2025-02-01T00:00:00Z").await;
    assert_eq!(
        (&empty["requests"], &empty["cost_usd"], &empty["p50_ms"]),
        (&json!(0), &json!(0.0), &Value::Null)
    );
});

on_both!(an_unpriced_request_costs_null_and_not_zero, |app| async move {
    let ada = app.signup("acme").await;
    let unpriced = |row: &mut LogRow| (row.cost_usd, row.unpriced) = (None, true);
    let range = "from=2026-11-09T00:00:00Z&to=2026-11-10T00:00:00Z";
    app.write(&[with(row(&ada, start()), unpriced)]).await;
    let sums = get(&app, &ada, &format!("summary?{range}")).await;
    assert_eq!((&sums["cost_usd"], &sums["unpriced"]), (&Value::Null, &json!(1)));
    let free = |row: &mut LogRow| row.cost_usd = Some("0".parse().unwrap());
    app.write(&[with(row(&ada, start().plus(1)), free)]).await;
    let sums = get(&app, &ada, &format!("summary?{range}")).await;
    assert_eq!((&sums["cost_usd"], &sums["unpriced"]), (&json!(0.0), &json!(1)));
    let tiny = |row: &mut LogRow| row.cost_usd = Some("0.000000000001".parse().unwrap());
    let rows: Vec<LogRow> = (0..30).map(|n| with(row(&ada, start().plus(10 + n)), tiny)).collect();
    app.write(&rows).await;
    let sums = get(&app, &ada, &format!("summary?{range}")).await;
    assert_eq!(sums["cost_usd"], json!(3e-11));
});

on_both!(a_range_is_exact_to_the_millisecond, |app| async move {
    let ada = app.signup("acme").await;
    let other = app.signup("other").await;
    // A row every 47 minutes for six days, each with one of another organization.
    let times: Vec<Timestamp> = (0..184).map(|n| start().plus(n * 47 * MINUTE)).collect();
    let rows: Vec<LogRow> = times.iter().flat_map(|time| [row(&ada, *time), row(&other, *time)]).collect();
    app.write(&rows).await;
    let last = times[times.len() - 1];
    for (from, to) in [
        (start(), last),
        (start().plus(1), last.plus(1)),
        (start().plus(HOUR / 2), start().plus(HOUR / 2 + 5 * MINUTE)),
        (start().plus(HOUR / 2), start().plus(3 * HOUR + 7)),
        (start().plus(20 * HOUR + 1), start().plus(3 * DAY + 17 * MINUTE)),
        (at("2026-11-10T00:00:00Z"), at("2026-11-13T00:00:00Z")),
        (at("2026-11-10T05:00:00Z"), at("2026-11-13T06:00:00Z")),
        (at("2026-11-10T23:59:59.999Z"), at("2026-11-12T00:00:00.001Z")),
    ] {
        let expected = times.iter().filter(|time| (from..to).contains(*time)).map(|_| 1_i64).sum::<i64>();
        let range = format!("from={from}&to={to}");
        assert_eq!(requests(&app, &ada, &range).await, expected, "{range}");
        for by in ["provider", "user", "key"] {
            let rows = get(&app, &ada, &format!("breakdown?by={by}&{range}")).await["rows"].clone();
            let sum: i64 = keys(&rows).iter().map(|(_, requests)| requests).sum();
            assert_eq!(sum, expected, "{by} {range}");
        }
        for interval in ["hour", "day", "week"] {
            let series = get(&app, &ada, &format!("timeseries?interval={interval}&{range}")).await;
            let buckets = series["buckets"].as_array().unwrap();
            let sum: i64 = buckets.iter().map(|bucket| bucket["requests"].as_i64().unwrap()).sum();
            assert_eq!(sum, expected, "{interval} {range}");
        }
    }
});

on_both!(buckets_follow_the_calendar_and_may_be_empty, |app| async move {
    let ada = app.signup("acme").await;
    let times =
        ["2026-11-08T23:59:59.999Z", "2026-11-09T00:00:00Z", "2026-11-11T13:59:00Z", "2026-11-11T14:00:00Z"];
    let rows: Vec<LogRow> = times.iter().map(|time| row(&ada, at(time))).collect();
    app.write(&rows).await;
    let series = async |query: &str| {
        let found = get(&app, &ada, &format!("timeseries?{query}")).await;
        let buckets = found["buckets"].as_array().unwrap().clone();
        let told: Vec<(String, i64)> = buckets
            .iter()
            .map(|bucket| {
                let start = bucket["start"].as_str().unwrap().to_owned();
                (start, bucket["requests"].as_i64().unwrap())
            })
            .collect();
        (found["interval"].as_str().unwrap().to_owned(), told)
    };
    let bucket = |start: &str, requests: i64| (at(start).to_string(), requests);
    // 9 November 2026 is a Monday.
    let (interval, weeks) = series("interval=weekly&from=2026-11-03T05:00:00Z&to=2026-11-17T00:00:00Z").await;
    assert_eq!(interval, "week");
    assert_eq!(
        weeks,
        [
            bucket("2026-11-02T00:00:00Z", 1),
            bucket("2026-11-09T00:00:00Z", 3),
            bucket("2026-11-16T00:00:00Z", 0)
        ]
    );
    let (interval, days) = series("from=2026-11-08T12:00:00Z&to=2026-11-11T14:00:00Z").await;
    assert_eq!(interval, "day");
    assert_eq!(
        days,
        [
            bucket("2026-11-08T00:00:00Z", 1),
            bucket("2026-11-09T00:00:00Z", 1),
            bucket("2026-11-10T00:00:00Z", 0),
            bucket("2026-11-11T00:00:00Z", 1),
        ]
    );
    let (interval, hours) = series("interval=hourly&from=2026-11-11T12:30:00Z&to=2026-11-11T15:00:00Z").await;
    assert_eq!(interval, "hour");
    assert_eq!(
        hours,
        [
            bucket("2026-11-11T12:00:00Z", 0),
            bucket("2026-11-11T13:00:00Z", 1),
            bucket("2026-11-11T14:00:00Z", 1),
        ]
    );
    let (interval, minutes) =
        series("interval=minute&from=2026-11-11T13:58:30Z&to=2026-11-11T14:01:00Z").await;
    assert_eq!(interval, "minute");
    assert_eq!(
        minutes,
        [
            bucket("2026-11-11T13:58:00Z", 0),
            bucket("2026-11-11T13:59:00Z", 1),
            bucket("2026-11-11T14:00:00Z", 1),
        ]
    );
});

on_both!(buckets_are_grouped_by_provider_model_or_status, |app| async move {
    let ada = app.signup("acme").await;
    let mut rows: Vec<LogRow> = (0..4).map(|n| row(&ada, start().plus(n * 20 * MINUTE))).collect();
    rows[1].provider = "groq".into();
    rows[2].model = None;
    rows[3].status = 404;
    app.write(&rows).await;
    let range = "from=2026-11-09T09:00:00Z&to=2026-11-09T12:00:00Z";
    for (interval, by, expected) in [
        (
            "hour",
            "provider",
            vec![vec![], vec![(Some("groq"), 1), (Some("openai"), 2)], vec![(Some("openai"), 1)]],
        ),
        ("hour", "model", vec![vec![], vec![(None, 1), (Some("gpt-4o"), 2)], vec![(Some("gpt-4o"), 1)]]),
        ("day", "status", vec![vec![(Some("200"), 3), (Some("404"), 1)]]),
    ] {
        let found = get(&app, &ada, &format!("timeseries?interval={interval}&by={by}&{range}")).await;
        let buckets = found["buckets"].as_array().unwrap();
        let groups: Vec<Vec<(Option<&str>, i64)>> =
            buckets.iter().map(|bucket| keys(&bucket["groups"])).collect();
        assert_eq!(groups, expected, "{by}");
    }
    let plain = get(&app, &ada, &format!("timeseries?{range}")).await;
    assert!(plain["buckets"][0].get("groups").is_none());
});

on_both!(a_breakdown_names_its_dimension, |app| async move {
    let ada = app.signup("acme").await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    let post =
        async |path: String, body: Value| app.post(&path, body).bearer(&ada.token).send().await.expect(201);
    let team = post(format!("{org}/teams"), json!({"name": "Blue team"})).await;
    let program = post(format!("{org}/apps"), json!({"name": "Shop", "team_id": team["id"]})).await;
    let key =
        post("/api/v1/keys".into(), json!({"name": "Till", "app_id": program["id"]})).await["key"].clone();
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let mut rows: Vec<LogRow> = (0..4).map(|n| row(&ada, start().plus(n))).collect();
    for row in &mut rows[..3] {
        row.key_id = Some(id(&key).parse::<KeyId>().unwrap());
        row.app_id = Some(id(&program).parse::<AppId>().unwrap());
        row.team_id = Some(id(&team).parse::<TeamId>().unwrap());
        row.user = Some(ada.user_id.clone());
    }
    rows[2].user = Some("guest".into());
    rows[2].cost_usd = Some("5".parse().unwrap());
    app.write(&rows).await;
    let range = "from=2026-11-09T00:00:00Z&to=2026-11-10T00:00:00Z";
    let broken_down = async |by: &str| {
        let found = get(&app, &ada, &format!("breakdown?by={by}&{range}")).await;
        assert_eq!(found["by"], by);
        let rows = found["rows"].as_array().unwrap().clone();
        rows.into_iter()
            .map(|row| {
                let text = |name: &str| row[name].as_str().map(ToOwned::to_owned);
                (text("key"), text("name").unwrap(), row["requests"].as_i64().unwrap())
            })
            .collect::<Vec<_>>()
    };
    let named = |id: String, name: &str, requests: i64| (Some(id), name.to_owned(), requests);
    let nothing = |requests: i64| (None, "(none)".to_owned(), requests);
    assert_eq!(broken_down("key").await, [named(id(&key), "Till", 3), nothing(1)]);
    assert_eq!(broken_down("app").await, [named(id(&program), "Shop", 3), nothing(1)]);
    assert_eq!(broken_down("team").await, [named(id(&team), "Blue team", 3), nothing(1)]);
    assert_eq!(broken_down("model").await, [named("gpt-4o".into(), "gpt-4o", 4)]);
    // Most expensive first.
    assert_eq!(
        broken_down("user").await,
        [named("guest".into(), "guest", 1), named(ada.user_id.clone(), &ada.email, 2), nothing(1)]
    );
    let dearest = get(&app, &ada, &format!("breakdown?by=user&{range}")).await["rows"][0].clone();
    assert_eq!((&dearest["cost_usd"], &dearest["p95_ms"]), (&json!(5.0), &json!(100)));
});

on_both!(filters_narrow_every_kind_of_usage, |app| async move {
    let ada = app.signup("acme").await;
    let (key, program, team) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2), uuid::Uuid::from_u128(3));
    // When the range begins within an hour, that hour is read from rows and the rest from roll-ups.
    for hour in [0, 3, 30] {
        let mut rows: Vec<LogRow> =
            (0..6).map(|n| row(&ada, start().plus(hour * HOUR + 20 * MINUTE + n))).collect();
        rows[1].provider = "groq".into();
        rows[2].model = Some("o3".into());
        rows[3].key_id = Some(key.into());
        (rows[4].app_id, rows[4].provider) = (Some(program.into()), "groq".into());
        (rows[5].team_id, rows[5].user) = (Some(team.into()), Some("ann".into()));
        app.write(&rows).await;
    }
    for (filter, expected) in [
        (String::new(), 18),
        ("provider=groq".into(), 6),
        ("model=o3".into(), 3),
        (format!("key_id={key}"), 3),
        (format!("app_id={program}"), 3),
        (format!("team_id={team}"), 3),
        (format!("app_id={program}&provider=groq"), 3),
        (format!("app_id={program}&provider=openai"), 0),
        ("model=gpt-4o&provider=openai".into(), 9),
        ("provider=Groq".into(), 0),
    ] {
        for range in [
            "from=2026-11-09T10:00:00Z&to=2026-11-12T00:00:00Z",
            "from=2026-11-09T10:15:00Z&to=2026-11-10T16:30:00Z",
        ] {
            assert_eq!(
                requests(&app, &ada, &format!("{filter}&{range}")).await,
                expected,
                "{filter} {range}"
            );
            for by in ["provider", "model", "key", "team", "app", "user"] {
                let rows =
                    get(&app, &ada, &format!("breakdown?by={by}&{filter}&{range}")).await["rows"].clone();
                let sum: i64 = keys(&rows).iter().map(|(_, requests)| requests).sum();
                assert_eq!(sum, expected, "{by} {filter} {range}");
            }
            let path = format!("timeseries?interval=hour&by=status&{filter}&{range}");
            let series = get(&app, &ada, &path).await;
            let buckets = series["buckets"].as_array().unwrap();
            let sum: i64 = buckets.iter().flat_map(|bucket| keys(&bucket["groups"])).map(|(_, n)| n).sum();
            assert_eq!(sum, expected, "{filter} {range}");
        }
    }
});

on_both!(percentiles_are_off_by_less_than_a_tenth, |app| async move {
    let ada = app.signup("acme").await;
    let latencies: Vec<i64> = (0..1_000).map(|n| 20 + n * n / 37).collect();
    let rows: Vec<LogRow> = (0_i64..)
        .zip(&latencies)
        .map(|(n, latency)| with(row(&ada, start().plus(n * 150_000)), |row| row.latency_ms = *latency))
        .collect();
    for batch in rows.chunks(100) {
        app.write(batch).await;
    }
    for range in [
        "from=2026-11-09T00:00:00Z&to=2026-11-13T00:00:00Z",
        "from=2026-11-09T09:59:59Z&to=2026-11-11T03:38:00Z",
    ] {
        let sums = get(&app, &ada, &format!("summary?{range}")).await;
        assert_eq!(sums["requests"], 1000, "{range}");
        for (name, rank) in [("p50_ms", 499), ("p95_ms", 949)] {
            let (found, exact) = (sums[name].as_i64().unwrap(), latencies[rank]);
            assert!((found - exact).abs() * 10 < exact, "{name}: {found} for {exact}");
        }
    }
});

on_both!(usage_is_only_the_callers_organizations, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    app.write(&[row(&ada, start())]).await;
    let range = "from=2026-11-09T00:00:00Z&to=2026-11-10T00:00:00Z";
    assert_eq!(requests(&app, &ada, range).await, 1);
    assert_eq!(requests(&app, &eve, range).await, 0);
    assert_eq!(get(&app, &eve, &format!("breakdown?{range}")).await["rows"], json!([]));
    app.get("/api/v1/usage/summary").send().await.expect_error(401, "unauthorized");
    let viewer = app.join(&ada, "viewer").await;
    assert_eq!(requests(&app, &viewer, range).await, 1);
});

on_both!(without_a_range_the_last_thirty_days_count, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    app.write(&[row(&ada, now), row(&ada, now.plus(-28 * DAY)), row(&ada, now.plus(-31 * DAY))]).await;
    assert_eq!(requests(&app, &ada, "").await, 2);
    let series = get(&app, &ada, "timeseries").await;
    let buckets = series["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), 30);
    assert_eq!(buckets[29]["requests"], 1);
    let minutes = get(&app, &ada, "timeseries?interval=minute").await;
    let buckets = minutes["buckets"].as_array().unwrap();
    assert!((60..=61).contains(&buckets.len()), "{}", buckets.len());
});

on_both!(bad_values_are_refused_by_name, |app| async move {
    let ada = app.signup("acme").await;
    for (path, name) in [
        ("summary?from=x", "from"),
        ("summary?from=2026-11-10T00:00:00Z&to=2026-11-10T00:00:00Z", "from"),
        ("summary?key_id=1", "key_id"),
        ("summary?app_id=1", "app_id"),
        ("summary?team_id=1", "team_id"),
        ("timeseries?interval=year", "interval"),
        ("timeseries?interval=minute&from=2026-11-10T00:00:00Z&to=2026-11-10T06:00:01Z", "interval"),
        ("timeseries?interval=hour&from=2020-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "interval"),
        ("timeseries?by=moon", "by"),
        ("breakdown?by=moon", "by"),
    ] {
        let answer = app.get(&format!("/api/v1/usage/{path}")).bearer(&ada.token).send().await;
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().starts_with(name), "{path}: {error}");
    }
});

on_both!(the_price_table_is_shown, |app| async move {
    let ada = app.signup("acme").await;
    let all = get(&app, &ada, "prices").await;
    assert!(all["prices"].as_array().unwrap().len() > 1000);
    assert!(all["as_of"].as_str().unwrap().ends_with('Z'));
    // The date of the data, whenever it is asked for.
    app.app.services.clock.advance(HOUR);
    assert_eq!(get(&app, &ada, "prices").await["as_of"], all["as_of"]);
    assert_eq!(all["as_of"], gateway_core::pricing::PriceTable::builtin().unwrap().as_of().to_string());
    let one = get(&app, &ada, "prices?provider=openai&model=gpt-4o").await;
    let prices = one["prices"].as_array().unwrap();
    assert_eq!(prices.len(), 1);
    assert_eq!((&prices[0]["input_per_mtok"], &prices[0]["output_per_mtok"]), (&json!(2.5), &json!(10.0)));
    assert_eq!(prices[0]["cache_read_per_mtok"], json!(1.25));
    assert_eq!(prices[0]["reasoning_per_mtok"], Value::Null);
});
