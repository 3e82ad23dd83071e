//! The built-in embedding `hash-v1`: words, word pairs and trigrams, hashed into a vector of unit length. It needs no
//! model and no network. A text has the same vector on every machine and in every release, because stored vectors are
//! compared with new ones. An improved embedding needs a new name.
//!
//! It reflects wording, not meaning. Texts with the same words have a similarity near 1, regardless of case,
//! punctuation, plurals and filler words; texts without common words are near 0. "enable" and "disable" are similar, so
//! callers need a check of their own, such as `cache::gate`.

use std::collections::BTreeMap;

/// The model name of this embedding; stored vectors carry it.
pub const HASH_V1: &str = "hash-v1";

/// The default number of dimensions.
pub const DIMENSIONS: usize = 256;

const PAIR_WEIGHT: f64 = 0.5;
/// The weight of all trigrams of a word together, independent of its length.
const TRIGRAMS_WEIGHT: f64 = 0.6;
const FILLER_WEIGHT: f64 = 0.15;

/// Words of grammar or courtesy, which get a low weight. Sorted for binary search. Negations, question words, "from"
/// and "without" are deliberately not included.
const FILLERS: [&str; 61] = [
    "a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being", "by", "can", "could",
    "did", "do", "doe", "explain", "for", "get", "give", "ha", "had", "have", "hello", "help", "hey", "hi",
    "i", "in", "is", "it", "just", "kindly", "let", "like", "ll", "m", "me", "my", "need", "of", "on", "our",
    "please", "re", "s", "should", "so", "tell", "thank", "that", "the", "this", "to", "ve", "wa", "want",
    "would", "you",
];

/// The vector of a text, with `dims` dimensions and unit length. A text without words is hashed by its bytes, so that
/// its vector has unit length as well.
pub fn hash_v1(text: &str, dims: usize) -> Vec<f32> {
    let mut sums = vec![0.0_f64; dims];
    // The order is fixed, because floating-point sums depend on it.
    for (hash, feature) in features(text) {
        // The lowest bit is the sign and the others the index, so that collisions cancel out on average.
        let sign = if hash & 1 == 0 { 1.0 } else { -1.0 };
        let index = usize::try_from((hash >> 1) % (dims.max(1) as u64)).unwrap_or_default();
        if let Some(sum) = sums.get_mut(index) {
            // Square roots are exact on every machine, unlike logarithms.
            *sum += sign * feature.weight * feature.count.sqrt();
        }
    }
    let length = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
    if length == 0.0
        && let Some(first) = sums.first_mut()
    {
        *first = 1.0;
    }
    let length = if length == 0.0 { 1.0 } else { length };
    #[expect(clippy::cast_possible_truncation, reason = "the vector has single precision by design")]
    sums.into_iter().map(|sum| (sum / length) as f32).collect()
}

/// The cosine similarity of two vectors of any length. Returns 0 for vectors of different dimensions and for zero
/// vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    let length = dot(a, a).sqrt() * dot(b, b).sqrt();
    if length > 0.0 && length.is_finite() { (dot(a, b) / length).clamp(-1.0, 1.0) } else { 0.0 }
}

/// Eight independent sums, which the compiler turns into vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (eights_a, rest_a) = a.as_chunks::<8>();
    let (eights_b, rest_b) = b.as_chunks::<8>();
    for (a, b) in eights_a.iter().zip(eights_b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

struct Feature {
    weight: f64,
    count: f64,
}

fn features(text: &str) -> BTreeMap<u64, Feature> {
    let mut found = BTreeMap::new();
    let mut add = |kind: u8, parts: &[&str], weight: f64| {
        let feature = found.entry(hash(kind, parts)).or_insert(Feature { weight, count: 0.0 });
        feature.count += 1.0;
    };
    let words = words(text);
    if words.is_empty() {
        add(b'=', &[text], 1.0);
    }
    // In a text of filler words only, filler words keep their full weight.
    let is_filler = |word: &str| FILLERS.binary_search(&word).is_ok();
    let all_filler = words.iter().all(|word| is_filler(word));
    let mut last: Option<&str> = None;
    for word in &words {
        if !all_filler && is_filler(word) {
            add(b'w', &[word], FILLER_WEIGHT);
            continue;
        }
        add(b'w', &[word], 1.0);
        if let Some(last) = last {
            add(b'p', &[last, word], PAIR_WEIGHT);
        }
        last = Some(word);
        let padded: Vec<char> = std::iter::once(' ').chain(word.chars()).chain([' ']).collect();
        let grams = padded.windows(3);
        let each = TRIGRAMS_WEIGHT / f64::from(u32::try_from(grams.len()).unwrap_or(u32::MAX)).sqrt();
        for gram in grams {
            add(b't', &[&String::from_iter(gram)], each);
        }
    }
    found
}

/// The words of a text in lower case, without plural endings. "n't" becomes "not", and each ideograph is a word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut after_apostrophe = false;
    let mut close = |word: &mut String, after_apostrophe: bool| {
        if word.is_empty() {
            return;
        }
        match words.last_mut() {
            Some(last) if after_apostrophe && word == "t" && last.ends_with('n') => {
                if last.as_str() != "can" {
                    last.pop();
                }
                words.push("not".to_owned());
            }
            _ => words.push(without_plural(word).to_owned()),
        }
        word.clear();
    };
    for c in text.chars() {
        if c.is_alphanumeric() && !is_ideograph(c) {
            word.extend(c.to_lowercase());
            continue;
        }
        close(&mut word, after_apostrophe);
        after_apostrophe = matches!(c, '\'' | '’');
        if is_ideograph(c) {
            word.push(c);
            close(&mut word, false);
        }
    }
    close(&mut word, after_apostrophe);
    words
}

/// Removes English plural and third-person endings by three conservative rules. Other languages lose at most a final s.
fn without_plural(word: &str) -> &str {
    let ends = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    match word.strip_suffix('s') {
        Some(stem) if word.len() > 2 && word.is_ascii() && !ends(&["us", "ss", "is"]) => stem,
        _ => word,
    }
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// FNV-1a with a final mix, because its low bits alone are poorly distributed.
fn hash(kind: u8, parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = std::iter::once(kind).chain(bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: &str, b: &str) -> f32 {
        cosine(&hash_v1(a, DIMENSIONS), &hash_v1(b, DIMENSIONS))
    }

    #[test]
    fn the_list_of_fillers_is_sorted_and_has_no_plural() {
        assert!(FILLERS.is_sorted());
        assert!(FILLERS.iter().all(|word| without_plural(word) == *word), "{FILLERS:?}");
    }

    #[test]
    fn the_same_wording_is_similar() {
        for (a, b) in [
            ("How do I reset my password?", "how do i reset the password"),
            ("What is the capital of France?", "Please tell me what's the capital of France"),
            ("Why don't cats swim?", "why do not cats swim"),
            ("how to install rust on linux", "How to install Rust on Linux?!"),
            ("List three sorting algorithms", "list three sorting algorithm"),
        ] {
            assert!(near(a, b) > 0.93, "{a} / {b}: {}", near(a, b));
        }
    }

    #[test]
    fn different_wording_is_not_similar() {
        for (a, b) in [
            ("How do I reset my password?", "Bananas are yellow."),
            ("What is the capital of France?", "Write a poem about autumn leaves"),
            ("日本の首都はどこですか", "猫が好きな食べ物を教えて"),
        ] {
            assert!(near(a, b) < 0.4, "{a} / {b}: {}", near(a, b));
        }
        let (one, other) =
            (near("I like red apples", "I like green apples"), near("I like red apples", "i like red apple"));
        assert!(one < other && other > 0.99, "{one} {other}");
    }

    #[test]
    fn repeating_a_word_adds_less_each_time() {
        let once = near("gold silver", "gold");
        let often = near("gold gold gold gold silver", "gold");
        assert!(once < often && often < 0.97, "{once} {often}");
    }

    #[test]
    fn vectors_do_not_change_between_releases() {
        let golden = |text: &str, dims| -> Vec<i64> {
            #[expect(clippy::cast_possible_truncation, reason = "the numbers are at most 10000")]
            hash_v1(text, dims).iter().map(|x| (f64::from(*x) * 10_000.0).round() as i64).collect()
        };
        assert_eq!(
            golden("How do I reset my password?", 8),
            [-1878, -4261, -4320, 2309, -797, 1008, -2873, 6665]
        );
        assert_eq!(golden("naïve 日本", 6), [-6021, 1010, -2258, 3763, 6516, 1010]);
        assert_eq!(golden("", 4), [0, 10000, 0, 0]);
    }

    #[test]
    fn vectors_of_different_dimensions_or_of_zero_length_have_similarity_zero() {
        assert_eq!(cosine(&[1.0, 0.0], &[1.0]).to_bits(), 0.0_f32.to_bits());
        assert_eq!(cosine(&[0.0; 9], &[1.0; 9]).to_bits(), 0.0_f32.to_bits());
        assert_eq!(cosine(&[f32::INFINITY], &[1.0]).to_bits(), 0.0_f32.to_bits());
        assert!((cosine(&[3.0; 19], &[0.5; 19]) - 1.0).abs() < 1e-6);
        assert!((cosine(&[1.0, 2.0], &[-1.0, -2.0]) + 1.0).abs() < 1e-6);
        assert!(hash_v1("text", 0).is_empty());
    }

    proptest! {
        #[test]
        fn every_text_has_a_vector_of_unit_length(text in ".*", dims in 1_usize..300) {
            let vector = hash_v1(&text, dims);
            prop_assert_eq!(vector.len(), dims);
            prop_assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-4);
            prop_assert_eq!(vector, hash_v1(&text, dims));
        }
    }
}
