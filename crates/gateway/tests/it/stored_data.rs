//! A data directory made by release 0.1.0 opens in this version with everything in it. The release was killed while log
//! rows were still in its spool. `fixtures/data-0.1.0` has that directory for SQLite, and a database dump for PostgreSQL.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use gateway::config::{Config, RawSettings};
use gateway_store::providers;
use gateway_store::testing::load_postgres_dump;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Backend, PASSWORD, TestApp, TestResponse, fresh_settings};
use crate::upstream::{Reply, Upstream};

/// Five rows were stored and five more were in the spool, besides one row of the playground.
const PROXIED_ROWS: usize = 10;
const ROWS: usize = PROXIED_ROWS + 1;

struct Upgraded {
    app: TestApp,
    /// Ids and keys that the old release returned.
    made: Value,
    token: String,
}

impl Upgraded {
    async fn open(backend: Backend) -> Self {
        let fixture = fixture(backend);
        let data = Arc::new(tempfile::tempdir().unwrap());
        let config = config(backend, &fixture, &data).await;
        let made = serde_json::from_slice(&std::fs::read(fixture.join("account.json")).unwrap()).unwrap();
        let app = TestApp::start(config, data).await;
        let login = app.login("acme@example.com", PASSWORD).await.expect(200);
        Self { app, made, token: login["token"].as_str().unwrap().to_owned() }
    }

    async fn get(&self, path: &str) -> Value {
        self.app.get(path).bearer(&self.token).send().await.expect(200)
    }

    async fn made(&self, area: &str, field: &str) -> Value {
        let id = &self.made[field];
        let id = id.as_str().map_or_else(|| id.to_string(), ToOwned::to_owned);
        self.get(&format!("/api/v1/{area}/{id}")).await
    }

    fn org_path(&self, area: &str) -> String {
        format!("/api/v1/orgs/{}/{area}", self.made["org_id"].as_str().unwrap())
    }

    async fn proxied(&self, key: &str, provider: &str) -> TestResponse {
        let body = json!({"model": "echo", "messages": [{"role": "user", "content": "hello"}]});
        let call = self.app.post("/v1/chat/completions", body).key(self.made[key].as_str().unwrap());
        call.header("x-gateway-provider", provider).send().await
    }

    /// Moves a provider in the database. The API would drop its secrets, because the origin changes.
    async fn move_provider(&self, name: &str, base_url: &str) {
        let org = self.made["org_id"].as_str().unwrap().parse().unwrap();
        let app = &self.app.app;
        let mut tx = app.services.db.begin().await.unwrap();
        let mut provider = providers::find_for_update(&mut tx, org, name).await.unwrap().unwrap();
        provider.base_url = Some(base_url.to_owned());
        providers::update(&mut tx, org, &provider).await.unwrap();
        tx.commit().await.unwrap();
        app.proxy.access.invalidate_org(org);
    }

    async fn rows(&self, query: &str, count: usize) -> Vec<Value> {
        let mut rows = Vec::new();
        for _ in 0..500 {
            let list = self.get(&format!("/api/v1/logs?limit=100{query}")).await;
            rows.clone_from(list["logs"].as_array().unwrap());
            if rows.len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rows
    }
}

fn fixture(backend: Backend) -> PathBuf {
    let name = if backend == Backend::Sqlite { "sqlite" } else { "postgres" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/data-0.1.0").join(name)
}

/// Copies the fixture into the data directory, or loads the dump into a fresh database.
async fn config(backend: Backend, fixture: &Path, data: &TempDir) -> Config {
    let settings = fresh_settings(backend, data).await;
    std::fs::create_dir(data.path().join("spool")).unwrap();
    for segment in std::fs::read_dir(fixture.join("spool")).unwrap() {
        let segment = segment.unwrap();
        std::fs::copy(segment.path(), data.path().join("spool").join(segment.file_name())).unwrap();
    }
    match backend {
        Backend::Sqlite => {
            for name in ["gateway.db", "gateway.logs.db"] {
                let packed = std::fs::read(fixture.join(format!("{name}.gz"))).unwrap();
                let mut bytes = Vec::new();
                GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
                std::fs::write(data.path().join(name), bytes).unwrap();
            }
        }
        Backend::Postgres => {
            let dump = std::fs::read_to_string(fixture.join("database.sql")).unwrap();
            let url = settings.iter().find(|(name, _)| name == "GATEWAY_DATABASE_URL");
            load_postgres_dump(&url.unwrap().1, dump).await.unwrap();
        }
    }
    Config::validate(&RawSettings::load(None, settings).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_keys_and_everything_that_was_created_is_still_there() {
    for backend in Backend::BOTH {
        let upgraded = Upgraded::open(backend).await;
        upgraded.proxied("api_key", "sandbox").await.expect(200);
        upgraded.proxied("scoped_key", "sandbox").await.expect(200);
        upgraded.proxied("scoped_key", "openai").await.expect_error(403, "scope_denied");
        let prompt = upgraded.get("/api/v1/prompts/support/reply").await;
        assert_eq!(
            (&prompt["version"], &prompt["content"]),
            (&json!(2), &json!("You are {{name}}, be brief."))
        );
        let old = upgraded.get("/api/v1/prompts/support/reply?version=1").await;
        assert_eq!(old["content"], "You are {{name}}.");
        assert_eq!(upgraded.made("datasets", "dataset_id").await["case_count"], 2);
        assert_eq!(upgraded.made("evals", "eval_id").await["evaluator"], "contains");
        assert_eq!(upgraded.made("skills", "skill_id").await["name"], "release-notes");
        assert_eq!(upgraded.made("webhooks", "webhook_id").await["url"], "http://127.0.0.1:9/hook");
        let export = upgraded.made("exports", "export_id").await;
        assert_eq!((&export["name"], &export["has_secret"]), (&json!("collector"), &json!(true)));
        let budgets = upgraded.get(&upgraded.org_path("budgets")).await;
        assert_eq!(budgets["budgets"][0]["id"], upgraded.made["budget_id"]);
        assert_eq!(upgraded.get(&upgraded.org_path("teams")).await["teams"][0]["name"], "support");
        let runs = upgraded.get("/api/v1/evals/runs").await;
        let run = &runs["runs"][0];
        assert_eq!(
            (&run["status"], &run["completed"], &run["passed"]),
            (&json!("completed"), &json!(2), &json!(1))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_credential_is_still_readable() {
    for backend in Backend::BOTH {
        let upgraded = Upgraded::open(backend).await;
        let upstream = Upstream::start().await;
        upstream.set_default_reply(Reply::json(200, "{}"));
        upgraded.move_provider("upstream", &upstream.url()).await;
        upgraded.proxied("api_key", "upstream").await.expect(200);
        assert_eq!(upstream.requests()[0].header("authorization"), Some("Bearer sk-upstream-secret"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_rows_are_there_including_those_that_were_in_the_spool() {
    for backend in Backend::BOTH {
        let upgraded = Upgraded::open(backend).await;
        let rows = upgraded.rows("", ROWS).await;
        assert_eq!(rows.len(), ROWS);
        assert_eq!(
            upgraded.rows("&q=invoices", PROXIED_ROWS).await.len(),
            PROXIED_ROWS,
            "the search index has them all"
        );
        let of_maria = upgraded.rows("&user=maria", PROXIED_ROWS).await;
        assert_eq!(of_maria.len(), PROXIED_ROWS);
        let usage =
            upgraded.get("/api/v1/usage/summary?from=2026-11-15T00:00:00Z&to=2026-11-16T00:00:00Z").await;
        assert_eq!(usage["requests"], ROWS);
        // The newest was in the spool, and the oldest was stored by the old release.
        for row in [&of_maria[0], &of_maria[PROXIED_ROWS - 1]] {
            let row = upgraded.get(&format!("/api/v1/logs/{}", row["id"])).await;
            assert!(row["request"].to_string().contains("about invoices"), "{row}");
        }
    }
}
