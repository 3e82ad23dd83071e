//! The shelf across organizations, and adopting skills from it.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::assert_uuid_v7;
use crate::support::skills::{ENTERPRISE, fields, path, shelf_path};
use crate::support::{Account, TestApp};

const GOOD: &str = include_str!("../../../gateway-core/fixtures/skills/good/postgres-slow-query.md");

async fn names(app: &TestApp, by: &Account, query: &str) -> Vec<String> {
    let list = app.get(&format!("/api/v1/skills/public?{query}")).bearer(&by.token).send().await.expect(200);
    list["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| skill["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn adopt(app: &TestApp, by: &Account, skill: &Value) -> Value {
    app.post(&format!("{}/adopt", shelf_path(skill)), json!({})).bearer(&by.token).send().await.expect(201)
}

on_both!(the_shelf_shows_what_all_organizations_published, ENTERPRISE, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    let mut made = Vec::new();
    for (by, name) in [(&ada, "alpha"), (&bob, "beta"), (&ada, "gamma")] {
        app.app.services.clock.advance(10);
        made.push(app.published(by, fields(name)).await);
    }
    app.skill(&ada, fields("private-one")).await;
    let viewer = app.join(&bob, "viewer").await;
    assert_eq!(names(&app, &viewer, "").await, ["gamma", "beta", "alpha"]);
    assert_eq!(names(&app, &viewer, "sort=recent&limit=2").await, ["gamma", "beta"]);
    assert_eq!(names(&app, &viewer, "name_like=ET").await, ["beta"]);
    assert_eq!(names(&app, &viewer, "description_like=does%20ALPHA").await, ["alpha"]);
    assert_eq!(names(&app, &viewer, "description_like=nothing").await, [""; 0]);
    let one = app.get(&shelf_path(&made[0])).bearer(&viewer.token).send().await.expect(200);
    assert_eq!((&one["org_id"], &one["publisher"]), (&json!(ada.org_id), &json!("acme")));
    assert_eq!(
        (&one["visibility"], &one["version"], &one["adoptions"]),
        (&json!("public"), &json!(1), &json!(0))
    );
    let file = app.get(&format!("{}/SKILL.md", shelf_path(&made[0]))).bearer(&viewer.token).send().await;
    assert!(file.text().starts_with("---\nname: alpha\n"), "{}", file.text());
    assert!(file.header("etag").is_some());
    let own = app.get(&path(&made[0])).bearer(&viewer.token).send().await;
    own.expect_error(404, "not_found");
    for bad in ["sort=luck", "limit=0"] {
        app.get(&format!("/api/v1/skills/public?{bad}"))
            .bearer(&ada.token)
            .send()
            .await
            .expect_error(400, "bad_request");
    }
});

on_both!(the_shelf_is_sorted_and_paged, ENTERPRISE, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    let mut made = Vec::new();
    for (index, name) in ["one", "two", "three"].into_iter().enumerate() {
        app.app.services.clock.advance(10);
        let steps = "1. Run `make test` and check that it passes.\n".repeat(index * 2);
        made.push(
            app.published(
                &ada,
                json!({"name": name, "description": "Use when tests are to be run.", "body": steps}),
            )
            .await,
        );
        app.wait_for_verdicts(&ada, &made[index], 1).await;
    }
    for (index, times) in [(0, 2), (2, 1)] {
        for _ in 0..times {
            adopt(&app, &bob, &made[index]).await;
        }
    }
    assert_eq!(names(&app, &bob, "sort=adoptions").await, ["one", "three", "two"]);
    let scored = names(&app, &bob, "sort=score").await;
    let mut scores = Vec::new();
    for name in &scored {
        let skill = made.iter().find(|skill| skill["name"] == **name).unwrap();
        scores.push(app.wait_for_verdicts(&ada, skill, 1).await[0]["overall_score"].as_f64().unwrap());
    }
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scored:?} {scores:?}");
    for sort in ["recent", "adoptions", "score"] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = app
                .get(&format!("/api/v1/skills/public?sort={sort}&limit=1{cursor}"))
                .bearer(&bob.token)
                .send()
                .await
                .expect(200);
            seen.extend(
                page["skills"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|skill| skill["name"].as_str().unwrap().to_owned()),
            );
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen, names(&app, &bob, &format!("sort={sort}")).await, "{sort}");
    }
});

on_both!(
    a_copy_passes_like_its_origin_and_is_published_only_when_it_was_changed,
    ENTERPRISE,
    |app| async move {
        let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
        let skill = app.skill(&ada, json!({"raw_source": GOOD})).await;
        let judged = app.wait_for_verdicts(&ada, &skill, 1).await.remove(0);
        assert_eq!(judged["passed"], true, "{judged}");
        app.publish(&ada, &skill).await.expect(200);
        let copy = adopt(&app, &bob, &skill).await["skill"].clone();
        let copied = app.wait_for_verdicts(&bob, &copy, 1).await.remove(0);
        assert_eq!(
            (&copied["passed"], &copied["overall_score"]),
            (&judged["passed"], &judged["overall_score"])
        );
        let refused = app.publish(&bob, &copy).await.expect_error(409, "not_publishable");
        assert!(refused["error"].as_str().unwrap().contains("adopted"), "{refused}");
        // A text that was pasted instead of adopted is compared with the origin.
        let stolen = app.skill(&bob, json!({"raw_source": GOOD.replacen("name: ", "name: my-", 1)})).await;
        let stolen = app.wait_for_verdicts(&bob, &stolen, 1).await.remove(0);
        assert_eq!(stolen["passed"], false, "{stolen}");
    }
);

on_both!(an_adopted_skill_is_a_private_copy_of_the_published_version, ENTERPRISE, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    let raw = "---\nname: helper\ndescription: Helps.\nlicense: MIT\n---\n\nFirst text";
    let skill = app.published(&ada, json!({"raw_source": raw})).await;
    app.put(&path(&skill), json!({"body": "Not published"})).bearer(&ada.token).send().await.expect(200);
    let answer = adopt(&app, &bob, &skill).await;
    let copy = &answer["skill"];
    assert_eq!((&answer["renamed"], &answer["name"]), (&json!(false), &json!("helper")));
    assert_uuid_v7(&copy["id"]);
    assert_ne!(copy["id"], skill["id"]);
    assert_eq!((&copy["org_id"], &copy["source_skill_id"]), (&json!(bob.org_id), &skill["id"]));
    assert_eq!(
        (&copy["version"], &copy["visibility"], &copy["raw_source"]),
        (&json!(1), &json!("private"), &json!(raw))
    );
    assert_eq!((&copy["source_version"], &copy["source_status"]), (&json!(1), &json!("current")));
    assert_eq!(app.get(&shelf_path(&skill)).bearer(&bob.token).send().await.expect(200)["adoptions"], 1);
    app.wait_for_verdicts(&bob, copy, 1).await;

    let again = adopt(&app, &bob, &skill).await;
    assert_eq!((&again["renamed"], &again["name"]), (&json!(true), &json!("helper-adopted-1")));
    let renamed = again["skill"]["raw_source"].as_str().unwrap();
    assert!(
        renamed.contains("helper-adopted-1")
            && renamed.contains("license: MIT")
            && renamed.ends_with("First text"),
        "{renamed}"
    );
    let own = adopt(&app, &ada, &skill).await;
    assert_eq!(own["name"], "helper-adopted-1", "the own organization has the name already");

    // The adopter sees when the original is updated or removed.
    let status =
        async || app.get(&path(copy)).bearer(&bob.token).send().await.expect(200)["source_status"].clone();
    app.verdict(&ada, &skill, true).await.expect(201);
    app.publish(&ada, &skill).await.expect(200);
    assert_eq!(status().await, "updated");
    app.delete(&path(&skill)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(status().await, "withdrawn");
    let kept = app.get(&path(copy)).bearer(&bob.token).send().await.expect(200);
    assert_eq!((&kept["raw_source"], &kept["source_skill_id"]), (&json!(raw), &skill["id"]));
});

on_both!(twenty_who_adopt_at_once_get_twenty_names, ENTERPRISE, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("bobs").await);
    let skill = app.published(&ada, fields("popular")).await;
    let answers = join_all((0..20).map(|_| adopt(&app, &bob, &skill))).await;
    let names: BTreeSet<_> =
        answers.iter().map(|answer| answer["name"].as_str().unwrap().to_owned()).collect();
    let mut expected: BTreeSet<_> = (1..20).map(|number| format!("popular-adopted-{number}")).collect();
    expected.insert("popular".into());
    assert_eq!(names, expected);
    for answer in &answers {
        let raw = answer["skill"]["raw_source"].as_str().unwrap();
        assert!(raw.starts_with(&format!("---\nname: {}\n", answer["name"].as_str().unwrap())), "{raw}");
    }
    assert_eq!(app.get(&shelf_path(&skill)).bearer(&bob.token).send().await.expect(200)["adoptions"], 20);
});

on_both!(after_a_hundred_names_adoption_gives_up, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let skill = app.published(&ada, fields("crowd")).await;
    for chunk in 0..10 {
        join_all((0..10).map(|_| adopt(&app, &ada, &skill))).await;
        assert!(chunk < 10);
    }
    let full = app.post(&format!("{}/adopt", shelf_path(&skill)), json!({})).bearer(&ada.token).send().await;
    full.expect_error(409, "duplicate_name");
    let shelf = app.get(&shelf_path(&skill)).bearer(&ada.token).send().await.expect(200);
    assert_eq!(shelf["adoptions"], 100, "what failed is not counted");
});
