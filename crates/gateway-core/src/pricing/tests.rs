//! Costs worked out by hand, names that must and names that must not find a price, and files with mistakes.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

fn table() -> &'static PriceTable {
    static BUILTIN: LazyLock<PriceTable> = LazyLock::new(|| PriceTable::builtin().unwrap());
    &BUILTIN
}

fn dollars(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn costs(provider: &str, model: &str, usage: &Usage) -> Decimal {
    let price = table().find(provider, model).unwrap_or_else(|| panic!("no price for {provider} {model}"));
    cost(price, usage).unwrap()
}

#[test]
fn every_built_in_provider_with_prices_is_in_the_table() {
    let table = table();
    assert!(table.rows().len() > 1300);
    for provider in [
        "openai",
        "anthropic",
        "gemini",
        "azure-openai",
        "bedrock",
        "vertex",
        "mistral",
        "cohere",
        "groq",
        "together",
        "fireworks",
        "deepseek",
        "xai",
        "perplexity",
        "openrouter",
        "cerebras",
    ] {
        assert!(table.providers.get(provider).is_some_and(|models| !models.is_empty()), "{provider}");
    }
}

#[test]
fn each_class_is_priced_once_at_its_own_rate() {
    // gpt-4o: 2.5 in, 1.25 cached, 10 out. 86 * 2.5 + 1920 * 1.25 + 300 * 10 = 5615 millionths.
    let usage = Usage { input: 86, cache_read: 1920, output: 108, reasoning: 192, ..Usage::default() };
    assert_eq!(costs("openai", "gpt-4o", &usage), dollars("0.005615"));
    // claude-sonnet-4-5: 3 in, 0.3 read, 3.75 written, 6 for an hour, 15 out:
    // 30 + 600 + 375 + 1200 + 1335 = 3540 millionths.
    let written = Usage { cache_write: 100, cache_write_1h: 200, ..Usage::default() };
    let usage = Usage { input: 10, cache_read: 2000, output: 89, ..written };
    assert_eq!(costs("anthropic", "claude-sonnet-4-5", &usage), dollars("0.00354"));
    // gemini-2.5-flash: 0.3 in, 0.03 cached, 2.5 out and reasoning, 1 for audio: 12 + 1.8 + 62.5 + 100 + 7.
    let usage =
        Usage { input: 40, cache_read: 60, output: 25, reasoning: 40, audio_input: 7, ..Usage::default() };
    assert_eq!(costs("gemini", "gemini-2.5-flash", &usage), dollars("0.0001833"));
    // gpt-4o-audio-preview: 2.5 and 10 for text, 40 and 80 for audio: 25 + 100 + 400 + 800.
    let usage = Usage { input: 10, output: 10, audio_input: 10, audio_output: 10, ..Usage::default() };
    assert_eq!(costs("openai", "gpt-4o-audio-preview", &usage), dollars("0.001325"));
}

#[test]
fn a_class_without_a_rate_pays_that_of_the_class_it_belongs_to() {
    let price = Price {
        input_per_mtok: Some(dollars("2")),
        output_per_mtok: Some(dollars("8")),
        cache_write_per_mtok: Some(dollars("3")),
        ..Price::default()
    };
    for (usage, expected) in [
        (Usage { cache_read: 1, ..Usage::default() }, "0.000002"),
        (Usage { cache_write_1h: 1, ..Usage::default() }, "0.000003"),
        (Usage { audio_input: 1, ..Usage::default() }, "0.000002"),
        (Usage { reasoning: 1, ..Usage::default() }, "0.000008"),
        (Usage { audio_output: 1, ..Usage::default() }, "0.000008"),
        (Usage::default(), "0"),
    ] {
        assert_eq!(cost(&price, &usage), Some(dollars(expected)), "{usage:?}");
    }
}

#[test]
fn a_reasoning_rate_of_its_own_is_used() {
    let price = Price {
        input_per_mtok: Some(dollars("2")),
        output_per_mtok: Some(dollars("8")),
        reasoning_per_mtok: Some(dollars("3")),
        ..Price::default()
    };
    // 33 and 20016 in, 7163 out, 73997 reasoning: 40098 + 57304 + 221991 millionths.
    let usage = Usage { input: 20049, output: 7163, reasoning: 73997, ..Usage::default() };
    assert_eq!(cost(&price, &usage), Some(dollars("0.319393")));
}

#[test]
fn a_long_prompt_puts_the_whole_request_on_the_higher_rates() {
    // gemini-2.5-pro: 1.25 in, 0.125 cached, 10 out; above 200k 2.5 and 15, so 0.25 cached.
    let short = Usage { input: 100_000, cache_read: 100_000, output: 10, ..Usage::default() };
    assert_eq!(costs("gemini", "gemini-2.5-pro", &short), dollars("0.1376"));
    let long = Usage { cache_read: 100_001, ..short };
    assert_eq!(costs("gemini", "gemini-2.5-pro", &long), dollars("0.27515025"));
    // A model without higher rates stays on its own.
    let usage = Usage::from_totals(300_000, 0);
    assert_eq!(costs("openai", "gpt-4o", &usage), dollars("0.75"));
}

#[test]
fn a_rate_does_not_rise_in_proportion_to_a_free_one() {
    let price = Price {
        input_per_mtok: Some(Decimal::ZERO),
        input_above_200k_per_mtok: Some(dollars("2")),
        cache_read_per_mtok: Some(dollars("1")),
        ..Price::default()
    };
    let long = Usage { cache_read: 1_000_000, ..Usage::default() };
    assert_eq!(cost(&price, &long), Some(dollars("1")));
    let long = Usage { input: 1_000_000, ..Usage::default() };
    assert_eq!(cost(&price, &long), Some(dollars("2")));
}

#[test]
fn providers_have_the_names_that_other_tools_use() {
    for (name, aliases) in [
        ("azure-openai", &["azure", "azure_openai", "azureopenai"][..]),
        ("gemini", &["google", "google-ai-studio", "aistudio"]),
        ("vertex", &["vertex-ai", "vertex_ai", "vertexai", "google-vertex"]),
        ("bedrock", &["aws-bedrock", "amazon-bedrock"]),
        ("together", &["together-ai", "together_ai", "togetherai"]),
        ("fireworks", &["fireworks-ai", "fireworks_ai"]),
        ("mistral", &["mistralai"]),
        ("xai", &["x-ai"]),
    ] {
        let file = format!("provider,model,input_per_mtok\n{name},m,1\n");
        let table = PriceTable::parse(&file).unwrap();
        for alias in aliases {
            assert!(table.find(alias, "m").is_some(), "{alias}");
        }
        assert!(table.find("other", "m").is_none());
    }
}

#[test]
fn a_snapshot_is_a_day_of_this_century() {
    let table = PriceTable::parse("provider,model,input_per_mtok\np,m,1\n").unwrap();
    for day in ["-2024-08-06", "-20240806", "-20000101", "-20991231", "@20240806", "@2024-08-06"] {
        assert!(table.find("p", &format!("m{day}")).is_some(), "{day}");
    }
    for day in [
        "-19991231",
        "-21000101",
        "-20240006",
        "-20241306",
        "-20240800",
        "-20240832",
        "-2024-1306",
        "-202408-06",
        "-2024x806",
        "-2024080x",
        "-x0240806",
        "-2024/08/06",
        "20240806",
        "@20241306",
        "@",
    ] {
        assert!(table.find("p", &format!("m{day}")).is_none(), "{day}");
    }
}

#[test]
fn reads_of_the_prompt_cache_save_and_writes_cost() {
    let price = Price {
        input_per_mtok: Some(dollars("3")),
        cache_read_per_mtok: Some(dollars("0.3")),
        cache_write_per_mtok: Some(dollars("3.75")),
        cache_write_1h_per_mtok: Some(dollars("6")),
        input_above_200k_per_mtok: Some(dollars("6")),
        ..Price::default()
    };
    let saving = |cache_read, cache_write, cache_write_1h| {
        let usage =
            Usage { input: 7, output: 9, cache_read, cache_write, cache_write_1h, ..Usage::default() };
        cache_saving(&price, &usage)
    };
    assert_eq!(saving(0, 0, 0), None);
    assert_eq!(saving(100_000, 0, 0), Some(dollars("0.27")));
    assert_eq!(saving(0, 100_000, 0), Some(dollars("-0.075")));
    assert_eq!(saving(0, 0, 100_000), Some(dollars("-0.3")));
    assert_eq!(saving(100_000, 10_000, 0), Some(dollars("0.2625")));
    // A long prompt has the higher rates.
    assert_eq!(saving(300_000, 0, 0), Some(dollars("1.62")));
    assert_eq!(cache_saving(&Price::default(), &Usage { cache_read: 1, ..Usage::default() }), None);
}

#[test]
fn no_rate_at_all_is_no_cost_and_never_zero() {
    let price = Price { input_per_mtok: Some(dollars("0.1")), ..Price::default() };
    assert_eq!(cost(&price, &Usage::from_totals(10, 0)), Some(dollars("0.000001")));
    assert_eq!(cost(&price, &Usage::from_totals(10, 1)), None);
}

#[test]
fn exact_names_come_first() {
    let table = table();
    let snapshot = table.find("openai", "gpt-4o-2024-05-13").unwrap();
    assert_eq!(snapshot.input_per_mtok, Some(dollars("5")));
    let regional = table.find("bedrock", "eu.anthropic.claude-3-5-haiku-20241022-v1:0").unwrap();
    assert_eq!(regional.input_per_mtok, Some(dollars("0.25")));
}

#[test]
fn the_alias_rules_find_the_model_meant() {
    let table = table();
    for (provider, alias, name) in [
        ("openai", "gpt-4o-2099-01-31", "gpt-4o"),
        ("openai", "openai/gpt-4o", "gpt-4o"),
        ("openai", "openai/gpt-4o-2099-01-31", "gpt-4o"),
        ("openai", "ft:gpt-4o-2024-08-06:acme::abc123", "ft:gpt-4o-2024-08-06"),
        ("anthropic", "claude-opus-4-1-latest", "claude-opus-4-1"),
        ("anthropic", "claude-sonnet-4-5-20991231", "claude-sonnet-4-5"),
        ("azure", "gpt-4o", "gpt-4o"),
        ("gemini", "models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("google", "gemini-2.5-pro", "gemini-2.5-pro"),
        ("vertex-ai", "publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("vertex", "google/gemini-2.5-pro", "gemini-2.5-pro"),
        ("vertex", "claude-sonnet-4-5@20991231", "claude-sonnet-4-5"),
        ("vertex", "claude-sonnet-4-5@default", "claude-sonnet-4-5"),
        ("openrouter", "deepseek/deepseek-chat", "deepseek-chat"),
        ("bedrock", "apac.anthropic.claude-3-opus-20240229-v1:0", "anthropic.claude-3-opus-20240229-v1:0"),
        (
            "bedrock",
            "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-opus-20240229-v1:0",
            "anthropic.claude-3-opus-20240229-v1:0",
        ),
        (
            "bedrock",
            "arn:aws:bedrock:us-east-1:1:inference-profile/apac.anthropic.claude-3-opus-20240229-v1:0",
            "anthropic.claude-3-opus-20240229-v1:0",
        ),
    ] {
        let found = table.find(provider, alias);
        let expected = &table.provider(provider).unwrap()[name];
        assert!(found.is_some_and(|found| std::ptr::eq(found, expected)), "{provider} {alias}");
    }
}

#[test]
fn names_that_only_begin_alike_find_nothing() {
    let table = table();
    for (provider, model) in [
        ("openai", "gpt-4o-turbo-ultra"),
        ("openai", "gpt-4"[..3].trim()),
        ("openai", "gpt-4o-2024"),
        ("openai", "gpt-4o-2024-13-06"),
        ("openai", "gpt-4o-12345678"),
        ("openai", "us.gpt-4o"),
        ("openai", "-2024-08-06"),
        ("openai", "é-2024-08-0"),
        ("openai", ""),
        ("openrouter", "openai/gpt-4o:free"),
        ("anthropic", "claude"),
        ("anthropic", "claude-sonnet-4-5@v2"),
        ("nobody", "gpt-4o"),
        ("", "gpt-4o"),
    ] {
        assert_eq!(table.find(provider, model), None, "{provider} {model}");
    }
}

#[test]
fn makers_of_a_model_come_before_its_resellers() {
    let table = table();
    assert_eq!(table.providers_for_model("gpt-4o"), ["openai", "azure-openai"]);
    assert_eq!(table.providers_for_model("gemini-2.5-pro"), ["gemini", "vertex"]);
    assert_eq!(table.providers_for_model("claude-sonnet-4-5-20991231"), ["anthropic", "vertex"]);
    assert!(table.providers_for_model("no-such-model").is_empty());
}

#[test]
fn overrides_replace_whole_rows_and_add_new_ones() {
    let overrides =
        PriceTable::parse("provider,model,input_per_mtok\nopenai,gpt-4o,9\nlocal,llama,0\n").unwrap();
    let merged = table().clone().merged(overrides);
    let price = merged.find("openai", "gpt-4o").unwrap();
    assert_eq!((price.input_per_mtok, price.output_per_mtok), (Some(dollars("9")), None));
    assert_eq!(merged.find("local", "llama").unwrap().input_per_mtok, Some(Decimal::ZERO));
    assert!(merged.find("openai", "gpt-4o-mini").is_some());
}

#[test]
fn mistakes_in_a_file_are_named_with_their_line() {
    let head = "provider,model,input_per_mtok,max_input_tokens\nopenai,a,1,8192.0\n";
    for (file, line, part) in [
        (format!("{head}openai,b,cheap,\n"), 3, "input_per_mtok is not a price: \"cheap\""),
        (format!("{head}openai,b,-1,\n"), 3, "not a price"),
        (format!("{head}openai,b,,\n"), 3, "has no input_per_mtok"),
        (format!("{head}openai,b,1,many\n"), 3, "not a number of tokens"),
        (format!("{head}openai,b,1\n"), 3, "has 3 fields, but the first line has 4"),
        (format!("{head}openai,b,1,\n,c,1,\n"), 4, "provider and model are required"),
        (format!("{head}openai,a,2,\n"), 3, "duplicate row for openai a"),
        ("provider,model\n".to_owned(), 1, "input_per_mtok is missing"),
        ("provider,model,input_per_mtok,price\nopenai,a,1,2\n".to_owned(), 2, "unknown column \"price\""),
        (String::new(), 1, "provider is missing"),
    ] {
        let error = PriceTable::parse(&file).expect_err(&file);
        assert_eq!(error.line, line, "{file}");
        assert!(error.message.contains(part), "{error}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")));
    }
    assert_eq!(PriceTable::parse(head).unwrap().find("openai", "a").unwrap().max_input_tokens, Some(8192));
}

proptest! {
    #[test]
    fn the_cost_of_two_requests_is_the_sum_of_their_costs(a in 0u64..100_000, b in 0u64..100_000, c in 0u64..1000, d in 0u64..1000) {
        let apart = costs("openai", "gpt-4o", &Usage::from_totals(a, c)) + costs("openai", "gpt-4o", &Usage::from_totals(b, d));
        prop_assert_eq!(costs("openai", "gpt-4o", &Usage::from_totals(a + b, c + d)), apart);
    }

    #[test]
    fn absurd_counts_never_panic(input in any::<u64>(), output in any::<u64>(), read in any::<u64>()) {
        let usage = Usage { input, output, cache_read: read, ..Usage::default() };
        let price = Price {
            input_per_mtok: Some(dollars("3.123456789")),
            output_per_mtok: Some(Decimal::MAX),
            cache_read_per_mtok: Some(dollars("0.3")),
            input_above_200k_per_mtok: Some(dollars("7")),
            ..Price::default()
        };
        let _ = cost(&price, &usage);
    }

    #[test]
    fn any_name_can_be_looked_up(provider in "(openai|bedrock|vertex)", model in "[a-z/.:@é0-9-]{0,24}(-2024-08-06|-latest|@default)?") {
        let table = PriceTable::parse("provider,model,input_per_mtok\nopenai,a,1\nbedrock,a,1\nvertex,a,1\n").unwrap();
        let _ = table.find(&provider, &model);
    }
}

#[test]
fn the_date_is_that_of_the_newest_prices() {
    let builtin = PriceTable::builtin().unwrap();
    let day = 86_400_000;
    let date = builtin.as_of();
    let own = || PriceTable::parse("provider,model,input_per_mtok\np,m,1\n").unwrap();
    let newer = Timestamp(date.0 + day);
    assert_eq!(builtin.clone().merged(own().dated(newer)).as_of(), newer);
    assert_eq!(builtin.clone().merged(own().dated(Timestamp(date.0 - day))).as_of(), date);
    assert_eq!(builtin.merged(own()).as_of(), date);
}
