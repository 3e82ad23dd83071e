//! Names of models, and which model of an organization a requested name means.

use std::collections::HashMap;

const MAX_NAME: usize = 128;

/// `^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$`, with one trailing `*` allowed; or only `*`.
pub fn check_model_name(name: &str) -> Result<(), &'static str> {
    const RULE: &str = "must be 1 to 128 letters, digits or . _ : / @ - after a letter or digit, such as gpt-4o or \
                        openai/*; only the last character may be *";
    let fixed = name.strip_suffix('*').unwrap_or(name);
    let starts_well = fixed.is_empty() || fixed.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@-".contains(&byte);
    if (1..=MAX_NAME).contains(&name.len()) && starts_well && fixed.bytes().all(is_valid) {
        Ok(())
    } else {
        Err(RULE)
    }
}

/// The models of an organization by name. An exact name wins over names with a star, of which the longest wins.
#[derive(Debug)]
pub struct NamedModels<T> {
    exact: HashMap<Box<str>, T>,
    /// By what comes before the star.
    starred: HashMap<Box<str>, T>,
    /// The lengths of the keys of `starred`, descending.
    lengths: Vec<usize>,
}

impl<T> Default for NamedModels<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), starred: HashMap::new(), lengths: Vec::new() }
    }
}

impl<T> FromIterator<(String, T)> for NamedModels<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(named: I) -> Self {
        let mut models = Self::default();
        for (name, model) in named {
            match name.strip_suffix('*') {
                Some(prefix) => models.starred.insert(prefix.into(), model),
                None => models.exact.insert(name.into(), model),
            };
        }
        models.lengths = models.starred.keys().map(|prefix| prefix.len()).collect();
        models.lengths.sort_unstable_by(|a, b| b.cmp(a));
        models.lengths.dedup();
        models
    }
}

impl<T> NamedModels<T> {
    /// The model that a request means, and what the star matched.
    pub fn find<'n>(&self, requested: &'n str) -> Option<(&T, Option<&'n str>)> {
        if let Some(model) = self.exact.get(requested) {
            return Some((model, None));
        }
        self.lengths.iter().find_map(|length| {
            let (prefix, rest) = requested.split_at_checked(*length)?;
            // The star stands for at least one character.
            if rest.is_empty() {
                return None;
            }
            Some((self.starred.get(prefix)?, Some(rest)))
        })
    }

    /// Models without a star, in no order.
    pub fn exact(&self) -> impl Iterator<Item = (&str, &T)> {
        self.exact.iter().map(|(name, model)| (&**name, model))
    }
}
