//! Several nodes on one PostgreSQL behave as one: changes propagate within a second, and log ids are unique.

use std::collections::BTreeSet;
use std::time::Duration;

use gateway_store::Db;
use gateway_store::cluster::node_ids;
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    Cluster, MASTER_KEY, PASSWORD, TOKEN_SECRET, TcpForwarder, command, log_id, migrated_postgres, run,
    wait_for_response,
};

const SECOND: Duration = Duration::from_secs(1);

impl Cluster {
    async fn key_with(&self, scopes: &[&str]) -> (String, String) {
        let body = json!({"name": "scoped", "scopes": scopes});
        let made = self.manage(0, Method::POST, "/api/v1/keys").json(body).send().await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&made["raw_key"]), text(&made["key"]["id"]))
    }

    /// The credential that the provider receives from this node.
    async fn credential(&self, node: usize) -> Option<String> {
        self.chat(node, &self.key).send().await.expect(200);
        let seen = self.upstream.requests().pop().unwrap();
        seen.header("authorization").map(str::to_owned)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_made_changed_or_revoked_on_one_node_is_so_on_the_others() {
    let cluster = Cluster::start(3, &[]).await;
    let (key, id) = cluster.key_with(&["provider:openai"]).await;
    for node in 0..3 {
        cluster.chat(node, &key).send().await.expect(200);
    }
    let path = format!("/api/v1/keys/{id}");
    let change = json!({"scopes": ["provider:anthropic"]});
    cluster.manage(0, Method::PUT, &path).json(change).send().await.expect(200);
    for node in 0..3 {
        wait_for_response(SECOND, || cluster.chat(node, &key), |answer| answer.status == 403).await;
    }
    cluster.manage(1, Method::DELETE, &path).send().await.expect(200);
    cluster.chat(1, &key).send().await.expect_error(401, "unauthorized");
    for node in [0, 2] {
        wait_for_response(SECOND, || cluster.chat(node, &key), |answer| answer.status == 401).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_providers_and_prompts_changed_on_one_node_are_so_on_the_others() {
    let cluster = Cluster::start(2, &[]).await;
    let limit = |answer: &crate::support::TestResponse| answer.header("x-ratelimit-limit").map(str::to_owned);
    assert_eq!(limit(&cluster.chat(1, &cluster.key).send().await).as_deref(), Some("1000"));
    cluster.manage(0, Method::PUT, &cluster.in_org("")).json(json!({"plan": "pro"})).send().await.expect(200);
    wait_for_response(
        SECOND,
        || cluster.chat(1, &cluster.key),
        |answer| limit(answer).as_deref() == Some("10000"),
    )
    .await;

    // A change made outside of all nodes.
    let data = tempfile::tempdir().unwrap();
    let done = run(command(data.path(), &["admin", "set-plan", "acme", "enterprise"])
        .env("GATEWAY_DATABASE_URL", &cluster.database)
        .env("GATEWAY_TOKEN_SECRET", TOKEN_SECRET)
        .env("GATEWAY_MASTER_KEY", MASTER_KEY));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    for node in 0..2 {
        wait_for_response(
            SECOND,
            || cluster.chat(node, &cluster.key),
            |answer| limit(answer).as_deref() == Some("100000"),
        )
        .await;
    }

    let provider = json!({"name": "openai", "api_key": "first", "base_url": cluster.upstream.url()});
    cluster.manage(0, Method::POST, &cluster.in_org("/providers")).json(provider).send().await.expect(201);
    tokio::time::sleep(SECOND).await;
    assert_eq!(cluster.credential(1).await.as_deref(), Some("Bearer first"));
    let path = cluster.in_org("/providers/openai");
    cluster.manage(0, Method::PUT, &path).json(json!({"api_key": "second"})).send().await.expect(200);
    tokio::time::sleep(SECOND).await;
    assert_eq!(cluster.credential(1).await.as_deref(), Some("Bearer second"));

    let prompt = json!({"namespace": "ns", "slug": "hello", "content": "be brief"});
    cluster.manage(0, Method::POST, "/api/v1/prompts").json(prompt).send().await.expect(201);
    let path = "/api/v1/prompts/ns/hello";
    let render = || {
        cluster.manage(1, Method::POST, &format!("{path}/render")).json(json!({"variables": {"who": "Ada"}}))
    };
    assert!(render().send().await.text().contains("be brief"));
    cluster.manage(0, Method::PUT, path).json(json!({"content": "be long"})).send().await.expect(200);
    wait_for_response(SECOND, render, |answer| answer.text().contains("be long")).await;
    let label = format!("{path}/labels/production");
    cluster.manage(0, Method::PUT, &label).json(json!({"version": 1})).send().await.expect(200);
    let labelled = || {
        let path = format!("{path}/render?version=production");
        cluster.manage(1, Method::POST, &path).json(json!({"variables": {}}))
    };
    assert!(labelled().send().await.text().contains("be brief"));
    cluster.manage(0, Method::PUT, &label).json(json!({"version": 2})).send().await.expect(200);
    wait_for_response(SECOND, labelled, |answer| answer.text().contains("be long")).await;
    cluster.manage(0, Method::DELETE, &label).send().await.expect(200);
    wait_for_response(SECOND, labelled, |answer| answer.status == 404).await;
    cluster.manage(0, Method::DELETE, path).send().await.expect(200);
    wait_for_response(SECOND, render, |answer| answer.status == 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_member_and_a_token_that_logged_out_are_out_on_every_node() {
    let cluster = Cluster::start(2, &[]).await;
    let invite = json!({"email": "bob@example.com", "role": "member"});
    let members = cluster.in_org("/members");
    let invite = cluster.manage(0, Method::POST, &members).json(invite).send().await.expect(201);
    let body =
        json!({"email": "bob@example.com", "password": PASSWORD, "invite_token": invite["invite_token"]});
    let bob = cluster.nodes[1].post("/api/v1/signup", &body).send().await.expect(201);
    let login = json!({"email": "bob@example.com", "password": PASSWORD});
    let other = cluster.nodes[0].post("/api/v1/login", &login).send().await.expect(200);
    let (token, other) = (bob["token"].as_str().unwrap(), other["token"].as_str().unwrap());
    for node in &cluster.nodes {
        node.get("/api/v1/keys").bearer(token).send().await.expect(200);
        node.get("/api/v1/keys").bearer(other).send().await.expect(200);
    }
    cluster.nodes[0].post("/api/v1/auth/logout", &json!({})).bearer(other).send().await.expect(200);
    let call = || cluster.nodes[1].get("/api/v1/keys").bearer(other);
    wait_for_response(SECOND, call, |answer| answer.status == 401).await;
    cluster.nodes[1].get("/api/v1/keys").bearer(token).send().await.expect(200);

    // All sessions of a user at once.
    let third = cluster.nodes[0].post("/api/v1/login", &login).send().await.expect(200);
    let third = third["token"].as_str().unwrap();
    cluster.nodes[1].get("/api/v1/keys").bearer(third).send().await.expect(200);
    cluster.nodes[0].post("/api/v1/auth/logout-all", &json!({})).bearer(third).send().await.expect(200);
    for ended in [token, third] {
        let call = || cluster.nodes[1].get("/api/v1/keys").bearer(ended);
        wait_for_response(SECOND, call, |answer| answer.status == 401).await;
    }

    let bob_again = cluster.nodes[0].post("/api/v1/login", &login).send().await.expect(200);
    let token = bob_again["token"].as_str().unwrap();
    let path = format!("{members}/{}", bob["user"]["id"].as_str().unwrap());
    cluster.manage(0, Method::PUT, &path).json(json!({"role": "admin"})).send().await.expect(200);
    let key = cluster.nodes[0].post("/api/v1/keys", &json!({"name": "bobs"})).bearer(token).send().await;
    let key = key.expect(201)["raw_key"].as_str().unwrap().to_owned();
    let role = || cluster.nodes[1].get("/api/v1/auth/entitlements").key(&key);
    wait_for_response(SECOND, role, |answer| answer.text().contains("\"admin\"")).await;
    // A demotion caps the key on the other node, a removal ends it there.
    cluster.manage(0, Method::PUT, &path).json(json!({"role": "viewer"})).send().await.expect(200);
    wait_for_response(SECOND, role, |answer| answer.text().contains("\"viewer\"")).await;
    cluster.manage(0, Method::DELETE, &path).send().await.expect(200);
    let call = || cluster.nodes[1].get("/api/v1/keys").bearer(token);
    wait_for_response(SECOND, call, |answer| answer.status == 401).await;
    wait_for_response(SECOND, role, |answer| answer.status == 401).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_changed_while_a_node_was_cut_off_is_seen_when_it_is_back() {
    let database = migrated_postgres().await;
    let (forwarder, through) = TcpForwarder::to_database(&database).await;
    let cluster =
        Cluster::start_each(database, &[vec![], vec![("GATEWAY_DATABASE_URL", through.as_str())]]).await;
    let (key, id) = cluster.key_with(&["*"]).await;
    cluster.chat(1, &key).send().await.expect(200);
    forwarder.cut();
    cluster.manage(0, Method::DELETE, &format!("/api/v1/keys/{id}")).send().await.expect(200);
    cluster.chat(1, &key).send().await.expect(200);
    forwarder.open();
    // Within a second after the node has reconnected.
    wait_for_response(2 * SECOND, || cluster.chat(1, &key), |answer| answer.status == 401).await;
    cluster.chat(1, &cluster.key).send().await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_ids_of_nodes_never_meet_and_a_node_beyond_the_last_number_does_not_start() {
    let cluster = Cluster::start(3, &[("GATEWAY_RATE_LIMIT_FREE", "0")]).await;
    let calls = |node: usize| {
        let cluster = &cluster;
        async move {
            let mut ids = BTreeSet::new();
            for _ in 0..60 {
                ids.insert(log_id(&cluster.chat(node, &cluster.key).send().await));
            }
            ids
        }
    };
    let (a, b, c) = tokio::join!(calls(0), calls(1), calls(2));
    let numbers = |ids: &BTreeSet<i64>| ids.iter().map(|id| (id >> 7) & 31).collect::<BTreeSet<_>>();
    assert_eq!([numbers(&a).len(), numbers(&b).len(), numbers(&c).len()], [1, 1, 1]);
    let all: BTreeSet<i64> = [a.clone(), b.clone(), c.clone()].into_iter().flatten().collect();
    assert_eq!(all.len(), 180);
    assert_eq!([a, b, c].iter().flat_map(numbers).collect::<BTreeSet<_>>().len(), 3);

    let db = Db::open(&cluster.database).await.unwrap();
    let mut taken = Vec::new();
    while let Some(number) = node_ids::claim(&db, "somebody else").await.unwrap() {
        taken.push(number);
    }
    assert_eq!(taken.len(), 28, "{taken:?}");
    let data = tempfile::tempdir().unwrap();
    let refused = run(command(data.path(), &["serve"])
        .env("GATEWAY_DATABASE_URL", &cluster.database)
        .env("GATEWAY_TOKEN_SECRET", TOKEN_SECRET)
        .env("GATEWAY_MASTER_KEY", MASTER_KEY));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("31 nodes already uses this database"), "{}", refused.stderr);
    // A released node number is free at once.
    node_ids::release(&db, taken[0], "somebody else").await.unwrap();
    assert_eq!(node_ids::claim(&db, "a third").await.unwrap(), Some(taken[0]));
    assert!(node_ids::renew(&db, taken[0], "somebody else").await.unwrap().is_none());
    db.close().await;
}
