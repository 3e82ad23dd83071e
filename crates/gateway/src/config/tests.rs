//! Tests of names, precedence and error messages.

use secrecy::ExposeSecret;

use super::*;
use crate::connections::AddressLimit;

fn values(file: Option<&str>, environment: &[(&str, &str)]) -> Result<RawSettings, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.toml");
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
    }
    let data = directory.path().join("data").display().to_string();
    let mut variables = vec![("GATEWAY_DATA_DIR".to_owned(), data)];
    variables.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    RawSettings::load(file.map(|_| path.as_path()), variables)
}

fn config(file: Option<&str>, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::validate(&values(file, environment)?)
}

fn message(file: Option<&str>, environment: &[(&str, &str)]) -> String {
    config(file, environment).expect_err("the settings must be rejected").to_string()
}

#[test]
fn the_connections_are_split_between_requests_authentication_and_background_work() {
    let split = |total: &str| {
        let DatabaseConnections { requests, authentication, background } =
            config(None, &[("GATEWAY_DATABASE_CONNECTIONS", total)]).unwrap().database_connections;
        (requests, authentication, background)
    };
    assert_eq!((split("12"), split("4"), split("40")), ((7, 2, 3), (2, 0, 2), (28, 2, 10)));
    assert!(config(None, &[("GATEWAY_DATABASE_CONNECTIONS", "3")]).is_err());
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_default() {
    let both = config(Some("auth_attempts = 20\nlog_retention_days = 7"), &[("GATEWAY_AUTH_ATTEMPTS", "30")])
        .unwrap();
    assert_eq!((both.auth_attempts, both.log_retention_days), (30, 7));
    assert_eq!(config(None, &[]).unwrap().auth_attempts, 10);
}

#[test]
fn an_unknown_key_in_the_file_is_named() {
    assert!(message(Some("lissten = 'x'"), &[]).contains("unknown key 'lissten'"));
    assert!(
        message(Some("[providers.openai]\nurl = 'x'"), &[]).contains("unknown key 'providers.openai.url'")
    );
}

#[test]
fn a_bad_value_names_the_setting_and_what_was_expected() {
    for (name, value) in [
        ("GATEWAY_LISTEN", "somewhere"),
        ("GATEWAY_AUTH_ATTEMPTS", "0"),
        ("GATEWAY_AUTH_ATTEMPTS", "ten"),
        ("GATEWAY_AUDIT_RETENTION_DAYS", "29"),
        ("GATEWAY_DEFAULT_PLAN", "gold"),
        ("GATEWAY_PUBLIC_DOCS", "yes"),
        ("GATEWAY_EGRESS_PRIVATE", "maybe"),
        ("GATEWAY_SIGNUP", "yes"),
        ("GATEWAY_OPERATOR_OBJECTS", "all"),
        ("GATEWAY_TRUSTED_PROXIES", "10.0.0.0/99"),
        ("GATEWAY_DATABASE_URL", "mysql://localhost/x"),
        ("GATEWAY_REDIS_URL", "localhost:6379"),
        ("GATEWAY_MASTER_KEY", "abc"),
        ("GATEWAY_TOKEN_SECRET", "short"),
        ("GATEWAY_PROVIDER_OPENAI_BASE_URL", "api.openai.com"),
    ] {
        let text = message(None, &[(name, value)]);
        assert!(text.contains(name) && text.contains("expected"), "{name}: {text}");
    }
}

#[test]
fn secrets_are_generated_once_and_required_with_postgres() {
    let directory = tempfile::tempdir().unwrap();
    let data = [("GATEWAY_DATA_DIR".to_owned(), directory.path().display().to_string())];
    let first = Config::validate(&RawSettings::load(None, data.clone()).unwrap()).unwrap();
    let second = Config::validate(&RawSettings::load(None, data).unwrap()).unwrap();
    assert_eq!(first.token_secret.expose_secret(), second.token_secret.expose_secret());
    assert_eq!(first.master_key.expose_secret().len(), 64);
    let text = message(None, &[("GATEWAY_DATABASE_URL", "postgres://localhost/x")]);
    assert!(text.contains("GATEWAY_TOKEN_SECRET must be set"), "{text}");
}

#[test]
fn the_printed_settings_mask_every_secret() {
    let values = values(
        None,
        &[
            ("GATEWAY_MASTER_KEY", &"ab".repeat(32)),
            ("GATEWAY_DATABASE_URL", "postgres://gw:hunter2@db.example/x"),
            ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-live-1"),
        ],
    )
    .unwrap();
    let text = masked_toml(&values);
    for secret in ["abab", "hunter2", "sk-live-1"] {
        assert!(!text.contains(secret), "{secret} is printed in\n{text}");
    }
    assert!(text.contains("[providers.openai]") && text.contains("environment"));
    assert!(text.parse::<toml::Table>().is_ok());
}

#[test]
fn the_gateway_is_exposed_by_its_address_its_proxies_or_its_database() {
    let is_exposed = |environment: &[(&str, &str)]| config(None, environment).unwrap().is_exposed();
    assert!(!is_exposed(&[]));
    assert!(!is_exposed(&[("GATEWAY_LISTEN", "[::1]:8080")]));
    assert!(is_exposed(&[("GATEWAY_LISTEN", "0.0.0.0:8080")]));
    assert!(is_exposed(&[("GATEWAY_TRUSTED_PROXIES", "127.0.0.1")]));
    let secrets = [("GATEWAY_TOKEN_SECRET", "x".repeat(32)), ("GATEWAY_MASTER_KEY", "ab".repeat(32))];
    let mut postgres = vec![("GATEWAY_DATABASE_URL", "postgres://localhost/x")];
    postgres.extend(secrets.iter().map(|(name, value)| (*name, value.as_str())));
    assert!(is_exposed(&postgres));
}

#[test]
fn the_operators_credentials_are_for_the_listed_organizations() {
    let allow = |value: &str, slug: &str, plan: Plan| {
        config(None, &[("GATEWAY_OPERATOR_CREDENTIALS", value)])
            .unwrap()
            .operator_credentials
            .allow(slug, plan)
    };
    assert!(config(None, &[]).unwrap().operator_credentials.allow("any", Plan::Free));
    assert!(!allow("off", "acme", Plan::Enterprise));
    assert!(allow("acme, plan:pro", "acme", Plan::Free) && allow("acme,plan:pro", "other", Plan::Pro));
    assert!(!allow("acme, plan:pro", "other", Plan::Enterprise));
    for wrong in ["", "acme,", "plan:gold", "Not A Slug"] {
        let text = message(None, &[("GATEWAY_OPERATOR_CREDENTIALS", wrong)]);
        assert!(
            text.contains("GATEWAY_OPERATOR_CREDENTIALS") && text.contains("expected"),
            "{wrong}: {text}"
        );
    }
}

#[test]
fn a_trusted_network_may_be_written_in_its_ipv6_form() {
    let networks = |value: &str| {
        let found = config(None, &[("GATEWAY_TRUSTED_PROXIES", value)]).unwrap().trusted_proxies;
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(networks("::ffff:10.0.0.0/104, ::ffff:192.0.2.1"), ["10.0.0.0/8", "192.0.2.1/32"]);
    assert_eq!(networks("fd00::/8, 10.0.0.0/8"), ["fd00::/8", "10.0.0.0/8"]);
}

#[test]
fn a_variable_that_names_nothing_is_reported() {
    let values =
        values(None, &[("GATEWAY_LISTN", "x"), ("GATEWAY_PROVIDER_AZURE_OPENAI_API_KEY", "k")]).unwrap();
    assert_eq!(values.unknown_variables, ["GATEWAY_LISTN"]);
    assert!(values.providers.contains_key("azure-openai"));
}

#[test]
fn the_limits_on_memory_and_connections_have_defaults() {
    let default = config(None, &[]).unwrap();
    assert!(default.memory_bytes >= 64 << 20);
    let total = default.connection_limits.total;
    assert!((64..=65_536).contains(&total), "{total}");
    assert_eq!(default.connection_limits.per_address, AddressLimit::Remote(total / 4));
    let limits = |per_address: &str| {
        let set = [
            ("GATEWAY_MEMORY_BYTES", "2097152"),
            ("GATEWAY_MAX_CONNECTIONS", "10"),
            ("GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", per_address),
        ];
        let config = config(None, &set).unwrap();
        assert_eq!((config.memory_bytes, config.connection_limits.total), (2 << 20, 10));
        config.connection_limits.per_address
    };
    assert_eq!(limits("3"), AddressLimit::All(3));
    assert_eq!(limits("0"), AddressLimit::Unlimited);
    assert_eq!(limits(""), AddressLimit::Remote(2));
    assert_eq!(default.max_calls, total as u64);
    assert_eq!(config(None, &[("GATEWAY_MAX_CALLS", "7")]).unwrap().max_calls, 7);
    assert!(message(None, &[("GATEWAY_MAX_CALLS", "0")]).contains("GATEWAY_MAX_CALLS"));
    assert!(message(None, &[("GATEWAY_MEMORY_BYTES", "1")]).contains("GATEWAY_MEMORY_BYTES"));
    assert!(message(None, &[("GATEWAY_MAX_CONNECTIONS", "0")]).contains("GATEWAY_MAX_CONNECTIONS"));
}

#[test]
fn no_error_message_shows_a_value() {
    const MARK: &str = "hunter2-is-the-secret";
    for setting in SETTINGS.iter().filter(|setting| !matches!(setting.key, "data_dir" | "prices_file")) {
        for value in
            [MARK.to_owned(), format!("{MARK}=1"), format!("postgres://{MARK}:99999/"), format!("{MARK},x")]
        {
            let name = env_name(setting.key);
            for error in [
                config(None, &[(&name, &value)]).err(),
                config(Some(&format!("{} = '{value}'", setting.key)), &[]).err(),
            ] {
                let text = error.map(|error| error.to_string()).unwrap_or_default();
                assert!(!text.contains(MARK), "{text}");
            }
        }
    }
    for name in ["GATEWAY_PROVIDER_OPENAI_BASE_URL", "GATEWAY_PROVIDER_OPENAI_API_KEY"] {
        let text = config(None, &[(name, MARK)]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!text.contains(MARK), "{text}");
    }
}

#[test]
fn a_syntax_error_of_the_file_is_located_without_its_text() {
    const MARK: &str = "hunter2-is-the-secret";
    for (file, place) in [
        (format!("listen = '127.0.0.1:1'\nmaster_key = \"{MARK}\nlog_level = 'info'"), "line 2"),
        (format!("master_key = {MARK}"), "line 1"),
        (format!("\n\n  {MARK}"), "line 3"),
        (format!("master_key = \"{MARK}\" \"{MARK}\""), "line 1"),
        (format!("[providers.openai\napi_key = '{MARK}'"), "line 1"),
        (format!("token_secret = '{MARK}'\ntoken_secret = '{MARK}'"), "line 2"),
        (format!("master_key = '{MARK}'\n[master_key]\nx = 1"), "line 2"),
    ] {
        let text = message(Some(&file), &[]);
        assert!(text.contains(place) && text.contains("not valid TOML"), "{text}");
        assert!(!text.contains(MARK), "{text}");
    }
}

#[test]
fn secrets_that_are_being_changed_are_accepted_too() {
    let (old, new) = ("ab".repeat(32), "cd".repeat(32));
    let both = format!("{old}, {new}");
    let found = config(None, &[("GATEWAY_MASTER_KEYS_ACCEPTED", &both)]).unwrap().master_keys_accepted;
    assert_eq!(found.iter().map(ExposeSecret::expose_secret).collect::<Vec<_>>(), [&old, &new]);
    let secret = "x".repeat(32);
    let found = config(None, &[("GATEWAY_TOKEN_SECRETS_ACCEPTED", &secret)]).unwrap();
    assert_eq!(found.token_secrets_accepted.len(), 1);
    for (name, value) in
        [("GATEWAY_MASTER_KEYS_ACCEPTED", "abc"), ("GATEWAY_TOKEN_SECRETS_ACCEPTED", "short")]
    {
        assert!(message(None, &[(name, value)]).contains(name));
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("master_key.previous"), format!("{old}\n")).unwrap();
    std::fs::write(directory.path().join("token_secret.previous"), &secret).unwrap();
    let data = [("GATEWAY_DATA_DIR".to_owned(), directory.path().display().to_string())];
    let config = Config::validate(&RawSettings::load(None, data).unwrap()).unwrap();
    assert_eq!(config.master_keys_accepted[0].expose_secret(), old);
    assert_eq!(config.token_secrets_accepted[0].expose_secret(), secret);
}

#[test]
fn audit_entries_are_kept_no_longer_than_the_operator_keeps_them() {
    let kept = |setting: &[(&str, &str)], own: u32| {
        let settings = OrgSettings { audit_retention_days: own, ..OrgSettings::default() };
        config(None, setting).unwrap().audit_retention_of(&settings)
    };
    assert_eq!((kept(&[], 365), kept(&[], 3_650)), (365, 3_650));
    let shorter = [("GATEWAY_AUDIT_RETENTION_DAYS", "90")];
    assert_eq!((kept(&shorter, 365), kept(&shorter, 30)), (90, 30));
}
