//! The query language in both databases: for random rows and random queries, lists in every order, counts, usage and
//! sessions are what the naive filter over all rows says.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gateway_core::ids::{AppId, KeyId, OrgId, TeamId};
use gateway_core::logs::{Attempt, LogLevel, LogRow, LogSource, PromptVersionRef, Tokens, log_id_time};
use gateway_core::query::{self, Field, Query};
use gateway_core::time::{HOUR, Interval, MINUTE};
use gateway_core::totals::Totals;
use gateway_store::Db;
use gateway_store::logs::{self, GroupField, LogSearch, SessionFilter, Sort, SortKey, TimeRange, ValueQuery};
use gateway_store::page::Page;
use serde_json::json;
use uuid::Uuid;

use crate::on_both;
use crate::support::Account;
use crate::support::log_rows::{at, chat, row, with};

const ROWS: usize = 260;
const QUERIES: usize = 100;

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

const MODELS: [&str; 6] = ["gpt-4o", "gpt-4o-mini", "gpt_4%o", "a[b]?c", "star*model", "größe"];
const USERS: [&str; 5] = ["maria", "Maria", "ma ria", "x,y", "quo\"te\\"];
const WORDS: [&str; 8] = ["alpha", "beta", "gamma", "delta", "Eiffel", "tower", "日本", "x2"];

fn random_row(random: &mut Random, account: &Account, number: usize) -> LogRow {
    let time = at("2026-11-09T10:00:00Z").plus(i64::try_from(number).unwrap() * 23 * MINUTE);
    let text = |random: &mut Random| {
        let count = 1 + random.below(5);
        (0..count).map(|_| random.one(&WORDS)).collect::<Vec<_>>().join(random.one(&[" ", " - ", ", "]))
    };
    let (asked, answered) = (text(random), text(random));
    let metadata = match random.below(7) {
        0 => json!({}),
        1 => json!({"env": "prod", "n": 1, "ok": true}),
        2 => json!({"env": "stage", "n": 2.5, "ok": false, "none": null}),
        3 => json!({"env": ["a", "b"], "a.b": "dot", "n": 10}),
        4 => json!({"env": "pro\0d", "n": 1}),
        5 => json!({"env": "back\\u0000slash"}),
        _ => json!({"env": {"deep": "x"}, "ok": "true"}),
    };
    with(row(account, time), |row| {
        row.provider = random.one(&["openai", "anthropic", "other"]).into();
        row.model = (!random.chance(6)).then(|| random.one(&MODELS).to_owned());
        row.source = [LogSource::Proxy, LogSource::Api, LogSource::Otel, LogSource::Replay][random.below(4)];
        row.status = [200, 200, 200, 201, 400, 404, 429, 500, 503][random.below(9)];
        row.error_code = random.chance(6).then(|| random.one(&["timeout", "client_closed"]).to_owned());
        row.level = match (row.status, &row.error_code) {
            (_, Some(code)) if code == "client_closed" => LogLevel::Warn,
            (500.., _) | (_, Some(_)) => LogLevel::Error,
            (400.., None) => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        row.stream = random.chance(2);
        row.latency_ms = [0, 100, 999, 1_000, 2_000, 2_001, 60_000][random.below(7)];
        row.ttft_ms = (!random.chance(3)).then(|| 10 * i64::try_from(random.below(60)).unwrap());
        row.tokens = (!random.chance(4)).then(|| Tokens {
            prompt: i64::try_from(random.below(2_000)).unwrap(),
            completion: i64::try_from(random.below(500)).unwrap(),
            cached: i64::try_from(random.below(3)).unwrap(),
            reasoning: i64::try_from(random.below(2)).unwrap(),
            ..Tokens::default()
        });
        let cost = random.one(&["0", "0.001", "0.01", "0.010000000001", "1.5"]);
        row.cost_usd = (!random.chance(4)).then(|| cost.parse().unwrap());
        row.cache = (!random.chance(3)).then(|| random.one(&["hit", "MISS", "refresh"]).to_owned());
        row.attempts = vec![attempt(); random.below(3)];
        let id = |random: &mut Random| Uuid::from_u128(1 + random.below(2) as u128);
        row.key_id = (!random.chance(3)).then(|| KeyId(id(random)));
        row.app_id = (!random.chance(3)).then(|| AppId(id(random)));
        row.team_id = (!random.chance(3)).then(|| TeamId(id(random)));
        row.user = (!random.chance(3)).then(|| random.one(&USERS).to_owned());
        row.session_id = random.chance(2).then(|| random.one(&["s1", "s2", "s 3"]).to_owned());
        row.metadata.clone_from(metadata.as_object().unwrap());
        row.prompt = random.chance(3).then(|| PromptVersionRef {
            name: random.one(&["support/answer", "support/greet"]).into(),
            version: 1 + i64::try_from(random.below(3)).unwrap(),
        });
        row.compat = random.chance(5).then(|| "litellm".to_owned());
        row.request_id = format!("req-{number}");
        row.request = if random.chance(8) { Vec::new() } else { chat(&asked) };
        row.response = json!({"content": answered}).to_string().into_bytes();
    })
}

fn attempt() -> Attempt {
    Attempt {
        provider: "openai".into(),
        model: None,
        status: Some(200),
        start_ms: 0,
        ttft_ms: None,
        latency_ms: 1,
        error: None,
    }
}

const TERMS: [&str; 63] = [
    "status:error",
    "status:ok",
    "status:4xx",
    "status:200",
    "status:>=400",
    "status:<300",
    "status:200,500",
    "status:400..429",
    "status:5xx,error",
    "error:*",
    "error:timeout",
    "level:warn,error",
    "level:info",
    "source:api",
    "source:api,replay",
    "source:proxy,otel",
    "provider:openai",
    "provider:other,anthropic",
    "provider:*n*",
    "model:gpt-4o",
    "model:gpt-4o*",
    "model:*o",
    "model:gpt_4%o,a[b]?c",
    "model:a[b]*",
    "model:gpt_4*",
    "model:\"star*model\"",
    "model:gr*",
    "model:*",
    "key:00000000-0000-0000-0000-000000000001",
    "key:*",
    "app:00000000-0000-0000-0000-000000000002",
    "team:*2",
    "user:maria",
    "user:maria,Maria",
    "user:\"ma ria\",\"x,y\"",
    "user:ma*",
    "user:\"quo\\\"te\\\\\"",
    "session:s1",
    "session:s1,\"s 3\"",
    "session:auto-*",
    "prompt:support/*",
    "prompt:support/answer",
    "version:>=2",
    "cache:hit",
    "cache:miss,refresh",
    "latency:>2s",
    "latency:1s..2s",
    "ttft:<300ms",
    "cost:>0.01",
    "cost:0",
    "cost:0.001..0.01",
    "tokens:>1k",
    "input:<500",
    "cached:>0",
    "attempts:>1",
    "stream:true",
    "compat:*",
    "request:req-1*",
    "time:>=2026-11-10",
    "time:2026-11-09..2026-11-11",
    "time:<2026-11-10T00:30:00Z",
    "path:/v1/*",
    "method:POST",
];

const TEXT_TERMS: [&str; 14] = [
    "alpha",
    "beta gamma",
    "\"alpha beta\"",
    "\"eiffel tower\"",
    "\"tower Eiffel\"",
    "日本",
    "absent",
    "metadata.env:prod",
    "metadata.env:*",
    "metadata.n:1",
    "metadata.n:2.5,10",
    "metadata.ok:true",
    "metadata.a.b:dot",
    "metadata.none:*",
];

/// Terms that roll-ups answer in every cube.
const OWN_EXCLUDED: [&str; 6] = [
    "-source:api,replay",
    "-source:api",
    "-source:api,replay model:gpt-4o",
    "-source:replay user:maria",
    "-source:api,replay key:* -status:500",
    "-source:api,replay prompt:support/answer",
];

fn random_query(random: &mut Random) -> String {
    let count = 1 + random.below(3);
    let terms = (0..count).map(|_| {
        let term = if random.chance(3) { random.one(&TEXT_TERMS) } else { random.one(&TERMS) };
        // Of two words only the first is negated.
        if random.chance(4) { format!("-{term}") } else { term.to_owned() }
    });
    terms.collect::<Vec<_>>().join(" ")
}

struct Oracle<'a> {
    logs: &'a Db,
    org: OrgId,
    /// As stored, newest first.
    rows: &'a [LogRow],
}

impl Oracle<'_> {
    fn matching(&self, query: &Query) -> Vec<&LogRow> {
        self.rows.iter().filter(|row| query.matches(row)).collect()
    }

    async fn pages(&self, search: &LogSearch, sort: Sort, limit: i64) -> Vec<i64> {
        let (mut ids, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = (limit, cursor.as_deref());
            let found = logs::list_matching(self.logs, self.org, search, sort, page).await.unwrap();
            ids.extend(found.entries.iter().map(|entry| entry.row.id));
            assert!(found.entries.len() <= usize::try_from(limit).unwrap());
            cursor = found.next;
            if cursor.is_none() {
                return ids;
            }
        }
    }

    async fn check_lists(&self, text: &str, search: &LogSearch) {
        let matching = self.matching(&search.query);
        let value = |key: SortKey, row: &LogRow| match key {
            SortKey::Time => row.id,
            SortKey::Latency => row.latency_ms,
            SortKey::Cost => row.cost_usd.map_or(-1, gateway_core::totals::cost_units),
            SortKey::Tokens => row.tokens.map_or(-1, |tokens| tokens.total()),
        };
        for key in [SortKey::Time, SortKey::Latency, SortKey::Cost, SortKey::Tokens] {
            for is_ascending in [false, true] {
                let mut expected: Vec<(i64, i64)> =
                    matching.iter().map(|row| (value(key, row), row.id)).collect();
                expected.sort_unstable();
                if !is_ascending {
                    expected.reverse();
                }
                let expected: Vec<i64> = expected.into_iter().map(|(_, id)| id).collect();
                let found = self.pages(search, Sort { key, is_ascending }, 40).await;
                assert_eq!(found, expected, "{text} by {key:?}, ascending: {is_ascending}");
            }
        }
        // Partial pages go on where they stopped.
        for is_ascending in [false, true] {
            let few = LogSearch { max_rows: Some(30), ..search.clone() };
            let mut found = self.pages(&few, Sort { key: SortKey::Time, is_ascending }, 7).await;
            if is_ascending {
                found.reverse();
            }
            let expected: Vec<i64> = matching.iter().map(|row| row.id).collect();
            assert_eq!(found, expected, "{text} in partial pages, ascending: {is_ascending}");
        }
    }

    async fn check_facets(&self, text: &str, search: &LogSearch) {
        let group = |field: Field| GroupField { field, key: None };
        let fields = [
            group(Field::Status),
            group(Field::Model),
            group(Field::User),
            group(Field::Error),
            GroupField { field: Field::Metadata, key: Some("env".into()) },
        ];
        let found = logs::facets(self.logs, self.org, search, &fields, 100).await.unwrap();
        let matching = self.matching(&search.query);
        assert_eq!(found.rows, i64::try_from(matching.len()).unwrap(), "{text}");
        for facet in &found.facets {
            let mut total = facet.missing;
            for value in &facet.values {
                total += value.rows;
                if facet.field.field == Field::Model {
                    let of_model = |row: &&&LogRow| row.model.as_deref() == Some(&value.value);
                    let expected = matching.iter().filter(of_model).count();
                    assert_eq!(value.rows, i64::try_from(expected).unwrap(), "{text}: {value:?}");
                }
            }
            assert_eq!((total, facet.other_rows), (found.rows, 0), "{text}: {facet:?}");
        }
    }

    async fn check_usage(&self, text: &str, search: &LogSearch) {
        let range = TimeRange { from: at("2026-11-09T10:17:00Z"), to: at("2026-11-12T11:40:00Z") };
        let within = |row: &&&LogRow| (range.from..range.to).contains(&log_id_time(row.id));
        let name = |field: Field, row: &LogRow| match field {
            Field::Model => row.model.clone(),
            Field::User => row.user.clone(),
            Field::Error => row.error_code.clone(),
            Field::Prompt => row.prompt.as_ref().map(|prompt| prompt.name.clone()),
            _ => None,
        };
        let matching = self.matching(&search.query);
        for field in [None, Some(Field::Model), Some(Field::User), Some(Field::Error), Some(Field::Prompt)] {
            let group = field.map(|field| GroupField { field, key: None });
            let split = (range, Some(Interval::Day), group);
            let found = logs::usage_matching(self.logs, self.org, search, split).await.unwrap();
            assert_eq!(found.scanned_to, None, "{text}");
            let mut expected: BTreeMap<(i64, Option<String>), Totals> = BTreeMap::new();
            for row in matching.iter().filter(within) {
                let group = field.and_then(|field| name(field, row));
                if field == Some(Field::Prompt) && group.is_none() {
                    continue;
                }
                let day = Interval::Day.start_of(log_id_time(row.id)).0;
                expected.entry((day, group)).or_default().add_row(row);
            }
            let found: BTreeMap<(i64, Option<String>), Totals> =
                found.usage.into_iter().map(|usage| ((usage.start.0, usage.group), usage.totals)).collect();
            assert_eq!(found, expected, "{text} by {field:?}");
        }
    }

    async fn check_sessions(&self, text: &str, search: &LogSearch) {
        let matching = self.matching(&search.query);
        let expected: BTreeSet<&str> = matching.iter().filter_map(|row| row.session_id.as_deref()).collect();
        let (mut found, mut before) = (BTreeSet::new(), None);
        loop {
            let page = Page { limit: 3, before };
            let filter = SessionFilter::default();
            let (sessions, scanned_to) =
                logs::list_sessions_matching(self.logs, self.org, search, &filter, &page).await.unwrap();
            assert_eq!(scanned_to, None);
            for session in sessions.rows {
                assert!(found.insert(session.id.clone()), "{text}: {} twice", session.id);
            }
            before = sessions.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{text}");
    }
}

on_both!(the_database_finds_what_the_naive_filter_finds, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("other").await);
    let mut random = Random(20_261_117);
    let rows: Vec<LogRow> = (0..ROWS).map(|number| random_row(&mut random, &ada, number)).collect();
    let others: Vec<LogRow> = (0..60).map(|number| random_row(&mut random, &bob, number)).collect();
    let stored = &app.app.services.logs;
    for (number, batch) in rows.chunks(20).enumerate() {
        app.write(batch).await;
        if number % 4 == 0 {
            while logs::merge_runs(stored).await.unwrap() {}
        }
    }
    app.write(&others).await;
    let org: OrgId = ada.org_id.parse().unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let mut rows = logs::find_many(stored, org, &ids, true).await.unwrap();
    assert_eq!(rows.len(), ROWS);
    rows.reverse();
    let oracle = Oracle { logs: stored, org, rows: &rows };
    let mut sizes: HashMap<bool, usize> = HashMap::new();
    for number in 0..QUERIES {
        // Usage is checked with every second query.
        let chosen = OWN_EXCLUDED.get(number / 2).filter(|_| number % 2 == 1);
        let text = chosen.map_or_else(|| random_query(&mut random), |text| (*text).to_owned());
        let search = LogSearch { query: query::parse(&text).unwrap(), ..LogSearch::default() };
        *sizes.entry(oracle.matching(&search.query).is_empty()).or_default() += 1;
        if number % 2 == 0 {
            oracle.check_lists(&text, &search).await;
        } else {
            oracle.check_facets(&text, &search).await;
            oracle.check_usage(&text, &search).await;
            oracle.check_sessions(&text, &search).await;
        }
    }
    // Most queries must find something, or the test shows little.
    assert!(sizes[&false] > QUERIES / 3, "{sizes:?}");
    let wanted = ValueQuery { field: Field::Model, prefix: "gpt-".into(), made_by: None, limit: 10 };
    assert_eq!(logs::field_values(stored, org, &wanted).await.unwrap(), ["gpt-4o", "gpt-4o-mini"]);
});

on_both!(a_time_range_and_a_partial_answer_agree_with_the_rows, |app| async move {
    let ada = app.signup("acme").await;
    let time = at("2026-11-09T10:00:00Z");
    let rows: Vec<LogRow> = (0..120)
        .map(|number| {
            with(row(&ada, time.plus(number * MINUTE)), |row| {
                row.latency_ms = number * 37 % 101;
                row.metadata.insert("n".into(), (number % 10).into());
            })
        })
        .collect();
    app.write(&rows).await;
    let (stored, org): (&Db, OrgId) = (&app.app.services.logs, ada.org_id.parse().unwrap());
    let query = query::parse("metadata.n:3").unwrap();
    let search = LogSearch { query, max_rows: Some(50), ..LogSearch::default() };
    let page = logs::list_matching(stored, org, &search, Sort::default(), (100, None)).await.unwrap();
    assert_eq!(page.entries.len(), 5);
    assert!(page.next.is_some());
    assert_eq!(page.scanned_to, Some(log_id_time(rows[70].id)));
    let slowest = Sort { key: SortKey::Latency, is_ascending: false };
    let all = LogSearch { query: Query::default(), ..search.clone() };
    let page = logs::list_matching(stored, org, &all, slowest, (10, None)).await.unwrap();
    let mut expected: Vec<(i64, i64)> = rows[70..].iter().map(|row| (row.latency_ms, row.id)).collect();
    expected.sort_unstable();
    let expected: Vec<i64> = expected.iter().rev().map(|(_, id)| *id).collect();
    let ids = |page: &logs::SearchPage| page.entries.iter().map(|entry| entry.row.id).collect::<Vec<_>>();
    assert_eq!(ids(&page), expected[..10]);
    assert_eq!(page.scanned_to, Some(log_id_time(rows[70].id)));
    // The next page is of the same rows.
    let next = logs::list_matching(stored, org, &all, slowest, (100, page.next.as_deref())).await.unwrap();
    assert_eq!(ids(&next), expected[10..]);
    let range = TimeRange { from: time, to: time.plus(3 * HOUR) };
    let usage = logs::usage_matching(stored, org, &search, (range, None, None)).await.unwrap();
    assert_eq!(usage.scanned_to, Some(log_id_time(rows[70].id)));
    assert_eq!(usage.usage[0].totals.requests, 5);
    // Roll-ups answer what they can, whatever the number of rows.
    let model =
        LogSearch { query: query::parse("model:gpt*").unwrap(), max_rows: Some(50), ..LogSearch::default() };
    let usage = logs::usage_matching(stored, org, &model, (range, None, None)).await.unwrap();
    assert_eq!((usage.scanned_to, usage.usage[0].totals.requests), (None, 120));
    let model_facet = [GroupField { field: Field::Model, key: None }];
    let facets = logs::facets(stored, org, &model, &model_facet, 10).await.unwrap();
    assert_eq!((facets.rows, facets.scanned_to), (120, None));
    let facets = logs::facets(stored, org, &search, &model_facet, 10).await.unwrap();
    assert_eq!((facets.rows, facets.scanned_to), (5, Some(log_id_time(rows[70].id))));
});
