//! Tests of key scopes: how they are read, what they allow, and how several combine.

use proptest::prelude::*;

use super::*;

#[test]
fn scopes_within_bounds_reach_nothing_beyond_them() {
    let is_within = |scopes: &[&str], bounds: &[&str]| {
        Scopes::parse(scopes).unwrap().is_within(&Scopes::parse(bounds).unwrap())
    };
    for (scopes, bounds, expected) in [
        (&["*"][..], &["*"][..], true),
        (&["proxy"], &["*"], true),
        (&["*"], &["proxy"], false),
        (&["proxy"], &["proxy"], true),
        (&["model:gpt-4o"], &["model:gpt-*"], true),
        (&["model:gpt-*"], &["model:gpt-4o"], false),
        (&["model:*"], &["model:gpt-*"], false),
        (&["provider:openai", "model:gpt-4o"], &["provider:openai", "model:gpt-*"], true),
        // Without a model, all models of the provider would be allowed.
        (&["provider:openai"], &["provider:openai", "model:gpt-*"], false),
        (&["model:gpt-4o"], &["provider:openai", "model:gpt-*"], false),
        (&["provider:openai"], &["provider:openai"], true),
        (&["read"], &["proxy"], false),
        (&["read"], &["proxy", "read"], true),
        (&["read"], &["read", "model:a"], true),
    ] {
        assert_eq!(is_within(scopes, bounds), expected, "{scopes:?} within {bounds:?}");
    }
}

#[test]
fn a_named_model_needs_its_name_and_all_its_providers() {
    for (scopes, allowed) in [
        (&["*"][..], true),
        (&["proxy"], true),
        (&["read"], false),
        (&["model:smart"], true),
        (&["model:sm*"], true),
        (&["model:gpt-4o"], false),
        (&["provider:openai"], false),
        (&["provider:openai", "provider:groq"], true),
        (&["provider:openai", "provider:groq", "model:smart"], true),
        (&["provider:openai", "model:smart"], false),
    ] {
        let scopes = Scopes::parse(scopes).unwrap();
        let providers = ["openai", "groq"].into_iter();
        assert_eq!(scopes.allow_named("smart", providers), allowed, "{scopes:?}");
    }
}

#[test]
fn several_scopes_combine_by_kind() {
    let cases: &[(&[&str], &str, Option<&str>, bool)] = &[
        (&["*"], "openai", None, true),
        (&["provider:openai"], "openai", Some("gpt-4o"), true),
        (&["provider:openai"], "openai", None, true),
        (&["provider:openai"], "anthropic", Some("gpt-4o"), false),
        (&["provider:openai", "provider:anthropic"], "anthropic", None, true),
        (&["model:gpt-4o"], "azure-openai", Some("gpt-4o"), true),
        (&["model:gpt-4o"], "openai", Some("gpt-4o-mini"), false),
        (&["model:gpt-4o"], "openai", None, false),
        (&["model:gpt-4o*"], "openai", Some("gpt-4o-mini"), true),
        (&["model:*"], "openai", Some("x"), true),
        (&["model:*"], "openai", None, false),
        (&["provider:openai", "model:gpt-4o"], "openai", Some("gpt-4o"), true),
        (&["provider:openai", "model:gpt-4o"], "openai", Some("o1"), false),
        (&["provider:openai", "model:gpt-4o"], "groq", Some("gpt-4o"), false),
        (&["provider:openai", "*"], "groq", None, true),
        (&["proxy"], "groq", None, true),
        (&["proxy", "model:gpt-4o"], "groq", None, true),
        (&["read"], "openai", Some("gpt-4o"), false),
        (&["read"], "openai", None, false),
        (&["read", "proxy"], "openai", None, true),
        (&["read", "provider:openai"], "openai", None, true),
        (&["read", "provider:openai"], "groq", None, false),
    ];
    for (texts, provider, model, expected) in cases {
        let scopes = Scopes::parse(texts).unwrap();
        assert_eq!(scopes.allow(provider, *model), *expected, "{texts:?} {provider} {model:?}");
    }
}

#[test]
fn mcp_scopes_allow_servers_and_tools_and_nothing_else() {
    for (texts, server, tool, expected) in [
        (&["*"][..], "git", "a", true),
        (&["mcp:git"], "git", "a", true),
        (&["mcp:git"], "other", "a", false),
        (&["mcp:g*"], "git", "a", true),
        (&["mcp:git/get_*"], "git", "get_user", true),
        (&["mcp:git/get_*"], "git", "delete", false),
        (&["mcp:git/a", "mcp:other"], "git", "b", false),
        (&["proxy"], "git", "a", false),
        (&["read", "model:a"], "git", "a", false),
    ] {
        let scopes = Scopes::parse(texts).unwrap();
        assert_eq!(scopes.allow_tool(server, tool), expected, "{texts:?} {server}/{tool}");
        assert_eq!(Vec::<String>::from(scopes), texts);
    }
    let only = Scopes::parse(&["mcp:git/a"]).unwrap();
    assert!(only.reach_mcp() && only.allow_server("git") && !only.allow_whole_server("git"));
    assert!(!only.allow("openai", Some("gpt-4o")) && !only.allow_provider("openai"));
    assert_eq!((only.max_role(), only.reads_all()), (None, false));
    assert!(!Scopes::parse(&["proxy"]).unwrap().reach_mcp());
    for bad in ["mcp:", "mcp:/a", "mcp:git/", "mcp:g*/a"] {
        assert!(Scopes::parse(&[bad]).is_err(), "{bad}");
    }
    let within = |inner: &str, outer: &str| {
        Scopes::parse(&[inner]).unwrap().is_within(&Scopes::parse(&[outer]).unwrap())
    };
    assert!(within("mcp:git/a", "mcp:git") && within("mcp:git/a", "mcp:git/*") && within("mcp:a", "mcp:*"));
    assert!(!within("mcp:git", "mcp:git/*") && !within("mcp:git/a", "mcp:other"));
}

#[test]
fn unknown_forms_are_rejected() {
    for bad in [
        "",
        "**",
        "all",
        "Proxy",
        "proxy:",
        "read:x",
        "read*",
        "provider",
        "provider:",
        "model:",
        "Provider:x",
        "team:x",
        "model:a b",
    ] {
        assert_eq!(Scopes::parse(&[bad]), Err(InvalidScope::Unknown(bad.to_owned())), "{bad}");
    }
    for bad in ["provider:a b", "provider:a\u{7f}", "model:a\u{7f}", "model:a\u{a0}"] {
        assert_eq!(Scopes::parse(&[bad]), Err(InvalidScope::Unknown(bad.to_owned())), "{bad:?}");
    }
    assert_eq!(Scopes::parse::<&str>(&[]), Err(InvalidScope::Empty));
}

#[test]
fn scopes_are_limited_in_length_and_number() {
    for kind in ["provider", "model"] {
        assert!(Scopes::parse(&[format!("{kind}:{}", "x".repeat(200))]).is_ok());
        let long = format!("{kind}:{}", "x".repeat(201));
        let InvalidScope::Unknown(shown) = Scopes::parse(&[&long]).unwrap_err() else { panic!() };
        assert_eq!(shown, long[..100], "a long text is cut in the message");
    }
    assert!(Scopes::parse(&["model:a"; 100]).is_ok());
    assert_eq!(Scopes::parse(&["model:a"; 101]), Err(InvalidScope::TooMany));
}

#[test]
fn full_access_is_one_star_among_the_scopes() {
    let is_all = |texts: &[&str]| Scopes::parse(texts).unwrap().is_all();
    assert!(Scopes::all().is_all() && is_all(&["*"]) && is_all(&["model:a", "*"]));
    assert!(!is_all(&["model:*", "provider:*"]));
    assert_eq!(Vec::<String>::from(Scopes::all()), ["*"]);
}

#[test]
fn the_model_must_be_known_if_a_scope_names_one() {
    for (texts, expected) in [
        (&["model:a"][..], true),
        (&["provider:a", "model:a*"], true),
        (&["provider:a"], false),
        (&["*"], false),
        (&["model:a", "*"], false),
        (&["model:a", "proxy"], false),
        (&["model:a", "read"], true),
        (&["read"], false),
    ] {
        assert_eq!(Scopes::parse(texts).unwrap().names_models(), expected, "{texts:?}");
    }
}

#[test]
fn scopes_decide_on_the_role_and_on_what_is_read() {
    for (texts, role, reads_all) in [
        (&["*"][..], Some(Role::Admin), true),
        (&["*", "proxy"], Some(Role::Admin), true),
        (&["proxy"], None, false),
        (&["read"], Some(Role::Viewer), true),
        (&["proxy", "read"], Some(Role::Viewer), true),
        (&["provider:a"], Some(Role::Member), false),
        (&["model:a", "proxy"], Some(Role::Member), false),
        (&["model:a", "read"], Some(Role::Member), true),
    ] {
        let scopes = Scopes::parse(texts).unwrap();
        assert_eq!((scopes.max_role(), scopes.reads_all()), (role, reads_all), "{texts:?}");
    }
}

#[test]
fn scopes_read_back_as_they_were_written() {
    let texts = ["provider:openai", "model:gpt-4o*", "model:a:b", "proxy", "read"];
    assert_eq!(Vec::<String>::from(Scopes::parse(&texts).unwrap()), texts);
    let json = r#"["provider:openai","model:gpt-4o*"]"#;
    let scopes: Scopes = serde_json::from_str(json).unwrap();
    assert!(scopes.allow("openai", Some("gpt-4o-mini")) && !scopes.allow("groq", Some("gpt-4o-mini")));
    assert_eq!(serde_json::to_string(&scopes).unwrap(), json);
    for bad in ["[]", r#"["all"]"#, r#""*""#] {
        assert!(serde_json::from_str::<Scopes>(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_request_matches_one_scope_of_each_kind(
        texts in prop::collection::vec("\\*|proxy|read|(provider|model):([ab]{1,2}\\*?|\\*)", 1..5),
        provider in "[ab]{1,3}",
        model in prop::option::of("[ab]{1,3}"),
    ) {
        let fits = |kind: &str, name: Option<&str>| {
            let mut patterns = texts.iter().filter_map(|text| text.strip_prefix(kind)).peekable();
            patterns.peek().is_none()
                || patterns.any(|pattern| name.is_some_and(|name| match pattern.split_once('*') {
                    Some((start, _)) => name.starts_with(start),
                    None => name == pattern,
                }))
        };
        let all = texts.iter().any(|text| text == "*" || text == "proxy");
        let reads_only = texts.iter().all(|text| text == "read");
        let by_provider = all || (!reads_only && fits("provider:", Some(&provider)));
        let scopes = Scopes::parse(&texts).unwrap();
        prop_assert_eq!(scopes.allow_provider(&provider), by_provider);
        let expected = all || (by_provider && fits("model:", model.as_deref()));
        prop_assert_eq!(scopes.allow(&provider, model.as_deref()), expected);
    }
}
