//! The configuration of LiteLLM.

use std::fmt::Write as _;

use super::*;

#[test]
fn deployments_of_one_name_share_the_calls() {
    let import = litellm(LITELLM);
    let gpt = model(&import, "gpt-4o");
    assert_eq!(
        shape(&gpt.targets),
        "(azure-openai:gpt-4o-eu azure-openai-2:gpt-4o-us) anthropic:claude-sonnet-4-5 context=openai:gpt-4.1"
    );
    assert_eq!(gpt.strategy.mode, Mode::Order);
    let shared = &gpt.targets[0];
    assert_eq!(shared.strategy.as_ref().unwrap().mode, Mode::Weighted);
    let weights: Vec<_> = shared.targets.as_ref().unwrap().iter().map(|target| target.weight).collect();
    assert_eq!(weights, [Some(1_000), Some(333)], "in proportion to rpm");
    assert_eq!((gpt.retries, gpt.timeout_ms), (Some(3), Some(30_000)));
    assert_eq!(gpt.cache.as_ref().unwrap().ttl, Some(600));
}

#[test]
fn injected_cache_marks_become_prompt_caching() {
    let import = litellm(LITELLM);
    assert!(model(&import, "claude").prompt_cache.unwrap().is_auto());
    assert_eq!(model(&import, "gpt-4o").prompt_cache, None);
    let points = "model_list[2].litellm_params.cache_control_injection_points";
    let found = import.findings.iter().find(|finding| finding.path.starts_with(points)).unwrap();
    assert_eq!(found.status, Status::Approximate);
}

#[test]
fn each_endpoint_and_credential_is_a_provider() {
    let import = litellm(LITELLM);
    let providers: Vec<_> = import
        .plan
        .providers
        .iter()
        .map(|provider| {
            let key = provider.api_key.as_ref().map(|key| key.expose().to_owned());
            (provider.name.as_str(), provider.base_url.as_deref(), provider.path_prefix.as_deref(), key)
        })
        .collect();
    let key = |name: &str| Some(format!("value-of-{name}"));
    assert_eq!(
        providers,
        [
            ("azure-openai", Some("https://eu.openai.azure.com"), None, key("AZURE_EU_KEY")),
            ("azure-openai-2", Some("https://us.openai.azure.com"), None, key("AZURE_US_KEY")),
            ("anthropic", None, None, key("ANTHROPIC_API_KEY")),
            ("openai", None, None, Some("sk-in-the-file".to_owned())),
            ("vllm", Some("http://10.0.0.5:8000"), None, key("VLLM_API_KEY")),
            ("openai-2", Some("https://host.example/serving"), Some(""), Some("none".to_owned())),
            (
                "bedrock",
                Some("https://bedrock-runtime.eu-west-1.amazonaws.com"),
                None,
                key("AWS_ID").map(|id| { format!("{id}:value-of-AWS_SECRET") })
            ),
        ]
    );
    let headers: Vec<_> = import.plan.providers[5].headers.keys().map(String::as_str).collect();
    assert_eq!(headers, ["x-team"]);
}

#[test]
fn without_the_environment_its_values_are_stored_by_hand() {
    let import = plan(Source::Litellm, LITELLM, &no_environment).unwrap();
    assert_eq!(finding(&import, "model_list[0].litellm_params.api_key").status, Status::Manual);
    assert!(import.plan.providers.iter().all(|provider| {
        provider.api_key.as_ref().is_none_or(|key| !key.expose().starts_with("os.environ/"))
    }));
    // An address that is not known is never replaced by the provider's own.
    let text = "model_list: [{model_name: a, litellm_params: {model: openai/a, api_base: os.environ/BASE, api_key: k}}]";
    let import = plan(Source::Litellm, text, &no_environment).unwrap();
    assert!(import.plan.models.is_empty() && import.plan.providers.is_empty());
    assert_eq!(finding(&import, "model_list[0].litellm_params.api_base").status, Status::Manual);
}

#[test]
fn wildcards_orders_aliases_and_prices() {
    let import = litellm(LITELLM);
    assert_eq!(shape(&model(&import, "anthropic/*").targets), "anthropic:*");
    assert_eq!(shape(&model(&import, "local").targets), "vllm:llama-3.1-8b openai-2:llama");
    assert_eq!(model(&import, "local").strategy.mode, Mode::Order);
    let alias = shape(&model(&import, "gpt-4").targets);
    assert_eq!(alias, "azure-openai:gpt-4o-eu azure-openai-2:gpt-4o-us", "fallbacks are those of the name");
    assert!(model(&import, "gpt-4").hidden);
    let price = model(&import, "gpt-4.1").price.clone().unwrap();
    assert!((price.input_per_mtok - 2.0).abs() < 1e-9 && (price.output_per_mtok - 8.0).abs() < 1e-9);
    let local = &model(&import, "local").targets;
    assert_eq!(local[0].defaults, Some(Map::from_iter([("temperature".to_owned(), json!(0.2))])));
    assert_eq!(local[1].params, Some(Map::from_iter([("guided_decoding".to_owned(), json!(true))])));
}

#[test]
fn fallbacks_follow_fallbacks_and_end() {
    let import = litellm(
        "
model_list:
  - {model_name: a, litellm_params: {model: openai/a, api_key: k}}
  - {model_name: b, litellm_params: {model: openai/b, api_key: k}}
  - {model_name: 'c/*', litellm_params: {model: 'groq/*', api_key: k}}
router_settings:
  fallbacks: [{a: [b, unknown]}, {b: [a, c/x]}]
  default_fallbacks: [a]
  routing_strategy: latency-based-routing
",
    );
    assert_eq!(shape(&model(&import, "a").targets), "openai:a openai:b groq:x");
    assert_eq!(shape(&model(&import, "b").targets), "openai:b openai:a groq:x");
    assert_eq!(shape(&model(&import, "c/*").targets), "groq:* openai:a openai:b groq:x");
    assert_eq!(finding(&import, "router_settings.fallbacks").status, Status::Approximate);
    assert_eq!(finding(&import, "router_settings.fallbacks[0].a[1]").status, Status::Manual);
    assert_eq!(finding(&import, "router_settings.routing_strategy").status, Status::Exact);
}

#[test]
fn fallbacks_are_looked_up_by_the_name_of_the_call() {
    let import = litellm(
        "
model_list:
  - {model_name: a, litellm_params: {model: openai/a, api_key: k}}
  - {model_name: b, litellm_params: {model: openai/b, api_key: k}}
  - {model_name: c, litellm_params: {model: openai/c, api_key: k}}
  - {model_name: z, litellm_params: {model: openai/z, api_key: k}}
  - {model_name: 'wild/*', litellm_params: {model: 'groq/*', api_key: k}}
router_settings:
  model_group_alias: {of-a: a, of-b: b}
  fallbacks: [{a: [b, c]}, {of-b: [c]}, {'wild/*': [a]}, {wild/x: [c]}, {nobody: [a]}]
  content_policy_fallbacks: [{wild/y: [b]}]
litellm_settings:
  default_fallbacks: [z]
",
    );
    let of = |name: &str| shape(&model(&import, name).targets);
    assert_eq!(of("a"), "openai:a openai:b openai:c", "the default is not for fallbacks");
    assert_eq!(of("b"), "openai:b openai:z");
    assert_eq!(of("of-a"), "openai:a openai:z", "not those of a");
    assert_eq!(of("of-b"), "openai:b openai:c");
    assert_eq!(of("wild/*"), "groq:* openai:z", "a pattern is no name of a call");
    assert_eq!(of("wild/x"), "groq:x openai:c");
    assert_eq!(of("wild/y"), "groq:y openai:z filter=openai:b");
    assert_eq!(finding(&import, "router_settings.fallbacks[2].wild/*").status, Status::Exact);
    assert_eq!(finding(&import, "router_settings.fallbacks[4].nobody").status, Status::Unsupported);
}

#[test]
fn deployments_of_a_level_share_the_retries() {
    let import = litellm(
        "
model_list:
  - {model_name: pair, litellm_params: {model: openai/a, api_key: k, max_retries: 5}}
  - {model_name: pair, litellm_params: {model: openai/b, api_key: k, num_retries: 3}}
  - {model_name: one, litellm_params: {model: openai/c, api_key: k, max_retries: 0}}
router_settings: {num_retries: 1}
",
    );
    let retries: Vec<_> = model(&import, "pair").targets.iter().map(|target| target.retries).collect();
    assert_eq!(retries, [Some(0), Some(1)]);
    assert_eq!((model(&import, "one").retries, model(&import, "one").targets[0].retries), (Some(1), None));
    assert_eq!(finding(&import, "router_settings.num_retries").status, Status::Approximate);
    assert_eq!(finding(&import, "model_list[0].litellm_params.max_retries").status, Status::Exact);
}

#[test]
fn models_and_addresses_are_those_that_litellm_calls() {
    let import = litellm(
        "
model_list:
  - {model_name: fireworks, litellm_params: {model: fireworks_ai/llama-v3p1-8b-instruct}}
  - {model_name: own, litellm_params: {model: fireworks_ai/accounts/me/models/x}}
  - {model_name: codestral, litellm_params: {model: codestral/codestral-latest}}
  - {model_name: azure, litellm_params: {model: azure/gpt, api_base: 'https://a.example', api_key: k}}
  - {model_name: text, litellm_params: {model: text-completion-openai/t, api_key: k}}
  - {model_name: gemini, litellm_params: {model: gemini/g, api_base: 'https://g.example', api_key: k}}
  - {model_name: gemini-2, litellm_params: {model: gemini/g, api_base: 'https://g.example/v1beta', api_key: k}}
",
    );
    let of = |name: &str| shape(&model(&import, name).targets);
    assert_eq!(of("fireworks"), "fireworks:accounts/fireworks/models/llama-v3p1-8b-instruct");
    assert_eq!(of("own"), "fireworks:accounts/me/models/x");
    let codestral = import.plan.providers.iter().find(|provider| provider.kind == "mistral").unwrap();
    assert_eq!(codestral.base_url.as_deref(), Some("https://codestral.mistral.ai"));
    assert_eq!(codestral.api_key, Some(Secret::new("value-of-CODESTRAL_API_KEY")));
    for (place, field, status) in [
        (3, "model", Status::Approximate),
        (4, "model", Status::Approximate),
        (5, "api_base", Status::Approximate),
        (6, "api_base", Status::Exact),
    ] {
        let path = format!("model_list[{place}].litellm_params.{field}");
        assert_eq!(finding(&import, &path).status, status, "{path}");
    }
}

#[test]
fn anchors_are_expanded_and_bombs_are_refused() {
    let import = litellm(
        "
model_list:
  - &first {model_name: a, litellm_params: &params {model: openai/a, api_key: k, timeout: 5}}
  - {model_name: b, litellm_params: {<<: *params, model: openai/b}}
",
    );
    assert_eq!(model(&import, "b").targets[0].timeout_ms, Some(5_000));
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{below}]").unwrap();
    }
    assert!(matches!(plan(Source::Litellm, &bomb, &no_environment), Err(ImportError::Malformed(_))));
    let long = " ".repeat(MAX_SOURCE_BYTES + 1);
    assert_eq!(plan(Source::Litellm, &long, &no_environment), Err(ImportError::TooLong));
}

#[test]
fn thousands_of_models_are_planned() {
    let entry = |index: usize| {
        format!(
            "  - {{model_name: m{index}, litellm_params: {{model: openai/m{index}, api_key: k{}}}}}\n",
            index % 7
        )
    };
    let text = format!("model_list:\n{}", (0..2_000).map(entry).collect::<String>());
    let import = litellm(&text);
    assert_eq!((import.plan.models.len(), import.plan.providers.len()), (2_000, 7));
}
