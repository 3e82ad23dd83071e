//! The semantic index: for each set of requests that differ in their last user text only, the texts with their vectors.

use std::sync::Arc;

use gateway_core::cache::{CacheKey, agrees};
use gateway_core::embed::{DIMENSIONS, HASH_V1, cosine, hash_v1};

/// Texts in one set at most; the oldest make room.
pub const MOST: usize = 256;

/// What a semantic request brings along.
#[derive(Debug, Clone)]
pub struct Probe {
    /// `gateway_core::cache::semantic_key`: everything but the last user text.
    pub rest: CacheKey,
    /// The embedding model, because vectors of two models cannot be compared.
    pub model: String,
    pub vector: Vec<f32>,
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SetId {
    rest: CacheKey,
    model: String,
}

pub struct Near {
    pub key: CacheKey,
    vector: Box<[f32]>,
    text: Box<str>,
}

impl Probe {
    /// With the built-in embedding, which needs no call.
    pub fn built_in(rest: CacheKey, text: String) -> Self {
        Self { rest, model: HASH_V1.to_owned(), vector: hash_v1(&text, DIMENSIONS), text }
    }

    pub fn set(&self) -> SetId {
        SetId { rest: self.rest, model: self.model.clone() }
    }

    pub fn near(&self, key: CacheKey) -> Near {
        Near { key, vector: self.vector.clone().into(), text: self.text.clone().into() }
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.vector.len() * size_of::<f32>() + self.text.len() + self.model.len() + 128
    }

    /// Those that are near enough and ask the same, the nearest first, with how near they are.
    pub fn matches(&self, set: &[Arc<Near>], threshold: f32) -> Vec<(f32, CacheKey)> {
        let nearness = |near: &Arc<Near>| (cosine(&self.vector, &near.vector), Arc::clone(near));
        let mut found: Vec<_> =
            set.iter().map(nearness).filter(|(nearness, _)| *nearness >= threshold).collect();
        found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        found.retain(|(_, near)| agrees(&self.text, &near.text));
        found.into_iter().map(|(nearness, near)| (nearness, near.key)).collect()
    }
}
