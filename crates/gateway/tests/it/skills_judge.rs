//! Judging of skills: the internal judge, the language model, the queue, and recovery after a restart.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use gateway::app::App;
use gateway::clock::Clock;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_uuid_v7, time};
use crate::support::skills::{ENTERPRISE, fields, path};
use crate::support::{Backend, ProxyFixture, TestApp, migrated_config};
use crate::upstream::Reply;

const AXES: [&str; 5] = ["clarity", "completeness", "originality", "safety", "specificity"];
const GOOD: &str = include_str!("../../../gateway-core/fixtures/skills/good/postgres-slow-query.md");
const UNSAFE: &str = include_str!("../../../gateway-core/fixtures/skills/unsafe/html-comment-exfil.md");

on_both!(every_version_is_judged_by_itself_and_again_when_asked, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.skill(&ada, json!({"raw_source": GOOD})).await;
    let first = app.wait_for_verdicts(&ada, &skill, 1).await.remove(0);
    assert_uuid_v7(&first["id"]);
    time(&first["created_at"]);
    let rubric = app.get("/api/v1/skills/rubric").bearer(&ada.token).send().await.expect(200);
    assert_eq!((&first["rubric_config_id"], &first["skill_version"]), (&rubric["id"], &json!(1)));
    assert_eq!(
        (&first["judge_provider"], &first["judge_model"], &first["source"]),
        (&json!("builtin"), &json!("rubric-v1"), &json!("internal"))
    );
    let axes = first["axes"].as_object().unwrap();
    assert_eq!(axes.keys().map(String::as_str).collect::<Vec<_>>(), AXES);
    assert!(axes.values().all(|axis| !axis["rationale"].as_str().unwrap().is_empty()));
    assert_eq!(first["passed"], true, "{first:#}");
    assert!(first.get("external_ref").is_none());
    app.publish(&ada, &skill).await.expect(200);

    app.put(&path(&skill), json!({"body": "Now it says nothing."}))
        .bearer(&ada.token)
        .send()
        .await
        .expect(200);
    let second = app.wait_for_verdicts(&ada, &skill, 2).await.remove(0);
    assert_eq!((&second["skill_version"], &second["passed"]), (&json!(2), &json!(false)));
    let again = app.post(&format!("{}/evaluate", path(&skill)), json!({})).bearer(&ada.token).send().await;
    assert_eq!(again.expect(202), json!({"dispatched": true, "queued": true}));
    let third = app.wait_for_verdicts(&ada, &skill, 3).await.remove(0);
    assert_eq!(
        (&third["skill_version"], &third["axes"]),
        (&json!(2), &second["axes"]),
        "the judge is deterministic"
    );
    let limited =
        app.get(&format!("{}/evaluations?limit=1", path(&skill))).bearer(&ada.token).send().await.expect(200);
    assert_eq!(limited["evaluations"], json!([third]));
    for bad in ["limit=0", "limit=x"] {
        app.get(&format!("{}/evaluations?{bad}", path(&skill)))
            .bearer(&ada.token)
            .send()
            .await
            .expect_error(400, "bad_request");
    }
    // Leaves time for a duplicate verdict.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(app.wait_for_verdicts(&ada, &skill, 3).await.len(), 3);
});

on_both!(what_is_unsafe_or_copied_does_not_pass, ENTERPRISE, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let skill = app.skill(&ada, json!({"raw_source": GOOD})).await;
    app.wait_for_verdicts(&ada, &skill, 1).await;
    app.publish(&ada, &skill).await.expect(200);
    app.change_rubric(&eve, json!({"pass_threshold": 0, "weights": {"clarity": 1}})).await;
    let bad = app.skill(&eve, json!({"raw_source": UNSAFE})).await;
    let verdict = app.wait_for_verdicts(&eve, &bad, 1).await.remove(0);
    assert_eq!(
        (&verdict["passed"], &verdict["axes"]["safety"]["score"]),
        (&json!(false), &json!(0.0)),
        "whatever the rubric says"
    );
    app.publish(&eve, &bad).await.expect_error(409, "not_publishable");
    app.change_rubric(&eve, json!({"pass_threshold": 0.7})).await;
    let copy = app
        .skill(&eve, json!({"raw_source": GOOD.replace("name: postgres-slow-query", "name: my-own-work")}))
        .await;
    let verdict = app.wait_for_verdicts(&eve, &copy, 1).await.remove(0);
    assert_eq!(verdict["passed"], false, "{verdict:#}");
    let rationale = verdict["axes"]["originality"]["rationale"].as_str().unwrap();
    assert!(rationale.contains("copy of \"postgres-slow-query\""), "{rationale}");
});

fn axes(score: f64) -> String {
    let axes: serde_json::Map<_, _> = AXES
        .iter()
        .map(|axis| ((*axis).to_owned(), json!({"score": score, "rationale": format!("{axis} seen")})))
        .collect();
    json!({"axes": axes}).to_string()
}

fn says(text: &str) -> Reply {
    let body = json!({"model": "gpt-4o", "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}});
    Reply::json(200, &body.to_string())
}

const WITH_MODEL: [(&str, &str); 5] = [
    ("GATEWAY_DEFAULT_PLAN", "enterprise"),
    ("GATEWAY_JUDGE_PROVIDER", "openai"),
    ("GATEWAY_JUDGE_MODEL", "gpt-4o"),
    ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
    ("GATEWAY_PROXY_TIMEOUT_MS", "1500"),
];

async fn by_model(backend: Backend) -> ProxyFixture {
    ProxyFixture::start_with(backend, &WITH_MODEL).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_language_model_judges_through_the_gateways_own_proxy() {
    for backend in Backend::BOTH {
        let gateway = by_model(backend).await;
        let (app, ada) = (&gateway.app, &gateway.ada);
        gateway.upstream.push(says(&axes(0.9)));
        let skill = app.skill(ada, fields("by-model")).await;
        let verdict = app.wait_for_verdicts(ada, &skill, 1).await.remove(0);
        assert_eq!((&verdict["overall_score"], &verdict["passed"]), (&json!(0.9), &json!(true)));
        assert_eq!(
            (&verdict["judge_provider"], &verdict["judge_model"], &verdict["source"]),
            (&json!("openai"), &json!("gpt-4o"), &json!("internal"))
        );
        assert_eq!((&verdict["prompt_tokens"], &verdict["completion_tokens"]), (&json!(100), &json!(20)));
        assert_eq!(verdict["axes"]["clarity"], json!({"score": 0.9, "rationale": "clarity seen"}));
        assert!(verdict["latency_ms"].as_i64().unwrap() >= 0);
        app.publish(ada, &skill).await.expect(200);
        let row = gateway.only_row().await;
        assert_eq!(
            (&row["source"], &row["provider"], &row["model"]),
            (&json!("api"), &json!("openai"), &json!("gpt-4o"))
        );
        assert_eq!(row["metadata"], json!({"judge": "skill", "skill_id": skill["id"], "skill_version": 1}));
        let sent = gateway.upstream.requests().remove(0);
        let sent: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(sent["messages"][0]["role"], "system");
        assert!(
            !sent["messages"][0]["content"].as_str().unwrap().contains("by-model"),
            "the skill is no instruction"
        );
        let user = sent["messages"][1]["content"].as_str().unwrap();
        let hash = skill["content_hash"].as_str().unwrap();
        assert_eq!(user.matches(hash).count(), 2, "the skill stands between two lines with its hash");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_no_json_is_repaired_once() {
    let gateway = by_model(Backend::Sqlite).await;
    let (app, ada) = (&gateway.app, &gateway.ada);
    gateway.upstream.push(says("I would say it is quite good."));
    gateway.upstream.push(says(&axes(0.8)));
    let skill = app.skill(ada, fields("repaired")).await;
    let verdict = app.wait_for_verdicts(ada, &skill, 1).await.remove(0);
    assert_eq!(
        (&verdict["passed"], &verdict["prompt_tokens"], &verdict["completion_tokens"]),
        (&json!(true), &json!(200), &json!(40))
    );
    let second: Value = serde_json::from_slice(&gateway.upstream.requests()[1].body).unwrap();
    assert_eq!(second["messages"][2]["content"], "I would say it is quite good.");
    assert!(second["messages"][3]["content"].as_str().unwrap().contains("cannot be used"));

    gateway.upstream.push(says("No."));
    gateway.upstream.push(says("```json\n{}\n```"));
    let skill = app.skill(ada, fields("hopeless")).await;
    let verdict = app.wait_for_verdicts(ada, &skill, 1).await.remove(0);
    assert_eq!(
        (&verdict["passed"], &verdict["overall_score"], &verdict["prompt_tokens"]),
        (&json!(false), &json!(0.0), &json!(200))
    );
    assert!(verdict["axes"]["judge"]["rationale"].as_str().unwrap().contains("twice"), "{verdict}");
    assert_eq!(gateway.upstream.requests().len(), 4, "there is one repair, not two");
    app.publish(ada, &skill).await.expect_error(409, "not_publishable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judge_that_fails_leaves_a_verdict_that_says_why() {
    let gateway = by_model(Backend::Sqlite).await;
    let (app, ada) = (&gateway.app, &gateway.ada);
    let why = async |skill: &Value| {
        let verdict = app.wait_for_verdicts(ada, skill, 1).await.remove(0);
        assert_eq!((&verdict["passed"], &verdict["judge_provider"]), (&json!(false), &json!("openai")));
        verdict["axes"]["judge"]["rationale"].as_str().unwrap().to_owned()
    };
    gateway.upstream.push(Reply::json(401, "{\"error\": {\"message\": \"bad key\"}}"));
    let skill = app.skill(ada, fields("refused")).await;
    assert!(why(&skill).await.contains("401"));
    for _ in 0..3 {
        gateway.upstream.push(Reply::json(500, "{}"));
    }
    let skill = app.skill(ada, fields("broken")).await;
    assert!(why(&skill).await.contains("openai"), "tried three times");
    assert_eq!(gateway.upstream.requests().len(), 4);
    gateway.upstream.push(Reply::no_response());
    let skill = app.skill(ada, fields("silent")).await;
    assert!(why(&skill).await.contains("no response within"), "a judge has its time");
    // It recovers: a transient failure is not a verdict.
    gateway.upstream.push(Reply::json(503, "{}"));
    gateway.upstream.push(says(&axes(0.9)));
    let skill = app.skill(ada, fields("lucky")).await;
    assert_eq!(app.wait_for_verdicts(ada, &skill, 1).await[0]["passed"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_cannot_be_talked_past_a_finding() {
    let gateway = by_model(Backend::Sqlite).await;
    gateway.upstream.set_default_reply(says(&axes(1.0)));
    let skill = gateway.app.skill(&gateway.ada, json!({"raw_source": UNSAFE})).await;
    let verdict = gateway.app.wait_for_verdicts(&gateway.ada, &skill, 1).await.remove(0);
    assert_eq!((&verdict["passed"], &verdict["axes"]["safety"]["score"]), (&json!(false), &json!(0.0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_may_make_the_embeddings() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &ENTERPRISE).await;
        let (app, ada) = (&gateway.app, &gateway.ada);
        let change = json!({"embed_provider": "sandbox", "embed_model": "sandbox-embed", "embed_dims": 64});
        app.change_rubric(ada, change).await;
        let first = app.skill(ada, json!({"raw_source": GOOD})).await;
        app.wait_for_verdicts(ada, &first, 1).await;
        app.publish(ada, &first).await.expect(200);
        let copy = app
            .skill(ada, json!({"raw_source": GOOD.replace("name: postgres-slow-query", "name: a-copy")}))
            .await;
        let verdict = app.wait_for_verdicts(ada, &copy, 1).await.remove(0);
        let rationale = verdict["axes"]["originality"]["rationale"].as_str().unwrap();
        assert!(rationale.contains("copy of") && rationale.contains("sandbox-embed"), "{rationale}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_buffer_drops_requests_and_loses_no_version() {
    for backend in Backend::BOTH {
        let settings: Vec<_> = WITH_MODEL.iter().copied().chain([("GATEWAY_EVAL_QUEUE", "2")]).collect();
        let gateway = ProxyFixture::start_with(backend, &settings).await;
        let (app, ada) = (&gateway.app, &gateway.ada);
        let slow = || says(&axes(0.9)).delay_head(Duration::from_millis(700));
        gateway.upstream.set_default_reply(slow());
        let mut made = Vec::new();
        for name in ["one", "two", "three", "four"] {
            made.push(app.skill(ada, fields(name)).await);
        }
        let evaluate =
            || app.post(&format!("{}/evaluate", path(&made[0])), json!({})).bearer(&ada.token).send();
        let answers = join_all((0..8).map(|_| evaluate())).await;
        let full = answers
            .iter()
            .map(|answer| answer.expect(202))
            .filter(|answer| answer["queued"] == false)
            .count();
        assert!(full >= 6, "{full} of 8 were dropped, with room for 2");
        assert!(answers.iter().all(|answer| answer.expect(202)["dispatched"] == true));
        for skill in &made {
            assert_eq!(app.wait_for_verdicts(ada, skill, 1).await[0]["passed"], true, "{}", skill["name"]);
        }
    }
}

on_both!(the_judge_applies_the_rubric_in_force_when_it_stores_the_verdict, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    for round in 0..10 {
        app.change_rubric(&ada, json!({"pass_threshold": 0})).await;
        let raise = app.change_rubric(&ada, json!({"pass_threshold": 1}));
        let create = app.skill(&ada, fields(&format!("race-{round}")));
        let (_, skill) = tokio::join!(raise, create);
        let verdict = app.wait_for_verdicts(&ada, &skill, 1).await.remove(0);
        // A verdict from before the change may have passed; one stored after it must not.
        let kept = time(&verdict["created_at"]);
        let rubric = app.get("/api/v1/skills/rubric").bearer(&ada.token).send().await.expect(200);
        if kept > time(&rubric["updated_at"]) {
            assert_eq!(verdict["passed"], false, "round {round}: {verdict}");
        }
    }
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_without_a_verdict_are_found_after_a_restart() {
    for backend in Backend::BOTH {
        let data = Arc::new(tempfile::tempdir().unwrap());
        let app = TestApp::start(migrated_config(backend, &data, &ENTERPRISE).await, data).await;
        let ada = app.signup("acme").await;
        // Inserted without notifying the judge, as if the process had died between two steps.
        let source = gateway_core::skills::SkillSource::from_raw(GOOD).unwrap();
        let id: gateway_core::ids::SkillId = app.app.services.ids.new_id();
        let new = gateway_store::skills::NewSkill {
            id,
            source: &source,
            files: &gateway_core::skills::files::FileList::default(),
            adopted: None,
            by: "nobody",
            now: app.app.services.clock.now(),
        };
        let (config, data) = {
            let org = ada.org_id.parse().unwrap();
            app.app.services.tasks.begin_stop();
            let mut tx = app.app.services.db.begin().await.unwrap();
            assert!(gateway_store::skills::insert(&mut tx, org, &new).await.unwrap());
            tx.commit().await.unwrap();
            app.stop().await
        };
        let app = TestApp::start(config, data).await;
        let skill = json!({"id": id, "name": source.name});
        assert_eq!(app.wait_for_verdicts(&ada, &skill, 1).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_nodes_judge_each_version_once() {
    let data = Arc::new(tempfile::tempdir().unwrap());
    let config = migrated_config(Backend::Postgres, &data, &ENTERPRISE).await;
    let app = TestApp::start(config.clone(), data).await;
    let other_data = tempfile::tempdir().unwrap();
    let mut other = config;
    other.data_dir = other_data.path().to_owned();
    let second = App::start(other, Clock::default()).await.unwrap();
    let ada = app.signup("acme").await;
    let skills = join_all((0..12).map(|number| app.skill(&ada, fields(&format!("skill-{number}"))))).await;
    for skill in &skills {
        app.wait_for_verdicts(&ada, skill, 1).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for skill in &skills {
        assert_eq!(app.wait_for_verdicts(&ada, skill, 1).await.len(), 1, "{}", skill["name"]);
    }
    second.services.tasks.begin_stop();
    second.finish_stop(Duration::from_secs(5)).await;
}

on_both!(a_rubric_that_names_another_version_of_the_judge_goes_on_working, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let changed =
        app.change_rubric(&ada, json!({"judge_provider": "builtin", "judge_model": "rubric-v2"})).await;
    assert_eq!(changed["judge_model"], "rubric-v2");
    let skill = app.skill(&ada, json!({"raw_source": GOOD})).await;
    let verdict = app.wait_for_verdicts(&ada, &skill, 1).await.remove(0);
    assert_eq!(
        (&verdict["passed"], &verdict["judge_model"]),
        (&json!(true), &json!("rubric-v1")),
        "{verdict}"
    );
});
