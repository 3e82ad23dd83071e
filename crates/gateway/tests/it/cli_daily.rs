//! The command line for installing and for daily work: `init`, `doctor`, `upgrade-check`, and keys, organizations, log rows
//! and usage of a running gateway.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gateway_core::time::Timestamp;
use gateway_store::{Db, Part};
use serde_json::{Value, json};

use crate::support::{Backend, GatewayProcess, PASSWORD, ProcessOutput, command, fresh_settings, run};
use crate::upstream::{Reply, Upstream};

fn gateway(data: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> ProcessOutput {
    run(command(data, arguments).envs(settings.iter().copied()))
}

fn json_of(done: &ProcessOutput) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// The verdict and the message of a check.
fn finding(done: &ProcessOutput, check: &str) -> (String, String) {
    let findings = json_of(done);
    let found = findings.as_array().unwrap().iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check} in {findings}"));
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("message"))
}

#[test]
fn init_writes_a_file_that_serve_can_use_and_does_not_replace_it() {
    let here = tempfile::tempdir().unwrap();
    let done = gateway(here.path(), &["init"], &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("gateway doctor --config gateway.toml"), "{done:?}");
    let file = here.path().join("gateway.toml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let shown = gateway(here.path(), &["config", "--config", "gateway.toml"], &[]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    std::fs::write(&file, "log_level = 'warn'\n").unwrap();
    let again = gateway(here.path(), &["init"], &[]);
    assert!(again.code == Some(1) && again.stderr.contains("--force"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "log_level = 'warn'\n");
    assert_eq!(gateway(here.path(), &["init", "gateway.toml", "--force"], &[]).code, Some(0));
}

#[test]
fn completions_and_the_manual_page_are_printed() {
    let here = tempfile::tempdir().unwrap();
    let bash = gateway(here.path(), &["completions", "bash"], &[]);
    assert!(bash.code == Some(0) && bash.stdout.contains("_gateway()"), "{bash:?}");
    assert_eq!(gateway(here.path(), &["completions", "csh"], &[]).code, Some(2));
    let man = gateway(here.path(), &["man"], &[]);
    assert!(man.code == Some(0) && man.stdout.contains(".TH gateway 1"), "{man:?}");
    assert!(!here.path().join("data").exists(), "none of these touches the data directory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_is_content_with_a_fresh_and_with_a_used_installation() {
    for backend in Backend::BOTH {
        let data = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &data).await;
        let doctor = || run(command(data.path(), &["doctor", "--json"]).envs(settings.iter().cloned()));
        let fresh = doctor();
        assert_eq!(fresh.code, Some(0), "{fresh:?}");
        for check in ["settings", "files", "disk", "clock", "database", "port", "egress", "providers"] {
            assert_ne!(finding(&fresh, check).0, "failed", "{fresh:?}");
        }
        drop(GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned())));
        let used = doctor();
        assert_eq!(used.code, Some(0), "{used:?}");
        let (_, database) = finding(&used, "database");
        let versions = format!("schema {}/{}", Part::State.version(), Part::Logs.version());
        assert!(database.contains(&versions), "{database}");
    }
}

#[test]
fn doctor_names_what_is_wrong_and_the_remedy() {
    let here = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = here.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = [
        ("GATEWAY_LISTEN", address.as_str()),
        ("GATEWAY_REDIS_URL", "redis://127.0.0.1:9"),
        ("GATEWAY_PROVIDER_OPENAI_BASE_URL", "http://127.0.0.1:9"),
        ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-hidden"),
        ("GATEWAY_LISSTEN", "typo"),
    ];
    let done = gateway(here.path(), &["doctor"], &settings);
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in [
        "GATEWAY_LISSTEN",
        "GATEWAY_LISTEN",
        "GATEWAY_REDIS_URL",
        "GATEWAY_PROVIDER_OPENAI_BASE_URL",
        "chmod",
    ] {
        assert!(done.stdout.contains(part), "{part} is missing in {}", done.stdout);
    }
    assert!(done.stderr.contains("checks failed"), "{done:?}");
    assert!(!done.stdout.contains("sk-hidden"), "{done:?}");
    assert!(!data.join("master_key").exists(), "nothing is written");
    let offline = gateway(here.path(), &["doctor", "--offline", "--json"], &settings);
    assert_eq!(finding(&offline, "providers").0, "ok", "{offline:?}");
    let wrong = gateway(here.path(), &["doctor"], &[("GATEWAY_PUBLIC_DOCS", "perhaps")]);
    assert!(wrong.code == Some(1) && wrong.stdout.contains("GATEWAY_PUBLIC_DOCS"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_calls_providers_with_their_credentials() {
    let upstream = Upstream::start().await;
    let here = tempfile::tempdir().unwrap();
    let url = upstream.url();
    let settings = [
        ("GATEWAY_PROVIDER_OPENAI_BASE_URL", url.as_str()),
        ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
    ];
    upstream.set_default_reply(Reply::json(200, r#"{"data": []}"#));
    let good = gateway(here.path(), &["doctor", "--json"], &settings);
    assert_eq!((good.code, finding(&good, "providers").0.as_str()), (Some(0), "ok"), "{good:?}");
    let request = &upstream.requests()[0];
    assert_eq!(
        (request.target(), request.header("authorization")),
        ("/v1/models", Some("Bearer sk-operator"))
    );
    let earlier = Reply::json(200, r#"{"data": []}"#).header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    upstream.set_default_reply(earlier);
    let skewed = gateway(here.path(), &["doctor"], &settings);
    assert!(skewed.code == Some(0) && skewed.stdout.contains("openai says 1994-11-06"), "{skewed:?}");
    upstream.set_default_reply(Reply::json(401, r#"{"error": {"message": "no"}}"#));
    let refused = gateway(here.path(), &["doctor", "--json"], &settings);
    assert_eq!((refused.code, finding(&refused, "providers").0.as_str()), (Some(1), "failed"), "{refused:?}");
    assert!(refused.stdout.contains("GATEWAY_PROVIDER_OPENAI_API_KEY"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upgrade_check_names_migrations_and_changes_nothing() {
    for backend in Backend::BOTH {
        let data = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &data).await;
        let check = |arguments: &[&str]| run(command(data.path(), arguments).envs(settings.iter().cloned()));
        let found =
            settings.iter().find(|(name, _)| name == "GATEWAY_DATABASE_URL").map(|(_, url)| url.clone());
        let url = found.unwrap_or_else(|| format!("sqlite://{}", data.path().join("gateway.db").display()));
        let db = Db::open(&url).await.unwrap();
        let before = Part::State.version() - 1;
        db.migrate_to(Part::State, before, Timestamp(1)).await.unwrap();
        for _ in 0..2 {
            let done = check(&["upgrade-check", "--json"]);
            assert_eq!(done.code, Some(0), "{done:?}");
            let report = json_of(&done);
            let state = &report["parts"][0];
            assert_eq!((&state["schema"], &state["known"]), (&json!(before), &json!(before + 1)), "{report}");
            assert_eq!(state["pending"].as_array().map(Vec::len), Some(1), "{report}");
            assert_eq!(report["parts"][1]["schema"], 0);
        }
        db.close().await;
        assert_eq!(check(&["migrate"]).code, Some(0));
        let done = check(&["upgrade-check"]);
        assert!(done.code == Some(0) && done.stdout.matches("is up to date").count() == 2, "{done:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_organizations_rows_and_usage_of_a_running_gateway() {
    for backend in Backend::BOTH {
        let data = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &data).await;
        let service = GatewayProcess::start(command(data.path(), &["serve"]).envs(settings));
        let console = format!("http://{}/console/", service.address);
        assert_eq!(service.ready["console"], json!(console));
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
        let account = service.post("/api/v1/signup", &body).send().await.expect(201);
        let url = format!("http://{}/", service.address);
        let key = account["api_key"].as_str().unwrap();
        let remote = [("GATEWAY_URL", url.as_str()), ("GATEWAY_KEY", key)];
        let call = |arguments: &[&str]| gateway(data.path(), arguments, &remote);

        let made = call(&["keys", "create", "bot"]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let bot = made.stdout.trim();
        assert!(bot.starts_with("sk-gateway-"), "{made:?}");
        let chat =
            json!({"model": "sandbox/sandbox-small", "messages": [{"role": "user", "content": "find me"}]});
        service.post("/sdk/v1/chat/completions", &chat).bearer(bot).send().await.expect(200);

        let keys = json_of(&call(&["keys", "list", "--json"]));
        let listed =
            keys["keys"].as_array().unwrap().iter().find(|key| key["name"] == "bot").unwrap().clone();
        assert_eq!(listed["scopes"], json!(["proxy"]));
        let shown = call(&["logs", "list", "--search", "find"]);
        assert!(
            !shown.stdout.contains("e-")
                && shown.stdout.trim_start().starts_with("ID")
                && shown.stdout.contains("sandbox-small"),
            "{shown:?}"
        );
        let rows = json_of(&call(&["logs", "list", "--status", "2xx", "--json"]));
        let id = rows["logs"][0]["id"].to_string();
        assert_eq!(json_of(&call(&["logs", "show", &id]))["id"].to_string(), id);
        let summary = json_of(&call(&["usage", "--json"]));
        assert_eq!(summary["requests"], 1);
        let by_model = call(&["usage", "--by", "model"]);
        assert!(by_model.stdout.contains("sandbox-small"), "{by_model:?}");
        let orgs = call(&["orgs", "list"]);
        assert!(orgs.stdout.contains("acme"), "{orgs:?}");
        let members = call(&["orgs", "members"]);
        assert!(members.stdout.contains("ada@example.com"), "{members:?}");
        let rotated = call(&["keys", "rotate", listed["id"].as_str().unwrap(), "--overlap-hours", "0"]);
        assert!(rotated.stdout.starts_with("sk-gateway-"), "{rotated:?}");
        let revoked = call(&["keys", "revoke", listed["id"].as_str().unwrap()]);
        assert_eq!(revoked.code, Some(0), "{revoked:?}");
        service.post("/sdk/v1/chat/completions", &chat).bearer(bot).send().await.expect(401);

        for (arguments, named) in [
            (&["keys", "list", "--key", "sk-gateway-wrong"][..], "GATEWAY_KEY"),
            (&["keys", "list", "--url", "http://127.0.0.1:9"][..], "GATEWAY_URL"),
            (&["keys", "list", "--url", "nonsense"][..], "http://127.0.0.1:8080"),
            (&["logs", "list", "--status", "high"][..], "status"),
        ] {
            let failed = call(arguments);
            assert!(failed.code == Some(1) && failed.stderr.contains(named), "{arguments:?}: {failed:?}");
        }
        let without = gateway(data.path(), &["usage"], &[]);
        assert!(without.code == Some(1) && without.stderr.contains("GATEWAY_KEY"), "{without:?}");
    }
}
