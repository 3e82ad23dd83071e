//! Prompts, skills and named models with very many versions: gone at once when they are deleted, and then deleted in parts.

use std::time::{Duration, Instant};

use gateway::jobs::delete_versions::DeleteVersions;
use gateway_store::Db;
use gateway_store::db::Dialect;
use gateway_store::partial_deletion::{RowsToDelete, delete_some, is_large};
use gateway_store::testing::{count, execute};
use gateway_store::versioned::{self, Versioned};
use serde_json::{Value, json};

use crate::on_both;
use crate::prompts::{HELLO, create};
use crate::support::skills::{ENTERPRISE, fields};
use crate::support::{Account, Backend, TestApp, TestResponse};

const VERSIONS: i64 = 2_500;
/// The columns of a version besides its number, and where new versions have them from.
const PROMPT: (&str, &str) = ("content, created_by, created_at", "content, created_by, created_at");
const MODEL: (&str, &str) = ("definition, created_by, created_at", "definition, created_by, created_at");
const SKILL: (&str, &str) = (
    "name, headline, description, body, raw_source, content_hash, judged, created_at, created_by",
    "name, headline, description, body, raw_source, content_hash, 1, created_at, created_by",
);

async fn read(app: &TestApp, by: &Account, path: &str) -> TestResponse {
    app.get(path).bearer(&by.token).send().await
}

/// Copies the first version until there are so many.
async fn add_versions(db: &Db, what: &str, id: &str, (columns, values): (&str, &str), versions: i64) {
    let copies = format!(
        "INSERT INTO {what}_versions ({what}_id, version, {columns}) \
         WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {versions}) \
         SELECT '{id}', n.i, {values} FROM n JOIN {what}_versions v ON v.{what}_id = '{id}' AND v.version = 1"
    );
    execute(db, &copies).await.unwrap();
    execute(db, &format!("UPDATE {what}s SET version = {versions} WHERE id = '{id}'")).await.unwrap();
}

async fn wait_until_gone(db: &Db, rows: &[String]) {
    let began = Instant::now();
    for rows in rows {
        while count(db, rows).await.unwrap() > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "left: {rows}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn id_of(made: &Value) -> String {
    made["id"].as_str().unwrap().to_owned()
}

on_both!(a_prompt_with_very_many_versions_is_deleted, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let id = id_of(&create(&app, &ada, "hello", "one").await.expect(201));
    add_versions(db, "prompt", &id, PROMPT, VERSIONS).await;
    let label = app.put(&format!("{HELLO}/labels/production"), json!({"version": 7})).bearer(&ada.token);
    label.send().await.expect(200);
    assert_eq!(read(&app, &ada, HELLO).await.expect(200)["version"], VERSIONS);

    app.delete(HELLO).bearer(&ada.token).send().await.expect(200);
    for below in ["", "/versions", "/versions/7", "?version=7", "?version=production", "/labels"] {
        read(&app, &ada, &format!("{HELLO}{below}")).await.expect_error(404, "not_found");
    }
    assert_eq!(read(&app, &ada, "/api/v1/prompts").await.expect(200)["prompts"], json!([]));
    app.delete(HELLO).bearer(&ada.token).send().await.expect_error(404, "not_found");
    let again = create(&app, &ada, "hello", "again").await.expect(201);
    assert_eq!(again["version"], 1);
    let rows = ["prompt_versions WHERE prompt_", "prompt_labels WHERE prompt_", "prompts WHERE "];
    wait_until_gone(db, &rows.map(|rows| format!("{rows}id = '{id}'"))).await;
    wait_until_gone(db, &["jobs WHERE name = 'delete_versions'".to_owned()]).await;
    assert_eq!(read(&app, &ada, HELLO).await.expect(200), again);
});

on_both!(a_named_model_with_very_many_versions_is_deleted, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let models = format!("/api/v1/orgs/{}/models", ada.org_id);
    let body = json!({"name": "smart", "targets": [{"provider": "openai", "model": "gpt-4o"}]});
    let id = id_of(&app.post(&models, body.clone()).bearer(&ada.token).send().await.expect(201));
    add_versions(db, "model", &id, MODEL, VERSIONS).await;

    app.delete(&format!("{models}/smart")).bearer(&ada.token).send().await.expect(200);
    for name in ["smart", id.as_str()] {
        for below in ["", "?version=7", "/versions"] {
            read(&app, &ada, &format!("{models}/{name}{below}")).await.expect_error(404, "not_found");
        }
        app.delete(&format!("{models}/{name}"))
            .bearer(&ada.token)
            .send()
            .await
            .expect_error(404, "not_found");
    }
    assert_eq!(read(&app, &ada, &models).await.expect(200)["models"], json!([]));
    app.post(&models, body).bearer(&ada.token).send().await.expect(201);
    let rows = ["model_versions WHERE model_", "models WHERE "];
    wait_until_gone(db, &rows.map(|rows| format!("{rows}id = '{id}'"))).await;
    assert_eq!(read(&app, &ada, &models).await.expect(200)["models"][0]["version"], 1);
});

on_both!(a_skill_with_very_many_versions_is_deleted, ENTERPRISE, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let made = app.published(&ada, fields("sums")).await;
    let id = id_of(&made);
    let path = format!("/api/v1/skills/{id}");
    add_versions(db, "skill", &id, SKILL, VERSIONS).await;
    assert_eq!(read(&app, &ada, &path).await.expect(200)["version"], VERSIONS);

    app.delete(&path).bearer(&ada.token).send().await.expect(200);
    let on_shelf = format!("/api/v1/skills/public/{id}");
    for path in [&path, &format!("{path}/versions"), &on_shelf] {
        assert_eq!(read(&app, &ada, path).await.status, 404, "{path}");
    }
    assert_eq!(app.delete(&path).bearer(&ada.token).send().await.status, 404);
    assert_eq!(read(&app, &ada, "/api/v1/skills").await.expect(200)["skills"], json!([]));
    app.skill(&ada, fields("sums")).await;
    let rows = ["skill_versions WHERE skill_", "evaluations WHERE skill_", "skills WHERE "];
    wait_until_gone(db, &rows.map(|rows| format!("{rows}id = '{id}'"))).await;
});

on_both!(few_versions_are_deleted_together_and_many_by_their_bytes, |app| async move {
    let (ada, eve, db) = (app.signup("acme").await, app.signup("evil").await, &app.app.services.db);
    let (org, other) = (ada.org_id.parse().unwrap(), eve.org_id.parse().unwrap());
    let id = id_of(&create(&app, &ada, "hello", "one").await.expect(201));
    let what = RowsToDelete::Versioned(Versioned::Prompt(id.parse().unwrap()));
    assert!(!is_large(db, org, what).await.unwrap());
    // 100 versions of 100 KiB.
    let text = "x".repeat(100 << 10);
    execute(db, &format!("UPDATE prompt_versions SET content = '{text}' WHERE prompt_id = '{id}'"))
        .await
        .unwrap();
    add_versions(db, "prompt", &id, PROMPT, 100).await;
    let versions = format!("prompt_versions WHERE prompt_id = '{id}'");
    assert!(is_large(db, org, what).await.unwrap());
    assert!(!delete_some(db, other, what).await.unwrap(), "not of another organization");
    for left in [60, 20] {
        assert!(delete_some(db, org, what).await.unwrap());
        assert_eq!(count(db, &versions).await.unwrap(), left);
    }
    assert!(!delete_some(db, org, what).await.unwrap(), "the rest goes together with the prompt");
});

on_both!(an_organization_whose_deletion_was_interrupted_keeps_what_it_uses, ENTERPRISE, |app| async move {
    let (ada, db) = (app.signup("acme").await, &app.app.services.db);
    let org = ada.org_id.parse().unwrap();
    let prompt = id_of(&create(&app, &ada, "hello", "one").await.expect(201));
    add_versions(db, "prompt", &prompt, PROMPT, VERSIONS).await;
    let label = app.put(&format!("{HELLO}/labels/production"), json!({"version": 7})).bearer(&ada.token);
    label.send().await.expect(200);
    let (hidden, live) = (app.skill(&ada, fields("old")).await, app.skill(&ada, fields("new")).await);
    let (hidden, live) = (id_of(&hidden), id_of(&live));
    let byte = if db.dialect() == Dialect::Sqlite { "x'00'" } else { "CAST('x' AS BYTEA)" };
    for skill in [&hidden, &live] {
        let blobs = format!(
            "INSERT INTO skill_blobs (skill_id, sha256, size, bytes) \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
             SELECT '{skill}', CAST(n.i AS TEXT), 1, {byte} FROM n"
        );
        execute(db, &blobs).await.unwrap();
    }
    let mut tx = db.begin().await.unwrap();
    assert!(versioned::hide(&mut tx, org, Versioned::Skill(hidden.parse().unwrap())).await.unwrap());
    tx.commit().await.unwrap();
    let live_blobs = format!("skill_blobs WHERE skill_id = '{live}'");
    while count(db, &live_blobs).await.unwrap() == 1_500 {
        assert!(delete_some(db, org, RowsToDelete::Org).await.unwrap());
    }
    assert!(count(db, "prompt_versions").await.unwrap() <= 1_002, "files in use go last");
    while delete_some(db, org, RowsToDelete::Org).await.unwrap() {}
    assert!(count(db, "skill_blobs").await.unwrap() <= 1_000);
    for version in ["", "?version=production", "?version=7"] {
        read(&app, &ada, &format!("{HELLO}{version}")).await.expect(200);
    }
    read(&app, &ada, &format!("/api/v1/skills/{live}")).await.expect(200);
});

async fn the_deletion_goes_on(backend: Backend) {
    let app = TestApp::start_with(backend, &[]).await;
    let ada = app.signup("acme").await;
    let id = id_of(&create(&app, &ada, "hello", "one").await.expect(201));
    let services = &app.app.services;
    add_versions(&services.db, "prompt", &id, PROMPT, VERSIONS).await;
    let (org, what) = (ada.org_id.parse().unwrap(), Versioned::Prompt(id.parse().unwrap()));
    // The process ends before the job does.
    let mut tx = services.db.begin().await.unwrap();
    assert!(versioned::hide(&mut tx, org, what).await.unwrap());
    assert!(!versioned::hide(&mut tx, org, what).await.unwrap(), "it is hidden already");
    let _queued =
        gateway::jobs::enqueue(&app.app.jobs, &mut tx, org, &DeleteVersions { what }).await.unwrap();
    tx.commit().await.unwrap();
    let (config, data) = app.stop().await;

    let app = TestApp::start(config, data).await;
    let db = &app.app.services.db;
    wait_until_gone(db, &[format!("prompts WHERE id = '{id}'"), "prompt_versions".to_owned()]).await;
    assert_eq!(count(db, "prompts").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_goes_on_after_a_restart_on_sqlite() {
    the_deletion_goes_on(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_goes_on_after_a_restart_on_postgres() {
    the_deletion_goes_on(Backend::Postgres).await;
}
