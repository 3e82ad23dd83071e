//! Conditions on requests: the query language of Portkey's conditional routing. A query is an object of fields; each has
//! a value that it must equal, or an object of operators. All must hold. `$and` and `$or` take lists of queries.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

const MAX_QUERY_DEPTH: usize = 8;
const MAX_REGEX_BYTES: usize = 512;
/// The size of a compiled pattern, and of what matching keeps. Compiled models are held in memory.
const MAX_REGEX_SIZE: usize = 100 << 10;
/// A longer text does not match: requests are matched on their way, and the time grows with text and pattern.
const MAX_MATCHED_BYTES: usize = 4 << 10;
/// Headers whose values no condition may depend on, because they are credentials.
const SECRET_HEADERS: [&str; 3] = ["x-api-key", "x-goog-api-key", "x-amz-security-token"];

/// A value of a request that conditions compare.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// What conditions may ask about a request. None: the request does not have it.
pub trait QueryFacts {
    fn metadata(&self, key: &str) -> Option<Scalar>;
    /// A scalar at the top level of the body.
    fn param(&self, name: &str) -> Option<Scalar>;
    fn header(&self, name: &str) -> Option<Scalar>;
    fn path(&self) -> &str;
    fn user(&self) -> Option<&str>;
    /// The class of the caller's key.
    fn key_class(&self) -> Option<&str>;
    /// An estimate.
    fn input_tokens(&self) -> u64;
}

#[derive(Debug)]
pub(super) enum Query {
    All(Vec<Query>),
    Any(Vec<Query>),
    Compare(Field, Operator),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    Metadata(String),
    Param(String),
    Header(String),
    Path,
    User,
    KeyClass,
    InputTokens,
}

#[derive(Debug)]
pub(super) enum Operator {
    Equal(Scalar),
    NotEqual(Scalar),
    Greater(f64),
    AtLeast(f64),
    Less(f64),
    AtMost(f64),
    In(Vec<Scalar>),
    NotIn(Vec<Scalar>),
    Matches(Pattern),
}

/// A pattern that is compiled when it is first matched: that takes much more time and memory than the rest of a model.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    /// None: the pattern is not valid. It was checked when the model was saved.
    compiled: OnceLock<Option<Regex>>,
}

/// Whether the patterns of a query are compiled while it is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patterns {
    Checked,
    Deferred,
}

/// A query that is not valid: the field of the query, and why.
pub(super) type InvalidQuery = (String, String);

impl Query {
    /// Parses a query and checks it, patterns included.
    pub(super) fn parse(query: &Map<String, Value>) -> Result<Self, InvalidQuery> {
        Self::parse_at(query, Patterns::Checked, 1)
    }

    /// Parses a query that was checked before, without compiling its patterns.
    pub(super) fn parse_checked(query: &Map<String, Value>) -> Result<Self, InvalidQuery> {
        Self::parse_at(query, Patterns::Deferred, 1)
    }

    fn parse_at(query: &Map<String, Value>, patterns: Patterns, depth: usize) -> Result<Self, InvalidQuery> {
        let invalid = |field: &str, why: &str| Err((field.to_owned(), why.to_owned()));
        if query.is_empty() {
            return invalid(
                "",
                "must have a field: an empty query matches every request, use `default` for that",
            );
        }
        if depth > MAX_QUERY_DEPTH {
            return invalid("", "is nested too deeply");
        }
        let mut parts = Vec::with_capacity(query.len());
        for (name, value) in query {
            if name == "$and" || name == "$or" {
                let queries = value.as_array().filter(|list| !list.is_empty());
                let Some(queries) = queries else { return invalid(name, "must be a list of queries") };
                let mut members = Vec::with_capacity(queries.len());
                for member in queries {
                    let Some(member) = member.as_object() else {
                        return invalid(name, "must be a list of queries");
                    };
                    members.push(Self::parse_at(member, patterns, depth + 1)?);
                }
                parts.push(if name == "$and" { Self::All(members) } else { Self::Any(members) });
                continue;
            }
            let field = Field::parse(name).map_err(|why| (name.clone(), why.to_owned()))?;
            match value {
                Value::Object(operators) if operators.is_empty() => {
                    return invalid(name, "must have an operator such as $eq");
                }
                Value::Object(operators) => {
                    for (operator, operand) in operators {
                        let parsed = Operator::parse(operator, operand, patterns)
                            .map_err(|why| (format!("{name}.{operator}"), why))?;
                        parts.push(Self::Compare(field.clone(), parsed));
                    }
                }
                value => match Scalar::of(value) {
                    Some(value) => parts.push(Self::Compare(field, Operator::Equal(value))),
                    None => {
                        return invalid(name, "must be a text, number or boolean, or an object of operators");
                    }
                },
            }
        }
        Ok(Self::All(parts))
    }

    pub(super) fn matches(&self, facts: &impl QueryFacts) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(facts)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(facts)),
            Self::Compare(field, operator) => operator.holds(field.of(facts).as_ref()),
        }
    }

    /// How many patterns it has.
    pub(super) fn patterns(&self) -> usize {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::patterns).sum(),
            Self::Compare(_, operator) => usize::from(matches!(operator, Operator::Matches(_))),
        }
    }

    /// How many of its patterns are compiled.
    #[cfg(test)]
    pub(super) fn compiled_patterns(&self) -> usize {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::compiled_patterns).sum(),
            Self::Compare(_, Operator::Matches(pattern)) => usize::from(pattern.compiled.get().is_some()),
            Self::Compare(..) => 0,
        }
    }

    /// The fields that it asks about.
    pub(super) fn collect_fields<'a>(&'a self, fields: &mut BTreeSet<&'a Field>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                for part in parts {
                    part.collect_fields(fields);
                }
            }
            Self::Compare(field, _) => {
                fields.insert(field);
            }
        }
    }
}

impl Field {
    fn parse(name: &str) -> Result<Self, &'static str> {
        let named = |text: &str| !text.is_empty() && text.len() <= 128;
        if let Some(key) = name.strip_prefix("metadata.").filter(|key| named(key)) {
            return Ok(Self::Metadata(key.to_owned()));
        }
        if let Some(key) = name.strip_prefix("params.").filter(|key| named(key)) {
            if key.contains(['.', '[']) {
                return Err("only fields at the top level of the body can be compared");
            }
            return Ok(Self::Param(key.to_owned()));
        }
        if let Some(header) = name.strip_prefix("headers.") {
            let header = header.to_ascii_lowercase();
            let is_allowed = header.starts_with("x-")
                && header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
                && !header.starts_with("x-gateway-")
                && !SECRET_HEADERS.contains(&header.as_str());
            return if is_allowed {
                Ok(Self::Header(header))
            } else {
                Err("must be an x- header that is neither the gateway's own nor a credential")
            };
        }
        match name {
            "path" | "url.pathname" => Ok(Self::Path),
            "user" => Ok(Self::User),
            "key.class" => Ok(Self::KeyClass),
            "input_tokens" => Ok(Self::InputTokens),
            _ => Err("is not known: must be metadata.<key>, params.<field>, headers.x-<name>, path, user, \
                 key.class or input_tokens"),
        }
    }

    fn of(&self, facts: &impl QueryFacts) -> Option<Scalar> {
        match self {
            Self::Metadata(key) => facts.metadata(key),
            Self::Param(name) => facts.param(name),
            Self::Header(name) => facts.header(name),
            Self::Path => Some(Scalar::Text(facts.path().to_owned())),
            Self::User => facts.user().map(|user| Scalar::Text(user.to_owned())),
            Self::KeyClass => facts.key_class().map(|class| Scalar::Text(class.to_owned())),
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            Self::InputTokens => Some(Scalar::Number(facts.input_tokens() as f64)),
        }
    }

    /// The field of the body that it is.
    pub(super) fn param(&self) -> Option<&str> {
        match self {
            Self::Param(name) => Some(name),
            _ => None,
        }
    }

    /// It is known only from the whole body.
    pub(super) fn needs_body(&self) -> bool {
        matches!(self, Self::Param(_) | Self::InputTokens)
    }
}

impl Scalar {
    /// None for null, lists and objects.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Number(number) => number.as_f64().map(Self::Number),
            Value::Bool(flag) => Some(Self::Flag(*flag)),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.trim().parse().ok(),
            Self::Flag(_) => None,
        }
    }

    /// Headers and metadata are often numbers and booleans written as text.
    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Flag(a), Self::Flag(b)) => a == b,
            (Self::Flag(flag), Self::Text(text)) | (Self::Text(text), Self::Flag(flag)) => {
                *text == flag.to_string()
            }
            (a, b) => match (a.number(), b.number()) {
                (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
                _ => false,
            },
        }
    }
}

impl Operator {
    fn parse(name: &str, operand: &Value, patterns: Patterns) -> Result<Self, String> {
        let scalar = || Scalar::of(operand).ok_or_else(|| "must be a text, number or boolean".to_owned());
        let number = || operand.as_f64().ok_or_else(|| "must be a number".to_owned());
        let list = || -> Result<Vec<Scalar>, String> {
            let items = operand.as_array().filter(|list| !list.is_empty());
            let scalars = items.map(|list| list.iter().map(Scalar::of).collect::<Option<Vec<_>>>());
            scalars.flatten().ok_or_else(|| "must be a list of texts, numbers or booleans".to_owned())
        };
        Ok(match name {
            "$eq" => Self::Equal(scalar()?),
            "$ne" => Self::NotEqual(scalar()?),
            "$gt" => Self::Greater(number()?),
            "$gte" => Self::AtLeast(number()?),
            "$lt" => Self::Less(number()?),
            "$lte" => Self::AtMost(number()?),
            "$in" => Self::In(list()?),
            "$nin" => Self::NotIn(list()?),
            "$regex" => Self::Matches(Pattern::parse(operand, patterns)?),
            _ => {
                return Err(
                    "is not an operator: must be $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin or $regex".into(),
                );
            }
        })
    }

    fn holds(&self, value: Option<&Scalar>) -> bool {
        let number = || value.and_then(Scalar::number);
        match self {
            Self::Equal(operand) => value.is_some_and(|value| value.equals(operand)),
            Self::NotEqual(operand) => !value.is_some_and(|value| value.equals(operand)),
            Self::Greater(operand) => number().is_some_and(|number| number > *operand),
            Self::AtLeast(operand) => number().is_some_and(|number| number >= *operand),
            Self::Less(operand) => number().is_some_and(|number| number < *operand),
            Self::AtMost(operand) => number().is_some_and(|number| number <= *operand),
            Self::In(list) => value.is_some_and(|value| list.iter().any(|item| value.equals(item))),
            Self::NotIn(list) => !value.is_some_and(|value| list.iter().any(|item| value.equals(item))),
            Self::Matches(pattern) => match value {
                Some(Scalar::Text(text)) => text.len() <= MAX_MATCHED_BYTES && pattern.is_match(text),
                Some(Scalar::Number(number)) => pattern.is_match(&number.to_string()),
                Some(Scalar::Flag(flag)) => pattern.is_match(&flag.to_string()),
                None => false,
            },
        }
    }
}

impl Pattern {
    fn parse(operand: &Value, patterns: Patterns) -> Result<Self, String> {
        let text = operand.as_str().filter(|text| text.len() <= MAX_REGEX_BYTES);
        let text = text.ok_or_else(|| format!("must be a pattern of at most {MAX_REGEX_BYTES} bytes"))?;
        if patterns == Patterns::Checked {
            compile(text).map_err(|error| format!("is not a valid pattern: {error}"))?;
        }
        Ok(Self { text: text.to_owned(), compiled: OnceLock::new() })
    }

    fn is_match(&self, text: &str) -> bool {
        let regex = self.compiled.get_or_init(|| compile(&self.text).ok());
        regex.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(MAX_REGEX_SIZE).dfa_size_limit(MAX_REGEX_SIZE).build()
}
