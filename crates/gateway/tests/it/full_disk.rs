//! The disk is full for a while: requests are answered, and every row is stored when there is room again, without a
//! restart and without another request.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gateway_store::Db;
use serde_json::{Value, json};

use crate::support::{
    Backend, GatewayProcess, PASSWORD, all_log_ids, fresh_settings, limited_command, log_id,
};
use crate::upstream::{Reply, Upstream};

const LIMIT: Duration = Duration::from_secs(20);

struct Node {
    process: GatewayProcess,
    token: String,
    key: String,
    /// PostgreSQL only.
    database: Option<Db>,
    _upstream: Upstream,
    _data: tempfile::TempDir,
}

impl Node {
    async fn start(backend: Backend) -> Self {
        let upstream = Upstream::start().await;
        upstream
            .set_default_reply(Reply::json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#));
        let data = tempfile::tempdir().unwrap();
        let mut settings = fresh_settings(backend, &data).await;
        settings.push(("GATEWAY_RATE_LIMIT_FREE".to_owned(), "0".to_owned()));
        settings.push(("GATEWAY_PROVIDER_OPENAI_BASE_URL".to_owned(), upstream.url()));
        let url =
            settings.iter().find(|(name, _)| name == "GATEWAY_DATABASE_URL").map(|(_, url)| url.clone());
        let process = GatewayProcess::start(limited_command(data.path()).envs(settings));
        let database = match url {
            Some(url) => Some(Db::open(&url).await.unwrap()),
            None => None,
        };
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
        let account = process.post("/api/v1/signup", &body).send().await.expect(201);
        let text = |name: &str| account[name].as_str().unwrap().to_owned();
        let (token, key) = (text("token"), text("api_key"));
        Self { process, token, key, database, _upstream: upstream, _data: data }
    }

    async fn call(&self) -> i64 {
        let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]});
        let call = self.process.post("/v1/chat/completions", &body).key(&self.key);
        let answer = call.header("x-gateway-provider", "openai").send().await;
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
        log_id(&answer)
    }

    async fn create_key(&self) -> u16 {
        let call = self.process.post("/api/v1/keys", &json!({"name": "another", "scopes": ["*"]}));
        call.bearer(&self.token).send().await.status.as_u16()
    }

    async fn health(&self) -> (u16, Value) {
        let answer = self.process.get("/healthz").send().await;
        (answer.status.as_u16(), serde_json::from_str(&answer.text()).unwrap())
    }

    /// Fills the disk of the node, and on PostgreSQL that of the server.
    async fn fill(&self) {
        self.process.fill_disk();
        if let Some(db) = &self.database {
            let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION \
                          'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$";
            db.exec(refuse, Vec::new()).await.unwrap();
            let trigger = "CREATE TRIGGER full_disk BEFORE INSERT ON log_rows EXECUTE FUNCTION refuse()";
            db.exec(trigger, Vec::new()).await.unwrap();
        }
    }

    async fn free(&self) {
        self.process.free_disk();
        if let Some(db) = &self.database {
            db.exec("DROP TRIGGER full_disk ON log_rows", Vec::new()).await.unwrap();
            db.exec("DROP FUNCTION refuse()", Vec::new()).await.unwrap();
        }
    }

    /// Waits until the store contains exactly these rows, each counted once.
    async fn wait_for_exact_rows(&self, ids: &BTreeSet<i64>) {
        let began = Instant::now();
        loop {
            let stored = all_log_ids(self.process.address, &self.key).await;
            let found: BTreeSet<i64> = stored.iter().copied().collect();
            assert_eq!(found.len(), stored.len(), "a row is listed twice");
            if found == *ids {
                break;
            }
            assert!(began.elapsed() < LIMIT, "{} of {} rows are stored", found.len(), ids.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let usage = self.process.get("/api/v1/usage/summary").key(&self.key).send().await.expect(200);
        assert_eq!((&usage["requests"], &usage["total_tokens"]), (&json!(ids.len()), &json!(ids.len() * 5)));
    }
}

async fn recovers(backend: Backend) {
    let node = Node::start(backend).await;
    let mut ids = BTreeSet::from([node.call().await]);
    node.wait_for_exact_rows(&ids).await;

    for _ in 0..2 {
        node.fill().await;
        // Long enough for the writer to fail more than once.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(800) {
            ids.insert(node.call().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The result of a check is reused for a second.
        let began = Instant::now();
        while node.health().await.0 == 200 {
            assert!(began.elapsed() < LIMIT, "a full disk is not reported");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (_, health) = node.health().await;
        assert_eq!(health["components"]["log_spool"]["status"], "down");
        if backend == Backend::Sqlite {
            assert_eq!(node.create_key().await, 503);
        }

        node.free().await;
        let began = Instant::now();
        while node.health().await.0 != 200 {
            assert!(began.elapsed() < LIMIT, "the node is still degraded: {:?}", node.health().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        node.wait_for_exact_rows(&ids).await;
        assert_eq!(node.create_key().await, 201);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_request_has_its_row_after_the_disk_was_full_on_sqlite() {
    recovers(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_request_has_its_row_after_the_disk_was_full_on_postgres() {
    recovers(Backend::Postgres).await;
}
