//! A gateway as `gateway serve` starts it, on a free port with an empty database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway::app::App;
use gateway::clock::Clock;
use gateway::config::{Config, RawSettings};
use gateway::server::{self, Server};
use gateway::services::StartError;
use gateway_store::StoreError;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{TestRequest, TestResponse};
use super::databases::{empty_postgres, migrated_postgres, migrated_sqlite};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    pub const BOTH: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];
}

pub struct TestApp {
    pub app: Arc<App>,
    pub address: SocketAddr,
    pub data: Arc<TempDir>,
    server: Option<tokio::task::JoinHandle<()>>,
}

/// A user and the organization created at signup.
#[derive(Clone, Debug)]
pub struct Account {
    pub email: String,
    pub user_id: String,
    pub org_id: String,
    pub slug: String,
    pub token: String,
    pub api_key: String,
}

pub const PASSWORD: &str = "correct horse battery";
pub const TOKEN_SECRET: &str = "a token secret for tests, 32 bytes or more";
pub const MASTER_KEY: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

impl TestApp {
    /// Settings are environment variables. The limit on login attempts is effectively off unless a setting overrides
    /// it.
    pub async fn start_with(backend: Backend, settings: &[(&str, &str)]) -> Self {
        let data = Arc::new(tempfile::tempdir().unwrap());
        Self::start(migrated_config(backend, &data, settings).await, data).await
    }

    pub async fn start(config: Config, data: Arc<TempDir>) -> Self {
        Self::start_at(config, data, Clock::default()).await
    }

    pub async fn start_at(config: Config, data: Arc<TempDir>, clock: Clock) -> Self {
        let listener = server::bind(config.listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = start_app(config, clock).await;
        let server = Server::start(Arc::clone(&app)).unwrap();
        let server = tokio::spawn(server.run(listener));
        Self { app, address, data, server: Some(server) }
    }

    /// Stops the gateway as SIGTERM does. Returns the configuration and data directory to restart with.
    pub async fn stop(mut self) -> (Config, Arc<TempDir>) {
        self.app.services.tasks.begin_stop();
        if let Some(server) = self.server.take() {
            server.await.unwrap();
        }
        self.app.finish_stop(Duration::from_secs(5)).await;
        let config = self.app.services.config.clone();
        (config, Arc::clone(&self.data))
    }

    pub fn call(&self, method: Method, path: &str) -> TestRequest {
        TestRequest::new(self.address, method, path)
    }

    pub fn get(&self, path: &str) -> TestRequest {
        self.call(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: Value) -> TestRequest {
        self.call(Method::POST, path).json(body)
    }

    pub fn put(&self, path: &str, body: Value) -> TestRequest {
        self.call(Method::PUT, path).json(body)
    }

    pub fn delete(&self, path: &str) -> TestRequest {
        self.call(Method::DELETE, path)
    }

    /// Signs up a user with an organization named `slug`.
    pub async fn signup(&self, slug: &str) -> Account {
        let email = format!("{slug}@example.com");
        let body = json!({"email": email, "password": PASSWORD, "org_slug": slug});
        let answer = self.post("/api/v1/signup", body).send().await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Account {
            email,
            user_id: text(&answer["user"]["id"]),
            org_id: text(&answer["org"]["id"]),
            slug: slug.to_owned(),
            token: text(&answer["token"]),
            api_key: text(&answer["api_key"]),
        }
    }

    /// Invites a new user to the owner's organization with the given role. Returns the new account.
    pub async fn join(&self, owner: &Account, role: &str) -> Account {
        let email = format!("{role}.{}@example.com", uuid::Uuid::new_v4().simple());
        let path = format!("/api/v1/orgs/{}/members", owner.org_id);
        let invite =
            self.post(&path, json!({"email": email, "role": role})).bearer(&owner.token).send().await;
        let invite = invite.expect(201);
        let body = json!({"email": email, "password": PASSWORD, "invite_token": invite["invite_token"]});
        let answer = self.post("/api/v1/signup", body).send().await.expect(201);
        Account {
            email,
            user_id: answer["user"]["id"].as_str().unwrap().to_owned(),
            org_id: owner.org_id.clone(),
            slug: owner.slug.clone(),
            token: answer["token"].as_str().unwrap().to_owned(),
            api_key: String::new(),
        }
    }

    /// Invites an existing account to the owner's organization; the account accepts by login. Returns the login.
    pub async fn accept(&self, owner: &Account, person: &Account, role: &str) -> Value {
        let path = format!("/api/v1/orgs/{}/members", owner.org_id);
        let body = json!({"email": person.email, "role": role});
        let invite = self.post(&path, body).bearer(&owner.token).send().await.expect(201);
        let login =
            json!({"email": person.email, "password": PASSWORD, "invite_token": invite["invite_token"]});
        self.post("/api/v1/login", login).send().await.expect(200)
    }

    /// Returns the organization's events as type and data, oldest first.
    pub async fn events(&self, org_id: &str) -> Vec<(String, Value)> {
        let stored =
            gateway_store::events::list(&self.app.services.db, org_id.parse().unwrap()).await.unwrap();
        stored.into_iter().map(|event| (event.kind, event.data)).collect()
    }

    pub async fn login(&self, email: &str, password: &str) -> TestResponse {
        self.post("/api/v1/login", json!({"email": email, "password": password})).send().await
    }
}

/// A busy machine may not schedule the low-priority threads in time, and they open a database. A stopped app in this
/// process releases its data directory with its last task.
async fn start_app(config: Config, clock: Clock) -> Arc<App> {
    for _ in 0..60 {
        match App::start(config.clone(), clock.clone()).await {
            Err(StartError::Store(StoreError::Open(reason))) if reason.contains("timed out") => {}
            Err(StartError::DataDir { .. }) => tokio::time::sleep(Duration::from_millis(500)).await,
            started => return started.unwrap(),
        }
    }
    panic!("the low-priority threads did not run for half a minute");
}

impl Drop for TestApp {
    fn drop(&mut self) {
        // Background tasks outlive the test's runtime and would keep the app and its connections alive.
        self.app.services.tasks.set_drained();
        // Not awaited: the remaining work is dropped with the test's runtime.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let app = Arc::clone(&self.app);
            runtime.spawn(async move { app.finish_stop(Duration::from_secs(5)).await });
        }
    }
}

/// Returns environment variables that select the data directory and an empty database.
pub async fn fresh_settings(backend: Backend, data: &TempDir) -> Vec<(String, String)> {
    let mut settings = settings_of(data);
    if backend == Backend::Postgres {
        settings.push(("GATEWAY_DATABASE_URL".to_owned(), empty_postgres().await));
    }
    settings
}

/// Returns the validated configuration with the given settings added.
pub async fn fresh_config(backend: Backend, data: &TempDir, settings: &[(&str, &str)]) -> Config {
    config_of(fresh_settings(backend, data).await, settings)
}

/// As `fresh_config`, with a database that has its schema already.
pub async fn migrated_config(backend: Backend, data: &TempDir, settings: &[(&str, &str)]) -> Config {
    let mut environment = settings_of(data);
    match backend {
        Backend::Sqlite => migrated_sqlite(data.path()).await,
        Backend::Postgres => {
            environment.push(("GATEWAY_DATABASE_URL".to_owned(), migrated_postgres().await));
        }
    }
    config_of(environment, settings)
}

fn settings_of(data: &TempDir) -> Vec<(String, String)> {
    let data = data.path().display().to_string();
    let settings = [
        ("GATEWAY_LISTEN", "127.0.0.1:0"),
        ("GATEWAY_DATA_DIR", &data),
        ("GATEWAY_AUTH_ATTEMPTS", "100000"),
        ("GATEWAY_TOKEN_SECRET", TOKEN_SECRET),
        ("GATEWAY_MASTER_KEY", MASTER_KEY),
        // Upstreams of tests are on loopback.
        ("GATEWAY_EGRESS_PRIVATE", "allow"),
        // Keeps the retention job from deleting rows with old timestamps.
        ("GATEWAY_LOG_RETENTION_DAYS", "36500"),
    ];
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn config_of(mut environment: Vec<(String, String)>, settings: &[(&str, &str)]) -> Config {
    environment.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Config::validate(&RawSettings::load(None, environment).unwrap()).unwrap()
}
