//! Texts as applications send them: conversations whose turns repeat the history, in ordinary language, with code, JSON
//! and other scripts. A repeated sentence would hide what the word index costs, because it has few distinct words.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Distinct words of the language. Their frequencies follow Zipf's law.
const VOCABULARY: usize = 12_000;
/// Turns of one conversation.
const TURNS: usize = 8;
/// The history of a request is cut to this size, as a client with a sliding window does.
const MAX_HISTORY_BYTES: usize = 2_300;
const USERS: u64 = 200;

const FREQUENT: &str = "the of and to a in is that it for was on are as with they be at this have from or had by \
    not but what all were when we there can an your which their if do will each about how up out them then she many \
    some so these would other into has more her two like him see time could no make than first been its who now people";

const CODE: &str = "fn merge(left: &[u32], right: &[u32]) -> Vec<u32> {\n    let mut out = Vec::with_capacity(left.len() \
    + right.len());\n    let (mut i, mut j) = (0, 0);\n    while i < left.len() && j < right.len() {\n        if left[i] \
    <= right[j] { out.push(left[i]); i += 1 } else { out.push(right[j]); j += 1 }\n    }\n    out\n}\n";

const OTHER_SCRIPTS: [&str; 4] = [
    "Пожалуйста, перепиши этот абзац короче и проверь, что все числа совпадают с таблицей за прошлый квартал.",
    "この報告書を三つの段落に要約し、重要な数字と担当者の名前を残してください。締め切りは金曜日です。",
    "يرجى تلخيص الملاحظات التالية في ثلاث جمل مع ذكر أسماء المتحدثين والقرارات التي اتخذت.",
    "Εξήγησε γιατί αυξήθηκε το κόστος από την άνοιξη και πρότεινε δύο τρόπους για να μειωθεί.",
];

/// One request and its response.
pub(crate) struct Exchange {
    pub(crate) conversation: u64,
    pub(crate) user: u64,
    pub(crate) request: String,
    pub(crate) response: String,
}

pub(crate) struct Corpus {
    words: Vec<String>,
    /// The sums of the weights of the words up to each.
    weights: Vec<f64>,
    random: Random,
    conversation: u64,
    messages: Vec<(&'static str, String)>,
}

impl Corpus {
    /// The same seed gives the same texts.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
        let mut words: Vec<String> = FREQUENT.split_whitespace().map(str::to_owned).collect();
        while words.len() < VOCABULARY {
            let word = made_word(&mut random);
            words.push(word);
        }
        let mut sum = 0.0;
        let weights = (0..words.len()).map(|rank| {
            sum += 1.0 / (rank as f64 + 2.7);
            sum
        });
        Self { weights: weights.collect(), words, random, conversation: seed << 32, messages: Vec::new() }
    }

    /// The next turn: of the current conversation, or the first of a new one.
    pub(crate) fn next(&mut self) -> Exchange {
        if self.messages.len() >= 2 * TURNS {
            self.messages.clear();
            self.conversation += 1;
        }
        let asked = self.question();
        self.messages.push(("user", asked));
        let request = self.request();
        let answer = self.text(30);
        let response = self.response(&answer);
        self.messages.push(("assistant", answer));
        Exchange { conversation: self.conversation, user: self.conversation % USERS, request, response }
    }

    fn question(&mut self) -> String {
        let mut text = self.text(60);
        match self.conversation % 6 {
            1 => text = format!("{text}\n```rust\n{CODE}```\n"),
            2 => text = format!("{text}\n{}", self.tool_result()),
            3 => {
                let number = usize::try_from(self.random.below(4)).unwrap_or_default();
                text = format!("{} {text}", OTHER_SCRIPTS.get(number).copied().unwrap_or_default());
            }
            _ => {}
        }
        text
    }

    fn request(&mut self) -> String {
        let (mut bytes, mut from) = (0, self.messages.len());
        while from > 0 {
            bytes += self.messages.get(from - 1).map_or(0, |(_, text)| text.len());
            if bytes > MAX_HISTORY_BYTES {
                break;
            }
            from -= 1;
        }
        let system = "You are a careful assistant of a support team. Answer in the language of the question, \
                      name your sources, and say so if you are not sure.";
        let mut messages = vec![json!({"role": "system", "content": system})];
        let history = self.messages.iter().skip(from.min(self.messages.len() - 1));
        messages.extend(history.map(|(role, text)| json!({"role": role, "content": text})));
        let body = json!({
            "messages": messages,
            "model": "gpt-4o-mini",
            "temperature": 0.7,
            "max_tokens": 256,
        });
        body.to_string()
    }

    fn response(&mut self, answer: &str) -> String {
        let completion = answer.len() / 4;
        let body = json!({
            "id": format!("chatcmpl-{:016x}{:016x}", self.random.next(), self.random.next()),
            "object": "chat.completion",
            "created": 1_784_000_000_u64 + self.random.below(1_000_000),
            "model": "gpt-4o-mini-2026-07-18",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 540, "completion_tokens": completion, "total_tokens": 540 + completion},
        });
        body.to_string()
    }

    fn tool_result(&mut self) -> String {
        let orders: Vec<Value> = (0..3)
            .map(|_| {
                json!({
                    "order": format!("A-{:08}", self.random.below(100_000_000)),
                    "total": self.random.below(100_000) as f64 / 100.0,
                    "state": self.word(),
                    "note": self.text(6),
                })
            })
            .collect();
        json!({"tool": "orders", "rows": orders}).to_string()
    }

    /// Sentences of about this many words, twice as many at most.
    fn text(&mut self, words: u64) -> String {
        let count = words + self.random.below(words);
        let mut text = String::new();
        for number in 0..count {
            let word = self.word().to_owned();
            match self.random.below(12) {
                0 if number > 0 => text.push_str(", "),
                1 if number > 0 => text.push_str(". "),
                _ if number > 0 => text.push(' '),
                _ => {}
            }
            text.push_str(&word);
            if self.random.below(40) == 0 {
                let _ = write!(text, " {}", self.random.below(100_000));
            }
        }
        text.push('.');
        text
    }

    fn word(&mut self) -> &str {
        let most = self.weights.last().copied().unwrap_or_default();
        let at = self.random.fraction() * most;
        let rank = self.weights.partition_point(|sum| *sum < at);
        self.words.get(rank).map_or("", String::as_str)
    }
}

fn made_word(random: &mut Random) -> String {
    const SYLLABLES: [&str; 32] = [
        "al", "be", "con", "der", "en", "for", "gra", "hi", "in", "ju", "ka", "lo", "men", "nor", "or",
        "per", "qui", "re", "si", "ti", "un", "ver", "wi", "ex", "ya", "zo", "tion", "ly", "pro", "sta",
        "ment", "ous",
    ];
    let count = 2 + random.below(3);
    (0..count)
        .map(|_| {
            let at = usize::try_from(random.below(SYLLABLES.len() as u64)).unwrap_or_default();
            SYLLABLES.get(at).copied().unwrap_or_default()
        })
        .collect()
}

/// Xorshift: the texts need no better randomness, and must be the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn rows_are_as_large_and_as_varied_as_real_ones() {
        let mut corpus = Corpus::new(7);
        let exchanges: Vec<Exchange> = (0..480).map(|_| corpus.next()).collect();
        let (mut bytes, mut distinct) = (0, 0);
        for exchange in &exchanges {
            serde_json::from_str::<Value>(&exchange.request).unwrap();
            serde_json::from_str::<Value>(&exchange.response).unwrap();
            bytes += exchange.request.len() + exchange.response.len();
            let text = format!("{} {}", exchange.request, exchange.response).to_lowercase();
            distinct += text.split(|c: char| !c.is_alphanumeric()).collect::<HashSet<_>>().len();
        }
        let (bytes, distinct) = (bytes / exchanges.len(), distinct / exchanges.len());
        assert!((2_000..=3_000).contains(&bytes), "{bytes} bytes a row");
        assert!(distinct >= 200, "{distinct} distinct words a row");
        assert!(exchanges.iter().any(|exchange| !exchange.request.is_ascii()));
        assert!(exchanges.iter().any(|exchange| exchange.request.contains("fn merge")));
    }

    #[test]
    fn turns_repeat_the_history() {
        let mut corpus = Corpus::new(1);
        let (first, second) = (corpus.next(), corpus.next());
        assert_eq!(first.conversation, second.conversation);
        let question: Value = serde_json::from_str(&first.request).unwrap();
        let question = question["messages"][1]["content"].as_str().unwrap().to_owned();
        assert!(
            serde_json::from_str::<Value>(&second.request).unwrap().to_string().contains(&question[..40])
        );
    }

    #[test]
    fn a_seed_gives_the_same_texts() {
        let texts = |seed| {
            (0..20)
                .map(|_| seed)
                .map({
                    let mut corpus = Corpus::new(seed);
                    move |_| corpus.next().request
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(3), texts(3));
        assert_ne!(texts(3), texts(4));
    }
}
