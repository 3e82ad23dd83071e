//! What nodes share of limits: slices and permits on PostgreSQL, and the scripts of Redis.

use std::time::Duration;

use gateway_core::ids::{LimitId, OrgId};
use gateway_core::time::Timestamp;
use gateway_store::Db;
use gateway_store::cluster::limit_permits::{self, Leased, PermitRequest};
use gateway_store::cluster::limit_slices::{self, Returned, SliceRequest};
use gateway_store::limits::{LimitOwner, StoredLimit, insert};
use gateway_store::redis::RedisClient;
use gateway_store::redis::limits::{self as redis, BucketSettle, BucketTake, HeldPermit, PermitTake};
use serde_json::json;

use crate::support::{Backend, TestApp};

const DAY: Duration = Duration::from_secs(86_400);

/// An organization with limits, on PostgreSQL.
struct Fixture {
    app: TestApp,
    org: OrgId,
    limits: [LimitId; 2],
}

impl Fixture {
    async fn start() -> Self {
        let app = TestApp::start_with(Backend::Postgres, &[]).await;
        let ada = app.signup("acme").await;
        let org: OrgId = ada.org_id.parse().unwrap();
        let limits = [uuid::Uuid::new_v4().into(), uuid::Uuid::new_v4().into()];
        let mut tx = app.app.services.db.begin().await.unwrap();
        for id in limits {
            let definition = json!({"name": format!("l-{id}"), "tokens": 100, "enabled": false}).to_string();
            let (created_at, updated_at) = (Timestamp(1), Timestamp(1));
            let name = format!("l-{id}");
            let limit = StoredLimit { id, name, definition, keys: Vec::new(), created_at, updated_at };
            insert(&mut tx, org, &limit, LimitOwner::default()).await.unwrap();
        }
        tx.commit().await.unwrap();
        Self { app, org, limits }
    }

    fn db(&self) -> &Db {
        &self.app.app.services.db
    }

    fn slice(&self, limit: usize, capacity: i64, need: i64, slice: i64) -> SliceRequest {
        let (limit, bucket) = (self.limits[limit], "ann".to_owned());
        SliceRequest { limit, bucket, unit: "tokens", capacity, window: DAY, need, slice }
    }

    /// What is granted and left.
    async fn take(&self, requests: &[SliceRequest]) -> Vec<(i64, i64)> {
        let slices = limit_slices::take(self.db(), self.org, requests).await.unwrap();
        slices.iter().map(|slice| (slice.granted, slice.left)).collect()
    }

    async fn lease(&self, node: &str, requests: &[PermitRequest]) -> Vec<Leased> {
        limit_permits::lease(self.db(), self.org, node, requests).await.unwrap()
    }

    async fn give_back(&self, amount: i64) {
        let (limit, bucket) = (self.limits[0], "ann".to_owned());
        let returned = [Returned { limit, bucket, unit: "tokens", amount }];
        limit_slices::give_back(self.db(), self.org, &returned).await.unwrap();
    }
}

#[tokio::test]
async fn slices_are_taken_out_of_all_buckets_or_none() {
    let world = Fixture::start().await;
    assert_eq!(world.take(&[world.slice(0, 100, 5, 10)]).await, [(10, 90)]);
    // A slice that is not there is granted in part, but never less than what is needed.
    assert_eq!(world.take(&[world.slice(0, 100, 5, 500)]).await, [(90, 0)]);
    assert_eq!(world.take(&[world.slice(0, 100, 1, 10)]).await, [(0, 0)]);
    let both = [world.slice(1, 100, 5, 10), world.slice(0, 100, 1, 1)];
    assert_eq!(world.take(&both).await, [(0, 100), (0, 0)], "the other bucket keeps what it has");
    world.give_back(7).await;
    assert_eq!(world.take(&[world.slice(0, 100, 5, 5), world.slice(1, 100, 1, 1)]).await, [(5, 2), (1, 99)]);
    // A call that used more than it reserved leaves less than nothing.
    world.give_back(-30).await;
    assert_eq!(world.take(&[world.slice(0, 100, 1, 1)]).await, [(0, -28)]);
    // What is used stays used when the limit changes.
    assert_eq!(world.take(&[world.slice(0, 200, 1, 10)]).await, [(10, 62)]);
    world.give_back(1_000).await;
    assert_eq!(world.take(&[world.slice(0, 200, 0, 0)]).await, [(0, 200)], "never more than the limit");
    limit_slices::sweep(world.db()).await.unwrap();
    assert_eq!(world.take(&[world.slice(1, 100, 0, 0)]).await, [(0, 99)], "a bucket in use is kept");
}

#[tokio::test]
async fn buckets_that_are_full_again_leave_and_so_do_the_oldest_beyond_a_number() {
    let world = Fixture::start().await;
    let buckets = async || {
        let amounts = [("tokens", 100)];
        let found = limit_slices::most_used(world.db(), world.limits[0], &amounts, DAY, 10).await.unwrap();
        found.into_iter().map(|one| (one.bucket, one.left)).collect::<Vec<_>>()
    };
    for (bucket, amount) in [("few", 1), ("half", 50), ("all", 100)] {
        let request = SliceRequest { bucket: bucket.to_owned(), ..world.slice(0, 100, amount, amount) };
        assert_eq!(world.take(&[request]).await[0].0, amount);
    }
    let named = |names: &[(&str, i64)]| -> Vec<(String, i64)> {
        names.iter().map(|(bucket, left)| ((*bucket).to_owned(), *left)).collect()
    };
    assert_eq!(buckets().await, named(&[("all", 0), ("half", 50), ("few", 99)]));
    // One of a hundred a day is back after less than a quarter of an hour.
    let older = "UPDATE limit_buckets SET at = at - 900000";
    gateway_store::testing::execute(world.db(), older).await.unwrap();
    limit_slices::sweep(world.db()).await.unwrap();
    assert_eq!(buckets().await, named(&[("all", 1), ("half", 51)]));
    let older = "UPDATE limit_buckets SET at = at - 900000 WHERE bucket = 'all'";
    gateway_store::testing::execute(world.db(), older).await.unwrap();
    limit_slices::sweep_beyond(world.db(), 1).await.unwrap();
    assert_eq!(buckets().await, named(&[("half", 51)]));
}

#[tokio::test]
async fn an_empty_bucket_refills() {
    let world = Fixture::start().await;
    let mut request = world.slice(0, 1_000, 1_000, 1_000);
    request.window = Duration::from_secs(1);
    assert_eq!(world.take(std::slice::from_ref(&request)).await, [(1_000, 0)]);
    request.need = 1;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if world.take(std::slice::from_ref(&request)).await[0].0 > 0 {
            return;
        }
    }
    panic!("the bucket stays empty");
}

#[tokio::test]
async fn concurrent_nodes_take_no_more_than_there_is() {
    let world = Fixture::start().await;
    let takes = (0..40).map(|_| async { world.take(&[world.slice(0, 100, 4, 4)]).await[0].0 });
    let granted: i64 = futures_util::future::join_all(takes).await.into_iter().sum();
    assert_eq!(granted, 100);
}

#[tokio::test]
async fn permits_are_leased_by_node_and_free_when_the_lease_ends() {
    let world = Fixture::start().await;
    let request = |limit: usize, wanted: i64| {
        let (limit, bucket) = (world.limits[limit], String::new());
        PermitRequest { limit, bucket, capacity: 3, floor: 0, wanted }
    };
    let lease = async |node: &str, requests: &[PermitRequest]| held(&world.lease(node, requests).await);
    assert_eq!(lease("a", &[request(0, 2)]).await, [2]);
    assert_eq!(lease("b", &[request(0, 2)]).await, [0], "only one is left");
    assert_eq!(lease("b", &[request(0, 1), request(1, 1)]).await, [1, 1]);
    assert_eq!(lease("a", &[request(0, 3), request(1, 3)]).await, [2, 0], "all or none");
    assert_eq!(lease("a", &[request(0, 1)]).await, [1], "fewer are always possible");
    assert_eq!(lease("b", &[request(0, 2)]).await, [2]);
    limit_permits::renew(world.db(), "a").await.unwrap();
    limit_permits::sweep(world.db()).await.unwrap();
    assert_eq!(lease("c", &[request(0, 1)]).await, [0], "both nodes still hold theirs");
    let ended = "UPDATE limit_permits SET expires_at = 0 WHERE node = 'b'";
    gateway_store::testing::execute(world.db(), ended).await.unwrap();
    assert_eq!(lease("c", &[request(0, 2)]).await, [2]);
}

fn held(leased: &[Leased]) -> Vec<i64> {
    leased.iter().map(|one| one.held).collect()
}

/// The calls of other classes leave the share free, whatever a node holds already; those of the class do not.
#[tokio::test]
async fn permits_are_kept_for_a_class() {
    let world = Fixture::start().await;
    let ask = async |node: &str, floor: i64, wanted: i64| {
        let (limit, bucket) = (world.limits[0], String::new());
        let leased = world.lease(node, &[PermitRequest { limit, bucket, capacity: 10, floor, wanted }]).await;
        (leased[0].held, leased[0].fits)
    };
    assert_eq!(ask("a", 7, 3).await, (3, true));
    assert_eq!(ask("a", 7, 4).await, (3, false), "seven are kept");
    assert_eq!(ask("b", 7, 1).await, (0, false), "on every node");
    assert_eq!(ask("b", 0, 2).await, (2, true), "those of the class go on");
    assert_eq!(ask("a", 7, 2).await, (3, false), "what a node holds is no way around it");
    assert_eq!(ask("a", 7, 1).await, (3, true), "what it does not use stays its own");
    assert_eq!(ask("a", 0, 1).await, (1, true), "until it is given back");
}

/// A connected client, and ids that no other test has.
async fn connected() -> (std::sync::Arc<RedisClient>, OrgId, LimitId) {
    let url =
        std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `make test`");
    let client = std::sync::Arc::new(RedisClient::new(&url).unwrap());
    let running = std::sync::Arc::clone(&client);
    tokio::spawn(async move { running.run(|_| {}).await });
    for _ in 0..500 {
        if client.is_up() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (client, uuid::Uuid::new_v4().into(), uuid::Uuid::new_v4().into())
}

fn bucket(limit: LimitId, unit: &'static str, capacity: u64, amount: u64) -> BucketTake {
    BucketTake {
        limit,
        bucket: "ann:{x}".to_owned(),
        unit,
        capacity,
        window: DAY,
        amount,
        enforced: true,
        class: None,
        reserved: Vec::new(),
    }
}

fn permit(limit: LimitId, capacity: u64) -> PermitTake {
    PermitTake { limit, bucket: String::new(), capacity, enforced: true, class: None, reserved: Vec::new() }
}

fn settled(limit: LimitId, give_back: i64) -> BucketSettle {
    BucketSettle { limit, bucket: "ann:{x}".to_owned(), unit: "tokens", give_back }
}

#[tokio::test]
async fn one_script_takes_every_bucket_of_a_call_or_none() {
    let (client, org, limit) = connected().await;
    let take = async |tokens: u64, requests: u64| {
        let buckets = [bucket(limit, "tokens", 100, tokens), bucket(limit, "requests", 3, requests)];
        let taken = redis::take(&client, org, "call", &buckets, &[]).await.unwrap();
        let left: Vec<i64> = taken.buckets.iter().map(|state| state.left).collect();
        (taken.ok, left, taken.buckets)
    };
    assert_eq!(take(60, 1).await.1, [40, 2]);
    let (ok, left, states) = take(41, 1).await;
    assert_eq!((ok, left), (false, vec![40, 2]), "the bucket of requests keeps what it has");
    // 1 of 100 tokens a day takes 864 s to come back.
    assert!(!states[0].taken && states[0].wait > Duration::from_secs(850), "{states:?}");
    assert!(states[0].wait <= Duration::from_secs(864) && states[1].wait.is_zero(), "{states:?}");
    redis::settle(&client, org, "call", &[settled(limit, 50)], &[]).await.unwrap();
    assert_eq!(take(90, 1).await.1, [0, 1]);
    redis::settle(&client, org, "call", &[settled(limit, -25)], &[]).await.unwrap();
    assert_eq!(take(0, 0).await.1, [-25, 1]);
    // What is used stays used when the limit changes.
    let changed = [bucket(limit, "tokens", 200, 10)];
    assert_eq!(redis::take(&client, org, "call", &changed, &[]).await.unwrap().buckets[0].left, 65);
}

#[tokio::test]
async fn concurrent_calls_take_no_more_than_there_is() {
    let (client, org, limit) = connected().await;
    let take = |call: String| {
        let client = &client;
        async move {
            let taken =
                redis::take(client, org, &call, &[bucket(limit, "tokens", 100, 3)], &[]).await.unwrap();
            usize::from(taken.ok)
        }
    };
    let taken: usize =
        futures_util::future::join_all((0..500).map(|n| take(n.to_string()))).await.into_iter().sum();
    assert_eq!(taken, 33);
}

#[tokio::test]
async fn a_reserved_share_is_for_its_class_unless_it_is_idle() {
    let (client, org, limit) = connected().await;
    let take = async |class: Option<&str>, amount: u64| {
        let mut bucket = bucket(limit, "tokens", 100, amount);
        bucket.class = class.map(str::to_owned);
        if class != Some("prod") {
            bucket.reserved = vec![("prod".to_owned(), 70), ("night".to_owned(), 20)];
        }
        redis::take(&client, org, "call", &[bucket], &[]).await.unwrap().ok
    };
    assert!(take(None, 50).await, "nobody of the class was there");
    assert!(take(Some("prod"), 20).await);
    assert!(!take(None, 1).await, "the class is not idle");
    assert!(take(Some("prod"), 30).await, "the class goes on to the end");
    assert!(!take(Some("prod"), 1).await);
}

#[tokio::test]
async fn a_limit_that_is_not_enforced_holds_no_call_back() {
    let (client, org, limit) = connected().await;
    let mut dry = bucket(limit, "tokens", 100, 101);
    dry.enforced = false;
    let buckets = [dry, bucket(limit, "requests", 3, 1)];
    let permit = PermitTake { enforced: false, ..permit(limit, 0) };
    let taken = redis::take(&client, org, "call", &buckets, &[permit]).await.unwrap();
    assert!(taken.ok);
    assert_eq!(taken.buckets.iter().map(|state| state.taken).collect::<Vec<_>>(), [false, true]);
    assert_eq!((taken.buckets[0].left, taken.permits[0].taken), (100, false));
}

#[tokio::test]
async fn permits_are_held_until_they_are_given_back() {
    let (client, org, limit) = connected().await;
    let take = async |call: &str| {
        let taken = redis::take(&client, org, call, &[], &[permit(limit, 2)]).await.unwrap();
        (taken.ok, taken.permits[0].held)
    };
    assert_eq!([take("a").await, take("b").await, take("c").await], [(true, 1), (true, 2), (false, 2)]);
    let held = |call: &str| HeldPermit { limit, bucket: String::new(), call: call.to_owned() };
    redis::renew_permits(&client, org, &[held("a")], |_| true).await.unwrap();
    assert_eq!(take("c").await, (false, 2));
    redis::settle(&client, org, "a", &[], &[(limit, String::new())]).await.unwrap();
    assert_eq!(take("c").await, (true, 2));
    // The call "c" ends while a renewal of its permit is on the way.
    redis::settle(&client, org, "c", &[], &[(limit, String::new())]).await.unwrap();
    let renewed = [held("b"), held("c")];
    redis::renew_permits(&client, org, &renewed, |permit| permit.call == "b").await.unwrap();
    assert_eq!([take("d").await, take("e").await], [(true, 2), (false, 2)], "its permit is free");
}

#[tokio::test]
async fn permits_are_kept_for_a_class_in_redis() {
    let (client, org, limit) = connected().await;
    let take = async |call: &str, class: Option<&str>| {
        let mut permit = permit(limit, 10);
        permit.class = class.map(str::to_owned);
        if class.is_none() {
            permit.reserved = vec![("prod".to_owned(), 7), ("night".to_owned(), 2)];
        }
        let taken = redis::take(&client, org, call, &[], &[permit]).await.unwrap();
        (taken.ok, taken.permits[0].fits, taken.permits[0].held)
    };
    assert_eq!(take("a", None).await, (true, true, 1));
    assert_eq!(take("b", Some("prod")).await, (true, true, 2));
    assert_eq!(take("c", None).await, (true, true, 3));
    assert_eq!(take("d", None).await, (false, false, 3), "the class is not idle");
    for held in 4..=10 {
        assert_eq!(take(&held.to_string(), Some("prod")).await, (true, true, held));
    }
    assert_eq!(take("e", Some("prod")).await, (false, false, 10));
}
