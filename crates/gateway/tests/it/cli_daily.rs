//! The command line for installing and for daily work: `init`, `upgrade-check`, and keys, log rows and usage of a running
//! gateway.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gateway_core::time::Timestamp;
use gateway_store::{Db, Part};
use serde_json::{Value, json};

use crate::support::{Backend, GatewayProcess, PASSWORD, ProcessOutput, command, fresh_settings, run};

fn gateway(data: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> ProcessOutput {
    run(command(data, arguments).envs(settings.iter().copied()))
}

fn signup(slug: &str) -> Value {
    json!({"email": format!("{slug}@example.com"), "password": PASSWORD, "org_slug": slug})
}

fn json_of(done: &ProcessOutput) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
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
            (&["logs", "list", "--from", "yesterday"][..], "from"),
            (&["logs", "list", "--sort", "colour"][..], "latency"),
            (&["logs", "list", "--query", "status:"][..], "query"),
            (&["keys", "create", "late", "--expires", "soon"][..], "90d"),
        ] {
            let failed = call(arguments);
            assert!(failed.code == Some(1) && failed.stderr.contains(named), "{arguments:?}: {failed:?}");
        }
        for limit in ["0", "10001"] {
            assert_eq!(call(&["logs", "list", "--limit", limit]).code, Some(2));
        }
        let without = gateway(data.path(), &["usage"], &[]);
        assert!(without.code == Some(1) && without.stderr.contains("GATEWAY_KEY"), "{without:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_selected_by_time_and_query_and_sorted() {
    let data = tempfile::tempdir().unwrap();
    let service = GatewayProcess::start(&mut command(data.path(), &["serve"]));
    let account = service.post("/api/v1/signup", &signup("acme")).send().await.expect(201);
    let key = account["api_key"].as_str().unwrap();
    for (model, words) in
        [("sandbox-small", "a"), ("sandbox-large", "many words that make more tokens than one")]
    {
        let body =
            json!({"model": format!("sandbox/{model}"), "messages": [{"role": "user", "content": words}]});
        service.post("/sdk/v1/chat/completions", &body).bearer(key).send().await.expect(200);
    }
    let url = format!("http://{}", service.address);
    let remote = [("GATEWAY_URL", url.as_str()), ("GATEWAY_KEY", key)];
    let models = |options: &[&str]| -> Vec<String> {
        let done = gateway(data.path(), &[&["logs", "list", "--json"], options].concat(), &remote);
        assert_eq!(done.code, Some(0), "{done:?}");
        let rows = json_of(&done)["logs"].as_array().unwrap().clone();
        rows.iter().map(|row| row["model"].as_str().unwrap().to_owned()).collect()
    };
    let (small, large) = ("sandbox-small".to_owned(), "sandbox-large".to_owned());
    assert_eq!(models(&[]), [large.clone(), small.clone()]);
    assert_eq!(models(&["--sort", "tokens:asc"]), [small.clone(), large.clone()]);
    assert_eq!(models(&["--query", "model:*small"]), std::slice::from_ref(&small));
    assert_eq!(models(&["--from", "2020-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z"]).len(), 2);
    assert_eq!(models(&["--to", "2020-01-01T00:00:00Z"]), Vec::<String>::new());
    assert_eq!(models(&["--from", "2100-01-01T00:00:00Z"]), Vec::<String>::new());

    let made = gateway(data.path(), &["keys", "create", "brief", "--expires", "90d", "--json"], &remote);
    let (now, expires) = {
        let key = &json_of(&made)["key"];
        let time = |name: &str| key[name].as_str().unwrap().parse::<Timestamp>().unwrap();
        (time("created_at"), time("expires_at"))
    };
    assert_eq!(expires.since(now).as_secs().div_ceil(3_600), 90 * 24, "{made:?}");
    let shown = gateway(data.path(), &["keys", "list"], &remote).stdout;
    assert!(shown.contains("EXPIRES") && shown.contains(&expires.to_string()[..10]), "{shown}");
}

/// An answer of the API has at most 200 items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_goes_on_over_the_pages_of_the_api() {
    let data = tempfile::tempdir().unwrap();
    let service = GatewayProcess::start(&mut command(data.path(), &["serve"]));
    let account = service.post("/api/v1/signup", &signup("acme")).send().await.expect(201);
    let key = account["api_key"].as_str().unwrap();
    for number in 0..204 {
        service
            .post("/api/v1/keys", &json!({"name": format!("k-{number}")}))
            .key(key)
            .send()
            .await
            .expect(201);
    }
    let url = format!("http://{}", service.address);
    let remote = [("GATEWAY_URL", url.as_str()), ("GATEWAY_KEY", key)];
    let list = |limit: &str, options: &[&str]| {
        let arguments = [&["keys", "list", "--limit", limit], options].concat();
        let done = gateway(data.path(), &arguments, &remote);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    };
    let names = |done: &ProcessOutput| -> std::collections::HashSet<String> {
        let keys = json_of(done)["keys"].as_array().unwrap().clone();
        keys.iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
    };
    let some = list("203", &["--json"]);
    assert_eq!(names(&some).len(), 203);
    assert!(json_of(&some)["next_cursor"].is_string(), "there are two more");
    let all = list("10000", &["--json"]);
    assert_eq!((names(&all).len(), &json_of(&all)["next_cursor"]), (205, &json!(null)));
    assert!(names(&all).is_superset(&names(&some)));
    let shown = list("203", &[]).stdout;
    assert!(shown.lines().count() == 205 && shown.contains("--limit takes up to 10000"), "{shown}");
    assert!(!list("10000", &[]).stdout.contains("there are more"));
}
