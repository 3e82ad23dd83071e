//! The command line: commands, messages, exit codes, the log, and shutdown.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{
    Backend, GatewayProcess, MASTER_KEY, PASSWORD, ProcessOutput, TOKEN_SECRET, command, fresh_settings, run,
};

fn gateway(data: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> ProcessOutput {
    run(command(data, arguments).envs(settings.iter().copied()))
}

fn signup(slug: &str) -> Value {
    json!({"email": format!("{slug}@example.com"), "password": PASSWORD, "org_slug": slug})
}

#[test]
fn the_version_and_the_help_are_printed() {
    let here = tempfile::tempdir().unwrap();
    let version = gateway(here.path(), &["version"], &[]);
    assert_eq!(
        (version.code, version.stdout.as_str()),
        (Some(0), concat!("gateway ", env!("CARGO_PKG_VERSION"), "\n"))
    );
    assert_eq!(gateway(here.path(), &["--version"], &[]).stdout, version.stdout);
    let help = gateway(here.path(), &["--help"], &[]);
    assert_eq!(help.code, Some(0));
    for word in ["serve", "config", "migrate", "admin", "openapi", "version", "--config"] {
        assert!(help.stdout.contains(word), "{word} is missing in {}", help.stdout);
    }
    for setting in gateway::config::SETTINGS {
        let name = gateway::config::env_name(setting.key);
        assert!(help.stdout.contains(&name), "{name} is missing in the help");
    }
    let nothing = gateway(here.path(), &[], &[]);
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("Usage"), "{nothing:?}");
    assert_eq!(gateway(here.path(), &["serv"], &[]).code, Some(2));
    assert!(!here.path().join("data").exists(), "none of these touches the data directory");
}

#[test]
fn the_openapi_document_is_printed() {
    let here = tempfile::tempdir().unwrap();
    let done = gateway(here.path(), &["openapi"], &[]);
    assert_eq!(done.code, Some(0));
    let parsed: Value = serde_saphyr::from_str(&done.stdout).unwrap();
    assert_eq!(parsed, gateway::api::openapi::document());
}

#[test]
fn the_shown_settings_name_their_source_and_redact_secrets() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("gateway.toml");
    std::fs::write(&file, "auth_attempts = 20\n[providers.openai]\napi_key = 'sk-hidden-1'\n").unwrap();
    let settings = [
        ("GATEWAY_CONFIG", file.to_str().unwrap()),
        ("GATEWAY_MASTER_KEY", MASTER_KEY),
        ("GATEWAY_TOKEN_SECRET", TOKEN_SECRET),
        ("GATEWAY_DATABASE_URL", "postgres://db.example/x?user=gw&password=hidden-2&sslmode=require"),
        ("GATEWAY_REDIS_URL", "redis://default:hidden-3@redis.example"),
        ("GATEWAY_PROVIDER_OPENAI_BASE_URL", "http://gw:hidden-4@127.0.0.1:9000"),
    ];
    let done = gateway(here.path(), &["config"], &settings);
    assert_eq!(done.code, Some(0), "{done:?}");
    for secret in ["hidden", MASTER_KEY, TOKEN_SECRET] {
        assert!(
            !done.stdout.contains(secret) && !done.stderr.contains(secret),
            "{secret} in {}",
            done.stdout
        );
    }
    for line in
        ["auth_attempts = \"20\"  # file", "log_level = \"info\"  # default", "db.example", "redis.example"]
    {
        assert!(done.stdout.contains(line), "{line} is missing in {}", done.stdout);
    }
    assert!(done.stdout.parse::<toml::Table>().is_ok(), "{}", done.stdout);
    // The flag does the same as the variable, and the environment wins over the file.
    let flag = gateway(
        here.path(),
        &["config", "--config", file.to_str().unwrap()],
        &[("GATEWAY_AUTH_ATTEMPTS", "30")],
    );
    assert!(flag.stdout.contains("auth_attempts = \"30\"  # environment"), "{}", flag.stdout);
}

#[test]
fn wrong_settings_are_named_and_end_with_2() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().to_owned();
    let with_file = |text: &str| {
        // Not `gateway.toml`, which would be found.
        let file = path.join("wrong.toml");
        std::fs::write(&file, text).unwrap();
        gateway(&path, &["serve", "--config", file.to_str().unwrap()], &[])
    };
    for (done, named) in [
        (with_file("lissten = 'x'"), "lissten"),
        (with_file("[providers.openai]\nkey = 'x'"), "providers.openai.key"),
        (with_file("auth_attempts = 0"), "auth_attempts"),
        (with_file("listen = "), "wrong.toml"),
        (gateway(&path, &["serve", "--config", "absent.toml"], &[]), "absent.toml"),
        (gateway(&path, &["config"], &[("GATEWAY_PUBLIC_DOCS", "perhaps")]), "GATEWAY_PUBLIC_DOCS"),
        (gateway(&path, &["serve"], &[("GATEWAY_LISTEN", "8080")]), "GATEWAY_LISTEN"),
        (gateway(&path, &["serve"], &[("GATEWAY_MASTER_KEY", "short")]), "GATEWAY_MASTER_KEY"),
        (
            gateway(&path, &["serve"], &[("GATEWAY_DATABASE_URL", "mysql://localhost/x")]),
            "GATEWAY_DATABASE_URL",
        ),
        (gateway(&path, &["migrate"], &[("GATEWAY_DATABASE_URL", "nonsense")]), "GATEWAY_DATABASE_URL"),
        (
            gateway(
                &path,
                &["serve"],
                &[
                    ("GATEWAY_DATABASE_URL", "postgres://gw:hidden@localhost:port/x"),
                    ("GATEWAY_TOKEN_SECRET", TOKEN_SECRET),
                    ("GATEWAY_MASTER_KEY", MASTER_KEY),
                ],
            ),
            "GATEWAY_DATABASE_URL",
        ),
        (
            gateway(&path, &["serve"], &[("GATEWAY_DATABASE_URL", "postgres://localhost/x")]),
            "GATEWAY_TOKEN_SECRET",
        ),
    ] {
        assert_eq!(done.code, Some(2), "{named}: {done:?}");
        assert!(done.stderr.starts_with("gateway: ") && done.stderr.contains(named), "{named}: {done:?}");
        assert!(!done.stderr.contains("hidden"), "{done:?}");
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let here = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let done = gateway(here.path(), &["serve"], &[("GATEWAY_LISTEN", &address)]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains(&address) && done.stderr.contains("another process uses this address"),
        "{done:?}"
    );
    assert!(done.stderr.contains("GATEWAY_LISTEN"), "{done:?}");
}

#[test]
fn an_unwritable_data_directory_is_reported() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("data").display().to_string();
    let secrets = [("GATEWAY_TOKEN_SECRET", TOKEN_SECRET), ("GATEWAY_MASTER_KEY", MASTER_KEY)];
    for given in [&secrets[..], &[]] {
        for arguments in [&["serve"][..], &["migrate"]] {
            let mut settings = vec![("GATEWAY_DATA_DIR", below.as_str())];
            settings.extend(given);
            let done = gateway(here.path(), arguments, &settings);
            assert!(matches!(done.code, Some(1 | 2)), "{done:?}");
            assert!(done.stderr.contains(&below) && done.stderr.contains("GATEWAY_DATA_DIR"), "{done:?}");
        }
    }
}

#[test]
fn a_worker_that_cannot_start_fails_the_start() {
    let here = tempfile::tempdir().unwrap();
    let gateway = command(here.path(), &["serve"]);
    // Every worker needs file descriptors of its own.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 100; exec \"$0\" serve"]).arg(gateway.get_program());
    limited.env_clear().current_dir(here.path()).stdin(std::process::Stdio::null());
    limited.envs(gateway.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = run(limited.env("GATEWAY_WORKERS", "64"));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("gateway: cannot start a thread: "), "{done:?}");
    assert!(!done.stderr.contains("is ready"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_refuses_connections_is_reported() {
    let here = tempfile::tempdir().unwrap();
    let mut settings = fresh_settings(Backend::Postgres, &here).await;
    let url = &mut settings.iter_mut().find(|(name, _)| name == "GATEWAY_DATABASE_URL").unwrap().1;
    let (server, _) = url.rsplit_once('/').unwrap();
    let host = server.rsplit_once('@').unwrap().1.to_owned();
    let password =
        server.rsplit_once(':').unwrap().0.rsplit_once(':').unwrap().1.split('@').next().unwrap().to_owned();
    *url = format!("{server}/no_such_database");
    let done = run(command(here.path(), &["serve"]).envs(settings));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains(&host) && done.stderr.contains("no_such_database"), "{done:?}");
    assert!(!done.stderr.contains(&password), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_migrated_by_command_as_often_as_one_likes() {
    for backend in Backend::BOTH {
        let here = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &here).await;
        let migrate = || run(command(here.path(), &["migrate"]).envs(settings.iter().cloned()));
        let first = migrate();
        assert_eq!(first.code, Some(0), "{first:?}");
        assert!(first.stdout.contains("schema"), "{first:?}");
        assert!(first.stderr.contains("migrations: accounts"), "{first:?}");
        let second = migrate();
        assert_eq!(second.code, Some(0), "{second:?}");
        assert!(second.stdout.contains("up to date"), "{second:?}");
        assert!(!second.stderr.contains("migrations"), "{second:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_resets_a_password_of_a_running_gateway() {
    for backend in Backend::BOTH {
        let here = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &here).await;
        let service = GatewayProcess::start(command(here.path(), &["serve"]).envs(settings.iter().cloned()));
        let ada = service.post("/api/v1/signup", &signup("acme")).send().await.expect(201);
        let reset = |email: &str| {
            run(command(here.path(), &["admin", "reset-password", email]).envs(settings.iter().cloned()))
        };
        let email = ada["user"]["email"].as_str().unwrap();
        let printed = reset(&email.to_uppercase());
        assert_eq!(printed.code, Some(0), "{printed:?}");
        assert!(printed.stdout.starts_with("rst-") && printed.stderr.contains("one hour"), "{printed:?}");
        let body = json!({"token": printed.stdout.trim(), "new_password": "another long password"});
        service.post("/api/v1/auth/reset", &body).send().await.expect(200);
        let login = json!({"email": email, "password": "another long password"});
        service.post("/api/v1/login", &login).send().await.expect(200);
        let unknown = reset("nobody@example.com");
        assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(1), ""), "{unknown:?}");
        assert!(unknown.stderr.contains("nobody@example.com"), "{unknown:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_sets_plans() {
    for backend in Backend::BOTH {
        let here = tempfile::tempdir().unwrap();
        let mut settings = fresh_settings(backend, &here).await;
        settings.push(("GATEWAY_PLAN_CHANGES".into(), "operator".into()));
        let service = GatewayProcess::start(command(here.path(), &["serve"]).envs(settings.iter().cloned()));
        let ada = service.post("/api/v1/signup", &signup("acme")).send().await.expect(201);
        service.signal("TERM");
        assert_eq!(service.wait().0, Some(0));
        let set = |slug: &str, plan: &str| {
            run(command(here.path(), &["admin", "set-plan", slug, plan]).envs(settings.iter().cloned()))
        };
        let done = set("acme", "enterprise");
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains("acme") && done.stdout.contains("enterprise"), "{done:?}");
        let unknown = set("nobody", "pro");
        assert_eq!(unknown.code, Some(1), "{unknown:?}");
        assert!(unknown.stderr.contains("nobody"), "{unknown:?}");
        let bad = set("acme", "gold");
        assert_eq!(bad.code, Some(2), "{bad:?}");
        assert!(bad.stderr.contains("gold") && bad.stderr.contains("enterprise"), "{bad:?}");

        // A second start keeps the account and applies the plan.
        let service = GatewayProcess::start(command(here.path(), &["serve"]).envs(settings.iter().cloned()));
        let call = service.get("/api/v1/auth/entitlements").key(ada["api_key"].as_str().unwrap());
        assert_eq!(call.send().await.expect(200)["plan"], "enterprise");
        let by_token = service.get("/api/v1/auth/orgs").bearer(ada["token"].as_str().unwrap());
        by_token.send().await.expect(200);

        // A running gateway picks up the change shortly after.
        assert_eq!(set("acme", "pro").code, Some(0));
        for attempt in 0.. {
            let call = service.get("/api/v1/auth/entitlements").key(ada["api_key"].as_str().unwrap());
            if call.send().await.expect(200)["plan"] == "pro" {
                break;
            }
            assert!(attempt < 100, "the running service does not see the new plan");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_line_names_url_data_and_how_long_it_took() {
    let here = tempfile::tempdir().unwrap();
    let service = GatewayProcess::start(&mut command(here.path(), &["serve"]));
    assert_ne!(service.address.port(), 0);
    service.get("/healthz").send().await.expect(200);
    let ready = &service.ready;
    assert!(ready["data"].as_str().unwrap().starts_with(here.path().to_str().unwrap()), "{ready}");
    assert!(ready["database"].as_str().unwrap().starts_with("sqlite://"), "{ready}");
    assert!(
        ready["ready_ms"].is_u64() && ready["timestamp"].is_string() && ready["level"] == "INFO",
        "{ready}"
    );
    service.signal("INT");
    let (code, log) = service.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_secrets_are_for_the_owner_only_and_kept() {
    let here = tempfile::tempdir().unwrap();
    let service = GatewayProcess::start(&mut command(here.path(), &["serve"]));
    let ada = service.post("/api/v1/signup", &signup("acme")).send().await.expect(201);
    service.signal("TERM");
    assert_eq!(service.wait().0, Some(0));
    let data = here.path().join("data");
    let kept = ["token_secret", "master_key"].map(|name| {
        let path = data.join(name);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        std::fs::read_to_string(path).unwrap()
    });
    assert_ne!(kept[0], kept[1]);
    assert!(
        std::fs::read_dir(&data).unwrap().all(|entry| !entry
            .unwrap()
            .path()
            .to_string_lossy()
            .ends_with(".tmp"))
    );

    let service = GatewayProcess::start(&mut command(here.path(), &["serve"]));
    let call = service.get("/api/v1/auth/orgs").bearer(ada["token"].as_str().unwrap());
    assert_eq!(call.send().await.expect(200)["orgs"][0]["slug"], "acme");
    let body = json!({"email": "acme@example.com", "password": PASSWORD});
    service.post("/api/v1/login", &body).send().await.expect(200);
    service.post("/api/v1/signup", &signup("acme")).send().await.expect_error(409, "conflict");
    assert_eq!(std::fs::read_to_string(data.join("master_key")).unwrap(), kept[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_flight_is_finished_before_the_service_ends() {
    let here = tempfile::tempdir().unwrap();
    let service = GatewayProcess::start(&mut command(here.path(), &["serve"]));
    // An idle connection must not delay the shutdown.
    let idle = TcpStream::connect(service.address).await.unwrap();
    let mut kept_alive = TcpStream::connect(service.address).await.unwrap();
    kept_alive.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    kept_alive.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");

    let body = signup("acme").to_string();
    let (begun, rest) = body.split_at(body.len() / 2);
    let mut slow = TcpStream::connect(service.address).await.unwrap();
    let head =
        format!("POST /api/v1/signup HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{begun}", body.len());
    slow.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    service.signal("TERM");
    let deadline = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(service.address).await.is_ok() {
        assert!(Instant::now() < deadline, "the service still accepts connections");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    slow.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let begun = Instant::now();
    let (code, log) = service.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?} to end", begun.elapsed());
    assert!(log.contains("\"stopped\""), "{log}");
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_reaches_the_log_even_at_its_most_talkative() {
    for backend in Backend::BOTH {
        let here = tempfile::tempdir().unwrap();
        let settings = fresh_settings(backend, &here).await;
        let mut serve = command(here.path(), &["serve"]);
        serve.envs(settings.iter().cloned()).env("GATEWAY_LOG_LEVEL", "trace");
        serve.env("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator-secret");
        let service = GatewayProcess::start(&mut serve);
        let ada = service.post("/api/v1/signup", &signup("acme")).send().await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (token, key) = (text(&ada["token"]), text(&ada["api_key"]));
        let login = |password: &str| {
            service.post("/api/v1/login", &json!({"email": "acme@example.com", "password": password})).send()
        };
        let second = text(&login(PASSWORD).await.expect(200)["token"]);
        login("wrong-password-1").await.expect_error(401, "unauthorized");
        let broken = format!("{{\"password\": \"{PASSWORD}\", \"email\": 5");
        service
            .call(http::Method::POST, "/api/v1/signup")
            .raw(broken)
            .send()
            .await
            .expect_error(400, "bad_request");
        let make = |path: &str, body: Value| service.post(path, &body).bearer(&token).send();
        let made = text(&make("/api/v1/keys", json!({"name": "k"})).await.expect(201)["raw_key"]);
        let org = text(&ada["org"]["id"]);
        let path = format!("/api/v1/orgs/{org}/members");
        let invite =
            text(&make(&path, json!({"email": "new@example.com"})).await.expect(201)["invite_token"]);
        let body =
            json!({"name": "openai", "api_key": "sk-tenant-secret", "headers": {"x-a": "header-secret"}});
        make(&format!("/api/v1/orgs/{org}/providers"), body).await.expect(201);
        service.get("/api/v1/keys").key(&made).send().await.expect(200);
        let unknown = format!("sk-gateway-{}", "7".repeat(64));
        service
            .get(&format!("/api/v1/keys?key={unknown}"))
            .key(&unknown)
            .send()
            .await
            .expect_error(401, "unauthorized");
        service.get("/api/v1/keys").bearer("bad.token.secret").send().await.expect_error(401, "unauthorized");
        service.signal("TERM");
        let (code, log) = service.wait();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("is ready") && log.contains("stopped"), "{log}");
        let database = settings.iter().find(|(name, _)| name == "GATEWAY_DATABASE_URL");
        let database_password = database.map_or("none".to_owned(), |(_, url)| {
            url.split(':').nth(2).and_then(|rest| rest.split('@').next()).unwrap().to_owned()
        });
        for secret in [
            &token,
            &second,
            &key,
            &made,
            &invite,
            &unknown,
            &database_password,
            PASSWORD,
            TOKEN_SECRET,
            MASTER_KEY,
            "wrong-password-1",
            "sk-operator-secret",
            "sk-tenant-secret",
            "header-secret",
            "bad.token.secret",
        ] {
            assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
        }
    }
}
