//! Reads the part of callgrind's files that is needed here: the instructions of each function itself.

use std::collections::HashMap;

/// Only threads that serve connections have it.
const SERVING: &str = "hyper::proto::h1::dispatch";

/// The instructions of the functions of a thread.
#[derive(Debug, Default)]
pub(crate) struct Profile(HashMap<String, u64>);

impl Profile {
    pub(crate) fn parse(text: &str) -> Self {
        let (mut names, mut counts) = (HashMap::new(), HashMap::<String, u64>::new());
        let (mut current, mut is_call) = (String::new(), false);
        for line in text.lines() {
            if let Some(function) = line.strip_prefix("fn=") {
                current = resolve(&mut names, function);
            } else if let Some(callee) = line.strip_prefix("cfn=") {
                resolve(&mut names, callee);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                // The line after a call has what the callee used.
                if !std::mem::take(&mut is_call) {
                    let count = line.split(' ').nth(1).and_then(|count| count.parse().ok());
                    *counts.entry(current.clone()).or_default() += count.unwrap_or(0);
                }
            }
        }
        Self(counts)
    }

    pub(crate) fn is_of_serving_thread(&self) -> bool {
        self.0.keys().any(|name| name.contains(SERVING))
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (name, count) in other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    /// The functions with the most instructions.
    pub(crate) fn top(&self, count: usize) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = self.0.iter().map(|(name, count)| (name.clone(), *count)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(count);
        all
    }
}

/// A name is given once, as `(7) name`, and then only by its number.
fn resolve(names: &mut HashMap<String, String>, text: &str) -> String {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => names.get(text).cloned().unwrap_or_else(|| text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_own_instructions_without_those_of_callees() {
        let text = "version: 1\nthread: 2\nevents: Ir\nfl=(1) a.rs\nfn=(1) main\n16 400\n+1 5\ncfn=(2) callee\n\
                    calls=3 50\n17 90\n* 7\nfn=(2)\n50 90\n-2 1\nfn=(1)\n20 2\ntotals: 505\n";
        let profile = Profile::parse(text);
        assert_eq!(profile.top(9), [("main".to_owned(), 414), ("callee".to_owned(), 91)]);
        assert_eq!((profile.total(), profile.is_of_serving_thread()), (505, false));
        assert_eq!(profile.top(1).len(), 1);
    }

    #[test]
    fn threads_that_serve_are_told_by_a_function() {
        let mut sum = Profile::parse("fn=(3) hyper::proto::h1::dispatch::Dispatcher<D>::poll\n1 10\n");
        assert!(sum.is_of_serving_thread());
        sum.add(Profile::parse("fn=(1) other\n1 5\n"));
        assert_eq!(sum.total(), 15);
    }
}
