//! Tests of all formats: golden files, properties, dropped and rejected fields, and peculiarities of providers.

mod embeddings_and_models;
mod generators;
mod golden;
mod laws;
mod losses;
mod native;
mod random;
mod requests;
mod streams;
mod support;
