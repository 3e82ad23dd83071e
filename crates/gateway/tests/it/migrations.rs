//! The database schema: migrated at start, rejected when newer, and safe when several nodes start at once.

use std::sync::Arc;

use gateway::app::App;
use gateway::clock::Clock;
use gateway::config::Config;
use gateway_core::time::Timestamp;
use gateway_store::testing::{FutureMigration, apply_future_migration, schema_version};
use gateway_store::{Db, Migrated, Part};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use crate::support::log_rows::row;
use crate::support::{Backend, TestApp, command, fresh_config, fresh_settings, run};

/// A service is started on databases of some of the versions only, because it takes longer than the migrations.
const STARTED_EVERY: i64 = 8;

async fn open(config: &Config) -> Db {
    Db::open(config.database_url.expose_secret()).await.unwrap()
}

async fn migrate_to(db: &Db, version: i64) -> Migrated {
    db.migrate_to(Part::State, version, Timestamp(1)).await.unwrap()
}

async fn fresh(backend: Backend) -> (Config, Arc<TempDir>) {
    let data = Arc::new(tempfile::tempdir().unwrap());
    (fresh_config(backend, &data, &[]).await, data)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_any_older_version_is_brought_up_to_date() {
    for backend in Backend::BOTH {
        for version in 0..Part::State.version() {
            let (config, data) = fresh(backend).await;
            let db = open(&config).await;
            assert_eq!(migrate_to(&db, version).await, Migrated { from: 0, to: version });
            assert_eq!(schema_version(&db).await.unwrap(), version);
            let newest = Part::State.version();
            if version % STARTED_EVERY != 0 {
                assert_eq!(migrate_to(&db, newest).await, Migrated { from: version, to: newest });
            }
            db.close().await;
            if version % STARTED_EVERY == 0 {
                let app = TestApp::start(config, data).await;
                assert_eq!(schema_version(&app.app.services.db).await.unwrap(), newest);
                app.signup("acme").await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_any_older_version_is_brought_up_to_date() {
    for backend in Backend::BOTH {
        for version in 0..Part::Logs.version() {
            let (config, data) = fresh(backend).await;
            let db = open(&config).await;
            let logs = db.open_logs().await.unwrap();
            let migrated = logs.migrate_to(Part::Logs, version, Timestamp(1)).await.unwrap();
            assert_eq!(migrated, Migrated { from: 0, to: version });
            logs.close().await;
            db.close().await;
            let app = TestApp::start(config, data).await;
            let ada = app.signup("acme").await;
            assert_eq!(app.write(&[row(&ada, app.app.services.clock.now())]).await, 1);
            let logs = app.get("/api/v1/logs").key(&ada.api_key).send().await.expect(200);
            assert_eq!(logs["logs"].as_array().unwrap().len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_migration_changes_nothing_and_keeps_the_data() {
    for backend in Backend::BOTH {
        let (config, data) = fresh(backend).await;
        let app = TestApp::start(config, data).await;
        let ada = app.signup("acme").await;
        let same = Migrated { from: Part::State.version(), to: Part::State.version() };
        assert_eq!(migrate_to(&app.app.services.db, Part::State.version()).await, same);
        assert_eq!(migrate_to(&app.app.services.db, 0).await, same, "a schema never goes back");
        app.get("/api/v1/keys").key(&ada.api_key).send().await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_database_is_refused_and_left_as_it_is() {
    for backend in Backend::BOTH {
        let (config, data) = fresh(backend).await;
        let (config, data) = TestApp::start(config, data).await.stop().await;
        let db = open(&config).await;
        let newer = apply_future_migration(&db, FutureMigration::Breaking).await.unwrap();
        let error = App::start(config.clone(), Clock::default()).await.err().unwrap().to_string();
        let known = Part::State.version().to_string();
        assert!(error.contains(&newer.to_string()) && error.contains(&known), "{error}");
        assert!(error.contains("newer version of the gateway"), "{error}");

        for arguments in [&["serve"][..], &["migrate"], &["admin", "set-plan", "acme", "pro"]] {
            let mut command = command(data.path(), arguments);
            command.env("GATEWAY_DATA_DIR", data.path());
            command.env("GATEWAY_DATABASE_URL", config.database_url.expose_secret());
            command.env("GATEWAY_TOKEN_SECRET", config.token_secret.expose_secret());
            command.env("GATEWAY_MASTER_KEY", config.master_key.expose_secret());
            let done = run(&mut command);
            assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
            assert!(done.stderr.contains("newer version of the gateway"), "{arguments:?}: {done:?}");
        }
        assert_eq!(schema_version(&db).await.unwrap(), newer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_database_that_was_only_added_to_is_served_and_left_as_it_is() {
    for backend in Backend::BOTH {
        let (config, data) = fresh(backend).await;
        let app = TestApp::start(config, data).await;
        let ada = app.signup("acme").await;
        let (config, data) = app.stop().await;
        let db = open(&config).await;
        let newer = apply_future_migration(&db, FutureMigration::Additive).await.unwrap();
        let app = TestApp::start(config, data).await;
        app.get("/api/v1/keys").key(&ada.api_key).send().await.expect(200);
        let bob = app.signup("other").await;
        assert_eq!(app.write(&[row(&bob, app.app.services.clock.now())]).await, 1);
        assert_eq!(schema_version(&db).await.unwrap(), newer);
        db.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_migration_is_refused() {
    for backend in Backend::BOTH {
        let (config, data) = fresh(backend).await;
        let (config, _data) = TestApp::start(config, data).await.stop().await;
        let db = open(&config).await;
        let edit =
            "UPDATE schema_checksums SET checksum = 'other' WHERE part = 'schema_versions' AND version = 3";
        assert_eq!(db.exec(edit, Vec::new()).await.unwrap(), 1);
        let error = App::start(config, Clock::default()).await.err().unwrap().to_string();
        assert!(error.contains("migration 3 (prompts) was edited"), "{error}");
        db.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_from_before_checksums_opens_and_gets_them() {
    for backend in Backend::BOTH {
        let (config, data) = fresh(backend).await;
        let app = TestApp::start(config, data).await;
        let ada = app.signup("acme").await;
        let (config, data) = app.stop().await;
        let db = open(&config).await;
        let recorded = || async {
            let sql = "SELECT version FROM schema_checksums WHERE part = 'schema_versions'";
            db.all(sql, Vec::new()).await.unwrap().len()
        };
        let all = usize::try_from(Part::State.version()).unwrap();
        assert_eq!(recorded().await, all);
        db.exec("DROP TABLE schema_checksums", Vec::new()).await.unwrap();
        let app = TestApp::start(config, data).await;
        app.get("/api/v1/keys").key(&ada.api_key).send().await.expect(200);
        assert_eq!(recorded().await, all);
        db.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_nodes_start_at_once_on_one_empty_database() {
    for backend in Backend::BOTH {
        for _ in 0..3 {
            let (config, _data) = fresh(backend).await;
            // Nodes share the database, but not the data directory with the spool.
            let start = || {
                let own = Arc::new(tempfile::tempdir().unwrap());
                let mut config = config.clone();
                config.data_dir = own.path().to_owned();
                TestApp::start(config, own)
            };
            let (one, two, three) = tokio::join!(start(), start(), start());
            let ada = one.signup("acme").await;
            for node in [&two, &three] {
                node.get("/api/v1/keys").key(&ada.api_key).send().await.expect(200);
                assert_eq!(schema_version(&node.app.services.db).await.unwrap(), Part::State.version());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_start_at_once_on_one_empty_database() {
    for backend in Backend::BOTH {
        let data = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &data).await;
        let start = || {
            let mut command = command(data.path(), &["migrate"]);
            command.envs(settings.iter().cloned());
            std::thread::spawn(move || run(&mut command))
        };
        let started = [start(), start(), start(), start()];
        for done in started.map(|process| process.join().unwrap()) {
            assert_eq!(done.code, Some(0), "{done:?}");
        }
    }
}
