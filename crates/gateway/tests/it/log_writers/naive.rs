//! Counts everything that writers add up again, from the rows.

use std::collections::{BTreeMap, BTreeSet};

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::time::Timestamp;
use gateway_store::Db;
use gateway_store::testing::{count, traces_of};
use serde_json::json;

use crate::support::{Account, TestApp};

/// Sessions that do not count their rows, and rows whose session does not exist.
const SESSIONS: [&str; 2] = [
    "log_sessions s LEFT JOIN (SELECT org_id, session_id, COUNT(*) AS n, SUM(cost) AS cost, \
     SUM(prompt_tokens + completion_tokens) AS tokens, MIN(id) AS first_id, MAX(created_at) AS last FROM log_rows \
     GROUP BY org_id, session_id) r ON r.org_id = s.org_id AND r.session_id = s.id WHERE r.n IS NULL \
     OR r.n <> s.requests OR r.cost <> s.cost OR r.tokens <> s.tokens OR r.first_id <> s.first_id \
     OR r.last <> s.last_seen_at",
    "log_rows r WHERE NOT EXISTS (SELECT 1 FROM log_sessions s WHERE s.org_id = r.org_id AND s.id = r.session_id)",
];

/// Days whose counts are not those of their rows and lines.
const DAYS: [&str; 3] = [
    "log_days d LEFT JOIN (SELECT org_id, created_at / 86400000 * 86400000 AS day, COUNT(*) AS n, \
     SUM(COALESCE(body_bytes, 0)) AS bytes FROM log_rows GROUP BY 1, 2) r ON r.org_id = d.org_id AND r.day = d.day \
     WHERE COALESCE(r.n, 0) <> d.stored_rows OR COALESCE(r.bytes, 0) <> d.body_bytes",
    "log_days d WHERE d.user_lines <> (SELECT COUNT(*) FROM usage_days u JOIN usage_dims m ON m.id = u.dim_id \
     WHERE m.org_id = d.org_id AND u.at = d.day AND m.cube IN (4, 5)) OR d.model_lines <> (SELECT COUNT(*) \
     FROM usage_days u JOIN usage_dims m ON m.id = u.dim_id WHERE m.org_id = d.org_id AND u.at = d.day \
     AND m.cube NOT IN (4, 5))",
    "log_days d WHERE d.spend_lines <> (SELECT COUNT(*) FROM user_spend s WHERE s.org_id = d.org_id AND s.day = d.day)",
];

/// Days on which users spent something else than their rows cost.
const SPEND: &str = "(SELECT org_id, created_at / 86400000 * 86400000 AS day, SUM(cost) AS cost, \
    COUNT(DISTINCT user_id) AS users FROM log_rows WHERE user_id IS NOT NULL GROUP BY 1, 2) r FULL JOIN \
    (SELECT org_id, day, SUM(cost) AS cost, COUNT(*) AS users FROM user_spend GROUP BY 1, 2) s \
    ON s.org_id = r.org_id AND s.day = r.day WHERE r.cost IS DISTINCT FROM s.cost OR r.users IS DISTINCT FROM s.users";

/// The ids in the order of batches.
const BATCHED: &str = "log_batches b, UNNEST(string_to_array(b.ids, ',')) AS one";

/// The search index has another number of rows than there are rows with bodies.
const WORDS: &str = "(SELECT 1 FROM log_word_runs HAVING COALESCE(SUM(row_count), 0) <> \
    (SELECT COUNT(*) FROM log_rows WHERE body_block IS NOT NULL)) x";

/// Nothing belongs to a row that does not exist, and no row lacks its bodies.
pub async fn assert_no_orphans(store: &Db) {
    let nobody = OrgId::from(uuid::Uuid::from_u128(1));
    assert_eq!(traces_of(store, nobody).await.unwrap(), [""; 0]);
    let lost = "log_rows WHERE body_block NOT IN (SELECT id FROM log_body_blocks)";
    assert_eq!(count(store, lost).await.unwrap(), 0, "rows without their bodies");
    let both = "log_rows WHERE id IN (SELECT id FROM log_counted)";
    assert_eq!(count(store, both).await.unwrap(), 0, "rows that are stored and counted");
}

pub async fn assert_sessions(store: &Db) {
    for wrong in SESSIONS {
        assert_eq!(count(store, wrong).await.unwrap(), 0, "{wrong}");
    }
}

/// Everything that is added up is what the stored rows add up to. Nothing was deleted or only counted.
pub async fn assert_sums(store: &Db) {
    assert_no_orphans(store).await;
    assert_sessions(store).await;
    for wrong in DAYS.into_iter().chain([SPEND, WORDS]) {
        assert_eq!(count(store, wrong).await.unwrap(), 0, "{wrong}");
    }
    let rows = count(store, "log_rows").await.unwrap();
    assert_eq!(count(store, BATCHED).await.unwrap(), rows, "each row is in a batch");
    let distinct = format!("(SELECT DISTINCT one FROM {BATCHED}) x");
    assert_eq!(count(store, &distinct).await.unwrap(), rows, "each row is in one batch");
    let batches = count(store, "(SELECT DISTINCT seq FROM log_batches) x").await.unwrap();
    assert_eq!(gateway_store::logs::last_batch(store).await.unwrap(), batches, "numbers without gaps");
}

/// The usage of an organization is the sum of these rows, by each dimension and in each hour.
pub async fn assert_usage(app: &TestApp, account: &Account, rows: &[LogRow]) {
    let rows: BTreeMap<i64, &LogRow> = rows.iter().map(|row| (row.id, row)).collect();
    let get = async |path: String| app.get(&path).bearer(&account.token).send().await.expect(200);
    let hours: BTreeSet<i64> = rows.values().map(|row| row.created_at.0.div_euclid(3_600_000)).collect();
    for hour in hours {
        let range = (Timestamp(hour * 3_600_000), Timestamp((hour + 1) * 3_600_000));
        let n = rows.values().filter(|row| row.created_at >= range.0 && row.created_at < range.1).count();
        let usage = get(format!("/api/v1/usage/summary?from={}&to={}", range.0, range.1)).await;
        assert_eq!((&usage["requests"], &usage["total_tokens"]), (&json!(n), &json!(n * 15)), "{usage}");
    }
    let first = rows.values().map(|row| row.created_at).min().unwrap();
    let range = format!("from={}&to={}", first.plus(-3_600_000), first.plus(3 * 86_400_000));
    type KeyOf = fn(&LogRow) -> Option<String>;
    let dimensions: [(&str, KeyOf); 3] = [
        ("user", |row| row.user.clone()),
        ("model", |row| row.model.clone()),
        ("key", |row| row.key_id.map(|id| id.to_string())),
    ];
    for (by, key_of) in dimensions {
        let mut expected: BTreeMap<String, usize> = BTreeMap::new();
        for row in rows.values() {
            *expected.entry(key_of(row).unwrap_or_default()).or_default() += 1;
        }
        let found = get(format!("/api/v1/usage/breakdown?by={by}&{range}")).await["rows"].take();
        let found: BTreeMap<String, usize> = found
            .as_array()
            .unwrap()
            .iter()
            .map(|line| {
                let n = line["requests"].as_u64().unwrap();
                (line["key"].as_str().unwrap_or_default().to_owned(), usize::try_from(n).unwrap())
            })
            .collect();
        assert_eq!(found, expected, "{by}");
    }
}
