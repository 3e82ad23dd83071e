//! What is kept of sessions, of usage by user, and of the sums behind metrics.

use std::time::{Duration, Instant};

use gateway_core::logs::LogRow;
use gateway_core::time::DAY;
use gateway_store::logs;
use gateway_store::testing::{count, execute};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::{Account, TestApp};

async fn get(app: &TestApp, account: &Account, path: &str) -> Value {
    app.get(path).bearer(&account.token).send().await.expect(200)
}

on_both!(all_sessions_past_their_retention_are_deleted_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let old = |number: i64| {
        with(row(&ada, now.plus(-40 * DAY + number)), |row| {
            row.session_id = Some(format!("session-{number}"));
            (row.request, row.response) = (Vec::new(), Vec::new());
        })
    };
    let rows: Vec<LogRow> = (0..2_500).map(old).collect();
    for batch in rows.chunks(500) {
        app.write(batch).await;
    }
    app.write(&[row(&ada, now.plus(-DAY))]).await;
    let removed = logs::sweep(&app.app.services.logs, now, 30, &[]).await.unwrap();
    assert!(removed >= 5_000, "{removed}: rows and sessions are counted");
    assert_eq!(count(&app.app.services.logs, "log_sessions").await.unwrap(), 1);
    assert_eq!(count(&app.app.services.logs, "log_rows").await.unwrap(), 1);
    assert_eq!(logs::sweep(&app.app.services.logs, now, 30, &[]).await.unwrap(), 0);
});

on_both!(usage_by_user_is_kept_as_long_as_rows, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("longer").await);
    let (store, now) = (&app.app.services.logs, app.app.services.clock.now());
    let of_user = |account: &Account, days: i64, user: &str| {
        with(row(account, now.plus(-days * DAY)), |row| row.user = Some(user.to_owned()))
    };
    let mut rows: Vec<LogRow> = (0..150).map(|n| of_user(&ada, 40, &format!("once-{n}"))).collect();
    rows.extend([of_user(&ada, 40, "regular"), of_user(&ada, 1, "regular"), of_user(&bob, 40, "kept")]);
    app.write(&rows).await;
    let removed = logs::sweep(store, now, 30, &[(bob.org_id.parse().unwrap(), 90)]).await.unwrap();
    assert!(removed > 0);
    assert_eq!(logs::sweep(store, now, 30, &[(bob.org_id.parse().unwrap(), 90)]).await.unwrap(), 0);

    app.get("/api/v1/users/once-7/summary").bearer(&ada.token).send().await.expect_error(404, "not_found");
    assert_eq!(get(&app, &ada, "/api/v1/users/regular/summary").await["requests"], 1);
    assert_eq!(get(&app, &bob, "/api/v1/users/kept/summary").await["requests"], 1);
    assert_eq!(count(store, "usage_dims WHERE user_id LIKE 'once-%'").await.unwrap(), 0);
    let unused = "usage_dims WHERE id NOT IN (SELECT dim_id FROM usage_days)";
    assert_eq!(count(store, unused).await.unwrap(), 0);
    // The sums of the organization stay.
    assert_eq!(get(&app, &ada, "/api/v1/metrics").await["total_requests"], 152);
    // A user that was forgotten may come back.
    app.write(&[of_user(&ada, 0, "once-7")]).await;
    assert_eq!(get(&app, &ada, "/api/v1/users/once-7/summary").await["requests"], 1);
});

on_both!(a_scrape_does_not_read_closed_days, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let (store, now) = (&app.app.services.logs, app.app.services.clock.now());
    let rows = |account: &Account| -> Vec<LogRow> {
        (0..60).map(|days| row(account, now.plus(-days * DAY))).collect()
    };
    app.write(&rows(&ada)).await;
    app.write(&rows(&eve)).await;
    let before = get(&app, &ada, "/api/v1/metrics").await;
    assert_eq!((&before["total_requests"], &before["total_tokens"]), (&json!(60), &json!(900)));
    // The maintenance of the gateway may have closed some of them already.
    logs::close_days(store, now).await.unwrap();
    assert_eq!(logs::close_days(store, now).await.unwrap(), 0);
    assert!(count(store, "usage_closed").await.unwrap() >= 2);
    let same = |metrics: &Value, requests: i64| {
        assert_eq!(metrics["total_requests"], requests);
        assert_eq!(metrics["total_tokens"], requests * 15);
        assert_eq!(metrics["models"]["gpt-4o"]["requests"], requests);
        assert_eq!(metrics["latency_ms"], before["latency_ms"]);
    };
    same(&get(&app, &ada, "/api/v1/metrics").await, 60);
    // Without the days that are closed, the answer stays the same: they are not read.
    let day = (now.0 - 2 * DAY).div_euclid(DAY) * DAY;
    execute(store, &format!("DELETE FROM usage_days WHERE at < {day}")).await.unwrap();
    same(&get(&app, &ada, "/api/v1/metrics").await, 60);
    // Late rows of closed days are counted, each once, and so are new ones.
    let late = row(&ada, now.plus(-30 * DAY - 7));
    app.write(&[late.clone(), row(&ada, now.plus(-1))]).await;
    app.write(&[late]).await;
    same(&get(&app, &ada, "/api/v1/metrics").await, 62);
    // Time goes on: the next days are closed and counted once.
    assert!(logs::close_days(store, now.plus(10 * DAY)).await.unwrap() >= 2);
    same(&get(&app, &ada, "/api/v1/metrics").await, 62);
    same(&get(&app, &eve, "/api/v1/metrics").await, 60);
    app.write(&[row(&ada, now.plus(-2))]).await;
    same(&get(&app, &ada, "/api/v1/metrics").await, 63);
});

on_both!(eval_results_are_counted_as_they_come_and_go, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "live", "type": "static", "evaluator": "contains", "config": {"value": "good"},
        "sample_rate": 1.0});
    let eval = app.post("/api/v1/evals", body).bearer(&ada.token).send().await.expect(201);
    for text in ["good", "bad", "worse"] {
        let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": text}]});
        let call = app.post("/v1/chat/completions", body).key(&ada.api_key);
        call.header("x-gateway-provider", "sandbox").send().await.expect(200);
    }
    let began = Instant::now();
    loop {
        let counted = get(&app, &ada, "/api/v1/metrics").await["evals"].clone();
        if counted == json!({"passed": 1, "failed": 2}) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{counted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let counted = "eval_counts WHERE passed = 1 AND failed = 2";
    assert_eq!(count(&app.app.services.db, counted).await.unwrap(), 1);
    app.delete(&format!("/api/v1/evals/{}", eval["id"])).bearer(&ada.token).send().await.expect(200);
    let counted = get(&app, &ada, "/api/v1/metrics").await["evals"].clone();
    assert_eq!(counted, json!({"passed": 0, "failed": 0}));
});
