//! Tests of definitions: checks, compiled routes, conditions and edits, over tables and random values.

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as Generator;
use serde_json::{Value, json};

use super::*;
use crate::llm::failure::{AttemptOutcome, Refusal};
use crate::route::TargetFacts;

fn definition(value: Value) -> Definition {
    serde_json::from_value(value).unwrap()
}

fn knows(provider: &str) -> bool {
    ["openai", "anthropic", "groq"].contains(&provider)
}

fn checked(name: &str, value: Value) -> Result<Definition, InvalidModel> {
    definition(value).checked(name, &knows)
}

fn compiled(value: Value) -> Model {
    Model::compile(&checked("m*", value).unwrap()).unwrap()
}

fn target(id: &str) -> Value {
    json!({"id": id, "provider": "openai", "model": id})
}

#[derive(Default)]
struct Request {
    metadata: Vec<(&'static str, Scalar)>,
    params: Vec<(&'static str, Scalar)>,
    user: Option<&'static str>,
    key_class: Option<&'static str>,
    input_tokens: u64,
}

impl QueryFacts for Request {
    fn metadata(&self, key: &str) -> Option<Scalar> {
        self.metadata.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    }

    fn param(&self, name: &str) -> Option<Scalar> {
        self.params.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone())
    }

    fn header(&self, name: &str) -> Option<Scalar> {
        (name == "x-tier").then(|| Scalar::Text("gold".into()))
    }

    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn user(&self) -> Option<&str> {
        self.user
    }

    fn key_class(&self) -> Option<&str> {
        self.key_class
    }

    fn input_tokens(&self) -> u64 {
        self.input_tokens
    }
}

fn text(value: &str) -> Scalar {
    Scalar::Text(value.into())
}

/// The ids of the ordinary targets in order, and of those with `when`.
fn selected(model: &Model, request: &Request) -> (Vec<String>, Vec<String>) {
    let Selection { targets, route } = &*model.select(request);
    let order = route.order(&vec![TargetFacts::default(); targets.len()], 0);
    let ids = order.iter().map(|index| targets[*index].id.clone()).collect();
    let reserved = targets.iter().filter(|target| target.when.is_some());
    (ids, reserved.map(|target| target.id.clone()).collect())
}

#[test]
fn names_have_a_rule_and_may_end_in_a_star() {
    for good in ["gpt-4o", "a", "openai/*", "*", "a.b_c:d/e@f-1", "9", &"x".repeat(128)] {
        assert_eq!(check_model_name(good), Ok(()), "{good}");
    }
    for bad in ["", "-a", "/a", "a b", "a*b", "a**", "**", "é", "a?", ".a", &"x".repeat(129)] {
        assert!(check_model_name(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_exact_name_wins_and_then_the_longest_prefix() {
    let names = ["gpt-4o", "*", "openai/*", "openai/gpt-*", "openai/gpt-4o*"];
    let models: NamedModels<&str> = names.iter().map(|name| ((*name).to_owned(), *name)).collect();
    for (requested, expected) in [
        ("gpt-4o", ("gpt-4o", None)),
        ("gpt-4o-mini", ("*", Some("gpt-4o-mini"))),
        ("openai/o3", ("openai/*", Some("o3"))),
        ("openai/gpt-5", ("openai/gpt-*", Some("5"))),
        ("openai/gpt-4o-mini", ("openai/gpt-4o*", Some("-mini"))),
        ("openai/gpt-4o", ("openai/gpt-*", Some("4o"))),
        ("openai/", ("*", Some("openai/"))),
        ("ö", ("*", Some("ö"))),
    ] {
        assert_eq!(models.find(requested).map(|(name, star)| (*name, star)), Some(expected), "{requested}");
    }
    assert!(models.find("").is_none());
    assert!(NamedModels::<()>::default().find("gpt-4o").is_none());
    assert_eq!(models.exact().map(|(name, _)| name).collect::<Vec<_>>(), ["gpt-4o"]);
}

#[test]
fn a_definition_that_cannot_work_is_refused_by_its_field() {
    use Severity::{Malformed, Unroutable};
    let pair = || json!([target("a"), target("b")]);
    let conditional = |conditions: Value, default: Value| {
        json!({
            "strategy": {"mode": "conditional", "conditions": conditions, "default": default},
            "targets": pair(),
        })
    };
    let then = |id: &str| json!({"query": {"user": "x"}, "then": id});
    for (value, field, severity) in [
        (json!({"targets": []}), "targets", Malformed),
        (json!({"targets": vec![target("a"); 11]}), "targets", Malformed),
        (json!({"targets": [{"provider": "nobody", "model": "m"}]}), "targets[0].provider", Unroutable),
        (json!({"targets": [{"provider": "auto", "model": "m"}]}), "targets[0].provider", Unroutable),
        (json!({"targets": [{"model": "m"}]}), "targets[0].provider", Malformed),
        (json!({"targets": [{"provider": "openai"}]}), "targets[0].model", Malformed),
        (json!({"targets": [{"provider": "openai", "model": "a b"}]}), "targets[0].model", Malformed),
        (json!({"targets": [{"provider": "openai", "model": "*"}]}), "targets[0].model", Unroutable),
        (json!({"targets": [target("a"), target("a")]}), "targets[1].id", Unroutable),
        (json!({"targets": [target("a b")]}), "targets[0].id", Malformed),
        (json!({"strategy": {"mode": "single"}, "targets": pair()}), "targets", Unroutable),
        (
            json!({"strategy": {"mode": "weighted"}, "targets": [
                {"provider": "openai", "model": "a", "weight": 0}, {"provider": "openai", "model": "b", "weight": 0},
            ]}),
            "targets",
            Unroutable,
        ),
        (
            json!({"targets": [{"provider": "openai", "model": "a", "weight": 1001}]}),
            "targets[0].weight",
            Malformed,
        ),
        (
            json!({"targets": [{"provider": "openai", "model": "a", "when": "context"}]}),
            "targets",
            Unroutable,
        ),
        (
            json!({"strategy": {"mode": "order", "on": [400]}, "targets": pair()}),
            "strategy.on[0]",
            Unroutable,
        ),
        (
            json!({"strategy": {"mode": "order", "on": [200]}, "targets": pair()}),
            "strategy.on[0]",
            Unroutable,
        ),
        (json!({"strategy": {"mode": "order", "on": []}, "targets": pair()}), "strategy.on", Malformed),
        (conditional(json!([]), json!("a")), "strategy.conditions", Malformed),
        (conditional(json!([then("c")]), json!("a")), "strategy.conditions[0].then", Unroutable),
        (conditional(json!([then("b")]), json!(null)), "strategy.default", Unroutable),
        (conditional(json!([then("b")]), json!("c")), "strategy.default", Unroutable),
        (conditional(json!([then("a")]), json!("a")), "targets[1]", Unroutable),
        (
            conditional(json!([{"query": {}, "then": "b"}]), json!("a")),
            "strategy.conditions[0].query",
            Unroutable,
        ),
        (
            conditional(json!([{"query": {"key.secret": 1}, "then": "b"}]), json!("a")),
            "strategy.conditions[0].query.key.secret",
            Unroutable,
        ),
        (
            conditional(json!([{"query": {"user": {"$regex": "("}}, "then": "b"}]), json!("a")),
            "strategy.conditions[0].query.user.$regex",
            Unroutable,
        ),
        (
            conditional(json!([{"query": {"headers.authorization": "x"}, "then": "b"}]), json!("a")),
            "strategy.conditions[0].query.headers.authorization",
            Unroutable,
        ),
        (
            conditional(json!([{"query": {"headers.x-gateway-key": "x"}, "then": "b"}]), json!("a")),
            "strategy.conditions[0].query.headers.x-gateway-key",
            Unroutable,
        ),
        (
            json!({"strategy": {"mode": "order", "default": "a"}, "targets": pair()}),
            "strategy.conditions",
            Malformed,
        ),
        (json!({"targets": pair(), "retries": 6}), "retries", Malformed),
        (json!({"targets": pair(), "timeout_ms": 0}), "timeout_ms", Malformed),
        (json!({"targets": pair(), "first_byte_timeout_ms": 0}), "first_byte_timeout_ms", Malformed),
        (json!({"targets": pair(), "cache": {"mode": "exact", "ttl": 0}}), "cache.ttl", Malformed),
        (
            json!({"targets": pair(), "prompt_cache": {"mode": "auto", "min_tokens": 0}}),
            "prompt_cache.min_tokens",
            Malformed,
        ),
        (json!({"targets": pair(), "description": "x".repeat(1_001)}), "description", Malformed),
        (
            json!({"targets": pair(), "price": {"input_per_mtok": -1.0, "output_per_mtok": 1}}),
            "price.input_per_mtok",
            Malformed,
        ),
        (
            json!({"targets": [{"provider": "openai", "model": "a", "params": {"stream": true}}]}),
            "targets[0].params.stream",
            Malformed,
        ),
        (json!({"targets": [{"targets": pair(), "model": "m"}]}), "targets[0].model", Malformed),
        (
            json!({"targets": [{"targets": [{"targets": pair()}]}]}),
            "targets[0].targets[0].targets",
            Unroutable,
        ),
        (json!({"targets": [{"targets": []}]}), "targets[0].targets", Malformed),
    ] {
        let error = checked("m", value.clone()).unwrap_err();
        assert_eq!((error.field.as_str(), error.severity), (field, severity), "{value}: {error}");
    }
}

#[test]
fn targets_without_an_id_are_called_by_their_place() {
    let made = checked(
        "m",
        json!({"targets": [
            {"provider": "openai", "model": "a"},
            {"targets": [{"provider": "openai", "model": "b"}, {"id": "mine", "provider": "openai", "model": "c"}]},
        ]}),
    );
    let made = made.unwrap();
    let group = made.targets[1].targets.as_ref().unwrap();
    let ids = [&made.targets[0], &made.targets[1], &group[0], &group[1]].map(|target| target.id.as_deref());
    assert_eq!(ids, [Some("1"), Some("2"), Some("2.1"), Some("mine")]);
    assert_eq!(made.clone().checked("m", &knows), Ok(made), "a checked definition passes again");
}

#[test]
fn the_first_condition_that_matches_chooses_alone() {
    let model = compiled(json!({
        "strategy": {
            "mode": "conditional",
            "conditions": [
                {"query": {"metadata.plan": {"$eq": "paid"}, "input_tokens": {"$gt": 100}}, "then": "big"},
                {"query": {"$or": [{"user": {"$in": ["ada", "bob"]}}, {"params.temperature": {"$lte": 0.2}}]}, "then": "team"},
                {"query": {"headers.X-Tier": {"$regex": "^(gold|silver)$"}, "path": "/v1/chat/completions"}, "then": "tier"},
            ],
            "default": "rest",
        },
        "targets": [target("big"), {"id": "team", "targets": [target("t1"), target("t2")]}, target("tier"), target("rest")],
    }));
    assert!(model.needs_body());
    let paid = || vec![("plan", text("paid"))];
    for (request, expected) in [
        (Request { metadata: paid(), input_tokens: 101, ..Request::default() }, &["big"][..]),
        (
            Request { metadata: paid(), input_tokens: 100, user: Some("ada"), ..Request::default() },
            &["t1", "t2"],
        ),
        (Request { params: vec![("temperature", Scalar::Number(0.2))], ..Request::default() }, &["t1", "t2"]),
        (Request { user: Some("eve"), ..Request::default() }, &["tier"]),
    ] {
        assert_eq!(selected(&model, &request).0, expected);
    }
}

#[test]
fn operators_compare_as_people_expect() {
    let holds = |query: Value, request: &Request| {
        let value = json!({
            "strategy": {"mode": "conditional", "conditions": [{"query": query, "then": "a"}], "default": "b"},
            "targets": [target("a"), target("b")],
        });
        selected(&compiled(value), request).0 == ["a"]
    };
    let request = Request {
        metadata: vec![("n", text("12")), ("flag", text("true")), ("s", text("abc"))],
        key_class: Some("prod"),
        ..Request::default()
    };
    for (query, expected) in [
        (json!({"metadata.n": 12}), true),
        (json!({"key.class": "prod"}), true),
        (json!({"key.class": {"$in": ["batch", "dev"]}}), false),
        (json!({"metadata.n": {"$gt": 11.5, "$lt": 12.5}}), true),
        (json!({"metadata.n": {"$gte": 13}}), false),
        (json!({"metadata.flag": true}), true),
        (json!({"metadata.s": {"$ne": "abc"}}), false),
        (json!({"metadata.absent": {"$ne": "abc"}}), true),
        (json!({"metadata.absent": {"$nin": ["a"]}}), true),
        (json!({"metadata.absent": {"$in": ["a"]}}), false),
        (json!({"metadata.absent": {"$lt": 1}}), false),
        (json!({"metadata.s": {"$nin": ["a", "abc"]}}), false),
        (json!({"metadata.s": {"$regex": "b"}}), true),
        (json!({"$and": [{"metadata.n": 12}, {"metadata.s": "abc"}]}), true),
        (json!({"$and": [{"metadata.n": 12}, {"metadata.s": "abd"}]}), false),
    ] {
        assert_eq!(holds(query.clone(), &request), expected, "{query}");
    }
}

#[test]
fn targets_with_when_are_apart_from_the_order() {
    let model = compiled(json!({"targets": [
        {"id": "long", "provider": "openai", "model": "x", "when": "context"},
        target("a"),
        {"id": "safe", "when": "content_filter", "targets": [target("s1"), target("s2")]},
        target("b"),
    ]}));
    let (ordinary, reserved) = selected(&model, &Request::default());
    assert_eq!(
        (ordinary, reserved),
        (vec!["a".into(), "b".into()], vec!["long".into(), "s1".into(), "s2".into()])
    );
    let whens: Vec<_> = model.targets().iter().map(|target| target.when).collect();
    let filter = Some(Refusal::ContentFilter);
    assert_eq!(whens, [Some(Refusal::Context), None, filter, filter, None]);
    assert!(!model.needs_body());
}

#[test]
fn causes_narrow_what_another_target_is_tried_after() {
    let model = compiled(json!({
        "strategy": {"mode": "order", "on": [429, "timeout", "context"]},
        "targets": [
            target("a"),
            {"id": "g", "strategy": {"mode": "order", "on": ["5xx", "connect", "content_filter"]}, "targets": [target("b")]},
        ],
    }));
    let status = |code| AttemptOutcome::Status { code };
    let refused = AttemptOutcome::Refused;
    for (outcome, outer, inner) in [
        (status(429), true, false),
        (status(408), true, false),
        (AttemptOutcome::Timeout, true, false),
        (status(500), false, true),
        (status(529), false, true),
        (status(404), false, false),
        (AttemptOutcome::Connect, false, true),
        (AttemptOutcome::Reset, false, true),
        (AttemptOutcome::StreamError, false, true),
        (AttemptOutcome::InvalidResponse, false, true),
        (refused(Refusal::Context), true, false),
        (refused(Refusal::ContentFilter), false, true),
        (AttemptOutcome::Untranslatable, true, true),
    ] {
        let of = |index: usize| model.targets()[index].falls_back_after(outcome);
        assert_eq!((of(0), of(1)), (Some(outer), Some(inner)), "{outcome:?}");
    }
    let usual = compiled(json!({"targets": [target("a")]}));
    assert_eq!(usual.targets()[0].falls_back_after(status(500)), None);
}

#[test]
fn limits_of_a_target_come_before_those_of_the_model() {
    let model = compiled(json!({
        "targets": [target("a"), {"provider": "openai", "model": "pre/*", "retries": 0, "timeout_ms": 5}],
        "retries": 3, "timeout_ms": 70, "first_byte_timeout_ms": 9,
        "price": {"input_per_mtok": 0.1, "output_per_mtok": 2},
    }));
    let [a, b] = model.targets() else { panic!() };
    let ms = std::time::Duration::from_millis;
    assert_eq!((a.retries, a.timeout, a.first_byte_timeout), (Some(3), Some(ms(70)), Some(ms(9))));
    assert_eq!((b.retries, b.timeout, b.first_byte_timeout), (Some(0), Some(ms(5)), Some(ms(9))));
    assert_eq!((b.model(Some("x")), a.model(Some("x"))), ("pre/x".to_owned(), "a".to_owned()));
    let price = model.price.unwrap();
    assert_eq!(price.input_per_mtok, Some("0.1".parse().unwrap()));
    assert_eq!((price.output_per_mtok, price.cache_read_per_mtok), (Some(2.into()), None));
}

#[test]
fn params_replace_and_defaults_fill_in() {
    let edits = |params: Value, defaults: Value| BodyEdits::new(params.as_object(), defaults.as_object());
    let both = edits(json!({"temperature": 0, "user": "u"}), json!({"seed": 7, "top_p": 0.5}));
    let body = br#"{ "model":"m", "temperature":1.0, "top_p":1, "messages":[{"content":"\u0041"}] }"#;
    assert_eq!(
        String::from_utf8(both.apply(body).unwrap()).unwrap(),
        r#"{"model":"m","top_p":1,"messages":[{"content":"\u0041"}],"seed":7,"temperature":0,"user":"u"}"#
    );
    assert_eq!(edits(json!({}), json!({})).apply(b"{}").unwrap(), b"{}");
    assert!(edits(json!({}), json!(null)).is_empty() && !both.is_empty());
    for bad in [&b"[]"[..], b"", b"{", b"{} x", b"\xff"] {
        assert_eq!(both.apply(bad), None);
    }
    let limits = edits(json!({"max_tokens": 50}), json!({"n": 3}));
    assert_eq!((limits.max_tokens(None), limits.max_tokens(Some(70))), (Some(50), Some(70)));
    assert_eq!((limits.choices(None), limits.choices(Some(4))), (Some(3), Some(4)));
}

fn arbitrary_targets() -> impl Generator<Value = Vec<(u32, bool, usize)>> {
    // Weight, whether it serves only one failure, and how many members it has as a group.
    prop::collection::vec((0..4_u32, any::<bool>(), 0..4_usize), 1..7)
}

fn arbitrary_definition() -> impl Generator<Value = Value> {
    let modes = prop::sample::select(vec!["order", "weighted", "cheapest", "fastest", "single"]);
    (modes.clone(), modes, arbitrary_targets()).prop_map(|(mode, inner, list)| {
        let targets: Vec<Value> = list
            .iter()
            .enumerate()
            .map(|(index, (weight, reserved, members))| {
                let mut value = match members {
                    0 => target(&format!("t{index}")),
                    members => {
                        let members: Vec<Value> =
                            (0..*members).map(|member| target(&format!("t{index}.{member}"))).collect();
                        json!({"id": format!("t{index}"), "strategy": {"mode": inner}, "targets": members})
                    }
                };
                value["weight"] = json!(weight);
                if *reserved {
                    value["when"] = json!("context");
                }
                value
            })
            .collect();
        json!({"strategy": {"mode": mode}, "targets": targets})
    })
}

proptest! {
    /// Whatever is accepted selects every target exactly once, either in the order or for its failure.
    #[test]
    fn an_accepted_definition_loses_no_target(value in arbitrary_definition(), seed: u64) {
        let Ok(accepted) = checked("m", value.clone()) else { return Ok(()) };
        let stored = serde_json::to_string(&accepted).unwrap();
        let model = Model::compile(&serde_json::from_str(&stored).unwrap()).unwrap();
        let Selection { targets, route } = &*model.select(&Request::default());
        let mut order = route.order(&vec![TargetFacts::default(); targets.len()], seed);
        let ordinary = targets.iter().filter(|target| target.when.is_none()).count();
        prop_assert!(ordinary > 0);
        prop_assert!(targets[..ordinary].iter().all(|target| target.when.is_none()));
        order.sort_unstable();
        prop_assert_eq!(order, (0..ordinary).collect::<Vec<_>>());
        let mut ids: Vec<&str> = targets.iter().map(|target| target.id.as_str()).collect();
        let mut all: Vec<&str> = model.targets().iter().map(|target| target.id.as_str()).collect();
        ids.sort_unstable();
        all.sort_unstable();
        prop_assert_eq!(ids, all);
    }

    /// No text is a definition that panics, and what is read is written as the same.
    #[test]
    fn any_value_is_accepted_or_refused(text in "[\\PC]{0,40}", number: i64) {
        let value = json!({"targets": [{"provider": text, "model": text, "id": text}], "timeout_ms": number});
        if let Ok(read) = serde_json::from_value::<Definition>(value)
            && let Ok(accepted) = read.checked(&text, &|_| true)
        {
            let again: Definition = serde_json::from_str(&serde_json::to_string(&accepted).unwrap()).unwrap();
            prop_assert_eq!(again, accepted);
        }
        let _ = serde_json::from_str::<Definition>(&text);
    }

    /// The longest matching prefix is found like a search through all of them.
    #[test]
    fn the_longest_prefix_wins(names in prop::collection::hash_set("[ab]{0,4}", 0..8), requested in "[ab]{0,6}") {
        let models: NamedModels<String> =
            names.iter().map(|name| (format!("{name}*"), name.clone())).collect();
        let expected = names
            .iter()
            .filter(|name| requested.starts_with(name.as_str()) && requested.len() > name.len())
            .max_by_key(|name| name.len());
        let found = models.find(&requested);
        prop_assert_eq!(found.map(|(name, _)| name), expected);
        if let Some((name, star)) = found {
            prop_assert_eq!(format!("{name}{}", star.unwrap()), requested);
        }
    }

    /// Edited bodies stay valid JSON with the parameters in them.
    #[test]
    fn edits_keep_a_body_valid(keys in prop::collection::vec("[\\PC]{0,6}", 0..6), value: f64, set in "[a-z\"\\\\]{1,4}") {
        let body: serde_json::Map<String, Value> = keys.into_iter().map(|key| (key, json!(value))).collect();
        let edits = BodyEdits::new(json!({set.clone(): [1, "x"]}).as_object(), None);
        let edited: Value = serde_json::from_slice(&edits.apply(json!(body).to_string().as_bytes()).unwrap()).unwrap();
        prop_assert_eq!(&edited[&set], &json!([1, "x"]));
        for (key, value) in &body {
            prop_assert!(*key == set || edited[key] == *value);
        }
    }
}

#[test]
fn patterns_are_bounded_in_size_and_counted() {
    let query = |value: Value| value.as_object().unwrap().clone();
    let parsed = |value: Value| condition::Query::parse(&query(value));
    assert!(parsed(json!({"user": {"$regex": "\\w{500}"}})).is_err(), "the compiled pattern is too large");
    assert!(parsed(json!({"user": {"$regex": "^\\w+@\\w+$"}})).is_ok());
    let both = parsed(json!({"$or": [{"user": {"$regex": "a"}}, {"path": {"$regex": "b"}}, {"path": "c"}]}));
    assert_eq!(both.unwrap().patterns(), 2);
}

#[test]
fn a_pattern_is_compiled_when_it_is_first_matched() {
    let query =
        json!({"metadata.a": "x", "$or": [{"user": {"$regex": "^ada$"}}, {"path": {"$regex": "^/v1/"}}]});
    let query = query.as_object().unwrap();
    let parsed = condition::Query::parse_checked(query).unwrap();
    assert_eq!((parsed.patterns(), parsed.compiled_patterns()), (2, 0));
    assert!(!parsed.matches(&Request::default()));
    assert_eq!(parsed.compiled_patterns(), 0, "another condition decided");
    let metadata = vec![("a", text("x"))];
    assert!(parsed.matches(&Request { metadata, user: Some("ada"), ..Request::default() }));
    assert_eq!(parsed.compiled_patterns(), 1, "the first alternative decided");
    let metadata = vec![("a", text("x"))];
    assert!(parsed.matches(&Request { metadata, ..Request::default() }));
    assert_eq!(parsed.compiled_patterns(), 2);
    let invalid = json!({"user": {"$regex": "("}});
    let invalid = condition::Query::parse_checked(invalid.as_object().unwrap()).unwrap();
    assert!(!invalid.matches(&Request { user: Some("("), ..Request::default() }));
    assert!(condition::Query::parse(json!({"user": {"$regex": "("}}).as_object().unwrap()).is_err());
}
