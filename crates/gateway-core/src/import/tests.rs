//! Plans of imports: every field of a source is mapped or named in a finding, and no input makes a reader panic.

mod golden;
mod keys;
mod litellm;

use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};
use proptest::strategy::{BoxedStrategy, Just, Strategy as Generator};
use serde_json::{Map, Value, json};

use super::*;
use crate::limits::{Per, Scope, Window};
use crate::llm::failure::Refusal;
use crate::models::{Mode, Target};

const LITELLM: &str = include_str!("../../fixtures/import/litellm.yaml");
const LITELLM_KEYS: &str = include_str!("../../fixtures/import/litellm_keys.csv");
const LITELLM_DUMP: &str = include_str!("../../fixtures/import/litellm_keys.sql");
const PORTKEY: &str = include_str!("../../fixtures/import/portkey.json");
const OPENROUTER: &str = include_str!("../../fixtures/import/openrouter.json");
const HELICONE: &str = include_str!("../../fixtures/import/helicone.yaml");

fn no_environment(_: &str) -> Option<String> {
    None
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of an environment")]
fn environment(name: &str) -> Option<String> {
    Some(format!("value-of-{name}"))
}

fn imported(source: Source, text: &str) -> Import {
    plan(source, text, &environment).unwrap()
}

fn litellm(text: &str) -> Import {
    imported(Source::Litellm, text)
}

fn model<'i>(import: &'i Import, name: &str) -> &'i Definition {
    let found = import.plan.models.iter().find(|model| model.name == name);
    &found.unwrap_or_else(|| panic!("no model {name} in {import:#?}")).definition
}

fn finding<'i>(import: &'i Import, path: &str) -> &'i Finding {
    let found = import.findings.iter().find(|finding| finding.path == path);
    found.unwrap_or_else(|| panic!("no finding about {path} in {:#?}", import.findings))
}

/// Provider and model of each target, groups in parentheses.
fn shape(targets: &[Target]) -> String {
    let shown = targets.iter().map(|target| {
        let inner = match &target.targets {
            Some(targets) => format!("({})", shape(targets)),
            None => format!(
                "{}:{}",
                target.provider.as_deref().unwrap_or_default(),
                target.model.as_deref().unwrap_or_default()
            ),
        };
        match target.when {
            None => inner,
            Some(Refusal::Context) => format!("context={inner}"),
            Some(Refusal::ContentFilter) => format!("filter={inner}"),
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The paths of all values that are not null or empty.
fn leaves(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                leaves(&report::join(path, name), value, found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                leaves(&report::item(path, index), value, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// Whether a finding is about the path or about something that it is a part of.
fn is_named(import: &Import, path: &str) -> bool {
    import.findings.iter().any(|finding| {
        path.strip_prefix(finding.path.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

fn assert_all_named(import: &Import, source: &Value) {
    let mut paths = Vec::new();
    leaves("", source, &mut paths);
    for path in paths {
        assert!(is_named(import, &path), "no finding about {path}");
    }
}

#[test]
fn secrets_are_in_no_plan_and_no_finding() {
    let import = litellm(LITELLM);
    let shown = serde_json::to_string(&import.plan).unwrap()
        + &serde_json::to_string(&import.findings).unwrap()
        + &format!("{import:?}");
    for secret in ["sk-in-the-file", "value-of-", "sk-1234-master", "platform-team"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert_eq!(finding(&import, "model_list[3].litellm_params.api_key").status, Status::Approximate);
}

#[test]
fn limits_guardrails_and_settings_are_in_the_plan() {
    let plan = litellm(LITELLM).plan;
    let of = |name: &str| plan.limits.iter().map(|limit| &limit.definition).find(|limit| limit.name == name);
    let limit = of("model-gpt-4o").unwrap();
    assert_eq!((limit.scope, limit.scope_id.as_deref()), (Scope::Model, Some("gpt-4o")));
    assert_eq!(limit.requests, Some(2_400), "both deployments together");
    assert!(of("model-claude").is_none());
    let named: Vec<_> = plan
        .guardrails
        .iter()
        .map(|guardrail| (guardrail.name.as_str(), guardrail.kind.as_deref()))
        .collect();
    assert_eq!(named, [("pii", Some("presidio")), ("prompt_injection", Some("lakera_prompt_injection"))]);
    assert_eq!(plan.settings.log_bodies, Some(false));
    let portkey = imported(Source::Portkey, PORTKEY).plan;
    let limit = &portkey.limits[0].definition;
    assert_eq!((limit.name.as_str(), limit.requests), ("provider-anthropic-a", Some(100)));
    assert_eq!(limit.models.as_deref(), Some(&["claude-sonnet-4-5".to_owned()][..]));
    let checks = portkey.guardrails;
    assert_eq!(checks.len(), 1);
    assert_eq!((checks[0].name.as_str(), checks[0].kind.as_deref()), ("pg-pii", Some("input_guardrails")));
}

#[test]
fn saved_configs_become_models() {
    let import = imported(Source::Portkey, PORTKEY);
    let fallback = model(&import, "pc-fallback-1a2b3c");
    assert_eq!(
        shape(&fallback.targets),
        "openai-prod:gpt-4o (anthropic-a:claude-sonnet-4-5 groq:llama-3.3-70b)"
    );
    let weights: Vec<_> =
        fallback.targets[1].targets.as_ref().unwrap().iter().map(|target| target.weight).collect();
    assert_eq!(weights, [Some(1_000), Some(429)]);
    assert_eq!(fallback.retries, Some(3));
    assert_eq!(fallback.cache.as_ref().unwrap().ttl, Some(3_600));
    let conditional = model(&import, "pc-by-plan");
    assert_eq!(conditional.strategy.default.as_deref(), Some("small-one"));
    let conditions = conditional.strategy.conditions.as_ref().unwrap();
    assert!(conditions[0].query.contains_key("$and"));
    assert_eq!(shape(&model(&import, "pc-passthrough/*").targets), "openai-prod:*");
    let providers: Vec<_> = import.plan.providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(providers, ["openai-prod", "anthropic-a", "groq"]);
    assert_eq!(finding(&import, "virtual_keys[0]").status, Status::Manual);
    assert_eq!(finding(&import, "configs[0].config.input_guardrails").status, Status::Manual);
    assert_all_named(&import, &serde_json::from_str(PORTKEY).unwrap());
}

#[test]
fn bodies_and_presets_of_openrouter_become_models() {
    let import = imported(Source::Openrouter, OPENROUTER);
    let smart = model(&import, "smart");
    assert_eq!(
        shape(&smart.targets),
        "openrouter:anthropic/claude-sonnet-4.5:nitro openrouter:openai/gpt-4o"
    );
    let defaults = smart.targets[0].defaults.as_ref().unwrap();
    assert_eq!(defaults["provider"]["sort"], "price");
    assert_all_named(&import, &serde_json::from_str(OPENROUTER).unwrap());
}

#[test]
fn routers_of_helicone_become_models() {
    let import = imported(Source::Helicone, HELICONE);
    let fast = model(&import, "production");
    assert_eq!(shape(&fast.targets), "openai:gpt-4o-mini anthropic:claude-3-7-sonnet");
    assert_eq!(fast.strategy.mode, Mode::Fastest);
    assert_eq!(fast.cache.as_ref().unwrap().ttl, Some(3_600));
    let weighted = model(&import, "by-provider/*");
    assert_eq!(shape(&weighted.targets), "openai:* gemini:*");
    assert_eq!(weighted.targets[0].weight, Some(1_000));
    let limit = &import.plan.limits[0].definition;
    assert_eq!(
        (limit.name.as_str(), limit.scope, limit.per.clone()),
        ("model-production", Scope::Model, Per::Key)
    );
    assert_eq!((limit.scope_id.as_deref(), limit.requests), (Some("production"), Some(1_000)));
    let other = "{global: {rate-limit: {per-api-key: {capacity: 5, refill-frequency: 1h}}}, routers: {r: {load-balance: \
                 {chat: {strategy: provider-latency, providers: [openai]}}, rate-limit: {per-api-key: {capacity: 5}}}}}";
    let import = imported(Source::Helicone, other);
    let limit = &import.plan.limits[0].definition;
    assert_eq!((limit.scope, limit.window, limit.requests), (Scope::Org, Window::Hour, Some(5)));
    assert_eq!(import.plan.limits.len(), 1, "callers choose the model of the router");
    assert_eq!(finding(&import, "routers.r.rate-limit").status, Status::Manual);
}

#[test]
fn users_of_helicone_have_limits_of_their_own() {
    let source = "{global: {rate-limit: {per-end-user: {capacity: 5, refill-frequency: 1h}, per-api-key: {capacity: 9, \
                  refill-frequency: 1m}}}, routers: {r: {load-balance: {chat: {strategy: model-latency, models: \
                  [openai/gpt-4o]}}, rate-limit: {per-user: {capacity: 3, refill-frequency: 1d}, per-end-user: {capacity: \
                  3, refill-frequency: 2d}}}}}";
    let import = imported(Source::Helicone, source);
    let limits = import.plan.limits.iter().map(|planned| &planned.definition);
    let limits: Vec<_> = limits
        .map(|limit| (limit.name.as_str(), limit.scope, limit.per.clone(), limit.window, limit.requests))
        .collect();
    assert_eq!(
        limits,
        [
            ("each-key", Scope::Org, Per::Key, Window::Minute, Some(9)),
            ("each-user", Scope::Org, Per::User, Window::Hour, Some(5)),
            ("users-of-r", Scope::Model, Per::User, Window::Day, Some(3)),
        ]
    );
    let status = |path: &str| finding(&import, path).status;
    assert_eq!(status("global.rate-limit.per-end-user.capacity"), Status::Approximate);
    assert_eq!(status("global.rate-limit.per-end-user.refill-frequency"), Status::Exact);
    assert_eq!(status("routers.r.rate-limit.per-end-user"), Status::Manual);
    assert_all_named(&import, &Value::Object(parse::yaml(source).unwrap()));
}

fn sources() -> [(Source, Value); 5] {
    let yaml = |text: &str| Value::Object(parse::yaml(text).unwrap());
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    [
        (Source::Litellm, yaml(LITELLM)),
        (Source::Portkey, json(PORTKEY)),
        (Source::Openrouter, json(OPENROUTER)),
        (Source::Helicone, yaml(HELICONE)),
        (
            Source::Litellm,
            json!({"model_list": [{"model_name": "a", "litellm_params": {"model": "openai/a"}}]}),
        ),
    ]
}

#[test]
fn every_field_of_the_examples_is_named() {
    for (source, value) in sources() {
        // JSON is YAML.
        assert_all_named(&imported(source, &value.to_string()), &value);
    }
}

fn any_value() -> BoxedStrategy<Value> {
    let leaf = proptest::prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 24, 4, |inner| {
        proptest::prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{1,8}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    value.boxed()
}

/// Replaces or adds a value somewhere in an object.
fn changed(value: &mut Value, steps: &[u8], name: &str, new: Value) {
    let Some((step, steps)) = steps.split_first() else {
        match value {
            Value::Object(fields) => drop(fields.insert(name.to_owned(), new)),
            Value::Array(items) => items.push(new),
            other => *other = new,
        }
        return;
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let index = usize::from(*step) % fields.len();
            if let Some((_, inner)) = fields.iter_mut().nth(index) {
                changed(inner, steps, name, new);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let index = usize::from(*step) % items.len();
            changed(&mut items[index], steps, name, new);
        }
        other => changed(other, &[], name, new),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever is added or replaced in a source is named in a finding, and every planned model can be saved.
    #[test]
    fn nothing_is_lost(
        which in 0..5_usize,
        steps in prop::collection::vec(any::<u8>(), 0..6),
        name in "[a-z_]{1,12}",
        new in any_value(),
    ) {
        let (source, mut value) = sources()[which].clone();
        changed(&mut value, &steps, &name, new);
        // A root that is no object, or one without the lists of its product, is refused or is another form.
        let Ok(import) = plan(source, &value.to_string(), &environment) else { return Ok(()) };
        let mut paths = Vec::new();
        leaves("", &value, &mut paths);
        for path in paths.iter().filter(|_| value.is_object()) {
            prop_assert!(is_named(&import, path), "no finding about {path} of {value}");
        }
        for planned in &import.plan.models {
            let checked = planned.definition.clone().checked(&planned.name, &|_| true);
            prop_assert!(checked.is_ok(), "{checked:?}");
        }
    }

    #[test]
    fn no_text_breaks_an_importer(text in "[ -~\\n]{0,200}", which in 0..5_usize) {
        let _ = plan(Source::ALL[which], &text, &environment);
    }

    #[test]
    fn no_dump_breaks_the_reader(rows in "[(',);\\\\NVALUES\t\n{}\"a-f0-9 :]{0,200}") {
        let head = "INSERT INTO \"LiteLLM_VerificationToken\" (token, models) VALUES ";
        let _ = plan(Source::LitellmKeys, &format!("{head}{rows}"), &environment);
        let copy = "COPY public.\"LiteLLM_VerificationToken\" (token, models) FROM stdin;\n";
        let _ = plan(Source::LitellmKeys, &format!("{copy}{rows}"), &environment);
    }
}
