//! Budgets over several nodes, also those of users: they overspend by at most one request, and unused leases return to
//! the other nodes.

use std::time::{Duration, Instant};

use gateway_store::cluster::budget_leases::{LeaseOwner, leased_by_others};
use gateway_store::{Db, events};
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    Cluster, TcpForwarder, TestRequest, TestResponse, migrated_postgres, wait_for_response,
};
use crate::upstream::Reply;

/// 10 + 100 tokens of gpt-4o cost 0.001025 USD.
const ANSWER: &str = r#"{"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}"#;
const COST: f64 = 0.001_025;
const SECOND: Duration = Duration::from_secs(1);

async fn started(limit: f64) -> (Cluster, String) {
    let cluster = Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    cluster.upstream.set_default_reply(Reply::json(200, ANSWER));
    let budget = json!({"scope": "org", "period": "monthly", "hard_limit_usd": limit});
    let made =
        cluster.manage(0, Method::POST, &cluster.in_org("/budgets")).json(budget).send().await.expect(201);
    let path = cluster.in_org(&format!("/budgets/{}", made["id"].as_str().unwrap()));
    (cluster, path)
}

/// A request that costs at most its reservation: 0.001 USD plus the prompt tokens.
fn ask(cluster: &Cluster, node: usize) -> TestRequest {
    let body = json!({"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    let call = cluster.nodes[node].call(Method::POST, "/v1/chat/completions").key(&cluster.key);
    call.header("x-gateway-provider", "openai").json(body)
}

/// Returns true when the request was admitted, false when the budget was exhausted.
async fn passes(call: TestRequest) -> bool {
    let answer = call.send().await;
    if answer.status == 200 {
        return true;
    }
    answer.expect_error(403, "budget_exceeded");
    false
}

/// The spending that the budget reports, once every row is stored.
async fn spent(cluster: &Cluster, path: &str, calls: usize) -> f64 {
    let mut spent = 0.0;
    for _ in 0..200 {
        let budget = cluster.manage(0, Method::GET, path).send().await.expect(200);
        spent = budget["spent_usd"].as_f64().unwrap();
        if (spent - COST * f64::from(u32::try_from(calls).unwrap())).abs() < 1e-9 {
            return spent;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{calls} calls cost {spent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_over_three_nodes_spends_no_more_than_the_limit_and_one_call() {
    let limit = 10.0 * COST;
    let (cluster, path) = started(limit).await;
    cluster.upstream.set_default_reply(Reply::json(200, ANSWER).delay_head(Duration::from_millis(20)));
    let calls: Vec<_> = (0..150).map(|number| tokio::spawn(passes(ask(&cluster, number % 3)))).collect();
    let mut passed = 0;
    for call in calls {
        passed += usize::from(call.await.unwrap());
    }
    assert!((1..=11).contains(&passed), "{passed} passed");
    // Reservations are released on every node: the rest of the budget can be spent, and no more.
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 60 {
        if passes(ask(&cluster, refused_in_a_row % 3)).await {
            passed += 1;
            refused_in_a_row = 0;
        } else {
            refused_in_a_row += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(passed <= 11, "{passed} passed");
    }
    assert!((10..=11).contains(&passed), "{passed} passed");
    assert!(spent(&cluster, &path, passed).await <= limit + COST);
    // All nodes know that the limit was reached, but only one emits the event.
    let db = Db::open(&cluster.database).await.unwrap();
    let told = events::list(&db, cluster.org_id.parse().unwrap()).await.unwrap();
    assert_eq!(told.iter().filter(|event| event.kind == "budget.exceeded").count(), 1);
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_database_delays_calls_and_lets_none_pass_without_a_lease() {
    let limit = 6.0 * COST;
    let (cluster, path) = started(limit).await;
    for node in 0..3 {
        assert!(passes(ask(&cluster, node)).await);
    }
    // What the nodes have leased returns after two seconds without a call, so that each needs a lease again.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = cluster.upstream.requests().len();
    assert_eq!(before, 3);
    // Leases wait for this transaction, as they do for those of many other calls. The database answers everything else.
    let db = Db::open(&cluster.database).await.unwrap();
    let mut held = db.begin().await.unwrap();
    let owner = LeaseOwner { org: cluster.org_id.parse().unwrap(), user: None };
    leased_by_others(&mut held, owner, "nobody").await.unwrap();
    let calls: Vec<_> = (0..24).map(|number| tokio::spawn(passes(ask(&cluster, number % 3)))).collect();
    // For longer than a node takes to find out that the database is gone.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(cluster.upstream.requests().len(), before, "no call passes without a lease");
    assert!(calls.iter().all(|call| !call.is_finished()), "no call is refused without an answer");
    held.commit().await.unwrap();
    db.close().await;
    let mut passed = before;
    for call in calls {
        passed += usize::from(call.await.unwrap());
    }
    assert!((before + 1..=7).contains(&passed), "{passed} passed");
    spent(&cluster, &path, passed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_database_a_node_goes_on_with_its_part_after_some_seconds() {
    for is_silent in [false, true] {
        let database = migrated_postgres().await;
        let (forwarder, through) = TcpForwarder::to_database(&database).await;
        let node = vec![("GATEWAY_DATABASE_URL", through.as_str()), ("GATEWAY_RATE_LIMIT_FREE", "0")];
        let cluster = Cluster::start_each(database, &[node.clone(), node]).await;
        cluster.upstream.set_default_reply(Reply::json(200, ANSWER));
        let budget = json!({"scope": "org", "period": "monthly", "hard_limit_usd": 100.0 * COST});
        cluster.manage(0, Method::POST, &cluster.in_org("/budgets")).json(budget).send().await.expect(201);
        for node in 0..2 {
            assert!(passes(ask(&cluster, node)).await);
        }
        // Leases that are not used return, so that the next call of each node asks the database.
        tokio::time::sleep(Duration::from_secs(5)).await;
        if is_silent {
            forwarder.blackhole();
        } else {
            forwarder.cut();
        }
        let began = Instant::now();
        for node in 0..2 {
            assert!(passes(ask(&cluster, node)).await);
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}, silent: {is_silent}", began.elapsed());
        let later = Instant::now();
        assert!(passes(ask(&cluster, 0)).await);
        assert!(later.elapsed() < Duration::from_secs(2), "the next call need not find out again");
        forwarder.open();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_reached_while_all_connections_are_in_use() {
    let database = migrated_postgres().await;
    let (forwarder, through) = TcpForwarder::to_database(&database).await;
    let db = Db::open_with(&through, 1).await.unwrap();
    let held = db.begin().await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(200), db.ping()).await;
    assert!(waits.is_err(), "no connection is free");
    db.reach().await.unwrap();
    drop(held);
    forwarder.cut();
    assert!(db.reach().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_spent_its_lease_gets_what_the_others_do_not_need() {
    let (cluster, path) = started(100.0 * COST).await;
    // Each node leases more of the budget with its first request than that request needs.
    for node in 0..3 {
        assert!(passes(ask(&cluster, node)).await);
    }
    let mut passed = 3;
    let mut refused = 0;
    while refused < 20 {
        if passes(ask(&cluster, 1)).await {
            passed += 1;
        } else {
            refused += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!((100..=101).contains(&passed), "{passed} passed");
    spent(&cluster, &path, passed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_made_changed_or_deleted_on_one_node_is_so_on_the_others() {
    let (cluster, path) = started(0.0).await;
    let change = |change: Value| cluster.manage(0, Method::PUT, &path).json(change).send();
    for node in 0..3 {
        wait_for_response(SECOND, || ask(&cluster, node), |answer| answer.status == 403).await;
    }
    change(json!({"hard_limit_usd": 1.0})).await.expect(200);
    for node in 0..3 {
        wait_for_response(SECOND, || ask(&cluster, node), |answer| answer.status == 200).await;
    }
    change(json!({"hard_limit_usd": 0.001})).await.expect(200);
    for node in 0..3 {
        wait_for_response(SECOND, || ask(&cluster, node), |answer| answer.status == 403).await;
    }
    cluster.manage(1, Method::DELETE, &path).send().await.expect(200);
    for node in 0..3 {
        wait_for_response(SECOND, || ask(&cluster, node), |answer| answer.status == 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_lease_of_a_killed_node_is_released_when_it_expires() {
    let (mut cluster, path) = started(10.0 * COST).await;
    // Reserved for a request that never ends; lost with its node.
    cluster.upstream.push(Reply::json(200, ANSWER).delay_head(Duration::from_secs(60)));
    let lost = tokio::spawn(ask(&cluster, 2).send());
    cluster.upstream.wait_for_requests(1, Duration::from_secs(10)).await;
    cluster.kill(2);
    assert!(lost.await.is_err(), "its caller has no answer");
    let mut passed = 0;
    let began = Instant::now();
    while passed < 10 {
        if passes(ask(&cluster, passed % 2)).await {
            passed += 1;
        } else {
            assert!(began.elapsed() < Duration::from_secs(45), "{passed} passed");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
    spent(&cluster, &path, passed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_calls_three_nodes_at_once_spends_no_more_than_the_limit_and_one_call() {
    let (cluster, _) = started(1_000.0 * COST).await;
    cluster.upstream.set_default_reply(Reply::json(200, ANSWER).delay_head(Duration::from_millis(20)));
    let budget = json!({"scope": "user", "scope_id": "*", "period": "daily", "hard_limit_usd": 6.0 * COST});
    cluster.manage(0, Method::POST, &cluster.in_org("/budgets")).json(budget).send().await.expect(201);
    let ask_as = |node: usize, user: &str| ask(&cluster, node).header("x-gateway-user", user);
    for node in 0..3 {
        // A node knows the budget when its answers tell what is left of it.
        let has_budget = |answer: &TestResponse| {
            let left = answer.header("x-gateway-budget-remaining").map(|left| left.parse::<f64>().unwrap());
            left.is_some_and(|left| left <= 6.0 * COST)
        };
        wait_for_response(SECOND, || ask_as(node, &format!("probe {node}")), has_budget).await;
    }
    let users = ["ada", "bob"];
    let calls: Vec<_> =
        (0..120).map(|number| tokio::spawn(passes(ask_as(number % 3, users[number % 2])))).collect();
    let mut passed = [0_usize; 2];
    for (number, call) in calls.into_iter().enumerate() {
        passed[number % 2] += usize::from(call.await.unwrap());
    }
    for (user, mut passed) in users.into_iter().zip(passed) {
        assert!((1..=7).contains(&passed), "{user}: {passed} passed");
        // What the nodes had leased returns: the rest can be spent on any node, and no more.
        let mut refused_in_a_row = 0;
        while refused_in_a_row < 60 {
            if passes(ask_as(refused_in_a_row % 3, user)).await {
                passed += 1;
                refused_in_a_row = 0;
            } else {
                refused_in_a_row += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert!(passed <= 7, "{user}: {passed} passed");
        }
        assert!((6..=7).contains(&passed), "{user}: {passed} passed");
        let path = cluster.in_org(&format!("/budgets?user={user}"));
        let mut spent = 0.0;
        for _ in 0..200 {
            let list = cluster.manage(1, Method::GET, &path).send().await.expect(200);
            spent = list["budgets"][0]["spent_usd"].as_f64().unwrap();
            if (spent - COST * f64::from(u32::try_from(passed).unwrap())).abs() < 1e-9 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!((spent - COST * f64::from(u32::try_from(passed).unwrap())).abs() < 1e-9, "{user}: {spent}");
    }
    // Each user is reported once, whichever node has noticed.
    let db = Db::open(&cluster.database).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..200 {
        told = events::list(&db, cluster.org_id.parse().unwrap()).await.unwrap();
        told.retain(|event| event.kind == "budget.exceeded");
        if told.len() >= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(told.len(), 2, "{told:?}");
    db.close().await;
}
