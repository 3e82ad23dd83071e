//! What holds for all formats: golden files, laws, and what is refused or left out.

mod golden;
mod laws;
mod losses;
mod native;
mod random;
mod requests;
mod streams;
mod support;
