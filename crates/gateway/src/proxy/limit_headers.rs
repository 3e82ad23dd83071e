//! The headers of answers that tell callers what their limits have left. They are known before the first byte, because
//! tokens are reserved.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use gateway_core::accounts::LimitHeaders;
use gateway_core::limits::{
    HEADER_NAMES, HeaderWriter, LimitStatus, POLICY_HEADER, Policy, tightest_policies,
};
use gateway_core::llm::ClientFormat;
use gateway_core::time::Timestamp;
use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::directives::Directives;

type Headers = Vec<(HeaderName, HeaderValue)>;

/// Parsed once.
static NAMES: LazyLock<[HeaderName; HEADER_NAMES.len()]> =
    LazyLock::new(|| HEADER_NAMES.map(HeaderName::from_static));

/// What limits the headers of an answer are about.
pub struct ShownLimits<'a> {
    pub setting: LimitHeaders,
    pub policies: &'a [Policy],
    /// The requests per minute of the plan, which come in addition.
    pub plan: Option<&'a LimitStatus>,
    pub now: Timestamp,
}

impl ShownLimits<'_> {
    /// The headers, of which those of OpenAI and Anthropic are only for callers of these formats.
    pub fn headers(&self, directives: &Directives) -> Headers {
        if self.setting == LimitHeaders::Off || self.policies.is_empty() {
            return Vec::new();
        }
        let plan = self.plan.map(|status| Policy::of_plan(item_of_plan(status.limit), status, self.now));
        let policies: Vec<&Policy> = self.policies.iter().chain(&plan).collect();
        let shown = tightest_policies(policies.iter().copied());
        let mut writer = HeaderWriter::default();
        writer.write_rate_limits(&shown);
        let counts_tokens = policies.iter().any(|policy| policy.unit.counts_tokens());
        if self.setting == LimitHeaders::All && counts_tokens && directives.is_format_known() {
            match directives.client_format {
                ClientFormat::OpenAiChat | ClientFormat::OpenAiResponses => writer.write_openai(&policies),
                ClientFormat::Anthropic => writer.write_anthropic(&policies, self.now),
                ClientFormat::Gemini => {}
            }
        }
        let (text, places) = writer.finish();
        let text = Bytes::from(text);
        let mut headers = Vec::with_capacity(places.len());
        for (name, place) in places {
            let text = text.slice(place);
            let value = if name == POLICY_HEADER { policy_value(text) } else { header_value(text) };
            if let Some(value) = value {
                headers.push((NAMES[name].clone(), value));
            }
        }
        headers
    }
}

/// What the answers of a thread said last. Mostly the next one says the same.
struct Last {
    /// By the requests per minute.
    plan: Option<(u64, Arc<str>)>,
    policy: Option<HeaderValue>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { plan: None, policy: None }) };
}

fn item_of_plan(limit: u64) -> Arc<str> {
    LAST.with_borrow_mut(|last| match &last.plan {
        Some((known, item)) if *known == limit => Arc::clone(item),
        _ => {
            let item = Policy::item_of_plan(limit);
            last.plan = Some((limit, Arc::clone(&item)));
            item
        }
    })
}

/// To compare a long value takes less than to check each of its bytes.
fn policy_value(text: Bytes) -> Option<HeaderValue> {
    LAST.with_borrow_mut(|last| match &last.policy {
        Some(known) if known.as_bytes() == &*text => Some(known.clone()),
        _ => {
            last.policy = header_value(text);
            last.policy.clone()
        }
    })
}

fn header_value(text: Bytes) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(text).ok()
}

/// Adds the headers to those of a provider, whose own of the same names get others.
pub fn add(headers: &mut HeaderMap, limits: Headers) {
    headers.reserve(limits.len());
    let mut renamed = Vec::new();
    for (name, value) in limits {
        match headers.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(value);
            }
            Entry::Occupied(mut entry) => {
                let name = HeaderName::try_from(format!("x-upstream-{}", entry.key()));
                let theirs = entry.insert_mult(value);
                if let Ok(name) = name {
                    renamed.extend(theirs.map(|value| (name.clone(), value)));
                }
            }
        }
    }
    for (name, value) in renamed {
        headers.append(name, value);
    }
}
