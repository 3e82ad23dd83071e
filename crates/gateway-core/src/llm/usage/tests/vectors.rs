//! Usage reports of providers, many from bug reports against other gateways, and their expected classes: disjoint, with
//! the provider's total as their sum.

use super::*;

/// Classes in the order input, cache read, cache write, cache write 1 h, output, reasoning, audio in, audio out.
type Classes = [u64; 8];

fn check(format: ProviderFormat, raw: &str, expected: Classes, total: u64) {
    let [input, cache_read, cache_write, cache_write_1h, output, reasoning, audio_input, audio_output] =
        expected;
    let usage = read(format, raw);
    let rest = Usage { reasoning, audio_input, audio_output, ..Usage::default() };
    assert_eq!(usage, Usage { input, cache_read, cache_write, cache_write_1h, output, ..rest }, "{raw}");
    assert_eq!(usage.total(), total, "{raw}");
    assert_eq!(usage.prompt_tokens() + usage.completion_tokens(), total, "{raw}");
}

#[test]
fn openai_parts_are_taken_out_of_their_totals() {
    let openai = |raw, expected, total| check(ProviderFormat::OpenAi, raw, expected, total);
    openai(
        r#"{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":192,"audio_tokens":0}}"#,
        [86, 1920, 0, 0, 108, 192, 0, 0],
        2306,
    );
    openai(
        r#"{"prompt_tokens":100,"completion_tokens":80,"total_tokens":180,"prompt_tokens_details":{"cached_tokens":10,"audio_tokens":60},"completion_tokens_details":{"audio_tokens":50}}"#,
        [30, 10, 0, 0, 30, 0, 60, 50],
        180,
    );
    openai(
        r#"{"input_tokens":3438,"output_tokens":10,"total_tokens":3448,"input_tokens_details":{"cached_tokens":3423,"cache_write_tokens":12}}"#,
        [3, 3423, 12, 0, 10, 0, 0, 0],
        3448,
    );
    openai(r#"{"prompt_tokens":8,"total_tokens":8}"#, [8, 0, 0, 0, 0, 0, 0, 0], 8);
    openai(
        r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":null,"completion_tokens_details":null}"#,
        [9, 0, 0, 0, 2, 0, 0, 0],
        11,
    );
}

#[test]
fn those_who_copied_openai_count_in_their_own_ways() {
    let openai = |raw, expected, total| check(ProviderFormat::OpenAi, raw, expected, total);
    // DeepSeek names the hit part of the prompt.
    openai(
        r#"{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050,"prompt_cache_hit_tokens":896,"prompt_cache_miss_tokens":104}"#,
        [104, 896, 0, 0, 50, 0, 0, 0],
        1050,
    );
    // xAI counts reasoning in addition to the completion.
    openai(
        r#"{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":14428,"prompt_tokens_details":{"cached_tokens":128},"completion_tokens_details":{"reasoning_tokens":2809}}"#,
        [9992, 128, 0, 0, 1499, 2809, 0, 0],
        14428,
    );
    openai(
        r#"{"prompt_tokens":12,"completion_tokens":1,"total_tokens":399,"completion_tokens_details":{"reasoning_tokens":386}}"#,
        [12, 0, 0, 0, 1, 386, 0, 0],
        399,
    );
    // OpenRouter includes what was written to the cache.
    openai(
        r#"{"prompt_tokens":25612,"completion_tokens":4,"total_tokens":25616,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":25600}}"#,
        [12, 0, 25600, 0, 4, 0, 0, 0],
        25616,
    );
    // Gemini's OpenAI-compatible endpoint shows its thoughts only in the total.
    openai(
        r#"{"prompt_tokens":8,"completion_tokens":10,"total_tokens":600}"#,
        [8, 0, 0, 0, 10, 582, 0, 0],
        600,
    );
    // Moonshot puts cached tokens at the top.
    openai(
        r#"{"prompt_tokens":19,"completion_tokens":13,"total_tokens":32,"cached_tokens":10}"#,
        [9, 10, 0, 0, 13, 0, 0, 0],
        32,
    );
    // Perplexity's deep research bills citations and reasoning outside its total of 7,196.
    openai(
        r#"{"prompt_tokens":33,"completion_tokens":7163,"total_tokens":7196,"citation_tokens":20016,"num_search_queries":18,"reasoning_tokens":73997}"#,
        [33 + 20016, 0, 0, 0, 7163, 73997, 0, 0],
        7196 + 20016 + 73997,
    );
}

#[test]
fn anthropics_input_leaves_the_cache_out() {
    let anthropic = |raw, expected, total| check(ProviderFormat::Anthropic, raw, expected, total);
    anthropic(
        r#"{"input_tokens":21,"cache_creation_input_tokens":188086,"cache_read_input_tokens":0,"output_tokens":393}"#,
        [21, 0, 188_086, 0, 393, 0, 0, 0],
        188_500,
    );
    anthropic(
        r#"{"input_tokens":2048,"cache_read_input_tokens":1800,"cache_creation_input_tokens":248,"cache_creation":{"ephemeral_5m_input_tokens":148,"ephemeral_1h_input_tokens":100},"output_tokens":503}"#,
        [2048, 1800, 148, 100, 503, 0, 0, 0],
        4599,
    );
    anthropic(
        r#"{"input_tokens":5,"output_tokens":7,"service_tier":"standard"}"#,
        [5, 0, 0, 0, 7, 0, 0, 0],
        12,
    );
    // The same report through Bedrock's invoke or Vertex, whatever format the caller named.
    check(
        ProviderFormat::Bedrock,
        r#"{"input_tokens":5,"cache_read_input_tokens":9,"cache_creation_input_tokens":0,"output_tokens":7}"#,
        [5, 9, 0, 0, 7, 0, 0, 0],
        21,
    );
    check(ProviderFormat::Gemini, r#"{"input_tokens":5,"output_tokens":7}"#, [5, 0, 0, 0, 7, 0, 0, 0], 12);
}

#[test]
fn geminis_thoughts_are_counted_once_inside_or_outside() {
    let gemini = |raw, expected, total| check(ProviderFormat::Gemini, raw, expected, total);
    gemini(
        r#"{"promptTokenCount":11,"candidatesTokenCount":21,"totalTokenCount":1232,"thoughtsTokenCount":1200}"#,
        [11, 0, 0, 0, 21, 1200, 0, 0],
        1232,
    );
    gemini(
        r#"{"promptTokenCount":11,"candidatesTokenCount":121,"totalTokenCount":132,"thoughtsTokenCount":100}"#,
        [11, 0, 0, 0, 21, 100, 0, 0],
        132,
    );
    gemini(
        r#"{"promptTokenCount":500,"candidatesTokenCount":120,"toolUsePromptTokenCount":300,"thoughtsTokenCount":10,"totalTokenCount":930}"#,
        [800, 0, 0, 0, 120, 10, 0, 0],
        930,
    );
    gemini(
        r#"{"promptTokenCount":500,"candidatesTokenCount":120,"toolUsePromptTokenCount":300,"thoughtsTokenCount":10,"totalTokenCount":630}"#,
        [500, 0, 0, 0, 120, 10, 0, 0],
        630,
    );
    gemini(
        r#"{"promptTokenCount":1000,"cachedContentTokenCount":900,"candidatesTokenCount":50,"totalTokenCount":1050,"promptTokensDetails":[{"modality":"TEXT","tokenCount":950},{"modality":"AUDIO","tokenCount":50}],"cacheTokensDetails":[{"modality":"TEXT","tokenCount":880},{"modality":"AUDIO","tokenCount":20}],"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":40}]}"#,
        [70, 900, 0, 0, 10, 0, 30, 40],
        1050,
    );
    gemini(r#"{"promptTokenCount":7,"totalTokenCount":7}"#, [7, 0, 0, 0, 0, 0, 0, 0], 7);
    gemini(
        r#"{"promptTokenCount":7,"totalTokenCount":60,"thoughtsTokenCount":50}"#,
        [7, 0, 0, 0, 3, 50, 0, 0],
        60,
    );
}

#[test]
fn bedrocks_input_leaves_the_cache_out() {
    check(
        ProviderFormat::Bedrock,
        r#"{"inputTokens":12,"outputTokens":30,"totalTokens":572,"cacheReadInputTokens":500,"cacheWriteInputTokens":30}"#,
        [12, 500, 30, 0, 30, 0, 0, 0],
        572,
    );
    check(
        ProviderFormat::Bedrock,
        r#"{"inputTokenCount":12,"outputTokenCount":30,"cacheReadInputTokenCount":5,"cacheWriteInputTokenCount":6,"invocationLatency":9}"#,
        [12, 5, 6, 0, 30, 0, 0, 0],
        53,
    );
}

#[test]
fn cohere_is_accounted_as_billed() {
    let cohere = |raw, expected, total| check(ProviderFormat::Cohere, raw, expected, total);
    cohere(
        r#"{"billed_units":{"input_tokens":5.0,"output_tokens":418.0},"tokens":{"input_tokens":71,"output_tokens":418}}"#,
        [5, 0, 0, 0, 418, 0, 0, 0],
        423,
    );
    cohere(
        r#"{"tokens":{"input_tokens":71,"output_tokens":4},"cached_tokens":64}"#,
        [7, 64, 0, 0, 4, 0, 0, 0],
        75,
    );
    cohere(
        r#"{"api_version":{"version":"2"},"billed_units":{"input_tokens":3}}"#,
        [3, 0, 0, 0, 0, 0, 0, 0],
        3,
    );
}

#[test]
fn reports_without_tokens_are_no_usage() {
    for raw in [
        "{}",
        "null",
        "[]",
        r#"{"prompt_tokens":null,"completion_tokens":null}"#,
        r#"{"type":"duration","seconds":9}"#,
        r#"{"billed_units":{"search_units":1}}"#,
        r#"{"input_tokens":"many"}"#,
    ] {
        for format in [
            ProviderFormat::OpenAi,
            ProviderFormat::Anthropic,
            ProviderFormat::Gemini,
            ProviderFormat::Bedrock,
            ProviderFormat::Cohere,
        ] {
            assert_eq!(read_usage(format, raw), None, "{raw}");
        }
    }
}

#[test]
fn parts_larger_than_their_total_never_make_more_of_it() {
    check(
        ProviderFormat::OpenAi,
        r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":99,"audio_tokens":9},"completion_tokens_details":{"audio_tokens":99}}"#,
        [0, 10, 0, 0, 0, 0, 0, 5],
        15,
    );
}

proptest! {
    #[test]
    fn openai_classes_always_add_up_to_the_total(
        prompt in 0u64..1_000_000, output in 0u64..1_000_000, cached in 0u64..1_000_000, reasoning in 0u64..1_000_000,
    ) {
        let (cached, reasoning) = (cached.min(prompt), reasoning.min(output));
        let raw = format!(
            r#"{{"prompt_tokens":{prompt},"completion_tokens":{output},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{cached}}},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}"#,
            prompt + output,
        );
        let usage = read(ProviderFormat::OpenAi, &raw);
        prop_assert_eq!(usage.total(), prompt + output);
        prop_assert_eq!((usage.cached_tokens(), usage.reasoning), (cached, reasoning));
    }

    #[test]
    fn huge_counts_never_panic(numbers in proptest::collection::vec(any::<u64>(), 6)) {
        let [a, b, c, d, e, f] = numbers[..] else { unreachable!() };
        for raw in [
            format!(r#"{{"prompt_tokens":{a},"completion_tokens":{b},"total_tokens":{c},"cached_tokens":{d},"reasoning_tokens":{e},"citation_tokens":{f}}}"#),
            format!(r#"{{"promptTokenCount":{a},"candidatesTokenCount":{b},"totalTokenCount":{c},"thoughtsTokenCount":{d},"toolUsePromptTokenCount":{e},"cachedContentTokenCount":{f}}}"#),
            format!(r#"{{"input_tokens":{a},"output_tokens":{b},"cache_read_input_tokens":{c},"cache_creation_input_tokens":{d}}}"#),
            format!(r#"{{"inputTokens":{a},"outputTokens":{b},"cacheReadInputTokens":{c},"cacheWriteInputTokens":{d}}}"#),
        ] {
            read(ProviderFormat::Anthropic, &raw).total();
        }
    }
}
