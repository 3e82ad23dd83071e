//! Replays and money: budgets, reservations and the limit of a replay itself.

use serde_json::json;

use crate::replays::{OPENAI, asked};
use crate::support::log_rows::{row, with};
use crate::support::{Backend, ProxyFixture};
use crate::upstream::Reply;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_and_the_own_limit_stop_a_replay() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        // 0.0125 USD for each call.
        proxy.upstream.set_default_reply(Reply::json(200, OPENAI));
        let questions: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
        let ids = asked(app, ada, &questions).await;
        let target = json!({"provider": "openai", "model": "gpt-4o"});
        let body = json!({"log_ids": ids, "target": target, "max_cost_usd": 0.1});
        let replay = app.replay(ada, body).await;
        assert_eq!(replay["status"], "failed");
        assert!(replay["error"].as_str().unwrap().contains("max_cost_usd"), "{replay}");
        // A batch is finished before the costs are looked at.
        let done = replay["done"].as_i64().unwrap();
        assert!((8..=16).contains(&done), "{replay}");
        assert!(replay["spent_usd"].as_f64().unwrap() >= 0.1);

        let budget = json!({"scope": "org", "period": "daily", "hard_limit_usd": 0.3});
        let path = format!("/api/v1/orgs/{}/budgets", ada.org_id);
        app.post(&path, budget).bearer(&ada.token).send().await.expect(201);
        let replay = app.replay(ada, json!({"log_ids": ids, "target": target})).await;
        assert_eq!(replay["status"], "failed");
        assert!(replay["error"].as_str().unwrap().starts_with("stopped: "), "{replay}");
        assert!(replay["done"].as_i64().unwrap() < 40, "{replay}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_leaves_alone_the_budgets_of_users() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        proxy.upstream.set_default_reply(Reply::json(200, OPENAI));
        let path = format!("/api/v1/orgs/{}/budgets", ada.org_id);
        let budget =
            json!({"scope": "user", "scope_id": "*", "period": "daily", "hard_limit_usd": 0.000_001});
        app.post(&path, budget).bearer(&ada.token).send().await.expect(201);
        let now = app.app.services.clock.now();
        let body =
            json!({"model": "gpt-4o", "user": "maria", "messages": [{"role": "user", "content": "hello"}]});
        let made =
            (0..10).map(|at| with(row(ada, now.plus(at)), |row| row.request = body.to_string().into_bytes()));
        let made: Vec<_> = made.collect();
        app.write(&made).await;
        let ids: Vec<i64> = made.iter().map(|row| row.id).collect();
        let target = json!({"provider": "openai", "model": "gpt-4o"});
        let replay = app.replay(ada, json!({"log_ids": ids, "target": target})).await;
        assert_eq!((&replay["status"], &replay["done"]), (&json!("completed"), &json!(10)), "{replay}");
        // The bodies are sent as they were.
        let sent = proxy.upstream.requests();
        assert!(sent.iter().all(|request| request.json()["user"] == "maria"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_waits_for_what_its_own_calls_have_reserved() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let (app, ada) = (&proxy.app, &proxy.ada);
        // 0.0125 USD for each call, which reserves more.
        proxy.upstream.set_default_reply(Reply::json(200, OPENAI));
        let path = format!("/api/v1/orgs/{}/budgets", ada.org_id);
        let budget = json!({"scope": "org", "period": "daily", "hard_limit_usd": 0.4});
        app.post(&path, budget).bearer(&ada.token).send().await.expect(201);
        let questions: Vec<String> = (0..16).map(|number| number.to_string()).collect();
        let ids = asked(app, ada, &questions.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let target = json!({"provider": "openai", "model": "gpt-4o"});
        let replay = app.replay(ada, json!({"log_ids": ids, "target": target})).await;
        assert_eq!((&replay["status"], &replay["done"]), (&json!("completed"), &json!(16)), "{replay}");
    }
}
