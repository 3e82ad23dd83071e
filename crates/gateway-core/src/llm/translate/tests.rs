//! Tests across all formats: golden files, properties, and rejected or dropped fields.

mod golden;
mod laws;
mod losses;
mod native;
mod random;
mod requests;
mod streams;
mod support;
