//! Requests of other gateways' clients: headers and bodies become directives of this gateway, or are named in an error.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::*;
use crate::models::{FallbackCause, Mode, ModelTarget, Selection};
use crate::pricing::Price;

/// The built-in providers, one of the organization's own, and a named model.
struct Org;

impl Known for Org {
    fn has_model(&self, name: &str) -> bool {
        name == "smart"
    }

    fn has_provider(&self, name: &str) -> bool {
        name == "openai-prod" || crate::llm::providers::builtin(name).is_some()
    }

    fn provider_at(&self, url: &str) -> Option<String> {
        url.starts_with("https://api.openai.com").then(|| "openai".to_owned())
    }
}

fn changed(dialect: &str, given: &[(&str, &str)]) -> Result<Changes, Refused> {
    let dialect = named(dialect).unwrap();
    read_head(dialect, &taken(dialect, given), &Org)
}

fn taken(dialect: &'static Dialect, given: &[(&str, &str)]) -> Head {
    take_headers(dialect, given.iter().copied())
}

fn set(changes: &Changes) -> Vec<(&str, &str)> {
    changes.set.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

fn edited(dialect: &str, given: Value) -> Result<(Changes, Option<Value>), Refused> {
    edited_with(dialect, Changes::default(), given)
}

#[expect(clippy::needless_pass_by_value, reason = "bodies are written in place")]
fn edited_with(
    dialect: &str,
    mut changes: Changes,
    given: Value,
) -> Result<(Changes, Option<Value>), Refused> {
    let edited = body(named(dialect).unwrap(), given.to_string().as_bytes(), &mut changes, &Org)?;
    Ok((changes, edited.map(|body| serde_json::from_slice(&body).unwrap())))
}

fn names(changes: &Changes) -> Vec<String> {
    let Route { requested, fallbacks, .. } = &changes.route;
    requested.iter().chain(fallbacks.iter().map(|fallback| &fallback.name)).map(Name::text).collect()
}

#[test]
fn a_path_names_its_dialect() {
    let (dialect, rest) = find("/compat/litellm/v1/chat/completions").unwrap();
    assert_eq!((dialect.unwrap().name, rest), ("litellm", "/v1/chat/completions"));
    assert!(find("/compat/nginx/v1").unwrap().0.is_none());
    assert!(find("/v1/compat/litellm").is_none() && find("/compat").is_none());
    let path = |dialect: &str, rest: &str| {
        let Rewritten { path, provider, default_provider } = named(dialect).unwrap().path(rest);
        (path, provider, default_provider)
    };
    let plain = |path: &str| (path.to_owned(), None, None);
    assert_eq!(path("litellm", "/chat/completions"), plain("/v1/chat/completions"));
    assert_eq!(path("litellm", "/v1/chat/completions"), plain("/v1/chat/completions"));
    assert_eq!(
        path("litellm", "/anthropic/v1/messages"),
        ("/v1/messages".to_owned(), Some("anthropic"), None)
    );
    assert_eq!(path("litellm", "/openai-like/x"), plain("/openai-like/x"));
    assert_eq!(path("openrouter", "/api/v1/models"), plain("/v1/models"));
    assert_eq!(path("bifrost", "/openai/v1/x"), ("/v1/x".to_owned(), None, Some("openai")));
}

#[test]
fn the_key_is_where_the_clients_put_it() {
    let head = |dialect: &str, given: &[(&str, &str)]| taken(named(dialect).unwrap(), given);
    let key = |dialect: &str, given: &[(&str, &str)]| head(dialect, given).key;
    assert_eq!(key("litellm", &[("authorization", "Bearer sk-1")]), Some("sk-1".to_owned()));
    let both = [("authorization", "Bearer sk-1"), ("x-litellm-api-key", "sk-2")];
    assert_eq!(key("litellm", &both), Some("sk-2".to_owned()));
    assert_eq!(head("litellm", &both).removed, ["authorization", "x-litellm-api-key"]);
    assert_eq!(key("helicone", &[("helicone-auth", "Bearer sk-3")]), Some("sk-3".to_owned()));
    // The credential of a provider stays; a placeholder is none.
    let portkey = [("x-portkey-api-key", "sk-4"), ("authorization", "Bearer sk-openai")];
    assert_eq!(head("portkey", &portkey).removed, ["x-portkey-api-key"]);
    let portkey = [("authorization", "Bearer OPENAI_API_KEY")];
    assert_eq!(head("portkey", &portkey).removed, ["authorization"]);
    // Clients of Helicone's gateway have no other header for it; clients of its proxy send the provider's key there.
    let bearer = ("authorization", "Bearer sk-5");
    assert_eq!(key("helicone", &[bearer]), Some("sk-5".to_owned()));
    assert_eq!(head("helicone", &[bearer]).removed, ["authorization"]);
    for other in [("helicone-auth", "Bearer sk-3"), ("x-gateway-key", "sk-6")] {
        for given in [[bearer, other], [other, bearer]] {
            assert!(!head("helicone", &given).removed.contains(&"authorization".to_owned()));
        }
    }
    assert_eq!(key("portkey", &[bearer]), None);
}

#[test]
fn headers_become_directives() {
    let litellm = changed(
        "litellm",
        &[
            ("x-litellm-num-retries", "9"),
            ("x-litellm-timeout", "1.5"),
            ("x-litellm-tags", "a,b"),
            ("x-litellm-unknown", "1"),
            ("content-type", "application/json"),
        ],
    );
    let litellm = litellm.unwrap();
    assert_eq!(set(&litellm), [("x-gateway-retry", "5"), ("x-gateway-timeout", "1500")]);
    assert_eq!(
        (&litellm.metadata["tags"], &litellm.dropped[..]),
        (&json!("a,b"), &["x-litellm-unknown".to_owned()][..])
    );
    let portkey = changed(
        "portkey",
        &[
            ("x-portkey-provider", "@google"),
            ("x-portkey-config", "pc-smart"),
            ("x-portkey-metadata", r#"{"_user": "ada", "team": "a"}"#),
            ("x-portkey-cache", "simple"),
        ],
    );
    let portkey = portkey.unwrap();
    assert_eq!(
        set(&portkey),
        [("x-gateway-provider", "gemini"), ("x-gateway-user", "ada"), ("x-gateway-cache", "exact")]
    );
    assert_eq!((portkey.model.as_deref(), &portkey.metadata["team"]), (Some("pc-smart"), &json!("a")));
    let helicone =
        changed("helicone", &[("helicone-property-env", "prod"), ("helicone-omit-request", "true")]);
    let helicone = helicone.unwrap();
    assert_eq!(
        (&helicone.metadata["env"], set(&helicone)),
        (&json!("prod"), vec![("x-gateway-log", "metadata")])
    );
    let target = changed(
        "helicone",
        &[("helicone-target-url", "https://api.openai.com/v1"), ("cache-control", "private, max-age=60")],
    );
    assert_eq!(set(&target.unwrap()), [("x-gateway-provider", "openai"), ("x-gateway-cache-ttl", "60")]);
    for header in ["helicone-target-url", "helicone-openai-api-base"] {
        let base = changed("helicone", &[(header, "https://api.openai.com/v1")]).unwrap();
        assert_eq!(set(&base), [("x-gateway-provider", "openai")]);
        let unknown = changed("helicone", &[(header, "https://evil.example")]);
        assert!(matches!(unknown, Err(Refused::Meaning { .. } | Refused::Invalid { .. })));
    }
    let (mocked, _) = edited("litellm", json!({"model": "m", "mock_response": "hello"})).unwrap();
    assert_eq!(set(&mocked), [("x-gateway-provider", "sandbox"), ("x-sandbox-reply", "hello")]);
}

#[test]
fn what_changes_the_meaning_is_refused() {
    let meaning = |refused: Refused| matches!(refused, Refused::Meaning { .. });
    let host = changed("portkey", &[("x-portkey-custom-host", "https://a")]).unwrap_err();
    assert!(matches!(host, Refused::Invalid { .. }), "{host}");
    assert!(meaning(edited("litellm", json!({"guardrails": ["pii"]})).unwrap_err()));
    assert!(meaning(edited("openrouter", json!({"plugins": [{"id": "web"}]})).unwrap_err()));
    assert!(meaning(edited("helicone", json!({"model": "gpt-4o", "prompt_id": "welcome"})).unwrap_err()));
    for spelled in ["helicone-rate-limit-policy", "helicone-ratelimit-policy"] {
        assert!(meaning(changed("helicone", &[(spelled, "10;w=60")]).unwrap_err()), "{spelled}");
    }
    let other = changed("litellm", &[("x-portkey-provider", "openai")]).unwrap_err();
    assert_eq!(
        other,
        Refused::OtherDialect { name: "x-portkey-provider".into(), dialect: "portkey", path: "litellm" }
    );
    // The key is taken anyway: the caller is authenticated first.
    let given = [("x-portkey-provider", "openai"), ("authorization", "Bearer sk-1")];
    assert_eq!(taken(named("litellm").unwrap(), &given).key.as_deref(), Some("sk-1"));
    assert!(matches!(edited("litellm", json!({"num_retries": "x"})), Err(Refused::Invalid { .. })));
}

#[test]
fn fields_with_a_rule_are_bounded_together_and_others_are_not() {
    let tags = |count: usize| json!({"model": "gpt-4o", "tags": vec![1; count], "metadata": {"a": "x".repeat(1_000)}});
    assert!(edited("litellm", tags(100_000)).is_ok());
    let Err(Refused::Invalid { name, why }) = edited("litellm", tags(200_000)) else { panic!("too many") };
    assert!(["tags", "metadata"].contains(&name.as_str()) && why.contains("262144 bytes"), "{name}: {why}");
    let (_, body) = edited("litellm", json!({"tags": [1], "messages": "x".repeat(1 << 20)})).unwrap();
    assert_eq!(body.unwrap()["messages"].as_str().unwrap().len(), 1 << 20);
}

#[test]
fn fields_become_directives_and_leave_the_body() {
    let (changes, body) = edited(
        "litellm",
        json!({
            "model": "gpt-4o", "num_retries": 2, "timeout": 3, "metadata": {"team": "a"},
            "cache": {"no-cache": true, "ttl": 60, "odd": 1}, "fallbacks": ["openai/o3"], "temperature": 0.10,
        }),
    )
    .unwrap();
    assert_eq!(body, Some(json!({"model": "gpt-4o", "temperature": 0.10})));
    let mut directives = set(&changes);
    directives.sort_unstable();
    assert_eq!(
        directives,
        [
            ("x-gateway-cache", "refresh"),
            ("x-gateway-cache-ttl", "60"),
            ("x-gateway-retry", "2"),
            ("x-gateway-timeout", "3000"),
        ]
    );
    assert_eq!(
        (&changes.metadata["team"], &changes.dropped[..]),
        (&json!("a"), &["cache.odd".to_owned()][..])
    );
    assert_eq!(names(&changes), ["gpt-4o", "openai/o3"]);
    let (changes, body) = edited(
        "openrouter",
        json!({"model": "anthropic/claude-sonnet-4.5:nitro", "usage": {"include": true}}),
    )
    .unwrap();
    assert_eq!(body, Some(json!({"model": "anthropic/claude-sonnet-4.5"})));
    assert_eq!(set(&changes), [("x-gateway-cost", "true")]);
    assert_eq!(changes.route.preferences.sort, Some(RouteStrategy::Fastest));
}

#[test]
fn models_have_the_gateways_names_of_providers() {
    let model = |dialect: &str, given: &str| {
        let (changes, body) = edited(dialect, json!({"model": given})).unwrap();
        (body.map_or_else(|| given.to_owned(), |body| body["model"].as_str().unwrap().to_owned()), changes)
    };
    assert_eq!(model("litellm", "azure/gpt-4o").0, "azure-openai/gpt-4o");
    assert_eq!(model("litellm", "smart").1.route.requested, Some(Name::Model("smart".into())));
    assert_eq!(model("litellm", "gpt-4o").1.route.requested, Some(Name::Bare("gpt-4o".into())));
    assert_eq!(model("portkey", "@openai-prod/gpt-4o").0, "openai-prod/gpt-4o");
    assert_eq!(model("openrouter", "google/gemini-2.5-pro").0, "gemini/gemini-2.5-pro");
    let (first, changes) = model("helicone", "gpt-4o-mini/openai, claude-sonnet-4-5/anthropic,smart");
    assert_eq!(first, "openai/gpt-4o-mini");
    assert_eq!(names(&changes), ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5", "smart"]);
    // Where the provider is known, a model may have any name.
    let direct = Changes { is_direct: true, ..Changes::default() };
    let (_, body) = edited_with("litellm", direct.clone(), json!({"model": "azure/gpt-4o"})).unwrap();
    assert_eq!(body, None);
    let (changes, body) = edited_with("portkey", direct.clone(), json!({"model": "@cf/meta/llama"})).unwrap();
    assert_eq!((body, set(&changes)), (None, vec![]));
    let (changes, body) = edited_with("portkey", direct, json!({"model": "@openai/o3"})).unwrap();
    assert_eq!(
        (body, set(&changes)),
        (Some(json!({"model": "openai/o3"})), vec![("x-gateway-provider", "auto")])
    );
    let long = edited("helicone", json!({"model": "a,".repeat(1_000)})).unwrap_err();
    assert!(matches!(long, Refused::Invalid { .. }));
    let by_path = Changes { default_provider: Some("openai"), ..Changes::default() };
    let (_, body) = edited_with("bifrost", by_path.clone(), json!({"model": "gpt-4o"})).unwrap();
    assert_eq!(body, Some(json!({"model": "openai/gpt-4o"})));
    let (_, body) = edited_with("bifrost", by_path, json!({"model": "anthropic/claude"})).unwrap();
    assert_eq!(body, None);
}

#[test]
fn fallbacks_are_models_in_every_form() {
    let (changes, _) = edited(
        "litellm",
        json!({"fallbacks": ["smart", {"model": "azure/o3", "temperature": 0}, "gpt-4o"], "model": "gpt-4o"}),
    )
    .unwrap();
    assert_eq!(names(&changes), ["gpt-4o", "smart", "azure-openai/o3"]);
    assert_eq!(changes.route.fallbacks[1].params["temperature"], 0);
    let by_model = json!({"model": "gpt-4o", "fallbacks": [{"gpt-4o": ["smart"]}, {"other": ["o3"]}]});
    assert_eq!(names(&edited("litellm", by_model).unwrap().0), ["gpt-4o", "smart"]);
    let (changes, body) =
        edited("bifrost", json!({"model": "smart", "fallbacks": [{"provider": "azure", "model": "o3"}]}))
            .unwrap();
    assert_eq!(
        (names(&changes), body.unwrap()),
        (vec!["smart".into(), "azure-openai/o3".into()], json!({"model": "smart"}))
    );
    let (changes, body) = edited("openrouter", json!({"models": ["openai/a", "smart"]})).unwrap();
    assert_eq!(
        (names(&changes), body.unwrap()),
        (vec!["openai/a".into(), "smart".into()], json!({"model": "openai/a"}))
    );
    for bad in [json!(1), json!([1]), json!([""]), json!([{"model": ""}]), json!(vec!["a"; 11])] {
        let refused = edited("litellm", json!({"model": "m", "fallbacks": bad})).unwrap_err();
        assert!(refused.to_string().starts_with("fallbacks"), "{refused}");
    }
    let named = edited("litellm", json!({"fallbacks": [{"model": "smart", "top_p": 1}]})).unwrap_err();
    assert!(matches!(named, Refused::Meaning { .. }));
}

#[test]
fn fallbacks_of_a_request_replace_those_of_named_models_where_the_dialect_has_it_so() {
    for (dialect, field, list, left) in [
        ("litellm", "fallbacks", json!(["o3"]), OwnFallbacks::None),
        ("litellm", "fallbacks", json!([{"model": "o3", "temperature": 0}]), OwnFallbacks::None),
        ("litellm", "fallbacks", json!([{"smart": ["o3"]}]), OwnFallbacks::AfterRefusals),
        ("litellm", "fallbacks", json!([]), OwnFallbacks::AfterRefusals),
        ("litellm", "fallbacks", json!(null), OwnFallbacks::All),
        ("bifrost", "fallbacks", json!(["o3"]), OwnFallbacks::All),
        ("openrouter", "models", json!(["o3"]), OwnFallbacks::All),
    ] {
        let (changes, _) = edited(dialect, json!({"model": "smart", field: list})).unwrap();
        assert_eq!(changes.route.own_fallbacks, left, "{dialect} {list}");
        assert_eq!(changes.route.is_plain(), list.is_null(), "{dialect} {list}");
    }
    let for_all = json!({"model": "smart", "fallbacks": [{"other": ["o4"], "*": ["o3"]}]});
    assert_eq!(names(&edited("litellm", for_all).unwrap().0), ["smart", "o3"]);
}

#[test]
fn a_config_is_read_by_the_rules_of_the_importer() {
    let config = |config: Value| changed("portkey", &[("x-portkey-config", &config.to_string())]);
    let changes = config(json!({
        "strategy": {"mode": "fallback", "on_status_codes": [429]},
        "targets": [{"provider": "openai"}, {"provider": "@openai-prod", "override_params": {"model": "o3"}}],
        "retry": {"attempts": 2}, "cache": {"mode": "simple", "max_age": 60}, "forward_headers": ["x-a"], "odd": 1,
    }))
    .unwrap();
    let definition = changes.route.config.unwrap();
    assert_eq!((definition.strategy.mode, definition.retries), (Mode::Order, Some(2)));
    assert_eq!(definition.strategy.on, Some(vec![FallbackCause::Status(429)]));
    let targets: Vec<(&str, &str)> = definition
        .targets
        .iter()
        .map(|target| (target.provider.as_deref().unwrap(), target.model.as_deref().unwrap()))
        .collect();
    assert_eq!(targets, [("openai", "*"), ("openai-prod", "o3")]);
    let mut dropped = changes.dropped;
    dropped.sort_unstable();
    assert_eq!(dropped, ["x-portkey-config.forward_headers", "x-portkey-config.odd"]);
    for (field, given) in [
        ("x-portkey-config.api_key", json!({"provider": "openai", "api_key": "sk-secret"})),
        ("x-portkey-config.custom_host", json!({"provider": "openai", "custom_host": "https://a.example"})),
        ("x-portkey-config.input_guardrails", json!({"provider": "openai", "input_guardrails": ["g"]})),
        ("x-portkey-config.provider", json!({"provider": "nobody"})),
        (
            "x-portkey-config.strategy.on_status_codes[0]",
            json!({"strategy": {"mode": "fallback", "on_status_codes": [400]}, "targets": [{"provider": "openai"}]}),
        ),
    ] {
        let refused = config(given).unwrap_err();
        assert!(matches!(&refused, Refused::Meaning { name, .. } if name == field), "{field}: {refused}");
        assert!(!refused.to_string().contains("secret"));
    }
    assert!(matches!(changed("portkey", &[("x-portkey-config", "{")]), Err(Refused::Invalid { .. })));
    let long = format!("{{\"provider\": \"{}\"}}", "a".repeat(40_000));
    assert!(matches!(changed("portkey", &[("x-portkey-config", &long)]), Err(Refused::Invalid { .. })));
}

#[test]
fn addresses_become_targets() {
    let list = |list: Value| changed("helicone", &[("helicone-fallbacks", &list.to_string())]);
    let changes = list(json!([
        {"target-url": "https://api.openai.com/v1", "headers": {"Authorization": "Bearer sk-secret"}, "onCodes": [429, {"from": 500, "to": 501}]},
        {"target-url": "https://api.openai.com", "bodyKeyOverride": {"model": "o3", "top_p": 1}},
    ]))
    .unwrap();
    assert_eq!(changes.dropped, ["helicone-fallbacks[0].headers"]);
    let targets = changes.route.config.unwrap().targets;
    let causes = targets[0].strategy.clone().unwrap().on.unwrap();
    assert_eq!(causes[..3], [429, 500, 501].map(FallbackCause::Status));
    assert_eq!(targets[0].targets.as_ref().unwrap()[0].model.as_deref(), Some("*"));
    assert_eq!((targets[1].model.as_deref(), targets[1].params.as_ref().unwrap().len()), (Some("o3"), 1));
    for bad in [json!([{"target-url": "https://a.example"}]), json!([]), json!({}), json!([{"onCodes": 1}])] {
        assert!(matches!(list(bad), Err(Refused::Invalid { .. })));
    }
    let after_400 = list(json!([{"target-url": "https://api.openai.com", "onCodes": [400]}]));
    assert!(matches!(after_400, Err(Refused::Meaning { .. })));
}

struct Prices(Vec<(&'static str, Price)>);

impl TargetInfo for Prices {
    fn kind(&self, provider: &str) -> Option<&str> {
        Some(if provider == "openai-prod" { "openai" } else { "other" })
    }

    fn keeps_nothing(&self, provider: &str) -> bool {
        provider == "groq"
    }

    fn price(&self, target: &ModelTarget) -> Option<&Price> {
        self.0.iter().find(|(provider, _)| *provider == target.provider).map(|(_, price)| price)
    }
}

#[test]
fn preferences_choose_and_order_the_providers() {
    let price = |usd: i64| Price {
        input_per_mtok: Some(Decimal::from(usd)),
        output_per_mtok: Some(Decimal::from(usd)),
        ..Price::default()
    };
    let info = Prices(vec![("openai-prod", price(1)), ("azure-openai", price(3))]);
    let chosen = |provider: Value| {
        let (changes, body) =
            edited("openrouter", json!({"model": "openai/m", "provider": provider})).unwrap();
        assert_eq!(body, Some(json!({"model": "openai/m"})));
        let preferences = changes.route.preferences;
        let targets = ["groq", "openai-prod", "azure-openai"].map(|name| ModelTarget::direct(name, "m"));
        let selection = preferences.apply(Selection::of(targets.into()), &info)?;
        let facts: Vec<_> = selection
            .targets
            .iter()
            .map(|target| crate::route::TargetFacts {
                price: info.price(target).and_then(|price| price.input_per_mtok),
                ..crate::route::TargetFacts::default()
            })
            .collect();
        let order = selection.route.order(&facts, 0);
        let order = order.into_iter().map(|index| selection.targets[index].provider.clone());
        Some(order.collect::<Vec<String>>().join(" "))
    };
    let is = |provider: Value, expected: &str| {
        assert_eq!(chosen(provider.clone()).as_deref(), Some(expected), "{provider}");
    };
    // A name stands for all providers of its kind too.
    is(json!({"order": ["Azure", "openai"]}), "azure-openai openai-prod groq");
    is(json!({"order": ["azure"], "allow_fallbacks": false}), "azure-openai");
    is(json!({"only": ["groq", "azure/eu"]}), "groq azure-openai");
    is(json!({"ignore": ["groq"]}), "openai-prod azure-openai");
    is(json!({"sort": "price"}), "openai-prod azure-openai groq");
    is(json!({"sort": {"by": "price", "partition": "none"}}), "openai-prod azure-openai groq");
    is(json!({"max_price": {"prompt": 2, "completion": "2"}}), "openai-prod");
    is(json!({"zdr": true}), "groq");
    is(json!({"data_collection": "deny"}), "groq");
    is(json!({"zdr": false, "data_collection": "allow"}), "groq openai-prod azure-openai");
    assert_eq!(chosen(json!({"only": ["nobody"]})), None);
    for (field, bad) in [
        ("provider.order", json!({"order": "openai"})),
        ("provider.sort", json!({"sort": "beauty"})),
        ("provider.max_price.prompt", json!({"max_price": {"prompt": -1}})),
        ("provider.max_price.image", json!({"max_price": {"image": 1}})),
        ("provider.allow_fallbacks", json!({"allow_fallbacks": "no"})),
    ] {
        let refused = edited("openrouter", json!({"provider": bad})).unwrap_err().to_string();
        assert!(refused.starts_with(field), "{refused}");
    }
    let (single, _) = edited("openrouter", json!({"provider": {"allow_fallbacks": false}})).unwrap();
    assert!(single.route.preferences.is_single() && !single.route.is_plain());
}

#[test]
fn durations_and_defaults_are_directives() {
    let bifrost = changed(
        "bifrost",
        &[("x-bf-cache-ttl", "5m"), ("x-bf-cache-type", "semantic"), ("x-bf-cache-key", "k")],
    )
    .unwrap();
    assert_eq!(
        set(&bifrost),
        [
            ("x-gateway-cache", "exact"),
            ("x-gateway-cache-ttl", "300"),
            ("x-gateway-cache", "semantic"),
            ("x-gateway-cache-namespace", "k"),
        ]
    );
    for (text, seconds) in
        [("30", "30"), ("90s", "90"), ("1500ms", "2"), ("2h", "7200"), ("9999d", "2592000")]
    {
        let changes = changed("bifrost", &[("x-bf-cache-ttl", text)]).unwrap();
        assert_eq!(set(&changes), [("x-gateway-cache-ttl", seconds)], "{text}");
    }
    assert!(changed("bifrost", &[("x-bf-cache-ttl", "5 parsecs")]).is_err());
    assert!(changed("portkey", &[("x-portkey-cache", "psychic")]).is_err());
    let retry =
        changed("helicone", &[("helicone-retry-num", "3"), ("helicone-retry-enabled", "true")]).unwrap();
    assert_eq!(set(&retry), [("x-gateway-retry", "5"), ("x-gateway-retry", "3")]);
    let (stream, _) = edited("litellm", json!({"stream": true, "stream_timeout": 2.5})).unwrap();
    assert_eq!(stream.route.first_byte_timeout, Some(std::time::Duration::from_millis(2_500)));
    assert!(stream.streams);
}

#[test]
fn errors_within_a_stream_have_the_shape_of_the_dialect() {
    let shaped = |dialect: &str, data: Value| {
        let edited = named(dialect).unwrap().stream_error(data.to_string().as_bytes(), "openai", "7")?;
        Some(serde_json::from_slice::<Value>(&edited).unwrap())
    };
    let error = json!({"error": {"message": "gone", "type": "server_error", "code": "provider_error"}});
    let expected = json!({
        "id": "7", "object": "chat.completion.chunk", "created": 0, "model": "", "provider": "openai",
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        "error": {"code": "provider_error", "message": "gone"},
    });
    assert_eq!(shaped("openrouter", error.clone()), Some(expected));
    assert_eq!(shaped("litellm", error), None);
    for other in [
        json!({"choices": [{"delta": {"content": "\"error\""}}]}),
        json!({"error": null}),
        json!({"type": "error", "error": {"message": "of another format"}}),
    ] {
        assert_eq!(shaped("openrouter", other), None);
    }
    assert_eq!(named("openrouter").unwrap().stream_error(b"{\"error\"", "a", "1"), None);
}

#[test]
fn answers_say_what_a_call_went_through() {
    let facts = AnswerFacts { retries: 1, fallbacks: 2, option: vec![1, 0], ..AnswerFacts::default() };
    let value = |answer| facts.value(answer).unwrap();
    assert_eq!((value(Answer::Retries), value(Answer::Fallbacks)), ("1".into(), "2".into()));
    assert_eq!(value(Answer::Option), "config.targets[1].targets[0]");
    assert_eq!((value(Answer::OptionIndex), value(Answer::Duration)), ("1".into(), "0.000".into()));
    assert_eq!(AnswerFacts::default().value(Answer::Option).unwrap(), "config");
    assert_eq!(facts.value(Answer::Requested), None);
}

#[test]
fn a_saved_config_takes_the_place_of_the_model() {
    let saved = |model: &str, given: Value| {
        let changes = Changes { model: Some(model.to_owned()), ..Changes::default() };
        edited_with("portkey", changes, given).unwrap().1.unwrap()["model"].clone()
    };
    assert_eq!(saved("pc-smart", json!({"model": "gpt-4o"})), "pc-smart");
    assert_eq!(saved("pc-smart/*", json!({"model": "gpt-4o"})), "pc-smart/gpt-4o");
    assert_eq!(saved("pc-smart", json!({"messages": []})), "pc-smart");
}

#[test]
fn a_body_without_fields_of_the_dialect_keeps_its_bytes() {
    for text in ["{\"model\" : \"m\", \"temperature\": 1.0}", "[1]", "not json", ""] {
        let mut changes = Changes::default();
        let edited = body(named("litellm").unwrap(), text.as_bytes(), &mut changes, &Org).unwrap();
        assert_eq!((edited, changes.route.is_plain()), (None, true), "{text}");
    }
}

#[test]
fn tables_are_in_lower_case_and_name_everything_once() {
    for dialect in &DIALECTS {
        let names: Vec<&str> = dialect.headers.iter().map(|(name, _)| *name).collect();
        for name in &names {
            assert_eq!(**name, name.to_lowercase());
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        for (theirs, answer) in dialect.answers {
            if let Answer::Header(ours) | Answer::HeaderOr(ours, _) | Answer::Echo(_, ours) = answer {
                assert!(ours.starts_with("x-gateway-"), "{theirs}");
            }
            assert_eq!(**theirs, theirs.to_lowercase());
        }
        for (theirs, ours) in dialect.providers {
            assert!(crate::llm::providers::builtin(ours).is_some(), "{theirs}");
            assert_eq!(**theirs, theirs.to_lowercase());
        }
    }
}
