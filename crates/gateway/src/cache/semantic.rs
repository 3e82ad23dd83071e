//! The semantic index. Requests that differ only in their last user text share a group; for each group the index keeps
//! the texts and their embedding vectors.

use std::sync::Arc;

use gateway_core::cache::{CacheKey, Gate};
use gateway_core::embed::{DIMENSIONS, HASH_V1, cosine, hash_v1};

/// Texts per group; the oldest is dropped for a new one.
pub const MAX_GROUP_TEXTS: usize = 256;

/// The most similar texts of a group that are compared word by word. What asks the same is among the first.
const MAX_COMPARED: usize = 16;

/// The text of a request, with its embedding.
#[derive(Debug, Clone)]
pub struct SemanticQuery {
    /// `gateway_core::cache::semantic_key`: everything but the last user text.
    pub rest: CacheKey,
    /// The embedding model; vectors of different models cannot be compared.
    pub model: String,
    pub vector: Vec<f32>,
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    rest: CacheKey,
    model: String,
}

/// A text in the index and the entry that it leads to.
pub struct IndexedText {
    pub key: CacheKey,
    vector: Box<[f32]>,
    text: Box<str>,
}

impl SemanticQuery {
    /// A query with the built-in embedding, which needs no call.
    pub fn built_in(rest: CacheKey, text: String) -> Self {
        Self { rest, model: HASH_V1.to_owned(), vector: hash_v1(&text, DIMENSIONS), text }
    }

    pub fn group(&self) -> GroupKey {
        GroupKey { rest: self.rest, model: self.model.clone() }
    }

    pub fn indexed_as(&self, key: CacheKey) -> IndexedText {
        IndexedText { key, vector: self.vector.clone().into(), text: self.text.clone().into() }
    }

    /// The memory that its index entry takes.
    pub fn bytes(&self) -> usize {
        self.vector.len() * size_of::<f32>() + self.text.len() + self.model.len() + 128
    }

    /// Returns the texts that are similar enough and ask the same, the most similar first, with their similarity.
    pub fn matches(&self, group: &[Arc<IndexedText>], threshold: f32) -> Vec<(f32, CacheKey)> {
        let score = |indexed: &Arc<IndexedText>| (cosine(&self.vector, &indexed.vector), Arc::clone(indexed));
        let mut found: Vec<_> =
            group.iter().map(score).filter(|(similarity, _)| *similarity >= threshold).collect();
        found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        found.truncate(MAX_COMPARED);
        if !found.is_empty() {
            let gate = Gate::new(&self.text);
            found.retain(|(_, indexed)| gate.admits(&indexed.text));
        }
        found.into_iter().map(|(similarity, indexed)| (similarity, indexed.key)).collect()
    }
}
